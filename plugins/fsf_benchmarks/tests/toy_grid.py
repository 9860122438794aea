"""Plugins that make a grid instant: data sets, a backbone, three methods, an ablation sampler."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fsframework.interfaces import (
    AttributeDetector,
    Backbone,
    Control,
    DataError,
    Dataset,
    FewShotMethod,
    InfeasibleTask,
    TaskSampler,
)
from fsframework.values import ImagePool, TaskSet, UInt8Array, task_rng


class _Coloured(Dataset):
    """Classes of equal sizes, each of a colour; the first six are for training."""

    def _fill(self, n_classes: int, n_images: int, n_validation: int) -> None:
        self.class_names = names = tuple(f"c{i:02d}" for i in range(n_classes))
        self.labels = np.repeat(np.arange(n_classes), n_images)
        self.keys = tuple(f"{names[c]}/{i:03d}" for i, c in enumerate(self.labels))
        test = 6 + n_validation
        self.splits = {"train": names[:6], "val": names[6:test], "test": names[test:]}


class ToyImages(_Coloured):
    """15 classes of 30 images of 8 x 8 pixels: a class is a colour, a word a brightness."""

    native_size = 8

    def __init__(self, *, seed: int = 0, wordless: bool = False) -> None:
        self._fill(15, 30, 3)
        words = ("dark", "bright", "plain;dark", "plain")
        self.metadata = {} if wordless else {"words": tuple(words[i % 4] for i in range(450))}
        self.seed = seed
        self.fingerprint = f"toy-images-{seed}-{wordless}"

    def image(self, index: int) -> UInt8Array:
        label = int(self.labels[index])
        colour = np.random.default_rng([self.seed, label]).integers(60, 196, 3)
        noise = np.random.default_rng([self.seed, label, index]).normal(0, 70, (8, 8, 3))
        return np.clip(colour + noise, 0, 255).astype(np.uint8)


class ToyContexts(_Coloured):
    """24 classes of 24 images of 16 x 16 pixels: a class is a colour, a context a strong tint."""

    native_size = 16

    def __init__(self) -> None:
        self._fill(24, 24, 6)
        self.metadata = {"context": tuple(f"tint-{i % 4}" for i in range(576))}
        self.fingerprint = "toy-contexts"

    def image(self, index: int) -> UInt8Array:
        label = int(self.labels[index])
        colour = np.random.default_rng([1, label]).integers(90, 166, 3)
        tint = np.random.default_rng([2, index % 4]).integers(-50, 50, 3)
        noise = np.random.default_rng([3, index]).normal(0, 40, (16, 16, 3))
        return np.clip(colour + tint + noise, 0, 255).astype(np.uint8)


class ToyPixels(Backbone):
    """The mean colour of each quarter."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.nn.functional.adaptive_avg_pool2d(images, 2)


class _Toy(FewShotMethod):
    learns_from: ClassVar = "nothing"


class ToyNear(_Toy):
    """The nearest class mean."""

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return -torch.cdist(query, support.mean(dim=2))


class ToyFirst(_Toy):
    """The nearest class mean, looking at one channel alone."""

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return -torch.cdist(query[..., :1], support.mean(dim=2)[..., :1])


class ToyBlind(_Toy):
    """Always the same way; fails where the environment says so."""

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        if os.environ.get("TOY_FAILS"):
            raise RuntimeError("the toy was told to fail")
        if os.environ.get("TOY_KILLS"):
            signal.raise_signal(signal.SIGINT)
        scores = query.new_zeros((*query.shape[:2], support.shape[1]))
        scores[..., 0] = 1.0
        return scores


class ToySampler(TaskSampler):
    """Ties word 0 to every class and draws images at random, more of them with a restriction."""

    needs_attributes = True

    def __init__(
        self,
        *,
        n_way: int = 5,
        n_shot: int = 5,
        n_query: int = 15,
        support: Literal["random", "targeted", "exclusive"] = "exclusive",
        query: Literal["intra", "inter", "inter-least"] = "inter-least",
    ) -> None:
        super().__init__(n_way=n_way, n_shot=n_shot, n_query=n_query)
        self.support = support
        self.query = query

    def control(self) -> Control | None:
        shape = {"n_way": self.n_way, "n_shot": self.n_shot, "n_query": self.n_query}
        return Control(_ToyRandom(**shape), arms=("random", "biased"), symbols=("R", "A"))

    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        if self.n_shot > 10:
            raise InfeasibleTask(f"at most 10 shots, not {self.n_shot}")
        drawn = _draw(self, pool, n_tasks, seed, f"toy {self.support} {self.query}")
        assert pool.attributes is not None
        return drawn.with_attributes(pool.attributes, np.zeros_like(drawn.classes))


class _ToyRandom(TaskSampler):
    """Draws classes and images at random."""

    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        return _draw(self, pool, n_tasks, seed, "toy random")


def _draw(
    sampler: TaskSampler, pool: ImagePool, n_tasks: int | None, seed: int, salt: str
) -> TaskSet:
    assert n_tasks is not None
    count = sampler.n_shot + sampler.n_query
    classes = np.empty((n_tasks, sampler.n_way), np.int64)
    images = np.empty((n_tasks, sampler.n_way, count), np.int64)
    for task in range(n_tasks):
        rng = task_rng(seed, task, salt)
        classes[task] = rng.choice(len(pool.class_names), sampler.n_way, replace=False)
        for way, label in enumerate(classes[task]):
            images[task, way] = rng.choice(pool.members(label), count, replace=False)
    support, query = np.split(images, [sampler.n_shot], axis=2)
    return TaskSet.of(pool, classes, support, query, sampler="toy", options={}, seed=seed)


class ToyPlain(ToySampler):
    """Has one construction only."""

    def __init__(self, *, n_way: int = 5, n_shot: int = 5, n_query: int = 15) -> None:
        super().__init__(n_way=n_way, n_shot=n_shot, n_query=n_query)


class ToyEyes(AttributeDetector):
    """Calls an image dark or bright."""

    def detect(self, images: Sequence[Any]) -> list[frozenset[str]]:
        return [frozenset({"dark" if image.mean() < 128 else "bright"}) for image in images]


class ToyMissing(ToyEyes):
    """Its model is not there."""

    def prepare(self, *, device: str = "cpu", offline: bool = False) -> None:
        raise DataError("the toy model is in no cache")
