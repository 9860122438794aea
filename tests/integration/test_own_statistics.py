"""Statistics of a plugin author: options, edited code, intervals and directions of their own."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsf_statistics
import fsframework
from fsf_trackers.configuration import configuration_of
from fsframework.api.headlines import headline_of_run
from fsframework.errors import DataError
from fsframework.interfaces import Statistic
from fsframework.values import FloatArray, Outcomes
from tests.conftest import Fsf

pytestmark = pytest.mark.usefixtures("shared_cache")

FLAGS = (
    "--dataset", "planted", "-o", "dataset.n_per_class=20", "-o", "dataset.size=16", "--way", "3",
    "--shot", "1", "--queries", "4", "--tasks", "20", "-o", "training.epochs=0",
)  # fmt: skip

SPREAD = """
import numpy as np
from fsframework.interfaces import Statistic

class Spread(Statistic):
    "How far classes differ in accuracy."
    higher_is_better = False
    label = "spread"

    def __init__(self, *, quantile: float = 0.0) -> None:
        self.quantile = quantile

    def per_task(self, outcomes):
        ends = np.quantile(outcomes.class_accuracy, [self.quantile, 1 - self.quantile], axis=1)
        return (ends[1] - ends[0]) * SCALE

    def interval(self, outcomes, level):
        mean = self.per_task(outcomes).mean()
        return mean - min(mean, 0.01), mean + min(1 - mean, 0.01)
