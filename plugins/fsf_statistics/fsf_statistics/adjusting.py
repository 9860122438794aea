"""What else differs where a word is: other words of the same images, and which images are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fsf_statistics.breakdowns import correct, described_images, tied_words
from fsframework.values import ArmOutcomes, BoolArray, FloatArray, ImagePool, IntArray, TaskSet

__all__ = ["Answers", "OtherWords", "cost_of_tied_words", "drawn_away"]

_RATIOS = np.geomspace(0.5, 2000, 40)
"""Variances of the values over those of the effects of words, of which the likeliest is chosen."""

_NOTHING = 1e-9
"""Sum of squares of a class whose values do not vary."""

_FEWEST = 2
"""Units with a word, and without it, that its effect is estimated from."""


@dataclass(frozen=True, eq=False)
class OtherWords:
    """What the other words of the same units do to the difference between having a word or not.

    Args:
        explained: float ``(n_classes, n_words)``, the part of the difference, without minus with,
            that they explain.
        left: float ``(n_classes, n_words)``, the share of the variance of the class's values that
            is left when they are accounted for.
    """

    explained: FloatArray
    left: FloatArray

    @classmethod
    def of(
        cls,
        values: tuple[IntArray, FloatArray],
        has: tuple[IntArray, IntArray],
        shape: tuple[int, int],
    ) -> Self:
        """Estimate the effects of all words of each class together, by ridge regression.

        The penalty is the likeliest one under a normal prior, the same for all classes. Words that
        stand in a word's place where it is absent are accounted for as well: a word is not to blame
        that another one, which most images of the class have, is better for the model.

        Source: Robinson 1991, That BLUP is a good thing (the penalty as a ratio of variances).

        Args:
            values: class of each unit, int ``(n,)``, and its value, float ``(n,)``.
            has: units that have a word, each as often as it has one, int ``(k,)``, and the word.
            shape: numbers of classes and words.
        """
        label, value = values
        explained, left = np.zeros(shape), np.ones(shape)
        parts = [_Class.of(rows, value, has, shape[1]) for rows in members(label, shape[0])]
        ratio = _RATIOS[np.argmax(np.sum([part.likelihoods() for part in parts], axis=0))]
        for one, part in enumerate(parts):
            explained[one, part.words], left[one, part.words] = part.others(ratio)
        return cls(explained, left)


def members(label: IntArray, n_classes: int) -> list[IntArray]:
    """Return the positions of each label."""
    ends = np.cumsum(np.bincount(label, minlength=n_classes))[:-1]
    return np.split(np.argsort(label, kind="stable"), ends)


@dataclass(frozen=True, eq=False)
class _Class:
    """The units of one class: which words they have, bool ``(n, k)``, and their centred values.

    Args:
        words: int ``(k,)``, those that vary.
        roots: float ``(k,)``, eigenvalues of the words' cross-products about their means.
        axes: float ``(k, k)``, the eigenvectors; ``along`` float ``(k,)``, the values along them.
    """

    words: IntArray
    having: FloatArray
    value: FloatArray
    roots: FloatArray
    axes: FloatArray
    along: FloatArray

    @classmethod
    def of(
        cls, rows: IntArray, value: FloatArray, has: tuple[IntArray, IntArray], n_words: int
    ) -> Self:
        unit, word = has
        place = np.full(len(value), -1)
        place[rows] = np.arange(len(rows))
        own = place[unit] >= 0
        counts = np.bincount(word[own], minlength=n_words)
        words = np.flatnonzero((counts >= _FEWEST) & (len(rows) - counts >= _FEWEST))
        number = np.full(n_words, -1)
        number[words] = np.arange(len(words))
        used = own & (number[word] >= 0)
        having = np.zeros((len(rows), len(words)))
        having[place[unit[used]], number[word[used]]] = 1
        y = value[rows] - (value[rows].mean() if len(rows) else 0.0)
        design = having - having.mean(axis=0) if len(rows) else having
        roots, axes = np.linalg.eigh(design.T @ design)
        return cls(words, having, y, np.maximum(roots, 0.0), axes, axes.T @ (design.T @ y))

    def likelihoods(self) -> FloatArray:
        """Return the logarithm of the likelihood for each of the ratios."""
        free, whole = len(self.value) - 1, float(self.value @ self.value)
        if free < 1 or whole < _NOTHING:
            return np.zeros(len(_RATIOS))
        grown = 1 + self.roots / _RATIOS[:, None]
        fitted = self.along**2 / (self.roots + _RATIOS[:, None])
        rest = np.maximum(whole - fitted.sum(axis=1), _NOTHING)
        return np.asarray(-(free * np.log(rest / free) + np.log(grown).sum(axis=1)) / 2)

    def others(self, ratio: float) -> tuple[FloatArray, FloatArray]:
        """Return for each word what the others explain and the share of variance left."""
        n, shrunk = len(self.value), 1 / (self.roots + ratio)
        effect = self.axes @ (self.along * shrunk)
        part = (self.having @ effect)[:, None] - self.having * effect
        with_word = self.having.sum(axis=0)
        inside = (part * self.having).sum(axis=0)
        explained = (part.sum(axis=0) - inside) / (n - with_word) - inside / with_word
        whole = float(self.value @ self.value)
        if whole < _NOTHING:
            return explained, np.ones(len(self.words))
        rest = self.value[:, None] - part
        squares = ((rest - rest.mean(axis=0)) ** 2).sum(axis=0)
        lost = float((self.roots * shrunk).sum())
        left = squares / whole * (n - 1) / max(n - 1 - lost, 1.0)
        return explained, np.minimum(left, 1.0)


@dataclass(frozen=True, eq=False)
class Answers:
    """How images were answered as queries, each float ``(n_images,)``.

    Args:
        value: share of correct answers minus that to the other queries of the class in the same
            tasks; 0 where the image was never asked.
        right: correct answers; ``asked`` answers.
    """

    value: FloatArray
    right: FloatArray
    asked: FloatArray

    @classmethod
    def of(cls, outcomes: ArmOutcomes, images: dict[str, IntArray], n_images: int) -> Self:
        """Collect the answers of several arms.

        Args:
            images: by arm: the image that stands for each query, ``(T, way, n_query)``.
        """
        sums, right, asked = (np.zeros(n_images) for _ in range(3))
        for arm, shown in images.items():
            answers = correct(outcomes[arm])
            relative = answers - answers.mean(axis=2, keepdims=True)
            n_query = answers.shape[2]
            # Compared with the others, not with a mean that a query is part of.
            relative *= n_query / (n_query - 1) if n_query > 1 else 0.0
            relative += 0.0 if n_query > 1 else answers
            image = shown.ravel()
            sums += np.bincount(image, relative.ravel(), minlength=n_images)
            right += np.bincount(image, answers.ravel(), minlength=n_images)
            asked += np.bincount(image, minlength=n_images)
        return cls(sums / np.maximum(asked, 1), right, asked)


def cost_of_tied_words(
    outcomes: ArmOutcomes, pool: ImagePool, arm: str, uniform: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """Return what being tied to any word costs each class, and the variance of that.

    It is the accuracy of the class in uniformly drawn tasks minus that in the arm, corrected for
    how hard the arm's queries are: each is expected to be answered as in the uniform tasks.

    Words of other classes hurt as well, by drawing queries that have them towards those classes
    (``drawn_away``). Such an error has two causes, the word that the query's own class is tied to
    and that of the other; half of them are therefore left out.

    Args:
        arm: whose classes are tied to words; ``uniform`` the arms with uniformly drawn tasks.

    Returns:
        Both float ``(n_classes,)``; 0 where one kind of task is missing.
    """
    n_classes, tasks = len(pool.class_names), outcomes.arms[arm]
    tied = tied_words(tasks, pool)
    used = tied >= 0
    label = tasks.classes[used]
    count = np.bincount(label, minlength=n_classes)
    free = [_of_classes(outcomes, one, n_classes) for one in uniform]
    if not free:
        return np.zeros(n_classes), np.zeros(n_classes)
    n_free, sums, squares = np.sum(free, axis=0)
    level = sums / np.maximum(n_free, 1)
    variance = np.maximum(squares / np.maximum(n_free, 1) - level**2, 0.0)
    images = {one: outcomes.arms[one].query for one in uniform}
    hard = Answers.of(outcomes, images, len(pool)).value
    if tasks.n_query == 1:
        hard = np.zeros(len(pool))  # no answer to compare with
    expected = level[label] + hard[tasks.query[used]].mean(axis=1)
    lower = expected - np.asarray(outcomes[arm].class_accuracy)[used]
    gap = np.bincount(label, lower, minlength=n_classes) / np.maximum(count, 1)
    away = drawn_away(tasks, pool, outcomes[arm].predictions, tied)
    cost = np.where(gap > 0, np.maximum(gap - away / 2, 0.0), gap)
    known = (count > 0) & (n_free > 0)
    doubt = variance / np.maximum(n_free - 1, 1)
    return np.where(known, cost, 0.0), np.where(known, doubt, 0.0)


def _of_classes(outcomes: ArmOutcomes, arm: str, n_classes: int) -> FloatArray:
    """Return number, sum and sum of squares of each class's accuracies, ``(3, n_classes)``."""
    label = outcomes.arms[arm].classes.ravel()
    accuracy = np.asarray(outcomes[arm].class_accuracy).ravel()
    powers = (np.ones(len(label)), accuracy, accuracy**2)
    return np.stack([np.bincount(label, power, minlength=n_classes) for power in powers])


