"""Methods on equal tasks: paired differences, their p over all pairs, and groups of equal methods.

Each pair is compared in two ways. *Direct*: two methods differ if their own intervals do not
overlap, which most tables leave to the reader; with closed intervals this holds for a data set,
with open ones for a distribution. *Paired*: the interval of the difference, task by task, excludes
0.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from string import ascii_letters
from typing import Any

import numpy as np

from fsf_statistics.adjusting import benjamini_hochberg, holm
from fsf_statistics.cautions import cautions_of
from fsf_statistics.equal_tasks import comparable, grouped_by_tasks, measures_named
from fsf_statistics.estimating import statistics_of
from fsf_statistics.given import Comparable, collect_results, finished_of
from fsf_statistics.over_seeds import TWO_SEEDS
from fsframework.api.headlines import limits_told
from fsframework.api.session import Session, open_session
from fsframework.errors import DataError, OptionError, argument
from fsframework.interfaces import Statistic
from fsframework.statistics.differences import (
    NO_SPREAD,
    ComparisonOptions,
    Difference,
    bootstrap_of_few,
)
from fsframework.statistics.estimators import Interval, IntervalChoice
from fsframework.statistics.measures import DEFAULT_STATISTICS, Measure
from fsframework.statistics.results import MethodResult
from fsframework.statistics.task_values import (
    TaskValues,
    estimate_from,
    estimates_from,
    intervals_of,
    values_of,
)
from fsframework.values import (
    Estimate,
    FloatArray,
    ImagePool,
    Scope,
    data_frame,
    first_rows,
    footnotes,
    html_table,
    printable,
    table_of,
    text_table,
)

__all__ = [
    "Comparison",
    "MeasureComparison",
    "Pair",
    "compare",
    "compare_methods",
    "direct_sign",
    "letters",
    "letters_shown",
    "letters_told",
]

FEWEST_DIFFERENT = 6
"""If two methods differ in fewer tasks, a note says so."""


_TO = "–"
_BEYOND = ord("α") - len(ascii_letters)


_ONE_TASK = "one task says nothing about others: there is no interval and no p"


_ONE_SEED = (
    "one seed, so intervals and differences hold for these weights only, not for the method "
    "trained again"
)


@dataclass(frozen=True)
class Pair:
    """Two methods, ``first`` less ``second``.

    Args:
        difference: with its interval; bounds are NaN if it has none.
        p: two-sided, of no difference; ``None`` if all tasks have the same difference.
        p_holm: adjusted for all pairs after Holm (1979); the chance that any pair is called
            different although none is stays below 1 - level.
        p_bh: adjusted after Benjamini & Hochberg (1995): of the pairs called different, the
            expected share that is not.
        correlation: of the two over the tasks (Pearson), ``None`` where one is constant or the
            measure has two parts.
        direct: ``+``, ``-`` or ``0``, from the two methods' own intervals.
        paired: the same, from the interval of the difference.
        note: a sentence on what a reader must know, or empty.
    """

    first: str
    second: str
    difference: Estimate
    p: float | None
    p_holm: float | None
    p_bh: float | None
    correlation: float | None
    direct: str
    paired: str
    note: str = ""

    @property
    def inverted(self) -> bool:
        """Whether the two comparisons reach opposite conclusions."""
        return {self.direct, self.paired} == {"+", "-"}

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**vars(self), "difference": self.difference.to_json(), "inverted": self.inverted}


@dataclass(frozen=True, repr=False)
class MeasureComparison:
    """All methods in one measure, on one set of tasks.

    Args:
        measure: a statistic on an arm, or on a contrast.
        task_set: what the tasks are called.
        values: of each method, with its own interval.
        pairs: every pair of methods, or each with the baseline.
        letters: of each method, in the order of their values; two that share one cannot be
            told apart, by Holm's p. Empty where there is a baseline.
        level: confidence level.
        notes: sentences on methods, next to those on pairs.
        other_scope: the methods' own intervals of the other scope on the same tasks, if there are
            any: open ones over images next to closed ones, or the other way round.
        limits: what gaps do not say, since methods are near guessing or differ in the control arm.
    """

    measure: Measure
    task_set: str
    values: Mapping[str, Estimate]
    pairs: tuple[Pair, ...]
    letters: Mapping[str, str]
    level: float
    notes: tuple[str, ...] = ()
    other_scope: Mapping[str, Estimate] = field(default_factory=dict)
    limits: tuple[str, ...] = ()

    @property
    def scope(self) -> Scope:
        """What the methods' own intervals speak of."""
        return next(iter(self.values.values())).scope

    def pair(self, first: str, second: str) -> tuple[Pair, int]:
        """Return the pair of two labels, and -1 where it is the other way round.

        Raises:
            KeyError: they were not compared.
        """
        if (first, second) in self._by_labels:
            return self._by_labels[first, second], 1
        if (second, first) in self._by_labels:
            return self._by_labels[second, first], -1
        raise KeyError((first, second))

    @property
    def sentences(self) -> list[str]:
        """The limits, and the notes on methods and pairs."""
        return [*self.limits, *self.notes, *(pair.note for pair in self.pairs if pair.note)]

    def cell(self, label: str) -> str:
        """Return a method's value with its letters as text, empty if it has none."""
        if label not in self.values:
            return ""
        letters = letters_shown(self.letters.get(label, ""))
        return f"{self.values[label]}{f' ({letters})' if letters else ''}"

    @cached_property
    def _by_labels(self) -> Mapping[tuple[str, str], Pair]:
        return {(pair.first, pair.second): pair for pair in self.pairs}

    def __repr__(self) -> str:
        tables = [
            f"{title}\n{text_table(head, first_rows(r))}" for title, head, r in self._tables()
        ]
        return printable("\n\n".join([*tables, "\n".join(self.sentences)]).rstrip())

    def _repr_html_(self) -> str:
        tables = [html_table(head, rows, title) for title, head, rows in self._tables()]
        return "".join([*tables, *(f"<p>{escape(note)}</p>" for note in self.sentences)])

    def _tables(self) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
        """Yield title, columns and rows of two tables: of values and of pairs."""
        title = f"{self.measure.name} on {self.task_set}"
        shown = {label: letters_shown(own) for label, own in self.letters.items()}
        yield title, *table_of(self.values, "method", letter=shown)
        pairs = {f"{pair.first} − {pair.second}": pair for pair in self.pairs}
        p = {label: _number(pair.p_holm) for label, pair in pairs.items()}
        found = {label: pair.difference for label, pair in pairs.items()}
        yield f"{title}, paired differences", *table_of(found, "pair", **{"Holm's p": p})

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "measure": self.measure.name,
            "statistic": self.measure.statistic,
            "arms": list(self.measure.arms),
            "task_set": self.task_set,
            "level": self.level,
            "values": {label: value.to_json() for label, value in self.values.items()},
            "letters": dict(self.letters),
            "pairs": [pair.to_json() for pair in self.pairs],
            "notes": [*self.limits, *self.notes],
            "other_scope": {label: e.to_json() for label, e in self.other_scope.items()},
        }

    def to_pandas(self) -> Any:
        """Return a pandas ``DataFrame``: a row per pair of methods."""
        return Comparison((self,)).to_pandas()


