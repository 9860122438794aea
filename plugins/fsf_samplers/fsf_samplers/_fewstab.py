"""Tasks whose support ties each class to a spurious attribute that its queries lack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from fsf_samplers._common import (
    attributes_of,
    check_request,
    counted,
    empty_tasks,
    exhausted,
    greatest,
    resolved_options,
    task_set,
    too_few_classes,
    too_few_words,
)
from fsf_samplers._control import ControlArm, WithControl, with_random_images
from fsf_samplers._uniform import task_seeds
from fsframework.interfaces import InfeasibleTask, OptionError, TaskSampler
from fsframework.values import AttributeTable, ImagePool, IntArray, TaskSet

if TYPE_CHECKING:
    from fsf_samplers._index import WordIndex
    from fsf_samplers._kernels import Choices

__all__ = ["FewStabSampler"]

Support = Literal["random", "targeted", "exclusive"]
Query = Literal["intra", "inter", "inter-least"]


class FewStabSampler(WithControl):
    """Ties each class to a spurious attribute that its support has and its queries lack.

    FewSTAB (section 4.3 and Eq. 3-6). A spurious attribute of a class is a word present in at least
    one of its images and absent from at least one (Definition 1). Each task is drawn in five steps:

    1. ``n_way`` classes, uniformly without replacement.
    2. Class by class, an attribute that no earlier class has taken, uniformly among the class's
       spurious attributes that at least ``n_shot`` of its images have.
    3. Support of a class: ``n_shot`` images, uniformly without replacement among those with its
       attribute and none of the other classes' attributes.
    4. Query candidates of a class: its images without its attribute and with at least one of the
       others' (Eq. 5). Where there are fewer than ``n_query``, all images without its own attribute
       (Eq. 3); ``TaskSet.relaxed`` records this.
    5. Queries: the ``n_query`` candidates of lowest score, the sum, over an image's non-selected
       attributes, of the share of candidates that have them (Eq. 6). Scores are compared exactly;
       ties for the last places are broken uniformly.

    ``support`` and ``query`` select the constructions that the paper compares (Tables S5 and S6):

    - ``exclusive`` (SC3) is step 3. ``targeted`` (SC2) requires only the attribute. ``random``
      (SC1) requires nothing: step 2 then takes any spurious attribute, and steps 4 and 5 exclude
      the support images, which may lack the attribute. ``p_a`` is a share of the remaining images.
    - ``inter-least`` (QC3) is steps 4 and 5. ``inter`` (QC2) draws uniformly among the candidates
      of step 4. ``intra`` (QC1) draws uniformly among the images of Eq. 3; nothing is relaxed.

    Where step 2, 3 or 4 finds too few, the task restarts from step 1.

    The paper does not specify the distribution of its random choices; they are uniform here. A
    class that cannot fill support and queries with any of its words would restart every task, so it
    is never drawn. Constructions differ in what restarts a task, and therefore slightly in how
    often a class or an attribute is drawn.

    Source: Zheng, Ye and Zhang 2024, "Benchmarking Spurious Bias in Few-Shot Image Classifiers"
    (ECCV), section 4.3.

    Args:
        n_way: classes per task, at least 2.
        n_shot: support images per class, at least 1.
        n_query: query images per class, at least 1.
        max_restarts: how often one task may restart, at least 0.
        support: which images of a class may be its support.
        query: which images of a class may be its queries, and how they are chosen.
        control: classes of the random tasks that these are compared with: ``random``, drawn
            uniformly as in the paper, or ``matched``, those of the biased task with the same
            number. In unbalanced data the two arms otherwise draw classes in different shares.

    Raises:
        OptionError: a number is too small, or a construction or control is unknown.

    >>> words = [{"grass"}, {"sofa"}, {"sofa"}, {"grass"}]
    >>> pool = ImagePool(tuple("abcd"), np.array([0, 0, 1, 1]), ("cat", "dog"))
    >>> pool = pool.with_attributes(AttributeTable.from_words(tuple("abcd"), words))
    >>> tasks = FewStabSampler(n_way=2, n_shot=1, n_query=1).draw(pool, 10, seed=0)
    >>> bool(np.all(pool.attributes.column(0)[tasks.support[:, :, 0]] == (tasks.attribute == 0)))
    True
    """

    def __init__(
        self,
        *,
        n_way: int = 5,
        n_shot: int = 5,
        n_query: int = 15,
        max_restarts: int = 10_000,
        support: Support = "exclusive",
        query: Query = "inter-least",
        control: ControlArm = "random",
    ) -> None:
        shape = {"n_way": n_way, "n_shot": n_shot, "n_query": n_query}
        super().__init__(**shape, max_restarts=max_restarts, control=control)
        for name, value, known in (("support", support, Support), ("query", query, Query)):
            if value not in get_args(known):
                named = ", ".join(map(repr, get_args(known)))
                raise OptionError(f"{name} must be one of {named}, not {value!r}")
        self.support = support
        self.query = query

    def _same_classes(self) -> TaskSampler:
        return _SameClasses(**resolved_options(self))

    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        """Draw tasks.

        Args:
            pool: the images to draw from, with attributes.
            n_tasks: number of tasks, at least 1.
            seed: at least 0; ``task_entropy(seed, t, "fewstab")``, the same in all versions
                of NumPy, seeds a SplitMix64 from which task ``t`` is drawn.

        Returns:
            The tasks; ``attribute`` is the word tied to each way, and ``relaxed`` marks the ways
            whose queries need not have another class's attribute.

        Raises:
            InfeasibleTask: the pool has no attributes or cannot yield such tasks, or a task
                restarted more than ``max_restarts`` times.
            OptionError: ``n_tasks`` is ``None`` or below 1, or ``seed`` is negative.
        """
        n_tasks = check_request(self, "fewstab", pool, n_tasks, seed)
        # Imported here because Numba takes half a second to import; listing does not need it.
        from fsf_samplers._kernels import draw_tasks

        table, index = attributes_of("fewstab", pool)
        choices = self._choices(pool, table, index)
        drawn = empty_tasks(self, n_tasks)
        seeds = task_seeds(seed, range(n_tasks), "fewstab")
        n_drawn, faults, offers = draw_tasks(index, choices, seeds, self.max_restarts, drawn)
        if n_drawn < n_tasks:
            raise self._exhausted(pool, n_drawn, faults, offers)
        return task_set(self, "fewstab", pool, seed, index, drawn)

    def _choices(self, pool: ImagePool, table: AttributeTable, index: WordIndex) -> Choices:
        """Return the classes and attributes that can be in tasks; fail if there are too few."""
        from fsf_samplers._kernels import QUERY, SUPPORT, Choices

        n_classes = len(pool.class_names)
        present, label = index.counts, index.cell_class
        size = pool.class_sizes.astype(np.int32)[label]
        absent = size - present
        if self.support == "random":
            # The support may take images that could have been queries.
            shots, queries = size - self.n_query, np.minimum(absent, size - self.n_shot)
            lack = (
                f"cannot give {self.n_shot} random images as shots and {self.n_query} "
                "others as queries without one of its spurious attributes"
            )
        else:
            shots, queries = present, absent
            lack = (
                f"has no word that is present in {self.n_shot} of them (shots) and absent "
                f"from {self.n_query} (queries)"
            )
        can_support, can_query = shots >= self.n_shot, absent >= self.n_query
        usable = np.unique(label[can_support & can_query])
        if usable.size < self.n_way:
            # The most that a class could offer with one of its words, the other number unchanged.
            most_shot = greatest(shots[can_query], label[can_query], n_classes)
            kept = (absent > 0) if self.support == "random" else can_support
            most_query = greatest(queries[kept], label[kept], n_classes)
            raise too_few_classes(self, pool, usable.size, most_shot, most_query, lack)

        spurious = can_support & (absent > 0)
        in_usable = (np.bincount(usable, minlength=n_classes) > 0)[label]
        words = np.unique(index.cell_word[spurious & in_usable])
        if words.size < self.n_way:
            raise too_few_words(self, table, words)
        per_class = np.bincount(label[spurious], minlength=n_classes)
        return Choices(
            usable.astype(np.int32),
            np.append(0, np.cumsum(per_class)),
            index.cell_word[spurious],
            SUPPORT[self.support],
            QUERY[self.query],
        )

    def _exhausted(
        self, pool: ImagePool, task: int, faults: IntArray, offers: IntArray
    ) -> InfeasibleTask:
        """Return an error that names the most frequent class and reason."""
        from fsf_samplers._kernels import FEW_QUERIES, FEW_SUPPORTS, NO_ATTRIBUTE

        label, reason = np.unravel_index(np.argmax(faults), faults.shape)
        most = counted(int(offers[label, reason]), "image")
        where = " outside its support" if self.support == "random" else ""
        blame = {
            NO_ATTRIBUTE: "had no attribute that the earlier classes had not taken "
            f"({self.n_way} ways)",
            FEW_SUPPORTS: f"had at most {most} with its attribute and none of the others' "
            f"({counted(self.n_shot, 'shot')})",
            FEW_QUERIES: f"had at most {most} without its attribute{where} "
            f"({counted(self.n_query, 'query')})",
        }[int(reason)]
        culprit = pool.class_names[label]
        return exhausted(task, self.max_restarts, int(faults[label, reason]), culprit, blame)


class _SameClasses(FewStabSampler):
    """Draws random tasks with the classes of the biased ones."""

    def control(self) -> None:
        """Return ``None``: this sampler is itself a control."""
        return

    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        """Draw the biased tasks, then the images of their classes anew."""
        return with_random_images(super().draw(pool, n_tasks, seed), pool, seed)
