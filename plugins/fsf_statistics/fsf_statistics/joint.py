"""One linear model per class for all of its words, with errors that hold for dependent answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import sparse

from fsframework.values import BoolArray, FloatArray, IntArray

__all__ = ["LEAST_APART", "Effects", "Rows", "groups_of_words"]

LEAST_APART = 0.05
"""Share of its variation that a direction of the words needs to be estimated: two words that are
correlated by more than 0.95 cannot be told apart."""

_ALIKE = 0.3
"""Two words whose estimates share this much are one group."""

_FEWEST_ANSWERS, _FEWEST_UNITS = 20, 5
"""Answers, and units of information, that a fit must leave over for its errors to be known."""

_MOST_LEVERAGE = 0.9
_LEAST_RIDGE = 1e-8


@dataclass(frozen=True, eq=False)
class Effects:
    """Estimates of several effects in one class, each float ``(k,)``.

    Args:
        value: NaN where it cannot be estimated.
        variance: robust; ``freedom`` its degrees of freedom.
        independent: variance if answers did not depend on each other.
        reach: variance of the estimate, in units of the variance of one unit's values.
        others: float ``(m,)``, what the other columns cost.
        enough: whether the answers and units that the fit does not use up tell how much answers
            vary.
    """

    value: FloatArray
    variance: FloatArray
    freedom: FloatArray
    independent: FloatArray
    reach: FloatArray
    others: FloatArray
    enough: bool

    def only(self, kept: BoolArray) -> Self:
        """Return some of the effects."""
        return type(self)(
            self.value[kept],
            self.variance[kept],
            self.freedom[kept],
            self.independent[kept],
            self.reach[kept],
            self.others,
            self.enough,
        )


@dataclass(frozen=True, eq=False)
class Rows:
    """What is known about one class: a row for each answer, or for each answer and other class.

    Args:
        value: float ``(n,)``.
        effects: sparse ``(n, k)``, the columns of the effects that are asked for.
        least: share of its variation that a direction of the effects needs to be estimated.
        nuisance: sparse ``(n, m)``, the others; ``penalty`` float ``(m,)`` on their squares.
        doubtful: the first of the others, which a fit may leave out.
        level: int ``(n,)``, the group of rows whose common level is removed.
        held: rows at the mean that each group's level is estimated with; 0 removes it entirely.
        unit: int ``(n,)``, the unit of information, within which rows depend on each other.
        answer: int ``(n,)``, which rows are one answer.
    """

    value: FloatArray
    effects: sparse.csr_array
    least: float
    nuisance: sparse.csr_array
    penalty: FloatArray
    doubtful: int
    level: IntArray
    held: float
    unit: IntArray
    answer: IntArray

    def fitted(self) -> list[Effects]:
        """Estimate the effects, with the doubtful columns and, where there are any, without."""
        found = _System.of(self)
        return [found.solved(left_out) for left_out in sorted({0, self.doubtful})]


@dataclass(frozen=True, eq=False)
class _System:
    """The normal equations of some rows, once the level of each group is removed.

    Args:
        columns: sparse ``(n, m + k)``, all others and then the effects.
        groups: sparse, sums rows by group; ``sums`` the columns' sums.
        weight: float, one per group: of its sum in its level.
        gram: float ``(m + k, m + k)``; ``right`` float ``(m + k,)``.
    """

    rows: Rows
    columns: sparse.csr_array
    groups: sparse.csr_array
    sums: FloatArray
    weight: FloatArray
    gram: FloatArray
    right: FloatArray

    @classmethod
    def of(cls, rows: Rows) -> Self:
        m = rows.nuisance.shape[1]
        columns = sparse.csr_array(sparse.hstack([rows.nuisance, rows.effects]))
        groups = _indicator(rows.level)
        sums = (groups @ columns).toarray()
        weight = 1 / (np.bincount(rows.level) + rows.held)
        gram = (columns.T @ columns).toarray() - sums.T @ (weight[:, None] * sums)
        gram[np.arange(m), np.arange(m)] += rows.penalty
        right = columns.T @ rows.value - sums.T @ (weight * (groups @ rows.value))
        return cls(rows, columns, groups, sums, weight, gram, right)

    def solved(self, left_out: int) -> Effects:
        """Estimate the effects by least squares, with cluster-robust errors.

        Args:
            left_out: how many of the first columns are left out.

        The level of each group is removed. Directions of the effects that hardly vary once all else
        is accounted for are left out; each effect is then against the mean of what takes its place,
        as for words of which every image has exactly one.

        Rows depend on each other within a unit, and within a group: the variance counts both
        (Cameron, Gelbach & Miller 2011), and is corrected for the leverage of units (Bell &
        McCaffrey 2002).
        """
        rows, columns, groups, weight = self.rows, self.columns, self.groups, self.weight
        gram, right, sums = self.gram, self.right, self.sums
        m = rows.nuisance.shape[1]
        solved = np.zeros((m, m))
        inner = gram[left_out:m, left_out:m]
        # Columns that say the same share what they explain.
        shared = _LEAST_RIDGE * np.diag(inner).max(initial=1.0)
        solved[left_out:, left_out:] = np.linalg.inv(inner + shared * np.eye(len(inner)))
        cross = solved @ gram[:m, m:]
        inverse, known = _inverse(gram[m:, m:] - gram[m:, :m] @ cross, rows.least)
        effects = inverse @ (right[m:] - cross.T @ right[:m])
        others = solved @ right[:m] - cross @ effects
        rest = rows.value - columns @ np.concatenate([others, effects])
        rest -= (weight * (groups @ rest))[rows.level]

        share = np.where(known > 0, known, 1.0)
        towards = np.vstack([-cross @ inverse, inverse]) / share
        influence = columns @ towards - (weight[:, None] * (sums @ towards))[rows.level]
        units = _indicator(rows.unit)
        part = (units @ columns).toarray() - (units @ groups.T) @ (weight[:, None] * sums)
        whole = np.block([[solved + cross @ inverse @ cross.T, -cross @ inverse],
                          [-inverse @ cross.T, inverse]])  # fmt: skip
        leverage = np.einsum("ij,ij->i", part @ whole, part) / np.bincount(rows.unit)
        free = 1 - np.clip(leverage, 0, _MOST_LEVERAGE)[:, None]
        # A group's level is estimated from the row itself, too, which makes its rest smaller.
        grown = rest / np.sqrt(np.maximum(1 - weight, 1 - _MOST_LEVERAGE))[rows.level]
        scores = influence * grown[:, None]
        own = ((units @ scores) ** 2 / free).sum(axis=0)
        shared = [((of @ scores) ** 2).sum(axis=0) for of in (groups, _indicator(rows.answer))]
        reach = (units @ influence) ** 2
        answers = _indicator(rows.answer)
        n_answers, n_units = answers.shape[0], units.shape[0]
        explained = np.einsum("ij,ji->", whole, gram) - whole.diagonal()[:m] @ rows.penalty
        beyond = n_answers - np.bincount(rows.level) @ weight - explained
        usual = ((answers @ rest) ** 2).sum() / max(beyond, 1.0)
        each = answers @ influence * (n_answers / len(rest))
        spread = np.maximum((reach**2 / free).sum(axis=0), np.finfo(float).tiny)
        return Effects(
            np.where(known > 0, effects / share, np.nan),
            np.maximum(own, own + shared[0] - shared[1]),
            np.maximum(reach.sum(axis=0) ** 2 / spread, 1.0),
            usual * (each**2).sum(axis=0),
            reach.sum(axis=0),
            others,
            bool(beyond >= _FEWEST_ANSWERS and n_units - known.sum() >= _FEWEST_UNITS),
        )


def _indicator(group: IntArray) -> sparse.csr_array:
    """Return the sparse matrix that sums rows by group."""
    size = (int(group.max(initial=-1)) + 1, len(group))
    return sparse.csr_array((np.ones(len(group)), (group, np.arange(len(group)))), shape=size)


def _inverse(gram: FloatArray, least: float) -> tuple[FloatArray, FloatArray]:
    """Return the inverse without the directions that say too little, and what is known of each.

    Returns:
        ``(k, k)``, and the share of each effect that lies in the directions that are left,
        ``(k,)``: 1 where it stands on its own, 0 where nothing is known.
    """
    kept, inverse = _known(gram, least)
    return inverse, np.diag(kept)


def _known(gram: FloatArray, least: float) -> tuple[FloatArray, FloatArray]:
    scale = np.sqrt(np.maximum(np.diag(gram), 0))
    safe = np.where(scale > 1e-6, scale, 1.0)
    inner = np.where(scale > 1e-6, 1.0, 0.0)
    roots, axes = np.linalg.eigh(gram / safe / safe[:, None] * inner * inner[:, None])
    axes, roots = axes[:, roots > least], roots[roots > least]
    return axes @ axes.T, (axes / roots) @ axes.T / safe / safe[:, None]


def groups_of_words(has: BoolArray, fewest: int) -> IntArray:
    """Return the group of each word of a class, -1 for words that too few images have or lack.

    Words that always or nearly always come together cannot be told apart, nor can a word and those
    that it is made up of: these are one group.

    Args:
        has: bool ``(n_images, n_words)``.
        fewest: images with a group, and without it, that it needs.
    """
    group = np.arange(has.shape[1])
    while True:
        numbers, group = np.unique(group, return_inverse=True)
        members = sparse.csr_array((np.ones(len(group)), (np.arange(len(group)), group)))
        having = (has @ members) > 0
        count = having.sum(axis=0)
        usable = np.flatnonzero((count >= fewest) & (len(has) - count >= fewest))
        inside = having[:, usable] - having[:, usable].mean(axis=0)
        kept, _ = _known(inside.T @ inside, LEAST_APART)
        size = np.sqrt(np.maximum(np.diag(kept), 1e-9))
        linked = np.triu(kept / size / size[:, None] > _ALIKE, 1)
        if not linked.any():
            number = np.full(len(numbers), -1)
            number[usable] = np.arange(len(usable))
            return number[group]
        one, other = usable[np.array(np.nonzero(linked))]
        _, merged = sparse.csgraph.connected_components(
            sparse.coo_array((np.ones(len(one)), (one, other)), shape=(len(numbers),) * 2)
        )
        group = merged[group]
