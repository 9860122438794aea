"""The control arm of attribute-biased tasks: random tasks, of any classes or of the same ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal, get_args

from fsf_samplers._uniform import draw_uniformly
from fsframework.interfaces import Control, OptionError, TaskSampler
from fsframework.values import ImagePool, TaskSet

__all__ = ["ControlArm", "WithControl", "with_random_images"]

ControlArm = Literal["random", "matched"]


class WithControl(TaskSampler):
    """A sampler of attribute-biased tasks, with random tasks as its control arm.

    Source: FewSTAB (Zheng et al. 2024), section 5.3, which prints the arms as R and A. The matched
    control is not from the paper.

    Args:
        n_way: classes per task, at least 2.
        n_shot: support images per class, at least 1.
        n_query: query images per class, at least 1.
        max_restarts: how often one task may restart, at least 0.
        control: ``random`` for a control whose classes are drawn uniformly, as in the paper;
            ``matched`` for one whose task ``t`` has the classes of the biased task ``t``. Images
            are drawn uniformly within their class in either case.

    Raises:
        OptionError: a number is too small, or the control is unknown.
    """

    needs_attributes: ClassVar[bool] = True
    stored_as: ClassVar[Mapping[str, str]] = {"control": "control_arm"}

    def __init__(
        self, *, n_way: int, n_shot: int, n_query: int, max_restarts: int, control: ControlArm
    ) -> None:
        super().__init__(n_way=n_way, n_shot=n_shot, n_query=n_query)
        if max_restarts < 0:
            raise OptionError(f"max_restarts must be at least 0, not {max_restarts}")
        if control not in get_args(ControlArm):
            named = ", ".join(map(repr, get_args(ControlArm)))
            raise OptionError(f"control must be one of {named}, not {control!r}")
        self.max_restarts = max_restarts
        self.control_arm = control

    def control(self) -> Control | None:
        """Return random tasks of the same shape: wAcc-R next to wAcc-A (section 5.3)."""
        from fsf_samplers._random import RandomSampler

        arms, symbols = ("random", "biased"), ("R", "A")
        if self.control_arm == "matched":
            return Control(self._same_classes(), arms, symbols, paired=True)
        random = RandomSampler(n_way=self.n_way, n_shot=self.n_shot, n_query=self.n_query)
        return Control(random, arms, symbols)

    @abstractmethod
    def _same_classes(self) -> TaskSampler:
        """Return what draws random tasks with the classes of this sampler's tasks."""


def with_random_images(biased: TaskSet, pool: ImagePool, seed: int) -> TaskSet:
    """Return tasks with the classes of others and images drawn uniformly within each class.

    The images of task ``t`` are drawn from ``task_rng(seed, t, "matched")`` only.
    """
    shape = *biased.classes.shape, biased.n_shot + biased.n_query
    _, images = draw_uniformly(pool, shape, seed, "matched", biased.classes)
    return TaskSet.of(
        pool,
        biased.classes,
        images[:, :, : biased.n_shot],
        images[:, :, biased.n_shot :],
        sampler=biased.sampler,
        options=biased.options,
        seed=seed,
    )
