"""Small synthetic data, the same on every machine, that every valid component can use."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fsframework.records import RunRecord
from fsframework.values import (
    AttributeTable,
    ImagePool,
    ImageRecord,
    Outcomes,
    UInt8Array,
)

__all__ = [
    "toy_images",
    "toy_outcomes",
    "toy_pool",
    "toy_record",
    "toy_records",
]

_WORDS_AN_IMAGE = 3
_CONTEXTS = ("forest", "grass", "sand", "snow", "water")


def toy_pool(n_classes: int = 12, n_images: int = 80, n_words: int = 20) -> ImagePool:
    """Return a pool with attributes and a metadata column ``context``.

    Every image has three words drawn uniformly, which leaves enough images for FewSTAB tasks of 5
    ways, 5 shots and 15 queries; the contexts of a class alternate.

    Args:
        n_classes: number of classes.
        n_images: images per class.
        n_words: size of the vocabulary, at least 3; 0 for a pool without attributes.

    >>> pool = toy_pool(2, 3)
    >>> pool.keys[:3], pool.metadata["context"][:3]
    (('class-00/000.png', 'class-00/001.png', 'class-00/002.png'), ('forest', 'grass', 'sand'))
    """
    names = tuple(f"class-{c:02}" for c in range(n_classes))
    keys = tuple(f"{name}/{i:03}.png" for name in names for i in range(n_images))
    contexts = tuple(_CONTEXTS[i % len(_CONTEXTS)] for _ in names for i in range(n_images))
    table = None
    if n_words:
        rng = np.random.default_rng(0)
        order = rng.permuted(np.tile(np.arange(n_words), (len(keys), 1)), axis=1)
        words = [[f"word-{w:02}" for w in own] for own in order[:, :_WORDS_AN_IMAGE]]
        table = AttributeTable.from_words(keys, words)
    labels = np.repeat(np.arange(n_classes), n_images)
    return ImagePool(keys, labels, names, {"context": contexts}, table)


def toy_outcomes(
    n_tasks: int = 6, n_way: int = 5, n_query: int = 8, *, accuracy: float = 0.6, seed: int = 0
) -> Outcomes:
    """Return predictions that are right with probability ``accuracy``, else any other way.

    >>> toy_outcomes(2, 3, 4).predictions.shape
    (2, 3, 4)
    """
    rng = np.random.default_rng(seed)
    shape = n_tasks, n_way, n_query
    truth = np.arange(n_way)[None, :, None]
    wrong = (truth + rng.integers(1, n_way, shape)) % n_way
    predictions = np.where(rng.random(shape) < accuracy, truth, wrong)
    return Outcomes(predictions, "toy", n_tasks * n_way * (n_query + 1), False)


def toy_images(count: int = 4, height: int = 48, width: int = 48) -> list[UInt8Array]:
    """Return uint8 RGB images ``(height, width, 3)``: a coloured disc on a coloured background.

    >>> [image.shape for image in toy_images(2, 32, 40)]
    [(32, 40, 3), (32, 40, 3)]
    """
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width]
    images = []
    for _ in range(count):
        ground, disc = rng.integers(0, 256, (2, 3), dtype=np.uint8)
        inside = (
            np.hypot(y - height * rng.random(), x - width * rng.random()) < min(height, width) / 3
        )
        images.append(np.where(inside[..., None], disc, ground))
    return images


def toy_records(count: int = 4) -> list[ImageRecord]:
    """Return records with a key, ``words`` and a ``caption``.

    >>> toy_records(1)[0].metadata["words"]
    'ball;green'
    """
    things = ("ball", "dog", "tree", "car")
    colours = ("green", "black", "red")
    found = []
    for i in range(count):
        thing, colour = things[i % len(things)], colours[i % len(colours)]
        metadata = {"words": f"{thing};{colour}", "caption": f"a {colour} {thing} on the grass"}
        found.append(ImageRecord(f"{thing}/{i:03}.png", metadata))
    return found


def toy_record(status: Literal["unfinished", "finished"] = "finished") -> dict[str, Any]:
    """Return the content of the ``run.json`` of a run without components."""
    return RunRecord("0" * 64, status, "2026-01-01").to_json()
