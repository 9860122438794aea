"""The folders of runs and cached stages, and arrays that are built once and survive a kill."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fsframework._files import explain_os_error, locked
from fsframework.errors import DataError
from fsframework.pipeline.progress import Reporter

__all__ = ["Workspace", "locked", "stored_array", "sweep"]


@dataclass(frozen=True)
class Workspace:
    """Two folders: ``runs``, with a folder per run; and ``cache``, which may be deleted."""

    runs: Path
    cache: Path

    @classmethod
    def default(cls, runs: Path | None = None, cache: Path | None = None) -> Workspace:
        """Return the given folders, else ``FSF_RUNS`` and ``FSF_CACHE``, else the defaults."""
        home = os.environ.get("XDG_CACHE_HOME")
        usual = (Path(home) if home else Path.home() / ".cache") / "fsframework"
        return cls(
            runs or Path(os.environ.get("FSF_RUNS") or "runs"),
            cache or Path(os.environ.get("FSF_CACHE") or usual),
        )


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
    """Map the array cached in ``folder`` into memory, building it block by block if it is missing.

    Args:
        shape: shape of the whole array; rows are made in order.
        make: returns rows ``start..stop`` of the array.
        block: rows per call of ``make``.

    A killed build resumes where it stopped: rows are appended to a partial file whose length shows
    how many are complete. Plain writes are used, since a full disk kills a process that writes to a
    memory map but only raises an error here.

    Raises:
        FsfError: the disk is full or cannot be written to.
    """
    final = folder / "array.npy"
    if not final.exists():
        try:
            with locked(folder):
                if not final.exists():
                    _build(folder, shape, np.dtype(dtype), make, block, label, reporter)
        except OSError as error:
            raise explain_os_error(error, final) from error
    # Copy-on-write: the file does not change, and PyTorch can use the array without a copy.
    mapped: npt.NDArray[Any] = np.load(final, mmap_mode="c")
    return mapped


def sweep(folder: Path) -> None:
    """Remove partial files of a killed process from a folder that is now locked."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)


def _made(
    make: Callable[[int, int], npt.NDArray[Any]], start: int, stop: int, label: str
) -> npt.NDArray[Any]:
    try:
        return make(start, stop)
    except OSError as error:
        # The error concerns a file being read, not the one being written.
        raise DataError(f"{label}: {error}") from error


def _build(
    folder: Path,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    make: Callable[[int, int], npt.NDArray[Any]],
    block: int,
    label: str,
    reporter: Reporter,
) -> None:
    partial, row_bytes = folder / "array.partial", dtype.itemsize * math.prod(shape[1:])
    with partial.open("ab") as file:
        if file.tell() == 0:
            header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            file.flush()
        with partial.open("rb") as reading:
            np.lib.format.read_magic(reading)
            np.lib.format.read_array_header_1_0(reading)
            start_of_rows = reading.tell()
        done = (file.tell() - start_of_rows) // row_bytes
        # Whole blocks, since the last digits depend on what is computed together.
        done -= done % block if done < shape[0] else 0
        file.truncate(start_of_rows + done * row_bytes)
        with reporter.stage(label, shape[0], done) as advance:
            for start in range(done, shape[0], block):
                rows = _made(make, start, min(start + block, shape[0]), label)
                file.write(np.ascontiguousarray(rows, dtype=dtype).data)
                file.flush()
                advance(len(rows))
        os.fsync(file.fileno())
    partial.replace(folder / "array.npy")
