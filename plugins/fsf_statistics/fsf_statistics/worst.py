"""The accuracy of the group of class and word that a method is worst at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import fsframework as fsf
from fsf_statistics.breakdowns import (
    QUESTIONS,
    BreakdownRow,
    Question,
    breakdown,
    correct,
    models_and_pool,
    query_parts,
)
from fsframework.errors import DataError, OptionError, argument
from fsframework.values import ArmOutcomes, Estimate, ImagePool, html_table, text_table

__all__ = ["FOLDS", "WorstGroup", "WorstGroups", "worst_groups"]

FOLDS = 10
"""Parts of the tasks; in each, the group is judged that is worst in the others."""


@dataclass(frozen=True)
class WorstGroup:
    """The worst group of one arm, or by how much it is worse in the tested arm.

    Args:
        arm: name of the arm; ``gap`` for the difference.
        group: class and word of the group with the lowest share of correct answers; empty for the
            difference.
        estimate: its accuracy.
        statistic: wAcc in the same arm, or its gap.
        n_groups: groups compared.
        n_queries: queries of the group.
    """

    arm: str
    group: tuple[str, ...]
    estimate: Estimate
    statistic: Estimate | None
    n_groups: int
    n_queries: int

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "arm": self.arm,
            "group": list(self.group),
            "estimate": self.estimate.to_json(),
            "wacc": None if self.statistic is None else self.statistic.to_json(),
            "n_groups": self.n_groups,
            "n_queries": self.n_queries,
        }


@dataclass(frozen=True, repr=False)
class WorstGroups:
    """The worst group of class and word of each arm of a run; prints as a table.

    Args:
        rows: of the control, of the tested arm and of the difference, as far as there are any.
        notes: what a reader must know, a sentence each.
    """

    rows: tuple[WorstGroup, ...]
    notes: tuple[str, ...] = field(default=())

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        columns = ("arm", "worst group", "accuracy", "wAcc", "groups", "queries")
        return columns, [
            (
                row.arm,
                " + ".join(row.group),
                _shown(row.estimate),
                "" if row.statistic is None else str(row.statistic),
                f"{row.n_groups:,}",
                f"{row.n_queries:,}",
            )
            for row in self.rows
        ]

    def __repr__(self) -> str:
        return "\n".join([text_table(*self._cells()), *self.notes])

    def _repr_html_(self) -> str:
        from html import escape

        return html_table(*self._cells()) + "".join(f"<p>{escape(n)}</p>" for n in self.notes)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {"rows": [row.to_json() for row in self.rows], "notes": list(self.notes)}


def worst_groups(
    run: fsf.Run | ArmOutcomes | Sequence[ArmOutcomes] | str | Path,
    *,
    question: Question = "present",
    least: int = 50,
    level: float = 0.95,
    pool: ImagePool | None = None,
    runs_dir: str | Path | None = None,
) -> WorstGroups:
    """Return the accuracy of the worst group of class and word in each arm, beside wAcc.

    A group is a class and a word, with the queries of the class that have the word; groups overlap,
    and those with fewer than ``least`` queries, each counted as often as it is asked, or with
    queries in fewer than 10 tasks are left out.

    The lowest of many shares is low by chance too. So the value comes from cross-fitting: in each
    tenth of the tasks, the group is judged that is worst in the others. The interval is for the
    lowest of the groups' true accuracies: with intervals of all groups at once (Bonferroni), it
    reaches from the lowest of their lower ends to the lowest of their upper ends. It is at least as
    wide as its level says, and it contains the value. The intervals of the groups are those of
    ``breakdown``, over training seeds too; where all answers are right, or all wrong, they are
    exact, with one answer per task. The interval of the gap follows from those of the two arms,
    taken as independent (Zou and Donner 2008).

    Args:
        run: a run, runs over seeds, the folder or name of a run, what ``fsframework.evaluate``
            returned, or several of the latter, of models trained with other seeds on equal tasks.
        question: ``present``, words that a query has; ``tied``, the word that the support of the
            query's class shares.
        least: queries of a group, at least 1.
        level: confidence level, 0 < level < 1.
        pool: of outcomes: the images that the tasks were drawn from, with their words.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        DataError: the images have no words, or no group is large enough.
        OptionError: an option is out of range.
        RecordError: the run does not exist or has no outcomes.

    Source: Sagawa et al. 2020, "Distributionally Robust Neural Networks for Group Shifts" (ICLR),
    for the measure; Zou and Donner 2008, "Construction of confidence limits about effect measures:
    A general approach", for the gap.

    >>> import fsf_statistics
    >>> import fsframework as fsf
    >>> data = {"name": "planted", "n_per_class": 12, "size": 16}
    >>> arms = fsf.draw("random", fsf.pool(data), tasks=60, way=2, shot=1, queries=4)
    >>> outcomes = fsf.evaluate(fsf.model("ncc"), arms, data)
    >>> found = fsf_statistics.worst_groups(outcomes, least=20, pool=fsf.pool(data))
    >>> found.rows[0].arm, len(found.rows[0].group)
    ('random', 2)
    """
    if question not in QUESTIONS:
        raise OptionError(f"{argument('question', question)} must be one of {', '.join(QUESTIONS)}")
    if least < 1:
        raise OptionError(f"{argument('least')} must be at least 1, not {least}")
    if not 0 < level < 1:
        raise OptionError(f"{argument('level')} must lie between 0 and 1, not {level}")
    models, pool = models_and_pool(run, pool, runs_dir)
    outcomes = models[0]
    found = breakdown(models, "pair", question=question, level=level, pool=pool)
    counts: dict[str, list[BreakdownRow]] = {}
    for row in found.rows:
        if row.arm in outcomes and row.n_queries >= least and row.n_tasks >= FOLDS:
            counts.setdefault(row.arm, []).append(row)
    if not counts:
        raise DataError(
            f"no class and word has {least} queries in {FOLDS} tasks ({argument('least')})"
        )
    beside = {}
    if len(models) == 1 or isinstance(run, fsf.Run):
        given: Any = run if isinstance(run, fsf.Run) else outcomes
        beside = {one.name: one for one in fsf.estimate(given, "wacc", level=level).values()}
    rows = []
    for arm, groups in counts.items():
        share = (1 - level) / len(groups)
        each = breakdown(models, "pair", question=question, level=1 - share, pool=pool)
        kept = {row.names for row in groups}
        own = [row for row in each.rows if row.arm == arm and row.names in kept]
        value, worst = _cross_fitted(models, arm, pool, question, [row.names for row in own])
        low, high = (min(ends) for ends in zip(*(_ends(row, share) for row in own), strict=True))
        estimate = replace(
            next(row for row in own if row.names == worst).estimate,
            statistic="worst-group",
            value=value,
            low=min(low, value),
            high=max(high, value),
            level=level,
            estimator="simultaneous",
        )
        n_queries = next(row.n_queries for row in own if row.names == worst)
        wacc = beside.get(f"wacc-{arm}", beside.get("wacc"))
        rows.append(WorstGroup(arm, worst, estimate, wacc, len(own), n_queries))
    rows += _gap(outcomes, {row.arm: row for row in rows}, beside)
    return WorstGroups(tuple(rows))


def _shown(one: Estimate) -> str:
    """Return a value with the ends of its interval, which are not equally far from it."""
    value, low, high = (f"{100 * number:z.1f}" for number in (one.value, one.low, one.high))
    return f"{value} % ({low} to {high})".replace("-", "−")


def _ends(row: BreakdownRow, share: float) -> tuple[float, float]:
    """Return the interval of a group within 0 and 1, where one of level ``1 - share`` is."""
    one = row.estimate
    if not math.isnan(one.low):
        return max(one.low, 0.0), min(one.high, 1.0)
    room = 1 - (share / 2) ** (1 / row.n_tasks)
    return max(one.value - room, 0.0), min(one.value + room, 1.0)


def _cross_fitted(
    models: Sequence[ArmOutcomes],
    arm: str,
    pool: ImagePool,
    question: Question,
    kept: Sequence[tuple[str, ...]],
) -> tuple[float, tuple[str, ...]]:
    """Return the accuracy of the worst group by cross-fitting, and the worst group of all tasks."""
    tasks = models[0].arms[arm]
    query, part, names = query_parts(tasks, pool, "pair", question)
    fold = query // (tasks.n_way * tasks.n_query) % FOLDS
    key, shape = fold * len(names) + part, (FOLDS, len(names))
    right = np.mean([correct(one[arm]).ravel()[query] for one in models], axis=0)
    sums, asked = (
        np.bincount(key, weights, minlength=FOLDS * len(names)).reshape(shape)
        for weights in (right, np.ones(len(query)))
    )
    place = {name: i for i, name in enumerate(names)}
    columns = [place[name] for name in kept]
    sums, asked = sums[:, columns], asked[:, columns]
    others = asked.sum(axis=0) - asked
    elsewhere = (sums.sum(axis=0) - sums) / np.maximum(others, 1)
    chosen = np.where(others > 0, elsewhere, np.inf).argmin(axis=1)
    folds = np.arange(FOLDS)
    total = asked[folds, chosen].sum()
    overall = sums.sum(axis=0) / asked.sum(axis=0)
    worst = int(overall.argmin())
    value = sums[folds, chosen].sum() / total if total else overall[worst]
    return float(value), kept[worst]


def _gap(
    outcomes: ArmOutcomes, rows: Mapping[str, WorstGroup], beside: Mapping[str, Estimate]
) -> list[WorstGroup]:
    """Return the difference between control and tested arm, if both have groups."""
    contrast = outcomes.arms.contrast
    if contrast is None or any(arm not in rows for arm in contrast.arms):
        return []
    first, second = (rows[arm] for arm in contrast.arms)
    one, other = first.estimate, second.estimate
    value = one.value - other.value
    below = math.hypot(one.value - one.low, other.high - other.value)
    above = math.hypot(one.high - one.value, other.value - other.low)
    estimate = replace(
        one,
        value=value,
        low=value - below,
        high=value + above,
        paired=False,
        n_tasks=one.n_tasks + other.n_tasks,
        n_images=0,
        arms=contrast.arms,
        seed_deviation=None,
    )
    n_queries = first.n_queries + second.n_queries
    n_groups = max(first.n_groups, second.n_groups)
    return [WorstGroup("gap", (), estimate, beside.get("wacc-gap"), n_groups, n_queries)]
