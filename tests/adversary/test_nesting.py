"""Values nested thousands of levels deep, wherever something is parsed: a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

import fsframework as fsf
from fsframework.errors import OptionError
from tests.adversary.world import QUICK, TRAINED, World

DEPTHS = (100, 500, 900, 1500, 100_000)
"""Some that a parser takes and those who walk the result do not, and some that no parser takes."""


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


@pytest.mark.parametrize("depth", DEPTHS[:4])
@pytest.mark.parametrize(
    "text",
    [
        lambda depth: f"tasks = {lists(depth)}\n",
        lambda depth: f"[method.{dotted(depth)}]\n",
        lambda depth: f"method.{dotted(depth)} = 1\n",
        lambda depth: "method = " + "{a = " * depth + "1" + "}" * depth + "\n",
    ],
    ids=["lists", "a table", "a key", "tables"],
)
def test_configuration_files(world: World, text: Callable[[int], str], depth: int) -> None:
    (world.folder / "here" / "deep.toml").write_text(text(depth))
    given = ("--config", "deep.toml")
    check(world, "run", *given, told="values are nested more than 64 levels deep")


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("deep", [lists, tables])
def test_records_and_lists_of_data(world: World, deep: Callable[[int], str], depth: int) -> None:
    file = world.run / "run.json"
    raw = json.loads(file.read_text())
    raw["settings"]["drop_words"] = "DEEP"
    file.write_text(json.dumps(raw).replace('"DEEP"', deep(depth)))
    check(world, "runs", "show", world.run.name, told="values are nested more than 64 levels deep")
    assert world.tell("runs", "list").code == 0
    added = world.folder / "added"
    added.mkdir()
    (added / "datasets.json").write_text(deep(depth))
    listed = world.tell("data", "list")
    assert (listed.code, listed.faults()) == (0, [])
    assert "values are nested more than 64 levels deep" in listed.err


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("deep", [lists, tables])
def test_headers(world: World, deep: Callable[[int], str], depth: int) -> None:
    tasks = world.run / "tasks-random.safetensors"
    save_file(load_file(tasks), world.folder / "t.safetensors", {"fsframework": deep(depth)})
    command = ("run", *TRAINED, "--task-file", world.folder / "t.safetensors")
    check(world, *command, told="its header is damaged (values are nested more than 64 levels deep")
    weights = {"a": np.zeros(1, np.float32)}
    save_file(weights, world.folder / "w.safetensors", {"fsframework": deep(depth)})
    command = ("run", *QUICK, "--init-from", world.folder / "w.safetensors")
    check(world, *command, told="values are nested more than 64 levels deep")
    table = pa.table({"key": ["a"], "words": [["b"]]})
    table = table.replace_schema_metadata({"fsframework": deep(depth)})
    pq.write_table(table, world.folder / "words.parquet")
    command = ("run", *QUICK, "--attributes", world.folder / "words.parquet")
    check(world, *command, told="values are nested more than 64 levels deep")


@pytest.mark.parametrize("deep", [lists, tables])
def test_files_of_splits(world: World, deep: Callable[[int], str]) -> None:
    images = world.folder / "images"
    for name in "ab":
        (images / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(images / name / "0.png")
    splits: Path = world.folder / "splits.json"
    splits.write_text(f'{{"test": {deep(1500)}}}')
    given = ("--dataset", f"folder:{images}", "-o", f"dataset.split={splits}")
    check(world, "data", "check", *given, told="values are nested more than 64 levels deep")


@pytest.mark.parametrize("depth", DEPTHS)
def test_arguments_of_a_call(depth: int) -> None:
    deep: dict[str, object] = {}
    for _ in range(depth):
        deep = {"a": deep}
    for arguments in ({"method": deep}, {"training": [deep]}, {"config": {"method": deep}}):
        with pytest.raises(OptionError, match="nested at most 32 levels deep"):
            fsf.describe(**arguments)
