"""Which words hurt which classes: two questions about every pair of a class and a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

import fsframework as fsf
from fsf_statistics.adjusting import Answers, OtherWords, cost_of_tied_words
from fsf_statistics.breakdowns import (
    MOST_SHOWN,
    QUESTIONS,
    Question,
    described_images,
    entries,
    models_and_pool,
    rows_left,
    tied_words,
    words_of,
)
from fsf_statistics.pooling import Effects, Pooled, pooled, shares_wrong, simes
from fsf_statistics.tails import Sample, differences, no_difference
from fsframework.errors import OptionError, argument
from fsframework.values import (
    ArmOutcomes,
    BoolArray,
    Estimate,
    FloatArray,
    ImagePool,
    IntArray,
    TaskSet,
    html_table,
    text_table,
)

__all__ = ["LEAST_HARM", "MOST_WRONG", "HarmfulPairs", "PairRow", "harmful_pairs"]

LEAST_HARM = 0.04
"""Share of correct answers that a word must cost before its pair is reported."""

MOST_WRONG = 0.1
"""Expected share of wrong pairs among those reported."""

FEWEST, FEWEST_OTHERS = 2, 10
"""Tasks (or images) with a word, and without it, that a pair needs to be looked at."""

_RIDGE = 5.0
"""Variance of a class's accuracy between tasks over that of the effects of the other classes."""

_LEAST_SCALE = 0.1
"""Of a class, relative to the mean over classes."""


@dataclass(frozen=True)
class PairRow:
    """How much a word costs a class.

    Args:
        class_name: the class; ``word`` the word.
        question: ``tied``, the word in the support, or ``present``, the word in a query.
        estimate: what the word costs: accuracy without it minus accuracy with it, given all other
            pairs; positive where it hurts.
        with_word: accuracy with the word as observed; ``without`` the one expected without it, that
            is with the difference before shrinkage.
        n_tasks: tasks with the word in this role.
        n_queries: queries of the class in these tasks; for ``present`` those that have the word.
        n_images: distinct images with the word: in the supports, or among the queries.
        p: one-sided, of no harm, from this pair only: that of a permutation test, in which other
            words and other arms play no part.
        p_corrected: corrected for all pairs of both questions: the expected share of pairs without
            harm among this one and all more certain ones.
        harmful: whether the pair is reported.
    """

    class_name: str
    word: str
    question: Question
    estimate: Estimate
    with_word: float
    without: float
    n_tasks: int
    n_queries: int
    n_images: int
    p: float
    p_corrected: float
    harmful: bool

    @property
    def names(self) -> tuple[str, str]:
        """Class and word."""
        return self.class_name, self.word

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "class": self.class_name,
            "word": self.word,
            "question": self.question,
            "estimate": self.estimate.to_json(),
            "with": self.with_word,
            "without": self.without,
            "n_tasks": self.n_tasks,
            "n_queries": self.n_queries,
            "n_images": self.n_images,
            "p": self.p,
            "p_corrected": self.p_corrected,
            "harmful": self.harmful,
        }


