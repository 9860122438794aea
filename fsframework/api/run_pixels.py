"""The images of a finished run, read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fsframework.api.components import component
from fsframework.api.running import Run
from fsframework.api.session import open_session
from fsframework.errors import FsfError, RecordError
from fsframework.interfaces.dataset import Dataset
from fsframework.values import IntArray, Texts, UInt8Array

__all__ = ["RunImages"]


class RunImages:
    """The images that the tasks of a run refer to, to read some of them several times.

    Args:
        run: that was evaluated on images.
        plugins: Python files whose plugin classes are loaded too.

    Raises:
        RecordError: the run holds accuracies measured elsewhere.
        FsfError: the data set cannot be opened.
    """

    def __init__(self, run: Run, plugins: Sequence[str | Path] = ()) -> None:
        record = run.record
        if "dataset" not in record.components:
            raise RecordError(f"{run.folder}: holds accuracies measured elsewhere, and no images")
        registry = open_session(plugins=plugins, progress=False).registry
        described = record.components["dataset"].to_tree()
        self.dataset: Dataset = component(registry, "dataset", described).create()
        self._size = record.seen_size
        self._rows = Texts.of(self.dataset.keys).find(run.pool.keys)

    def read(self, indices: Sequence[int] | IntArray) -> Mapping[int, UInt8Array]:
        """Return those of some images that can still be read; see ``Run.images``."""
        found: dict[int, UInt8Array] = {}
        for index in np.unique(np.asarray(indices, np.int64)).tolist():
            if (row := int(self._rows[index])) < 0:
                continue
            try:
                if self._size is None:
                    found[index] = self.dataset.image(row)
                else:
                    found[index] = self.dataset.images([row], self._size)[0]
            except (FsfError, OSError):
                continue  # it is no longer there
        return found
