"""Tables and tasks written by version 1 of the file formats open, and mean what they meant.

The files are of the data set ``planted`` with 8 images per class, 16 pixels high; see ``DATA``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fsframework as fsf
from fsframework.values import TaskSet
from tests.conftest import Fsf

FILES = Path(__file__).parents[1] / "old_files" / "version_1"
DATA = ("--dataset", "planted", "-o", "dataset.n_per_class=8", "-o", "dataset.size=16")


@pytest.mark.parametrize(
    ("name", "arm", "placebo", "options"),
    [
        ("biased", "biased", False, ()),
        ("random", "random", False, ()),
        ("ood", "ood", False, ()),
        ("placebo", "biased", True, ()),
        ("shortcut", "biased", False, ("--attributes", str(FILES / "appearance.parquet"))),
    ],
)
def test_task_files_verify_with_their_arm(
    fsf: Fsf, name: str, arm: str, placebo: bool, options: tuple[str, ...]
) -> None:
    done = fsf("tasks", "verify", str(FILES / f"{name}.safetensors"), *DATA, *options, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["tasks"], told["arm"], told["placebo"]) == (6, arm, placebo)


@pytest.mark.parametrize(("name", "arm"), [("biased", "biased"), ("random", "random")])
def test_the_tasks_drawn_today_are_the_same(fsf: Fsf, tmp_path: Path, name: str, arm: str) -> None:
    done = fsf(
        "tasks", "make", "t.safetensors", *DATA, "--arm", arm, "--way", "3", "--shot", "1",
        "--queries", "2", "--tasks", "6",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    old = TaskSet.load(FILES / f"{name}.safetensors")
    assert TaskSet.load(tmp_path / "t.safetensors").digest == old.digest


def test_a_table_of_detected_words_is_what_the_detector_says_today(
    fsf: Fsf, tmp_path: Path
) -> None:
    import fsframework

    old = fsframework.attributes(FILES / "appearance.parquet")
    done = fsf("attributes", "extract", "w.parquet", "--detector", "appearance", *DATA)
    assert done.returncode == 0, done.stderr
    new = fsframework.attributes(tmp_path / "w.parquet")
    assert new.fingerprint == old.fingerprint
    assert dict(new.provenance) == dict(old.provenance)


def test_a_table_with_captions_keeps_them() -> None:
    table = fsf.attributes(FILES / "captions.parquet")
    assert table.captions is not None
    assert (len(table), len(table.captions), len(table.words)) == (160, 160, 32)
    pool = fsf.pool(
        {"name": "planted", "n_per_class": 8, "size": 16}, attributes=FILES / "captions.parquet"
    )
    assert pool.attributes is not None
    assert pool.attributes.fingerprint == table.fingerprint
    assert table.captions[0] == pool.metadata["caption"][0]
    assert table.provenance["detector"] == "captions-file"


def test_an_old_shard_says_which_part_it_is() -> None:
    table = fsf.attributes(FILES / "part.parquet")
    whole = fsf.attributes(FILES / "appearance.parquet")
    assert table.provenance["shard"] == "1/2"
    assert table.keys == whole.keys[80:]
