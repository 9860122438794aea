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
    """Damage every ``step``-th value in every way; return what went wrong."""
    file = world.run / "run.json"
    raw = json.loads(file.read_text())
    attacks = [(p, v) for p in _paths(raw) for v in (..., *_WRONG)]
    faults = []
    for path, value in attacks[first_of::step]:
        file.write_text(json.dumps(_damaged(raw, path, value)))
        for command in (
            ("runs", "list"),
            ("runs", "show", world.run.name),
            ("runs", "list", "--json"),
        ):
            told = world.tell(*command)
            listed = command[1] == "list"
            wrong = told.faults() + ["the list ends"] * (listed and told.code != 0)
            faults += [f"{'.'.join(path)} = {value!r}: {' '.join(command)}: {f}" for f in wrong]
    file.write_text(json.dumps(raw))
    return faults


def test_a_sample_of_damaged_records(world: World) -> None:
    assert _attack(world, 3, 61) == []


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
    "bare": '{"schema_version": 2}',
    "deep list": "[" * 100_000,
    "deep object": '{"a":' * 50_000,
    "newer": '{"schema_version": 99}',
    "version as text": '{"schema_version": "2"}',
    "half a character": "\ud83d",
}


@pytest.mark.parametrize("content", _NO_RECORDS.values(), ids=_NO_RECORDS)
def test_a_record_that_is_none(world: World, content: str) -> None:
    (world.run / "run.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    faults = []
    for command in (
        ("runs", "list"), ("runs", "list", "--json"), ("runs", "show", world.run.name),
        ("compare", world.run.name, world.run.name), ("run", *QUICK),
        ("run", "--model", world.run), ("run", "--init-from", world.run, *QUICK),
    ):  # fmt: skip
        told = world.tell(*command)
        faults += [f"{' '.join(map(str, command))}: {fault}" for fault in told.faults()]
        if command[:2] == ("runs", "list") and told.code != 0:
            faults.append("the list ends")
        if command == ("run", *QUICK) and world.numbers_differ(told):
            faults.append("other numbers")
    assert faults == []
