"""Arrays on disk whose rows are made when first needed and checked before their first use."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from fsframework._files import (
    atomic_path,
    atomic_write,
    discard,
    explain_os_error,
    held,
    is_ordinary,
)
from fsframework.engine.progress import Reporter
from fsframework.errors import DataError
from fsframework.values import BoolArray, IntArray, UInt8Array

__all__ = ["Records", "Rows", "records_of"]

Records = npt.NDArray[Any]
"""One structured value per row: ``digest``, ``state`` for whoever makes the rows, ``check``."""
Make = Callable[[IntArray], tuple[npt.NDArray[Any], Records]]
"""Makes some rows: ``(k, ...)``, and their records ``(k,)``."""

_RECORD = np.dtype([("digest", "<u8", (2,)), ("state", "<u8"), ("check", "<u8")])
_WEIGHTS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
"""Odd numbers, so that a change of any part of a record changes its check."""
_ID_BYTES = 16
_BYTES_A_CHECK = 8 << 20


def records_of(rows: npt.NDArray[Any]) -> Records:
    """Return the records of rows: XXH3 digests of 128 bits, the same on every machine."""
    found = np.zeros(len(rows), _RECORD)
    raw = b"".join(xxhash.xxh3_128_digest(row.data) for row in _bytes_of(rows))
    found["digest"] = np.frombuffer(raw, "<u8").reshape(len(rows), 2)
    return found


def _checks(records: Records) -> npt.NDArray[np.uint64]:
    parts = np.column_stack([records["digest"], records["state"]])
    checks: npt.NDArray[np.uint64] = (parts * _WEIGHTS).sum(axis=1, dtype=np.uint64)
    return checks


class Rows:
    """One array in a folder of the cache, filled row by row by any number of processes.

    ``array.npy`` is an ordinary NumPy file, which any program can map. ``rows.bin`` begins with 16
    bytes that identify folder, shape and type; then follows a record per row, with the digest of
    the row and a check of the record, zeros while the row is missing. Content is written before its
    record, so that a killed process leaves nothing that passes for whole.

    Args:
        folder: ``.../STAGE/KEY``.
        shape: of the array; the first number is the number of rows.
        dtype: of the array.
        what: the content, as messages name it.
    """

    def __init__(
        self, folder: Path, shape: tuple[int, ...], dtype: npt.DTypeLike, what: str
    ) -> None:
        self.folder, self.shape, self.dtype, self.what = folder, shape, np.dtype(dtype), what
        self.path, self._file = folder / "array.npy", folder / "rows.bin"
        named = f"{folder.parent.name}/{folder.name} {shape} {self.dtype.str}"
        self._id = xxhash.xxh3_128_digest(named.encode())
        header = BytesIO()
        described = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, described)
        self._header = header.getvalue()
        self._row_bytes = self.dtype.itemsize * math.prod(shape[1:])
        self._records: Records | None = None
        self._checked: BoolArray = np.zeros(shape[0], bool)

    def __len__(self) -> int:
        return self.shape[0]

    def records(self, reporter: Reporter) -> Records:
        """Return the record of each row, as on disk when first asked for."""
        if self._records is None:
            whole = self._is_whole()
            found = np.zeros(len(self), _RECORD)
            if whole:
                found = np.fromfile(self._file, _RECORD, offset=_ID_BYTES)
            damaged = found["check"] != _checks(found)
            found[damaged] = np.zeros((), _RECORD)
            there = any(os.path.lexists(path) for path in (self.path, self._file))
            if damaged.any() or (there and not whole):
                reporter.note(f"{self.folder}: the cached {self.what} are damaged; made again")
            self._records = found
        return self._records

    def missing(self, rows: IntArray, reporter: Reporter) -> IntArray:
        """Return which of some rows are not on disk."""
        missing: BoolArray = self.records(reporter)["check"][rows] == 0
        return rows[missing]

    def damaged(self, rows: IntArray, reporter: Reporter) -> IntArray:
        """Return which of some rows are missing or are not what was written, ascending.

        Rows that are sound are not checked again by this object.
        """
        records = self.records(reporter)
        todo = np.unique(rows[~self._checked[rows]])
        for block in self._blocks(np.setdiff1d(todo, self.missing(todo, reporter))):
            found = records_of(self.read(block))["digest"]
            self._checked[block] = (found == records["digest"][block]).all(axis=1)
        bad: IntArray = todo[~self._checked[todo]]
        if self.missing(bad, reporter).size < bad.size:
            reporter.note(f"{self.folder}: some cached {self.what} are damaged and are made again")
        return bad

    def fill(
        self,
        find: Callable[[], IntArray],
        make: Make,
        at_once: int,
        stage: tuple[str, int],
        reporter: Reporter,
        *,
        alone: bool = True,
    ) -> None:
        """Make rows, ``at_once`` at a time.

        Args:
            find: returns the rows to make; if there are any, it is called again when the records on
                disk have been read again.
            stage: the label of the progress, and the number of rows that it counts.
            alone: whether other processes wait meanwhile; if not, they make other rows.

        Raises:
            FsfError: the disk is full or cannot be written to.
        """
        if not find().size:
            return
        with held(self.folder, reporter.note) if alone else nullcontext():
            self._records = None
            todo = find()
            label, total = stage
            with reporter.stage(label, total, total - len(todo)) as advance:
                for first in range(0, len(todo), at_once):
                    rows = todo[first : first + at_once]
                    content, records = make(rows)
                    with nullcontext() if alone else held(self.folder, reporter.note):
                        self._put(rows, content, records, reporter)
                    advance(len(rows))

    def _put(
        self, rows: IntArray, content: npt.NDArray[Any], new: Records, reporter: Reporter
    ) -> None:
        new["check"] = _checks(new)
        self.records(reporter)[rows] = new
        self._checked[rows] = False
        try:
            if not self._is_whole():
                self._create()
            content = np.ascontiguousarray(content, self.dtype)
            for path, start, values in (
                (self.path, len(self._header), content),
                (self._file, _ID_BYTES, new),
            ):
                # Plain writes, since a full disk kills a process that writes to a memory map.
                with path.open("r+b") as file:
                    for part in _runs(rows):
                        file.seek(start + int(rows[part.start]) * values[:1].nbytes)
                        file.write(values[part].tobytes())
            self._checked[rows] = True
        except OSError as error:
            # Where nothing can be written, what is there may be what was made.
            if not is_ordinary(self.path) or self.damaged(rows, Reporter()).size:
                raise explain_os_error(error, self.path) from error

    def read(self, rows: IntArray) -> npt.NDArray[Any]:
        """Return rows ``(k, ...)``, in any order, unchecked.

        They are read, not mapped: the pages of a map count as this process's memory, and on a file
        system with large pages one image loads a hundred.

        Raises:
            DataError: the file ends too early.
        """
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        flat = _bytes_of(found)
        with self.path.open("rb") as file:
            for part in _runs(rows):
                file.seek(len(self._header) + int(rows[part.start]) * self._row_bytes)
                if file.readinto(flat[part].reshape(-1).data) < flat[part].size:
                    raise DataError(f"{self.path} ends too early; run the same command again")
        return found

    def built(self, make: Make, block: int, used: IntArray, reporter: Reporter) -> npt.NDArray[Any]:
        """Map the array into memory after making all rows that are missing or damaged.

        What is written to the map does not reach the file.

        Args:
            make: makes rows of one block.
            block: rows per call of ``make``, always from a multiple of ``block`` on.
            used: the rows that are checked.
            reporter: of progress.
        """
        stage = (self.what, len(self))
        self.fill(lambda: self.unmade(block, used, reporter), make, block, stage, reporter)
        # Copy-on-write, so that PyTorch can use the array without a copy.
        return np.memmap(self.path, self.dtype, "c", len(self._header), self.shape)

    def unmade(self, block: int, used: IntArray, reporter: Reporter) -> IntArray:
        """Return the rows that ``built`` makes: whole blocks with missing or damaged rows.

        Args:
            block: rows that are made together, on which their last digits depend.
            used: the rows that are checked.
            reporter: is told of damage.
        """
        everything = np.arange(len(self))
        bad = np.union1d(self.missing(everything, reporter), self.damaged(used, reporter))
        return everything[np.isin(everything // block, np.unique(bad // block))]

    def _create(self) -> None:
        """Create the files at full length, which takes no space until rows are written."""
        for path in (self.path, self._file):
            discard(path)
        atomic_write(self._file, self._id + bytes(len(self) * _RECORD.itemsize))
        with atomic_path(self.path) as temporary, temporary.open("wb") as file:
            file.write(self._header)
            file.truncate(len(self._header) + len(self) * self._row_bytes)

    def _is_whole(self) -> bool:
        """Return whether both files are ordinary ones of the right length and beginning."""
        files = (
            (self.path, self._header, self._row_bytes),
            (self._file, self._id, _RECORD.itemsize),
        )
        return all(
            is_ordinary(path)
            and path.stat().st_size == len(start) + len(self) * size
            and _begins(path, start)
            for path, start, size in files
        )

    def _blocks(self, rows: IntArray) -> Iterator[IntArray]:
        """Yield some rows in parts of about 8 MiB."""
        size = max(1, _BYTES_A_CHECK // max(1, self._row_bytes))
        return (rows[start : start + size] for start in range(0, len(rows), size))


def _begins(path: Path, start: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(start)) == start


def _bytes_of(rows: npt.NDArray[Any]) -> UInt8Array:
    """Return the bytes of each row, uint8 ``(n, bytes of a row)``."""
    return rows.reshape(len(rows), math.prod(rows.shape[1:])).view(np.uint8)


def _runs(rows: IntArray) -> list[slice]:
    """Return the slices of consecutive rows.

    >>> _runs(np.array([3, 4, 5, 9, 2]))
    [slice(0, 3, None), slice(3, 4, None), slice(4, 5, None)]
    """
    if not len(rows):
        return []
    edges = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]