@dataclass(frozen=True, repr=False)
class HarmfulPairs:
    """The pairs of a class and a word that hurts it; prints as a table, the worst pair first.

    Args:
        tested: every pair that was looked at, reported ones first, the most harmful first.
        questions: that were asked.
        p_any: of "no word hurts any class", from all pairs of both questions, corrected for the
            number of tests.
        notes: what a reader must know, a sentence each.
    """

    tested: tuple[PairRow, ...]
    questions: tuple[Question, ...] = QUESTIONS
    p_any: float = 1.0
    notes: tuple[str, ...] = field(default=())

    @property
    def rows(self) -> tuple[PairRow, ...]:
        """The reported pairs."""
        return tuple(row for row in self.tested if row.harmful)

    def __len__(self) -> int:
        return len(self.rows)

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        columns = ("class", "word", "question", "costs", "with", "without", "tasks", "queries")
        return (*columns, "images", "p corrected"), [
            (
                row.class_name,
                row.word,
                row.question,
                f"{100 * row.estimate.value:.1f} "
                f"[{100 * row.estimate.low:.1f}, {100 * row.estimate.high:.1f}] points",
                f"{100 * row.with_word:.1f} %",
                f"{100 * row.without:.1f} %",
                f"{row.n_tasks:,}",
                f"{row.n_queries:,}",
                f"{row.n_images:,}",
                f"{row.p_corrected:.2g}",
            )
            for row in self.rows[:MOST_SHOWN]
        ]

    def __repr__(self) -> str:
        table = [text_table(*self._cells())] if self.rows else ["no pair is reported"]
        return "\n".join([*table, *rows_left(len(self.rows)), *self.notes])

    def _repr_html_(self) -> str:
        table = html_table(*self._cells()) if self.rows else "<p>no pair is reported</p>"
        told = (*rows_left(len(self.rows)), *self.notes)
        return table + "".join(f"<p>{escape(note)}</p>" for note in told)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; ``rows`` are all pairs that were looked at."""
        return {
            "questions": list(self.questions),
            "p_any": self.p_any,
            "rows": [row.to_json() for row in self.tested],
            "notes": list(self.notes),
        }


def harmful_pairs(
    run: fsf.Run | ArmOutcomes | str | Path,
    question: Question | None = None,
    *,
    level: float = 0.95,
    least: float = LEAST_HARM,
    wrong: float = MOST_WRONG,
    pool: ImagePool | None = None,
    runs_dir: str | Path | None = None,
) -> HarmfulPairs:
    """Return which words hurt which classes, corrected for how many pairs were looked at.

    Two questions are asked about a class and a word. *Tied*: the accuracy of the class in tasks
    whose support ties it to the word, against its uniformly drawn tasks, if the queries were the
    same images; what the other classes of a task do to it is removed first. Without uniformly drawn
    tasks it is compared with its tasks that tie it to other words. *Present*: the accuracy of the
    class's images that have the word, as queries, against its images without it; each answer is
    compared with those to the other queries of the class in the same task, each image counts once,
    and what the other words of the images do is removed, also of those that stand in the place of
    the word where it is absent. Only uniformly drawn arms are used for *present*, since other
    samplers choose queries by their words.

    How pairs are judged, in three steps:

    1. Each pair has an estimate, a standard error over tasks (tied) or images (present), and p of a
       permutation test. Whether words make any difference at all is tested by Simes' test of all
       pairs and by a permutation test of the sum of squares for each question. If p (``p_any``,
       corrected for the number of tests) is above ``1 - level``, no pair is reported: of reports
       about nothing, such as placebos, at most this share shows any pair.
    2. What a pair costs is estimated given all pairs of the question (adaptive shrinkage): a word
       that hurts many classes is likely to hurt another, and a difference that rests on few tasks
       or images counts for little. ``estimate`` and its interval are those of this distribution;
       ``with_word`` is what was observed, ``without`` that plus the difference before shrinkage.
    3. Pairs are reported, the most certain first, as long as the expected share of those without
       harm among them is at most ``wrong`` (``p_corrected``), if they cost at least ``least``.

    Caveats: this is about these images and this model. A word stands for whatever occurs together
    with it and is not a word of its own; a counterfactual image is the only proof. Words of other
    classes hurt as well: half of the errors that these draw to themselves are not counted for
    *tied*. On the embedded data set, some nineteen in twenty reported pairs cost anything and nine
    in ten more than 2 points; half to nine in ten cost more than 10 points: to be sure of these,
    choose a ``least`` of 0.1 and accept that fewer are found. With 150 tasks, or words in ten
    images of a class, expect to miss most.
    ``docs/words-that-hurt.md`` states how often reports were right.

    Args:
        run: a run, its folder or name, or what ``fsframework.evaluate`` returned.
        question: ``tied`` or ``present``; by default both. The correction is for both in any case.
        level: of intervals, and one minus the p below which anything is reported; between 0 and 1.
        least: share of correct answers that a reported word costs, at least 0.
        wrong: expected share of pairs without harm among those reported, between 0 and 1.
        pool: of outcomes: the images that the tasks were drawn from, with their words.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        DataError: the images have no words, or cannot be found.
        OptionError: an option is out of range, or there are several models: words that hurt one
            need not hurt another that was trained alike.
        RecordError: the run does not exist or has no outcomes.

    Source: Simes 1986; Goeman et al. 2004; Stephens 2017, False discovery rates: a new deal;
    FewSTAB, Definition 1.
    """
    _check(question, level, least, wrong)
    models, pool = models_and_pool(run, pool, runs_dir)
    if len(models) > 1:
        raise OptionError(
            f"harmful_pairs is about one model, and these are {len(models)} training seeds: give "
            "one of the runs; breakdown gives accuracies over all seeds"
        )
    outcomes = models[0]
    n_words = len(words_of(pool))
    for tasks in outcomes.arms.values():
        tasks.verify(pool)
    tables = [table for table in (*_tied(outcomes, pool), _present(outcomes, pool)) if len(table)]
    likely = [pooled(table.effects(n_words)) for table in tables]
    chances = np.concatenate([np.empty(0), *(one.below(0.0) for one in likely)])
    p_any = _p_any(tables)
    shares = shares_wrong(chances)
    limit = wrong if p_any <= 1 - level else -1.0
    rows: list[PairRow] = []
    for table, one in zip(tables, likely, strict=True):
        own = shares[len(rows) : len(rows) + len(table)]
        rows += _rows(table, one, own, pool, level)
    rows = [replace(row, harmful=_is_harmful(row, least, limit)) for row in rows]
    asked = QUESTIONS if question is None else (question,)
    chosen = [row for row in rows if row.question in asked]
    chosen.sort(key=lambda row: (-row.harmful, -row.estimate.value, row.names, row.question))
    notes = _notes(rows, outcomes, p_any, (level, least, wrong))
    return HarmfulPairs(tuple(chosen), asked, p_any, notes)


def _is_harmful(row: PairRow, least: float, limit: float) -> bool:
    return row.p_corrected <= limit and row.estimate.value >= least


def _p_any(tables: Sequence[_Table]) -> float:
    """Return the p of "no word hurts any class": Simes' test of all pairs, and one per table.

    The one test finds a few large effects, the others many small ones; Bonferroni's correction is
    for trying all.
    """
    pairs = simes(np.concatenate([np.empty(0), *(table.p for table in tables)]))
    tried = [pairs, *(table.p_any for table in tables)]
    return min(1.0, len(tried) * min(tried))


def _check(question: Question | None, level: float, least: float, wrong: float) -> None:
    if question is not None and question not in QUESTIONS:
        known = " or ".join(QUESTIONS)
        raise OptionError(f"{argument('question', question)} must be {known}")
    if not 0 < level < 1:
        raise OptionError(f"{argument('level')} must lie between 0 and 1, not {level}")
    if not 0 <= least < 1:
        raise OptionError(f"{argument('least')} must be at least 0 and below 1, not {least}")
    if not 0 < wrong < 1:
        raise OptionError(f"{argument('wrong')} must lie between 0 and 1, not {wrong}")


@dataclass(frozen=True, eq=False)
class _Table:
    """Pairs in one role, an entry each.

    Args:
        question: the role; ``arms`` whose tasks are used; ``closed`` whether they share images.
        label: of the class; ``word`` its index.
        value: accuracy without the word minus that with it; ``error`` its standard error.
        scale: how much the class's accuracy varies, relative to the other classes.
        p: one-sided, of no harm.
        with_word: accuracy with the word; ``without`` that without it.
        counts: int ``(n, 3)``: tasks, queries and images.
        p_any: of "the values do not depend on the words".
    """

    question: Question
    arms: tuple[str, ...]
    closed: bool
    label: IntArray
    word: IntArray
    value: FloatArray
    error: FloatArray
    scale: FloatArray
    p: FloatArray
    with_word: FloatArray
    without: FloatArray
    counts: IntArray
    p_any: float

    def __len__(self) -> int:
        return len(self.label)

    def effects(self, n_words: int) -> Effects:
        """Return what the words cost, for all pairs together."""
        _, kind = np.unique(self.word, return_inverse=True)
        return Effects(self.value, self.error, kind, self.scale)


@dataclass(frozen=True, eq=False)
class _Known:
    """What is known of the differences, without a word minus with it.

    Args:
        more: float ``(n_classes, n_words)``, what is added to each; ``left`` the factor on the
            variance of the values that goes with it.
        doubt: float ``(n_classes,)``, variance of what is added.
    """

    more: FloatArray
    left: FloatArray
    doubt: FloatArray


@dataclass(frozen=True, eq=False)
class _Units:
    """What classes are judged by: tasks with their tied word, or images with their words.

    Args:
        label: int ``(n,)``, class of each; ``value`` its accuracy, relative to that of its class.
        unit: int ``(k,)``, the units that have a word, each as often as it has one; ``word`` which.
        lost: float ``(n_classes,)``, degrees of freedom spent on ``value`` besides the mean.
        level: float ``(n_classes,)``, accuracy of each class.
        asked: float ``(n,)``, queries behind each unit.
        known: of the differences, besides the values.
    """

    label: IntArray
    value: FloatArray
    unit: IntArray
    word: IntArray
    lost: FloatArray
    level: FloatArray
    asked: FloatArray
    known: _Known

    def table(
        self, n_words: int, question: Question, arms: tuple[str, ...], *, closed: bool
    ) -> tuple[_Table, IntArray, BoolArray]:
        """Compare the units with each word with those without it.

        Returns:
            The pairs that are looked at, without their counts; the pair of each entry of ``unit``,
            numbered before the others were left out; and which were kept.
        """
        n_classes = len(self.level)
        keys, pair = np.unique(self.label[self.unit] * n_words + self.word, return_inverse=True)
        label = keys // n_words
        whole = Sample.of(self.label, self.value, n_classes)
        having = Sample.of(pair, self.value[self.unit], len(keys))
        others = whole.at(label).less(having)
        kept = (having.count >= FEWEST) & (others.count >= FEWEST_OTHERS)
        asked = np.bincount(self.label, self.asked, minlength=n_classes)
        floor = 0.25 / np.maximum(asked, 1)  # where every answer is the same
        correction = (whole.count - 1) / np.maximum(whole.count - 1 - self.lost, 1)
        spread = np.maximum(whole.variance * correction, floor)
        word = keys % n_words
        more, left = self.known.more[label, word], self.known.left[label, word]
        with np.errstate(divide="ignore", invalid="ignore"):
            found = differences(whole.at(label), having, spread[label])
        value = found.value + more
        error = np.sqrt(found.error**2 * left + self.known.doubt[label])
        seen = np.unique(label[kept])
        scale = np.sqrt(spread) / (np.sqrt(spread[seen]).mean() if len(seen) else 1.0)
        with_word = self.level[label] + having.mean
        table = _Table(
            question,
            arms,
            closed,
            label[kept],
            word[kept],
            value[kept],
            error[kept],
            np.maximum(scale, _LEAST_SCALE)[label[kept]],
            found.p[kept],
            with_word[kept],
            (with_word + value)[kept],
            np.zeros((int(kept.sum()), 3), np.int64),
            no_difference(self.label, self.value, self.unit, self.word),
        )
        return table, pair, kept


def _tied(outcomes: ArmOutcomes, pool: ImagePool) -> list[_Table]:
    """Compare the tasks of a class that tie it to a word with those that do not."""
    found = []
    n_classes, n_words = len(pool.class_names), len(words_of(pool))
    uniform = [arm for arm in outcomes if outcomes.arms[arm].uniform]
    for arm, answered in outcomes.items():
        tasks = outcomes.arms[arm]
        tied = tied_words(tasks, pool)
        if not (tied >= 0).any():
            continue
        accuracy = np.asarray(answered.class_accuracy)
        value, lost = without_other_classes(tasks, accuracy, tied >= 0, n_classes)
        task, way = np.nonzero(tied >= 0)
        label, word = tasks.classes[task, way], tied[task, way]
        counted = np.bincount(label, minlength=n_classes)
        level = np.bincount(label, accuracy[task, way], minlength=n_classes)
        others = [one for one in uniform if one != arm]
        cost, doubt = cost_of_tied_words(outcomes, pool, arm, others)
        units = _Units(
            label,
            value[task, way],
            np.arange(len(label)),
            word,
            lost,
            level / np.maximum(counted, 1),
            np.full(len(label), float(tasks.n_query)),
            _Known(
                np.broadcast_to(cost[:, None], (n_classes, n_words)),
                np.ones((n_classes, n_words)),
                doubt,
            ),
        )
        closed = answered.scope == "closed"
        table, pair, kept = units.table(n_words, "tied", (arm,), closed=closed)
        n_tasks = np.bincount(pair, minlength=len(kept))
        support = np.repeat(pair, tasks.n_shot), tasks.support[task, way].ravel()
        counts = [n_tasks, n_tasks * tasks.n_query, _distinct(*support, len(kept), len(pool))]
        table.counts[:] = np.stack(counts, axis=1)[kept]
        found.append(table)
    return found


def without_other_classes(
    tasks: TaskSet, accuracy: FloatArray, used: BoolArray, n_classes: int
) -> tuple[FloatArray, FloatArray]:
    """Return how accuracies differ from what class and other classes of the task let expect.

    The effects of the other classes on the accuracy of a class are estimated by ridge regression,
    since some classes are confused with each other.

    Args:
        accuracy: float ``(T, way)``; ``used`` bool ``(T, way)``, where it counts.

    Returns:
        Float ``(T, way)``, 0 where it does not count, and the degrees of freedom spent on the
        other classes, ``(n_classes,)``.
    """
    rest, lost = np.zeros(accuracy.shape), np.zeros(n_classes)
    task, way = np.nonzero(used)
    label = tasks.classes[task, way]
    order = np.argsort(label, kind="stable")
    ends = np.cumsum(np.bincount(label, minlength=n_classes))
    for one in range(n_classes):
        rows = order[ends[one - 1] if one else 0 : ends[one]]
        if not len(rows):
            continue
        place = task[rows], way[rows]
        y = accuracy[place] - accuracy[place].mean()
        others = np.zeros((len(rows), n_classes))
        others[np.arange(len(rows))[:, None], tasks.classes[place[0]]] = 1
        others[:, one] = 0
        others -= others.mean(axis=0)
        if len(rows) < n_classes:  # the smaller of two equal systems
            gram = others @ others.T
            solved = np.linalg.solve(gram + _RIDGE * np.eye(len(rows)), np.c_[gram, y])
            fitted, lost[one] = gram @ solved[:, -1], np.trace(solved[:, :-1])
        else:
            gram = others.T @ others
            solved = np.linalg.solve(gram + _RIDGE * np.eye(n_classes), np.c_[gram, others.T @ y])
            fitted, lost[one] = others @ solved[:, -1], np.trace(solved[:, :-1])
        rest[place] = y - fitted
    return rest, lost


def _present(outcomes: ArmOutcomes, pool: ImagePool) -> _Table:
    """Compare the images of a class that have a word, as queries, with those that lack it."""
    uniform = [arm for arm in outcomes if outcomes.arms[arm].uniform]
    arms = uniform or list(outcomes)
    n_images, n_classes, n_words = len(pool), len(pool.class_names), len(words_of(pool))
    images = {arm: described_images(outcomes.arms[arm], pool) for arm in arms}
    answers = Answers.of(outcomes, images, n_images)
    asked = answers.asked
    chosen = np.flatnonzero(asked)
    label = pool.labels[chosen]
    by_class = [
        np.bincount(label, of[chosen], minlength=n_classes) for of in (answers.right, asked)
    ]
    value = answers.value[chosen]
    n_own = np.maximum(np.bincount(label, minlength=n_classes), 1)
    value -= (np.bincount(label, value, minlength=n_classes) / n_own)[label]
    assert pool.attributes is not None
    unit, word = entries(*pool.attributes.csr(chosen), np.arange(len(chosen)))
    other = OtherWords.of((label, value), (unit, word), (n_classes, n_words))
    units = _Units(
        label,
        value,
        unit,
        word,
        np.zeros(n_classes),
        by_class[0] / np.maximum(by_class[1], 1),
        asked[chosen],
        _Known(-other.explained, other.left, np.zeros(n_classes)),
    )
    closed = any(outcomes[arm].scope == "closed" for arm in arms)
    used = tuple(arms) if len(arms) == 1 else ()
    table, pair, kept = units.table(n_words, "present", used, closed=closed)
    number = np.full(n_images, -1)
    number[chosen] = np.arange(len(chosen))
    n_tasks = np.zeros(len(kept), np.int64)
    start = np.concatenate([[0], np.cumsum(np.bincount(unit, minlength=len(chosen)))])
    for arm in arms:
        shown = number[images[arm]]
        query, own = entries(start, pair, shown.ravel())
        task = query // shown[0].size
        n_tasks += _distinct(own, task, len(kept), len(shown))
    counts = [
        n_tasks,
        np.bincount(pair, asked[chosen][unit], minlength=len(kept)).astype(np.int64),
        np.bincount(pair, minlength=len(kept)),
    ]
    table.counts[:] = np.stack(counts, axis=1)[kept]
    return table


def _distinct(group: IntArray, member: IntArray, n_groups: int, n_members: int) -> IntArray:
    """Return how many distinct members each group has."""
    keys = np.sort(group.astype(np.int64) * n_members + member)
    first = np.ones(len(keys), bool)
    first[1:] = keys[1:] != keys[:-1]
    return np.bincount(keys[first] // n_members, minlength=n_groups)


def _rows(
    table: _Table, likely: Pooled, shares: FloatArray, pool: ImagePool, level: float
) -> list[PairRow]:
    """Return the rows of a table, none of them reported yet."""
    mean = likely.mean
    low, high = (likely.quantile(share) for share in ((1 - level) / 2, (1 + level) / 2))
    low, high = np.minimum(low, mean), np.maximum(high, mean)
    words = words_of(pool)
    return [
        PairRow(
            pool.class_names[table.label[i]],
            words[table.word[i]],
            table.question,
            Estimate(
                "harm",
                float(mean[i]),
                float(low[i]),
                float(high[i]),
                level,
                "closed" if table.closed else "open",
                False,
                "pooled",
                int(table.counts[i, 0]),
                int(table.counts[i, 2]),
                share=True,
                arms=table.arms,
                higher_is_better=False,
            ),
            float(np.clip(table.with_word[i], 0, 1)),
            float(np.clip(table.without[i], 0, 1)),
            n_tasks=int(table.counts[i, 0]),
            n_queries=int(table.counts[i, 1]),
            n_images=int(table.counts[i, 2]),
            p=float(table.p[i]),
            p_corrected=float(shares[i]),
            harmful=False,
        )
        for i in range(len(table))
    ]


def _notes(
    rows: Sequence[PairRow],
    outcomes: ArmOutcomes,
    p_any: float,
    limits: tuple[float, float, float],
) -> tuple[str, ...]:
    level, least, wrong = limits
    counted = {one: sum(row.question == one for row in rows) for one in QUESTIONS}
    notes = [
        f"{counted['tied']:,} pairs were looked at with the word tied to the class in the support, "
        f"{counted['present']:,} with the word present in a query; those reported cost at least "
        f"{100 * least:g} points, and at most {100 * wrong:g} % of them are expected to be wrong"
    ]
    if p_any > 1 - level:
        notes.append(
            f"no pair is reported: that no word hurts any class has p = {p_any:.2g}, above "
            f"{1 - level:.2g}"
        )
    if not counted["tied"]:
        notes.append("no class is tied to the same word in enough tasks to say what that costs")
    if any(tasks.placebo for tasks in outcomes.arms.values()):
        notes.append("this is a placebo: words are those of other images of the class")
    notes.append("a word stands for whatever occurs together with it and is not a word of its own")
    return tuple(notes)
