"""Tasks whose support ties each class to a spurious attribute that its queries lack."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fsf_samplers._common import check_request, resolved_options
from fsframework.interfaces import InfeasibleTask, OptionError, TaskSampler
from fsframework.values import AttributeTable, ImagePool, TaskSet, task_seed

if TYPE_CHECKING:
    from fsf_samplers._index import Int64, WordIndex
    from fsf_samplers._kernels import Choices

__all__ = ["FewStabSampler"]


class FewStabSampler(TaskSampler):
    """Ties each class to a spurious attribute in its support, which its queries lack.

    FewSTAB (section 4.3 and Eq. 3-6). A spurious attribute of a class is a word present in at
    least one of its images and absent from at least one (Definition 1). A task is drawn so:

    1. ``n_way`` classes, uniformly without replacement.
    2. Class by class, an attribute that no class before has taken, uniformly among the class's
       spurious attributes that at least ``n_shot`` of its images have.
    3. Support of a class: ``n_shot`` images, uniformly without replacement among those with its
       attribute and none of the other classes' attributes.
    4. Query candidates of a class: its images without its attribute and with at least one of the
       others' (Eq. 5). Where they are fewer than ``n_query``, merely those without its own
       (Eq. 3), and ``TaskSet.relaxed`` says so.
    5. Queries: the ``n_query`` candidates of lowest score, the sum over an image's non-selected
       attributes of the share of candidates that have them (Eq. 6). Scores are compared exactly;
       those that tie for the last places are drawn uniformly.

    Where step 2, 3 or 4 finds too little, the task starts again from step 1.

    The paper leaves open how its random choices are distributed; they are uniform here. A class
    that cannot fill support and queries with any of its words would start every task again, so it
    is never drawn.

    Args:
        n_way: classes a task, at least 2.
        n_shot: support images a class, at least 1.
        n_query: query images a class, at least 1.
        max_restarts: how often one task may start again, at least 0.

    Raises:
        OptionError: one of them is too small.

    >>> words = [{"grass"}, {"sofa"}, {"sofa"}, {"grass"}]
    >>> pool = ImagePool(tuple("abcd"), np.array([0, 0, 1, 1]), ("cat", "dog"))
    >>> pool = pool.with_attributes(AttributeTable.from_words(tuple("abcd"), words))
    >>> tasks = FewStabSampler(n_way=2, n_shot=1, n_query=1).draw(pool, 10, seed=0)
    >>> bool(np.all(pool.attributes.column(0)[tasks.support[:, :, 0]] == (tasks.attribute == 0)))
    True
    """

    needs_attributes: ClassVar[bool] = True

    def __init__(
        self, *, n_way: int = 5, n_shot: int = 5, n_query: int = 15, max_restarts: int = 10_000
    ) -> None:
        super().__init__(n_way=n_way, n_shot=n_shot, n_query=n_query)
        if max_restarts < 0:
            raise OptionError(f"max_restarts must be at least 0, not {max_restarts}")
        self.max_restarts = max_restarts

    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        """Draw tasks.

        Args:
            pool: the images to draw from, with attributes.
            n_tasks: number of tasks, at least 1.
            seed: at least 0; ``task_seed(seed, t, "fewstab")``, which NumPy keeps the same in all
                versions, seeds a SplitMix64 from which task ``t`` is drawn.

        Returns:
            The tasks; ``attribute`` is the word tied to each way, and ``relaxed`` tells whose
            queries need not have another class's attribute.

        Raises:
            InfeasibleTask: the pool has no attributes or cannot yield such tasks, or one of them
                started again more than ``max_restarts`` times.
            OptionError: ``n_tasks`` is ``None`` or below 1, or ``seed`` is negative.
        """
        # Numba takes half a second to import, which listing and validating need not wait for.
        from fsf_samplers._index import WordIndex
        from fsf_samplers._kernels import Drawn, draw_tasks

        n_tasks = check_request(self, "fewstab", pool, n_tasks, seed)
        table = pool.attributes
        if table is None:
            raise InfeasibleTask(
                "'fewstab' needs the images' attributes, and none are given: "
                "name a detector or an attribute table"
            )
        index = WordIndex.of(pool, table)
        if not index.cells.size:
            raise InfeasibleTask("'fewstab' needs attributes, and no image has any")
        choices = self._choices(pool, table, index)
        drawn = Drawn(
            np.empty((n_tasks, self.n_way), np.int32),
            np.empty((n_tasks, self.n_way, self.n_shot), np.int32),
            np.empty((n_tasks, self.n_way, self.n_query), np.int32),
            np.empty((n_tasks, self.n_way), np.int32),
            np.empty((n_tasks, self.n_way), np.bool_),
        )
        seeds = np.array([task_seed(seed, t, "fewstab") for t in range(n_tasks)], dtype=np.uint64)
        n_drawn, faults, offers = draw_tasks(index, choices, seeds, self.max_restarts, drawn)
        if n_drawn < n_tasks:
            raise self._exhausted(pool, n_drawn, faults, offers)
        return TaskSet.of(
            pool,
            drawn.classes,
            index.images[drawn.support],
            index.images[drawn.query],
            sampler="fewstab",
            options=resolved_options(self),
            seed=seed,
            attribute=drawn.attribute,
            relaxed=drawn.relaxed,
        )

    def _choices(self, pool: ImagePool, table: AttributeTable, index: WordIndex) -> Choices:
        """Return the classes and attributes that tasks may be made of; fail if they are too few."""
        from fsf_samplers._kernels import Choices

        n_classes = len(pool.class_names)
        present, label = index.counts, index.cell_class
        absent = pool.class_sizes[label] - present
        can_support, can_query = present >= self.n_shot, absent >= self.n_query
        usable = np.unique(label[can_support & can_query])
        if usable.size < self.n_way:
            # The most that a class could offer with one of its words, were the other number kept.
            most_shot = np.zeros(n_classes, np.int64)
            np.maximum.at(most_shot, label[can_query], present[can_query])
            most_query = np.zeros(n_classes, np.int64)
            np.maximum.at(most_query, label[can_support], absent[can_support])
            raise self._too_few_classes(pool, usable.size, most_shot, most_query)

        spurious = can_support & (absent > 0)
        words = np.unique(index.cell_word[spurious & np.isin(label, usable)])
        if words.size < self.n_way:
            named = ", ".join(repr(table.words[word]) for word in words)
            raise InfeasibleTask(
                f"each class of a task needs an attribute of its own, but n_way is {self.n_way} "
                f"and at most {words.size} words can be one: {named}"
            )
        per_class = np.bincount(label[spurious], minlength=n_classes)
        return Choices(
            usable.astype(np.int32), np.append(0, np.cumsum(per_class)), index.cell_word[spurious]
        )

    def _too_few_classes(
        self, pool: ImagePool, n_usable: int, most_shot: Int64, most_query: Int64
    ) -> InfeasibleTask:
        # With the best first, the class at place n_way is the one whose number would have to do.
        by_shot, by_query = np.argsort(-most_shot, kind="stable"), np.sort(most_query)[::-1]
        missing = int(by_shot[self.n_way - 1])
        remedies = [
            f"{name} at most {most}{given}"
            for name, most, least, given in (
                ("n_way", n_usable, 2, ""),
                ("n_shot", most_shot[missing], 1, f" with n_query = {self.n_query}"),
                ("n_query", by_query[self.n_way - 1], 1, f" with n_shot = {self.n_shot}"),
            )
            if most >= least
        ]
        return InfeasibleTask(
            f"n_way = {self.n_way} classes are needed but only {n_usable} of {len(most_shot)} can "
            f"stand in a task: {pool.class_names[missing]!r} with {pool.class_sizes[missing]} "
            f"images has no word that is present in n_shot = {self.n_shot} of them and absent "
            f"from n_query = {self.n_query}" + (f"; {' or '.join(remedies)}" if remedies else "")
        )

    def _exhausted(
        self, pool: ImagePool, task: int, faults: Int64, offers: Int64
    ) -> InfeasibleTask:
        """Return an error that blames the class and the reason most often at fault."""
        from fsf_samplers._kernels import FEW_QUERIES, FEW_SUPPORTS, NO_ATTRIBUTE

        label, reason = np.unravel_index(np.argmax(faults), faults.shape)
        most = offers[label, reason]
        blame = {
            NO_ATTRIBUTE: "had no attribute that the classes before had not taken "
            f"(n_way = {self.n_way})",
            FEW_SUPPORTS: f"had at most {most} images with its attribute and none of the others' "
            f"(n_shot = {self.n_shot})",
            FEW_QUERIES: f"had at most {most} images without its attribute "
            f"(n_query = {self.n_query})",
        }[int(reason)]
        return InfeasibleTask(
            f"task {task} started again more than max_restarts = {self.max_restarts} times: in "
            f"{faults[label, reason]} of them {pool.class_names[label]!r} {blame}"
        )
