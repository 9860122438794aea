"""Small copies of images, each once, as many as a page may hold."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fsf_reports.interfaces import ReportedRun
from fsframework.values import IntArray, UInt8Array

__all__ = ["Pictures", "images_of_tasks"]

_SIDE = 64
"""Longer side in pixels."""
_QUALITY, _EFFORT = 80, 2
"""Half the bytes of a JPEG that looks the same."""
_AT_ONCE = 512


class Pictures:
    """Images as WebP, one after the other, in base64; each begins at a multiple of four letters.

    Args:
        most_bytes: that all may take, written as base64.
    """

    type = "image/webp"

    def __init__(self, most_bytes: int) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.places: dict[int, dict[int, int]] = {}
        self._texts: list[str] = []
        self._size, self._most = 0, most_bytes

    @property
    def full(self) -> bool:
        """Whether there is no space for more."""
        return self._size >= self._most

    @property
    def text(self) -> str:
        """All images."""
        return "".join(self._texts)

    def add(self, number: int, read, wanted: Iterable[int]) -> None:  # type: ignore[no-untyped-def]
        """Add images that can be read and are not here, as long as there is space.

        Args:
            number: of the data they belong to.
            read: of ``ReportedData``.
            wanted: indices into the pool, the most important first.
        """
        places = self.places.setdefault(number, {})
        left = [image for image in dict.fromkeys(wanted) if image not in places]
        for start in range(0, len(left), _AT_ONCE):
            if self.full:
                return
            part = left[start : start + _AT_ONCE]
            found = read(np.array(part, np.int64))
            for image in part:
                if image in found and not self.full:
                    places[image] = self._put(found[image])

    def _put(self, image: UInt8Array) -> int:
        text = base64.b64encode(_webp(image)).decode()
        self.ranges.append((self._size, len(text)))
        self._texts.append(text)
        self._size += len(text)
        return len(self.ranges) - 1


def _webp(image: UInt8Array) -> bytes:
    from PIL import Image

    picture = Image.fromarray(image)
    picture.thumbnail((_SIDE, _SIDE), Image.Resampling.BILINEAR)
    written = io.BytesIO()
    picture.save(written, "WEBP", quality=_QUALITY, method=_EFFORT)
    return written.getvalue()


def images_of_tasks(runs: Sequence[ReportedRun]) -> Iterator[tuple[ReportedRun, IntArray]]:
    """Yield the images of tasks: the tasks with the lowest accuracy of each run and arm first.

    The arms of a run take turns, and so do the runs, the arm under test before its control.
    """
    orders = []
    for run in runs:
        assert run.outcomes is not None
        assert run.arms is not None
        for arm in reversed(list(run.outcomes)):
            order = np.argsort(run.outcomes[arm].task_accuracy, kind="stable")
            orders.append((run, run.arms[arm].images, order))
    longest = max((len(order) for *_, order in orders), default=0)
    step = 8
    for start in range(0, longest, step):
        for run, images, order in orders:
            if start < len(order):
                yield run, np.unique(images[order[start : start + step]])
