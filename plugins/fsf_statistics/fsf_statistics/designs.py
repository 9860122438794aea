"""The rows that tell what words cost a class: by the words of queries, or by tied words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy import sparse

from fsf_statistics.breakdowns import described_images, tied_words
from fsf_statistics.joint import LEAST_APART, Effects, Rows, groups_of_words
from fsframework.values import ArmOutcomes, BoolArray, FloatArray, ImagePool, IntArray

__all__ = [
    "ClassAnswers",
    "ClassWords",
    "answers_by_class",
    "distinct",
    "drawn_away",
    "rows_of_present",
    "rows_of_tied",
]

_FEWEST_IMAGES = 3
"""Images of a class with a word, and without it, that its effect is estimated from."""

_LEAST_LEVEL = 0.005
"""Share of its variation that the mean effect of tied words needs to be estimated."""

_HELD = 2.0
"""Answers at the mean that an image's own difficulty is estimated with."""

_RIVAL = 75.0
"""Answers at the mean that the confusion with another class is estimated with."""


@dataclass(frozen=True, eq=False)
class ClassAnswers:
    """The answers to the queries of one class, in several arms.

    Args:
        label: the class; ``task`` int ``(n,)``, numbered over all arms.
        image: int ``(n,)``, which was asked; ``shown`` the one whose words describe it.
        answered: int ``(n,)``, the class that was answered.
        tied: int ``(n,)``, the word tied to the class, -1 for none.
        support: int ``(n, n_shot)``, the support of the class.
        rivals: int ``(n, way - 1)``, the other classes of the task, and ``lures`` their tied words.
    """

    label: int
    task: IntArray
    image: IntArray
    shown: IntArray
    answered: IntArray
    tied: IntArray
    support: IntArray
    rivals: IntArray
    lures: IntArray

    @property
    def right(self) -> FloatArray:
        """1.0 for each correct answer, 0.0 for each other."""
        return (self.answered == self.label).astype(np.float64)


def answers_by_class(
    outcomes: ArmOutcomes, pool: ImagePool, arms: Sequence[str]
) -> Iterator[ClassAnswers]:
    """Yield the answers to the queries of each class that is in the tasks of some arms."""
    shown = {arm: described_images(outcomes.arms[arm], pool) for arm in arms}
    tied = {arm: tied_words(outcomes.arms[arm], pool) for arm in arms}
    start = np.concatenate([[0], np.cumsum([len(outcomes.arms[arm]) for arm in arms])])
    for label in range(len(pool.class_names)):
        parts = []
        for number, arm in enumerate(arms):
            tasks, predicted = outcomes.arms[arm], outcomes[arm].predictions
            task, way = np.nonzero(tasks.classes == label)
            n_query, n_way = tasks.n_query, tasks.n_way
            rest = (way[:, None] + np.arange(1, n_way)) % n_way
            parts.append(
                (
                    np.repeat(task + start[number], n_query),
                    tasks.query[task, way].ravel(),
                    shown[arm][task, way].ravel(),
                    tasks.classes[task[:, None], predicted[task, way]].ravel(),
                    np.repeat(tied[arm][task, way], n_query),
                    np.repeat(tasks.support[task, way], n_query, axis=0),
                    np.repeat(tasks.classes[task[:, None], rest], n_query, axis=0),
                    np.repeat(tied[arm][task[:, None], rest], n_query, axis=0),
                )
            )
        columns = [np.concatenate(part) for part in zip(*parts, strict=True)]
        if len(columns[0]):
            yield ClassAnswers(label, *columns)


@dataclass(frozen=True, eq=False)
class ClassWords:
    """The words of a class, those that cannot be told apart as one.

    Args:
        vocabulary: the words; ``group`` int ``(n_words,)``, of each word, -1 where too few images
            have or lack it.
        has: bool ``(n_images, n_words)``, the words of each image.
        place: int ``(n,)``, the image of each answer.
    """

    vocabulary: tuple[str, ...]
    group: IntArray
    has: BoolArray
    place: IntArray

    @classmethod
    def of(cls, shown: IntArray, pool: ImagePool) -> Self:
        """Return the words of the images that describe some answers of one class."""
        assert pool.attributes is not None
        images, place = np.unique(shown, return_inverse=True)
        has = pool.attributes.rows(images)
        return cls(pool.attributes.words, groups_of_words(has, _FEWEST_IMAGES), has, place)

    @cached_property
    def having(self) -> BoolArray:
        """Bool ``(n, k)``: the groups that the image of each answer has."""
        found = np.zeros((len(self.has), int(self.group.max(initial=-1)) + 1), bool)
        image, word = np.nonzero(self.has)
        grouped = self.group[word] >= 0
        found[image[grouped], self.group[word[grouped]]] = True
        return found[self.place]

    def names(self, words: IntArray) -> tuple[str, ...]:
        """Return the names of some words, the commonest first."""
        commonest = words[np.argsort(-self.has[:, words].sum(axis=0), kind="stable")]
        return tuple(self.vocabulary[word] for word in commonest)


