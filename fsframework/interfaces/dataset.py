"""The contract of data sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from PIL import Image

from fsframework.errors import DataError
from fsframework.interfaces.component import Configurable
from fsframework.values import ImagePool, IntArray, UInt8Array

__all__ = ["About", "Dataset", "Decoding"]

Decoding = Literal["exact", "scaled"]
"""How image files are decoded: every pixel, or no more detail than the size asked for can show."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What is published of a data set: facts for those who have it, and for those who look for it.

    Args:
        title: as its authors write it.
        licence: under which it may be used; ``unknown`` where nothing is stated.
        source: where to get it; nothing is ever fetched from there.
        citation: authors, year, title.
        counts: number of classes and of images of each split, as published; of ``all`` where only
            the whole is, and 0 images where only their classes are.
        layouts: pictures of the trees of files it may have, by a name for each.
        images_from: names of larger data sets its images or classes were taken from
            (``imagenet-1k``), so that a backbone trained on one of these has seen its classes.
        summary: what it is, in a sentence; ``notes``: sentences on what a user should know.
        splits: of every published split its ``counts``, by name, where there are several to
            choose from; the usual one first.
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


class Dataset(Configurable, ABC):
    """Labelled images with class splits; the pixels are asked for only when they are needed.

    A subclass sets the attributes below and gives ``image``. ``images`` may be overridden where
    many images at once are cheaper than one by one.
    """

    location: ClassVar[str | None] = None
    """The option that says where the images lie; ``None`` where that is ``argument``."""

    declared_by: ClassVar[str | None] = None
    """The option that takes a TOML file which describes the data, in a class that reads any data
    set described in this way: ``fsf data add FILE.toml PATH`` uses this class and keeps a copy of
    the file. ``None`` for every other class."""

    about: About | None = None
    """What is published of it; ``None`` for data that are the user's own, or made."""

    rendered: ClassVar[bool] = False
    """Whether its images are made by a program, so that no weights can have seen them."""

    layout: str = ""
    """Name of the layout in which the files were found; empty where there is only one."""

    native_size: int | None = None
    """Height and width in pixels the images are made for; ``None`` where they vary."""

    keys: tuple[str, ...]
    """One unique string an image, stable between machines."""

    labels: IntArray
    """int64 ``(n,)``, index into ``class_names``."""

    class_names: tuple[str, ...]
    """Unique, sorted unless the data set has an order of its own."""

    splits: Mapping[str, tuple[str, ...]]
    """The classes of each split (``train``, ``val``, ``test``); disjoint."""

    metadata: Mapping[str, tuple[str, ...]]
    """Columns of one string an image. ``words`` holds attribute words separated by ``;``,
    ``caption`` a sentence, where a data set has them."""

    fingerprint: str
    """Changes when an image, a label or a split may have changed; cheap to know."""

    @property
    def pixels_fingerprint(self) -> str:
        """Changes when an image, or their order, may have changed; here ``fingerprint``.

        Override it where options that leave the images alone, such as splits, change the latter:
        images are then decoded once for all of them.
        """
        return self.fingerprint

    @abstractmethod
    def image(self, index: int) -> UInt8Array:
        """Return one image, RGB uint8 ``(H, W, 3)``.

        Raises:
            DataError: it cannot be read; the message names its file (and row), ``reason`` only
                says what is wrong.
        """

    def images(
        self, indices: Sequence[int] | IntArray, size: int, interpolation: str = "bilinear"
    ) -> UInt8Array:
        """Return images resized to a square, RGB uint8 ``(n, size, size, 3)``."""
        out = np.empty((len(indices), size, size, 3), dtype=np.uint8)
        method = Image.Resampling[interpolation.upper()]
        for place, index in enumerate(indices):
            array = self.image(int(index))
            if array.shape[:2] != (size, size):
                array = np.asarray(Image.fromarray(array).resize((size, size), method))
            out[place] = array
        return out

    def scaled_images(
        self, indices: Sequence[int] | IntArray, size: int, interpolation: str = "bilinear"
    ) -> UInt8Array:
        """Return what ``images`` does, near enough, faster where a decoder can skip detail.

        Override it where there is such a decoder; here it is ``images`` itself.
        """
        return self.images(indices, size, interpolation)

    def problems(self) -> list[str]:
        """Return what is wrong with the data though they can be used, a sentence each.

        ``fsf data check`` prints these beside what it finds itself.
        """
        return []

    def split_indices(self, split: str) -> IntArray:
        """Return the indices of a split's images, ascending.

        Every data set has a split ``all``: every image, unless it declares one of its own.

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
        """Return the pool of one split, without attributes; classes without an image are left out.

        Pool index ``i`` is the data set's index ``split_indices(split)[i]``.
        """
        indices = self.split_indices(split)
        present, labels = np.unique(self.labels[indices], return_inverse=True)
        return ImagePool(
            tuple(self.keys[i] for i in indices),
            labels,
            tuple(self.class_names[c] for c in present),
            {name: tuple(column[i] for i in indices) for name, column in self.metadata.items()},
        )
