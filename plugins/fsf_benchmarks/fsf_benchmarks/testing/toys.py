"""Made-up results of experiments."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fsf_benchmarks.interfaces import (
    BenchmarkResults,
    ExperimentDescription,
    ExperimentResult,
    Selection,
)
from fsframework.interfaces import Dataset
from fsframework.testing import toy_images, toy_outcomes, toy_pool
from fsframework.values import (
    ArmOutcomes,
    Arms,
    Contrast,
    Estimate,
    IntArray,
    Outcomes,
    TaskSet,
    UInt8Array,
)

__all__ = ["toy_benchmark_results", "toy_selection"]


class _ToyImages(Dataset):
    """The images of ``toy_pool`` with the splits ``train`` and ``test``."""

    native_size = 48

    def __init__(self) -> None:
        pool = toy_pool(24, 80, 0)
        self.keys, self.labels, self.class_names = pool.keys, pool.labels, pool.class_names
        self.splits = {"train": self.class_names[:12], "test": self.class_names[12:]}
        columns = ("context", "background")
        self.metadata = dict.fromkeys(columns, pool.metadata["context"])
        self.metadata = {**self.metadata, "words": ("green;ball",) * len(self.keys)}
        self.fingerprint = "toy images"

    def image(self, index: int) -> UInt8Array:
        return toy_images(1)[0] if index < len(self.keys) else toy_images(2)[1]


def toy_selection(**chosen: Any) -> Selection:
    """Return what a user might ask of a benchmark: nothing but what is given.

    Data sets of any name are the same toy; the installed plugins are those of the main job.

    >>> toy_selection(shots=(1,)).shots
    (1,)
    """
    installed = {
        "method": ("baseline-plus-plus", "dn4", "maml", "ncc", "protonet", "r2d2", "renet"),
        "backbone": ("conv64f", "resnet10", "resnet12"),
        "sampler": ("context", "fewstab", "random"),
    }
    return Selection(installed=installed, open_dataset=lambda name: _ToyImages(), **chosen)


_ARMS = ("random", "biased", "iid", "ood")
"""Arms of every made-up run, next to those that its benchmark declares."""


def toy_benchmark_results(
    selection: Selection,
    experiments: Iterable[ExperimentDescription],
    *,
    arms: Sequence[str] = (),
    failed: bool = False,
    moved: int | None = None,
) -> BenchmarkResults:
    """Return made-up results of experiments: the estimates of Acc and wAcc in several arms.

    Args:
        selection: that the experiments were made for.
        experiments: as a benchmark describes them.
        arms: that the benchmark declares; of two, the first is the control.
        failed: whether all of them failed.
        moved: place of an experiment with other values than usual.
    """
    described = list(experiments)
    made = [
        _toy_result(one, seed + (seed == moved) * len(described), tuple(arms), failed=failed)
        for seed, one in enumerate(described)
    ]
    return BenchmarkResults(selection, made)


def _toy_result(
    description: ExperimentDescription, seed: int, declared: tuple[str, ...], *, failed: bool
) -> ExperimentResult:
    arms = tuple(dict.fromkeys((*declared, *_ARMS)))
    contrast = Contrast(*declared) if len(declared) == 2 else Contrast("random", "biased")
    options = {
        "dataset": {"name": "toy"},
        "backbone": {"name": "conv64f"},
        "method": {"name": "toy"},
        "sampler": {"name": "toy", "n_way": 5, "n_shot": 1, "n_query": 8, "column": "context"},
        "training": [{"epochs": 0, "init_from": None}],
        "tasks": 6,
        "task_seed": 0,
        "training_seed": 0,
        "level": 0.95,
        "query_batch": "task",
        "recipe": None,
        "image_size": None,
    }
    if failed:
        return ExperimentResult(
            description=description, options=options, reason="the toy was told to fail"
        )
    return ExperimentResult(
        description=description,
        options=options,
        folder=Path("toys") / description.name,
        fingerprint=f"toy-{description.name}",
        data_fingerprint="toy images",
        trained=True,
        n_tasks=dict.fromkeys(arms, 6),
        estimates=_toy_estimates(arms, contrast, seed),
        notes=("a caution of the toys",),
        cautions=("a caution of the toys",),
        load_outcomes=lambda: _toy_arm_outcomes(arms, contrast, seed),
    )


def _toy_estimates(arms: tuple[str, ...], contrast: Contrast, seed: int) -> dict[str, Estimate]:
    measured = (*((arm,) for arm in arms), (contrast.control, contrast.tested))
    found = {}
    for number, statistic in enumerate(("acc", "wacc")):
        for place, of in enumerate(measured):
            value = 0.9 - 0.1 * place - 0.2 * number + 0.001 * seed
            estimate = Estimate(
                statistic,
                value,
                value - 0.05 - 0.0001 * seed,
                value + 0.05 + 0.0002 * seed,
                0.95,
                "closed",
                False,
                "student-t",
                6,
                200,
                share=True,
                arms=of,
            )
            found[estimate.name] = estimate
    return found


@functools.cache
def _toy_tasks(place: int) -> TaskSet:
    pool = toy_pool(12, 40, 0)
    rng = np.random.default_rng(place)
    classes = np.stack([rng.choice(12, 5, replace=False) for _ in range(6)])
    images: IntArray = classes[..., None] * 40 + np.arange(9)
    return TaskSet.of(
        pool, classes, images[..., :1], images[..., 1:], sampler="toy", options={}, seed=0
    )


def _toy_arm_outcomes(arms: tuple[str, ...], contrast: Contrast, seed: int) -> ArmOutcomes:
    tasks = {arm: _toy_tasks(place) for place, arm in enumerate(arms)}
    outcomes = {}
    for place, (arm, one) in enumerate(tasks.items()):
        made = toy_outcomes(accuracy=0.8 - 0.1 * place, seed=seed)
        outcomes[arm] = Outcomes(made.predictions, one.digest, one.n_images, True)
    return ArmOutcomes(outcomes, Arms(tasks, contrast))
