"""Runs on words of several sources: what is printed names the source of each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import fsf_reports
import fsf_statistics
import fsframework as api
from tests.conftest import Fsf

from .conftest import DATA, untrained

QUICK = (
    "--method", "ncc", "--sampler", "fewstab", "--way", "3", "--shot", "1", "--queries", "3",
    "--tasks", "6", "--image-size", "16", "-o", "training.epochs=0", "-o", "dataset.size=16",
)  # fmt: skip
SOURCES = {"appearance", "fewer.csv", "mine.csv"}


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one method on words of a detector, of two files, and of the placebo of one."""
    folder = tmp_path_factory.mktemp("words")
    words = api.pool(DATA).attributes
    assert words is not None
    lines = [f"{key},{';'.join(words.words_of(place))}" for place, key in enumerate(words.keys)]
    for name, rows in (("mine.csv", lines), ("fewer.csv", lines[: -len(lines) // 40])):
        (folder / name).write_text("\n".join(["key,words", *rows]) + "\n", encoding="utf-8")
    common = {**untrained(folder), "method": "ncc", "shot": 1}
    api.run(**common, detector="appearance")
    api.run(**common, attributes=str(folder / "fewer.csv"))
    for placebo in (False, True):
        api.run(**common, attributes=str(folder / "mine.csv"), placebo=placebo)
    return folder / "runs"


def test_tables_figures_and_lists_name_detector_or_file(
    fsf: Fsf, runs_dir: Path, tmp_path: Path
) -> None:
    for made in (fsf_reports.table(runs_dir), fsf_statistics.headline(runs_dir).table):
        assert "words" in made.row_names
        assert "set" not in made.row_names
        place = made.row_names.index("words")
        assert {entry.row[place] for entry in made.entries} == SOURCES
    for name in ("arms", "shots"):
        titles = [panel.title for panel in fsf_reports.figure(name, runs_dir).panels]
        assert len(set(titles)) == len(titles) == 4
        assert all(any(source in title for source in SOURCES) for title in titles)
    shutil.copytree(runs_dir, tmp_path / "runs")
    assert "words" in fsf("runs", "list").stdout.splitlines()[0].split()
    head = fsf("runs", "list", "words=mine.csv").stdout.splitlines()[0]
    assert "words" not in head.split()
    [found] = json.loads(fsf("runs", "list", "detector=appearance", "--json").stdout)
    assert found["words"] == "detected by appearance"


def test_answers_say_that_a_run_is_a_placebo(fsf: Fsf, runs_dir: Path) -> None:
    for run in api.runs(runs_dir):
        answer = " ".join(fsf_statistics.headline([run]).sentences)
        assert ("placebo" in answer) == run.record.settings["placebo"]
    done = fsf("run", *QUICK, "--placebo")
    assert "placebo" in done.stdout.partition("\n\n")[0]
