"""`fsf benchmark open-intervals`: frozen extractors on equal tasks without replacement."""

from __future__ import annotations

import csv
import json
from importlib.resources import files
from pathlib import Path

import pytest

import fsframework as fsf_api
from fsf_benchmarks._intervals_printed import (
    printed_accuracies,
    printed_differences,
    printed_signs,
)
from fsf_benchmarks._open_intervals import QUERIES
from fsframework.values import TaskSet
from tests.conftest import Fsf

SMALL = (
    "-o", "dataset.size=32", "-o", "dataset.n_per_class=40", "-o", "training.epochs=1",
    "-o", "training.steps=2", "-o", "image_size=32", "--method", "ncc", "--method", "logistic",
)  # fmt: skip


def test_the_printed_tables_are_all_there() -> None:
    printed = printed_differences()
    # Table 4 has four columns, Tables 5 and 6 have two each.
    assert len(printed) == 9 * 3 * (4 + 2 + 2)
    cell = printed["Aircraft", 1, "DINOv2 FT", "CLIP LR"]
    assert cell.text(signed=True) == "+9.24 ± 4.27"
    assert printed["Quickdraw", 10, "CLIP FT", "CLIP NCC"].text() == "-0.75 ± 0.27"
    assert len(printed_accuracies()) == 9 * 2 * 2 * 2
    assert printed_accuracies()["DTD", "DINO LR", "open"].text() == "86.10 ± 4.66"


def test_the_printed_signs_are_what_the_text_says_of_them() -> None:
    """Section 3.2 on Table 3: of 36 comparisons on one model, FT is better in 4, worse in 14."""
    signs = printed_signs()
    on_one_model = [
        sign
        for (table, _, first, second, kind), sign in signs.items()
        if (table, kind) == ("3", "paired")
        and first.endswith("FT")
        and first.split()[0] == second.split()[0]
    ]
    assert [on_one_model.count(sign) for sign in (1, -1, 0)] == [4, 14, 18]
    # Its introduction on Table 1: closed intervals and pairing contradict each other here.
    inverted = ("1", "Traffic Signs", "CLIP NCC", "DINO FT")
    assert [signs[(*inverted, kind)] for kind in ("closed", "open", "paired")] == [-1, 0, 1]
    # The two tables agree on the pairs that both have.
    for (table, *pair, kind), sign in signs.items():
        if table == "1" and kind != "closed" and ("3", *pair, kind) in signs:
            assert signs["3", *pair, kind] == sign, pair


@pytest.mark.slow
def test_methods_are_compared_by_pairs_on_the_tasks_of_the_files(fsf: Fsf, tmp_path: Path) -> None:
    asked = (
        "benchmark", "open-intervals", *SMALL, "--shot", "1", "--shot", "5",
        "-o", "benchmark.tasks_dir=tasks",
    )  # fmt: skip
    first = fsf(*asked, "--output", "table.csv", "--json")
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout)
    cells = {c["experiment"]: c for c in told["experiments"]}
    assert list(cells) == [
        "training of conv64f on planted with baseline",
        "conv64f NCC, planted, 1-shot, 1 queries",
        "conv64f LR, planted, 1-shot, 1 queries",
        "conv64f NCC, planted, 5-shot, 5 queries",
        "conv64f LR, planted, 5-shot, 5 queries",
    ]
    for shot, n_tasks in ((1, 79), (5, 15)):
        tasks = TaskSet.load(tmp_path / "tasks" / f"planted-{shot}-shot.safetensors")
        assert not tasks.reuses_images
        assert (tasks.n_shot, tasks.n_query) == (shot, shot)
        assert abs(len(tasks) - n_tasks) <= 2
        pair = [Path(c["folder"]) for n, c in cells.items() if f" {shot}-shot" in n]
        outcomes = [fsf_api.load_run(folder).outcomes["depleting"] for folder in pair]
        assert [o.task_digest for o in outcomes] == [tasks.digest] * 2
        # Worked out anew: the last method is the baseline where there is no fine-tuning.
        ncc, logistic = (o.class_accuracy.mean(axis=1) for o in outcomes)
        (row,) = (r for r in told["tables"][1]["rows"] if r["n_tasks"] == len(tasks))
        assert row["baseline"] == "conv64f LR"
        assert row["measured"] == pytest.approx(100 * (logistic - ncc).mean(), abs=1e-4)
        half = 100 * (logistic - ncc).std(ddof=1) / len(tasks) ** 0.5
        assert row["measured_half_width"] == pytest.approx(2.0 * half, rel=0.08)
        assert row["scope"] == "open"
        assert [row[k] for k in ("dataset", "method", "backbone", "shot")] == [
            "planted", "ncc", "conv64f", shot,
        ]  # fmt: skip
    with (tmp_path / "table.csv").open() as file:
        assert {r["table"] for r in csv.DictReader(file)} == {"Table A", "Table 4"}

    second = fsf(*asked)
    assert second.returncode == 0
    assert "5 experiments: 0 run now, 5 finished before, 0 failed" in second.stdout
    assert "Of 2 comparisons with the baseline, " in second.stdout

    run = next(c["folder"] for n, c in cells.items() if n.startswith("training"))
    other = fsf("benchmark", "open-intervals", *SMALL, "--model", f"mine={run}", "--shot", "5")
    assert other.returncode == 0, other.stderr
    assert "mine NCC" in other.stdout
    assert "training of" not in other.stderr


def signs_of(low: float, high: float, other_low: float, other_high: float) -> int:
    return (low > other_high) - (high < other_low)


