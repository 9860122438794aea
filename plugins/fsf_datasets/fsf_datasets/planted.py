"""A rendered data set with known spurious attributes of adjustable strength."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fsf_datasets._contours import draw_contours
from fsf_datasets._render import N_DRAWS, RENDERER_VERSION, Scenes, render
from fsf_datasets._vocabulary import (
    KINDS,
    caption_of,
    draw_attributes,
    draw_preferences,
    words_of,
)
from fsframework.interfaces import Dataset, OptionError
from fsframework.values import FloatArray, IntArray, UInt8Array, demand_memory, digest_of

__all__ = ["Planted"]

_SPLIT_SIZES = {"train": 64, "val": 16, "test": 20}
_N_CLASSES = sum(_SPLIT_SIZES.values())
_BYTES_PER_IMAGE = 500
"""Memory of an image's key, words and attributes, pixels not counted."""
_POSES = 4  # stream of random numbers


class Planted(Dataset):
    """Rendered shapes with planted spurious attributes; nothing is downloaded.

    A class is a closed contour, shown rotated, shifted, scaled and slightly bent. Background,
    texture, colour, companion and lighting are unrelated to it, but every class prefers one value
    of each: with probability ``strength`` an image has that value; otherwise the value is drawn
    uniformly from all of them. There are 100 classes: 64 train, 16 val and 20 test.

    An image depends only on ``seed``, the strength of its split, its class and its number within
    the class; the strength changes its attributes but never its pose.

    Args:
        size: height and width in pixels of ``image``, at least 16; ``images`` renders any size.
            The default keeps a default run within three minutes on 2 cores; papers use 84.
        n_per_class: images per class.
        strength: 0 makes attributes independent of the class, 1 gives all images of a class its
            preferred values.
        test_strength: the strength of the classes of the split test; by default that of all.
        seed: changes contours, preferences and images.

    Attributes:
        kinds: the values of each kind of attribute. Every value but ``none`` is a word of the
            images that have it.
        preferences: for each kind of attribute, the preferred value of each class.

    Raises:
        OptionError: an option is outside its range.

    >>> data = Planted(n_per_class=2)
    >>> data.keys[34], data.class_names[17], data.image(34).shape
    ('class_017/0000', 'shape_017', (42, 42, 3))
    >>> data.metadata["caption"][34]
    'A black shape beside a moon on a plain brick background at dusk.'
    >>> data.preferences["background"][17]
    'brick'
    """

    rendered = True
    kinds = KINDS

    def __init__(
        self,
        *,
        size: int = 42,
        n_per_class: int = 160,
        strength: float = 0.5,
        test_strength: float | None = None,
        seed: int = 0,
    ) -> None:
        _at_least("size", size, 16)
        _at_least("n_per_class", n_per_class, 1)
        _at_least("seed", seed, 0)
        tested = strength if test_strength is None else test_strength
        for name, value in (("strength", strength), ("test_strength", tested)):
            if not 0 <= value <= 1:
                raise OptionError(f"{name} must be between 0 and 1, not {value}")
        demand_memory(
            _N_CLASSES * n_per_class * _BYTES_PER_IMAGE,
            f"{_N_CLASSES * n_per_class:,} images",
            f"lower n_per_class={n_per_class}",
        )
        self.size = self.native_size = size
        self.n_per_class = n_per_class
        self.strength, self.test_strength = strength, test_strength
        self.seed = seed

        places = [(c, i) for c in range(_N_CLASSES) for i in range(n_per_class)]
        self.keys = tuple(f"class_{c:03}/{i:04}" for c, i in places)
        self.labels = np.repeat(np.arange(_N_CLASSES), n_per_class)
        self.class_names = tuple(f"shape_{c:03}" for c in range(_N_CLASSES))
        ends = np.cumsum(list(_SPLIT_SIZES.values())).tolist()
        self.splits = {
            split: self.class_names[end - count : end]
            for (split, count), end in zip(_SPLIT_SIZES.items(), ends, strict=True)
        }
        preferred = draw_preferences(seed, _N_CLASSES)
        of_class = [tested if n in self.splits["test"] else strength for n in self.class_names]
        self._values = draw_attributes(seed, of_class, preferred, n_per_class)
        self.preferences = _named_columns(preferred)
        self.metadata = _with_words(_named_columns(self._values))
        apart = () if test_strength in (None, strength) else (f"test {test_strength!r}",)
        self.fingerprint = digest_of(
            "planted", f"{RENDERER_VERSION} {size} {n_per_class} {strength!r} {seed}", *apart
        )

    def image(self, index: int) -> UInt8Array:
        """Return one image, RGB uint8 ``(size, size, 3)``.

        Raises:
            IndexError: the index is out of range.
        """
        image: UInt8Array = self.images([index], self.size)[0]
        return image

    def images(
        self, indices: Sequence[int] | IntArray, size: int, interpolation: str = "bilinear"
    ) -> UInt8Array:
        """Return images rendered at ``size``, RGB uint8 ``(n, size, size, 3)``.

        ``interpolation`` has no effect: nothing is resized.
        """
        chosen = np.asarray(indices, dtype=np.int64)
        return self._rendered(chosen, self._values[chosen], size)

    def changed_images(
        self, indices: Sequence[int] | IntArray, kind: str, value: str, size: int
    ) -> UInt8Array:
        """Return images as they would be with another value of one kind of attribute.

        Shape, pose and all other attributes stay. The images that have the value already are
        returned as they are.

        Args:
            indices: of the images.
            kind: a key of ``kinds``, such as ``background``.
            value: one of its values, such as ``snow``.
            size: height and width in pixels.

        Returns:
            RGB uint8 ``(n, size, size, 3)``.

        Raises:
            OptionError: the kind is unknown, or does not have this value.

        >>> data = Planted(n_per_class=2)
        >>> own = data.metadata["background"][34]
        >>> bool((data.changed_images([34], "background", own, 42)[0] == data.image(34)).all())
        True
        """
        for name, given, known in (("kind", kind, KINDS), ("value", value, KINDS.get(kind, ()))):
            if given not in known:
                raise OptionError(f"{name} must be one of {', '.join(known)}, not {given!r}")
        chosen = np.asarray(indices, dtype=np.int64)
        values = self._values[chosen]  # a copy
        values[:, list(KINDS).index(kind)] = KINDS[kind].index(value)
        return self._rendered(chosen, values, size)

    def _rendered(self, chosen: IntArray, values: IntArray, size: int) -> UInt8Array:
        scenes = Scenes(values, self._contours[self.labels[chosen]], self._uniform[chosen])
        return render(scenes, size)

    @cached_property
    def _contours(self) -> FloatArray:
        return draw_contours(self.seed, _N_CLASSES)

    @cached_property
    def _uniform(self) -> FloatArray:
        shape = (self.n_per_class, N_DRAWS)
        rngs = (np.random.default_rng([self.seed, _POSES, c]) for c in range(_N_CLASSES))
        return np.concatenate([rng.random(shape) for rng in rngs])


def _at_least(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise OptionError(f"{name} must be an integer of at least {least}, not {value!r}")


def _named_columns(values: IntArray) -> dict[str, tuple[str, ...]]:
    """Return each kind's column of words from indices ``(n, kinds)``."""
    return {
        kind: tuple(np.array(words, dtype=object)[column].tolist())
        for (kind, words), column in zip(KINDS.items(), values.T, strict=True)
    }


def _with_words(columns: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    rows = list(zip(*columns.values(), strict=True))
    return {
        "words": tuple(map(words_of, rows)),
        "caption": tuple(map(caption_of, rows)),
        **columns,
    }
