"""Small parts that pipeline tests run with: nothing rendered, nothing slow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from fsframework.api.experiments import resolved, tree_of_call
from fsframework.api.running import Run, run_resolved
from fsframework.api.session import open_session
from fsframework.components.installed import Plugin
from fsframework.components.kinds import kind_of
from fsframework.components.resolution import Component
from fsframework.engine.progress import Advance, Reporter
from fsframework.interfaces import Backbone, Batch, Dataset, FewShotMethod
from fsframework.values import AttributeTable, ImagePool, UInt8Array


class TinyBackbone(Backbone):
    """One convolution with BatchNorm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.1),
            nn.MaxPool2d(4),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.body(images)
        return maps


class Prototypes(FewShotMethod):
    """Nearest class mean after a learnt scale."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return -self.scale * torch.cdist(query, support.mean(dim=2))


class Classifier(FewShotMethod):
    """Learns the base classes from batches; class means at test; can be taught."""

    learns_from = "batches"

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        del backbone
        self.classify = nn.Linear(item_shape[0], n_base_classes)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return -torch.cdist(query, support.mean(dim=2))

    def class_logits(self, items: Tensor) -> Tensor:
        logits: Tensor = self.classify(items)
        return logits

    def loss(self, batch: Batch) -> Tensor:
        assert batch.items is not None
        logits = self.classify(batch.items)
        if batch.teacher_logits is not None:
            return functional.mse_loss(logits, batch.teacher_logits)
        assert batch.classes is not None
        return functional.cross_entropy(logits, batch.classes)


class Still(Prototypes):
    """Learns nothing by itself."""

    learns_from = "nothing"

    def __init__(self) -> None:
        super().__init__()
        del self.scale
        self.scale = 1.0


class PixelPrototypes(FewShotMethod):
    """Runs the backbone itself, once a task."""

    consumes = "images"

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        del item_shape, n_base_classes
        self.backbone = backbone

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        def vectors(items: Tensor) -> Tensor:
            flat = items.flatten(0, items.dim() - 4)
            maps: Tensor = self.backbone(flat)
            return self.backbone.vectors(maps).reshape(*items.shape[:-3], -1)

        return -torch.cdist(vectors(query), vectors(support).mean(dim=2))


class Blobs(Dataset):
    """12 classes (6/3/3) of 20 noisy images; a class is a colour."""

    native_size = 16

    def __init__(self) -> None:
        self.class_names = tuple(f"c{i:02d}" for i in range(12))
        self.labels = np.repeat(np.arange(12), 20)
        self.keys = tuple(f"{self.class_names[c]}/{i}" for i, c in enumerate(self.labels))
        names = self.class_names
        self.splits = {"train": names[:6], "val": names[6:9], "test": names[9:]}
        self.metadata = {"words": tuple("odd" if i % 2 else "even" for i in range(240))}
        self.fingerprint = "blobs"
        self.decoded = 0

    def image(self, index: int) -> UInt8Array:
        self.decoded += 1
        colour = np.random.default_rng([1, int(self.labels[index])]).integers(40, 216, 3)
        noise = np.random.default_rng([2, index]).normal(0, 60, (16, 16, 3))
        return np.clip(colour + noise, 0, 255).astype(np.uint8)


def image_folder(root: Path, classes: Iterable[str], each: int = 4, side: int = 16) -> Path:
    """Write a folder of noisy images per class, each class about a colour of its own."""
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        rng = np.random.default_rng(label)
        colour = rng.integers(40, 216, 3)
        for i in range(each):
            pixels = rng.normal(colour, 20, (side, side, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


def component(cls: type[Any], **options: Any) -> Component:
    """Wrap a class as if it had been loaded."""
    kind = kind_of(cls) or "any"
    plugin = Plugin(kind, cls.__name__.lower(), f"toys:{cls.__name__}", "toys", "1")
    return Component(plugin, cls, options, {})


SMALL: dict[str, Any] = {
    "method": Prototypes, "backbone": TinyBackbone, "dataset": Blobs, "sampler": "random",
    "way": 3, "shot": 2, "queries": 5, "tasks": 40, "recipe": "none", "device": "cpu",
}  # fmt: skip


def run(
    place: Path | None = None,
    reporter: Reporter | None = None,
    plugins: Sequence[Path] = (),
    **options: Any,
) -> Run:
    """Run ``SMALL`` with other options, as ``fsf.run`` does.

    Args:
        place: of the runs and the cache; by default those of the test.
        reporter: is told of the progress.
        plugins: files of plugins.
    """
    folders = {} if place is None else {"runs_dir": place / "runs", "cache_dir": place / "cache"}
    session = open_session(**folders, plugins=plugins, progress=False)
    session = replace(session, reporter=reporter or session.reporter)
    return run_resolved(resolved(tree_of_call({**SMALL, **options}), session), session)


def weights(found: Run) -> dict[str, Tensor]:
    """Return the weights of a run by name."""
    return load_file(found.folder / "weights.safetensors")


def equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Return whether weights have the same names and values."""
    same = first.keys() == second.keys()
    return same and all(torch.equal(value, second[name]) for name, value in first.items())


class Killed(Exception):
    """Stands for a kill."""


class Counting(Reporter):
    """Counts what is reported, keeps what is said, and kills after so many units of a stage."""

    def __init__(self, stage: str = "", after: int | None = None) -> None:
        self.units: dict[str, int] = {}
        self.said: list[str] = []
        self._stage, self._after = stage, after

    def say(self, text: str) -> None:
        self.said.append(text)

    @contextmanager
    def stage(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        self.units.setdefault(name, 0)

        def advance(amount: int = 1, note: str = "") -> None:
            del note
            self.units[name] += amount
            if name == self._stage and self._after is not None and self.units[name] > self._after:
                raise Killed

        yield advance


def pool_of(classes: dict[str, list[str]]) -> ImagePool:
    """Build a pool from the words of each class's images, one string per image."""
    names = tuple(classes)
    labels = np.repeat(np.arange(len(names)), [len(images) for images in classes.values()])
    words = [cell.split() for images in classes.values() for cell in images]
    keys = tuple(f"{i:03}" for i in range(len(words)))
    return ImagePool(keys, labels, names, {}, AttributeTable.from_words(keys, words))