@dataclass(frozen=True, repr=False)
class Comparison:
    """Methods in every measure, on every set of equal tasks; printed, a table of their values.

    Args:
        parts: one for each measure and set of tasks.
        notes: what was left out, and why.
        cautions: by label of a method, what every table that shows it must carry as a note.
    """

    parts: tuple[MeasureComparison, ...]
    notes: tuple[str, ...] = ()
    cautions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __getitem__(self, index: int | str) -> MeasureComparison:
        """Return a part by its place, or by the name of its measure, such as ``wacc-gap``.

        Raises:
            KeyError: no part has this measure, or several have, for different sets of tasks.
        """
        if not isinstance(index, str):
            return self.parts[index]
        found = [part for part in self.parts if part.measure.name == index]
        if len(found) == 1:
            return found[0]
        if found:
            sets = ", ".join(part.task_set for part in found)
            raise KeyError(f"{index!r} was compared on several sets of tasks: {sets}")
        known = ", ".join(dict.fromkeys(part.measure.name for part in self.parts))
        raise KeyError(f"{index!r} was not compared; the measures are {known}")

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[MeasureComparison]:
        return iter(self.parts)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of all parts."""
        return tuple(pair for part in self.parts for pair in part.pairs)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "comparisons": [part.to_json() for part in self.parts],
            "notes": list(self.notes),
            "cautions": {label: list(said) for label, said in self.cautions.items()},
        }

    def to_pandas(self) -> Any:
        """Return a pandas ``DataFrame``: a row per pair of methods, measure and set of tasks."""
        return data_frame([
            {
                "measure": part.measure.name, "tasks": part.task_set, "first": pair.first,
                "second": pair.second, "difference": pair.difference.value,
                "low": pair.difference.low, "high": pair.difference.high, "p": pair.p,
                "p_holm": pair.p_holm, "p_bh": pair.p_bh,
            }
            for part in self.parts for pair in part.pairs
        ])  # fmt: skip

    def __repr__(self) -> str:
        tables = [
            f"{title}\n{text_table(head, first_rows(r))}" for title, head, r in self._tables()
        ]
        return printable("\n\n".join([*tables, "\n".join(self._below())]))

    def _repr_html_(self) -> str:
        tables = [html_table(head, rows, title) for title, head, rows in self._tables()]
        return "".join([*tables, *(f"<p>{escape(line)}</p>" for line in self._below())])

    def _tables(self) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
        """Yield title, columns and rows of a table per set of tasks: a column per measure."""
        for task_set in dict.fromkeys(part.task_set for part in self.parts):
            parts = [part for part in self.parts if part.task_set == task_set]
            labels = dict.fromkeys(label for part in parts for label in part.values)
            rows = [[label, *(part.cell(label) for part in parts)] for label in labels]
            yield task_set, ["method", *(part.measure.name for part in parts)], rows

    def _below(self) -> list[str]:
        """Return the lines below the tables, each once."""
        lines = []
        for part in self.parts:
            said = part.sentences
            lines += [f"note: {part.measure.name}: {note}" for note in said[:1]]
            lines += [f"and {len(said) - 1} more on {part.measure.name}"] * (len(said) > 1)
        if any(part.letters for part in self.parts):
            lines.append("methods that share a letter cannot be told apart (Holm's p)")
        if any(part.scope == "closed" for part in self.parts):
            lines.append("closed: tasks share images, so the interval holds for this data set only")
        lines += [*(f"note: {note}" for note in self.notes), *footnotes(self.cautions)]
        one = self.parts[-1].measure.name
        lines.append(f'["{one}"] has intervals and pairs of one measure, .to_pandas() all pairs')
        return list(dict.fromkeys(lines))


def _number(p: float | None) -> str:
    return "none" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def compare_methods(
    labels: Sequence[str], values: TaskValues, how: ComparisonOptions | None = None
) -> MeasureComparison:
    """Compare all methods with each other in one measure, or all with one.

    Args:
        labels: of the methods, in the order of the columns of the values.
        how: intervals, resamples and baseline.

    Raises:
        DataError: there is one method.
        OptionError: no method has the name of the baseline; or methods have several seeds, and the
            interval is not Student's.
    """
    how, n = how or ComparisonOptions(), len(labels)
    if n < 2:
        raise DataError(
            f"a comparison needs at least two methods on equal tasks, and there is only {labels[0]}"
        )
    if how.baseline is not None and how.baseline not in labels:
        raise OptionError(
            f"{argument('baseline', how.baseline)}: must be one of {', '.join(labels)}"
        )
    chosen = _chosen(labels, how.baseline)
    columns = np.eye(n)
    contrasts = np.vstack([columns, *(columns[i] - columns[j] for i, j in chosen)])
    found, over, why_not = intervals_of(values, contrasts, how)
    level = how.choice.level
    own = estimates_from(labels, values, over, how)
    other = {} if over is found else estimates_from(labels, values, found, how)
    pairs = _pairs(labels, values, chosen, (over[n:], own), level)
    notes = _notes(labels, values, found, how)
    return MeasureComparison(
        values.measure,
        values.task_set,
        own,
        pairs,
        letters(labels, own, pairs, 1 - level) if how.baseline is None else {},
        level,
        (*notes, *([why_not] if why_not else [])),
        other,
    )


def _chosen(labels: Sequence[str], baseline: str | None) -> list[tuple[int, int]]:
    """Return the places of the methods of each pair; a baseline comes first."""
    if baseline is None:
        return list(itertools.combinations(range(len(labels)), 2))
    own = labels.index(baseline)
    return [(own, other) for other in range(len(labels)) if other != own]


def _pairs(
    labels: Sequence[str],
    values: TaskValues,
    chosen: Sequence[tuple[int, int]],
    found: tuple[Sequence[Difference], Mapping[str, Estimate]],
    level: float,
) -> tuple[Pair, ...]:
    """Return the pairs from their contrasts and the methods' own values."""
    contrasts, own = found
    p = np.array([one.p for one in contrasts])
    # A pair without spread is one of those compared, and is not called different.
    known = np.nan_to_num(p, nan=1.0)
    p_holm, p_bh = holm(known), benjamini_hochberg(known)
    correlations, means = _correlations(values), values.means
    made = []
    for k, (i, j) in enumerate(chosen):
        first, second = labels[i], labels[j]
        difference = estimate_from(values, contrasts[k], level, paired=True)
        has_p, r = not np.isnan(p[k]), correlations[i, j]
        rho = None if np.isnan(r) else float(r)
        own_p, by_holm, by_bh = (float(one[k]) if has_p else None for one in (p, p_holm, p_bh))
        signs = direct_sign(own[first], own[second]), _sign(difference)
        apart = [part[:, i] - part[:, j] for part in means]
        note = (_few if has_p else _why)(values, f"{first} and {second}", apart)
        made.append(Pair(first, second, difference, own_p, by_holm, by_bh, rho, *signs, note))
    return tuple(made)


