"""The number of queries found by a pilot run, for experiments that leave it open."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.errors import InfeasibleTask, OptionError, argument
from fsframework.pipeline.experiment.configuration import Experiment
from fsframework.pipeline.learning.training import EPISODES
from fsframework.records import load_outcomes
from fsframework.statistics.planning import TaskSupply, best_queries
from fsframework.statistics.query_variance import QueryVariance, pilot_of

__all__ = ["with_planned_queries"]

_MOST_QUERIES = 100
"""Most queries per class of a pilot: more add time and little information."""


def with_planned_queries(
    experiment: Experiment, registry: Registry, run: Callable[[Experiment], Path]
) -> Experiment:
    """Return the experiment with the number of queries that a pilot run finds best.

    The pilot has ``pilot_tasks`` random tasks of the same ways, shots and seed, with as many
    queries as every class can give, 100 at most; it trains the same model, once for both.

    Args:
        experiment: with ``queries=auto``.
        registry: to find the sampler of the pilot.
        run: runs an experiment and returns its folder.

    Raises:
        OptionError: the sampler is not one without replacement, or the queries are given too.
        InfeasibleTask: the classes are too small for a pilot.
    """
    settings, sampler = experiment.settings, experiment.sampler
    if settings.task_file is not None:
        raise OptionError(
            f"{argument('task_file', str(settings.task_file))} sets the number of queries; leave "
            f"out {argument('queries', 'auto')}"
        )
    if sampler.cls.independent or sampler.cls.needs_attributes:
        raise OptionError(
            f"{argument('queries', 'auto')} plans tasks without replacement, where more queries "
            f"leave fewer tasks; the sampler {sampler.name} draws with replacement: give "
            f"{argument('sampler', 'depleting')}, or a number of queries"
        )
    if sampler.origins.get("n_query", "default") != "default":
        raise OptionError("the queries are given both as auto and as a number; leave out one")
    shape = {name: sampler.options[name] for name in ("n_way", "n_shot")}
    sizes = experiment.dataset.create().pool(settings.split or "test").class_sizes
    n_query = min(int(sizes.min()) - shape["n_shot"], _MOST_QUERIES)
    if n_query < 2:
        raise InfeasibleTask(
            f"a pilot needs n_shot + 2 = {shape['n_shot'] + 2} images of every class, and one has "
            f"{sizes.min()}: give {argument('queries')}"
        )
    random = resolve_component(registry, "sampler", {"name": EPISODES, **shape, "n_query": n_query})
    pilot = dataclasses.replace(
        experiment,
        sampler=random,
        settings=dataclasses.replace(settings, queries="given", tasks=settings.pilot_tasks),
    )
    folder = run(pilot)
    answered = load_outcomes(folder)
    [(arm, outcomes)] = answered.items()
    variance = QueryVariance.of(pilot_of(answered.arms[arm], outcomes))
    supply = TaskSupply(tuple(int(n) for n in sizes), shape["n_way"], shape["n_shot"])
    advised = best_queries(supply, variance, settings.level)
    origin = f"pilot {folder.name}"
    chosen = dataclasses.replace(
        sampler,
        options={**sampler.options, "n_query": advised},
        origins={**sampler.origins, "n_query": origin},
    )
    origins = {**experiment.origins, "sampler": chosen.origins_json()}
    if "tasks" not in experiment.given:
        settings = dataclasses.replace(settings, tasks=None)
        origins["tasks"] = argument("queries", "auto")
    return dataclasses.replace(
        experiment,
        sampler=chosen,
        settings=settings,
        origins=origins,
        planned=(f"queries planned by the run {folder.name}: {_reason(variance, advised)}",),
    )


def _reason(variance: QueryVariance, advised: int) -> str:
    """Return what the pilot found and what is advised, as a sentence."""
    best, cautious = (
        "unbounded" if math.isinf(q) else f"{q:.2g}" for q in (variance.best, variance.cautious)
    )
    allowing = f" ({cautious} allowing for failed tasks that it may have missed)"
    return (
        f"Q* = {best} queries per class from {variance.n_tasks:,} tasks"
        f"{allowing if cautious != best else ''}; advised: "
        f"{'1 query' if advised == 1 else f'{advised} queries'} per class, the shortest interval "
        "that these data give"
    )
