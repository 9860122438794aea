"""Pixels: decoded and resized once into one array on disk per size, then read from there.

Does not import torch, so that packing a large data set needs little memory.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import xxhash

from fsframework.engine.cache.rows import Records, Rows, records_of
from fsframework.engine.progress import Reporter
from fsframework.engine.session import Workspace
from fsframework.errors import DataError, argument
from fsframework.interfaces.dataset import Dataset, Decoding
from fsframework.values import (
    BoolArray,
    ImagePool,
    IntArray,
    Texts,
    UInt8Array,
    demand_disk,
    demand_memory,
    digest_of,
)

if TYPE_CHECKING:
    from fsframework.components.resolution import Component

__all__ = ["Broken", "ImageStore", "PixelSource", "Pixels", "Source", "without_broken"]

Broken = Literal["fatal", "skip"]
"""How an image that cannot be decoded is treated: as an error, or left out."""

_IMAGES_A_BLOCK, _BYTES_A_BLOCK = 256, 32 << 20
"""Limits of a decoded block: the smaller applies."""
_IMAGES_AT_ONCE, _FLOAT_BYTES = 16, 4
"""Images that a backbone embeds together, at least, and bytes of a value of theirs."""
_BROKEN = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
"""Both halves of the digest of an image that cannot be decoded."""
_UNSEEN = _BROKEN
"""Stands for the state of a file that this process has not looked at."""


@dataclass(frozen=True)
class Pixels:
    """Some images of a store, in any order; reading returns fresh arrays.

    Args:
        rows: int64 ``(n,)``, the row of the store that each image is in.
        digest: digest of the images' pixels.
        reporter: is told of damaged rows.
    """

    store: ImageStore
    rows: IntArray
    digest: str
    reporter: Reporter = field(default_factory=Reporter)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: slice | IntArray) -> UInt8Array:
        return self.store.read(self.rows[index], self.reporter)


PixelSource = UInt8Array | Pixels
"""Images uint8 ``(n, H, W, 3)``, read by index: an array, or on disk."""


@dataclass(frozen=True)
class ImageStore:
    """The decoded images of a data set at one size: one row per image, filled when first needed.

    Args:
        component: made ``dataset``; its code counts, and its options too unless the data set
            overrides ``pixels_fingerprint``.
        size: height and width in pixels.
        decoding: ``exact``, or ``scaled`` to let a decoder skip detail that the size cannot show.
    """

    dataset: Dataset
    component: Component
    size: int
    interpolation: str
    decoding: Decoding
    workspace: Workspace

    @cached_property
    def key(self) -> str:
        """Digest of what the images depend on."""
        described = f"{self.size} {self.interpolation} {self.decoding}"
        component, dataset = self.component, self.dataset
        if type(dataset).pixels_fingerprint is not Dataset.pixels_fingerprint:
            component = dataclasses.replace(component, options={})
        return digest_of("images", component.fingerprint, dataset.pixels_fingerprint, described)

    @cached_property
    def rows(self) -> Rows:
        """The images on disk; their rows are those of the data set."""
        folder = self.workspace.cache / "images" / self.key[:24]
        return Rows(folder, (len(self), self.size, self.size, 3), np.uint8, "images")

    def __len__(self) -> int:
        return len(self.dataset.keys)

    @property
    def row_bytes(self) -> int:
        """Bytes per image."""
        return self.size * self.size * 3

    def broken(self, rows: IntArray | None = None) -> dict[int, str]:
        """Return which of some rows cannot be decoded, and the reasons; by default of all rows."""
        rows = np.arange(len(self)) if rows is None else np.unique(rows)
        known = self.rows.records(Reporter())[rows]
        return {int(row): self._reason(int(row)) for row in rows[_are_broken(known)]}

    def _reason(self, row: int) -> str:
        try:
            self._images(np.array([row]))
        except DataError as error:
            return str(error)
        return f"{self.dataset.keys[row]}: could not be read when it was first decoded"

    def fill(
        self, rows: IntArray, broken: Broken, label: str, reporter: Reporter, *, alone: bool = True
    ) -> None:
        """Decode the missing rows in blocks.

        Args:
            alone: whether other processes wait meanwhile; if not, they decode other rows.

        Raises:
            DataError: an image cannot be read and ``broken`` is not ``skip``; the message names it.
            FsfError: the disk is full or cannot be written to.
        """
        rows = np.unique(rows)
        missing = functools.partial(self.missing, rows, broken, reporter)
        self.demand_disk(missing(), reporter)
        make = functools.partial(self._made, broken, reporter)
        stage = (label, len(rows))
        self.rows.fill(missing, make, self.images_a_block, stage, reporter, alone=alone)

    def demand_room(self, splits: Iterable[str], reporter: Reporter) -> None:
        """Check that memory can hold some images, and the disk those of splits not yet decoded.

        Raises:
            DataError: the data set lacks a split.
            FsfError: there is too little room.
        """
        demand_memory(
            _IMAGES_AT_ONCE * _FLOAT_BYTES * self.row_bytes,
            f"{_IMAGES_AT_ONCE} images of {self.size:,} x {self.size:,} pixels",
            f"use a smaller {argument('image_size')}",
        )
        self.demand_disk(self.rows_of(splits), reporter)

    def demand_disk(self, rows: IntArray, reporter: Reporter) -> None:
        """Check that those of some rows that are not on disk have space there.

        Raises:
            FsfError: there is too little.
        """
        new = len(self.rows.missing(rows, reporter))
        demand_disk(
            new * self.row_bytes,
            self.rows.folder,
            f"{new:,} images of {self.size} x {self.size} pixels",
            f"use a smaller {argument('image_size')}, or another {argument('cache_dir')}",
        )

    def rows_of(self, splits: Iterable[str]) -> IntArray:
        """Return the rows of the images of some splits, ascending."""
        return np.unique(np.concatenate([self.dataset.split_indices(split) for split in splits]))

    def missing(self, rows: IntArray, broken: Broken, reporter: Reporter) -> IntArray:
        """Return the rows still to be decoded; broken ones may have been repaired since.

        An image is also decoded again if its file may have been edited.
        """
        records = self.rows.records(reporter)[rows]
        missing: BoolArray = records["check"] == 0
        missing |= (records["state"] != 0) & (records["state"] != self._states(rows))
        if broken == "fatal":
            missing |= _are_broken(records)
        return rows[missing]

    def read(self, rows: IntArray, reporter: Reporter) -> UInt8Array:
        """Return filled rows, uint8 ``(k, size, size, 3)``, in any order.

        Each is checked before its first use, and decoded again if it is damaged.

        Raises:
            DataError: the file of a damaged row has changed since it was decoded.
        """
        if self.rows.damaged(rows, reporter).size:
            known, stage = self.digest(rows, reporter), ("images", len(np.unique(rows)))
            damaged = functools.partial(self.rows.damaged, rows, Reporter())
            make = functools.partial(self._made, "fatal", reporter)
            self.rows.fill(damaged, make, self.images_a_block, stage, reporter)
            if known != self.digest(rows, reporter):
                raise DataError(
                    f"{self.rows.folder}: images have changed since they were decoded; run the "
                    "same command again"
                )
        return self.rows.read(rows)

    def digest(self, rows: IntArray, reporter: Reporter) -> str:
        """Return a digest of the pixels of some rows, the same on every machine."""
        return digest_of("pixels", self.digests(rows, reporter))

    def digests(self, rows: IntArray, reporter: Reporter) -> npt.NDArray[np.uint64]:
        """Return the digest of the pixels of each row, ``(n, 2)``: equal ones, equal images."""
        found: npt.NDArray[np.uint64] = self.rows.records(reporter)["digest"][rows]
        return found

    def _made(
        self, broken: Broken, reporter: Reporter, rows: IntArray
    ) -> tuple[UInt8Array, Records]:
        before = self.rows.records(reporter)[rows]
        pixels, undecodable = self._decoded(rows, broken)
        records = records_of(pixels)
        records["digest"][undecodable] = _BROKEN
        records["state"] = self._states(rows)
        known = (before["check"] != 0) & ~_are_broken(before)
        if (known & (before["digest"] != records["digest"]).any(axis=1)).any():
            reporter.note(
                "cached images have changed since they were decoded, although size and time of "
                "their files are the same; what was computed from the old pixels is computed again"
            )
        return pixels, records

    @property
    def images_a_block(self) -> int:
        """Images that are decoded together."""
        return max(1, min(_IMAGES_A_BLOCK, _BYTES_A_BLOCK // self.row_bytes))

    def _states(self, rows: IntArray) -> npt.NDArray[np.uint64]:
        """Return a hash of the state of each image's file, as this process first saw it."""
        known = self._known
        new = rows[known[rows] == _UNSEEN]
        known[new] = [
            xxhash.xxh3_64_intdigest(state.encode()) if state else 0
            for state in self.dataset.local_states(new)
        ]
        return known[rows]

    @cached_property
    def _known(self) -> npt.NDArray[np.uint64]:
        return np.full(len(self), _UNSEEN)

    def _decoded(self, block: IntArray, broken: Broken) -> tuple[UInt8Array, list[int]]:
        """Return the pixels of some images, and the places of those that cannot be decoded."""
        try:
            return self._images(block), []
        except DataError as error:
            if broken == "fatal":
                raise DataError(
                    f"{error}; {argument('broken', 'skip')} leaves out images that cannot be read"
                ) from error
        pixels = np.zeros((len(block), self.size, self.size, 3), np.uint8)
        undecodable = []
        for place in range(len(block)):
            try:
                pixels[place] = self._images(block[place : place + 1])[0]
            except DataError:
                undecodable.append(place)
        return pixels, undecodable

    def _images(self, block: IntArray) -> UInt8Array:
        made = self.dataset.images if self.decoding == "exact" else self.dataset.scaled_images
        try:
            found = np.ascontiguousarray(made(block, self.size, self.interpolation))
        except OSError as error:
            # The error concerns a file being read, not the one being written.
            raise DataError(str(error)) from error
        wanted = (len(block), self.size, self.size, 3)
        if found.dtype != np.uint8 or found.shape != wanted:
            raise DataError(
                f"{type(self.dataset).__name__}: images must be uint8 of shape {wanted}, not "
                f"{found.dtype} of {found.shape}"
            )
        return found


