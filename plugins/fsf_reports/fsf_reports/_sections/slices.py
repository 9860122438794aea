"""Images that runs fail on together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

import fsf_statistics
from fsf_reports._sections._images import first_images, often_wrong
from fsf_reports.interfaces import ReportedRun, ReportedRuns, Section
from fsf_reports.values import Block, Entry, Gallery, ImageGroup, Quantity, TableDeclaration, Text
from fsframework.api.headlines import points
from fsframework.values import ImagePool

__all__ = ["FailingSlices"]

_MOST_GALLERIES = 4
_MOST_CLASSES = 3


class FailingSlices(Section):
    """The slices that ``fsf slices`` found for runs, with images; nothing where it was not run."""

    title: ClassVar[str] = "Failing slices"
    place: ClassVar[int] = 350

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return a table of the slices of each run, and images of the worst ones."""
        found = [
            (n, run, pool, slices) for n, run in enumerate(runs) for pool, slices in _kept(run)
        ]
        if not found:
            return
        yield Text(
            (
                "Images that lie together in the features of the model and are answered wrongly "
                "more often than other images of their class in the same task. They were found in "
                "half of the tasks and images, and their excess is estimated in the other half. "
                "What they have in common is yours to see; words are a hint.",
            )
        )
        for number, run, pool, slices in found:
            looked = f"{run.label}, {slices.arm} tasks: of {len(slices.tested):,} slices looked at"
            if not slices.rows:
                yield Text((f"{looked}, none is reported.",))
                continue
            yield Text((f"{looked}, {len(slices):,} are reported.",))
            yield _table(run, slices)
            for place, row in enumerate(slices.rows[:_MOST_GALLERIES], start=1):
                yield _gallery(number, run, pool, place, row)


def _kept(run: ReportedRun) -> Iterator[tuple[ImagePool, fsf_statistics.Slices]]:
    pool = None if run.data is None else run.data.pool
    if run.outcomes is not None and pool is not None:
        found = fsf_statistics.kept_slices(run.folder, run.outcomes, pool)
        if found is not None:
            yield pool, found


def _table(run: ReportedRun, slices: fsf_statistics.Slices) -> TableDeclaration:
    entries = []
    for place, row in enumerate(slices.rows, start=1):
        names = (str(place), _classes(row), ", ".join(word.word for word in row.words))
        entries += [
            Entry(names, "excess", Quantity.of(row.estimate)),
            Entry(names, "wrong", Quantity(100 * row.wrong)),
            Entry(names, "images", Quantity(float(len(row.images)), unit="")),
            Entry(names, "p", Quantity(row.p, unit="")),
        ]
    return TableDeclaration(
        f"Failing slices of {run.label}",
        "the greatest excess first",
        ("slice", "classes", "words"),
        tuple(entries),
        (
            "Excess: share of wrong answers to the slice's images minus that to other images of "
            "their class in the same task. Intervals hold for all slices at once.",
            "Words: those that the images of the slice have more often than others of their class.",
        ),
    )


def _classes(row: fsf_statistics.SliceRow) -> str:
    names, left = list(row.classes), len(row.classes) - _MOST_CLASSES
    return ", ".join(names[:_MOST_CLASSES]) + (f", {left:,} more" if left > 0 else "")


def _gallery(
    number: int, run: ReportedRun, pool: ImagePool, place: int, row: fsf_statistics.SliceRow
) -> Gallery:
    """Return wrongly answered images of a slice next to other images of its classes."""
    inside = np.isin(np.array(pool.keys), row.images)
    own = np.isin(np.array(pool.class_names)[pool.labels], list(row.classes)[:_MOST_CLASSES])
    members, others = np.flatnonzero(inside), np.flatnonzero(own & ~inside)
    worst = members[np.argsort(-often_wrong(run, members), kind="stable")]
    best = others[np.argsort(often_wrong(run, others), kind="stable")]
    words = ", ".join(word.word for word in row.words)
    return Gallery(
        f"Slice {place} of {run.label}: {_classes(row)}{f' ({words})' if words else ''}, wrong "
        f"{points(row.estimate)} more often",
        number,
        (
            ImageGroup("In the slice, wrong most often", first_images(worst)),
            ImageGroup("Other images of its classes, wrong least often", first_images(best)),
        ),
    )
