"""`fsf compare` and `fsf rank` on runs of several training seeds."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from fsf_statistics.cli._comparison_tables import pairs_table, values_table
from fsframework.statistics.comparison import TaskValues, compare_methods
from fsframework.statistics.measures import Measure
from tests.conftest import Fsf

TINY = (
    "--way", "3", "--shot", "1", "--queries", "3", "--tasks", "20", "--sampler", "random",
    "-o", "dataset.n_per_class=12", "-o", "dataset.size=16", "-o", "training.epochs=0",
)  # fmt: skip


@pytest.fixture
def ran(fsf: Fsf) -> Fsf:
    for method, seeds in (("ncc", "0-2"), ("protonet", "0,1"), ("logistic", "5")):
        done = fsf("run", "--method", method, *TINY, "--seeds", seeds, "--json")
        assert done.returncode == 0, done.stderr
    return fsf


def test_runs_of_several_seeds_are_one_row(ran: Fsf) -> None:
    done = ran("compare", "runs", "--statistic", "acc", "--explain")
    assert done.returncode == 0, done.stderr
    said, _, full = done.stdout.partition("acc-random on")
    table = [line.split() for line in said.splitlines()]
    found = {cells[0]: cells[1] for cells in table if len(cells) > 4 and cells[3] == "±"}
    assert found == {"logistic": "1", "ncc": "3", "protonet": "2"}
    lines = full.splitlines()
    assert lines[1].split()[3:6] == ["between", "seeds", "seeds"]
    assert sorted(line.split()[0] for line in lines[2:5]) == ["logistic", "ncc", "protonet"]
    assert done.stdout.count("crossed-t, paired") == 3, "every pair has a method with several seeds"
    assert "note: logistic: one seed, so intervals and differences speak of these" in done.stdout
    assert "note: protonet: two seeds say little of the variance" in done.stdout
    rows = list(csv.DictReader(ran("compare", "runs", "--format", "csv").stdout.splitlines()))
    seeds = {row[one]: row[f"{one}_seeds"] for row in rows for one in ("first", "second")}
    assert seeds == {"logistic": "1", "ncc": "3", "protonet": "2"}
    refused = ran("compare", "runs", "--interval", "percentile")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--interval percentile is for one model per method" in refused.stderr


def test_means_over_seeds_are_ranked(ran: Fsf) -> None:
    runs = [row["run"] for row in json.loads(ran("runs", "list", "--json").stdout)]
    assert len(runs) == 6
    columns = ("--columns", "acc-random", "wacc-random", "--resamples", "50")
    done = ran("rank", *runs, *columns)
    assert done.returncode == 0, done.stderr
    heads, row = (line.split() for line in done.stdout.splitlines()[1:3])
    assert (heads[:2], row[:4]) == (["rows", "seeds"], ["3", "1", "to", "3"])
    (part,) = json.loads(ran("rank", *runs, *columns, "--json").stdout)["parts"]
    assert sorted(part["n_seeds"]) == [1, 2, 3]


def test_tables_of_single_models_have_no_columns_for_seeds() -> None:
    values = np.random.default_rng(0).random((30, 3))
    for seeds, extra in (((), ()), ((2, 1), ("between seeds", "seeds"))):
        measured = TaskValues(
            Measure("acc", ("t",)), "t", (values[:, : sum(seeds) or 2],), "closed", seeds=seeds
        )
        part = compare_methods(["a", "b"], measured)
        table = values_table([part])
        assert table.columns == ("method", "acc-t", "group", *extra, "interval", "tasks", "images")
        assert all(len(row) == len(table.columns) for row in table.rows)
        pairs = pairs_table([part])
        assert ("seeds" in pairs.columns) == bool(extra)
        assert all(len(row) == len(pairs.columns) for row in pairs.rows)
        if extra:
            assert pairs.rows[0][pairs.columns.index("seeds")] == "2, 1"
