"""From outcomes to estimates with intervals whose scope is decided here, never declared."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fsframework.errors import DataError
from fsframework.interfaces.statistic import Statistic
from fsframework.statistics.differences import ComparisonOptions
from fsframework.statistics.estimators import IntervalChoice
from fsframework.statistics.measures import measures_of
from fsframework.statistics.results import MethodResult
from fsframework.statistics.task_values import estimates_of_methods, values_of
from fsframework.values import Estimate, Outcomes

__all__ = ["FEWEST_ANSWERS", "estimates_of", "saturation"]

FEWEST_ANSWERS = 100
"""With fewer wrong (or right) answers, 95 % intervals held the truth in 90 to 92 % of cases."""

_NEAR_THE_END = 0.2
"""Share of wrong (or right) answers up to which a value is close to the end of the scale."""

_USUAL = IntervalChoice()


def saturation(outcomes: Outcomes) -> str | None:
    """Return a warning where nearly all answers are right or wrong, or there are few answers.

    >>> saturation(Outcomes(np.zeros((2, 2, 5)), "digest", 40, False)) is None
    False
    """
    right = int((outcomes.predictions == np.arange(outcomes.n_way)[None, :, None]).sum())
    total = outcomes.predictions.size
    fewer, what = min((total - right, "wrong"), (right, "right"))
    if fewer >= FEWEST_ANSWERS:
        return None
    if fewer > _NEAR_THE_END * total:
        why = "in so small a sample"
    else:
        why = "this close to the end of the scale"
    return (
        f"only {fewer:,} of {total:,} answers are {what}: {why}, intervals contain the true value "
        "less often than their level says; more tasks help"
    )


def estimates_of(
    statistics: Mapping[str, Statistic], result: MethodResult, choice: IntervalChoice = _USUAL
) -> dict[str, Estimate]:
    """Estimate every statistic in every arm, and the contrast of the arms where there is one.

    An interval is *open* (it speaks of the distribution the data came from) only if no image
    appears in two tasks, or if it is an ``image-level`` or ``class-level`` one; else it is
    *closed*: it speaks of this data set and would shrink to nothing with more tasks. The two levels
    assume that classes and images were drawn uniformly, which a sampler declares, and that tasks
    share images: otherwise Student's interval is made.

    A gap says how much worse a statistic is in the tested arm than in the control arm. Where the
    arms are paired, its interval is that of the differences task by task. Otherwise the two task
    sets were drawn independently, and it is Welch's (1947) for a difference of means, or a
    bootstrap of both where one is asked for.

    Source: FewSTAB, appendix B (gap = wAcc-R - wAcc-A); the paper prints no interval for it.

    Args:
        statistics: by name.
        result: the outcomes; with several training seeds, seeds and tasks are crossed.
        choice: the chosen interval.

    Returns:
        Estimates by name of the measure: ``wacc-random``, ``wacc-biased``, ``wacc-gap``; also
        ``wacc-drop``, the relative drop, unless guessing is not known or the control arm near it.

    Raises:
        DataError: a statistic cannot be computed, or the interval needs sizes of the classes.
    """
    found: dict[str, Estimate] = {}
    for name, statistic in statistics.items():
        for measure in measures_of(name, result.outcomes, result.contrast):
            try:
                values = values_of([result], measure, statistic)
            except DataError:
                if not measure.relative:
                    raise
                continue  # the value in the control arm tells that it is near guessing
            [one] = estimates_of_methods([name], values, ComparisonOptions(choice)).values()
            found[one.name] = one
    return found
