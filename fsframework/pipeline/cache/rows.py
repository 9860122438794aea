"""Arrays on disk whose rows are made when first needed and checked before their first use."""

from __future__ import annotations

import io
import itertools
import math
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from fsframework._files import atomic_path, atomic_write, explain_os_error, sweep
from fsframework.errors import DataError, FsfError
from fsframework.pipeline.cache.sealed import (
    discard,
    discard_unless_file,
    held,
    load_sealed,
    remove_sealed,
    save_sealed,
)
from fsframework.pipeline.progress import Reporter
from fsframework.values import BoolArray, IntArray, UInt8Array

__all__ = ["Made", "Rows", "stored_array"]

Records = npt.NDArray[Any]
"""One structured value per row: ``check``, and the facts of a subclass."""
Made = tuple[npt.NDArray[Any], dict[str, npt.NDArray[Any]]]
"""Rows ``(k, ...)`` and the facts about them, each ``(k, ...)``."""

_ID_BYTES = 16
_APART = "rows"
"""Folder of the files of processes that make rows for another one."""
_BYTES_A_CHECK = 8 << 20
_READS, _SECONDS_BETWEEN_READS = 5, 0.01


@dataclass(frozen=True)
class _Found:
    """Records as found on disk.

    Args:
        records: of the rows that can be trusted; zeros for others.
        settled: whether the file holds just these.
        note: what a user should know.
    """

    records: Records
    settled: bool
    note: str = ""


