"""The fixtures of the repository's own tests, and a small run that several tests look at."""

import pytest

import fsframework
from tests.conftest import _own_folders, fsf  # noqa: F401


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> fsframework.Run:
    """A run of sixty tasks in each arm, by a network with random weights."""
    folder = tmp_path_factory.mktemp("runs")
    return fsframework.run(
        method="ncc", sampler="fewstab", dataset={"name": "planted", "n_per_class": 12, "size": 16},
        training={"epochs": 0}, tasks=60, way=3, shot=1, queries=4, progress=False,
        runs_dir=folder, cache_dir=folder / "cache",
    )  # fmt: skip
