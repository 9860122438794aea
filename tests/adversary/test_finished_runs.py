"""Attacks on the files of a finished run: lost, damaged, of another run, of a newer version."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fsframework.records import RunRecord
from fsframework.values import Outcomes
from tests.adversary.world import PLANTED, QUICK, TASKS, World

REUSED = "nothing to do: this run is already finished"
FILES = (
    *("weights.safetensors", "tasks-random.safetensors", "tasks-biased.safetensors"),
    *("outcomes-random.parquet", "outcomes-biased.parquet"),
)


def remove(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip_the_end(file: Path) -> None:
    raw = file.read_bytes()
    file.write_bytes(raw[:-64] + bytes(255 - byte for byte in raw[-64:]))


def digests(world: World) -> dict[str, Any]:
    return dict(RunRecord.load(world.run).digests)


DAMAGES = [
    *((flip_the_end, (name,)) for name in FILES),
    *((remove, (name,)) for name in FILES),
    *((damage, FILES) for damage in (remove, empty, cut)),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("damage", "names"), DAMAGES)
def test_a_damaged_run_is_completed_again(
    world: World, damage: Callable[[Path], None], names: tuple[str, ...]
) -> None:
    before = digests(world)
    for name in names:
        damage(world.run / name)
    told = world.tell("run", *QUICK)
    assert (told.code, told.faults()) == (0, []), told.err
    assert REUSED not in told.err
    assert any(f"note: {world.run / name}: " in told.err for name in names)
    assert "; the run is completed again" in told.err
    assert not world.numbers_differ(told)
    assert digests(world) == before
    assert REUSED in world.tell("run", *QUICK).err


@pytest.mark.slow
def test_files_of_another_run_are_not_taken_for_its_own(world: World) -> None:
    other = (*QUICK, "--seed", "1")
    assert world.tell("run", *other).code == 0
    (stranger,) = (p.parent for p in world.folder.glob("runs/*/run.json") if p.parent != world.run)
    for name in FILES:
        shutil.copy(stranger / name, world.run / name)
        told = world.tell("run", *QUICK)
        assert (told.code, told.faults()) == (0, [])
        assert f"note: {world.run / name}: " in told.err, name
        assert not world.numbers_differ(told)


def change_an_answer(file: Path) -> None:
    found = Outcomes.load(file)
    predictions = found.predictions.copy()
    predictions[0, 0, 0] = (predictions[0, 0, 0] + 1) % found.n_way
    dataclasses.replace(found, predictions=predictions).save(file)


def change_the_header(file: Path, **fields: Any) -> None:
    table = pq.read_table(file)
    header = json.loads(table.schema.metadata[b"fsframework"])
    raw = json.dumps({**header, **fields}).encode()
    pq.write_table(table.replace_schema_metadata({b"fsframework": raw}), file)


@pytest.mark.parametrize(
    "change",
    [
        change_an_answer,
        *(
            functools.partial(change_the_header, **fields)
            for fields in (
                {"n_images": -1},
                {"n_images": 7},
                {"reuses_images": False},
                {"query_batch": "class"},
            )
        ),
    ],
)
def test_outcomes_that_were_changed_are_noticed_by_every_reader(
    world: World, change: Callable[[Path], None]
) -> None:
    file = world.run / "outcomes-biased.parquet"
    change(file)
    told = world.tell("compare", world.run.name, world.run.name)
    assert (told.code, told.faults()) == (2, [])
    assert str(file) in told.err
    assert told.err.endswith("; run the command that made it again\n")
    assert not world.numbers_differ(world.tell("run", *QUICK))


@pytest.mark.parametrize(
    "change", [{"value": 0.99}, {"value": 1e308, "low": -1e308, "high": 1e308}, {"scope": "open"}]
)
def test_estimates_that_were_changed_are_believed_by_no_reader(
    world: World, change: dict[str, Any]
) -> None:
    file, named = world.run / "run.json", world.run.name
    raw = json.loads(file.read_text())
    raw["estimates"]["wacc-gap"] |= change
    file.write_text(json.dumps(raw))
    for command in (("runs", "show", named), ("compare", named, named), ("table", named)):
        told = world.tell(*command)
        assert (told.code, told.faults()) == (2, []), command
        assert str(file) in told.err
    told = world.tell("run", *QUICK)
    assert "; it is made anew" in told.err
    assert (told.code, told.faults(), world.numbers_differ(told)) == (0, [], False)


def test_changed_accuracies_of_an_import_are_believed_by_no_reader(world: World) -> None:
    here = world.folder / "here"
    for name in ("a", "b"):
        (here / f"{name}.csv").write_text("accuracy\n0.5\n0.75\n1.0\n")
        told = world.tell("import", "accuracies", f"{name}.csv", "--task-set", "x")
        assert told.code == 0, told.err
    file, other = world.folder.glob("runs/*/outcomes-tasks.parquet")
    table = pq.read_table(file)
    pq.write_table(table.set_column(0, "accuracy", [[1.0, 1.0, 1.0]]), file)
    for command in (("compare", file.parent, other.parent), ("table", file.parent)):
        told = world.tell(*command)
        assert (told.code, told.faults()) == (2, []), command
        assert str(file) in told.err


def test_damaged_weights_are_not_used_by_another_run(world: World) -> None:
    flip_the_end(world.run / "weights.safetensors")
    for given in (("--init-from", world.run, *QUICK), ("--model", world.run, *PLANTED, *TASKS)):
        told = world.tell("run", *given)
        assert (told.code, told.faults()) == (2, [])
        assert "weights are not those that the run wrote; run the command that made" in told.err


def test_a_record_of_a_newer_version_stays_as_it_is(world: World) -> None:
    file = world.run / "run.json"
    raw = json.loads(file.read_text())
    file.write_text(json.dumps({**raw, "schema_version": 99, "new": "kept"}))
    held = {p.name: p.read_bytes() for p in world.run.iterdir()}
    for given in (QUICK, (*QUICK, "--level", "0.9")):
        told = world.tell("run", *given)
        assert (told.code, told.faults()) == (2, [])
        assert "schema_version 99 was written by a newer fsframework" in told.err
    assert {p.name: p.read_bytes() for p in world.run.iterdir()} == held
    listed = world.tell("runs", "list")
    assert listed.code == 0
    assert "schema_version 99" in listed.out + listed.err


def test_a_damaged_record_is_written_anew_and_said(world: World) -> None:
    (world.run / "run.json").write_text("{")
    told = world.tell("run", *QUICK)
    assert (told.code, told.faults()) == (0, [])
    assert "run.json: cannot be read" in told.err
    assert "; it is made anew" in told.err
    assert not world.numbers_differ(told)
    assert RunRecord.load(world.run).status == "finished"
