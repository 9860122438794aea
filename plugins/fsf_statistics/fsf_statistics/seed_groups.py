"""What differs only in its training seed, joined."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

from fsframework.statistics.results import MethodResult

__all__ = ["grouped_by_seeds", "joined_over_seeds"]

T = TypeVar("T")


def joined_over_seeds(results: Sequence[MethodResult]) -> list[MethodResult]:
    """Return results with those that differ only in their training seed joined to one.

    Results are joined if the groups of their runs and their labels are equal, in the order of their
    seeds. A seed that appears again, as in a copy of a run, begins another result.
    """

    def told(one: MethodResult) -> tuple[str, int | None]:
        group = one.records[0].group if one.records else ""
        return group and f"{group} {one.label}", one.records[0].training_seed if group else None

    return [
        dataclasses.replace(
            group[0],
            records=tuple(record for one in group for record in one.records),
            other_seeds=tuple(model for one in group for model in one.models)[1:],
        )
        for group in grouped_by_seeds(results, told)
    ]


def grouped_by_seeds(
    items: Sequence[T], told: Callable[[T], tuple[str, int | None]]
) -> list[list[T]]:
    """Return items that differ only in their training seed together, in the order of their seeds.

    Args:
        items: groups are in the order of their first items.
        told: group of an item and its training seed. Without a group, which is empty then, or a
            seed an item stays alone; one with a seed that its group has already begins another.

    >>> runs = [("a", 1), ("b", 0), ("a", 0), ("a", 1)]
    >>> grouped_by_seeds(runs, lambda run: run)
    [[('a', 0), ('a', 1)], [('b', 0)], [('a', 1)]]
    """
    found: list[dict[int | None, T]] = []
    by_group: dict[str, list[dict[int | None, T]]] = {}
    for item in items:
        group, seed = told(item)
        alike = by_group.setdefault(group, []) if group and seed is not None else []
        own = next((one for one in alike if seed not in one), None)
        if own is None:
            own = {}
            alike.append(own)
            found.append(own)
        own[seed] = item
    return [[own[seed] for seed in sorted(own, key=lambda one: one or 0)] for own in found]
