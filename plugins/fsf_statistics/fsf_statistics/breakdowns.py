"""Accuracies of the parts of a run: per class, word, pair of both, and context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from scipy import special

import fsframework as fsf
from fsf_statistics.adjusting import holm
from fsf_statistics.crossed import OVER_SEEDS, crossed
from fsframework.errors import DataError, OptionError, argument, close_matches
from fsframework.values import (
    ArmOutcomes,
    Estimate,
    FloatArray,
    ImagePool,
    IntArray,
    Outcomes,
    TaskSet,
    html_table,
    text_table,
)

__all__ = ["PARTS", "QUESTIONS", "Breakdown", "BreakdownRow", "Part", "Question", "breakdown"]

Part = Literal["class", "attribute", "pair", "context"]
PARTS: tuple[Part, ...] = get_args(Part)

Question = Literal["tied", "present"]
"""Whether a word is tied to a class in the support, or present in a query."""

QUESTIONS: tuple[Question, ...] = get_args(Question)

_NAMES: Mapping[Part, tuple[str, ...]] = {
    "class": ("class",),
    "attribute": ("word",),
    "pair": ("class", "word"),
    "context": ("context",),
}


MOST_SHOWN = 60
"""Rows that a printed table has."""


def rows_left(count: int) -> list[str]:
    """Return a sentence on the rows that a printed table leaves out, if there are any."""
    left = count - MOST_SHOWN
    return [f"{left:,} more in .rows"] if left > 0 else []


@dataclass(frozen=True)
class BreakdownRow:
    """The accuracy of one part of a run in one arm, or how much lower it is in the tested arm.

    Args:
        names: of the part, such as a class and a word.
        estimate: share of its queries that are answered correctly; with two arms, the difference
            between them.
        n_tasks: tasks with such queries; of both arms for a difference.
        n_queries: such queries, each counted as often as it is asked.
        n_images: distinct images among them; 0 for a difference, whose arms may share images.
        p: two-sided, of no difference between the arms; ``None`` in one arm.
        p_corrected: the same by Holm over all differences of the breakdown.
    """

    names: tuple[str, ...]
    estimate: Estimate
    n_tasks: int
    n_queries: int
    n_images: int
    p: float | None = None
    p_corrected: float | None = None

    @property
    def arm(self) -> str:
        """Name of its arm; ``gap`` for a difference between two."""
        return self.estimate.arms[0] if len(self.estimate.arms) == 1 else "gap"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "names": list(self.names),
            "arm": self.arm,
            "estimate": self.estimate.to_json(),
            "n_tasks": self.n_tasks,
            "n_queries": self.n_queries,
            "n_images": self.n_images,
            "p": self.p,
            "p_corrected": self.p_corrected,
        }


@dataclass(frozen=True, repr=False)
class Breakdown:
    """The accuracies of the parts of a run; prints as a table.

    Args:
        by: what the parts are.
        question: how a word is related to a query, for ``attribute`` and ``pair``.
        row_names: what the names of a row are, such as ``class`` and ``word``.
        rows: part by part, each arm and then the difference.
        notes: what a reader must know, a sentence each.
    """

    by: Part
    question: Question | None
    row_names: tuple[str, ...]
    rows: tuple[BreakdownRow, ...]
    notes: tuple[str, ...] = field(default=())

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        columns = (*self.row_names, "arm", "accuracy", "tasks", "queries", "images", "p (Holm)")
        return columns, [
            (
                *row.names,
                row.arm,
                str(row.estimate),
                f"{row.n_tasks:,}",
                f"{row.n_queries:,}",
                f"{row.n_images:,}",
                "" if row.p_corrected is None else f"{row.p_corrected:.2g}",
            )
            for row in self.rows[:MOST_SHOWN]
        ]

    def __repr__(self) -> str:
        table = text_table(*self._cells())
        return "\n".join([table, *rows_left(len(self.rows)), *self.notes])

    def _repr_html_(self) -> str:
        from html import escape

        told = (*rows_left(len(self.rows)), *self.notes)
        return html_table(*self._cells()) + "".join(f"<p>{escape(note)}</p>" for note in told)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "by": self.by,
            "question": self.question,
            "row_names": list(self.row_names),
            "rows": [row.to_json() for row in self.rows],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, eq=False)
class _Means:
    """Accuracy of each part in one arm, each float or int ``(parts,)``.

    Args:
        value: share of correct queries, NaN without queries.
        task: int ``(k,)``, a task; ``part`` a part that has queries in it; ``influence`` what the
            task adds to the error of the part's value.
        n_tasks: tasks that have the part; ``n_queries`` and ``n_images`` likewise.
    """

    value: FloatArray
    task: IntArray
    part: IntArray
    influence: FloatArray
    n_tasks: IntArray
    n_queries: IntArray
    n_images: IntArray

    @property
    def variance(self) -> FloatArray:
        """Variance of each value over draws of tasks, 0 where there is one task."""
        squares = np.bincount(self.part, self.influence**2, minlength=len(self.value))
        return np.asarray(squares * self.n_tasks / np.maximum(self.n_tasks - 1, 1))


def breakdown(
    run: fsf.Run | ArmOutcomes | Sequence[ArmOutcomes] | str | Path,
    by: Part,
    *,
    question: Question = "tied",
    column: str = "context",
    level: float = 0.95,
    pool: ImagePool | None = None,
    runs_dir: str | Path | None = None,
) -> Breakdown:
    """Return the accuracy of each part of a run in each arm, and the gap between the arms.

    The accuracy of a part is the share of its queries that are answered correctly, each query
    counted as often as it is asked. Its interval is that of a ratio of sums over tasks, since the
    queries of a task share a support; a gap has Welch's interval, or that of pairs of tasks where
    the arms are paired. p of the gaps is two-sided and corrected for their number by Holm. Over
    training seeds, the value is the mean over the models, and seeds and tasks are crossed random
    effects as in ``Runs.over_seeds``.

    Caveats: intervals cover other tasks, and other images only where no image is in two tasks. The
    parts differ in more than their name: biased tasks choose queries by their words, so that two
    words are not answers to the same queries. For what a word costs, see ``harmful_pairs``.

    Args:
        run: a run, runs over seeds, the folder or name of a run, what ``fsframework.evaluate``
            returned, or several of the latter, of models trained with other seeds on equal tasks.
        by: ``class``; ``attribute``, a word; ``pair``, a class and a word; or ``context``.
        question: for words, ``tied`` takes the queries of classes whose support is tied to the
            word, ``present`` the queries that have it. In a placebo, a query has the words of
            another image of its class.
        column: for ``context``, the metadata column that holds the contexts of the images.
        level: confidence level, 0 < level < 1.
        pool: of outcomes: the images that the tasks were drawn from, with their words.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        DataError: the images have no words or no such column, or cannot be found.
        OptionError: an option is out of range, or no class is tied to a word.
        RecordError: the run does not exist or has no outcomes.

    Source: Cochran 1977, section 6 (ratio estimates); FewSTAB, section 4.1 (class accuracy).

    >>> import fsf_statistics
    >>> import fsframework as fsf
    >>> data = {"name": "planted", "n_per_class": 12, "size": 16}
    >>> arms = fsf.draw("random", fsf.pool(data), tasks=30, way=2, shot=1, queries=4)
    >>> outcomes = fsf.evaluate(fsf.model("ncc"), arms, data)
    >>> found = fsf_statistics.breakdown(outcomes, "class", pool=fsf.pool(data))
    >>> found.row_names, found.rows[0].names, found.rows[0].arm
    (('class',), ('shape_080',), 'random')
    """
    if by not in PARTS:
        hint = close_matches(str(by), PARTS)
        raise OptionError(f"{argument('by', by)} must be one of {', '.join(PARTS)}{hint}")
    if question not in QUESTIONS:
        raise OptionError(f"{argument('question', question)} must be one of {', '.join(QUESTIONS)}")
    if not 0 < level < 1:
        raise OptionError(f"{argument('level')} must lie between 0 and 1, not {level}")
    models, pool = models_and_pool(run, pool, runs_dir)
    outcomes = models[0]
    for tasks in outcomes.arms.values():
        tasks.verify(pool)
    parts = _Parts.of(pool, by, question, column)
    arms = [arm for arm in outcomes if parts.has_any(outcomes.arms[arm])]
    if not arms:
        raise OptionError(
            f"no class of these tasks is tied to a word; {argument('question', 'present')} takes "
            "the words of the queries"
        )
    found = [
        {arm: _means(outcomes.arms[arm], parts, model[arm]) for arm in arms} for model in models
    ]
    if len(models) > 1:
        rows = _rows_over_seeds(parts, outcomes, found, level)
    else:
        rows = _rows(parts, outcomes, found[0], level)
    of_words = by in ("attribute", "pair")
    return Breakdown(by, question if of_words else None, _NAMES[by], rows, ())


def models_and_pool(
    run: fsf.Run | ArmOutcomes | Sequence[ArmOutcomes] | str | Path,
    pool: ImagePool | None,
    runs_dir: str | Path | None,
) -> tuple[list[ArmOutcomes], ImagePool]:
    """Return the answers of each model of a run, and the images of its tasks."""
    if isinstance(run, ArmOutcomes):
        run = [run]
    if isinstance(run, list | tuple):
        if pool is None:
            raise OptionError(
                f"outcomes do not hold the images of their tasks: give {argument('pool')}"
            )
        return list(run), pool
    if isinstance(run, str | Path):
        run = fsf.load_run(run, runs_dir)
    return [one.outcomes for one in run.runs], run.pool if pool is None else pool


@dataclass(frozen=True, eq=False)
class _Parts:
    """Which part, or parts, each query belongs to."""

    pool: ImagePool
    by: Part
    question: Question
    context: IntArray
    names: Sequence[tuple[str, ...]]

    @classmethod
    def of(cls, pool: ImagePool, by: Part, question: Question, column: str) -> _Parts:
        classes, none = pool.class_names, np.empty(0, np.int64)
        if by == "class":
            return cls(pool, by, question, none, [(name,) for name in classes])
        if by == "context":
            if column not in pool.metadata:
                known = ", ".join(sorted(pool.metadata)) or "none"
                raise DataError(
                    f"{argument('column', column)}: the data set has no such column; it has {known}"
                )
            values, place = np.unique(np.array(pool.metadata[column]), return_inverse=True)
            code: IntArray = np.asarray(place)
            return cls(pool, by, question, code, [(str(value),) for value in values])
        words = words_of(pool)
        if by == "attribute":
            return cls(pool, by, question, none, [(word,) for word in words])
        return cls(pool, by, question, none, [(name, word) for name in classes for word in words])

    def has_any(self, tasks: TaskSet) -> bool:
        """Whether any query of the tasks belongs to a part."""
        tied = self.by in ("attribute", "pair") and self.question == "tied"
        return not tied or bool((tasks.attribute >= 0).any())

    def of_queries(self, tasks: TaskSet) -> tuple[IntArray, IntArray]:
        """Return queries, numbered in order, and their parts: a query once for each part it has."""
        query: IntArray = np.arange(tasks.query.size)
        label = np.repeat(tasks.classes.ravel(), tasks.n_query)
        if self.by == "class":
            return query, label
        if self.by == "context":
            return query, self.context[tasks.query.ravel()]
        n_words = len(words_of(self.pool))
        if self.question == "tied":
            word = np.repeat(tied_words(tasks, self.pool).ravel(), tasks.n_query)
            query = np.flatnonzero(word >= 0)
            word = word[query]
        else:
            assert self.pool.attributes is not None
            shown = described_images(tasks, self.pool).ravel()
            table = self.pool.attributes
            query, word = entries(table.indptr, table.indices, shown)
        return query, word if self.by == "attribute" else label[query] * n_words + word


def query_parts(
    tasks: TaskSet, pool: ImagePool, by: Part, question: Question
) -> tuple[IntArray, IntArray, Sequence[tuple[str, ...]]]:
    """Return queries, numbered in order, their parts, and the names of the parts.

    A query is there once for each part that it belongs to.
    """
    parts = _Parts.of(pool, by, question, "")
    return *parts.of_queries(tasks), parts.names


def words_of(pool: ImagePool) -> tuple[str, ...]:
    """Return the words of the images of a pool.

    Raises:
        DataError: it has none.
    """
    if pool.attributes is None:
        raise DataError("these images have no words; give a pool with attributes")
    return pool.attributes.words


def tied_words(tasks: TaskSet, pool: ImagePool) -> IntArray:
    """Return the index in the pool's words of the word tied to each way, -1 for none."""
    known = {word: i for i, word in enumerate(words_of(pool))}
    index = np.array([known.get(word, -1) for word in tasks.words] + [-1], np.int64)
    return index[tasks.attribute]


