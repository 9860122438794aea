"""Pixels: decoded and resized once into one array on disk per size, then read from there.

Does not import torch, so that packing a large data set needs little memory.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

import numpy as np

from fsframework._files import atomic_write, explain_os_error, parse_json
from fsframework.errors import DataError, FsfError, argument
from fsframework.interfaces.dataset import Dataset, Decoding
from fsframework.pipeline.cache.workspace import Workspace, locked, sweep
from fsframework.pipeline.progress import Reporter
from fsframework.values import BoolArray, IntArray, UInt8Array, digest_of

if TYPE_CHECKING:
    from fsframework.components.resolution import Component
    from fsframework.interfaces.backbone import Preprocessing

__all__ = [
    "Broken",
    "ImageStore",
    "PixelSource",
    "Pixels",
    "Readable",
    "decoding_difference",
    "image_size",
    "pack_images",
    "pixels_of",
    "store_of",
    "without_broken",
]

Broken = Literal["fatal", "skip"]
"""How an image that cannot be decoded is treated: as an error, or left out."""

_IMAGES_A_BLOCK, _BYTES_A_BLOCK = 256, 32 << 20
"""Limits of a decoded block: the smaller applies."""
_DIGEST_BYTES = 16
_BROKEN = b"\xff" * _DIGEST_BYTES


def image_size(dataset: Dataset, preprocessing: Preprocessing, wanted: int | None) -> int:
    """Return the image size to use: as requested, else the data's native size or the backbone's.

    The size of a backbone with a binding size takes precedence over the data's.
    """
    own = None if preprocessing.binding else dataset.native_size
    return wanted or own or preprocessing.size


class PixelSource(Protocol):
    """Images uint8 ``(n, H, W, 3)``, read by index: an array, or ``Pixels`` on disk."""

    @property
    def shape(self) -> tuple[int, ...]:
        """``(n, H, W, 3)``."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: slice, /) -> UInt8Array: ...

    @overload
    def __getitem__(self, index: IntArray, /) -> UInt8Array: ...


@dataclass(frozen=True)
class Pixels:
    """Some images of a store, in any order; reading returns fresh arrays.

    Args:
        rows: int64 ``(n,)``, the row of the store that each image is in.
        digest: digest of the images' pixels.
    """

    store: ImageStore
    rows: IntArray
    digest: str

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """``(n, size, size, 3)``."""
        return (len(self.rows), self.store.size, self.store.size, 3)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: slice | IntArray) -> UInt8Array:
        return self.store.read(self.rows[index])


