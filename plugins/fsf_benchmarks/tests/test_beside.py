"""Printed values of the cell of a run, from benchmarks that other packages bring."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

import fsf_benchmarks
import fsf_reports
import fsframework
from fsf_benchmarks import beside_printed
from fsf_reports.values import Quantity, TableDeclaration
from tests.conftest import Fsf

QUICK: dict[str, Any] = {
    "dataset": {"name": "planted", "n_per_class": 12, "size": 16}, "sampler": "fewstab", "way": 3,
    "shot": 1, "queries": 3, "tasks": 20, "training": {"epochs": 0}, "recipe": "none",
    "progress": False, "device": "cpu", "image_size": 16,
}  # fmt: skip

PAPER = """
from fsf_benchmarks.interfaces import Benchmark
from fsf_benchmarks.interfaces import PrintedValue
from fsf_reports.values import Quantity

class Paper(Benchmark):
    "A paper with one cell."

    def experiments(self, selection):
        return []

    def tables(self, results):
        return []

    def printed(self, cell):
        if (cell.method, cell.backbone, cell.dataset) != ("ncc", "conv64f", "planted"):
            return
        if cell.sampler["name"] != "fewstab" or cell.sampler["n_shot"] != 1:
            return
        yield PrintedValue("acc-random", Quantity(GAP), "Toy et al.", "Table 1")
        yield PrintedValue("wacc-gap", Quantity.around(GAP, 0.5), "Toy et al.", "Table 2", "APART")
        yield PrintedValue("unknown-gap", Quantity(1.0), "Toy et al.", "Table 3")

class Broken(Paper):
    "It cannot be asked."

    def printed(self, cell):
        yield 1
        raise ZeroDivisionError
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[fsframework.Run]:
    """A run of the printed method, and one of another."""
    folder = tmp_path_factory.mktemp("beside")
    where = {"runs_dir": folder / "runs", "cache_dir": folder / "cache"}
    return [fsframework.run(method=name, **QUICK, **where) for name in ("ncc", "logistic")]


@pytest.fixture
def paper(distribution: Callable[..., None]) -> Callable[..., None]:
    """Install a package whose paper prints a gap."""

    def install(gap: float = 90.0, apart: str = "") -> None:
        entries = {"toy": "toy_paper:Paper", "toy-broken": "toy_paper:Broken"}
        source = PAPER.replace("GAP", str(gap)).replace("APART", apart)
        distribution("toy-paper", {"fsf_benchmarks.benchmarks": entries}, "toy_paper", source)

    return install


def test_a_run_says_where_its_gap_stands(
    paper: Callable[..., None],
    runs: list[fsframework.Run],
    fsf: Fsf,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FSF_RUNS", str(runs[0].folder.parent))
    paper(apart="other words")
    run, other = runs
    found = fsf_benchmarks.printed_values(run)
    assert [(one.measure, one.table) for one in found] == [
        ("acc-random", "Table 1"), ("wacc-gap", "Table 2"),
    ]  # fmt: skip
    assert fsf_benchmarks.printed_values(run.name) == found
    assert found[1].to_json() == {
        "measure": "wacc-gap", "value": 90.0, "half_width": 0.5, "source": "Toy et al.",
        "table": "Table 2", "apart": "other words",
    }  # fmt: skip
    assert fsf_benchmarks.printed_values(other) == ()
    assert beside_printed(other) == ""
    gap = run.estimates["wacc-gap"]
    told = beside_printed(run)
    half = (0.5**2 + (100 * gap.half_width) ** 2) ** 0.5
    assert told.startswith("Toy et al. (Table 2, other words) prints a gap of wAcc of 90.0 ± 0.5 ")
    assert told.endswith(f"{90 - 100 * gap.value:.1f} ± {half:.1f} points smaller.")
    shown = fsf("runs", "printed", run.name)
    assert shown.returncode == 0, shown.stderr
    assert "90.00 ± 0.50" in shown.stdout
    assert f"{run.name}: {told}" in shown.stdout
    raw = json.loads(fsf("runs", "printed", run.name, "--json").stdout)
    assert raw == {run.name: [one.to_json() for one in found]}


def test_a_gap_near_the_printed_one_is_not_told_apart(
    paper: Callable[..., None], runs: list[fsframework.Run]
) -> None:
    paper(gap=round(100 * runs[0].estimates["wacc-gap"].value, 1))
    assert beside_printed(runs[0]).endswith("; the value here cannot be distinguished from it.")


def test_a_report_shows_the_printed_values(
    paper: Callable[..., None], runs: list[fsframework.Run]
) -> None:
    paper(apart="other <b>words</b>")
    made = fsf_reports.report(runs, sections=["printed-values"], progress=False)
    [part] = made.page.parts
    [table] = [block for block in part.blocks if isinstance(block, TableDeclaration)]
    values = fsf_benchmarks.printed_values(runs[0])
    assert [(entry.row[0], entry.printed, entry.measured) for entry in table.entries] == [
        ("ncc", value.value, Quantity.of(runs[0].estimates[value.measure])) for value in values
    ]
    assert table.notes == ("ncc, Table 2: other <b>words</b>",)
    assert "90.00 ± 0.50" in re.sub(r"<[^>]+>", " ", made.html)
    assert "other <b>" not in made.html
    nothing = fsf_reports.report(runs[1:], sections=["printed-values"], progress=False)
    assert set(nothing.problems) == {"printed-values"}