class Rows:
    """One array in a folder of the cache, filled row by row by any number of processes.

    ``array.npy`` is an ordinary NumPy file, which any program can map. ``digests.bin`` begins with
    16 bytes that identify folder, shape and type and a digest of 16 bytes of what follows: one
    record per row, of 8 bytes for a hash of the row's content and facts, 0 while the row is
    missing, and then the facts. All hashes are XXH3, which takes 0.2 microseconds for 640 floats,
    a tenth of BLAKE2b.

    Content is written before its record, and a record before the digest of all, so that a killed
    process leaves nothing that passes for whole.

    Args:
        folder: ``.../STAGE/KEY``.
        shape: of the array; the first number is the number of rows.
        dtype: of the array.
        what: the content, as messages name it.
    """

    facts: Sequence[tuple[Any, ...]] = ()
    """Further fields of a record that are hashed with the content, as NumPy describes them."""
    remarks: Sequence[tuple[Any, ...]] = ()
    """Fields that are not."""

    def __init__(
        self, folder: Path, shape: tuple[int, ...], dtype: npt.DTypeLike, what: str
    ) -> None:
        self.folder, self.shape, self.dtype, self.what = folder, shape, np.dtype(dtype), what
        self.path = folder / "array.npy"
        self._digests = folder / "digests.bin"
        self.record = np.dtype([("check", "<u8"), *self.facts, *self.remarks])
        named = f"{folder.parent.name}/{folder.name} {shape} {self.dtype.str} {self.record}"
        self._id = xxhash.xxh3_128_digest(named.encode())
        header = io.BytesIO()
        described = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, described)
        self._header = header.getvalue()
        self._row_bytes = self.dtype.itemsize * math.prod(shape[1:])
        self._records: Records | None = None
        self._checked: BoolArray = np.zeros(shape[0], bool)

    def __len__(self) -> int:
        return self.shape[0]

    def records(self, reporter: Reporter) -> Records:
        """Return the record of each row; ``check`` is 0 where the row is missing."""
        if self._records is None:
            found = self._found()
            if not found.settled:
                with suppress(FsfError), held(self.folder, reporter):  # the cache may be read-only
                    found = self._settled()
            self._records = self._reported(found, reporter)
        return self._records

    def _settled(self) -> _Found:
        """Return the records, and write them if the file lacks them; under the lock."""
        found = self._found()
        if not found.settled:
            self._save(found.records)
        return found

    def _reported(self, found: _Found, reporter: Reporter) -> Records:
        if found.note:
            reporter.note(f"{self.folder}: {found.note}")
        return found.records

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
        sound = self._agree(todo, records)
        self._checked[todo[sound]] = True
        bad: IntArray = todo[~sound]
        if (records["check"][bad] != 0).any():
            reporter.note(f"{self.folder}: some cached {self.what} are damaged and are made again")
        return bad

    def fill(
        self,
        find: Callable[[], IntArray],
        make: Callable[[IntArray], Made],
        at_once: int,
        stage: tuple[str, int],
        reporter: Reporter,
    ) -> None:
        """Make rows, ``at_once`` at a time, while other processes wait.

        Args:
            find: returns the rows to make; called when no other process is at work.
            make: makes some rows.
            stage: the label of the progress, and the number of rows that it counts.

        Raises:
            FsfError: the disk is full or cannot be written to.
        """
        try:
            with held(self.folder, reporter):
                sweep(self.folder)
                records = self._records = self._reported(self._settled(), reporter)
                todo = find()
                if not todo.size:
                    return
                label, total = stage
                with reporter.stage(label, total, total - len(todo)) as advance:
                    for first in range(0, len(todo), at_once):
                        rows = todo[first : first + at_once]
                        self._put(rows, *make(rows), records)
                        advance(len(rows))
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    def accept(self, rows: IntArray, made: Made, reporter: Reporter) -> None:
        """Write rows that another process has made, where they are still missing.

        Raises:
            FsfError: the disk is full or cannot be written to.
        """
        content, facts = made
        try:
            with held(self.folder, reporter):
                records = self._records = self._reported(self._settled(), reporter)
                new = np.flatnonzero(records["check"][rows] == 0)
                if new.size:
                    chosen = {name: values[new] for name, values in facts.items()}
                    self._put(rows[new], content[new], chosen, records)
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    def _put(
        self, rows: IntArray, made: npt.NDArray[Any], facts: dict[str, Any], records: Records
    ) -> None:
        """Write rows that are not on disk yet, and the records of all."""
        content = np.ascontiguousarray(made, dtype=self.dtype)
        new = np.zeros(len(rows), self.record)
        for name, values in facts.items():
            new[name] = values
        new["check"] = self.checks(content, new)
        fresh = new["check"] != records["check"][rows]
        fresh[~fresh] = ~self._agree(rows[~fresh], records)
        if not self._is_whole():
            self._create(np.zeros_like(records))
        records[rows] = new
        if fresh.any():
            self._write_content(rows[fresh], content[fresh])
            self._write_records(rows, records)
        else:
            with suppress(OSError):  # only remarks changed, and the cache may be read-only
                self._write_records(rows, records)
        self._checked[rows] = True

    def _write_content(self, rows: IntArray, content: npt.NDArray[Any]) -> None:
        # Plain writes, since a full disk kills a process that writes to a memory map.
        with self.path.open("r+b") as file:
            for part in _runs(rows):
                at = len(self._header) + int(rows[part.start]) * self._row_bytes
                _write(file.fileno(), content[part].tobytes(), at)

    def _write_records(self, rows: IntArray, records: Records) -> None:
        with self._digests.open("r+b") as file:
            for part in _runs(rows):
                at = 2 * _ID_BYTES + int(rows[part.start]) * self.record.itemsize
                _write(file.fileno(), records[rows[part]].tobytes(), at)
            _write(file.fileno(), _digest(records), _ID_BYTES)

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
                at = len(self._header) + int(rows[part.start]) * self._row_bytes
                _read_into(file.fileno(), flat[part].reshape(-1).data, at)
        return found

    def built(
        self,
        make: Callable[[int, int], npt.NDArray[Any]],
        block: int,
        used: IntArray,
        reporter: Reporter,
    ) -> npt.NDArray[Any]:
        """Map the array into memory after making all rows that are missing or damaged.

        What is written to the map does not reach the file.

        Args:
            make: returns rows ``start..stop``.
            block: rows per call of ``make``, always from a multiple of ``block`` on.
            used: the rows that are checked.
            reporter: of progress.
        """

        def unmade() -> IntArray:
            return self.unmade(block, used, reporter)

        def made(rows: IntArray) -> Made:
            try:
                return make(int(rows[0]), int(rows[-1]) + 1), {}
            except OSError as error:
                # The error concerns a file being read, not the one being written.
                raise DataError(f"{self.what}: {error}") from error

        if unmade().size:
            self.fill(unmade, made, block, (self.what, len(self)), reporter)
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

    def make_apart(
        self,
        folder: Path,
        name: str,
        rows: IntArray,
        make: Callable[[IntArray], Made],
        at_once: int,
    ) -> None:
        """Make rows into files of their own, for the process that reads them by ``made_apart``.

        Args:
            folder: of that process.
            name: begins the names of the files; those that exist are kept.
            rows: to make, ``at_once`` at a time.
            make: makes some rows.
        """
        from safetensors.numpy import save_file

        for first in range(0, len(rows), at_once):
            path = folder / _APART / f"{name}-{first:07d}.safetensors"
            if load_sealed(path, _arrays, Reporter()) is None:
                block = rows[first : first + at_once]
                content, facts = make(block)
                save_sealed(path, partial(save_file, {"rows": block, "content": content, **facts}))

    def made_apart(self, folder: Path, reporter: Reporter) -> Iterator[tuple[IntArray, Made]]:
        """Yield what other processes have made, and remove each file once it was used."""
        for path in sorted((folder / _APART).glob("*.safetensors")):
            found = load_sealed(path, _arrays, reporter)
            if found is not None:
                rows, content = found.pop("rows"), found.pop("content")
                yield rows, (content, found)
            remove_sealed(path)

    def is_of_earlier_version(self) -> bool:
        """Return whether an earlier version, which kept no such records, made the array."""
        return not os.path.lexists(self._digests)

    def of_earlier_version(self) -> Records:
        """Return the records of an array that an earlier version made."""
        records = np.zeros(len(self), self.record)
        for rows in self.blocks(np.arange(len(self))):
            records["check"][rows] = self.checks(self.read(rows), records[rows])
        return records

    def _found(self) -> _Found:
        """Return the records of the rows that can be trusted."""
        nothing = np.zeros(len(self), self.record)
        if not self._is_whole():
            note = f"the cached {self.what} are damaged and are made again"
            return _Found(nothing, True, note if os.path.lexists(self.path) else "")
        if self.is_of_earlier_version():
            note = (
                f"an earlier version cached the {self.what} without digests; they are accepted "
                "and get digests now"
            )
            return _Found(self.of_earlier_version(), False, note)
        records = nothing
        for attempt in range(_READS):  # another process may be writing
            time.sleep(_SECONDS_BETWEEN_READS * bool(attempt))
            raw = _content(self._digests)
            if raw[:_ID_BYTES] != self._id or len(raw) != 2 * _ID_BYTES + nothing.nbytes:
                note = f"the digests of the cached {self.what} are damaged; all are made again"
                return _Found(nothing, False, note)
            records = np.frombuffer(raw, self.record, offset=2 * _ID_BYTES).copy()
            if raw[_ID_BYTES : 2 * _ID_BYTES] == _digest(records):
                return _Found(records, True)
        # Killed between a record and the digest of all, or damaged: the content decides.
        filled = np.flatnonzero(records["check"])
        lost = filled[~self._agree(filled, records)]
        records[lost] = nothing[lost]
        note = f"some digests of the cached {self.what} are damaged; what they fail is made again"
        return _Found(records, False, note)

    def _save(self, records: Records) -> None:
        discard_unless_file(self._digests)
        atomic_write(self._digests, self._id + _digest(records) + records.tobytes())

    def _create(self, records: Records) -> None:
        """Create the files at full length, which takes no space until rows are written."""
        discard(self.path)
        self._save(records)
        with atomic_path(self.path) as temporary, temporary.open("wb") as file:
            file.write(self._header)
            file.truncate(len(self._header) + len(self) * self._row_bytes)

    def _is_whole(self) -> bool:
        """Return whether the array is a file of the right length and header."""
        try:
            state = self.path.lstat()
            size = len(self._header) + len(self) * self._row_bytes
            if not stat.S_ISREG(state.st_mode) or state.st_size != size:
                return False
            with self.path.open("rb") as file:
                return file.read(len(self._header)) == self._header
        except OSError:
            return False

    def _agree(self, rows: IntArray, records: Records) -> BoolArray:
        """Return which rows have the content that their records tell of."""
        sound = np.zeros(len(rows), bool)
        if not self._is_whole():
            return sound
        done = 0
        for block in self.blocks(rows):
            known = records[block]
            sound[done : done + len(block)] = known["check"] == self.checks(self.read(block), known)
            done += len(block)
        return sound

    def checks(self, content: npt.NDArray[Any], records: Records) -> npt.NDArray[np.uint64]:
        """Return the hashes of rows with the facts in their records, uint64 ``(k,)``, not 0."""
        flat = _bytes_of(content)
        hashed = xxhash.xxh3_64_intdigest
        seeds = [0] * len(flat)
        if self.facts:
            raw = records.view(np.uint8).reshape(len(records), self.record.itemsize)
            facts = np.ascontiguousarray(raw[:, 8 : 8 + np.dtype([*self.facts]).itemsize])
            seeds = [hashed(one) for one in facts]
        values = (hashed(row.data, seed) for row, seed in zip(flat, seeds, strict=True))
        found = np.fromiter(values, np.uint64, len(flat))
        return np.maximum(found, 1)

    def blocks(self, rows: IntArray) -> Iterator[IntArray]:
        """Yield some rows in parts of about 8 MiB."""
        size = max(1, _BYTES_A_CHECK // max(1, self._row_bytes))
        return (rows[start : start + size] for start in range(0, len(rows), size))


def stored_array(
    folder: Path,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    make: Callable[[int, int], npt.NDArray[Any]],
    *,
    block: int,
    label: str,
    reporter: Reporter,
) -> npt.NDArray[Any]:
    """Map the array cached in ``folder`` into memory, making what is missing or damaged.

    Args:
        folder: ``.../STAGE/KEY``.
        shape: shape of the whole array.
        dtype: type of the whole array.
        make: returns rows ``start..stop`` of the array.
        block: rows per call of ``make``, always from a multiple of ``block`` on.
        label: what the array holds, for messages.
        reporter: of progress.

    A killed build resumes with the block where it stopped.

    Raises:
        FsfError: the disk is full or cannot be written to.
    """
    rows = Rows(folder, shape, dtype, label)
    return rows.built(make, block, np.arange(len(rows)), reporter)


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    from safetensors.numpy import load_file

    found: dict[str, npt.NDArray[Any]] = load_file(path)
    return found


def _content(path: Path) -> bytes:
    """Return the content of an ordinary file; nothing of any other."""
    try:
        return path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else b""
    except OSError:
        return b""


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


def _read_into(descriptor: int, buffer: memoryview, offset: int) -> None:
    while buffer:
        count = os.preadv(descriptor, [buffer], offset)
        if not count:
            raise DataError(f"the cached array ends at byte {offset}; run the same command again")
        buffer, offset = buffer[count:], offset + count


def _write(descriptor: int, content: bytes, offset: int) -> None:
    left = memoryview(content)
    while left:
        written = os.pwrite(descriptor, left, offset)
        left, offset = left[written:], offset + written


def _digest(records: Records) -> bytes:
    return xxhash.xxh3_128_digest(records.tobytes())
