"""The contract of data sets."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from PIL import Image

from fsframework._calls import about, checked, malformed
from fsframework.errors import DataError
from fsframework.interfaces.component import Configurable
from fsframework.values import ImagePool, IntArray, Texts, UInt8Array

__all__ = ["About", "Dataset", "Decoding"]

Decoding = Literal["exact", "scaled"]
"""How image files are decoded: every pixel, or only the detail that the requested size can show."""


@dataclass(frozen=True, kw_only=True)
class About:
    """Published facts about a data set, for those who have it and those who look for it.

    Args:
        title: the title, as its authors write it.
        licence: the licence for its use; ``unknown`` where none is stated.
        source: where to get it; nothing is ever downloaded from there.
        citation: authors, year, title.
        counts: published numbers of classes and images of each split; of ``all`` where only the
            total is published, and 0 images where only the number of classes is.
        layouts: pictures of the trees of files that it may have, by name.
        images_from: names of larger data sets from which its images or classes were taken
            (``imagenet-1k``); a backbone trained on one of these has seen its classes.
        summary: one sentence that describes it; ``notes``: sentences that a user should know.
        splits: ``counts`` of every published way to split the data, by name, where there are
            several; the usual one first.
    """

    title: str
    licence: str
    source: str
    citation: str
    counts: Mapping[str, tuple[int, int]]
    layouts: Mapping[str, str] = field(default_factory=dict)
    images_from: tuple[str, ...] = ()
    summary: str = ""
    notes: tuple[str, ...] = ()
    splits: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)


class Dataset(Configurable, ABC, kind="dataset"):
    """Labelled images with class splits; pixels are read only when needed.

    A subclass sets the attributes below and implements ``image``. It may override ``images`` where
    reading many images together is cheaper than one by one.
    """

    location: ClassVar[str | None] = None
    """The option that locates the images; ``None`` where ``argument`` does."""

    declared_by: ClassVar[str | None] = None
    """The option that takes a TOML description of the data, in a class that reads any data set so
    described: ``fsf data add FILE.toml PATH`` uses this class and stores a copy of the file.
    ``None`` for every other class."""

    about: About | None = None
    """Published facts; ``None`` for the user's own or generated data."""

    rendered: ClassVar[bool] = False
    """Whether a program generates its images, so that no weights can have seen them."""

    layout: str = ""
    """Name of the layout in which the files were found; empty where there is only one."""

    native_size: int | None = None
    """Height and width of the images in pixels, as intended; ``None`` where they vary."""

    keys: Sequence[str]
    """One unique string per image, the same on all machines; ``Texts`` where there are many."""

    labels: IntArray
    """int64 ``(n,)``, index into ``class_names``."""

    class_names: tuple[str, ...]
    """Unique names, sorted unless the data set defines an order."""

    splits: Mapping[str, tuple[str, ...]]
    """The classes of each split (``train``, ``val``, ``test``); disjoint."""

    unlabelled: frozenset[str] = frozenset()
    """The splits whose images have no labels: all images of such a split have one class, which only
    stands for their lack. Methods that learn without labels can be trained on it."""

    metadata: Mapping[str, Sequence[str]]
    """Columns of one string per image. Where a data set has them, ``words`` holds attribute words
    separated by ``;`` and ``caption`` a sentence."""

    fingerprint: str
    """Changes when an image, a label or a split may have changed; cheap to compute."""

    def __repr__(self) -> str:
        sizes = f"{len(self.keys):,} images of {len(self.class_names):,} classes"
        return f"<{type(self).__name__}: {sizes}>"

    @property
    def pixels_fingerprint(self) -> str:
        """Changes when an image or the order may have changed; by default ``fingerprint``.

        Override it where options that do not affect the images, such as splits, change
        ``fingerprint``: images are then decoded once for all values of these options.
        """
        return self.fingerprint

    @abstractmethod
    def image(self, index: int) -> UInt8Array:
        """Return one image, RGB uint8 ``(H, W, 3)``.

        Raises:
            DataError: it cannot be read; the message names its file (and row), ``reason`` states
                only what is wrong.
        """

    def images(
        self, indices: Sequence[int] | IntArray, size: int, interpolation: str = "bilinear"
    ) -> UInt8Array:
        """Return images resized to a square, RGB uint8 ``(n, size, size, 3)``."""
        out = np.empty((len(indices), size, size, 3), dtype=np.uint8)
        method = Image.Resampling[interpolation.upper()]
        for place, index in enumerate(indices):
            with about(repr(self.keys[int(index)])):
                array = checked(self, "image", self.image(int(index)), np.ndarray)
                if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
                    form = f"{array.dtype} {array.shape}"
                    raise malformed(self, "image", form, "uint8 (H, W, 3)")
            if array.shape[:2] != (size, size):
                array = np.asarray(Image.fromarray(array).resize((size, size), method))
            out[place] = array
        return out

    def scaled_images(
        self, indices: Sequence[int] | IntArray, size: int, interpolation: str = "bilinear"
    ) -> UInt8Array:
        """Return nearly what ``images`` returns, faster where a decoder can skip detail.

        Override it where such a decoder is available; by default it calls ``images``.
        """
        return self.images(indices, size, interpolation)

    def local_states(self, indices: Sequence[int] | IntArray) -> list[str]:
        """Return for each image a cheap text that changes when its file may have been edited.

        It is compared on this machine only and enters no fingerprint, so it may contain what
        another machine does not share, such as inode and change time. By default it is empty:
        only ``pixels_fingerprint`` tells of edited images.
        """
        return [""] * len(indices)

    def problems(self) -> list[str]:
        """Return what is wrong with the data although they can be used, one sentence each.

        ``fsf data check`` prints these next to its own findings.
        """
        return []

    def split_indices(self, split: str) -> IntArray:
        """Return the indices of a split's images, ascending.

        Every data set has a split ``all`` of every image, unless it declares another.

        Raises:
            DataError: the data set has no split of this name, or no image is in it.
        """
        if split == "all" and split not in self.splits:
            return np.arange(len(self.keys))
        if split not in self.splits:
            known = ", ".join(dict.fromkeys((*self.splits, "all")))
            raise DataError(f"the data set has no split {split!r}; its splits are {known}")
        chosen = set(self.splits[split])
        wanted = np.array([name in chosen for name in self.class_names], dtype=bool)
        indices = np.flatnonzero(wanted[self.labels])
        if indices.size == 0:
            raise DataError(f"the split {split!r} has no image")
        return indices

    def pool(self, split: str) -> ImagePool:
        """Return the pool of one split, without attributes and without empty classes.

        Pool index ``i`` is the data set's index ``split_indices(split)[i]``. It is made once, since
        that of a large data set takes time.
        """
        if split in self._pools:
            return self._pools[split]
        indices = self.split_indices(split)
        present, labels = np.unique(self.labels[indices], return_inverse=True)
        texts = {"": self.keys, **self.metadata}
        if indices.size < len(self.keys):
            texts = {name: Texts.of(own).take(indices) for name, own in texts.items()}
        self._pools[split] = ImagePool(
            texts.pop(""),
            labels,
            tuple(self.class_names[c] for c in present),
            texts,
            labelled=split not in self.unlabelled,
        )
        return self._pools[split]

    @functools.cached_property
    def _pools(self) -> dict[str, ImagePool]:
        """Those made; a cached property, since they are not part of the data set's state."""
        return {}
