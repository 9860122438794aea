"""The published accuracies: their table follows from them, and so do its conclusions."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import fsframework as fsf_api
from fsf_statistics.accuracies import Reading
from fsf_statistics.cli._comparison_tables import count_pairs
from fsf_statistics.comparing import MeasureComparison
from fsf_statistics.sources import read_results

SHARED = Path(__file__).parents[4] / "shared"

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