"""


@pytest.fixture
def install(distribution: Any, tmp_path: Path) -> Any:
    """Install the statistic `spread`, scaled by a factor."""

    def written(scale: str) -> None:
        (tmp_path / "site" / "spreads.py").write_text(SPREAD.replace("SCALE", scale))

    entries = {"fsframework.statistics": {"spread": "spreads:Spread"}}
    distribution("fsf-spread", entries, "spreads", SPREAD.replace("SCALE", "1"))
    return written


def ran(fsf: Fsf, method: str, *more: str) -> fsframework.Run:
    done = fsf("run", *FLAGS, "--method", method, "--statistic", "spread", *more, "--json")
    assert done.returncode == 0, done.stderr
    return fsframework.load_run(json.loads(done.stdout)["folder"])


QUANTILE = ("-o", "statistics.spread.quantile=0.25")


def spread_of(run: fsframework.Run, arm: str, quantile: float) -> float:
    accuracy = run.outcomes[arm].class_accuracy
    ends = np.quantile(accuracy, [quantile, 1 - quantile], axis=1)
    return float((ends[1] - ends[0]).mean())


@pytest.mark.usefixtures("install")
def test_what_recomputes_a_statistic_uses_the_options_that_the_runs_record(
    fsf: Fsf, tmp_path: Path
) -> None:
    one, two = (ran(fsf, method, *QUANTILE) for method in ("ncc", "logistic"))
    assert one.record.statistic_options == {"spread": {"quantile": 0.25}}
    expected = spread_of(one, "biased", 0.25)
    assert one.estimates["spread-biased"].value == pytest.approx(expected)
    assert expected < spread_of(one, "biased", 0.0)
    assert "statistics.spread.quantile" in fsf("runs", "show", one.name).stdout

    estimated = fsframework.estimate(one, "spread")["spread-biased"]
    compared = fsframework.compare([one, two], "spread-biased")[0].values
    headline = fsf_statistics.headline([one, two], "spread")
    assert estimated.value == compared["ncc"].value == pytest.approx(expected)
    assert f"{100 * expected:.1f}" in str(headline)
    explicit = {"name": "spread", "quantile": 0.0}
    [told, *_] = fsframework.compare([one, two], explicit)[1:]
    assert told.values["ncc"].value == pytest.approx(spread_of(one, "biased", 0.0))
    table = fsf("table", one.name, two.name, "--statistic", "spread", "--output", "table.csv")
    assert table.returncode == 0, table.stderr
    assert f",{100 * expected:g}," in (tmp_path / "table.csv").read_text()

    (tmp_path / "again.toml").write_text(configuration_of(one))
    assert fsf("run", "--config", "again.toml", "--json").returncode == 0
    again = fsframework.run(config=one.folder / "run.json", progress=False)
    assert (again.reused, again.record) == (True, one.record)


@pytest.mark.usefixtures("install")
def test_runs_with_different_options_of_a_statistic_are_never_mixed(fsf: Fsf) -> None:
    one, two = ran(fsf, "ncc"), ran(fsf, "logistic", *QUANTILE)
    with pytest.raises(DataError, match=r"quantile 0\.0 and quantile 0\.25"):
        fsframework.compare([one, two], "spread")
    for command in ("compare", "table"):
        done = fsf(command, one.name, two.name, "--statistic", "spread")
        assert done.returncode == 2, (command, done.stderr)
        assert "quantile" in done.stderr, command
    listed = fsf("runs", "list", "--columns", "run,spread-biased").stdout
    heads = listed.splitlines()[0]
    assert heads.count("spread-biased") == 2
    assert "quantile 0.25" in heads


@pytest.mark.usefixtures("install")
def test_an_interval_of_its_own_is_that_of_every_table_of_single_arms(
    fsf: Fsf, tmp_path: Path
) -> None:
    one, two = ran(fsf, "ncc"), ran(fsf, "logistic")
    own = one.estimates["spread-biased"]
    assert (own.estimator, own.half_width) == ("own", pytest.approx(0.01))
    for measure in ("spread-random", "spread-biased", "spread-gap"):
        [compared] = fsframework.compare([one, two], measure)
        assert compared.values["ncc"] == one.estimates[measure]
    assert compared.values["ncc"].estimator == "welch-t"
    assert fsframework.estimate(one, "spread") == one.estimates
    table = fsf("table", one.name, two.name, "--statistic", "spread", "--output", "table.csv")
    assert table.returncode == 0, table.stderr
    with (tmp_path / "table.csv").open() as rows:
        read = {(row["method"], row["measure"]): row for row in csv.DictReader(rows)}
    assert float(read["ncc", "spread-biased"]["measured_half_width"]) == pytest.approx(1)


class Errors(Statistic):
    """Share of wrong answers."""

    higher_is_better = False

    def per_task(self, outcomes: Outcomes) -> FloatArray:
        return 1 - outcomes.class_accuracy.mean(axis=1)


def test_a_value_that_rises_is_said_to_be_gained_also_where_lower_is_better() -> None:
    run = fsframework.run(
        dataset={"name": "planted", "n_per_class": 20, "size": 16}, way=3, shot=1, queries=4,
        tasks=100, training={"epochs": 0}, statistics=["acc", Errors], progress=False,
    )  # fmt: skip
    control, tested = (run.estimates[f"errors-{arm}"].value for arm in ("random", "biased"))
    assert run.estimates["errors-gap"].low > 0
    assert control < tested
    [said] = headline_of_run(run).sentences
    assert "gains" in said
    assert "lower is better" in said
    [said] = fsf_statistics.headline([run], Errors).sentences[:1]
    assert "gains" in said


@pytest.mark.slow
def test_estimates_of_a_statistic_that_was_edited_since_are_named_and_made_anew(
    install: Any, fsf: Fsf, fsf_process: Fsf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = ran(fsf, "ncc")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    shown = fsf_process("runs", "show", run.name)
    assert "the code of spread" not in shown.stdout
    install("0.5")
    for command in (("runs", "show", run.name), ("runs", "list")):
        told = fsf_process(*command)
        assert told.returncode == 0, told.stderr
        [line] = [one for one in told.stdout.splitlines() if "the code of spread" in one]
        assert run.name in line
    again = fsf_process("run", *FLAGS, "--method", "ncc", "--statistic", "spread", "--json")
    value = json.loads(again.stdout)["estimates"]["spread-biased"]["value"]
    assert value == pytest.approx(run.estimates["spread-biased"].value / 2)
    assert "the code of spread" not in fsf_process("runs", "show", run.name).stdout


class Missing:
    """Finds no module of ``fsf_statistics``, as where it is not installed."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name.partition(".")[0] == "fsf_statistics":
            raise ModuleNotFoundError(name="fsf_statistics")


@pytest.mark.usefixtures("install")
@pytest.mark.parametrize("more", [("--interval", "bca"), ("--seeds", "0,1")], ids=" ".join)
def test_what_a_missing_package_computes_is_refused_before_the_run(
    fsf: Fsf, more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == "fsf_statistics"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    asked = ("run", *FLAGS, "--method", "ncc", "--statistic", "spread", "--runs-dir", str(tmp_path))
    done = fsf(*asked, *more)
    assert done.returncode == 2, done.stdout
    assert "is part of fsf-statistics: pip install" in done.stderr
    assert not [*tmp_path.glob("*/run.json")]
    assert fsf(*asked).returncode == 0
