"""The fixtures of the repository's own tests, and small runs that several tests read."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import fsframework as api
from tests.conftest import _own_folders, distribution, failing, fsf  # noqa: F401

DATA = {"name": "planted", "n_per_class": 16, "size": 16}


class Markup(HTMLParser):
    """The names of all elements, and the text that is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def parsed() -> Callable[..., Markup]:
    """Return a function that reads HTML."""

    def parse(*texts: str) -> Markup:
        markup = Markup()
        for text in texts:
            markup.feed(text)
        return markup

    return parse


def untrained(folder: Path, **options: Any) -> dict[str, Any]:
    """Return the options of runs that take a moment."""
    return {
        "dataset": {**DATA, **options}, "sampler": "fewstab", "tasks": 24, "queries": 3, "way": 3,
        "training": {"epochs": 0}, "runs_dir": folder / "runs", "cache_dir": folder / "cache",
        "progress": False, "image_size": 16,
    }  # fmt: skip


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of three methods on the same two arms, one of them with other shots."""
    common = untrained(tmp_path_factory.mktemp("small"))
    for method in ("ncc", "logistic", "protonet"):
        api.run(method=method, shot=1, **common)
    api.run(method="ncc", shot=2, **common)
    return Path(common["runs_dir"])


@pytest.fixture(scope="session")
def on_a_line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of six methods that are far from guessing by Acc, and alike."""
    common = untrained(tmp_path_factory.mktemp("line"), n_per_class=40)
    for method in ("knn", "ncc", "cosine", "matchingnet", "logistic", "protonet"):
        api.run(method=method, shot=5, **{**common, "way": 5, "queries": 10})
    return Path(common["runs_dir"])


@pytest.fixture(scope="session")
def two_strengths(one_shot: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs of three methods at strength 0.5, and of two of them, one with two seeds, at 0.2."""
    common = untrained(tmp_path_factory.mktemp("weaker"), strength=0.2)
    api.run(method="protonet", shot=1, **common)
    api.run(method="ncc", shot=1, seeds=range(2), **common)
    return sorted([*one_shot, *(run.folder for run in api.runs(common["runs_dir"]))])


@pytest.fixture(scope="session")
def one_shot(small_runs: Path) -> list[Path]:
    """The runs on tasks of one shot."""
    runs = [run for run in api.runs(small_runs) if run.record.tested.n_shot == 1]
    return sorted(run.folder for run in runs)


@pytest.fixture(scope="session")
def methods(one_shot: list[Path]) -> dict[str, api.Run]:
    """The runs on tasks of one shot, by their methods."""
    runs = map(api.load_run, one_shot)
    return {run.record.method.name: run for run in runs if run.record.method is not None}
