"""A sampler, which draws tasks.

Try it: fsf run --sampler my-sampler --shot 1
"""

import numpy as np
from fsframework.interfaces import InfeasibleTask, OptionError, TaskSampler
from fsframework.values import ImagePool, IntArray, TaskSet, task_rng

NAME = "my-sampler"


class MySampler(TaskSampler):
    """Draw the images of each class from one context for the support, from others to query."""

    def __init__(
        self, *, n_way: int = 5, n_shot: int = 5, n_query: int = 15, column: str = "context"
    ) -> None:
        super().__init__(n_way=n_way, n_shot=n_shot, n_query=n_query)
        self.column = column

    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        """Draw tasks, each from its own random generator."""
        # Say at once what cannot be drawn, with a number that can.
        if n_tasks is None:
            raise OptionError("n_tasks must be a number: this sampler has no end")
        if self.column not in pool.metadata:
            there = ", ".join(pool.metadata) or "none"
            raise OptionError(f"no metadata column {self.column!r}; the columns are: {there}")
        splits = [self._splits(pool, label) for label in range(len(pool.class_names))]
        usable = [label for label, found in enumerate(splits) if found]
        if len(usable) < self.n_way:
            raise InfeasibleTask(
                f"tasks can have at most {len(usable)} ways, the classes with a context of "
                f"{self.n_shot} images and {self.n_query} outside it, not {self.n_way}"
            )
        classes, support, query = [], [], []
        for task in range(n_tasks):
            # Change what is drawn here. Draw from nothing but `rng`, and sort before you draw.
            rng = task_rng(seed, task, NAME)
            ways = rng.choice(usable, self.n_way, replace=False)
            drawn = [splits[way][rng.integers(len(splits[way]))] for way in ways]
            classes.append(ways)
            support.append([rng.choice(inside, self.n_shot, replace=False) for inside, _ in drawn])
            query.append([rng.choice(rest, self.n_query, replace=False) for _, rest in drawn])
        options = {name: getattr(self, name) for name in ("n_way", "n_shot", "n_query", "column")}
        return TaskSet.of(pool, classes, support, query, sampler=NAME, options=options, seed=seed)

    def _splits(self, pool: ImagePool, label: int) -> list[tuple[IntArray, IntArray]]:
        """Return the images of a class in each context that has enough, and those outside it."""
        members = pool.members(label)
        contexts = np.array(pool.metadata[self.column])[members]
        splits = [(members[contexts == c], members[contexts != c]) for c in np.unique(contexts)]
        return [
            (inside, rest)
            for inside, rest in splits
            if len(inside) >= self.n_shot and len(rest) >= self.n_query
        ]