def drawn_away(
    tasks: TaskSet, pool: ImagePool, predictions: IntArray, tied: IntArray
) -> FloatArray:
    """Return how many queries of each class other classes draw to them by their tied word.

    A query is answered as another class more often if it has the word that class is tied to: the
    difference between these two rates, times the number of such words of a query.

    Args:
        predictions: int ``(T, way, n_query)``; ``tied`` int ``(T, way)``, the word of each class.

    Returns:
        Float ``(n_classes,)``, share of the queries of each class, at least 0.
    """
    ways, n_classes = np.arange(tasks.n_way), len(pool.class_names)
    has = _have(pool, described_images(tasks, pool), tied)
    into = np.asarray(predictions)[..., None] == ways
    other = (ways[:, None] != ways)[None, :, None, :] & (tied >= 0)[:, None, None, :]
    sums = [
        np.bincount(tasks.classes.ravel(), of.sum(axis=(2, 3)).ravel(), minlength=n_classes)
        for of in (other & has, other & has & into, other & ~has, other & ~has & into)
    ]
    n_has, into_has, n_not, into_not = sums
    excess = into_has / np.maximum(n_has, 1) - into_not / np.maximum(n_not, 1)
    asked = np.bincount(tasks.classes.ravel(), minlength=n_classes) * tasks.n_query
    known = (n_has > 0) & (n_not > 0)
    return np.where(known, np.maximum(excess, 0.0) * n_has / np.maximum(asked, 1), 0.0)


def _have(pool: ImagePool, image: IntArray, tied: IntArray) -> BoolArray:
    """Return whether each query has each tied word of its task, ``(T, way, n_query, way)``."""
    assert pool.attributes is not None
    start, words = pool.attributes.csr()
    n_words = len(pool.attributes.words)
    known = np.sort(np.repeat(np.arange(len(pool)), np.diff(start)) * n_words + words)
    wanted = image[..., None].astype(np.int64) * n_words + tied[:, None, None, :]
    place = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
    found = known[place] == wanted if len(known) else np.zeros(wanted.shape, bool)
    return np.asarray(found & (tied >= 0)[:, None, None, :])
