"""What is wrong with a data set, and which tasks it allows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsframework.errors import DataError
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.added import data_problems
from fsframework.pipeline.attributes.sources import attach_attributes
from fsframework.pipeline.progress import Reporter
from fsframework.values import ImagePool

__all__ = ["DataReport", "SplitReport", "check_dataset"]

_USUAL_WAY, _USUAL_QUERY = 5, 15
_SHOWN = 20
_BLOCK = 256
_SMALL = 8
"""Pixels an image is resized to that is only decoded to see whether it can be."""


@dataclass(frozen=True)
class SplitReport:
    """Counts of one split; ``smallest`` and ``largest`` name a class and its images."""

    name: str
    classes: int
    images: int
    smallest: str
    largest: str


@dataclass(frozen=True)
class DataReport:
    """Counts, sentences on the tasks that are possible, and problems found."""

    splits: tuple[SplitReport, ...]
    possible: tuple[str, ...]
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return dataclasses.asdict(self)


def check_dataset(
    dataset: Dataset, attributes: str | None, reporter: Reporter, *, open_images: bool = True
) -> DataReport:
    """Count a data set and look for what is wrong with it.

    Args:
        attributes: source of words, see ``attach_attributes``.
        open_images: whether every image is decoded.
    """
    problems = [*_structure(dataset), *data_problems(dataset)]
    if open_images:
        problems += _unreadable(dataset, reporter)
    splits, possible = [], []
    for name in dataset.splits:
        try:
            pool = dataset.pool(name)
        except DataError as error:
            problems.append(str(error))
            continue
        splits.append(_split_report(name, pool))
        possible.append(_random_tasks(name, pool))
        if attributes is not None or "words" in pool.metadata:
            try:
                with_words = attach_attributes(pool, attributes)
            except DataError as error:
                problems.append(f"split {name}: {error}")
                continue
            possible.append(_biased_tasks(name, with_words))
    return DataReport(tuple(splits), tuple(possible), tuple(problems))


def _structure(dataset: Dataset) -> list[str]:
    found = []
    sizes = np.bincount(dataset.labels, minlength=len(dataset.class_names))
    empty = [dataset.class_names[i] for i in np.flatnonzero(sizes == 0)]
    if empty:
        found.append(f"{len(empty)} classes have no image: {_some(empty)}")
    keys, counts = np.unique(np.array(dataset.keys, dtype=object), return_counts=True)
    if (counts > 1).any():
        found.append(f"{(counts > 1).sum()} keys stand twice: {_some(keys[counts > 1].tolist())}")
    home: dict[str, list[str]] = {}
    for split, names in dataset.splits.items():
        for name in names:
            home.setdefault(name, []).append(split)
    found += [
        f"class {name!r} is in the splits {' and '.join(splits)}"
        for name, splits in home.items()
        if len(splits) > 1
    ]
    outside = [n for n in dataset.class_names if n not in home]
    if outside:
        found.append(f"{len(outside)} classes are in no split: {_some(outside)}")
    return found


def _unreadable(dataset: Dataset, reporter: Reporter) -> list[str]:
    """Decode every image, a block at a time, and name those that cannot be."""
    found = []
    with reporter.stage("opening images", len(dataset.keys)) as advance:
        for start in range(0, len(dataset.keys), _BLOCK):
            block = range(start, min(start + _BLOCK, len(dataset.keys)))
            found += _unreadable_of(dataset, block)
            advance(len(block))
    if len(found) > _SHOWN:
        found = [*found[:_SHOWN], f"{len(found) - _SHOWN} more images cannot be read"]
    return found


def _unreadable_of(dataset: Dataset, block: Sequence[int]) -> list[str]:
    """Return a sentence for each image of a block that cannot be read.

    Data sets decode many at once, on all cores; only a block that fails is gone through one by one.
    """
    try:
        dataset.images(block, _SMALL)
    except DataError:
        pass
    else:
        return []
    found = []
    for index in block:
        try:
            dataset.image(index)
        except DataError as error:
            found.append(str(error))
    return found


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")


def _split_report(name: str, pool: ImagePool) -> SplitReport:
    small, large = int(pool.class_sizes.argmin()), int(pool.class_sizes.argmax())
    return SplitReport(
        name,
        len(pool.class_names),
        len(pool),
        f"{pool.class_sizes[small]} ({pool.class_names[small]})",
        f"{pool.class_sizes[large]} ({pool.class_names[large]})",
    )


def _random_tasks(name: str, pool: ImagePool) -> str:
    room = int(pool.class_sizes.min())
    smallest = pool.class_names[int(pool.class_sizes.argmin())]
    query = min(_USUAL_QUERY, room - 1)
    if len(pool.class_names) < 2 or room < 2:
        return f"{name}: no task is possible; it takes 2 classes of 2 images"
    return (
        f"{name}: random tasks of up to {len(pool.class_names)} ways; shot + query up to {room} "
        f"(class {smallest!r}), so up to {_counted(room - query, 'shot')} "
        f"with {_counted(query, 'query', 'queries')}"
    )


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _biased_tasks(name: str, pool: ImagePool) -> str:
    """Say how many shots FewSTAB tasks can have, from the counts of each word in each class."""
    table = pool.attributes
    assert table is not None
    # Shots a class can give: images with its commonest word that leaves enough queries without.
    shots = np.zeros(len(pool.class_names), dtype=np.int64)
    for label, size in enumerate(pool.class_sizes):
        counts = table.rows(pool.members(label)).sum(axis=0)
        fitting = counts[(counts > 0) & (size - counts >= min(_USUAL_QUERY, size - 1))]
        shots[label] = fitting.max(initial=0)
    way = min(_USUAL_WAY, len(shots))
    best = int(np.sort(shots)[::-1][way - 1])
    usable = int((shots >= 1).sum())
    return (
        f"{name}: attribute-biased tasks with {_USUAL_QUERY} queries from {usable} of "
        f"{len(shots)} classes; {way} ways of up to {_counted(best, 'shot')}"
    )
