"""Shapes of tasks and of training episodes that the data allow, where the user leaves them open."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fsframework.components.registry import Registry
from fsframework.components.resolution import Component
from fsframework.errors import InfeasibleTask, argument
from fsframework.pipeline.experiment.configuration import Experiment
from fsframework.pipeline.experiment.stages import Stage
from fsframework.values import Arms, ImagePool

__all__ = ["Fit", "fitted", "fitted_training", "shape_of", "size_of"]

_FEWEST_WAYS = 2
_WORDS = {
    "n_way": ("way", "ways"),
    "n_shot": ("shot", "shots"),
    "n_query": ("query per class", "queries per class"),
}
_QUERIES = (10, 8, 6, 5, 4, 3, 2, 1)
"""Numbers of queries below the default, in the order tried."""
_MOST_WAYS = 5
"""The most ways below the number of classes that are tried."""
ORIGIN = "what the data allow"


@dataclass(frozen=True)
class Fit:
    """A sampler that a pool allows.

    Args:
        sampler: with its number of ways and queries.
        arms: what was drawn with it.
        note: what was changed and why; empty if nothing was.
    """

    sampler: Component
    arms: Arms
    note: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """Ways, and queries per class."""
        return self.arms.tested.n_way, self.arms.tested.n_query


def fitted(
    sampler: Component, split: str, pool: ImagePool, draw: Callable[[Component], Arms]
) -> Fit:
    """Return what a sampler draws from a pool, with fewer ways or queries if these are open.

    Args:
        sampler: options whose origin is ``default`` are open.
        split: name of the pool, for messages.
        draw: draws with a sampler, or raises ``InfeasibleTask``.

    Raises:
        InfeasibleTask: no tasks can be drawn with the given options; the message names the split
            and its size.
    """
    last = ""
    for other in (sampler, *_alternatives(sampler, pool)):
        n_way = other.options.get("n_way", _FEWEST_WAYS)
        if n_way > len(pool.class_names):
            last = f"{n_way}-way tasks need {n_way} classes"
            continue
        try:
            arms = draw(other)
        except InfeasibleTask as error:
            # The error for the smallest tasks says why none can be drawn.
            last = str(error)
            continue
        return Fit(other, arms, "" if other is sampler else _note(sampler, other, split, pool))
    raise InfeasibleTask(
        f"no such tasks can be drawn from the split {split!r} ({size_of(pool)}): {last}"
    )


def _alternatives(sampler: Component, pool: ImagePool) -> Iterator[Component]:
    """Yield the sampler with fewer queries, then ways, as far as these are open.

    Shots are part of what is measured, and stay.
    """
    shape: dict[str, Any] = {n: sampler.options[n] for n in _WORDS if n in sampler.options}
    choices = {name: [value] for name, value in shape.items()}
    if sampler.origins.get("n_way") == "default":
        most = max(min(shape["n_way"], len(pool.class_names)), _FEWEST_WAYS)
        choices["n_way"] = [most, *range(min(most - 1, _MOST_WAYS), _FEWEST_WAYS - 1, -1)]
    if sampler.origins.get("n_query") == "default":
        room = int(pool.class_sizes.max()) - shape.get("n_shot", 1)
        choices["n_query"] += [q for q in _QUERIES if q < shape["n_query"] and q <= room]
    order = [name for name in ("n_way", "n_query") if name in choices]
    for values in itertools.product(*(choices[name] for name in order)):
        tried = zip(order, values, strict=True)
        changed: dict[str, Any] = {name: v for name, v in tried if v != shape[name]}
        if changed:
            yield sampler.with_options(changed, ORIGIN)


def _note(sampler: Component, other: Component, split: str, pool: ImagePool) -> str:
    changed = [k for k in _WORDS if other.options.get(k) != sampler.options.get(k)]
    return (
        f"the split {split} ({size_of(pool)}) does not allow tasks of "
        f"{shape_of(sampler.options, changed)}; the tasks have {shape_of(other.options, changed)}"
    )


def shape_of(options: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return the numbers of a shape as text.

    >>> shape_of({"n_way": 5, "n_shot": 1, "n_query": 1}, ["n_way", "n_query"])
    '5 ways and 1 query per class'
    """
    parts = [f"{options[name]} {_WORDS[name][options[name] != 1]}" for name in names]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def size_of(pool: ImagePool) -> str:
    """Return the size of a pool as text: ``3 classes of 5 to 25 images, 6 words``."""
    low, high = int(pool.class_sizes.min()), int(pool.class_sizes.max())
    images = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    count = len(pool.class_names)
    text = (
        f"{count:,} {'class' if count == 1 else 'classes'} of {images} "
        f"{'image' if high == 1 else 'images'}"
    )
    if pool.attributes is None:
        return text
    words = len(set(pool.attributes.csr()[1].tolist()))
    return f"{text}, {words:,} {'word' if words == 1 else 'words'}"


