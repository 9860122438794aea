"""`fsf compare` and `fsf rank` on runs of several training seeds."""

from __future__ import annotations

import csv
import json

import pytest

from tests.conftest import Fsf

TINY = (
    "--way", "3", "--shot", "1", "--queries", "3", "--tasks", "20", "--sampler", "random",
    "-o", "dataset.n_per_class=12", "-o", "dataset.size=16", "-o", "training.epochs=0",
)  # fmt: skip
SEEDS = {"ncc": "3", "protonet": "2", "logistic": "1"}


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
    assert {cells[0]: cells[1] for cells in table if len(cells) > 4 and cells[3] == "±"} == SEEDS
    lines = full.splitlines()
    assert lines[1].split()[3:6] == ["between", "seeds", "seeds"]
    assert sorted(line.split()[0] for line in lines[2:5]) == sorted(SEEDS)
    assert done.stdout.count("crossed-t, paired") == 3, "every pair has a method with several seeds"
    assert "note: logistic: one seed" in done.stdout
    assert "note: protonet: two seeds" in done.stdout
    rows = list(csv.DictReader(ran("compare", "runs", "--format", "csv").stdout.splitlines()))
    assert {row[one]: row[f"{one}_seeds"] for row in rows for one in ("first", "second")} == SEEDS
    refused = ran("compare", "runs", "--interval", "percentile")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--interval percentile" in refused.stderr
    runs = [row["run"] for row in json.loads(ran("runs", "list", "--json").stdout)]
    columns = ("--columns", "acc-random", "wacc-random", "--resamples", "50")
    heads, row = (line.split() for line in ran("rank", *runs, *columns).stdout.splitlines()[1:3])
    assert (heads[:2], row[:4]) == (["rows", "seeds"], ["3", "1", "to", "3"])
    (part,) = json.loads(ran("rank", *runs, *columns, "--json").stdout)["parts"]
    assert sorted(part["n_seeds"]) == [1, 2, 3]
