"""The fixtures of the repository's own tests, and small runs that several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

import fsframework as api
from tests.conftest import _own_folders, distribution, failing, fsf  # noqa: F401

DATA = {"name": "planted", "n_per_class": 16, "size": 16}


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of three methods on the same two arms, one of them with other shots."""
    folder = tmp_path_factory.mktemp("small")
    common = {
        "dataset": DATA, "sampler": "fewstab", "tasks": 24, "queries": 3, "way": 3,
        "training": {"epochs": 0}, "runs_dir": folder / "runs", "cache_dir": folder / "cache",
        "progress": False, "image_size": 16,
    }  # fmt: skip
    for method in ("ncc", "logistic", "protonet"):
        api.run(method=method, shot=1, **common)
    api.run(method="ncc", shot=2, **common)
    return folder / "runs"


@pytest.fixture(scope="session")
def two_strengths(small_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs of three methods at strength 0.5, and of two of them, one with two seeds, at 0.2."""
    folder = tmp_path_factory.mktemp("weaker")
    common = {
        "dataset": {**DATA, "strength": 0.2}, "sampler": "fewstab", "tasks": 24, "queries": 3,
        "way": 3, "shot": 1, "training": {"epochs": 0}, "runs_dir": folder / "runs",
        "cache_dir": folder / "cache", "progress": False, "image_size": 16,
    }  # fmt: skip
    api.run(method="protonet", **common)
    api.run(method="ncc", seeds=range(2), **common)
    runs = [run for run in api.runs(small_runs) if run.record.tested.n_shot == 1]
    return sorted(run.folder for run in [*runs, *api.runs(folder / "runs")])


@pytest.fixture(scope="session")
def one_shot(small_runs: Path) -> list[Path]:
    """The runs on tasks of one shot."""
    runs = [run for run in api.runs(small_runs) if run.record.tested.n_shot == 1]
    return sorted(run.folder for run in runs)
