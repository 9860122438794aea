"""`fsf compare` on files: the published ones, and its tables in every form."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

import numpy as np
import pytest

import fsframework as fsf_api
from fsf_statistics.accuracies import Reading
from fsf_statistics.cli._comparison_tables import count_pairs
from fsf_statistics.sources import read_results
from fsframework.statistics.comparison import MeasureComparison

SHARED = Path(__file__).parents[4] / "shared"


def accuracies(n_tasks: int, n_methods: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    difficulty = rng.beta(7, 3, n_tasks)
    return rng.binomial(75, difficulty[:, None], (n_tasks, n_methods)) / 75


# --- the published files --------------------------------------------------------------------------


NAMES = {
    "DINOv2 FT": "dinov2/finetune",
    "CLIP LR": "clip/LR",
    "DINO LR": "dino/LR",
    "DINOv2 LR": "dinov2/LR",
    "DINOv2 NCC": "dinov2/NCC",
}


@pytest.fixture(scope="module")
def published() -> dict[str, MeasureComparison]:
    folder = SHARED / "data" / "per_task_accuracies"
    if not folder.is_dir():
        pytest.skip(f"reference material is absent: {folder}")
    results = read_results([str(folder)], Path(), Reading(scope="open"))
    return {part.task_set: part for part in fsf_api.compare(results, "acc", by_tasks=True)}


@pytest.mark.shared_data
def test_table_4_follows_from_the_published_files(published: dict[str, MeasureComparison]) -> None:
    unlike = {}
    with (SHARED / "published" / "ci_table4.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            data = row["dataset"].lower().replace(" ", "_")
            comparison = published[f"{row['shot']}-shot/{data}"]
            pair, sign = comparison.pair(NAMES[row["baseline"]], NAMES[row["compared_with"]])
            shift = 100 * sign * pair.difference.value - float(row["difference_percent"])
            width = 100 * pair.difference.half_width - float(row["ci95_half_width"])
            if max(abs(shift), abs(width)) > 0.0005 + 1e-6:
                unlike.setdefault((row["dataset"], row["shot"]), []).append((shift, width))
    # The published file of the baseline differs there from the one the table was made of.
    assert {key: len(cells) for key, cells in unlike.items()} == {
        ("MSCOCO", "5"): 4,
        ("Omniglot", "1"): 4,
    }
    for (name, _), cells in unlike.items():
        expected = 0.002 if name == "MSCOCO" else -0.015
        for shift, width in cells:
            assert shift == pytest.approx(expected, abs=0.001)
            assert abs(width) <= 0.001


@pytest.mark.shared_data
def test_conclusive_comparisons_of_the_published_files(
    published: dict[str, MeasureComparison],
) -> None:
    total = count_pairs(published.values())
    assert (total.pairs, total.direct, total.paired, total.holm) == (270, 133, 194, 170)
    # On the same tasks the two never contradict each other: the difference is the same.
    assert (total.inverted, total.only_direct) == (0, 0)


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def imported(fsf, tmp_path: Path):
    values = accuracies(40, 3)
    values[:, 2] *= 0.8
    rows = "\n".join(",".join(map(str, row)) for row in values)
    (tmp_path / "open.csv").write_text("one,two_%,three\n" + rows + "\n")
    assert fsf("import", "accuracies", "open.csv", "--scope", "open").returncode == 0
    more = "\n".join(rows.splitlines()[::-1] * 4)
    (tmp_path / "closed.csv").write_text("one,two_%,three\n" + more + "\n")
    return fsf


def test_the_table_says_what_every_interval_is(imported) -> None:
    done = imported("compare", "one", "two", "three", "--explain")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("two_% has the best Acc, ")
    with_interval = [line for line in lines if "95 % open, student-t" in line]
    assert len(with_interval) == 6
    for line in with_interval:
        assert line.rstrip().endswith("not known")
    assert "3 pairs: direct comparison tells" in done.stdout
    assert "note: without wacc-tasks" in done.stdout
    short = imported("compare", "one", "two", "three").stdout
    assert ("paired" in short, "3 pairs" in short) == (True, False)
    assert "mine − q" not in short


def test_closed_stands_beside_open(imported) -> None:
    done = imported("compare", "one", "three", "--beside", "closed.csv")
    assert "--beside must name the same methods" in done.stderr
    done = imported("compare", "one", "two", "three", "--beside", "closed.csv")
    assert done.returncode == 0, done.stderr
    assert "95 % closed, student-t" in done.stdout
    assert "of these, the paired comparison on open tasks confirms" in done.stdout
    matrix = done.stdout.partition("who is higher")[2].splitlines()[2:5]
    assert all("·" not in line for line in matrix)
    again = imported("compare", "one", "two", "three", "--beside", "open.csv", "--scope", "open")
    assert "one must be closed" in again.stderr


def test_other_forms(imported) -> None:
    latex = imported("compare", "one", "two", "--format", "latex").stdout
    assert r"two\_\%" in latex
    assert latex.count(r"\toprule") == latex.count(r"\bottomrule") == latex.count(r"\end{table}")
    assert "−" not in latex
    assert "±" not in latex
    rows = list(
        csv.DictReader(imported("compare", "one", "two", "--format", "csv").stdout.splitlines())
    )
    assert [(r["first"], r["second"], r["scope"]) for r in rows] == [("one", "two_%", "open")]
    assert float(rows[0]["low"]) < float(rows[0]["difference"]) < float(rows[0]["high"])
    markdown = imported("compare", "one", "two", "--format", "markdown").stdout
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    assert "| method | acc-tasks | group |" in table[0]


def test_files_are_compared_only_where_their_tasks_are_said_to_be_equal(
    imported, tmp_path: Path
) -> None:
    for name in ("p", "q"):
        (tmp_path / f"{name}.csv").write_text(f"{name}\n0.5\n0.{'6' if name == 'p' else '7'}\n")
    refused: subprocess.CompletedProcess[str] = imported("compare", "p.csv", "q.csv")
    assert refused.returncode == 2
    assert "may have different tasks" in refused.stderr
    assert "give --same-tasks" in refused.stderr
    done = imported("compare", "mine=p.csv", "q.csv", "--same-tasks", "--pairs")
    assert done.returncode == 0
    assert "mine − q" in done.stdout
    assert "closed: images recur" in done.stdout
    both = imported("compare", "p.csv", "one", "--same-tasks")
    assert (both.returncode, "different tasks" in both.stderr) == (2, True)
    alone = imported("compare", "p.csv", "--same-tasks")
    assert "at least two methods" in alone.stderr


def test_by_tasks_compares_what_can_be(imported, tmp_path: Path) -> None:
    (tmp_path / "lone.csv").write_text("lone\n0.5\n0.7\n")
    assert imported("import", "accuracies", "lone.csv", "--task-set", "x").returncode == 0
    done = imported("compare", "runs", "--by-tasks", "--baseline", "three", "--explain")
    assert done.returncode == 0, done.stderr
    assert "2 pairs" in done.stdout
    everything = imported("compare", "runs", "--by-tasks")
    assert "note: no other method has the tasks of lone" in everything.stdout
    refused = imported("compare", "runs")
    assert (refused.returncode, "--by-tasks compares those on equal tasks" in refused.stderr) == (
        2,
        True,
    )
