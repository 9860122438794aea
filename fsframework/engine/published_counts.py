"""Classes and images of a data set, and how they differ from those published."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fsframework.interfaces.dataset import Dataset

__all__ = ["SplitCounts", "data_problems", "split_counts"]

_WHOLE = "all"
"""Key of the published counts of a whole data set, where those of its splits are not published."""


@dataclass(frozen=True)
class SplitCounts:
    """Classes and images of a split, as found and as published.

    ``published`` is ``None`` if nothing is published; 0 images mean that only the number of
    classes is.
    """

    name: str
    classes: int
    images: int
    published: tuple[int, int] | None = None

    @property
    def as_published(self) -> bool:
        """Whether the counts are those published, or none are."""
        if self.published is None:
            return True
        classes, images = self.published
        return classes == self.classes and images in (0, self.images)


def split_counts(dataset: Dataset) -> tuple[SplitCounts, ...]:
    """Count every split of a data set, including those published but absent.

    Classes without an image do not count.
    """
    sizes = np.bincount(dataset.labels, minlength=len(dataset.class_names))
    by_name = dict(zip(dataset.class_names, sizes.tolist(), strict=True))
    published = {} if dataset.about is None else dataset.about.counts
    found = []
    for split in dict.fromkeys([*dataset.splits, *published]):
        whole = split == _WHOLE and split not in dataset.splits
        names = dataset.class_names if whole else dataset.splits.get(split, ())
        held = [by_name.get(name, 0) for name in names]
        classes, images = sum(size > 0 for size in held), sum(held)
        found.append(SplitCounts(split, classes, images, published.get(split)))
    return tuple(found)


def data_problems(dataset: Dataset) -> list[str]:
    """Return what is wrong with data that can be used, one sentence per problem.

    These are the problems that the data set itself reports; if it reports none, its counts are
    compared with those published.
    """
    own = dataset.problems()
    if own or dataset.about is None:
        return own
    return [
        f"split {split.name}: {split.classes:,} classes and {split.images:,} images, published are "
        f"{split.published[0]:,}"
        + (f" and {split.published[1]:,}" if split.published[1] else " classes")
        for split in split_counts(dataset)
        if not split.as_published and split.published is not None
    ]
