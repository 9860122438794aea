"""The task sets of the package: what has a name never changes."""

from __future__ import annotations

import csv
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import fsframework
from fsframework.values import Arms, ImagePool
from tests.conftest import Fsf

FOLDER = Path(__file__).parents[1] / "fsf_tasks"
SHARED = Path(os.environ.get("FSF_GOLDEN", Path(__file__).parents[4] / "shared/golden")).parent
DIGESTS = {
    "cifar-fs/appearance-5w1s-v1": ("49bf69b76863", "9a8a7d063227"),
    "cifar-fs/appearance-5w5s-v1": ("53835f8c8963", "ade8588846a0"),
    "cub/fewstab-5w1s-v1": ("f5ebd41253fe", "13c3ca76dc45"),
    "cub/fewstab-5w5s-v1": ("665cb607c48f", "fd40916b3d8a"),
    "pacs/context-5w1s-v1": ("441527d2b313", "437d15101af3"),
    "pacs/context-5w5s-v1": ("c4d9dc9990e7", "49efff3f2bb8"),
    "waterbirds/context-5w1s-v1": ("556b14204aa5", "7115bc128659"),
    "waterbirds/context-5w5s-v1": ("afa466fcee4f", "8d774fdf6d1f"),
}
"""The beginnings of the digests of the control and of the tested tasks. Never edit one."""


def test_every_set_has_its_digests_here() -> None:
    assert sorted(f"{file.parts[-3]}/{file.parts[-2]}" for file in FOLDER.glob("*/*/run.json")) == (
        sorted(DIGESTS)
    )


@pytest.mark.parametrize("name", DIGESTS)
def test_tasks_images_and_words_are_those_that_were_published(name: str) -> None:
    run = fsframework.load_run(name)
    assert tuple(tasks.digest[:12] for tasks in run.tasks.values()) == DIGESTS[name]
    for tasks in run.tasks.values():
        tasks.verify(run.pool)
        assert (len(tasks), tasks.n_way, tasks.n_query) == (600, 5, 15)
    check = _is_fewstab if run.tasks.tested.sampler == "fewstab" else _is_context
    check(run.tasks, run.pool)


def _is_fewstab(arms: Arms, pool: ImagePool) -> None:
    """A support image has the word tied to its class, and that of no other class of its task."""
    assert list(arms) == ["random", "biased"]
    words = pool.attributes
    assert words is not None
    has = np.zeros((len(pool), len(words.words)), bool)
    for image in range(len(pool)):
        has[image, words.indices[words.indptr[image] : words.indptr[image + 1]]] = True
    for support, tied in zip(arms["biased"].support, arms["biased"].attribute, strict=True):
        assert (has[support][:, :, tied] == np.eye(5, dtype=bool)[:, None, :]).all()


def _is_context(arms: Arms, pool: ImagePool) -> None:
    """Queries of a class have the context of its support, or another one."""
    assert list(arms) == ["iid", "ood"]
    of = np.array(pool.metadata["context"])
    for arm, same in (("iid", True), ("ood", False)):
        support, query = of[arms[arm].support], of[arms[arm].query]
        assert (support == support[:, :, :1]).all()
        assert ((query == support[:, :, :1]) == same).all()


@pytest.mark.parametrize("name", [name for name in DIGESTS if name.startswith("cub/")])
def test_words_of_photographs_are_what_annotators_saw_in_them(name: str) -> None:
    words = fsframework.load_run(name).pool.attributes
    assert words is not None
    assert {word.partition("v")[0] for word in words.words} == {f"g{i}" for i in range(28)}


@pytest.mark.shared_data
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the reference data is not at {SHARED}")
@pytest.mark.parametrize("name", [name for name in DIGESTS if name.startswith("waterbirds/")])
def test_contexts_are_those_of_the_published_images(name: str) -> None:
    pool = fsframework.load_run(name).pool
    of = dict(zip(pool.keys, pool.metadata["context"], strict=True))
    assert Counter(of.values()) == {"land": 1877, "water": 1088}
    for file in ("waterbirds_blip.csv", "waterbirds_gpt4o.csv"):
        with (SHARED / "data/captions" / file).open(newline="") as lines:
            seen = {row["key"]: ("land", "water")[int(row["a"])] for row in csv.DictReader(lines)}
        common = seen.keys() & of.keys()
        assert len(common) == 296
        assert {key: of[key] for key in common} == {key: seen[key] for key in common}


def test_a_datasheet_says_what_a_paper_needs(fsf: Fsf) -> None:
    shown = fsf("tasks", "show", "cub/fewstab-5w1s-v1")
    assert shown.returncode == 0, shown.stderr
    for told in (
        *DIGESTS["cub/fewstab-5w1s-v1"], "600 biased tasks", "2,965 of 50 classes", "n_shot=1",
        "licence: ", "words: ", "fsf tasks publish cub/fewstab-5w1s-v1",
    ):  # fmt: skip
        assert told in shown.stdout


def test_other_images_are_refused(fsf: Fsf) -> None:
    done = fsf("run", "--method", "ncc", "--task-file", "cub/fewstab-5w1s-v1")
    assert done.returncode == 2
    assert "--task-file cub/fewstab-5w1s-v1: these tasks were drawn from other data" in done.stderr
