"""The answer of several runs: sentences, and a table of both arms and the gap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, Literal

from fsf_statistics.task_sets import facts_of, tasks_called, tasks_told_apart
from fsframework.api.headlines import (
    Headline,
    HeadlineEntry,
    HeadlineTable,
    gap_told,
    loss_told,
    measures_of_table,
    points,
    reading_told,
)
from fsframework.api.results import Comparable, results_of, statistic_of_run, statistics_of
from fsframework.api.running import Run
from fsframework.api.session import open_session
from fsframework.errors import DataError
from fsframework.interfaces import Statistic
from fsframework.statistics.comparison import (
    MeasureComparison,
    compare_methods,
    estimates_of_methods,
    values_of,
)
from fsframework.statistics.differences import ComparisonOptions
from fsframework.statistics.estimators import Interval, IntervalChoice
from fsframework.statistics.measures import DEFAULT_STATISTICS, Measure
from fsframework.statistics.results import (
    MethodResult,
    cautions_of,
    comparable,
    grouped_by_tasks,
    joined_over_seeds,
    labels_of,
)
from fsframework.values import Estimate, footnotes, html_table, label_in_arms

__all__ = ["Column", "ComparedHeadline", "HeadlineRow", "headline", "headline_of_runs"]

_COUNTS = ("seeds", "tasks")
"""Names of rows that say how much was measured, and not what."""
_MOST_NAMES = 3
_MOST_GROUPS = 4


@dataclass(frozen=True, eq=False)
class HeadlineRow:
    """A row of the table: a method, or an experiment that failed.

    Args:
        names: one for each name of a row.
        result: its answers; ``None`` where it failed.
        reason: why it failed, a sentence without a full stop.
    """

    names: tuple[str, ...]
    result: MethodResult | None
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Column:
    """One measure on one set of tasks: what its rows have.

    Args:
        label: its head in the table, such as ``wAcc-R``.
        statistic: name of its statistic in tables, such as ``wAcc``.
        measure: a statistic on an arm, or on a contrast.
        higher_is_better: whether larger values are better; for gaps they are worse.
        values: by label of the row.
        compared: all pairs of rows; ``None`` for a single one.
        called: by label, what sentences call the row.
    """

    label: str
    statistic: str
    measure: Measure
    higher_is_better: bool
    values: Mapping[str, Estimate]
    compared: MeasureComparison | None = None
    called: Mapping[str, str] = field(default_factory=dict)

    def name(self, label: str) -> str:
        """Return what sentences call a row."""
        return self.called.get(label, label)

    @property
    def ranked(self) -> list[str]:
        """Labels of the rows, the best first."""
        sign = -1 if self.higher_is_better else 1
        return sorted(self.values, key=lambda label: sign * self.values[label].value)

    @cached_property
    def best(self) -> str:
        """Label of the best row."""
        return self.ranked[0]

    @cached_property
    def tied(self) -> tuple[str, ...]:
        """Labels of the rows that cannot be distinguished from the best one, by Holm's p."""
        if self.compared is None:
            return ()
        p = {
            label: self.compared.pair(self.best, label)[0].p_holm
            for label in self.values
            if label != self.best
        }
        most = 1 - self.compared.level
        return tuple(label for label, one in p.items() if one is None or one >= most)

    def mark(self, label: str) -> Literal["", "best", "tied"]:
        """Return ``best``, ``tied`` or nothing; a single row has no mark."""
        if self.compared is None:
            return ""
        return "best" if label == self.best else "tied" if label in self.tied else ""


