"""Tasks drawn uniformly, without regard to attributes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fsf_samplers._common import check_request, resolved_options
from fsf_samplers._uniform import draw_uniformly
from fsframework.interfaces import InfeasibleTask, TaskSampler
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
        self._check_class_sizes(pool)
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

    def _check_class_sizes(self, pool: ImagePool) -> None:
        wanted = self.n_shot + self.n_query
        n_usable = int((pool.class_sizes >= wanted).sum())
        if self.n_way <= n_usable:
            return
        # In descending order, the class at place n_way sets the limit.
        limiting = int(np.argsort(-pool.class_sizes, kind="stable")[self.n_way - 1])
        size = int(pool.class_sizes[limiting])
        images = "image" if size == 1 else "images"
        options = [f"n_way at most {n_usable}"] if n_usable > 1 else []
        options += [
            f"n_{name} at most {size - other} for n_{other_name} = {other}"
            for name, other_name, other in (
                ("shot", "query", self.n_query),
                ("query", "shot", self.n_shot),
            )
            if other < size
        ]
        if not options and size > 1:
            options = [f"n_shot at most {size - 1} for n_query = 1"]
        raise InfeasibleTask(
            f"n_shot + n_query must be at most the size of {self.n_way} classes, the smallest of "
            f"them {pool.class_names[limiting]!r} with {size} {images}, "
            f"not {self.n_shot} + {self.n_query}"
            + (f" ({' or '.join(options)})" if options else "")
        )
