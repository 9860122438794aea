"""Printed values of the cell of a run, from benchmarks that other packages bring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fsframework as fsf
from fsframework.api.printed import beside_printed
from tests.conftest import Fsf

QUICK: dict[str, Any] = {
    "dataset": {"name": "planted", "n_per_class": 12, "size": 16}, "sampler": "fewstab", "way": 3,
    "shot": 1, "queries": 3, "tasks": 20, "training": {"epochs": 0}, "recipe": "none",
    "progress": False, "device": "cpu",
}  # fmt: skip

PAPER = """
from fsframework.interfaces import Benchmark
from fsframework.values import PrintedValue, Quantity

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


@pytest.fixture
def paper(distribution: Callable[..., None]) -> Callable[..., None]:
    """Install a package whose paper prints a gap."""

    def install(gap: float = 90.0, apart: str = "") -> None:
        entries = {"toy": "toy_paper:Paper", "toy-broken": "toy_paper:Broken"}
        source = PAPER.replace("GAP", str(gap)).replace("APART", apart)
        distribution("toy-paper", {"fsframework.benchmarks": entries}, "toy_paper", source)

    return install


def test_the_values_of_the_cell_are_found(paper: Callable[..., None]) -> None:
    paper(apart="other words")
    run = fsf.run(method="ncc", **QUICK)
    found = fsf.printed_values(run)
    assert [(one.measure, one.table) for one in found] == [
        ("acc-random", "Table 1"), ("wacc-gap", "Table 2"),
    ]  # fmt: skip
    assert fsf.printed_values(run.name) == found
    assert found[1].to_json() == {
        "measure": "wacc-gap", "value": 90.0, "half_width": 0.5, "source": "Toy et al.",
        "table": "Table 2", "apart": "other words",
    }  # fmt: skip
    other = fsf.run(method="logistic", **QUICK)
    assert fsf.printed_values(other) == ()
    assert beside_printed(other) == ""


def test_a_run_says_where_its_gap_stands(paper: Callable[..., None], fsf: Fsf) -> None:
    import fsframework

    paper(apart="other words")
    run = fsframework.run(method="ncc", **QUICK)
    gap = run.estimates["wacc-gap"]
    told = beside_printed(run)
    half = (0.5**2 + (100 * gap.half_width) ** 2) ** 0.5
    assert told == (
        "Toy et al. (Table 2, other words) prints a gap of wAcc of 90.0 ± 0.5 points for this "
        "method, backbone, data set and shape of tasks; the value here is "
        f"{90 - 100 * gap.value:.1f} ± {half:.1f} points smaller."
    )
    shown = fsf("runs", "show", run.name)
    assert shown.returncode == 0, shown.stderr
    assert told in shown.stdout
    other = fsframework.run(method="logistic", **QUICK)
    explained = fsf("compare", run.name, other.name, "--explain")
    assert f"ncc: {told}\n" in explained.stdout
    assert "logistic: Toy" not in explained.stdout
    assert told not in fsf("compare", run.name, other.name).stdout


def test_a_gap_near_the_printed_one_is_not_told_apart(paper: Callable[..., None]) -> None:
    run = fsf.run(method="ncc", **QUICK)
    paper(gap=round(100 * run.estimates["wacc-gap"].value, 1))
    assert beside_printed(run).endswith("; the value here cannot be distinguished from it.")