def letters_told(values: Iterable[Estimate], letters: Iterable[str] = ()) -> str:
    """Return how letters are read that groups of these values have."""
    told = "Methods that share a letter cannot be told apart."
    if any(_TO in letters_shown(one) for one in letters):
        told += f" A range such as a{_TO}d stands for all letters from a to d."
    if any(value.n_seeds == 1 for value in values):
        told += " With one seed they tell these weights apart, not other trainings."
    return told


def letters(
    labels: Sequence[str], values: Mapping[str, Estimate], pairs: Sequence[Pair], alpha: float
) -> dict[str, str]:
    """Return letters of each method: two share one unless Holm's p calls them different.

    The groups are the largest sets without a difference; ``a`` holds the best value, of gaps the
    smallest.

    Source: Piepho (2004), An algorithm for a letter-based representation of all-pairwise
    comparisons (insert and absorb).
    """
    first = values[labels[0]]
    sign = -1 if first.higher_is_better and len(first.arms) < 2 else 1
    order = sorted(labels, key=lambda label: sign * values[label].value)
    groups = [frozenset(order)]
    for pair in pairs:
        if pair.p_holm is None or pair.p_holm > alpha:
            continue
        both = {pair.first, pair.second}
        split: list[frozenset[str]] = []
        for group in groups:
            split += [group - {one} for one in both] if both <= group else [group]
        unique = list(dict.fromkeys(split))
        groups = [g for g in unique if not any(g < other for other in unique)]
    groups.sort(key=lambda group: sorted(order.index(label) for label in group))
    return {
        label: "".join(_letter(i) for i, group in enumerate(groups) if label in group)
        for label in order
    }


