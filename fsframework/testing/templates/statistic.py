"""A statistic, which turns the predictions of a task into one number.

Try it: fsf run --statistic wacc --statistic my-statistic
"""

from fsframework.interfaces import Statistic
from fsframework.values import FloatArray, Outcomes


class MyStatistic(Statistic):
    """Share of a task's classes with an accuracy below chance."""

    # Change the line above first, then these two, then the formula.
    bounds = (0.0, 1.0)
    higher_is_better = False

    def per_task(self, outcomes: Outcomes) -> FloatArray:
        """Return one number for each task; ``class_accuracy`` is ``(tasks, way)``."""
        share: FloatArray = (outcomes.class_accuracy < 1 / outcomes.n_way).mean(axis=1)
        return share
