"""Tasks whose queries come from the contexts of the support, or from others."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fsf_samplers._common import check_request, counted, resolved_options
from fsf_samplers._uniform import task_seeds
from fsframework.errors import argument
from fsframework.interfaces import Control, InfeasibleTask, OptionError, TaskSampler
from fsframework.values import ImagePool, IntArray, TaskSet, normalize

if TYPE_CHECKING:
    from fsf_samplers._kernels import Cells

__all__ = ["ContextSampler"]

_NAME = "context"


class ContextSampler(TaskSampler):
    """Draws queries from contexts other than those of their class's support.

    MetaCoCo (section 4): in an OOD episode support and query images have different contexts, in an
    IID episode the same ones. This sampler draws OOD episodes (arm ``ood``); its control draws the
    IID episodes that belong to them (arm ``iid``). A context is a value of a metadata column; an
    image whose value is empty is in no task. Each task is drawn in four steps:

    1. ``n_way`` classes, uniformly without replacement.
    2. For each class, ``2 * n_contexts`` of its contexts, uniformly without replacement: the first
       half are those of its support, the second half the others. Classes draw their contexts
       independently, so two classes may have the same ones.
    3. Support of a class: ``n_shot`` images in equal shares from the first half (the first contexts
       give one more where the shares are uneven); within a context uniformly without replacement.
    4. Queries: ``n_query`` images in the same way, from the second half of the contexts (``ood``)
       or from what the support leaves of the first half (``iid``).

    Task ``t`` of one arm and task ``t`` of the other have the same classes and the same support:
    they are pairs that differ only in their queries. A class is in the tasks of one arm only if it
    can be in those of both, and only contexts that can give both support and queries are drawn.
    Over many tasks, support and queries of either arm therefore come from each context of a class
    equally often. The arms differ only in whether both come from the same context.

    The paper does not specify how contexts are drawn, nor what happens where few images share
    one. ``n_contexts`` is our answer to the latter: with 5 shots in 5 contexts, each context
    gives the support one image.

    Source: Zhang et al. 2024, "MetaCoCo: A New Few-Shot Classification Benchmark with Spurious
    Correlation" (ICLR), section 4.

    Args:
        n_way: classes per task, at least 2.
        n_shot: support images per class, at least 1.
        n_query: query images per class, at least 1.
        column: the metadata column that holds the contexts.
        n_contexts: contexts in a class's support, and in its queries; 1 to ``n_shot``.

    Raises:
        OptionError: a number is out of range.

    >>> where = {"context": ("grass", "grass", "snow", "snow") * 2}
    >>> pool = ImagePool(tuple("abcdefgh"), np.repeat([0, 1], 4), ("cat", "dog"), where)
    >>> shape = {"n_way": 2, "n_shot": 1, "n_query": 1}
    >>> sampler = ContextSampler(**shape)
    >>> ood = sampler.draw(pool, 3, seed=0)
    >>> iid = sampler.control().sampler.draw(pool, 3, seed=0)
    >>> bool(np.all(iid.support == ood.support))
    True
    >>> [bool(np.any(t.support // 2 == t.query // 2)) for t in (iid, ood)]
    [True, False]
    """

    _same_contexts: ClassVar[bool] = False

    def __init__(
        self,
        *,
        n_way: int = 5,
        n_shot: int = 5,
        n_query: int = 15,
        column: str = "context",
        n_contexts: int = 1,
    ) -> None:
        super().__init__(n_way=n_way, n_shot=n_shot, n_query=n_query)
        if not 1 <= n_contexts <= n_shot:
            raise OptionError(
                f"n_contexts must be from 1 to n_shot = {n_shot}, one image per context at least, "
                f"not {n_contexts}"
            )
        self.column = normalize(column)
        self.n_contexts = n_contexts

    def control(self) -> Control | None:
        """Return the IID episodes of the same classes and supports."""
        control = _SameContexts(**resolved_options(self))
        return Control(control, arms=("iid", "ood"), symbols=("IID", "OOD"), paired=True)

    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        """Draw tasks.

        Args:
            pool: the images to draw from, with the metadata ``column``.
            n_tasks: number of tasks, at least 1.
            seed: at least 0; ``task_entropy(seed, t, "context")``, the same for both arms, seeds a
                SplitMix64 from which task ``t`` is drawn.

        Returns:
            The tasks, without attributes.

        Raises:
            InfeasibleTask: too few classes of the pool have contexts of enough images.
            OptionError: the pool lacks the column, ``n_tasks`` is ``None`` or below 1, or ``seed``
                is negative.
        """
        n_tasks = check_request(self, _NAME, pool, n_tasks, seed)
        cells = self._cells(pool)
        # Imported here because Numba takes half a second to import; listing does not need it.
        from fsf_samplers._kernels import Drawn, draw_context_tasks

        shape = n_tasks, self.n_way
        drawn = Drawn(
            np.empty(shape, np.int64),
            np.empty((*shape, self.n_shot), np.int64),
            np.empty((*shape, self.n_query), np.int64),
            np.empty((0, 0), np.int32),
            np.empty((0, 0), np.bool_),
        )
        seeds = task_seeds(seed, range(n_tasks), _NAME)
        draw_context_tasks(cells, self.n_contexts, self._same_contexts, seeds, drawn)
        return TaskSet.of(
            pool,
            drawn.classes,
            drawn.support,
            drawn.query,
            sampler=_NAME,
            options=resolved_options(self),
            seed=seed,
        )

    def _cells(self, pool: ImagePool) -> Cells:
        """Return the contexts that can be in tasks, of the classes that have enough of them."""
        from fsf_samplers._kernels import Cells

        if self.column not in pool.metadata:
            there = ", ".join(map(repr, sorted(pool.metadata))) or "none"
            raise OptionError(
                f"{_NAME!r} needs the metadata column {self.column!r}; the data set's columns are "
                f"{there}; name one of them with {argument('sampler.column', 'NAME')}"
            )
        values, context = np.unique(np.array(pool.metadata[self.column]), return_inverse=True)
        cell_of = pool.labels * len(values) + context
        known = np.flatnonzero(values[context] != "")
        order = known[np.argsort(cell_of[known], kind="stable")]
        cells, sizes = np.unique(cell_of[order], return_counts=True)
        label = cells // len(values)
        n_classes = len(pool.class_names)
        enough = sizes >= self._needed(self.n_contexts)
        per_class = np.bincount(label[enough], minlength=n_classes)
        usable = per_class >= 2 * self.n_contexts
        if usable.sum() < self.n_way:
            raise self._too_few(pool, sizes, label)
        taken = enough & usable[label]
        images = order[np.repeat(taken, sizes)]
        return Cells(
            np.flatnonzero(usable),
            np.append(0, np.cumsum(per_class[usable])),
            np.append(0, np.cumsum(sizes[taken])),
            images,
        )

    def _needed(self, n_contexts: int) -> int:
        """Return how many images a context must have."""
        return -(-self.n_shot // n_contexts) - (-self.n_query // n_contexts)

    def _too_few(self, pool: ImagePool, sizes: IntArray, label: IntArray) -> InfeasibleTask:
        """Return an error that names the best class that cannot be in a task."""
        # The number of images in the class's 2m-th largest context.
        by_size = np.lexsort((-sizes, label))
        start = np.searchsorted(label[by_size], np.arange(len(pool.class_names)))
        place = np.arange(label.size) - start[label[by_size]]

        def at(n_contexts: int) -> IntArray:
            found = np.zeros(len(pool.class_names), np.int64)
            chosen = by_size[place == 2 * n_contexts - 1]
            found[label[chosen]] = sizes[chosen]
            return found

        m = self.n_contexts
        offered = at(m)
        best = np.argsort(-offered, kind="stable")
        n_usable = int((offered >= self._needed(m)).sum())
        missing = int(best[self.n_way - 1])
        size = int(offered[missing])
        remedies = [f"at most {n_usable} ways"] if n_usable >= 2 else []
        most_shot = m * (size - -(-self.n_query // m))
        most_query = m * (size - -(-self.n_shot // m))
        shots, queries = counted(self.n_shot, "shot"), counted(self.n_query, "query")
        if most_shot >= m:
            remedies.append(f"at most {counted(most_shot, 'shot')} with {queries}")
        if most_query >= 1:
            remedies.append(f"at most {counted(most_query, 'query')} with {shots}")
        for other in range(1, self.n_shot + 1):
            if np.sort(at(other))[-self.n_way] >= self._needed(other):
                remedies.append(f"n_contexts = {other}")
                break
        n_contexts = int(np.sum(label == missing))
        named = repr(pool.class_names[missing])
        if size:
            has = f"the smallest of the {2 * m} largest of {named} has {size}"
        else:
            has = f"{named} has only {n_contexts}"
        return InfeasibleTask(
            f"{self.n_way}-way tasks need {self.n_way} classes, but only {n_usable} of "
            f"{len(pool.class_names)} have {2 * m} contexts ({self.column}) of at least "
            f"{self._needed(m)} images, for shots and queries"
            + (f" in {m} contexts" if m > 1 else "")
            + f": {has}"
            + (f"; {' or '.join(remedies)}" if remedies else "")
        )


class _SameContexts(ContextSampler):
    """Draws queries from the contexts of their class's support: the IID episodes."""

    _same_contexts: ClassVar[bool] = True

    def control(self) -> None:
        """Return ``None``: this sampler is itself a control."""
        return