def fitted_training(
    experiment: Experiment,
    way_shot: tuple[int, int],
    pool: ImagePool,
    registry: Registry,
) -> tuple[Experiment, str]:
    """Return the experiment with training episodes that the training classes allow, and a note.

    Queries, ways and shots of the episodes are reduced only if neither the user nor a recipe that
    the user named sets them.

    Args:
        way_shot: way and shot of the tasks under test, by default those of the episodes too.
        pool: of the split ``train``.
        registry: that has the sampler of the episodes.

    Raises:
        InfeasibleTask: no episode can be drawn with the given options.
    """
    # Detecting words needs this module, but no PyTorch.
    from fsframework.pipeline.learning.training import check_stages

    stages, why, method = experiment.stages, "", experiment.method.create()
    for tried in itertools.chain([stages], _smaller_stages(experiment, way_shot, pool)):
        try:
            check_stages(tried, method, way_shot, pool, registry)
        except InfeasibleTask as error:
            why = str(error)
            continue
        changed = [one for one, was in zip(tried, stages, strict=True) if one is not was]
        if not changed:
            return experiment, ""
        shape = shape_of(_episode(changed[0], way_shot), _WORDS)
        note = f"the split train ({size_of(pool)}) allows training episodes of {shape}"
        return replace(experiment, stages=tried), note
    raise InfeasibleTask(
        f"the split 'train' ({size_of(pool)}) is too small for {why}; "
        f"{argument('training.epochs', 0)} trains nothing"
    )


def _smaller_stages(
    experiment: Experiment, way_shot: tuple[int, int], pool: ImagePool
) -> Iterator[tuple[Stage, ...]]:
    """Yield the stages with ever smaller episodes, as far as these are open."""
    (way, shot), ways = way_shot, [way_shot[0]]
    if experiment.method.create().n_way is None:
        ways += range(min(way - 1, len(pool.class_names)), _FEWEST_WAYS - 1, -1)
    most = max(stage.n_query for stage in experiment.stages)
    open_origins = ["default"]
    if "recipe" not in experiment.given:
        open_origins += [experiment.recipe.origin] if experiment.recipe else []
        open_origins += [experiment.lent_recipe.lent_origin] if experiment.lent_recipe else []
    last = experiment.stages
    for n_shot, n_way, n_query in itertools.product(range(shot, 0, -1), ways, (most, *_QUERIES)):
        limits = {"n_way": n_way, "n_shot": n_shot, "n_query": n_query}
        stages = []
        for stage, origins in zip(experiment.stages, experiment.origins["training"], strict=True):
            smaller: dict[str, Any] = {
                name: limits[name]
                for name, value in _episode(stage, way_shot).items()
                if limits[name] < value and origins.get(name, "default") in open_origins
            }
            stages.append(replace(stage, **smaller) if smaller else stage)
        if tuple(stages) != last:
            last = tuple(stages)
            yield last


def _episode(stage: Stage, way_shot: tuple[int, int]) -> dict[str, int]:
    return {
        "n_way": stage.n_way or way_shot[0],
        "n_shot": stage.n_shot or way_shot[1],
        "n_query": stage.n_query,
    }