def _are_broken(records: Records) -> BoolArray:
    """Return which records mark images that cannot be decoded."""
    broken: BoolArray = (records["digest"] == _BROKEN).all(axis=1)
    return broken


class Readable(Dataset):
    """A data set without the images that cannot be decoded.

    Args:
        original: the whole data set.
        rows: int64 ``(n,)``, the indices of ``original`` that are kept, ascending.
    """

    def __init__(self, original: Dataset, rows: IntArray) -> None:
        self.original, self.rows = original, rows
        self.unlabelled = original.unlabelled
        self.keys = Texts.of(original.keys).take(rows)
        self.labels = original.labels[rows]
        self.class_names, self.splits = original.class_names, original.splits
        columns = original.metadata.items()
        self.metadata = {name: Texts.of(column).take(rows) for name, column in columns}
        self.fingerprint = digest_of("readable", original.fingerprint, rows)

    def image(self, index: int) -> UInt8Array:
        """Return one image, RGB uint8 ``(H, W, 3)``."""
        return self.original.image(int(self.rows[index]))


@dataclass(frozen=True)
class Source:
    """An opened data set with its decoded images.

    Args:
        store: of the decoded images of the whole data set.
        dataset: without the images that cannot be read, if those are skipped.
        broken: rows of images that are skipped, with the reasons.
    """

    store: ImageStore
    dataset: Dataset
    broken: Mapping[int, str] = field(default_factory=dict)

    def pixels(self, split: str, reporter: Reporter) -> Pixels:
        """Return the images of a split in the order of its pool, decoding missing ones.

        Raises:
            DataError: an image cannot be read; the message names it.
        """
        rows = self._rows_of(split)
        self.store.fill(rows, "fatal", f"{split} images", reporter)
        return Pixels(self.store, rows, self.store.digest(rows, reporter), reporter)

    def known_digest(self, split: str, reporter: Reporter) -> str | None:
        """Return the digest of the images of a split if all have been decoded, else ``None``.

        Those whose files may have been edited since are decoded again.
        """
        if self.store.rows.missing(self._rows_of(split), reporter).size:
            return None
        return self.pixels(split, reporter).digest

    def repeated(self, split: str, pool: ImagePool) -> Iterator[str]:
        """Yield a warning if classes of a decoded split consist of one repeated image.

        Args:
            pool: of the split.
        """
        digests = self.store.digests(self._rows_of(split), Reporter())
        names = [
            repr(name)
            for label, name in enumerate(pool.class_names)
            if len(own := digests[pool.members(label)]) > 1 and (own == own[0]).all()
        ]
        if names:
            some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            counted = f"{len(names):,} {'class consists' if len(names) == 1 else 'classes consist'}"
            yield f"{counted} of one repeated image: {some}"

    def _rows_of(self, split: str) -> IntArray:
        """Return the rows of the store that hold the images of a split."""
        rows = self.dataset.split_indices(split)
        return self.dataset.rows[rows] if isinstance(self.dataset, Readable) else rows


def without_broken(store: ImageStore, splits: Iterable[str], reporter: Reporter) -> Source:
    """Decode some splits; return the data set without undecodable images."""
    rows = store.rows_of(splits)
    store.fill(rows, "skip", "images", reporter)
    if not (broken := store.broken(rows)):
        return Source(store, store.dataset)
    kept = np.setdiff1d(np.arange(len(store)), np.fromiter(broken, np.int64, len(broken)))
    return Source(store, Readable(store.dataset, kept), broken)
