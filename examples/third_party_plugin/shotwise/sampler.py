"""A sampler with a control of its own: queries with few words against queries with many."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fsframework.interfaces import Control, InfeasibleTask, OptionError, TaskSampler
from fsframework.values import ImagePool, IntArray, TaskSet, task_rng

__all__ = ["PlainQueries"]


class PlainQueries(TaskSampler):
    """Take as queries the images with the fewest words; its control takes those with the most.

    Task ``t`` of both arms has the same classes and the same support, so that their difference is
    that of the queries: are images with much to see harder than plain ones?
    """

    needs_attributes: ClassVar[bool] = True
    _sign: ClassVar[int] = -1

    def control(self) -> Control | None:
        """Return the same tasks with the most crowded images as queries."""
        crowded = _CrowdedQueries(n_way=self.n_way, n_shot=self.n_shot, n_query=self.n_query)
        return Control(crowded, arms=("crowded", "plain"), paired=True)

    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        """Draw tasks; ties between numbers of words are broken at random."""
        if n_tasks is None:
            raise OptionError("n_tasks must be a number: plain-queries draws without end")
        if pool.attributes is None:
            raise InfeasibleTask("plain-queries needs the words of the images")
        n_images = self.n_shot + self.n_query
        usable = np.flatnonzero(pool.class_sizes >= n_images)
        if len(usable) < self.n_way:
            raise InfeasibleTask(
                f"{self.n_way} classes of {n_images} images are needed, {len(usable)} have as many"
            )
        counts = pool.attributes.rows(np.arange(len(pool))).sum(axis=1)
        drawn = [self._task(pool, usable, counts, seed, t) for t in range(n_tasks)]
        classes, support, query = (np.array(part) for part in zip(*drawn, strict=True))
        options = {"n_way": self.n_way, "n_shot": self.n_shot, "n_query": self.n_query}
        return TaskSet.of(
            pool, classes, support, query, sampler="plain-queries", options=options, seed=seed
        )

    def _task(
        self, pool: ImagePool, usable: IntArray, counts: IntArray, seed: int, task: int
    ) -> tuple[IntArray, IntArray, IntArray]:
        rng = task_rng(seed, task, "plain-queries")
        classes = rng.choice(usable, self.n_way, replace=False)
        images = [rng.permutation(pool.members(label)) for label in classes]
        support = np.array([one[: self.n_shot] for one in images])
        query = []
        for one in images:
            left = one[self.n_shot :]
            order = np.argsort(-self._sign * counts[left], kind="stable")
            query.append(left[order[: self.n_query]])
        return classes, support, np.array(query)


class _CrowdedQueries(PlainQueries):
    """The control."""

    _sign: ClassVar[int] = 1

    def control(self) -> None:
        """Return nothing: this is a control itself."""
        return
