"""Attribute-biased tasks as the published generator of FewSTAB draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from fsframework.interfaces import InfeasibleTask, TaskSampler
from fsframework.values import AttributeTable, ImagePool, IntArray, TaskSet

if TYPE_CHECKING:
    from fsf_samplers._index import WordIndex
    from fsf_samplers._kernels import WordChoices

__all__ = ["FewStabPublishedSampler"]


class FewStabPublishedSampler(WithControl):
    """Draws attribute-biased tasks as the generator published with FewSTAB does.

    The tables printed in the paper come from that generator, which differs from section 4.3. A
    class is *eligible* for a word that at least ``n_shot`` of its images have and at least
    ``n_query`` lack. Each task is drawn in five steps:

    1. ``n_way`` words, uniformly without replacement among those that a class is eligible for.
    2. Word by word, its class, uniformly among those not yet taken that are eligible for it and
       for at least one other of the words.
    3. Support of a class: ``n_shot`` images, uniformly without replacement among those with its
       attribute and at most ``b`` of the others'. ``b`` is 0 at first and rises by 0.2 with each
       failed support; a support that succeeds resets it to 0.
    4. Once all supports have succeeded, query candidates of a class: its images without its
       attribute and with at least one of the others' (Eq. 5). After five failures since the last
       class that had enough, all images without its own attribute (Eq. 3).
    5. Queries: the ``n_query`` candidates of lowest score, the sum of ``log(p_a x_a + 1e-10)`` over
       the words ``a`` of step 1's vocabulary that are not selected: ``p_a`` is the share of
       candidates that have ``a``, ``x_a`` is 1 if the image has it, else 0. So an image with fewer
       such words nearly always comes first, whereas Eq. 6 adds up ``p_a``. Scores are compared to
       1e-12 per word, and ties for the last places are broken uniformly.

    Where step 2, 3 or 4 finds too few, that is a failure and the task restarts from step 1.

    Failures are counted within a task, so task ``t`` depends only on its own seed. The published
    generator's tasks show no carry-over either, since all counts end at 0. Its draws depend on
    Python's hash seed; these do not.

    Source: Zheng, Ye and Zhang 2024, "Benchmarking Spurious Bias in Few-Shot Image Classifiers"
    (ECCV), the code published with it.

    Args:
        n_way: classes per task, at least 2.
        n_shot: support images per class, at least 1.
        n_query: query images per class, at least 1.
        max_restarts: how often one task may restart, at least 0. Several hundred restarts are
            usual, since most words are rare.
        control: classes of the random tasks that these are compared with: ``random``, drawn
            uniformly, or ``matched``, those of the biased task with the same number. In unbalanced
            data the two arms otherwise draw classes in different shares.

    Raises:
        OptionError: a number is too small, or the control is unknown.

    >>> words = [{"grass"}, {"sofa"}, {"sofa"}, {"grass"}]
    >>> pool = ImagePool(tuple("abcd"), np.array([0, 0, 1, 1]), ("cat", "dog"))
    >>> pool = pool.with_attributes(AttributeTable.from_words(tuple("abcd"), words))
    >>> tasks = FewStabPublishedSampler(n_way=2, n_shot=1, n_query=1).draw(pool, 10, seed=0)
    >>> bool(np.all(pool.attributes.column(0)[tasks.support[:, :, 0]] == (tasks.attribute == 0)))
    True
    """

    def __init__(
        self,
        *,
        n_way: int = 5,
        n_shot: int = 5,
        n_query: int = 15,
        max_restarts: int = 100_000,
        control: ControlArm = "random",
    ) -> None:
        shape = {"n_way": n_way, "n_shot": n_shot, "n_query": n_query}
        super().__init__(**shape, max_restarts=max_restarts, control=control)

    def _same_classes(self) -> TaskSampler:
        return _SameClasses(**resolved_options(self))

    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        """Draw tasks.

        Args:
            pool: the images to draw from, with attributes.
            n_tasks: number of tasks, at least 1.
            seed: at least 0; ``task_entropy(seed, t, "fewstab-published")``, the same in all
                versions of NumPy, seeds a SplitMix64 from which task ``t`` is drawn.

        Returns:
            The tasks; ``attribute`` is the word tied to each way. ``relaxed`` marks the ways whose
            queries were required only to lack their own attribute, or whose support has an image
            with another's.

        Raises:
            InfeasibleTask: the pool has no attributes or cannot yield such tasks, or a task
                restarted more than ``max_restarts`` times.
            OptionError: ``n_tasks`` is ``None`` or below 1, or ``seed`` is negative.
        """
        name = "fewstab-published"
        n_tasks = check_request(self, name, pool, n_tasks, seed)
        # Imported here because Numba takes half a second to import; listing does not need it.
        from fsf_samplers._kernels import draw_published_tasks

        table, index = attributes_of(name, pool)
        choices = self._choices(pool, table, index)
        drawn = empty_tasks(self, n_tasks)
        n_drawn, faults, offers, unplaced = draw_published_tasks(
            index, choices, task_seeds(seed, range(n_tasks), name), self.max_restarts, drawn
        )
        if n_drawn < n_tasks:
            raise self._exhausted(pool, table, n_drawn, faults, offers, unplaced)
        return task_set(self, name, pool, seed, index, drawn)

    def _choices(self, pool: ImagePool, table: AttributeTable, index: WordIndex) -> WordChoices:
        """Return the words and classes that can be in tasks; fail if there are too few."""
        from fsf_samplers._kernels import WordChoices, image_sets

        n_classes, n_words = len(pool.class_names), len(table.words)
        present, label, word = index.counts, index.cell_class, index.cell_word
        absent = pool.class_sizes[label] - present
        can_support, can_query = present >= self.n_shot, absent >= self.n_query
        eligible = can_support & can_query
        # A class needs a word, and another word of the task for which it is eligible.
        usable = np.bincount(label[eligible], minlength=n_classes) > 1
        if usable.sum() < self.n_way:
            raise too_few_classes(
                self,
                pool,
                int(usable.sum()),
                greatest(present[can_query], label[can_query], n_classes, place=2),
                greatest(absent[can_support], label[can_support], n_classes, place=2),
                f"does not have two words that are each present in {self.n_shot} of them "
                f"(shots) and absent from {self.n_query} (queries)",
            )
        words = np.unique(word[eligible & usable[label]])
        if words.size < self.n_way:
            raise too_few_words(self, table, words)
        can_draw = np.bincount(word[eligible], minlength=n_words) > 0
        bits = np.zeros((n_words, -(-n_classes // 64)), np.uint64)
        shift = (label[eligible] % 64).astype(np.uint64)
        np.bitwise_or.at(bits, (word[eligible], label[eligible] // 64), np.uint64(1) << shift)
        return WordChoices(
            np.flatnonzero(can_draw).astype(np.int32),
            bits,
            *image_sets(index, n_words),
            np.append(can_draw[word], False),
        )

    def _exhausted(
        self,
        pool: ImagePool,
        table: AttributeTable,
        task: int,
        faults: IntArray,
        offers: IntArray,
        unplaced: IntArray,
    ) -> InfeasibleTask:
        """Return an error that names the most frequent word or class, and reason."""
        from fsf_samplers._kernels import FEW_SUPPORTS

        label, reason = np.unravel_index(np.argmax(faults), faults.shape)
        n_times = int(faults[label, reason])
        most = counted(int(offers[label, reason]), "image")
        culprit = pool.class_names[label]
        if n_times < unplaced.max():
            n_times, culprit = int(unplaced.max()), table.words[int(np.argmax(unplaced))]
            blame = (
                f"had no class left that was eligible for it and another word ({self.n_way} ways)"
            )
        elif reason == FEW_SUPPORTS:
            blame = (
                f"had at most {most} with its attribute and few enough of the others' "
                f"({counted(self.n_shot, 'shot')})"
            )
        else:
            blame = (
                f"had at most {most} without its attribute and with one of the others' "
                f"({counted(self.n_query, 'query')})"
            )
        return exhausted(task, self.max_restarts, n_times, culprit, blame)


class _SameClasses(FewStabPublishedSampler):
    """Draws random tasks with the classes of the biased ones."""

    def control(self) -> None:
        """Return ``None``: this sampler is itself a control."""
        return

    def draw(self, pool: ImagePool, n_tasks: int | None, seed: int) -> TaskSet:
        """Draw the biased tasks, then the images of their classes anew."""
        return with_random_images(super().draw(pool, n_tasks, seed), pool, seed)