def letters_shown(letters: str) -> str:
    """Return letters with a range for four and more that follow each other.

    >>> letters_shown("abc"), letters_shown("acdefz")
    ('abc', 'ac–fz')
    """
    runs: list[str] = []
    for one in letters:
        follows = runs and _place(one) == _place(runs[-1][-1]) + 1
        runs[-1:] = [runs[-1] + one] if follows else [*runs[-1:], one]
    return "".join(f"{run[0]}{_TO}{run[-1]}" if len(run) > 3 else run for run in runs)


def _letter(index: int) -> str:
    """Return a, ..., z, A, ..., Z, α, ..."""
    return ascii_letters[index] if index < len(ascii_letters) else chr(_BEYOND + index)


def _place(letter: str) -> int:
    return ascii_letters.index(letter) if letter in ascii_letters else ord(letter) - _BEYOND


def _correlations(values: TaskValues) -> FloatArray:
    """Return Pearson's correlation of each two methods over the tasks, NaN where there is none."""
    columns, *more = values.means
    n = columns.shape[1]
    if more or len(columns) < 2:
        return np.full((n, n), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.corrcoef(columns, rowvar=False).reshape(n, n)
    # Rounding may leave a constant column a spread of its own.
    constant = np.ptp(columns, axis=0) <= NO_SPREAD
    found[constant] = found[:, constant] = np.nan
    return np.asarray(found)


def direct_sign(first: Estimate, second: Estimate) -> str:
    """Return ``+``, ``-`` or ``0``: two intervals that do not meet conclude, if they have a width.

    Source: Lafargue et al. 2024, section 2.3.
    """
    if not all(one.high - one.low > 0 for one in (first, second)):
        return "0"
    if first.low > second.high:
        return "+"
    return "-" if first.high < second.low else "0"


def _sign(difference: Estimate) -> str:
    if difference.low > 0:
        return "+"
    return "-" if difference.high < 0 else "0"


def _few(values: TaskValues, both: str, apart: Sequence[FloatArray]) -> str:
    """Return a warning if an interval rests on few tasks, else an empty text."""
    for arm, differences in zip(values.measure.arms or ("",), apart, strict=False):
        differ = int((np.abs(differences) > NO_SPREAD).sum())
        if 0 < differ < FEWEST_DIFFERENT:  # in another arm, where it is 0
            of = f" {arm}" if len(apart) > 1 else ""
            return (
                f"{both} differ in only {differ} of {len(differences):,}{of} tasks; interval and p "
                "rest on these"
            )
    return ""


def _why(values: TaskValues, both: str, apart: Sequence[FloatArray]) -> str:
    """Return why a pair has no p."""
    if values.fewest_tasks < 2:
        return f"{both}: {_ONE_TASK}"
    difference = float(sum(one.mean() for one in apart))
    told = f"{both} differ by the same {values.shown(difference, '.3g')} in all "
    if abs(difference) < NO_SPREAD:
        told = f"{both} have the same {values.measure.name} in all "
    return f"{told}{values.n_tasks:,} tasks: without spread there is nothing to test, and no p"


def _notes(
    labels: Sequence[str], values: TaskValues, found: Sequence[Difference], how: ComparisonOptions
) -> list[str]:
    """Return what a reader of the methods' own values must know."""
    if values.fewest_tasks < 2:
        return [_ONE_TASK]
    notes = []
    if max(values.n_seeds) > 1:
        ends = np.cumsum(values.n_seeds)
        for label, n, end in zip(labels, values.n_seeds, ends, strict=True):
            own = [np.ptp(part[:, end - n : end], axis=1).max() for part in values.parts]
            if n > 1 and max(own) == 0:
                notes.append(
                    f"{label}: the values of all {n} seeds are equal in every task, so the seeds "
                    "say nothing"
                )
        for few, caution in ((1, _ONE_SEED), (2, TWO_SEEDS)):
            of = zip(labels, values.n_seeds, strict=True)
            notes += footnotes({label: [caution] for label, n in of if n == few})
    if (warning := bootstrap_of_few(how.choice.method, values.fewest_tasks)) is not None:
        notes.append(warning)
    for label, one in zip(labels, found, strict=False):
        if not one.varies:
            notes.append(
                f"{label}: {values.measure.name} is {values.shown(one.value, '.1f')} in every one "
                f"of {values.n_tasks:,} tasks: without spread there is no interval, and no direct "
                "conclusion is drawn"
            )
    return notes


def compare(  # noqa: PLR0913 - an option each
    results: Comparable | Iterable[Comparable] | Mapping[str, Comparable],
    statistic: Any | Sequence[Any] | None = None,
    *,
    interval: Interval = "student-t",
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    baseline: str | None = None,
    by_tasks: bool = False,
    pool: ImagePool | None = None,
    runs_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
) -> Comparison:
    """Compare methods on equal tasks, pair by pair.

    Values are paired task by task. Where the arms of a gap are pairs of tasks, so are the gaps;
    otherwise the difference of two gaps has Welch's interval. A gap is positive where the tested
    arm is worse, so a higher gap is worse.

    Runs that differ only in their training seed count as one method, unless they have labels of
    their own. Seeds and tasks are then crossed random effects: tasks of two methods are paired,
    their seeds never, and the interval adds the variance between seeds. See
    ``Runs.over_seeds``.

    Caveats: intervals cover other tasks, and other images only where they are open; they cover
    retrained models only for methods with several seeds. A note names methods with one seed next to
    others with several: their intervals speak of these weights. Judge many pairs by ``p_holm`` or
    ``p_bh``, not by ``p``.

    Args:
        results: runs, their folders, names or beginnings of names, selectors (``shot=5``: all
            runs that match), folders of runs; or a mapping of labels to these or to what
            ``fsframework.evaluate`` returned.
        statistic: names of statistics, each compared in every arm (``wacc``), or of measures
            (``wacc-biased``, ``wacc-gap``; ``gap`` is ``wacc-gap``); or a mapping of a name and
            options, a class, an instance; or several. By default Acc and wAcc in every arm, and
            the gap of wAcc.
        interval: ``student-t``; ``percentile`` or ``bca``, bootstraps of the tasks; ``image-level``
            or ``class-level``, open intervals for uniformly drawn tasks that share images; only
            ``student-t`` where a method has several seeds.
        level: confidence level, 0 < level < 1.
        resamples: of the bootstraps; ``seed`` their seed.
        baseline: label of a method that the others are compared with.
        by_tasks: compare within each set of equal tasks, instead of refusing different ones.
        pool: that the tasks of outcomes were drawn from, for ``image-level`` and ``class-level``;
            not needed for runs.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.
        plugins: Python files whose plugin classes are loaded too.

    Raises:
        DataError: the tasks differ, or a requested statistic cannot be computed.
        OptionError: a measure is unknown, or an option is out of range.
        RecordError: a run does not exist, or has no outcomes.

    >>> import fsframework as fsf
    >>> data = {"name": "planted", "n_per_class": 12, "size": 16}
    >>> arms = fsf.draw("random", fsf.pool(data), tasks=30, way=2, shot=1, queries=4)
    >>> models = {name: fsf.model(name) for name in ("ncc", "logistic")}
    >>> outcomes = {name: fsf.evaluate(model, arms, data) for name, model in models.items()}
    >>> found = fsf.compare(outcomes, "acc")
    >>> [(pair.first, pair.second, pair.difference.n_tasks) for pair in found.pairs]
    [('ncc', 'logistic', 30)]
    """
    session = open_session(runs_dir=runs_dir, plugins=plugins, progress=False)
    how = ComparisonOptions(IntervalChoice(level, interval), resamples, seed, baseline)
    results, unfinished = finished_of(results, session.workspace.runs)
    found = collect_results(results, session.workspace.runs, pool)
    if not found:
        raise OptionError("a comparison needs at least two methods, and none is given")
    if len(found) == 1 and found[0].other_seeds:
        raise OptionError(
            f"all {len(found[0].models)} runs differ only in their training seed and count as one "
            "method; give each a label of its own to compare them with each other"
        )
    requests = statistic if isinstance(statistic, (list, tuple)) else [statistic]
    asked = [one for one in requests if one is not None]
    groups = grouped_by_tasks(found) if by_tasks else [found]
    # A baseline that no group has is refused when methods are compared.
    groups = [group for group in groups if baseline in [one.label for one in group]] or groups
    parts: list[MeasureComparison] = []
    notes: list[str] = [unfinished] if unfinished else []
    cautions: dict[str, tuple[str, ...]] = {}
    for group in groups:
        if by_tasks and len(group) < 2:
            continue
        chosen = comparable(group)
        made, left_out = _compared(asked, session, chosen, how)
        parts, notes = [*parts, *made], [*notes, *left_out]
        for label, said in cautions_of({one.label: one.records for one in chosen}).items():
            cautions[label] = tuple(dict.fromkeys((*cautions.get(label, ()), *said)))
    single = [group[0].label for group in groups if by_tasks and len(group) < 2]
    if alone := list(dict.fromkeys(single)):
        some = ", ".join(alone[:4]) + (f" and {len(alone) - 4} more" if len(alone) > 4 else "")
        notes.append(f"no other method was tested on the tasks of {some}")
    if not parts:
        raise OptionError("no two of these methods have the same tasks")
    return Comparison(tuple(parts), tuple(dict.fromkeys(notes)), cautions)


def _compared(
    asked: Sequence[Any],
    session: Session,
    results: Sequence[MethodResult],
    how: ComparisonOptions,
) -> tuple[list[MeasureComparison], list[str]]:
    """Compare results on equal tasks in each measure; also return what is left out."""
    registry, contrast = session.registry, results[0].contrast
    arms = list(results[0].outcomes)
    made: dict[str, Statistic] = {}
    names: list[str] = []
    for request in asked:
        own = {} if isinstance(request, str) else statistics_of(registry, request, results)
        made |= own
        names += own or [request]
    usual = [*DEFAULT_STATISTICS, *([] if contrast is None else ["gap"])]
    known = dict.fromkeys([*registry.names("statistic"), *made, *DEFAULT_STATISTICS])
    measures = measures_named(names or usual, list(known), arms, contrast)
    labels, found, left_out = [one.label for one in results], [], []
    for measure in measures:
        if measure.statistic not in made:
            made |= statistics_of(registry, measure.statistic, results)
        try:
            values = values_of(results, measure, made[measure.statistic])
        except DataError as error:
            if names:
                raise DataError(f"{measure.name} cannot be compared: {error}") from None
            left_out.append(f"without {measure.name}: {error}")
            continue
        one = compare_methods(labels, values, how)
        limits = _limits(results, measure, made[measure.statistic]) if measure.is_gap else ()
        found.append(dataclasses.replace(one, limits=tuple(limits)))
    if not found:
        raise DataError("nothing can be compared: " + "; ".join(left_out))
    return found, left_out


def _limits(results: Sequence[MethodResult], gap: Measure, statistic: Statistic) -> Iterator[str]:
    """Yield what the gaps of methods do not say, as their headline does."""
    labels, arms = [one.label for one in results], [Measure(gap.statistic, (a,)) for a in gap.arms]
    control, tested = (compare_methods(labels, values_of(results, a, statistic)) for a in arms)
    if len(set(control.letters.values())) > 1:
        yield f"The gaps do not rank these methods, whose {control.measure.name} differs."
    yield from limits_told({p.measure.name: p.values for p in (control, tested)}, gap.arms)
