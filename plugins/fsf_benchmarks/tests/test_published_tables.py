"""The printed tables agree with each other, and what is no such table is refused."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fsf_benchmarks._published import (
    AVERAGE,
    BASES,
    DATASETS,
    METHODS,
    SOURCES,
    printed_values,
    read_table,
)
from fsf_statistics import spearman
from fsframework.errors import DataError

SHARED = Path(__file__).parents[4] / "shared" / "published"
TEN = tuple(METHODS.values())
PLACES = [(dataset, shot) for dataset in DATASETS for shot in (1, 5)]
EACH_PLACE = pytest.mark.parametrize(("dataset", "shot"), PLACES)


def column(table: str, dataset: str, shot: int, name: str) -> np.ndarray:
    printed = printed_values()
    return np.array([printed[table, dataset, shot, method, name].value for method in TEN])


def test_every_cell_of_every_table_is_there() -> None:
    sizes = {table: sum(key[0] == table for key in printed_values()) for table in SOURCES}
    places, techniques = len(PLACES), len(DATASETS) * 3
    assert sizes == {
        "S10": len(BASES) * 2 * 2,
        "3": 10 * places * 2, "S7": 10 * places * 2, "S8": 10 * places * 2,
        "S5": 11 * techniques, "S6": 11 * techniques, "4": places, "6": places,
    }  # fmt: skip
    for (table, *_), value in printed_values().items():
        assert value.has_interval == (table in ("3", "S7", "S8", "S10"))


@EACH_PLACE
def test_three_tables_print_the_same_wacc_a(dataset: str, shot: int) -> None:
    values = [
        [printed_values()[table, dataset, shot, method, name] for method in TEN]
        for table, name in (("3", "wAcc-A"), ("S7", "wAcc-A"), ("S8", "ViT-GPT2"))
    ]
    assert values[0] == values[1] == values[2]


CONTRADICTED = {
    ("6", "miniImageNet", 1): 0.9879,
    ("6", "tieredImageNet", 5): 0.9394,
    ("6", "CUB-200", 1): 0.9879,
    ("6", "CUB-200", 5): 0.9879,
}
"""Cells of Table 6 that Table S8 contradicts, and what follows from it."""


@pytest.mark.parametrize(
    ("table", "of", "names"),
    [("4", "3", ("wAcc-A", "wAcc-R")), ("6", "S8", ("ViT-GPT2", "BLIP"))],
)
@EACH_PLACE
def test_rank_correlations_follow_from_other_tables_but_for_four_cells(
    dataset: str, shot: int, table: str, of: str, names: tuple[str, str]
) -> None:
    sides = [column(of, dataset, shot, name) for name in names]
    rho = spearman(*sides)
    assert rho == pytest.approx(stats.spearmanr(*sides).statistic, abs=1e-12)
    printed = printed_values()[table, dataset, shot, "", "rho"].value
    expected = CONTRADICTED.get((table, dataset, shot))
    assert (round(rho, 2) == printed) == (expected is None)
    if expected is not None:
        assert rho == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("technique", ["SC1", "SC2", "SC3", "QC1", "QC2", "QC3"])
@pytest.mark.parametrize("dataset", DATASETS)
def test_average_drops_follow_from_the_gaps(dataset: str, technique: str) -> None:
    table = "S5" if technique.startswith("S") else "S6"
    mean = column(table, dataset, 5, technique).mean()
    # Gaps and average are rounded to 0.01 each.
    printed = printed_values()[table, dataset, 5, AVERAGE, technique].value
    assert mean == pytest.approx(printed, abs=0.01)


@pytest.mark.parametrize("dataset", DATASETS)
def test_fewstabs_own_construction_has_the_gap_of_table_3(dataset: str) -> None:
    gap = column("3", dataset, 5, "wAcc-R") - column("3", dataset, 5, "wAcc-A")
    for table, technique in (("S5", "SC3"), ("S6", "QC3")):
        np.testing.assert_allclose(column(table, dataset, 5, technique), gap, atol=0.011)


@pytest.mark.shared_data
def test_the_files_hold_what_was_published() -> None:
    if not SHARED.is_dir():
        pytest.skip(f"reference material is absent: {SHARED}")
    ours = Path(__file__).parents[1] / "fsf_benchmarks" / "data"
    for name in ("3", "s5", "s6", "s7", "s8", "s10"):
        suffix = "_ifsl" if name == "s10" else ""
        theirs = SHARED / f"fewstab_table{'_' if name != '3' else ''}{name}{suffix}.csv"
        with (
            theirs.open(newline="") as one,
            (ours / f"fewstab_table_{name.upper()}.csv").open(newline="") as other,
        ):
            assert list(csv.reader(one)) == list(csv.reader(other)), name


HEAD = "dataset,shot,method,metric,value_percent,ci95_half_width\n"
ROW = "miniImageNet,1,ANIL,wAcc-A,10.38,0.3\n"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("dataset,shot,method\n", "row 1 lacks the column metric and value_percent"),
        (HEAD, "has no rows"),
        (HEAD + "miniImageNet,1,ANIL,wAcc-A,10.38\n", "row 2 does not have as many cells"),
        (HEAD + ROW.replace("miniImageNet", "MNIST"), "dataset: must be one of miniImageNet"),
        (HEAD + ROW.replace(",1,", ",2,"), "row 2, shot: must be 1 or 5, not 2"),
        (HEAD + ROW.replace("10.38", "ten"), "value_percent: must be a number from 0"),
        (HEAD + ROW.replace("10.38", "nan"), "value_percent: must be a number from 0"),
        (HEAD + ROW.replace("10.38", "103.8"), "to 100, not '103.8'"),
        (HEAD + ROW * 2, "row 3: miniImageNet, 1, ANIL"),
    ],
)
def test_a_file_that_is_no_such_table_is_refused(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_table("3", path)
    assert str(caught.value).startswith("table.csv: ")
    assert part in str(caught.value)