def distinct(group: IntArray, member: IntArray, n_groups: int) -> IntArray:
    """Return how many distinct members each group has."""
    size = int(member.max(initial=0)) + 1
    return np.bincount(np.unique(group * size + member) // size, minlength=n_groups)


def rows_of_present(answers: ClassAnswers, words: ClassWords) -> Rows:
    """Return the rows of "the word is present": each answer against the others of its task."""
    value = -answers.right
    n = len(value)
    task = _numbered(answers.task)
    if np.bincount(task).max() == 1:
        task = np.zeros(n, np.int64)  # nothing of the same task to compare with
    return Rows(
        value,
        sparse.csr_array(words.having.astype(np.float64)),
        LEAST_APART,
        sparse.csr_array((n, 0)),
        np.empty(0),
        0,
        task,
        0.0,
        _numbered(answers.shown),
        np.arange(n),
    )


def rows_of_tied(answers: ClassAnswers, words: ClassWords, own: IntArray) -> Rows:
    """Return the rows of "the word is tied": one for each answer and each other class of its task.

    The value is whether that other class was answered. Besides what a tied word costs, the rows
    depend on which class it is, on the words of the image, on whether the image has the word that
    class is tied to, which draws it there, and on the image. Doubtful is whether they depend on the
    words tied to third classes that the image has.

    Args:
        own: int ``(n,)``, the number of the effect of the tied word, -1 for none.
    """
    n, n_rivals = answers.rivals.shape
    k = words.having.shape[1]
    drawn = (answers.lures >= 0) & words.has[words.place[:, None], answers.lures]
    group = words.group[answers.lures]
    lure = np.where(drawn, np.where(group >= 0, group, k), -1)  # rare words are one
    each = np.repeat(np.arange(n), n_rivals)
    size, row = n * n_rivals, np.arange(n * n_rivals)
    pull = _columns(row, lure.ravel(), k + 1)
    answer = sparse.csr_array((np.ones(size), (each, row)), shape=(n, size))
    third = ((answer @ pull)[each] - pull) / n_rivals
    _, rival = np.unique(answers.rivals, return_inverse=True)
    rivals = _columns(row, rival.ravel(), int(rival.max()) + 1)
    present = sparse.csr_array(words.having.astype(np.float64))[each] / n_rivals
    level = sparse.csr_array(np.ones((size, 1)))
    nuisance = sparse.csr_array(sparse.hstack([third, pull, level, present, rivals]))
    penalty = np.zeros(nuisance.shape[1])
    penalty[-rivals.shape[1] :] = _RIVAL
    effects = _columns(row, own[each], int(own.max()) + 1) / n_rivals
    return Rows(
        (answers.answered[:, None] == answers.rivals).astype(np.float64).ravel(),
        effects,
        _LEAST_LEVEL,
        nuisance,
        penalty,
        k + 1,
        _numbered(answers.image)[each],
        _HELD * n_rivals,
        _numbered(answers.task)[each],
        each,
    )


def drawn_away(rows: Rows, found: Effects) -> float:
    """Return how much more often a query is answered as a class that is tied to a word of it.

    Args:
        rows: those of "the word is tied"; ``found`` what they tell.

    Returns:
        The mean over such queries; NaN without such queries.
    """
    pull = slice(rows.doubtful, 2 * rows.doubtful)
    counts = rows.nuisance[:, pull].sum(axis=0)
    return float(counts @ found.others[pull] / counts.sum()) if counts.any() else float("nan")


def _columns(row: IntArray, column: IntArray, n_columns: int) -> sparse.csr_array:
    """Return a matrix with a 1 in one column of each row, or in none where it is -1."""
    used = column >= 0
    entries = (np.ones(int(used.sum())), (row[used], column[used]))
    return sparse.csr_array(entries, shape=(len(row), n_columns))


def _numbered(of: IntArray) -> IntArray:
    return np.asarray(np.unique(of, return_inverse=True)[1])
