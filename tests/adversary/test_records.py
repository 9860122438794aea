"""Attacks on the record of a finished run: every field missing, null or of another type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.adversary.world import QUICK, World

_WRONG: tuple[Any, ...] = (None, -1, 1e308, "wrong", [], {}, [[1]], {"x": {"y": []}}, True)


def _paths(raw: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the place of every value down to the third level."""
    if isinstance(raw, dict) and len(at) < 3:
        for key, value in raw.items():
            yield (*at, key)
            yield from _paths(value, (*at, key))


def _damaged(raw: Any, path: tuple[str, ...], value: Any) -> Any:
    copy = json.loads(json.dumps(raw))
    node = copy
    for key in path[:-1]:
        node = node[key]
    if value is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return copy


def _attack(world: World, first_of: int, step: int) -> list[str]:
    """Change every ``step``-th value in every way; return what went wrong.

    No command may believe a changed record.
    """
    file = world.run / "run.json"
    raw = json.loads(file.read_text())
    attacks = [(p, v) for p in _paths(raw) for v in (..., *_WRONG)]
    faults = []
    for path, value in attacks[first_of::step]:
        damaged = _damaged(raw, path, value)
        file.write_text(json.dumps(damaged))
        for command in (
            ("runs", "list"),
            ("runs", "show", world.run.name),
            ("runs", "list", "--json"),
        ):
            told = world.tell(*command)
            listed = command[1] == "list"
            wrong = told.faults() + ["the list ends"] * (listed and told.code != 0)
            wrong += ["is believed"] * (not listed and told.code != 2 and damaged != raw)
            faults += [f"{'.'.join(path)} = {value!r}: {' '.join(command)}: {f}" for f in wrong]
    file.write_text(json.dumps(raw))
    return faults


def test_a_sample_of_damaged_records(world: World) -> None:
    assert _attack(world, 3, 97) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_every_damaged_record(world: World, part: int) -> None:
    assert _attack(world, part, 8) == []


_NO_RECORDS = {
    "empty": "",
    "open": "{",
    "null": "null",
    "list": "[]",
    "number": "3",
    "text": '"text"',
    "zeros": "\x00" * 100,
    "object": "{}",
    "bare": '{"schema_version": 3}',
    "deep list": "[" * 100_000,
    "deep object": '{"a":' * 50_000,
    "newer": '{"schema_version": 99}',
    "version as text": '{"schema_version": "2"}',
    "half a character": "\ud83d",
}


def _faults(world: World, name: str, *commands: tuple[object, ...]) -> list[str]:
    """Put something in the place of a record; return what commands do that they must not."""
    content = _NO_RECORDS[name]
    (world.run / "run.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    faults = []
    for command in commands:
        told = world.tell(*command)
        faults += [f"{name}: {' '.join(map(str, command))}: {fault}" for fault in told.faults()]
        if command[:2] == ("runs", "list") and told.code != 0:
            faults.append(f"{name}: the list ends")
        if command[0] == "run" and world.numbers_differ(told):
            faults.append(f"{name}: other numbers")
    return faults


def test_records_that_are_none(world: World) -> None:
    named = world.run.name
    told = (
        *(("runs", "list"), ("runs", "list", "--json"), ("runs", "show", named)),
        *(("compare", named, named), ("run", "--model", world.run)),
        ("run", "--init-from", world.run, *QUICK),
    )
    assert [fault for name in _NO_RECORDS for fault in _faults(world, name, *told)] == []


@pytest.mark.parametrize("name", ["open", "object", "newer"])
def test_a_run_whose_record_is_none(world: World, name: str) -> None:
    assert _faults(world, name, ("run", *QUICK)) == []
