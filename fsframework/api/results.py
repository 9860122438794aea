"""Estimates of outcomes, and their comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsframework.api.experiments import ORIGIN
from fsframework.api.running import Run
from fsframework.components.objects import named
from fsframework.components.registry import Registry
from fsframework.components.resolution import Given, resolve_component
from fsframework.interfaces.statistic import Statistic
from fsframework.pipeline.experiment.arguments import given_tree
from fsframework.statistics.estimation import estimates_of
from fsframework.statistics.estimators import Interval, IntervalChoice
from fsframework.values import ArmOutcomes, Estimates, ImagePool

__all__ = ["estimate", "statistics_of"]


def statistics_of(registry: Registry, requests: Any) -> dict[str, Statistic]:
    """Return statistics by name: from a name, a mapping with options, a class, an instance, or
    several of these."""
    several = requests if isinstance(requests, (list, tuple)) else [requests]
    found: dict[str, Statistic] = {}
    for request in several:
        tree: Any = Given(request, ORIGIN)
        if not isinstance(request, str):
            tree = given_tree({"statistics": request}, ORIGIN)["statistics"]
        component = resolve_component(registry, "statistic", named(registry, "statistic", tree))
        found[component.name] = component.create()
    return found


def estimate(
    outcomes: ArmOutcomes | Run,
    statistic: Any | Sequence[Any] = "wacc",
    *,
    level: float = 0.95,
    interval: Interval = "student-t",
    pool: ImagePool | None = None,
) -> Estimates:
    """Estimate statistics of every arm, and of their contrast.

    Whether an interval is open (it speaks of the data's distribution) or closed (of this data set)
    is decided from the tasks; see ``Estimate.scope``. Arms that are pairs are compared task by
    task, others by Welch's interval. A gap is positive where the tested arm is worse.

    Args:
        outcomes: what ``fsframework.evaluate`` returned, or a run.
        statistic: a name (``acc``, ``wacc``), a mapping of a name and options, a class or an
            instance; or several of these.
        level: confidence level, 0 < level < 1.
        interval: ``student-t``, ``percentile``, ``bca``, ``image-level`` or ``class-level``.
        pool: that the tasks were drawn from, for the last two.

    Raises:
        OptionError: the level or the interval is not one of those allowed.
        DataError: a statistic cannot be computed from these outcomes.
    """
    class_sizes = None if pool is None else pool.class_sizes
    if isinstance(outcomes, Run):
        tested = outcomes.record.tested
        if class_sizes is None and tested is not None and tested.class_sizes:
            import numpy as np

            class_sizes = np.asarray(tested.class_sizes)
        outcomes = outcomes.outcomes
    choice = IntervalChoice(level, interval)
    return Estimates(
        estimates_of(statistics_of(Registry(), statistic), outcomes, choice, class_sizes)
    )
