"""Values nested thousands of levels deep, wherever a command parses them: a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import fsframework as fsf
from fsframework.errors import OptionError
from tests.adversary.world import QUICK, World

DEPTHS = (100, 500, 900, 1500, 100_000)
"""Some that a parser takes and those who walk the result do not, and some that no parser takes."""
TOO_DEEP = "values are nested more than 64 levels deep"


def lists(depth: int) -> str:
    return "[" * depth + "]" * depth


def tables(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def dotted(depth: int) -> str:
    return ".".join(["a"] * depth)


def check(world: World, *command: object, told: str) -> None:
    found = world.tell(*command, seconds=30)
    assert (found.code, found.faults()) == (2, []), found.err[-300:]
    sentence = found.err.splitlines()[-1]
    assert told in sentence
    assert len(sentence) < 600


@pytest.mark.parametrize("depth", DEPTHS)
def test_options(world: World, depth: int) -> None:
    given = ("-o", f"method.{dotted(depth)}=1")
    check(world, "run", *QUICK, *given, told="nested at most 32 levels deep")
    check(world, "tasks", "make", "t.safetensors", *given, told="nested at most 32 levels deep")


@pytest.mark.parametrize("depth", DEPTHS)
def test_configuration_files(world: World, depth: int) -> None:
    for text in (
        f"tasks = {lists(depth)}\n",
        f"[method.{dotted(depth)}]\n",
        f"method.{dotted(depth)} = 1\n",
        "method = " + "{a = " * depth + "1" + "}" * depth + "\n",
    ):
        (world.folder / "here" / "deep.toml").write_text(text)
        check(world, "run", "--config", "deep.toml", told=TOO_DEEP)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("deep", [lists, tables])
def test_records_and_lists_of_data(world: World, deep: Callable[[int], str], depth: int) -> None:
    file = world.run / "run.json"
    raw = json.loads(file.read_text())
    raw["settings"]["drop_words"] = "DEEP"
    file.write_text(json.dumps(raw).replace('"DEEP"', deep(depth)))
    check(world, "runs", "show", world.run.name, told=TOO_DEEP)
    assert world.tell("runs", "list").code == 0
    added = world.folder / "added"
    added.mkdir()
    (added / "datasets.json").write_text(deep(depth))
    listed = world.tell("data", "list")
    assert (listed.code, listed.faults()) == (0, [])
    assert TOO_DEEP in listed.err


@pytest.mark.parametrize("depth", DEPTHS)
def test_arguments_of_a_call(depth: int) -> None:
    deep: dict[str, object] = {}
    for _ in range(depth):
        deep = {"a": deep}
    for arguments in ({"method": deep}, {"training": [deep]}, {"config": {"method": deep}}):
        with pytest.raises(OptionError, match="nested at most 32 levels deep"):
            fsf.describe(**arguments)
