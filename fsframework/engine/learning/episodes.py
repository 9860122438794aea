"""The episodes of a training: whether its stages can learn from them, smaller ones where needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fsframework._calls import checked
from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, resolve_component
from fsframework.engine.configuration import Experiment
from fsframework.engine.stages import Stage
from fsframework.engine.tasks import FEWEST_WAYS, QUERIES, SHAPE, keeps_most, shape_text, size_text
from fsframework.errors import InfeasibleTask, OptionError, argument
from fsframework.interfaces.method import FewShotMethod
from fsframework.values import ImagePool, TaskSet

__all__ = ["EPISODES", "drawn_episodes", "fitted_stages"]

EPISODES = "random"
"""The sampler that training episodes are drawn with."""


def fitted_stages(
    experiment: Experiment, way_shot: tuple[int, int], pool: ImagePool, registry: Registry
) -> tuple[tuple[Stage, ...], str]:
    """Return the stages with episodes that the training classes allow, and a note if they change.

    Args:
        way_shot: way and shot of the tasks under test, by default those of the episodes too.
        pool: of the split ``train``.
        registry: that has the sampler of the episodes.

    Raises:
        InfeasibleTask: no episode can be drawn with the given options.
        OptionError: a stage has nothing to learn from, or requires what its method does not
            support.
    """
    stages, method = experiment.stages, experiment.method.create()
    ways = range(min(way_shot[0] - 1, len(pool.class_names)), FEWEST_WAYS - 1, -1)
    lower = ways if method.n_way is None else ()
    why = ""
    for tried in itertools.chain([stages], _smaller(experiment, way_shot, lower)):
        try:
            _check_stages(tried, method, way_shot, pool, registry)
        except InfeasibleTask as error:
            why = str(error)
            continue
        changed = [one for one, was in zip(tried, stages, strict=True) if one is not was]
        if not changed:
            return tried, ""
        shape = shape_text(changed[0].episode(way_shot), SHAPE)
        return tried, f"the split train ({size_text(pool)}) allows training episodes of {shape}"
    raise InfeasibleTask(
        f"the split 'train' ({size_text(pool)}) is too small for {why}; "
        f"{argument('training.epochs', 0)} trains nothing"
    )


def _smaller(
    experiment: Experiment, way_shot: tuple[int, int], ways: Sequence[int]
) -> Iterator[tuple[Stage, ...]]:
    """Yield the stages with ever smaller episodes, as far as these are open.

    Args:
        ways: below that of the tasks under test.
    """
    (way, shot), stages = way_shot, experiment.stages
    queries = max(stage.n_query for stage in stages), *QUERIES
    last = stages
    for n_shot, n_way, n_query in itertools.product(range(shot, 0, -1), (way, *ways), queries):
        limits = {"n_way": n_way, "n_shot": n_shot, "n_query": n_query}
        tried = tuple(
            _limited(stage, {name: limits[name] for name in names if name in limits}, way_shot)
            for stage, names in zip(stages, experiment.reducible, strict=True)
        )
        if tried != last:
            last = tried
            yield tried


def _limited(stage: Stage, limits: Mapping[str, int], way_shot: tuple[int, int]) -> Stage:
    """Return a stage whose episodes exceed no limit."""
    shape = stage.episode(way_shot)
    smaller: dict[str, Any] = {name: n for name, n in limits.items() if n < shape[name]}
    return replace(stage, **smaller) if smaller else stage


def _check_stages(
    stages: Sequence[Stage],
    method: FewShotMethod,
    way_shot: tuple[int, int],
    pool: ImagePool,
    registry: Registry,
) -> None:
    """Check each stage and draw one episode, so that impossible requests fail early.

    Raises:
        InfeasibleTask: the training classes cannot yield an episode.
        OptionError: a stage has nothing to learn from, or requires what its method does not
            support.
    """
    episodes = resolve_component(registry, "sampler", EPISODES)
    for number, stage in enumerate(stages, start=1):
        if not stage.epochs:
            continue
        where = f"training stage {number}" if len(stages) > 1 else "training"
        trained = method if stage.method is None else stage.method.create()
        shown = stage.shown(trained.learns_from)
        _check_method(stage, trained, shown, where)
        if trained.uses_labels and not pool.labelled:
            raise OptionError(
                f"{where}: {type(trained).__name__} learns from labels, but the images of the "
                "split 'train' have none; use a method that learns without, such as simclr"
            )
        if shown in ("batches", "views"):
            continue
        shape = stage.episode(way_shot)
        if trained.n_way not in (None, shape["n_way"]):
            raise OptionError(
                f"{where}: episodes have {shape['n_way']} ways, but {type(trained).__name__} is "
                f"made for {trained.n_way} (method.n_way)"
            )
        try:
            if not keeps_most(pool, shape):
                raise InfeasibleTask(
                    f"more than half of the classes have fewer than {shape['n_shot']} + "
                    f"{shape['n_query']} images"
                )
            drawn_episodes(episodes, shape, pool, 1, 0)
        except InfeasibleTask as error:
            raise InfeasibleTask(
                f"training episodes (training.n_way, n_shot and n_query): {error}"
            ) from None


def _check_method(stage: Stage, trained: FewShotMethod, shown: str, where: str) -> None:
    """Check that a method can learn in the way that a stage asks for."""
    name = type(trained).__name__
    if shown == "nothing":
        raise OptionError(
            f"{where}: {name} does not learn; name the method that trains the backbone, such "
            "as training.method=baseline"
        )
    if shown == "views" and trained.views is None:
        raise OptionError(f"{where}: {name} makes no views of images to learn from")
    if stage.distill and stage.method is not None:
        raise OptionError(
            f"{where}: distill makes the method under test the teacher; omit training.method, or "
            "name a run as the teacher (training.teacher)"
        )
    if stage.distils and not _learns_from_teachers(trained, shown):
        raise OptionError(
            f"{where}: {name} learns from {shown} without a teacher; distill and teacher need a "
            "method that learns from batches and a teacher, such as rfs, or from views and a "
            "teacher, such as unisiam"
        )
    if stage.compile and (trained.consumes == "images" or trained.trains_on_images):
        raise OptionError(
            f"{where}: compile works only where the backbone sees each image once, not with "
            f"{name}, which runs the backbone itself"
        )


def _learns_from_teachers(method: FewShotMethod, shown: str) -> bool:
    """Return whether a teacher has something for the steps of a method."""
    if shown == "views":
        return type(method).view_vectors is not FewShotMethod.view_vectors
    return shown in ("batches", "both")


def drawn_episodes(
    episodes: Component, shape: Mapping[str, int], pool: ImagePool, count: int, seed: int
) -> TaskSet:
    """Draw tasks of a shape."""
    sampler = replace(episodes, options={**episodes.options, **shape})
    made = sampler.create()
    drawn: TaskSet = made.draw(pool, count, seed)
    return checked(made, "draw", drawn, TaskSet)