def correct(outcomes: Outcomes) -> FloatArray:
    """Return 1.0 for each correct answer and 0.0 for each wrong one, ``(T, way, n_query)``."""
    truth = np.arange(outcomes.n_way, dtype=np.int16)[:, None]
    return np.asarray(outcomes.predictions == truth, np.float64)


def described_images(tasks: TaskSet, pool: ImagePool) -> IntArray:
    """Return the image whose words describe each query, int ``(T, way, n_query)``: the query.

    In a placebo it is an image of the same class, drawn for each query: there the words say nothing
    about the pixels.
    """
    if not tasks.placebo:
        return tasks.query
    order = np.argsort(pool.labels, kind="stable")
    start = np.cumsum(pool.class_sizes) - pool.class_sizes
    rng = np.random.default_rng(int(tasks.digest[:16], 16))
    label = np.broadcast_to(tasks.classes[:, :, None], tasks.query.shape)
    drawn = (rng.random(tasks.query.shape) * pool.class_sizes[label]).astype(np.int64)
    return np.asarray(order[start[label] + drawn])


def entries(start: IntArray, indices: IntArray, image: IntArray) -> tuple[IntArray, IntArray]:
    """Return (query, word) for every word of every query.

    Args:
        start: of the words of each image in ``indices``, and of their end; see
            ``AttributeTable``.
        image: int ``(n,)``, of each query.
    """
    counts = np.diff(start)[image]
    query = np.repeat(np.arange(len(image)), counts)
    ends = np.cumsum(counts)
    within = np.arange(len(query)) - np.repeat(ends - counts, counts)
    return query, indices[np.repeat(start[image], counts) + within].astype(np.int64)


