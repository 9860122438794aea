"""Shapes of tasks and of training episodes that the data allow, where the user leaves them open."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, resolve_component
from fsframework.errors import DataError, InfeasibleTask, OptionError
from fsframework.pipeline.experiment.configuration import Experiment, with_way
from fsframework.pipeline.experiment.stages import Stage
from fsframework.pipeline.tasks import control_of
from fsframework.values import Arms, ImagePool

__all__ = ["Fit", "fitted", "fitted_training", "remedy", "shape_of", "size_of", "split_candidates"]

_FEWEST_WAYS = 2
_QUERIES = (10, 8, 6, 5, 4, 3, 2, 1)
"""Numbers of queries below the default, in the order tried."""
_SHOTS, _MOST_WAYS = (5, 3, 2, 1), 5
"""Shots below those requested, and the most ways, tried for a remedy."""
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


def split_candidates(splits: Sequence[str], given: str | None, *, trains: bool) -> list[str]:
    """Return the splits that tasks may come from, the usual one first.

    If nothing is trained, the model has seen no image, and tasks may use all of them.

    >>> split_candidates(["train", "test"], None, trains=True)
    ['test']
    >>> split_candidates(["train", "test"], None, trains=False)
    ['test', 'all']
    >>> split_candidates(["images"], None, trains=False)
    ['all']
    """
    if given is not None:
        return [given]
    usual = ["test"] if "test" in splits else []
    return [*usual, *([] if trains else ["all"])]


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
    """Yield the sampler with fewer queries, then with fewer ways, as far as these are open."""
    options = sampler.options
    ways, queries = [options.get("n_way")], [options.get("n_query")]
    if _is_open(sampler, "n_way"):
        most = max(min(options["n_way"], len(pool.class_names)), _FEWEST_WAYS)
        ways = list(range(most, _FEWEST_WAYS - 1, -1))
    if _is_open(sampler, "n_query"):
        room = int(pool.class_sizes.max()) - options.get("n_shot", 1)
        queries += [q for q in _QUERIES if q < options["n_query"] and q <= room]
    for n_way, n_query in itertools.product(ways, queries):
        changed = {"n_way": n_way, "n_query": n_query}
        other = _with(sampler, changed, ORIGIN)
        if other is not sampler:
            yield other


def _is_open(sampler: Component, option: str) -> bool:
    return option in sampler.options and sampler.origins.get(option) == "default"


def _with(sampler: Component, values: Mapping[str, Any], origin: str) -> Component:
    changed = {k: v for k, v in values.items() if k in sampler.options and sampler.options[k] != v}
    if not changed:
        return sampler
    return dataclasses.replace(
        sampler,
        options={**sampler.options, **changed},
        origins={**sampler.origins, **dict.fromkeys(changed, origin)},
    )


def _note(sampler: Component, other: Component, split: str, pool: ImagePool) -> str:
    changed = [k for k in ("n_way", "n_query") if other.options.get(k) != sampler.options.get(k)]
    return (
        f"the split {split} ({size_of(pool)}) does not allow tasks of "
        f"{shape_of(sampler.options, changed)}; the tasks have {shape_of(other.options, changed)}"
    )


def shape_of(options: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return the numbers of a shape as text.

    >>> shape_of({"n_way": 5, "n_shot": 1, "n_query": 1}, ["n_way", "n_query"])
    '5 ways and 1 query per class'
    """
    words = {
        "n_way": ("way", "ways"),
        "n_shot": ("shot", "shots"),
        "n_query": ("query per class", "queries per class"),
    }
    parts = [f"{options[name]} {words[name][options[name] != 1]}" for name in names]
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
    last: InfeasibleTask | None = None
    for stages, note in _trainings(experiment, way_shot, pool):
        try:
            check(stages)
        except InfeasibleTask as error:
            last = error
            continue
        return dataclasses.replace(experiment, stages=tuple(stages)) if note else experiment, note
    assert last is not None
    raise InfeasibleTask(f"the split 'train' ({size_of(pool)}) is too small for {last}")


def _trainings(
    experiment: Experiment, way_shot: tuple[int, int], pool: ImagePool
) -> Iterator[tuple[Sequence[Stage], str]]:
    """Yield the stages as given, then with smaller episodes, each with a note on the change."""
    stages = experiment.stages
    yield stages, ""
    fixed = experiment.method.create().n_way is not None
    ways = [way_shot[0]]
    if not fixed:
        ways += range(min(way_shot[0] - 1, len(pool.class_names)), _FEWEST_WAYS - 1, -1)
    most = max(stage.n_query for stage in stages)
    shots = range(way_shot[1], 0, -1)
    for n_shot, n_way, n_query in itertools.product(shots, ways, (most, *_QUERIES)):
        limits = {"n_way": n_way, "n_shot": n_shot, "n_query": n_query}
        changed = [_limited(experiment, number, limits, way_shot) for number in range(len(stages))]
        first = next((i for i, one in enumerate(changed) if one is not stages[i]), None)
        if first is None:
            continue
        shape = shape_of(_episode(changed[first], way_shot), limits)
        yield changed, f"the split train ({size_of(pool)}) allows training episodes of {shape}"


