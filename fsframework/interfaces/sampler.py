"""The contract of task samplers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from fsframework._text import NAME
from fsframework.interfaces.checks import check_at_least
from fsframework.interfaces.component import Configurable
from fsframework.values import ImagePool, TaskSet

__all__ = ["Control", "TaskSampler"]


@dataclass(frozen=True)
class Control:
    """The arm that a sampler's own tasks are compared with.

    Args:
        sampler: draws the tasks of the control arm, with the same pool, number and seed; ways,
            shots and queries are those of the sampler that declares it.
        arms: names of both arms, lower-case kebab: the control's, then that of the sampler's own
            tasks. Estimates, files and records use them (``wacc-random``, ``wacc-biased``).
        symbols: what tables print for the arms after the name of a statistic, such as ``R`` and
            ``A`` for wAcc-R and wAcc-A; empty for the names themselves.
        paired: whether task ``t`` of both arms is a pair, so that their difference is taken task
            by task. Both tasks of a pair have the same classes.
    """

    sampler: TaskSampler
    arms: tuple[str, str]
    symbols: tuple[str, str] = ("", "")
    paired: bool = False

    def __post_init__(self) -> None:
        for name, pair in (("arms", self.arms), ("symbols", self.symbols)):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(f"{name} of a Control must be two strings, not {pair!r}")
        if not all(re.fullmatch(NAME, str(arm)) for arm in self.arms):
            raise ValueError(f"arms of a Control must be lower-case kebab, not {self.arms!r}")


class TaskSampler(Configurable, ABC, kind="sampler"):
    """Labels and attributes in, indices out; a sampler never sees a pixel or a model.

    Args:
        n_way: classes per task, at least 2.
        n_shot: support images per class, at least 1.
        n_query: query images per class, at least 1.

    Raises:
        OptionError: one of them is too small.
    """

    needs_attributes: ClassVar[bool] = False
    """Whether ``draw`` reads ``pool.attributes``."""

    independent: ClassVar[bool] = True
    """Whether tasks are drawn independently, so that a shorter draw is a prefix of a longer one."""

    uniform: ClassVar[bool] = False
    """Whether the classes of a task, and the images of each class, are drawn uniformly and
    independently, so that ``image-level`` and ``class-level`` intervals hold."""

    def __init__(self, *, n_way: int = 5, n_shot: int = 5, n_query: int = 15) -> None:
        check_at_least(2, n_way=n_way)
        check_at_least(1, n_shot=n_shot, n_query=n_query)
        self.n_way = n_way
        self.n_shot = n_shot
        self.n_query = n_query

    def control(self) -> Control | None:
        """Return the arm that these tasks are compared with; by default there is none.

        Without one, an experiment has a single arm with the name of the sampler's plugin.
        """
        return None

    @abstractmethod
    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        """Draw tasks.

        Args:
            pool: the images to draw from; ``pool.attributes`` holds their words, if any.
            n_tasks: number of tasks; ``None`` means all of them, for samplers that run out of
                tasks.
            seed: task ``t`` is drawn from ``task_rng(seed, t, name)`` only.

        Returns:
            The tasks, built with ``TaskSet.of(pool, ...)``.

        Raises:
            InfeasibleTask: the pool cannot yield such a task; the message names the class (or word)
                at fault and the largest number that would work. Raised quickly, not after an
                unbounded search.
            OptionError: ``n_tasks`` is ``None`` for a sampler that never runs out of tasks.
        """
