"""Breakdowns of runs, from their folders and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import fsf_statistics
import fsframework as fsf
from fsframework.errors import DataError, OptionError

DATA = {"name": "planted", "n_per_class": 12, "size": 16}


def ran(folder: Path, **more: object) -> fsf.Run:
    return fsf.run(
        method="ncc", sampler="fewstab", tasks=40, way=3, shot=1, queries=3, dataset=DATA,
        training={"epochs": 0}, recipe="none", runs_dir=folder / "runs", cache_dir=folder / "cache",
        progress=False, device="cpu", **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fsf.Run:
    return ran(tmp_path_factory.mktemp("runs"))


def test_a_run_keeps_its_images_and_words(run: fsf.Run) -> None:
    pool = fsf.pool(DATA)
    assert (run.pool.keys, run.pool.fingerprint) == (pool.keys, pool.fingerprint)
    assert run.pool.attributes.fingerprint == pool.attributes.fingerprint


def test_images_or_words_of_another_run_are_refused(run: fsf.Run, tmp_path: Path) -> None:
    folder = tmp_path / run.name
    shutil.copytree(run.folder, folder)
    fsf.pool({**DATA, "seed": 1}).attributes.save(folder / "words.parquet")
    with pytest.raises(DataError, match="not drawn with its words"):
        _ = fsf.load_run(folder).pool
    fsf.pool(DATA, split="val").save(folder / "images.parquet")
    with pytest.raises(DataError, match="not drawn from its images"):
        _ = fsf.load_run(folder).pool


def test_parts_and_whole_agree(run: fsf.Run) -> None:
    found = fsf_statistics.breakdown(run, "class")
    for arm, outcomes in run.outcomes.items():
        rows = [row for row in found.rows if row.arm == arm]
        right = sum(row.estimate.value * row.n_queries for row in rows)
        assert sum(row.n_queries for row in rows) == outcomes.predictions.size
        assert right / outcomes.predictions.size == pytest.approx(outcomes.task_accuracy.mean())
    by_name = fsf_statistics.breakdown(run.folder, "class")
    assert by_name.to_json() == found.to_json()


def test_outcomes_need_a_pool(run: fsf.Run) -> None:
    with pytest.raises(OptionError, match="give pool"):
        fsf_statistics.harmful_pairs(run.outcomes)
    found = fsf_statistics.harmful_pairs(run.outcomes, pool=run.pool)
    assert found.to_json() == fsf_statistics.harmful_pairs(run).to_json()
    assert np.isfinite([row.p for row in found.tested]).all()


def test_runs_over_seeds_have_a_breakdown_and_no_harmful_pairs(run: fsf.Run) -> None:
    again = ran(run.folder.parent.parent, seeds=[0, 1])
    found = fsf_statistics.breakdown(again, "class")
    alone = [fsf_statistics.breakdown(one, "class").rows for one in again.runs]
    for row, *own in zip(found.rows, *alone, strict=True):
        assert row.estimate.value == pytest.approx(np.mean([one.estimate.value for one in own]))
        assert row.estimate.n_seeds == 2
    with pytest.raises(OptionError, match="2 training seeds: give one of the runs"):
        fsf_statistics.harmful_pairs(again)