@dataclass(frozen=True)
class ImageStore:
    """The decoded images of a data set at one size: one row per image, filled when first needed.

    ``array.npy`` is an ordinary NumPy file of uint8 ``(n, size, size, 3)``, which any program can
    map; its rows are those of the data set. ``rows.bin`` has 16 bytes per image: zeros if the row
    is not filled, else a hash of its pixels, written after them, so that a killed job resumes where
    it stopped.

    Args:
        identity: identity of what made ``dataset``; see ``store_of``.
        size: height and width in pixels.
        decoding: ``exact``, or ``scaled`` to let a decoder skip detail that the size cannot show.
    """

    dataset: Dataset
    identity: str
    size: int
    interpolation: str
    decoding: Decoding
    workspace: Workspace

    @cached_property
    def folder(self) -> Path:
        """The folder of the store in the cache."""
        described = f"{self.size} {self.interpolation} {self.decoding}"
        key = digest_of("images", self.identity, self.dataset.pixels_fingerprint, described)
        return self.workspace.cache / "images" / key[:24]

    @property
    def path(self) -> Path:
        """The NumPy file."""
        return self.folder / "array.npy"

    def __len__(self) -> int:
        return len(self.dataset.keys)

    @property
    def row_bytes(self) -> int:
        """Bytes per image."""
        return self.size * self.size * 3

    def broken(self) -> dict[int, str]:
        """Return the rows known to be undecodable, and the reasons."""
        try:
            raw = parse_json((self.folder / "broken.json").read_text())
        except (FileNotFoundError, ValueError):
            raw = {}
        rows = np.flatnonzero(_are_broken(self._hashes())).tolist()
        return {row: str(raw.get(str(row), f"{self.dataset.keys[row]}: broken")) for row in rows}

    def fill(self, rows: IntArray, broken: Broken, label: str, reporter: Reporter) -> None:
        """Decode the missing rows in blocks, while other processes wait.

        Raises:
            DataError: an image cannot be read and ``broken`` is not ``skip``; the message names it.
            FsfError: the disk is full or cannot be written to.
        """
        rows = np.unique(rows)
        if self.path.exists() and not self.missing(rows, broken).size:
            return
        try:
            with locked(self.folder):
                sweep(self.folder)
                self._create()
                self._fill_locked(rows, broken, label, reporter)
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    def missing(self, rows: IntArray, broken: Broken) -> IntArray:
        """Return the rows still to be decoded; broken ones may have been repaired since."""
        hashes = self._hashes()[rows]
        missing = ~hashes.any(axis=1)
        if broken == "fatal":
            missing |= _are_broken(hashes)
        return rows[missing]

    def read(self, rows: IntArray) -> UInt8Array:
        """Return filled rows, uint8 ``(k, size, size, 3)``, in any order.

        They are read, not mapped: the pages of a map count as this process's memory, and on a file
        system with large pages one image loads a hundred.
        """
        found = np.empty((len(rows), self.size, self.size, 3), np.uint8)
        with self.path.open("rb") as file:
            start = _header_end(file)
            for part in _runs(rows):
                at = start + int(rows[part.start]) * self.row_bytes
                _read_into(file.fileno(), found[part].reshape(-1).data, at)
        return found

    def digest(self, rows: IntArray) -> str:
        """Return a digest of the pixels of some rows."""
        return digest_of("pixels", self._hashes()[rows])

    def digest_of_all(self) -> str:
        """Return a digest of the pixels of all images, the same on every machine."""
        return self.digest(np.arange(len(self)))

    def _hashes(self) -> UInt8Array:
        try:
            raw = np.fromfile(self.folder / "rows.bin", np.uint8)
        except FileNotFoundError:
            raw = np.zeros(len(self) * _DIGEST_BYTES, np.uint8)
        return raw.reshape(len(self), _DIGEST_BYTES)

    def _create(self) -> None:
        """Create the files at full length, which takes no space until rows are written."""
        if self.path.exists():
            return
        temporary = self.folder / ".array.tmp"
        with temporary.open("wb") as file:
            shape = (len(self), self.size, self.size, 3)
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(file.tell() + math.prod(shape))
        with (self.folder / "rows.bin").open("wb") as file:
            file.truncate(len(self) * _DIGEST_BYTES)
        temporary.replace(self.path)

    def _fill_locked(self, rows: IntArray, broken: Broken, label: str, reporter: Reporter) -> None:
        missing = self.missing(rows, broken)
        self._demand_room(len(missing))
        with (
            reporter.stage(label, len(rows), len(rows) - len(missing)) as advance,
            self.path.open("r+b") as array,
            (self.folder / "rows.bin").open("r+b") as states,
        ):
            start = _header_end(array)
            at_once = max(1, min(_IMAGES_A_BLOCK, _BYTES_A_BLOCK // self.row_bytes))
            for first in range(0, len(missing), at_once):
                block = missing[first : first + at_once]
                pixels, reasons = self._decoded(block, broken)
                hashes = [
                    hashlib.blake2b(image, digest_size=_DIGEST_BYTES).digest() for image in pixels
                ]
                for place in reasons:
                    hashes[place] = _BROKEN
                if reasons:
                    named = {int(block[place]): why for place, why in reasons.items()}
                    self._note(self.broken() | named)
                parts = _runs(block)
                for part in parts:
                    at = start + int(block[part.start]) * self.row_bytes
                    _write(array.fileno(), pixels[part], at)
                # A row counts as filled only once its pixels are on the disk.
                os.fsync(array.fileno())
                for part in parts:
                    at = int(block[part.start]) * _DIGEST_BYTES
                    _write(states.fileno(), b"".join(hashes[part]), at)
                advance(len(block))

    def _demand_room(self, images: int) -> None:
        """Raise an error if the disk cannot hold the images."""
        needed, free = images * self.row_bytes, shutil.disk_usage(self.folder).free
        if needed > free:
            raise FsfError(
                f"{images:,} images of {self.size} x {self.size} pixels take "
                f"{needed / 1e9:,.1f} GB, but {self.folder} has {free / 1e9:,.1f} GB left; use a "
                f"smaller {argument('image_size')}, or another {argument('cache_dir')}"
            )

    def _note(self, broken: Mapping[int, str]) -> None:
        atomic_write(
            self.folder / "broken.json", json.dumps({str(k): v for k, v in broken.items()})
        )

    def _decoded(self, block: IntArray, broken: Broken) -> tuple[UInt8Array, dict[int, str]]:
        """Return the pixels of some images, and by place the reason why one cannot be decoded."""
        try:
            return self._images(block), {}
        except DataError as error:
            if broken == "fatal":
                raise DataError(
                    f"{error}; {argument('broken', 'skip')} leaves out images that cannot be read"
                ) from error
        pixels = np.zeros((len(block), self.size, self.size, 3), np.uint8)
        reasons = {}
        for place in range(len(block)):
            try:
                pixels[place] = self._images(block[place : place + 1])[0]
            except DataError as error:
                reasons[place] = str(error)
        return pixels, reasons

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


def _are_broken(hashes: UInt8Array) -> BoolArray:
    """Return which rows of hashes mark images that cannot be decoded."""
    broken: BoolArray = (hashes == 255).all(axis=1)
    return broken


def _header_end(file: Any) -> int:
    file.seek(0)
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_1_0(file)
    return int(file.tell())


def _runs(rows: IntArray) -> list[slice]:
    """Return the slices of consecutive rows.

    >>> _runs(np.array([3, 4, 5, 9, 2]))
    [slice(0, 3, None), slice(3, 4, None), slice(4, 5, None)]
    """
    if not len(rows):
        return []
    edges = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def _read_into(descriptor: int, buffer: memoryview, offset: int) -> None:
    while buffer:
        count = os.preadv(descriptor, [buffer], offset)
        if not count:
            raise DataError(f"the store of images ends at byte {offset}; pack the data set again")
        buffer, offset = buffer[count:], offset + count


def _write(descriptor: int, data: UInt8Array | bytes, offset: int) -> None:
    # Plain writes, since a full disk kills a process that writes to a memory map.
    left = memoryview(data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes())
    while left:
        written = os.pwrite(descriptor, left, offset)
        left, offset = left[written:], offset + written


@dataclass(frozen=True, eq=False)
class Readable(Dataset):
    """A data set without the images that cannot be decoded.

    Args:
        original: the whole data set.
        rows: int64 ``(n,)``, the indices of ``original`` that are kept, ascending.
    """

    original: Dataset
    rows: IntArray

    def __post_init__(self) -> None:
        whole, rows = self.original, self.rows
        kept: dict[str, Any] = {
            "native_size": whole.native_size,
            "about": whole.about,
            "keys": tuple(whole.keys[i] for i in rows),
            "labels": whole.labels[rows],
            "class_names": whole.class_names,
            "splits": whole.splits,
            "metadata": {k: tuple(column[i] for i in rows) for k, column in whole.metadata.items()},
            "fingerprint": digest_of("readable", whole.fingerprint, rows),
        }
        for name, value in kept.items():
            object.__setattr__(self, name, value)

    def image(self, index: int) -> UInt8Array:
        """Return one image, RGB uint8 ``(H, W, 3)``."""
        return self.original.image(int(self.rows[index]))

    def images(
        self, indices: Sequence[int] | IntArray, size: int, interpolation: str = "bilinear"
    ) -> UInt8Array:
        """Return images resized to a square, RGB uint8 ``(n, size, size, 3)``."""
        return self.original.images(self.rows[np.asarray(indices)], size, interpolation)

    def problems(self) -> list[str]:
        """Return what is wrong with the data, one sentence each."""
        return self.original.problems()


def pack_images(store: ImageStore, broken: Broken, reporter: Reporter) -> int:
    """Fill a whole store and return how many images were decoded.

    Raises:
        DataError: an image cannot be read and ``broken`` is not ``skip``; the message names it.
    """
    everything = np.arange(len(store))
    missing = store.missing(everything, broken).size
    store.fill(everything, broken, "images", reporter)
    return int(missing)


def without_broken(
    store: ImageStore, splits: Iterable[str], reporter: Reporter
) -> tuple[Dataset, dict[int, str]]:
    """Decode some splits; return the data set without undecodable images, and these."""
    rows = np.unique(np.concatenate([store.dataset.split_indices(split) for split in splits]))
    store.fill(rows, "skip", "images", reporter)
    known = store.broken()
    broken = {int(row): known[row] for row in rows if int(row) in known}
    if not broken:
        return store.dataset, {}
    kept = np.setdiff1d(np.arange(len(store)), np.fromiter(broken, np.int64, len(broken)))
    return Readable(store.dataset, kept), broken


def store_of(
    component: Component,
    dataset: Dataset,
    size: int,
    interpolation: str,
    decoding: Decoding,
    workspace: Workspace,
) -> ImageStore:
    """Return the store of the images of a data set.

    Args:
        component: made ``dataset``; its code counts, and its options too unless the data set
            overrides ``pixels_fingerprint``.
    """
    if type(dataset).pixels_fingerprint is not Dataset.pixels_fingerprint:
        component = dataclasses.replace(component, options={})
    return ImageStore(dataset, component.fingerprint, size, interpolation, decoding, workspace)


def pixels_of(store: ImageStore, dataset: Dataset, split: str, reporter: Reporter) -> Pixels:
    """Return the images of a split in the order of its pool, decoding missing ones.

    Args:
        dataset: the store's data set, or the result of ``without_broken``.

    Raises:
        DataError: an image cannot be read; the message names it.
    """
    rows = dataset.split_indices(split)
    if isinstance(dataset, Readable):
        rows = dataset.rows[rows]
    store.fill(rows, "fatal", f"images of {split}", reporter)
    return Pixels(store, rows, store.digest(rows))


def decoding_difference(store: ImageStore, most: int = 64) -> tuple[float, float, int] | None:
    """Return how far scaled decoding is from exact decoding, in levels of 0..255.

    Args:
        most: number of images compared, spread evenly over the data set.

    Returns:
        The mean, the 99th percentile and the largest absolute difference; ``None`` where no image
        can be read.
    """
    good = np.setdiff1d(np.arange(len(store)), np.fromiter(store.broken(), np.int64))
    if not good.size:
        return None
    chosen = good[np.unique(np.linspace(0, len(good) - 1, min(most, len(good))).astype(int))]
    size, how = store.size, store.interpolation
    exact = store.dataset.images(chosen, size, how).astype(np.int16)
    scaled = store.dataset.scaled_images(chosen, size, how)
    apart = np.abs(exact - scaled)
    return float(apart.mean()), float(np.percentile(apart, 99)), int(apart.max())
