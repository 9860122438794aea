"""The images of a finished run, read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from fsframework.api.components import component
from fsframework.api.running import Run
from fsframework.api.session import open_session
from fsframework.components.resolution import Component
from fsframework.errors import FsfError, RecordError
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.cache.images import ImageStore, store_of
from fsframework.pipeline.progress import Reporter
from fsframework.pipeline.session import Session
from fsframework.values import IntArray, UInt8Array

__all__ = ["RunImages", "open_images_of"]

_INTERPOLATIONS: tuple[Literal["bilinear", "bicubic"], ...] = ("bilinear", "bicubic")


class RunImages:
    """The images that the tasks of a run refer to.

    Args:
        run: that was evaluated on images.
        session: whose cache may hold them.

    Raises:
        RecordError: the run holds accuracies measured elsewhere.
        FsfError: the data set cannot be opened.
    """

    def __init__(self, run: Run, session: Session) -> None:
        record = run.record
        if "dataset" not in record.components:
            raise RecordError(f"{run.folder}: holds accuracies measured elsewhere, and no images")
        described = record.components["dataset"].to_tree()
        self._component: Component = component(session.registry, "dataset", described)
        self.dataset: Dataset = self._component.create()
        self._pool, self._size = run.pool, record.seen_size
        self._decoding: Literal["exact", "scaled"] = record.settings.get("decoding", "exact")
        self._workspace = session.workspace
        self._rows = {key: row for row, key in enumerate(self.dataset.keys)}

    def read(self, indices: Sequence[int] | IntArray) -> Mapping[int, UInt8Array]:
        """Return those of some images that can still be read; see ``Run.images``."""
        keys = self._pool.keys
        wanted = [int(i) for i in np.unique(np.asarray(indices, np.int64))]
        wanted = [i for i in wanted if keys[i] in self._rows]
        rows = np.array([self._rows[keys[i]] for i in wanted], np.int64)
        images, found = np.array(wanted, np.int64), dict[int, UInt8Array]()
        for store in self._stores():
            held = np.array([i not in found for i in wanted], bool)
            held &= ~np.isin(rows, store.undecoded(rows, Reporter()))
            held &= ~np.isin(rows, list(store.broken(rows)))
            if held.any():
                pixels = _read(store, rows[held])
                found |= dict(zip(images[held].tolist(), pixels, strict=False))
        for index, row in zip(wanted, rows.tolist(), strict=True):
            if index not in found:
                try:
                    found[index] = self.dataset.image(row)
                except (FsfError, OSError):
                    continue  # it is no longer there
        return found

    def _stores(self) -> Iterator[ImageStore]:
        """Yield the caches that may hold the images; how they were resized is not recorded."""
        if self._size is None:
            return
        for how in _INTERPOLATIONS:
            store = store_of(
                self._component, self.dataset, self._size, how, self._decoding, self._workspace
            )
            if store.path.exists():
                yield store


def _read(store: ImageStore, rows: IntArray) -> Iterable[UInt8Array]:
    try:
        return store.read(rows, Reporter())
    except FsfError:
        return ()  # damaged, and the file has changed since


def open_images_of(
    run: Run, *, plugins: Sequence[str | Path] = (), cache_dir: str | Path | None = None
) -> RunImages:
    """Open the images of a run, to read some of them several times; see ``Run.images``."""
    return RunImages(run, open_session(cache_dir=cache_dir, plugins=plugins, progress=False))
