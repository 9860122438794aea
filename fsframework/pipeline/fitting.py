"""Shapes of tasks and of training episodes that the data allow, where the user leaves them open."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, Given, resolve_component
from fsframework.errors import DataError, InfeasibleTask, OptionError
from fsframework.pipeline.experiment.configuration import Experiment, with_way
from fsframework.pipeline.experiment.stages import Stage
from fsframework.pipeline.tasks import control_of
from fsframework.values import Arms, ImagePool

__all__ = ["Fit", "fitted", "fitted_training", "remedy", "shape_of", "size_of"]

_FEWEST_WAYS = 2
_ARGUMENTS = {"n_way": "way", "n_shot": "shot", "n_query": "queries"}
_WORDS = {
    "n_way": ("way", "ways"),
    "n_shot": ("shot", "shots"),
    "n_query": ("query per class", "queries per class"),
}
_QUERIES = (10, 8, 6, 5, 4, 3, 2, 1)
"""Numbers of queries below the default, in the order tried."""
_SHOTS, _MOST_WAYS = (5, 3, 2, 1), 5
"""Shots below those requested, and the most ways below the number of classes, that are tried."""
ORIGIN = "what the data allow"
_OPEN = "open"
"""Origin of a number that the user gave, while a remedy is looked for."""


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
    """Yield the sampler with fewer queries, then ways, then shots, as far as these are open."""
    shape: dict[str, Any] = {n: sampler.options[n] for n in _WORDS if n in sampler.options}
    choices = {name: [value] for name, value in shape.items()}
    if _is_open(sampler, "n_way"):
        most = max(min(shape["n_way"], len(pool.class_names)), _FEWEST_WAYS)
        choices["n_way"] = [most, *range(min(most - 1, _MOST_WAYS), _FEWEST_WAYS - 1, -1)]
    if _is_open(sampler, "n_shot"):
        choices["n_shot"] += [shots for shots in _SHOTS if shots < shape["n_shot"]]
    if _is_open(sampler, "n_query"):
        room = int(pool.class_sizes.max()) - min(choices.get("n_shot", [1]))
        choices["n_query"] += [q for q in _QUERIES if q < shape["n_query"] and q <= room]
    order = [name for name in ("n_shot", "n_way", "n_query") if name in choices]
    for values in itertools.product(*(choices[name] for name in order)):
        tried = zip(order, values, strict=True)
        changed: dict[str, Any] = {name: v for name, v in tried if v != shape[name]}
        if changed:
            yield sampler.with_options(changed, ORIGIN)


def _is_open(sampler: Component, option: str) -> bool:
    """Whether the data decide an option; shots are part of what is measured, and stay."""
    origin = sampler.origins.get(option)
    return origin == _OPEN or (origin == "default" and option != "n_shot")


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
    check: Callable[[Sequence[Stage]], None],
) -> tuple[Experiment, str]:
    """Return the experiment with training episodes that the training classes allow, and a note.

    Queries, ways and shots of the episodes are reduced only if neither the user nor a recipe that
    the user named sets them.

    Args:
        way_shot: way and shot of the tasks under test, by default those of the episodes too.
        pool: of the split ``train``.
        check: raises ``InfeasibleTask`` if an episode of the stages cannot be drawn.

    Raises:
        InfeasibleTask: no episode can be drawn with the given options.
    """
    stages, why = experiment.stages, ""
    for tried in itertools.chain([stages], _smaller_stages(experiment, way_shot, pool)):
        try:
            check(tried)
        except InfeasibleTask as error:
            why = str(error)
            continue
        changed = [one for one, was in zip(tried, stages, strict=True) if one is not was]
        if not changed:
            return experiment, ""
        shape = shape_of(_episode(changed[0], way_shot), _WORDS)
        note = f"the split train ({size_of(pool)}) allows training episodes of {shape}"
        return replace(experiment, stages=tried), note
    raise InfeasibleTask(f"the split 'train' ({size_of(pool)}) is too small for {why}")


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


def remedy(
    experiment: Experiment,
    splits: Sequence[str],
    registry: Registry,
    attempt: Callable[[Experiment], Component],
) -> dict[str, Any]:
    """Return the smallest change of arguments that makes an experiment possible; empty if none.

    Args:
        splits: of the data set.
        attempt: draws the tasks of an experiment and returns their sampler, or raises an error.
    """
    shape = [name for name in _ARGUMENTS if name in experiment.sampler.options]
    given = [name for name in shape if not _is_open(experiment.sampler, name)]
    for changes, start in _changes(experiment, splits, registry):
        for names in itertools.chain.from_iterable(
            itertools.combinations(given, count) for count in range(len(given) + 1)
        ):
            if not (changes or names):
                continue
            asked = start.sampler
            opened = replace(asked, origins={**asked.origins, **dict.fromkeys(names, _OPEN)})
            try:
                found = attempt(with_way(start, opened)).options
            except (DataError, InfeasibleTask, OptionError):
                continue
            return {**changes, **{_ARGUMENTS[name]: found[name] for name in names}}
    return {}


def _changes(
    experiment: Experiment, splits: Sequence[str], registry: Registry
) -> Iterator[tuple[dict[str, Any], Experiment]]:
    """Yield changed arguments with the resulting experiment, the smallest changes first."""
    yield {}, experiment
    settings, trains = experiment.settings, experiment.learns
    control = _control(experiment, registry)
    # With a detector, it would first have to process the other splits.
    if experiment.detector is None and (settings.split is not None or trains):
        seen = {settings.split or "test", *(("train", "all") if trains else ())}
        for split in (*splits, "all"):
            if split not in seen:
                moved = replace(experiment, settings=replace(settings, split=split))
                yield {"split": split}, moved
    if control is not None:
        yield {"sampler": control.name}, with_way(experiment, control)
    if trains and experiment.detector is None:
        stages = tuple(replace(stage, epochs=0) for stage in experiment.stages)
        untrained = replace(experiment, stages=stages)
        yield {"training.epochs": 0}, untrained
        if control is not None:
            both = {"training.epochs": 0, "sampler": control.name}
            yield both, with_way(untrained, control)


def _control(experiment: Experiment, registry: Registry) -> Component | None:
    """Return the control of the sampler as a sampler, if it is installed as one."""
    sampler = experiment.sampler
    declared = control_of(registry, sampler)
    if declared is None or declared[0].name not in registry.names("sampler"):
        return None
    shape = {k: sampler.options[k] for k in _ARGUMENTS if k in sampler.options}
    if any(o != "default" for k, o in sampler.origins.items() if k not in (*shape, "name")):
        return None  # its control does not have its options
    given = {k: Given(v, sampler.origins.get(k, "default")) for k, v in shape.items()}
    return resolve_component(registry, "sampler", {"name": declared[0].name, **given})
