"""The grids of the benchmarks can be planned: every method, recipe and option in them exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Fsf

GRIDS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.toml"))


@pytest.mark.parametrize("grid", GRIDS, ids=lambda path: path.stem)
def test_a_grid_can_be_planned(fsf: Fsf, grid: Path) -> None:
    said = fsf("sweep", "--config", str(grid), "--dry-run").stdout
    assert " to do" in said.splitlines()[-1]


def test_there_are_grids() -> None:
    assert len(GRIDS) >= 4
