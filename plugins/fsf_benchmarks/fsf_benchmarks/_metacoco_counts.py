"""MetaCoCo's Tables 1, 4 and 5: how many images there are per split, concept and context.

Source: Zhang et al. 2024, "MetaCoCo: A New Few-Shot Classification Benchmark with Spurious
Correlation", section 3.1 and appendix B. They need no run.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from types import MappingProxyType

import numpy as np

from fsf_benchmarks._published import number_in, rows_of
from fsf_reports.values import Entry, Quantity, TableDeclaration
from fsframework.interfaces import Dataset

__all__ = ["COUNTED", "counted", "printed_benchmarks", "printed_sizes"]

_CONTEXT = "context"
_SPLITS: Mapping[str, str] = MappingProxyType(
    {"train": "training", "val": "validation", "test": "testing"}
)


@functools.cache
def printed_sizes() -> Mapping[tuple[str, str], int]:
    """Return the images that Table 4 prints, by split and concept."""
    path = files("fsf_benchmarks") / "data" / "metacoco_table_4.csv"
    return MappingProxyType(
        {
            (row["split"], row["concept"]): int(number_in(row["images"], 1, 1e6, where))
            for where, row in rows_of(path, ("split", "concept", "images"))
        }
    )


@functools.cache
def printed_benchmarks() -> Mapping[tuple[str, str], int]:
    """Return the numbers that Table 1 prints, by data set and column."""
    path = files("fsf_benchmarks") / "data" / "metacoco_table_1.csv"
    counts = [f"{what}_{split}" for what in ("classes", "images") for split in ("all", *_SPLITS)]
    columns = (*counts, "contexts")
    return MappingProxyType(
        {
            (row["dataset"], column): int(row[column])
            for _, row in rows_of(path, ("dataset", *columns))
            for column in columns
            if row[column]
        }
    )


def counted(table: str, data: Dataset, name: str, printed_as: str) -> TableDeclaration:
    """Count the images of a data set.

    Args:
        table: a key of ``COUNTED``.
        data: the data set.
        name: what it is called here.
        printed_as: what the paper calls it; empty if it does not have it.
    """
    title, row_names, entries, notes = COUNTED[table]
    return TableDeclaration(
        f"Table {table}",
        f"{name}: {title}",
        row_names,
        tuple(entries(data, printed_as)),
        notes,
        source="MetaCoCo",
    )


def _entry(row: tuple[str, ...], column: str, count: int, printed: int | None = None) -> Entry:
    beside = None if printed is None else Quantity.known(printed)
    return Entry(row, column, Quantity.known(count), printed=beside)


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _labels_of(data: Dataset, split: str) -> np.ndarray:  # type: ignore[type-arg]
    """Return the class of each image of a split."""
    pool = data.pool(split)
    return np.array([_spoken(name) for name in pool.class_names])[pool.labels]


def _benchmark(data: Dataset, printed_as: str) -> Iterator[Entry]:
    printed = printed_benchmarks()
    for split in ("all", *(one for one in _SPLITS if one in data.splits)):
        pool = data.pool(split)
        for column, count in (("classes", len(pool.class_names)), ("images", len(pool))):
            yield _entry((split,), column, count, printed.get((printed_as, f"{column}_{split}")))
        found = {one for one in pool.metadata.get(_CONTEXT, ()) if one}
        of_all = printed.get((printed_as, "contexts")) if split == "all" else None
        yield _entry((split,), "contexts", len(found), of_all)


def _concepts(data: Dataset, printed_as: str) -> Iterator[Entry]:
    printed = printed_sizes() if printed_as == "MetaCoCo" else {}
    for split in (one for one in _SPLITS if one in data.splits):
        for concept, images in Counter(_labels_of(data, split).tolist()).most_common():
            yield _entry((split, concept), "images", images, printed.get((_SPLITS[split], concept)))


def _contexts(data: Dataset, printed_as: str) -> Iterator[Entry]:
    del printed_as
    pool = data.pool("all")
    contexts = pool.metadata.get(_CONTEXT, ("",) * len(pool))
    found = Counter(zip(contexts, _labels_of(data, "all").tolist(), strict=True))
    total = Counter(contexts)
    for context, concept in sorted(found, key=lambda key: (-total[key[0]], key[0], -found[key])):
        called = _spoken(context) if context else "none"
        yield _entry((called, concept), "images", found[context, concept])


COUNTED: Mapping[
    str,
    tuple[str, tuple[str, ...], Callable[[Dataset, str], Iterator[Entry]], tuple[str, ...]],
] = MappingProxyType(
    {
        "1": (
            "classes, images and contexts per split",
            ("split",),
            _benchmark,
            ("the similarity of images and concepts, the last column: fsf data similarity",),
        ),
        "4": ("images per concept", ("split", "concept"), _concepts, ()),
        "5": (
            "images per context and concept",
            ("context", "concept"),
            _contexts,
            ("only cells with an image; contexts with more images come first",),
        ),
    }
)
"""Title, names of a row, values and notes of each table of counts."""