def _means(tasks: TaskSet, parts: _Parts, outcomes: Outcomes) -> _Means:
    """Return the share of correct queries of each part: a ratio of sums over tasks."""
    n_parts, n_images = len(parts.names), len(parts.pool)
    query, part = parts.of_queries(tasks)
    task = query // (tasks.n_way * tasks.n_query)
    key, cell = np.unique(task * n_parts + part, return_inverse=True)
    right = np.bincount(cell, correct(outcomes).ravel()[query], minlength=len(key))
    asked = np.bincount(cell, minlength=len(key))
    own = key % n_parts
    sums = [np.bincount(own, of, minlength=n_parts) for of in (right, asked)]
    with np.errstate(divide="ignore", invalid="ignore"):
        value = sums[0] / sums[1]
    images = np.unique(part * n_images + tasks.query.ravel()[query])
    return _Means(
        value,
        key // n_parts,
        own,
        (right - value[own] * asked) / sums[1][own],
        np.bincount(own, minlength=n_parts),
        sums[1].astype(np.int64),
        np.bincount(images // n_images, minlength=n_parts),
    )


@dataclass(frozen=True)
class _Number:
    """An estimate with its variance and degrees of freedom, and what is behind it."""

    value: float
    variance: float
    freedom: float
    n_tasks: int
    n_queries: int
    n_images: int = 0


def _rows(
    parts: _Parts, outcomes: ArmOutcomes, found: Mapping[str, _Means], level: float
) -> tuple[BreakdownRow, ...]:
    rows: dict[int, list[BreakdownRow]] = {}
    for arm, means in found.items():
        for part, one in _numbers(means):
            row = _row(parts.names[part], outcomes, (arm,), one, level)
            rows.setdefault(part, []).append(row)
    contrast = outcomes.arms.contrast
    if contrast is not None and all(arm in found for arm in contrast.arms):
        both = [found[arm] for arm in contrast.arms]
        for part, one in (_paired if contrast.paired else _welch)(*both):
            row = _row(parts.names[part], outcomes, contrast.arms, one, level)
            rows.setdefault(part, []).append(row)
    return _corrected([row for part in sorted(rows) for row in rows[part]])


def _numbers(means: _Means) -> Iterator[tuple[int, _Number]]:
    """Yield each part that has queries with its accuracy."""
    columns = (means.value, means.variance, means.n_tasks, means.n_queries, means.n_images)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for part, (value, variance, n_tasks, n_queries, n_images) in enumerate(rows):
        if n_tasks:
            yield part, _Number(value, variance, n_tasks - 1, n_tasks, n_queries, n_images)


def _welch(control: _Means, tested: _Means) -> Iterator[tuple[int, _Number]]:
    """Yield each part of two independent arms with its difference."""
    others = dict(_numbers(tested))
    for part, first in _numbers(control):
        second = others.get(part)
        if second is None or min(first.n_tasks, second.n_tasks) < 2:
            continue
        variance = first.variance + second.variance
        squares = sum(one.variance**2 / one.freedom for one in (first, second))
        yield (
            part,
            _Number(
                first.value - second.value,
                variance,
                variance**2 / squares if squares else np.inf,
                first.n_tasks + second.n_tasks,
                first.n_queries + second.n_queries,
            ),
        )


def _paired(control: _Means, tested: _Means) -> Iterator[tuple[int, _Number]]:
    """Yield each part of two arms, whose tasks are pairs, with its difference."""
    n_parts = len(control.value)
    keys = np.concatenate([arm.task * n_parts + arm.part for arm in (control, tested)])
    every, place = np.unique(keys, return_inverse=True)
    signed = np.concatenate([control.influence, -tested.influence])
    squares = np.bincount(place, signed, minlength=len(every)) ** 2
    pairs = np.bincount(every % n_parts, minlength=n_parts)
    total = np.bincount(every % n_parts, squares, minlength=n_parts)
    variance = total * (pairs / np.maximum(pairs - 1, 1))
    for part in np.flatnonzero((control.n_tasks > 1) & (tested.n_tasks > 1)).tolist():
        n_tasks = int(pairs[part])
        yield (
            part,
            _Number(
                float(control.value[part] - tested.value[part]),
                float(variance[part]),
                n_tasks - 1,
                n_tasks,
                int(control.n_queries[part] + tested.n_queries[part]),
            ),
        )


def _row(
    names: tuple[str, ...],
    outcomes: ArmOutcomes,
    arms: tuple[str, ...],
    one: _Number,
    level: float,
) -> BreakdownRow:
    half, contrast = np.nan, outcomes.arms.contrast
    paired = len(arms) == 2 and contrast is not None and contrast.paired
    if one.freedom > 0 and one.variance > 0:
        half = float(special.stdtrit(one.freedom, (1 + level) / 2)) * one.variance**0.5
    estimate = Estimate(
        "acc",
        one.value,
        one.value - half,
        one.value + half,
        level,
        "closed" if any(outcomes[arm].scope == "closed" for arm in arms) else "open",
        paired,
        "student-t" if len(arms) == 1 or paired else "welch-t",
        one.n_tasks,
        one.n_images,
        share=True,
        query_batch=outcomes[arms[0]].query_batch,
        arms=arms,
    )
    p = None
    if len(arms) == 2 and not np.isnan(half):
        p = float(2 * special.stdtr(one.freedom, -abs(one.value) / one.variance**0.5))
    return BreakdownRow(names, estimate, one.n_tasks, one.n_queries, one.n_images, p)


def _rows_over_seeds(
    parts: _Parts, outcomes: ArmOutcomes, found: Sequence[Mapping[str, _Means]], level: float
) -> tuple[BreakdownRow, ...]:
    """Return the rows of several models on the same tasks."""
    contrast = outcomes.arms.contrast
    sets: list[tuple[str, ...]] = [(arm,) for arm in found[0]]
    paired = contrast is not None and contrast.paired
    if contrast is not None and all(arm in found[0] for arm in contrast.arms):
        sets.append(contrast.arms)
    rows = []
    for part in range(len(parts.names)):
        for arms in sets:
            first = [found[0][arm] for arm in arms]
            fewest = min(int(means.n_tasks[part]) for means in first)
            if fewest == 0 or (len(arms) == 2 and fewest < 2):
                continue
            cells = _cells(part, arms, found, paired=len(arms) == 2 and paired)
            row = _row(parts.names[part], outcomes, arms, _behind(first, part, cells), level)
            rows.append(_over_seeds(row, cells, level))
    return _corrected(rows)


_Cells = dict[tuple[str, str], FloatArray]
"""Values ``(seeds, tasks)`` by the names of models and tasks, see ``crossed``."""


def _cells(
    part: int, arms: tuple[str, ...], found: Sequence[Mapping[str, _Means]], *, paired: bool
) -> _Cells:
    """Return a part's accuracy of each model in each arm, as a mean over tasks.

    The mean over tasks of ``value + n * influence`` is the value, and its variance that of the
    ratio (Cochran 1977, section 6).
    """
    own = {arm: found[0][arm].part == part for arm in arms}
    tasks = {arm: found[0][arm].task[own[arm]] for arm in arms}
    every = np.unique(np.concatenate(list(tasks.values()))) if paired else None
    cells: _Cells = {}
    for weight, arm in zip((1.0, -1.0), arms, strict=False):
        place = np.arange(len(tasks[arm])) if every is None else np.searchsorted(every, tasks[arm])
        n_tasks = len(tasks[arm]) if every is None else len(every)
        values = np.zeros((len(found), n_tasks))
        for seed, means in enumerate(of[arm] for of in found):
            values[seed, place] = n_tasks * means.influence[own[arm]]
            values[seed] += means.value[part]
        names = "models", "pairs" if paired else arm
        cells[names] = cells.get(names, 0.0) + weight * values
    return cells


def _behind(first: Sequence[_Means], part: int, cells: _Cells) -> _Number:
    """Return a value over seeds without its variance, and what is behind it."""
    return _Number(
        float(sum(values.mean() for values in cells.values())),
        variance=0.0,
        freedom=0.0,
        n_tasks=sum({tasks: values.shape[1] for (_, tasks), values in cells.items()}.values()),
        n_queries=sum(int(means.n_queries[part]) for means in first),
        n_images=int(first[0].n_images[part]) if len(first) == 1 else 0,
    )


def _over_seeds(row: BreakdownRow, cells: _Cells, level: float) -> BreakdownRow:
    """Return a row with the interval over seeds and tasks; a single task gives none."""
    n_seeds, n_tasks = next(iter(cells.values())).shape
    estimate = replace(row.estimate, estimator=OVER_SEEDS, n_seeds=n_seeds)
    one = crossed(cells, level) if n_tasks > 1 else None
    if one is None or not one.varies:
        return replace(row, estimate=estimate)
    estimate = replace(estimate, low=one.low, high=one.high, seed_deviation=one.seed_deviation)
    return replace(row, estimate=estimate, p=one.p if len(row.estimate.arms) == 2 else None)


def _corrected(rows: Sequence[BreakdownRow]) -> tuple[BreakdownRow, ...]:
    """Return rows with p corrected for the number of differences."""
    adjusted = iter(holm(np.array([row.p for row in rows if row.p is not None])).tolist())
    return tuple(row if row.p is None else replace(row, p_corrected=next(adjusted)) for row in rows)
