"""The tasks and answers of runs as compact arrays."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import numpy as np
import numpy.typing as npt

from fsf_reports.interfaces import ReportedData, ReportedRun

__all__ = ["Packed"]

_SMALLEST = (np.uint8, np.uint16, np.uint32)


class Packed:
    """What the script of a page needs of tasks; equal task sets are stored once.

    ``arrays`` hold little-endian integers, compressed with gzip and written as base64.
    """

    def __init__(self) -> None:
        self.arrays: list[dict[str, str]] = []
        self.tasks: list[dict[str, Any]] = []
        self.data: list[dict[str, Any]] = []
        self.opened: list[ReportedData] = []
        self._sets: dict[tuple[str, int], int] = {}

    def array(self, values: npt.ArrayLike, *, signed: bool = False) -> int:
        """Store integers in the smallest type that holds them; return the number of the array."""
        flat = np.ascontiguousarray(values).reshape(-1)
        if signed:
            flat = flat.astype("<i4" if flat.size and flat.max() > 32_767 else "<i2")
        else:
            largest = int(flat.max()) if flat.size else 0
            kind = next(k for k in _SMALLEST if largest <= np.iinfo(k).max)
            flat = flat.astype(np.dtype(kind).newbyteorder("<"))
        squeezed = gzip.compress(flat.tobytes(), 6, mtime=0)
        name = flat.dtype.str.lstrip("<|>=")
        self.arrays.append({"type": name, "data": base64.b64encode(squeezed).decode()})
        return len(self.arrays) - 1

    def data_of(self, run: ReportedRun, *, words: bool) -> int:
        """Return the number of the data of a run, with class names and keys.

        Args:
            words: whether the words of each image are needed.
        """
        data = run.data
        assert data is not None
        for number, known in enumerate(self.opened):
            if known is data:
                self._add_words(number, words)
                return number
        pool = data.pool
        self.opened.append(data)
        self.data.append(
            {
                "name": data.name,
                "classes": None if pool is None else list(pool.class_names),
                "keys": None if pool is None else list(pool.keys),
            }
        )
        self._add_words(len(self.data) - 1, words)
        return len(self.data) - 1

    def _add_words(self, number: int, wanted: bool) -> None:
        pool, found = self.opened[number].pool, self.data[number]
        if wanted and pool is not None and pool.attributes is not None and "bits" not in found:
            found["words"] = list(pool.attributes.words)
            bits = pool.attributes.rows(np.arange(len(pool)))
            found["bits"] = self.array(np.packbits(bits, axis=1, bitorder="little"))

    def run(self, run: ReportedRun) -> dict[str, Any]:
        """Return a run with the numbers of its arrays."""
        assert run.outcomes is not None
        assert run.arms is not None
        data, contrast = self.data_of(run, words=True), run.arms.contrast
        return {
            "label": run.label,
            "control": contrast.control if contrast else None,
            "tested": contrast.tested if contrast else None,
            "paired": bool(contrast and contrast.paired),
            "arms": [
                {
                    "arm": arm,
                    "set": self._set(run, arm, data),
                    "predictions": self.array(outcomes.predictions),
                }
                for arm, outcomes in run.outcomes.items()
            ],
        }

    def _set(self, run: ReportedRun, arm: str, data: int) -> int:
        assert run.arms is not None
        tasks = run.arms[arm]
        key = tasks.digest, data
        if key not in self._sets:
            self._sets[key] = len(self.tasks)
            self.tasks.append(
                {
                    "data": data,
                    "count": len(tasks),
                    "way": tasks.n_way,
                    "shot": tasks.n_shot,
                    "queries": tasks.n_query,
                    "words": list(tasks.words),
                    "classes": self.array(tasks.classes),
                    "support": self.array(tasks.support),
                    "query": self.array(tasks.query),
                    "attribute": self.array(tasks.attribute, signed=True),
                    "relaxed": self.array(tasks.relaxed),
                }
            )
        return self._sets[key]
