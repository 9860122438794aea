"""The headline of real runs: its numbers are those of the other public functions."""

from __future__ import annotations

from pathlib import Path

import pytest

import fsframework as fsf
from fsframework.api.headlines import headline_of_run

QUICK = {
    "dataset": {"name": "planted", "n_per_class": 12, "size": 16}, "sampler": "fewstab", "shot": 1,
    "tasks": 30, "way": 3, "queries": 3, "training": {"epochs": 0}, "progress": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, fsf.Run]:
    folder = tmp_path_factory.mktemp("headlines")
    where = {"runs_dir": folder / "runs", "cache_dir": folder / "cache"}
    names = ("ncc", "logistic", "protonet")
    found = {name: fsf.run(method=name, **QUICK, **where) for name in names}
    found["other tasks"] = fsf.run(method="ncc", **QUICK, **where, task_seed=1)
    return found


def test_its_numbers_are_those_of_estimates_and_of_compare(runs: dict[str, fsf.Run]) -> None:
    equal = [run for name, run in runs.items() if name != "other tasks"]
    found = fsf.headline(equal)
    compared = fsf.compare(equal)
    assert found.table.columns == ("Acc-R", "wAcc-R", "wAcc-A", "gap")
    for entry in found.table.entries:
        assert entry.estimate is not None
        own = runs[entry.row[0]].estimates[entry.estimate.name]
        assert entry.estimate.value == pytest.approx(own.value)
        assert entry.estimate.half_width == pytest.approx(own.half_width)
    gap = compared["wacc-gap"]
    best = min(gap.values, key=lambda label: gap.values[label].value)
    tied = {
        label for label in gap.values if label != best and gap.pair(best, label)[0].p_holm >= 0.05
    }
    marks = {e.row[0]: e.mark for e in found.table.entries if e.column == "gap"}
    assert {label for label, mark in marks.items() if mark == "tied"} == tied
    assert marks[best] == "best"


def test_a_run_alone_tells_its_estimates(runs: dict[str, fsf.Run]) -> None:
    one = headline_of_run(runs["ncc"]).table.entries
    again = fsf.headline([runs["ncc"]]).table.entries
    assert [(e.column, e.estimate.value) for e in one] == [
        (e.column, e.estimate.value) for e in again
    ]


def test_other_tasks_are_rows_of_their_own(runs: dict[str, fsf.Run]) -> None:
    found = fsf.headline([runs["ncc"], runs["other tasks"]])
    assert found.table.row_names == ("method", "task_seed")
    assert {entry.mark for entry in found.table.entries} == {""}


def test_a_sweep_ends_in_a_headline_with_dashes_for_what_failed(tmp_path: Path) -> None:
    found = fsf.sweep(
        **{**QUICK, "shot": [1, 99]}, method="ncc",
        runs_dir=tmp_path / "runs", cache_dir=tmp_path / "cache",
    )  # fmt: skip
    table = found.headline.table
    assert table.row_names == ("shot", "seeds")
    failed = [entry for entry in table.entries if entry.row[0] == "99"]
    assert failed
    assert all(entry.estimate is None for entry in failed)
    assert [note for note in found.headline.notes if note.startswith("–: shot 99: ")]
