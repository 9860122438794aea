"""Figures 2 and 3 of Lafargue et al. 2024: two Gaussians, and the variance of the mean accuracy.

Source: section 4.1: two classes of one-dimensional points around -1 and 1 with standard deviation
1, nearest class centres, tasks without replacement. The figures are simulated, so they need no
data and no run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fsf_reports.values import (
    Entry,
    FigureDeclaration,
    Panel,
    Point,
    Quantity,
    Series,
    TableDeclaration,
)
from fsframework.statistics.facts import called
from fsframework.values import FloatArray

__all__ = ["gaussian_figures", "gaussian_tables"]

_QUERIES = (1, 2, 3, 4, 5, 7, 10, 13, 15, 17, 20, 24, 28, 33, 40, 45, 57, 66, 78, 95)
_SHOT, _IMAGES, _REPLICATES = 5, 1000, 2000
_HALVES = {
    "figure-2": (((_SHOT, _IMAGES),),),
    "figure-3": (
        tuple((_SHOT, images) for images in (250, 500, 1000, 2000)),
        tuple((shot, _IMAGES) for shot in (1, 5, 10, 20)),
    ),
}
"""Shots, and images of both classes together, of the curves in each half of a figure."""

_SQUARED = "variance (squared points)"
_SOURCE = "Lafargue et al. 2024"


@dataclass(frozen=True)
class _Curve:
    """The variance of the mean accuracy over data sets, by queries per class.

    Args:
        shot: support points per class.
        images: points of the two classes together.
        queries: numbers of queries per class; ``tasks`` the tasks that they leave.
        variances: of the mean, in squared points.
    """

    shot: int
    images: int
    queries: tuple[int, ...]
    tasks: tuple[int, ...]
    variances: tuple[float, ...]

    @cached_property
    def fitted(self) -> FloatArray:
        """The variances by the fitted Eq. 10, a Q + b / Q + c."""
        q = np.array(self.queries, float)
        terms = np.stack([q, 1 / q, np.ones_like(q)], axis=1)
        return np.asarray(terms @ np.linalg.lstsq(terms, np.array(self.variances), rcond=None)[0])

    @property
    def explained(self) -> float:
        """The share of the variances' spread that the fit explains."""
        measured = np.array(self.variances)
        return float(1 - np.square(measured - self.fitted).mean() / measured.var())


@functools.cache
def _curve(shot: int, images: int) -> _Curve:
    most = 40 if shot == 1 else images  # beyond, its variance would dwarf the other curves
    queries = tuple(q for q in _QUERIES if images // 2 // (shot + q) >= 2 and q <= most)
    tasks = tuple(images // 2 // (shot + q) for q in queries)
    found = tuple(_variance(shot, q, n) for q, n in zip(queries, tasks, strict=True))
    return _Curve(shot, images, queries, tasks, found)


def _variance(shot: int, n_query: int, n_tasks: int) -> float:
    """Return the variance of the mean accuracy over data sets, in squared points.

    With two classes of equal size, drawing tasks without replacement is cutting each class.
    """
    rng = np.random.default_rng([shot, n_query, n_tasks])
    values = rng.standard_normal((_REPLICATES, 2, n_tasks, shot + n_query), np.float32)
    values += np.array([-1, 1], np.float32)[:, None, None]
    centres = values[..., :shot].mean(axis=-1)
    above = values[..., shot:] > centres.mean(axis=1)[:, None, :, None]
    above[:, 0] = ~above[:, 0]
    right = above == (centres[:, 1] > centres[:, 0])[:, None, :, None]
    return float(np.var(100 * right.mean(axis=(1, 2, 3)), ddof=1))


def gaussian_tables(part: str) -> TableDeclaration:
    """Declare the curves of a figure as a table.

    Args:
        part: ``figure-2`` or ``figure-3``.
    """
    entries = []
    for shot, images in dict.fromkeys(one for half in _HALVES[part] for one in half):
        curve = _curve(shot, images)
        columns = {"variance": curve.variances, "Eq. 10, fitted": curve.fitted}
        for place, (n_query, n_tasks) in enumerate(zip(curve.queries, curve.tasks, strict=True)):
            row = str(shot), f"{images:,}", str(n_query), str(n_tasks)
            entries += [Entry(row, name, _known(of[place])) for name, of in columns.items()]
    return TableDeclaration(
        f"Figure {part[-1]}",
        "Variance of the mean accuracy of two Gaussian classes, in squared points",
        ("shots", "images", "queries", "tasks"),
        tuple(entries),
        _notes(part),
        source=_SOURCE,
    )


def gaussian_figures(part: str) -> Iterator[FigureDeclaration]:
    """Declare Figure 2, or the two halves of Figure 3: variances and numbers of tasks."""
    if part == "figure-2":
        curve = _curve(_SHOT, _IMAGES)
        series = [("simulated", curve.variances), ("Eq. 10, fitted", curve.fitted)]
        panels = [Panel("", tuple(Series(name, _points(curve, of)) for name, of in series))]
        yield _declared(part, "Figure 2", "Variance of the mean accuracy", _SQUARED, panels)
        return
    for name, what, axis in (
        ("Figure 3", "Variance of the mean accuracy", _SQUARED),
        ("Figure 3, tasks", "Number of tasks", "tasks"),
    ):
        panels = []
        for title, half in zip(("by images", "by shots"), _HALVES[part], strict=True):
            series = []
            for shot, images in half:
                curve = _curve(shot, images)
                of = curve.variances if axis == _SQUARED else curve.tasks
                label = f"{images:,} images" if title == "by images" else f"{shot} shots"
                series.append(Series(label, _points(curve, of)))
            panels.append(Panel(title, tuple(series)))
        yield _declared(part, name, what, axis, panels)


def _declared(
    part: str, name: str, what: str, axis: str, panels: Sequence[Panel]
) -> FigureDeclaration:
    return FigureDeclaration(
        name,
        f"{what} of tasks from two Gaussian classes.",
        "queries per class",
        axis,
        tuple(panels),
        source=_SOURCE,
        mark="lines",
        notes=_notes(part),
    )


def _points(curve: _Curve, of: Iterable[float]) -> tuple[Point, ...]:
    return tuple(Point(float(q), _known(v)) for q, v in zip(curve.queries, of, strict=True))


def _known(value: float) -> Quantity:
    return Quantity.known(float(f"{value:.4g}"))


def _notes(part: str) -> tuple[str, ...]:
    curve = _curve(_SHOT, _IMAGES)
    best = curve.queries[int(np.argmin(curve.variances))]
    told = (
        f"simulated: {_REPLICATES:,} data sets for each point, nearest class centre, tasks without "
        "replacement from two classes of equal size"
    )
    if part == "figure-3":
        return (told,)
    return (
        told,
        f"the fitted curve explains {100 * curve.explained:.1f} % of the spread; the variance is "
        f"smallest at {called({'queries': str(best)})}",
    )
