"""`fsf benchmark open-intervals`: frozen extractors on equal tasks without replacement."""

from __future__ import annotations

import csv
import json
from importlib.resources import files
from pathlib import Path

import pytest

import fsframework as fsf_api
from fsf_benchmarks._open_intervals import QUERIES, printed_differences
from fsframework.values import TaskSet
from tests.conftest import Fsf

SMALL = (
    "-o", "dataset.size=32", "-o", "dataset.n_per_class=40", "-o", "training.epochs=1",
    "-o", "training.steps=2", "-o", "image_size=32", "--method", "ncc", "--method", "logistic",
)  # fmt: skip


def test_the_printed_table_is_all_there() -> None:
    printed = printed_differences()
    assert len(printed) == 9 * 3 * 4
    cell = printed["Aircraft", 1, "DINOv2 FT", "CLIP LR"]
    assert cell.text(signed=True) == "+9.24 ± 4.27"


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
