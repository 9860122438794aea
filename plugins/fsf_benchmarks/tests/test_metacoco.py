"""`fsf benchmark metacoco`: which printed rows are measured, and what stands beside."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsframework.benchmarks.metacoco import METHODS, Request, make_grid, printed_rows
from fsframework.components.registry import Registry
from fsframework.errors import OptionError, PluginError
from tests.conftest import Fsf

TOYS = Path(__file__).with_name("toy_grid.py")
Tables = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tables(fsf: Fsf) -> Tables:
    def call(*more: str) -> subprocess.CompletedProcess[str]:
        return fsf(
            "benchmark", "metacoco", "--plugin", str(TOYS), "--dataset", "toy-contexts",
            "--tasks", "10", "--query", "2", "-o", "training.epochs=0", "-o", "image_size=16",
            *more,
        )  # fmt: skip

    return call


def planned(**request: Any) -> Any:
    registry = Registry()
    registry.load_file(TOYS)
    return make_grid(registry, {}, Request(dataset="toy-contexts", **request))


def test_printed_rows_are_those_of_the_paper() -> None:
    rows = printed_rows()
    counts = {table: sum(row.table == table for row in rows) for table in ("2", "3", "7")}
    assert counts == {"2": 36, "3": 20, "7": 24}
    by = {(r.table, r.method, r.backbone): r.values for r in rows}
    assert by["2", "ProtoNet", "WRN-28-10"][5].text() == "60.78"
    assert by["3", "MatchingNet", "ResNet10"][1].text() == "43.72 ± 0.49"
    assert by["7", "CAN", "ResNet18"][1].text() == "33.16 ± 0.25"
    names = {row.method for row in rows}
    assert set(METHODS.values()) <= names
    # 10-way values are below 5-way ones of the same method and backbone.
    for method in ("ProtoNet", "R2D2", "DN4", "CAN", "Baseline"):
        for shot in (1, 5):
            ways = [by[table, method, "ResNet12"][shot].value for table in ("2", "7")]
            assert ways[0] > ways[1]


def test_the_grid_is_what_is_printed_and_installed() -> None:
    grid = planned()
    for slot, number in grid.slots.items():
        experiment = grid.cells[number].experiment
        assert experiment.sampler.name == "random"
        assert experiment.sampler.options["n_way"] == (10 if slot.table == "7" else 5)
        assert experiment.sampler.options["n_shot"] == slot.shot
        assert (experiment.settings.tasks, experiment.settings.image_size) == (3000, 84)
        assert experiment.backbone.name == slot.backbone
    reasons = {row.method: reason for row, _, _, reason in grid.rows if reason}
    assert reasons["Versa"] == reasons["MoCo"] == "not here"
    assert {"ProtoNet", "DN4"}.isdisjoint(reasons)


def test_a_choice_narrows_the_rows() -> None:
    grid = planned(tables=("7",), methods=("protonet",), backbones=("conv64f",), shots=(5,))
    assert [cell.name for cell in grid.cells] == ["ProtoNet, Conv64F, 10-way 5-shot"]
    grid = planned(methods=("toy-near", "protonet"), backbones=("toy-pixels",), shots=(1,))
    assert {slot.table for slot in grid.slots} == {"Not printed"}
    assert {slot.method for slot in grid.slots} == {"toy-near", "protonet"}


def test_what_another_table_prints_is_not_called_not_printed() -> None:
    """Tables 2 and 7 have ProtoNet with ResNet12, and no table has it with ResNet10."""
    with pytest.raises(OptionError, match="and backbones; such rows are in Table 2 and 7$"):
        planned(tables=("3",), methods=("protonet",), backbones=("resnet12",))
    both = {"methods": ("protonet", "toy-near"), "backbones": ("resnet10", "resnet12")}
    slots = planned(tables=("3",), shots=(1,), **both).slots
    assert {(s.table, s.method, s.backbone) for s in slots} == {
        ("Not printed", "protonet", "resnet10"),
        ("Not printed", "toy-near", "resnet10"),
        ("Not printed", "toy-near", "resnet12"),
    }


def test_what_does_not_exist_is_told() -> None:
    with pytest.raises(OptionError, match="--table 4: must be one of 2, 3, 7"):
        planned(tables=("4",))
    with pytest.raises(PluginError, match="unknown method 'protonett'"):
        planned(methods=("protonett",))
    with pytest.raises(OptionError, match="no row of the tables asked for"):
        planned(tables=("3",), methods=("dn4",))


def test_data_that_allow_no_such_tasks_are_told_once_and_before(tables: Tables) -> None:
    """The toy's test split has 12 classes of 24 images."""
    asked = ("--table", "2", "--method", "protonet", "--backbone", "resnet12")
    done = tables(*asked, "-o", "split=tset")
    assert done.returncode == 2
    assert done.stderr.startswith("fsf: toy-contexts: there is no split 'tset'")
    assert done.stderr.count("\n") == 1
    done = tables(*asked, "--query", "40")
    assert done.returncode == 2
    assert done.stderr.startswith("fsf: toy-contexts, split test, 5-way 1-shot: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_cells_are_listed_without_the_data(fsf: Fsf) -> None:
    done = fsf("benchmark", "metacoco", "--table", "7", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "ProtoNet, Conv64F, 10-way 1-shot" in done.stdout
    assert "note: metacoco is not added yet: fsf data add metacoco PATH" in done.stdout
    assert "note" in json.loads(fsf("benchmark", "metacoco", "--dry-run", "--json").stdout)
    assert fsf("benchmark", "metacoco", "--table", "7").returncode == 2
    refused = fsf("benchmark", "metacoco", "--dry-run", "--dataset", "cub")
    assert "cub: not added yet" in refused.stderr


def test_printed_values_stand_beside(tables: Tables) -> None:
    asked = ("--table", "7", "--method", "protonet", "--backbone", "conv64f")
    done = tables(*asked, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (table,) = document["tables"]
    first = table["rows"][0]
    assert (first["quantity"], first["printed"], first["printed_half_width"]) == (
        "1-shot", 23.72, 0.19,
    )  # fmt: skip
    assert first["n_tasks"] == 10
    assert [first[k] for k in ("dataset", "method", "backbone", "way", "shot")] == [
        "toy-contexts", "ProtoNet", "Conv64F", 10, 1,
    ]  # fmt: skip
    assert len(first["repeats"]) == 5
    assert sum(first["repeats"]) / 5 == pytest.approx(first["measured"], abs=1e-3)
    shown = tables(*asked)
    assert "2 cells: 0 run now, 2 finished before, 0 failed" in shown.stdout
    assert "printed values are of MetaCoCo" in shown.stdout
    assert "35.49 ± 0.22" in shown.stdout


def test_rows_that_are_not_here_are_listed(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsframework.benchmarks.metacoco.METHODS", {"matchingnet": "MatchingNet"})
    done = tables("--table", "3", "--shot", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(
        "MatchingNet +IFSL" in line and "not here" in line and "44.11" in line for line in lines
    )
    assert sum("not here" in line for line in lines) == 19
