"""Splits, ways and queries that the data allow, where the user leaves them open."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from fsframework.components.resolution import Component
from fsframework.errors import InfeasibleTask, argument
from fsframework.values import ImagePool

__all__ = ["Fit", "fitted", "split_candidates"]

_FEWEST_WAYS = 2
_QUERIES = (10, 8, 6, 5, 4, 3, 2, 1)
"""Numbers of queries tried below the default."""
ORIGIN = "what the data allow"


@dataclasses.dataclass(frozen=True)
class Fit:
    """A sampler that a pool allows.

    Args:
        sampler: with its number of ways and queries.
        arms: what was drawn with it.
        note: what was changed and why; empty where nothing was.
    """

    sampler: Component
    arms: Any
    note: str = ""


def split_candidates(splits: list[str], given: str | None, *, trains: bool) -> list[str]:
    """Return the splits that tasks may come from, the usual one first.

    Where nothing is trained, no image was seen before, and all of them may be asked.

    >>> split_candidates(["train", "test"], None, trains=True)
    ['test']
    >>> split_candidates(["images"], None, trains=False)
    ['all']
    """
    if given is not None:
        return [given]
    usual = ["test"] if "test" in splits else []
    return [*usual, *([] if trains else ["all"])] or ["test"]


def fitted(
    sampler: Component, split: str, pool: ImagePool, draw: Callable[[Component], Any]
) -> Fit:
    """Return what a sampler draws from a pool, with fewer ways or queries where they are open.

    Args:
        sampler: options whose origin is ``default`` are open.
        split: name of the pool, for messages.
        draw: draws with a sampler, or raises ``InfeasibleTask``.

    Raises:
        InfeasibleTask: no tasks can be drawn with what was given; the message names the split, its
            numbers and arguments that would do.
    """
    try:
        return Fit(sampler, draw(sampler))
    except InfeasibleTask as error:
        reason = str(error)
    for other in _alternatives(sampler, pool, _open_options(sampler)):
        try:
            arms = draw(other)
        except InfeasibleTask:
            continue
        return Fit(other, arms, _note(sampler, other, split, pool))
    raise InfeasibleTask(
        f"the split {split!r} has {_counts(pool)} and cannot yield these tasks: {reason}"
        + _remedy(sampler, pool, draw)
    )


def _open_options(sampler: Component) -> list[str]:
    names = ("n_way", "n_query")
    return [n for n in names if n in sampler.options and sampler.origins.get(n) == "default"]


def _alternatives(sampler: Component, pool: ImagePool, names: list[str]) -> Iterator[Component]:
    """Yield the sampler with fewer queries, then with fewer ways."""
    if not names:
        return
    way, query = sampler.options.get("n_way", 5), sampler.options.get("n_query", 15)
    ways, queries = [way], [query]
    if "n_way" in names:
        ways = list(range(min(way, len(pool.class_names)), _FEWEST_WAYS - 1, -1))
    if "n_query" in names:
        room = int(pool.class_sizes.max()) - sampler.options.get("n_shot", 1)
        queries = [query, *(q for q in _QUERIES if q < query and q <= room)]
    for n_way in ways:
        for n_query in queries:
            if (n_way, n_query) != (way, query):
                yield _with(sampler, {"n_way": n_way, "n_query": n_query})


def _with(sampler: Component, values: dict[str, int]) -> Component:
    changed = {k: v for k, v in values.items() if sampler.options.get(k, v) != v}
    return dataclasses.replace(
        sampler,
        options={**sampler.options, **changed},
        origins={**sampler.origins, **dict.fromkeys(changed, ORIGIN)},
    )


_ARGUMENTS = {"n_way": "way", "n_shot": "shot", "n_query": "queries"}


def _differences(sampler: Component, other: Component) -> list[str]:
    return [
        argument(name, other.options[option])
        for option, name in _ARGUMENTS.items()
        if other.options.get(option) != sampler.options.get(option)
    ]


def _note(sampler: Component, other: Component, split: str, pool: ImagePool) -> str:
    return (
        f"the split {split} has {_counts(pool)}, so that the tasks have "
        f"{' and '.join(_differences(sampler, other))}"
    )


def _remedy(sampler: Component, pool: ImagePool, draw: Callable[[Component], Any]) -> str:
    """Name arguments with which such tasks can be drawn, if there are any."""
    for n_shot in dict.fromkeys((sampler.options.get("n_shot", 1), 1)):
        start = _with(sampler, {"n_shot": n_shot})
        for other in (start, *_alternatives(start, pool, ["n_way", "n_query"])):
            try:
                draw(other)
            except InfeasibleTask:
                continue
            return f"; this works: {' '.join(_differences(sampler, other))}"
    return ""


def _counts(pool: ImagePool) -> str:
    low, high = int(pool.class_sizes.min()), int(pool.class_sizes.max())
    images = f"{low}" if low == high else f"{low} to {high}"
    count = len(pool.class_names)
    return f"{count:,} {'class' if count == 1 else 'classes'} of {images} images"