@pytest.mark.slow
def test_signs_follow_from_the_intervals(fsf: Fsf, tmp_path: Path) -> None:
    """Tables 1 and 2 and Figure 1, with the values of one worked out from the other's."""
    asked = ("benchmark", "open-intervals", *SMALL, "-o", "benchmark.only=1,2,3,figure-1")
    done = fsf(*asked, "--json", "--figure", "tasks.png")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    signs, accuracies, tuned = (table["rows"] for table in document["tables"])
    bounds = {
        (row["method"], row["quantity"]): (row["measured_low"], row["measured_high"])
        for row in accuracies
    }
    found = {row["quantity"]: row["measured"] for row in signs}
    for drawn in ("with replacement", "without replacement"):
        first, second = bounds["ncc", drawn], bounds["logistic", drawn]
        assert found[drawn] == signs_of(*first, *second)
    apart = next(row for row in signs if row["quantity"] == "difference")
    assert found["paired"] == signs_of(apart["measured_low"], apart["measured_high"], 0, 0)
    means = {(row["method"], row["quantity"]): row["measured"] for row in accuracies}
    difference = means["ncc", "without replacement"] - means["logistic", "without replacement"]
    assert apart["measured"] == pytest.approx(difference, abs=1e-4)
    closed = [row for row in accuracies if row["quantity"] == "with replacement"]
    assert {(row["n_tasks"], row["scope"]) for row in closed} == {(600, "closed")}
    # Without fine-tuning the last method takes its place; the signs turn with the order.
    turned = {row["quantity"]: row["measured"] for row in tuned}
    assert turned["paired"] == -found["paired"]
    [panel] = document["figures"][0]["panels"]
    points = [(p["x"], p["y"]) for p in panel["series"][0]["points"]]
    assert len(points) == apart["n_tasks"]
    x, y = zip(*points, strict=True)
    assert sum(y) / len(y) - sum(x) / len(x) == pytest.approx(difference, abs=1e-4)
    assert (tmp_path / "tasks.png").stat().st_size > 1000


@pytest.mark.slow
def test_curves_and_counts_are_those_of_the_runs(fsf: Fsf, tmp_path: Path) -> None:
    """Figures 4 and 6: ever fewer tasks with more queries, and every pair counted."""
    asked = (
        "benchmark", "open-intervals", *SMALL, "--shot", "5", "--figure", "made.svg", "--json",
        "-o", "benchmark.only=figure-4,figure-6", "-o", "benchmark.trials=1",
    )  # fmt: skip
    done = fsf(*asked)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    curve, counts = (table["rows"] for table in document["tables"])
    [panel] = document["figures"][0]["panels"]
    drawn = {one["name"]: {p["x"]: p["y"] for p in one["points"]} for one in panel["series"]}
    for method, points in drawn.items():
        own = [row for row in curve if f"planted, {row['contestant']}" == method]
        halves = {r["queries"]: r["measured"] for r in own if r["quantity"] == "half-width"}
        assert points == halves
        tasks = [row["measured"] for row in own if row["quantity"] == "tasks"]
        assert tasks == sorted(tasks, reverse=True)
        assert tasks[0] > 3 * tasks[-1]
    assert len(drawn) == 2
    told_apart = [row["measured"] for row in counts]
    assert set(told_apart[:-1]) <= {0, 1}
    assert told_apart[-1] == 1  # one pair of methods on one data set
    made = ("made-figure-4.svg", "made-figure-4-tasks.svg", "made-figure-6.svg")
    assert all((tmp_path / name).exists() for name in made)


@pytest.mark.slow
def test_gaussians_are_simulated_without_a_run(fsf: Fsf) -> None:
    """Figures 2 and 3: 1,000 points at 5 shots give 500 // (5 + Q) tasks."""
    done = fsf("benchmark", "open-intervals", "-o", "benchmark.only=figure-2,figure-3", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["experiments"] == []
    curve, study = document["figures"][0]["panels"][0]["series"], document["figures"][2]
    simulated, fitted = ({p["x"]: p["y"] for p in one["points"]} for one in curve)
    assert min(simulated, key=lambda q: simulated[q]) in range(13, 50)  # the truth is at 24
    assert simulated[1] > 3 * min(simulated.values())
    assert max(abs(simulated[q] / fitted[q] - 1) for q in fitted) < 0.15
    tasks = {s["name"]: {p["x"]: p["y"] for p in s["points"]} for s in study["panels"][0]["series"]}
    assert all(n == 500 // (5 + q) for q, n in tasks["1,000 images"].items())


@pytest.mark.parametrize("shot", [1, 5, 10])
def test_the_published_tasks_are_those_that_are_drawn(shot: int) -> None:
    # Whoever draws them anew, with any later version, must get the tasks that were published.
    pool = fsf_api.dataset("planted").pool("test")
    folder = files("fsf_benchmarks") / "data" / "open_intervals"
    published = TaskSet.load(Path(str(folder)) / f"planted-{shot}-shot.safetensors")
    published.verify(pool)
    arms = fsf_api.draw("depleting", pool, tasks="all", shot=shot, queries=QUERIES[shot])
    assert arms.tested.digest == published.digest


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        (("--shot", "3"), ("--shot 3", "1, 5, 10")),
        (("--model", "nowhere"), ("no run 'nowhere'",)),
        (("--tasks", "7"), ("--tasks: the benchmark open-intervals sets this itself",)),
        (("-o", "benchmark.only=7"), ("only: must be among 1, 2, 3, 4, figure-1",)),
        (("-o", "benchmark.trials=0"), ("trials must be at least 1",)),
        (("-o", "benchmark.baseline=conv64f XX"), ("conv64f NCC, conv64f LR",)),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(
    fsf: Fsf, asked: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    done = fsf("benchmark", "open-intervals", *SMALL, *asked)
    assert done.returncode == 2, done.stdout
    assert done.stderr.strip().splitlines()[-1].startswith("fsf: ")
    for part in parts:
        assert part in done.stderr