@dataclass(frozen=True, repr=False, eq=False)
class ComparedHeadline(Headline):
    """What several experiments found.

    The best value of a column on equal tasks is marked, and those that cannot be distinguished
    from it.

    Args:
        columns: for every set of equal tasks, the estimates and comparisons behind the table.
    """

    columns: tuple[tuple[Column, ...], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return sentences, table and notes as JSON values."""
        return {
            "sentences": list(self.sentences),
            "rows": list(map(_entry_to_json, self.table.entries)),
            "notes": list(self.notes),
        }

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        below = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return said + html_table(*self.table.cells()) + below


def _entry_to_json(entry: HeadlineEntry) -> dict[str, Any]:
    """Return a flat object in percent for shares; what is missing is null."""
    one = entry.estimate
    value, low, high = (None if x != x else round(x, 6) for x in entry.in_percent)
    return {
        "quantity": entry.column,
        "measured": value,
        "measured_half_width": None if low is None or high is None else (high - low) / 2,
        "measured_low": low,
        "measured_high": high,
        "unit": "%" if one is not None and one.share else "",
        "row": entry.label,
        "measure": "" if one is None else one.name,
        "mark": entry.mark,
        "reason": entry.reason,
    }


def headline(
    results: Iterable[Comparable] | Mapping[str, Comparable],
    statistic: Any | None = None,
    *,
    interval: Interval = "student-t",
    level: float = 0.95,
    runs_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
) -> ComparedHeadline:
    """Return the answer of runs: sentences, and a table of both arms and the gap.

    The best value of each column is marked, and those that cannot be distinguished from it by the
    paired differences of ``compare``, adjusted for all pairs after Holm. Only values on equal tasks
    are compared; rows on other tasks are told apart by further names. Runs that differ only in
    their training seed are one row. Rows on equal tasks are in the order of the last column.

    Args:
        results: as for ``compare``; one is enough.
        statistic: whose gap is asked for: a name, a mapping of name and options, a class or an
            instance; by default ``wacc``. Acc of the control arm stands before it.
        interval: as for ``compare``; ``level`` likewise.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.
        plugins: Python files whose plugin classes are loaded too.

    Raises:
        DataError: nothing can be measured, or there are no results.
        OptionError: an option is out of range.
        RecordError: a run does not exist, or has no outcomes.

    >>> import fsframework as fsf
    >>> from fsf_statistics import headline
    >>> data = {"name": "planted", "n_per_class": 12, "size": 16}
    >>> arms = fsf.draw("random", fsf.pool(data), tasks=30, way=2, shot=1, queries=4)
    >>> models = {name: fsf.model(name) for name in ("ncc", "logistic")}
    >>> found = headline({name: fsf.evaluate(m, arms, data) for name, m in models.items()})
    >>> found.table.columns
    ('Acc', 'wAcc')
    """
    session = open_session(runs_dir=runs_dir, plugins=plugins, progress=False)
    found = joined_over_seeds(list(results_of(results, session.workspace.runs)))
    first, main = DEFAULT_STATISTICS[0], DEFAULT_STATISTICS[-1] if statistic is None else statistic
    asked = [main] if main == first else [first, main]
    how = ComparisonOptions(IntervalChoice(level, interval))
    names = _row_names(found)
    rows = list(map(HeadlineRow, zip(*names.values(), strict=True), found))
    return _headline_of(rows, list(names), statistics_of(session.registry, asked), how, ranked=True)


def _row_names(results: Sequence[MethodResult]) -> dict[str, list[str]]:
    """Return what tells results apart: names by head."""
    groups = grouped_by_tasks(results)
    number = {id(one): i for i, group in enumerate(groups) for one in group}
    labels = {
        id(one): label
        for group in groups
        for one, label in zip(group, labels_of(group), strict=True)
    }
    heads = {"method": [labels[id(one)] for one in results]}
    if len(groups) > 1:
        for name, values in tasks_told_apart([facts_of(group[0]) for group in groups]).items():
            heads[name] = [values[number[id(one)]] for one in results]
    if any(one.other_seeds for one in results):
        heads["seeds"] = [str(len(one.models)) for one in results]
    return heads


def headline_of_runs(
    rows: Sequence[HeadlineRow],
    row_names: Sequence[str],
    run: Run,
    statistic: str | None = None,
    *,
    ranked: bool = False,
) -> ComparedHeadline:
    """Return the answer of finished runs, with the statistics and the level they were run with.

    Args:
        rows: in the order of the table.
        row_names: what the names of a row are.
        run: one of the runs.
        statistic: whose gap is asked for; by default the last of the run.
        ranked: whether rows on equal tasks are put in the order of the last column.

    Raises:
        DataError: the runs have no estimates.
    """
    record = run.record
    names = list(dict.fromkeys(one.statistic for one in record.estimates.values()))
    if not names:
        raise DataError(f"{rows[0].names[0]}: has no estimates")
    wanted = dict.fromkeys([names[0], statistic or names[-1]])
    registry = open_session(progress=False).registry
    statistics = {name: statistic_of_run(registry, name, record) for name in wanted}
    how = ComparisonOptions(IntervalChoice(float(record.settings.get("level", 0.95))))
    return _headline_of(rows, row_names, statistics, how, ranked=ranked)


def _headline_of(
    rows: Sequence[HeadlineRow],
    row_names: Sequence[str],
    statistics: Mapping[str, Statistic],
    how: ComparisonOptions,
    *,
    ranked: bool = False,
) -> ComparedHeadline:
    """Return the answer of experiments.

    Args:
        rows: in the order of the table.
        row_names: what the names of a row are, such as ``method``.
        statistics: by name: the one whose gap is asked for, and others that stand before it with
            their value in the control arm only.
        how: intervals and resamples.
        ranked: whether rows on equal tasks are put in the order of the last column.

    Raises:
        DataError: there are no rows, or none of the statistics can be computed.
    """
    if not rows:
        raise DataError("there are no results to show")
    labelled = dict(zip(_called(rows, row_names), rows, strict=True))
    label_of = {id(row.result): label for label, row in labelled.items()}
    grouped = grouped_by_tasks([row.result for row in rows if row.result is not None])
    groups: list[list[Column]] = []
    left_out: dict[str, None] = {}
    for group in grouped:
        own = [label_of[id(result)] for result in group]
        short = dict(zip(own, _called([labelled[o] for o in own], row_names), strict=True))
        columns, missing = _columns(short, group, statistics, how)
        groups.append(columns)
        left_out.update(dict.fromkeys(missing))
    if not any(groups) and left_out:
        raise DataError("nothing can be measured: " + "; ".join(left_out))
    apart = tasks_told_apart([facts_of(group[0]) for group in grouped]) if len(grouped) > 1 else {}
    places = [tasks_called({k: v[i] for k, v in apart.items()}) for i in range(len(grouped))]
    if ranked:
        order = [label for columns in groups for one in columns[-1:] for label in one.ranked]
        labelled = {label: labelled[label] for label in dict.fromkeys([*order, *labelled])}
    found = _assembled(labelled, row_names, groups, places)
    return replace(found, notes=(*found.notes, *left_out))


def _called(rows: Sequence[HeadlineRow], heads: Sequence[str]) -> list[str]:
    """Return what tells each row from the others: the names that vary, else the first.

    >>> rows = [HeadlineRow((name, "1"), None) for name in ("maml", "renet")]
    >>> _called(rows, ("method", "shot")), _called(rows[:1], ("shot", "seeds"))
    (['maml', 'renet'], ['shot maml'])
    """
    varied = [
        i
        for i, head in enumerate(heads)
        if head not in _COUNTS and len({row.names[i] for row in rows}) > 1
    ]
    found = [
        ", ".join(
            row.names[i] if heads[i] == "method" else f"{heads[i]} {row.names[i]}"
            for i in varied or [0]
        )
        for row in rows
    ]
    if len(set(found)) < len(found):
        return [", ".join(filter(None, row.names)) for row in rows]
    return found


def _columns(
    called: Mapping[str, str],
    results: Sequence[MethodResult],
    statistics: Mapping[str, Statistic],
    how: ComparisonOptions,
) -> tuple[list[Column], list[str]]:
    """Return the columns of rows with equal tasks, and why others are left out."""
    labels = list(called)
    if len(results) > 1:
        results = comparable(results)
    first = results[0]
    symbols = {} if first.arms is None else first.arms.symbols
    found, missing = [], []
    for measure in measures_of_table(list(statistics), list(first.outcomes), first.contrast):
        statistic = statistics[measure.statistic]
        try:
            values = values_of(results, measure, statistic)
        except DataError as error:
            missing.append(f"{measure.name} is left out: {error}")
            continue
        compared = compare_methods(labels, values, how) if len(labels) > 1 else None
        own = estimates_of_methods(labels, values, how) if compared is None else compared.values
        name = statistic.label or measure.statistic
        only = len(first.outcomes) == 1
        head = "gap" if measure.is_gap else label_in_arms(name, measure.arms, symbols, only=only)
        better = statistic.higher_is_better and not measure.is_gap
        found.append(Column(head, name, measure, better, own, compared, called))
    return found, missing


def _assembled(
    rows: Mapping[str, HeadlineRow],
    row_names: Sequence[str],
    groups: Sequence[Sequence[Column]],
    places: Sequence[str],
) -> ComparedHeadline:
    """Return the headline of rows by label, and of columns for each set of equal tasks."""
    heads = dict.fromkeys(column.label for columns in groups for column in columns)
    at = {(label, c.label): c for columns in groups for c in columns for label in c.values}
    entries = []
    for label, row in rows.items():
        for head in heads:
            column, why = at.get((label, head)), row.reason or "not measured on its tasks"
            if column is None:
                one = HeadlineEntry(row.names, head, label, None, why)
            else:
                own, mark = column.values[label], column.mark(label)
                one = HeadlineEntry(row.names, head, label, own, mark=mark)
            entries.append(one)
    table = HeadlineTable(tuple(row_names), tuple(entries))
    sentences, notes = tuple(_sentences(groups, places)), tuple(_notes(rows, groups))
    return ComparedHeadline(sentences, table, notes, tuple(map(tuple, groups)))


def _notes(rows: Mapping[str, HeadlineRow], groups: Sequence[Sequence[Column]]) -> Iterator[str]:
    """Yield what is needed to read the table, each sentence once."""
    estimates = [e for columns in groups for column in columns for e in column.values.values()]
    if estimates:
        yield reading_told(estimates)
    if any(column.compared for columns in groups for column in columns):
        where = " on equal tasks" if len(groups) > 1 else ""
        yield (
            f"* best of its column{where}; ~ not distinguishable from it (paired where tasks are, "
            f"Holm over all pairs, {100 * estimates[0].level:g} %)."
        )
    terms = dict.fromkeys(_terms(columns) for columns in groups)
    yield from filter(None, terms)
    failed = {label: [f"{row.reason}."] for label, row in rows.items() if row.result is None}
    yield from (f"–: {note}" for note in footnotes(failed))
    for columns in groups:
        yield from _shared_first(
            {c.label: c.compared.notes if c.compared is not None else () for c in columns}
        )
    done = {label: row.result for label, row in rows.items() if row.result is not None}
    yield from _shared_first(cautions_of({label: one.records for label, one in done.items()}))


def _shared_first(said: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the notes that all have, then the others with the names of those that have them."""
    shared = set.intersection(*map(set, said.values())) if said else set()
    yield from (f"note: {one}" for one in next(iter(said.values()), ()) if one in shared)
    yield from footnotes({k: [one for one in own if one not in shared] for k, own in said.items()})


def _arms_of(gap: Column, columns: Sequence[Column]) -> list[Column]:
    """Return the columns of the arms whose difference is a gap."""
    own = [c for c in columns if c.measure.statistic == gap.measure.statistic]
    return [c for c in own if not c.measure.is_gap]


def _terms(columns: Sequence[Column]) -> str:
    """Return what a gap subtracts from what."""
    gap = next((column for column in columns if column.measure.is_gap), None)
    if gap is None:
        return ""
    main = _arms_of(gap, columns)
    return gap_told([one.label for one in main], higher_is_better=main[0].higher_is_better)


def _sentences(groups: Sequence[Sequence[Column]], places: Sequence[str]) -> Iterator[str]:
    """Yield the answer: which gap is smallest and largest, or what a single method loses.

    Args:
        groups: the columns of each set of equal tasks.
        places: what tells each set from the others.
    """
    told = [(columns, place) for columns, place in zip(groups, places, strict=True) if columns]
    for columns, place in told[:_MOST_GROUPS]:
        first, *others = _on_equal_tasks(columns)
        yield f"On {place}: {first}" if place else first
        yield from others
    if len(told) > _MOST_GROUPS:
        yield f"The table has {len(told) - _MOST_GROUPS} more sets of tasks."


def _on_equal_tasks(columns: Sequence[Column]) -> Iterator[str]:
    main = columns[-1]
    if main.measure.is_gap and len(main.values) == 1:
        ((label, gap),) = main.values.items()
        of_arms = [column.values[label] for column in _arms_of(main, columns)]
        yield loss_told(main.name(label), main.statistic, gap, of_arms)
    elif main.measure.is_gap:
        yield from _extremes(main, _arms_of(main, columns)[0])
    else:
        verb = "has" if len(main.values) == 1 else "has the best"
        value = f"{main.label}{',' if len(main.values) > 1 else ''} {main.values[main.best]}"
        yield f"{main.name(main.best)} {verb} {value}{_others(main)}."


def _extremes(gap: Column, control: Column) -> Iterator[str]:
    """Yield which methods have the smallest and the largest gap, and what that does not show."""
    best = gap.ranked[0]
    worst = next((one for one in reversed(gap.ranked) if one not in gap.tied), best)
    factor, unit = _unit(gap.values[best])
    if len(gap.tied) == len(gap.values) - 1:
        low, high = (factor * f(e.value for e in gap.values.values()) for f in (min, max))
        every = "both" if len(gap.values) == 2 else f"all {len(gap.values)}"
        yield (
            f"No {gap.statistic} gap can be distinguished from the smallest, that of "
            f"{gap.name(best)}; {every} lie between {low:.1f} and {high:.1f}{unit}."
        )
    else:
        smallest = f"{gap.name(best)} has the smallest {gap.statistic} gap"
        yield f"{smallest}, {points(gap.values[best])}{_others(gap)}."
        largest = "has the largest" if worst == gap.ranked[-1] else "has the largest of the others"
        yield f"{gap.name(worst)} {largest}, {points(gap.values[worst])}."
    if (ahead := control.best) != best and best not in control.tied:
        behind = factor * abs(control.values[ahead].value - control.values[best].value)
        yield (
            f"But {control.label} of {gap.name(best)} is {behind:.1f}{unit} worse than that of "
            f"{gap.name(ahead)}: a method that answers worse has less to lose."
        )


def _others(column: Column) -> str:
    """Return which rows cannot be distinguished from the best."""
    tied = [column.name(label) for label in column.tied]
    if len(tied) > _MOST_NAMES:
        tied = [", ".join(tied[:_MOST_NAMES]), f"{len(tied) - _MOST_NAMES} more"]
    elif tied:
        tied = [", ".join(tied[:-1]), tied[-1]]
    return f"; {' and '.join(filter(None, tied))} cannot be distinguished from it" if tied else ""


def _unit(estimate: Estimate) -> tuple[float, str]:
    return (100, " points") if estimate.share else (1, "")
