"""The task sets of the package: what has a name never changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fsframework
from tests.conftest import Fsf

FOLDER = Path(__file__).parents[1] / "fsf_tasks"
DIGESTS = {
    "cifar-fs/appearance-5w1s-v1": ("49bf69b76863", "9a8a7d063227"),
    "cifar-fs/appearance-5w5s-v1": ("53835f8c8963", "ade8588846a0"),
    "cub/fewstab-5w1s-v1": ("f5ebd41253fe", "8c6928e3cf81"),
    "cub/fewstab-5w5s-v1": ("665cb607c48f", "260bd391d660"),
}
"""The beginnings of the digests of the random and of the biased tasks. Never edit one."""


def test_every_set_has_its_digests_here() -> None:
    assert sorted(f"{file.parts[-3]}/{file.parts[-2]}" for file in FOLDER.glob("*/*/run.json")) == (
        sorted(DIGESTS)
    )


@pytest.mark.parametrize("name", DIGESTS)
def test_tasks_images_and_words_are_those_that_were_published(name: str) -> None:
    run = fsframework.load_run(name)
    assert tuple(tasks.digest[:12] for tasks in run.tasks.values()) == DIGESTS[name]
    assert run.record.contrast is not None
    assert run.record.contrast.arms == ("random", "biased")
    words = run.pool.attributes
    assert words is not None
    for tasks in run.tasks.values():
        tasks.verify(run.pool)
    biased = run.tasks["biased"]
    assert (len(biased), biased.n_way, biased.n_query) == (600, 5, 15)
    # The rule that the datasheet names: each support image has the word tied to its class, and
    # that of no other class of its task.
    has = np.zeros((len(run.pool), len(words.words)), bool)
    for image in range(len(run.pool)):
        has[image, words.indices[words.indptr[image] : words.indptr[image + 1]]] = True
    for support, tied in zip(biased.support, biased.attribute, strict=True):
        own = has[support][:, :, tied]
        assert (own == np.eye(5, dtype=bool)[:, None, :]).all()


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
