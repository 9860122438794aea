"""Which images of a group a section shows."""

from __future__ import annotations

from typing import Any

import numpy as np

from fsf_reports.interfaces import ReportedRun
from fsframework.values import IntArray

__all__ = ["first_images", "often_wrong"]

_IMAGES = 6


def first_images(images: IntArray) -> tuple[int, ...]:
    """Return as many images as a group of a gallery shows."""
    return tuple(int(i) for i in images[:_IMAGES])


def often_wrong(run: ReportedRun, images: IntArray) -> Any:
    """Return the share of wrong answers to each image as a query, 0 where it was never asked."""
    assert run.outcomes is not None
    assert run.data is not None
    assert run.data.pool is not None
    size = len(run.data.pool)
    wrong, asked = np.zeros(size), np.zeros(size)
    for arm, outcomes in run.outcomes.items():
        truth = np.arange(outcomes.n_way)[:, None]
        query = run.outcomes.arms[arm].query.ravel()
        wrong += np.bincount(query, (outcomes.predictions != truth).ravel(), minlength=size)
        asked += np.bincount(query, minlength=size)
    return (wrong / np.maximum(asked, 1))[images]
