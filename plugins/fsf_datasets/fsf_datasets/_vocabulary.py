"""The planted attributes: their words, the preferences of the classes, and captions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from fsframework.values import IntArray

__all__ = ["KINDS", "NOTHING", "caption_of", "draw_attributes", "draw_preferences", "words_of"]

NOTHING = "none"
"""The value for no companion; it is not a word."""

KINDS = MappingProxyType(
    {
        "background": ("brick", "lavender", "meadow", "ocean", "sand", "sky", "slate", "snow"),
        "texture": ("checkered", "dotted", "gridded", "plain", "striped", "wavy"),
        "colour": ("black", "blue", "green", "orange", "pink", "purple", "red", "yellow"),
        "companion": ("ball", "cross", "heart", "moon", NOTHING, "ring", "star"),
        "lighting": ("dawn", "dusk", "midnight", "noon"),
    }
)
"""The values of each kind of attribute; no word is in two kinds."""

_PREFERENCES, _VALUES = 1, 2  # independent streams of random numbers


def draw_preferences(seed: int, n_classes: int) -> IntArray:
    """Return the preferred value of each class, int ``(n_classes, kinds)``.

    Values are dealt like cards, one shuffled deck after the other, so that all are about equally
    frequent and every split contains them all.
    """
    columns = []
    for kind, values in enumerate(KINDS.values()):
        rng = np.random.default_rng([seed, _PREFERENCES, kind])
        decks = [rng.permutation(len(values)) for _ in range(-(-n_classes // len(values)))]
        columns.append(np.concatenate(decks)[:n_classes])
    return np.stack(columns, axis=1)


def draw_attributes(
    seed: int, strengths: Sequence[float], preferences: IntArray, n_per_class: int
) -> IntArray:
    """Return the value of each kind in each image, int ``(n_classes * n_per_class, kinds)``.

    With the probability in ``strengths`` it is the preferred value of the class; otherwise it is
    drawn uniformly from all values. The first images of a class do not depend on ``n_per_class``.
    """
    sizes = np.array([len(values) for values in KINDS.values()])
    blocks = []
    for label, (strength, preferred) in enumerate(zip(strengths, preferences, strict=True)):
        rng = np.random.default_rng([seed, _VALUES, label])
        uniform = rng.random((n_per_class, 2, sizes.size))
        anything = (uniform[:, 1] * sizes).astype(np.int64)
        blocks.append(np.where(uniform[:, 0] < strength, preferred, anything))
    return np.concatenate(blocks)


@functools.cache  # there are few combinations, and a data set is opened often
def words_of(values: tuple[str, ...]) -> str:
    """Return the words of one image, sorted and joined by ``;``.

    >>> words_of(("sky", "plain", "red", "none", "noon"))
    'noon;plain;red;sky'
    """
    return ";".join(sorted(word for word in values if word != NOTHING))


@functools.cache
def caption_of(values: tuple[str, ...]) -> str:
    """Return a sentence with the words of one image.

    >>> caption_of(("sky", "dotted", "orange", "ball", "noon"))
    'An orange shape beside a ball on a dotted sky background at noon.'
    """
    background, texture, colour, companion, lighting = values
    article = "An" if colour[0] in "aeiou" else "A"
    beside = "" if companion == NOTHING else f" beside a {companion}"
    return f"{article} {colour} shape{beside} on a {texture} {background} background at {lighting}."
