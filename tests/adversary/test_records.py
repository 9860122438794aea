"""Attacks on the record of a finished run: every field missing, null or of another type."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import fsframework as fsf
from fsframework.api.headlines import headline_of_run
from fsframework.engine.progress import usual_reporter
from fsframework.errors import FsfError
from fsframework.records import RunRecord
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


STEERING = "".join(
    map(chr, (*range(9), *range(11, 32), *range(127, 160), 0x200E, 0x200F, 0x61C))
) + "".join(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
EVIL = f"\x1b[2J\x1b]0;title\x07{STEERING}"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_texts_of_a_record_steer_no_terminal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    record = RunRecord.load(world.run)
    dataclasses.replace(
        record,
        labels={name: f"{label}{EVIL}" for name, label in record.labels.items()},
        notes=(EVIL, *record.notes),
        cautions=(f"beware{EVIL}",),
        plugins=tuple(dataclasses.replace(one, version=EVIL) for one in record.plugins),
        data=dataclasses.replace(record.data, name=EVIL),
        given={"name": EVIL},
    ).save(world.run)
    named = "a" + STEERING[1:]  # no NUL in a path
    shutil.copytree(world.run, world.run.parent / named)
    (world.run.parent / "torn").mkdir()
    (world.run.parent / "torn" / "run.json").write_text(f'{{"{EVIL[4:]}')
    for command in (
        *(("runs", "show", world.run.name), ("runs", "list"), ("run", *QUICK)),
        *(("runs", "show", named), ("runs", "show", world.run.name, "--json")),
        *(("compare", world.run.name, named), ("table", world.run.name), ("runs", "show", EVIL)),
        *(("run", "--method", EVIL), ("runs", "list", EVIL)),
    ):
        told = world.tell(*command)
        assert told.code == (2 if EVIL in command else 0), (command, told.err)
        assert not set(told.out + told.err) & set(STEERING), command
    assert json.loads(world.tell("runs", "show", named, "--json").out)["notes"][0] == EVIL
    run = fsf.load_run(world.run)
    shown = [
        run,
        fsf.compare({EVIL: run, "b": run}),
        headline_of_run(run),
        fsf.runs(world.run.parent),
    ]
    assert not set("".join(map(repr, shown))) & set(STEERING)
    with pytest.raises(FsfError) as caught:
        fsf.load_run(EVIL)
    assert not set(str(caught.value)) & set(STEERING)
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        usual_reporter().note(EVIL)
        assert not set(stream.getvalue()) & set(STEERING)


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
