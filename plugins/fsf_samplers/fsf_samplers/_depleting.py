"""Tasks without replacement, until the images run out."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import numpy as np

from fsf_samplers._common import check_class_sizes, check_seed_and_ways, resolved_options
from fsframework.interfaces import InfeasibleTask, OptionError, TaskSampler
from fsframework.values import ImagePool, IntArray, TaskSet, task_rng

__all__ = ["DepletingSampler"]

_NAME = "depleting"
Choose = Literal["uniform", "by-what-is-left"]


class DepletingSampler(TaskSampler):
    """Draws tasks without replacement until too few classes have images left.

    No image is in two tasks, so the tasks are independent draws from the distribution of the data,
    and intervals over them are *open*. Drawing ends when fewer than ``n_way`` classes have
    ``n_shot + n_query`` images left. Classes may have any size; one that is too small for a single
    task is never drawn.

    Source: Lafargue et al. 2024, "Oops, I Sampled it Again: Reinterpreting Confidence Intervals in
    Few-Shot Learning", Algorithm 2. Deviation: each class is shuffled once and its images are taken
    in that order, which is equivalent to drawing them again for each task.

    Args:
        n_way: classes per task, at least 2.
        n_shot: support images per class, at least 1.
        n_query: query images per class, at least 1.
        choose: how the classes of a task are picked among those that have enough images left:
            ``uniform``, as in the paper, or ``by-what-is-left``, those with the most whole groups
            of ``n_shot + n_query`` images left, ties drawn at random. The latter yields as many
            tasks as any choice can: with g_c groups in class c, the largest T with
            sum_c min(g_c, T) >= n_way T. ``uniform`` leaves images of the larger classes unused
            where sizes differ.

    Caveat: with ``by-what-is-left``, large classes are in more of the earlier tasks than small
    ones, so draw until the images run out rather than a fixed number of tasks.

    Raises:
        OptionError: a number is too small, or ``choose`` is unknown.

    >>> pool = ImagePool(tuple("abcdefg"), np.array([0, 0, 0, 1, 1, 1, 1]), ("cat", "dog"))
    >>> tasks = DepletingSampler(n_way=2, n_shot=1, n_query=1).draw(pool, None, seed=0)
    >>> len(tasks), tasks.n_images, tasks.reuses_images
    (1, 4, False)
    """

    independent: ClassVar[bool] = False

    def __init__(
        self, *, n_way: int = 5, n_shot: int = 5, n_query: int = 15, choose: Choose = "uniform"
    ) -> None:
        super().__init__(n_way=n_way, n_shot=n_shot, n_query=n_query)
        if choose not in get_args(Choose):
            raise OptionError(f"choose must be one of {', '.join(get_args(Choose))}, not {choose}")
        self.choose = choose

    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        """Draw tasks.

        Args:
            pool: the images to draw from; its attributes are not read.
            n_tasks: number of tasks, at least 1; ``None`` draws until the images run out.
            seed: at least 0; the classes of task ``t`` are drawn from
                ``task_rng(seed, t, "depleting")``, the order of the images of class ``c`` from
                ``task_rng(seed, c, "depleting images")``.

        Returns:
            The tasks, without attributes.

        Raises:
            InfeasibleTask: no task can be drawn, or fewer than ``n_tasks``; the message states how
                many.
            OptionError: ``n_tasks`` is below 1, or ``seed`` is negative.
        """
        check_seed_and_ways(self, pool, n_tasks, seed)
        size = self.n_shot + self.n_query
        check_class_sizes(self, pool)
        classes, groups = self._choose(pool.class_sizes // size, n_tasks, seed)
        if n_tasks is not None and len(classes) < n_tasks:
            raise InfeasibleTask(
                f"tasks without replacement: {len(pool):,} images yield {len(classes):,} tasks of "
                f"{self.n_way} x ({self.n_shot} + {self.n_query}) images with choose = "
                f"{self.choose} and seed {seed}, not {n_tasks:,}; ask for at most that many or for "
                "all"
            )
        order = [
            task_rng(seed, label, f"{_NAME} images").permutation(pool.members(label))
            for label in range(len(pool.class_names))
        ]
        starts = np.cumsum(pool.class_sizes) - pool.class_sizes
        first = starts[classes] + groups * size
        images = np.concatenate(order)[first[:, :, None] + np.arange(size)]
        return TaskSet.of(
            pool,
            classes,
            images[:, :, : self.n_shot],
            images[:, :, self.n_shot :],
            sampler=_NAME,
            options=resolved_options(self),
            seed=seed,
        )

    def _choose(
        self, n_groups: IntArray, n_tasks: int | None, seed: int
    ) -> tuple[IntArray, IntArray]:
        """Return the classes of each task ``(T, way)`` and the group of images that each gives.

        Args:
            n_groups: whole groups of ``n_shot + n_query`` images in each class.
            n_tasks: the most tasks to draw.
            seed: the seed of the draws.
        """
        left = n_groups.astype(np.int64)
        found: list[IntArray] = []
        places: list[IntArray] = []
        while n_tasks is None or len(found) < n_tasks:
            able = np.flatnonzero(left)
            if able.size < self.n_way:
                break
            rng = task_rng(seed, len(found), _NAME)
            if self.choose == "uniform":
                chosen = rng.choice(able, self.n_way, replace=False)
            else:
                most = np.argsort(-(left[able] + rng.random(able.size)))[: self.n_way]
                chosen = rng.permutation(able[most])
            found.append(chosen)
            places.append(n_groups[chosen] - left[chosen])
            left[chosen] -= 1
        shape = (len(found), self.n_way)
        return (
            np.array(found, np.int64).reshape(shape),
            np.array(places, np.int64).reshape(shape),
        )