def _episode(stage: Stage, way_shot: tuple[int, int]) -> dict[str, int]:
    way, shot = way_shot
    return {
        "n_way": stage.n_way or way,
        "n_shot": stage.n_shot or shot,
        "n_query": stage.n_query,
    }


def _limited(
    experiment: Experiment, number: int, limits: Mapping[str, int], way_shot: tuple[int, int]
) -> Stage:
    """Return a stage with open ways, shots and queries reduced to the limits."""
    stage, origins = experiment.stages[number], experiment.origins["training"][number]
    open_origins = {"default"}
    if experiment.recipe is not None and "recipe" not in experiment.given:
        open_origins.add(f"recipe {experiment.recipe.name}")
    now = _episode(stage, way_shot)
    smaller: dict[str, Any] = {
        name: limit
        for name, limit in limits.items()
        if limit < now[name] and origins.get(name, "default") in open_origins
    }
    return dataclasses.replace(stage, **smaller) if smaller else stage


def remedy(
    experiment: Experiment,
    splits: Sequence[str],
    n_classes: int,
    registry: Registry,
    attempt: Callable[[Experiment], object],
) -> dict[str, Any]:
    """Return the smallest change of arguments that makes an experiment possible; empty if none.

    Args:
        splits: of the data set.
        n_classes: of the whole data set.
        attempt: prepares an experiment, or raises an error.
    """
    for changes, changed in _remedies(experiment, splits, n_classes, registry):
        try:
            attempt(changed)
        except (DataError, InfeasibleTask, OptionError):
            continue
        return changes
    return {}


def _remedies(
    experiment: Experiment, splits: Sequence[str], n_classes: int, registry: Registry
) -> Iterator[tuple[dict[str, Any], Experiment]]:
    """Yield changed arguments with the resulting experiment, the smallest changes first."""
    starts: list[tuple[dict[str, Any], Experiment]] = [({}, experiment)]
    settings, trains = experiment.settings, experiment.learns
    if experiment.detector is None and (settings.split is not None or trains):
        # With a detector, it would first have to process the other splits.
        seen = ("train", "all") if trains else ()
        for split in dict.fromkeys((*splits, "all")):
            if split not in (settings.split or "test", *seen):
                found = dataclasses.replace(settings, split=split)
                starts.append(({"split": split}, dataclasses.replace(experiment, settings=found)))
    control = _control(experiment, registry)
    if control is not None:
        starts.append(({"sampler": control.name}, with_way(experiment, control)))
    if trains and experiment.detector is None:
        stages = tuple(dataclasses.replace(stage, epochs=0) for stage in experiment.stages)
        untrained = dataclasses.replace(experiment, stages=stages)
        starts.append(({"training.epochs": 0}, untrained))
        if control is not None:
            both = {"training.epochs": 0, "sampler": control.name}
            starts.append((both, with_way(untrained, control)))
    for changes, start in starts:
        if changes:
            yield changes, start
        for shape, changed in _smaller(start, n_classes):
            yield {**changes, **shape}, changed


def _control(experiment: Experiment, registry: Registry) -> Component | None:
    """Return the control of the sampler as a sampler, if it is installed as one."""
    sampler = experiment.sampler
    declared = control_of(registry, sampler)
    if declared is None or declared[0].name not in registry.names("sampler"):
        return None
    shape = {k: sampler.options[k] for k in _ARGUMENTS if k in sampler.options}
    if any(o != "default" for k, o in sampler.origins.items() if k not in (*shape, "name")):
        return None  # its control does not have its options
    control = resolve_component(registry, "sampler", {"name": declared[0].name, **shape})
    origins = {**control.origins, **{k: sampler.origins.get(k, "default") for k in shape}}
    return dataclasses.replace(control, origins=origins)


_ARGUMENTS = {"n_way": "way", "n_shot": "shot", "n_query": "queries"}


def _smaller(experiment: Experiment, n_classes: int) -> Iterator[tuple[dict[str, int], Experiment]]:
    """Yield the experiment with smaller tasks: with one number changed, then two, then three."""
    sampler = experiment.sampler
    choices: dict[str, list[int]] = {}
    ways = dict.fromkeys((n_classes, *range(min(n_classes, _MOST_WAYS), 1, -1)))
    for option, tried in (("n_way", ways), ("n_shot", _SHOTS), ("n_query", _QUERIES)):
        # Open ways and queries are fitted anyway.
        if option == "n_shot" or not _is_open(sampler, option):
            asked = sampler.options.get(option, 0)
            choices[option] = [value for value in tried if value < asked]
    for count in range(1, len(choices) + 1):
        for names in itertools.combinations(choices, count):
            for values in itertools.product(*(choices[name] for name in names)):
                changed = dict(zip(names, values, strict=True))
                shape = {_ARGUMENTS[name]: value for name, value in changed.items()}
                yield shape, with_way(experiment, _with(sampler, changed, "remedy"))
