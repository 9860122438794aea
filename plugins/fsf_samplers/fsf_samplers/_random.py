"""Tasks drawn uniformly, without regard to attributes."""

from __future__ import annotations

from typing import ClassVar

from fsf_samplers._common import check_class_sizes, check_request, resolved_options
from fsf_samplers._uniform import draw_uniformly
from fsframework.interfaces import TaskSampler
from fsframework.values import ImagePool, TaskSet

__all__ = ["RandomSampler"]


class RandomSampler(TaskSampler):
    """Draws classes and their images uniformly, without regard to attributes.

    The ``n_way`` classes are drawn uniformly without replacement among the classes of the pool that
    have ``n_shot + n_query`` images, and as many images of each uniformly without replacement among
    its images; smaller classes are never drawn. These are the tasks behind wAcc-R (FewSTAB, section
    5.3).

    Args:
        n_way: classes per task, at least 2.
        n_shot: support images per class, at least 1.
        n_query: query images per class, at least 1.

    Raises:
        OptionError: one of them is too small.

    >>> import numpy as np
    >>> pool = ImagePool(tuple("abcdef"), np.array([0, 0, 0, 1, 1, 1]), ("cat", "dog"))
    >>> tasks = RandomSampler(n_way=2, n_shot=1, n_query=2).draw(pool, 4, seed=0)
    >>> tasks.support.shape, tasks.query.shape
    ((4, 2, 1), (4, 2, 2))
    """

    uniform: ClassVar[bool] = True

    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        """Draw tasks.

        Args:
            pool: the images to draw from; its attributes are not read.
            n_tasks: number of tasks, at least 1.
            seed: at least 0; task ``t`` is drawn from ``task_rng(seed, t, "random")`` only.

        Returns:
            The tasks, without attributes.

        Raises:
            InfeasibleTask: the pool has too few classes, or too few of them have enough images.
            OptionError: ``n_tasks`` is ``None`` or below 1, or ``seed`` is negative.
        """
        n_tasks = check_request(self, "random", pool, n_tasks, seed)
        check_class_sizes(self, pool)
        shape = n_tasks, self.n_way, self.n_shot + self.n_query
        classes, images = draw_uniformly(pool, shape, seed, "random")
        return TaskSet.of(
            pool,
            classes,
            images[:, :, : self.n_shot],
            images[:, :, self.n_shot :],
            sampler="random",
            options=resolved_options(self),
            seed=seed,
        )
