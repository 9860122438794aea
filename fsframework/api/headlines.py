"""The answer of experiments: a few sentences and one table."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import Any, Literal

from fsframework.api.results import statistic_of_run
from fsframework.api.running import Run
from fsframework.api.session import open_session
from fsframework.errors import DataError
from fsframework.interfaces.statistic import Statistic
from fsframework.records import RunRecord
from fsframework.statistics.comparison import (
    MeasureComparison,
    compare_methods,
    estimates_of_methods,
    values_of,
)
from fsframework.statistics.differences import ComparisonOptions
from fsframework.statistics.estimators import IntervalChoice
from fsframework.statistics.measures import Measure
from fsframework.statistics.results import (
    MethodResult,
    comparable,
    grouped_by_tasks,
    tasks_called,
    tasks_told_apart,
    thread_cautions,
)
from fsframework.values import (
    Contrast,
    Estimate,
    footnotes,
    html_table,
    label_in_arms,
    text_table,
)

__all__ = [
    "Column",
    "Headline",
    "HeadlineEntry",
    "HeadlineRow",
    "HeadlineTable",
    "headline_of",
    "headline_of_run",
    "headline_of_runs",
]

_MARKS = {"best": "*", "tied": "~", "": ""}
_COUNTS = ("seeds", "tasks")
"""Names of rows that say how much was measured, and not what."""
_MOST_NAMES = 3
_MOST_GROUPS = 4
_LEAST_BAR, _MOST_BAR = 10, 24


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
        return tuple(label for label, one in p.items() if one is not None and one >= most)

    def mark(self, label: str) -> Literal["", "best", "tied"]:
        """Return ``best``, ``tied`` or nothing; a single row has no mark."""
        if self.compared is None:
            return ""
        return "best" if label == self.best else "tied" if label in self.tied else ""


@dataclass(frozen=True)
class HeadlineEntry:
    """A value of the table of a headline, or the reason why there is none.

    Args:
        row: names of its row, one for each of the table's ``row_names``.
        column: name of its column.
        label: what sentences call the row.
        estimate: ``None`` where nothing was measured; ``reason`` says why.
        mark: ``best`` for the best value of its column, ``tied`` for one that cannot be
            distinguished from it.
    """

    row: tuple[str, ...]
    column: str
    label: str
    estimate: Estimate | None
    reason: str = ""
    mark: Literal["", "best", "tied"] = ""

    @property
    def parts(self) -> tuple[str, str, str]:
        """Value, half-width and mark as text."""
        mark = _MARKS[self.mark]
        if self.estimate is None:
            return "–", "", mark
        digits, (value, low, high) = (1 if self.estimate.share else 3), _percent(self.estimate)
        return f"{value:.{digits}f}", f"{(high - low) / 2:.{digits}f}" * (low == low), mark

    def to_json(self) -> dict[str, Any]:
        """Return a flat object in percent for shares; what is missing is null."""
        one = self.estimate
        ends = (None, None, None) if one is None else _percent(one)
        value, low, high = (None if x is None or x != x else round(x, 6) for x in ends)
        return {
            "quantity": self.column,
            "measured": value,
            "measured_half_width": None if low is None or high is None else (high - low) / 2,
            "measured_low": low,
            "measured_high": high,
            "unit": "%" if one is not None and one.share else "",
            "row": self.label,
            "measure": "" if one is None else one.name,
            "mark": self.mark,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class HeadlineTable:
    """The table of a headline.

    Args:
        row_names: what the names of a row are, such as ``shot`` and ``method``.
        entries: in the order of rows and columns.
    """

    row_names: tuple[str, ...] = ()
    entries: tuple[HeadlineEntry, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, in order."""
        return tuple(dict.fromkeys(entry.column for entry in self.entries))

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The names of each row, in order."""
        return tuple(dict.fromkeys(entry.row for entry in self.entries))

    def entries_of(self, column: str) -> list[HeadlineEntry]:
        """Return the entries of a column, in the order of the rows."""
        return [entry for entry in self.entries if entry.column == column]


@dataclass(frozen=True, repr=False, eq=False)
class Headline:
    """What experiments found: printed, sentences and one table that fits 80 columns.

    Args:
        sentences: the answer in words.
        table: a row per method; columns are the measures of both arms and the gap. The best value
            of a column on equal tasks is marked, and those that cannot be distinguished from it.
        notes: what is needed to read the table.
        columns: for every set of equal tasks, the estimates and comparisons behind the table.
    """

    sentences: tuple[str, ...]
    table: HeadlineTable = HeadlineTable()
    notes: tuple[str, ...] = ()
    columns: tuple[tuple[Column, ...], ...] = ()

    def text(self, width: int = 80) -> str:
        """Return sentences, table and notes as lines of at most ``width`` characters."""
        paragraphs = [
            textwrap.fill(" ".join(self.sentences), width),
            _table_text(self.table, width),
            "\n".join(textwrap.fill(note, width) for note in self.notes),
        ]
        return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)

    def to_json(self) -> dict[str, Any]:
        """Return sentences, table and notes as JSON values."""
        return {
            "sentences": list(self.sentences),
            "rows": [entry.to_json() for entry in self.table.entries],
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        below = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return said + html_table(*_in_full(self.table)) + below


def headline_of_run(run: Run) -> Headline:
    """Return the answer of a run from the estimates it holds.

    Raises:
        DataError: it has no estimates.
    """
    record, estimates = run.record, run.estimates
    if not estimates:
        raise DataError(f"{run.name}: has no estimates")
    names = list(dict.fromkeys(e.statistic for e in estimates.values()))
    usual = [one.name for one in _measures(names, tuple(record.arms), record.contrast)]
    label = record.method.called if record.method is not None else run.name
    columns = []
    for name in [one for one in usual if one in estimates] or estimates:
        one = estimates[name]
        measure = Measure(one.statistic, one.arms)
        called = record.labels.get(one.statistic) or one.statistic
        head = "gap" if measure.is_gap else record.label(one)
        better = one.higher_is_better and not measure.is_gap
        columns.append(Column(head, called, measure, better, {label: one}))
    row = HeadlineRow((label,), MethodResult(label, {}, cautions=record.cautions))
    return _assembled({label: row}, ("method",), [columns], [""])


def _measures(
    statistics: Sequence[str], arms: Sequence[str], contrast: Contrast | None
) -> list[Measure]:
    """Return the measures of the table: the main statistic, which is the last, in every arm."""
    own, main = contrast.arms if contrast is not None else tuple(arms), statistics[-1]
    measures = [Measure(name, own[:1]) for name in statistics[:-1]]
    measures += [Measure(main, (arm,)) for arm in own]
    return measures + ([] if contrast is None else [Measure(main, contrast.arms)])


def headline_of_runs(
    rows: Sequence[HeadlineRow],
    row_names: Sequence[str],
    record: RunRecord,
    statistic: str | None = None,
    *,
    ranked: bool = False,
) -> Headline:
    """Return the answer of finished runs, with the statistics and the level they were run with.

    Args:
        rows: in the order of the table.
        row_names: what the names of a row are.
        record: of one of the runs.
        statistic: whose gap is asked for; by default the last of the run.
        ranked: whether rows on equal tasks are put in the order of the last column.

    Raises:
        DataError: the runs have no estimates.
    """
    names = list(dict.fromkeys(one.statistic for one in record.estimates.values()))
    if not names:
        raise DataError(f"{rows[0].names[0]}: has no estimates")
    wanted = dict.fromkeys([names[0], statistic or names[-1]])
    registry = open_session(progress=False).registry
    statistics = {name: statistic_of_run(registry, name, record) for name in wanted}
    how = ComparisonOptions(IntervalChoice(float(record.settings.get("level", 0.95))))
    return headline_of(rows, row_names, statistics, how, ranked=ranked)


def headline_of(
    rows: Sequence[HeadlineRow],
    row_names: Sequence[str],
    statistics: Mapping[str, Statistic],
    how: ComparisonOptions | None = None,
    *,
    ranked: bool = False,
) -> Headline:
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
        columns, missing = _columns(short, group, statistics, how or ComparisonOptions())
        groups.append(columns)
        left_out.update(dict.fromkeys(missing))
    if not any(groups) and left_out:
        raise DataError("nothing can be measured: " + "; ".join(left_out))
    apart = tasks_told_apart(grouped) if len(grouped) > 1 else {}
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
    for measure in _measures(list(statistics), list(first.outcomes), first.contrast):
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
) -> Headline:
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
    return Headline(sentences, table, notes, tuple(map(tuple, groups)))


def _notes(rows: Mapping[str, HeadlineRow], groups: Sequence[Sequence[Column]]) -> Iterator[str]:
    """Yield what is needed to read the table, each sentence once."""
    estimates = [e for columns in groups for column in columns for e in column.values.values()]
    if estimates:
        yield _reading(estimates)
    if any(column.compared for columns in groups for column in columns):
        where = " on equal tasks" if len(groups) > 1 else ""
        yield (
            f"* best of its column{where}; ~ not distinguishable from it (paired where tasks are, "
            f"Holm over all pairs, {100 * estimates[0].level:g} %)."
        )
    terms = dict.fromkeys(_terms(columns) for columns in groups)
    yield from (f"gap = {one}; larger is worse." for one in terms if one)
    failed = {label: [f"{row.reason}."] for label, row in rows.items() if row.result is None}
    yield from (f"–: {note}" for note in footnotes(failed))
    for columns in groups:
        yield from _shared_first(
            {c.label: c.compared.notes if c.compared is not None else () for c in columns}
        )
    done = {label: row.result for label, row in rows.items() if row.result is not None}
    threads = thread_cautions({label: (one.threads, one.trained) for label, one in done.items()})
    yield from _shared_first(
        {label: (*one.cautions, *threads.get(label, ())) for label, one in done.items()}
    )


def _shared_first(said: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the notes that all have, then the others with the names of those that have them."""
    shared = set.intersection(*map(set, said.values())) if said else set()
    yield from (f"note: {one}" for one in next(iter(said.values()), ()) if one in shared)
    yield from footnotes({k: [one for one in own if one not in shared] for k, own in said.items()})


def _reading(estimates: Sequence[Estimate]) -> str:
    """Return a sentence on units, intervals and tasks."""
    tasks = sorted({e.n_tasks // max(1, len(e.arms) if not e.paired else 1) for e in estimates})
    counts = f"{tasks[0]:,}" if len(tasks) == 1 else f"{tasks[0]:,} to {tasks[-1]:,}"
    unit = "In percent" if all(e.share for e in estimates) else "Shares in percent"
    over = " and training seeds" if any(e.n_seeds > 1 for e in estimates) else ""
    meaning = {
        "closed": "closed: images recur between tasks, so they speak of this data set only",
        "open": "open: no image recurs between tasks, so they speak of the data's distribution",
    }
    said = "; ".join(meaning[scope] for scope in sorted({e.scope for e in estimates}))
    return (
        f"{unit}; ± {100 * estimates[0].level:g} % interval over {counts} tasks per arm{over} "
        f"({said})."
    )


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
    first, second = main if main[0].higher_is_better else reversed(main)
    return f"{first.label} − {second.label}"


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
        yield _loss(main, _arms_of(main, columns))
    elif main.measure.is_gap:
        yield from _extremes(main, _arms_of(main, columns)[0])
    else:
        verb = "has" if len(main.values) == 1 else "has the best"
        value = f"{main.label}{',' if len(main.values) > 1 else ''} {main.values[main.best]}"
        yield f"{main.name(main.best)} {verb} {value}{_others(main)}."


def _loss(gap: Column, of_arms: Sequence[Column]) -> str:
    """Return what one method loses from the control arm to the tested one."""
    ((label, estimate),) = gap.values.items()
    called = gap.name(label)
    ends = " to ".join(_short(column.values[label]) for column in of_arms)
    arms = f"of {gap.statistic} from {gap.measure.arms[0]} to {gap.measure.arms[1]} tasks"
    if estimate.low > 0:
        return f"{called} loses {_points(estimate)} {arms} ({ends})."
    if estimate.high < 0:
        return f"{called} gains {_points(estimate, -1)} {arms} ({ends})."
    return (
        f"No loss {arms} is shown for {called}: the gap is {_points(estimate)}, an interval that "
        f"contains 0 ({ends})."
    )


def _extremes(gap: Column, control: Column) -> Iterator[str]:
    """Yield which methods have the smallest and the largest gap, and what that does not show."""
    best, worst = gap.ranked[0], gap.ranked[-1]
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
        yield f"{smallest}, {_points(gap.values[best])}{_others(gap)}."
        yield f"{gap.name(worst)} has the largest, {_points(gap.values[worst])}."
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


def _points(estimate: Estimate, sign: int = 1) -> str:
    factor, unit = _unit(estimate)
    value = f"{sign * factor * estimate.value:.1f}"
    if estimate.low != estimate.low:
        return value + unit
    return f"{value} ± {factor * estimate.half_width:.1f}{unit}"


def _short(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f} %" if estimate.share else f"{estimate.value:.4g}"


def _percent(estimate: Estimate) -> tuple[float, float, float]:
    """Return a value and its interval, shares in percent."""
    factor = 100 if estimate.share else 1
    return factor * estimate.value, factor * estimate.low, factor * estimate.high


def _in_full(table: HeadlineTable) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells of the whole table."""
    columns = [_cells(table.entries_of(name)) for name in table.columns]
    rows = [[*names, *cells] for names, *cells in zip(table.rows, *columns, strict=True)]
    return [*table.row_names, *table.columns], rows


def _table_text(table: HeadlineTable, width: int) -> str:
    """Return the table as lines of at most ``width`` characters.

    The intervals of the last column are also drawn as bars on a common scale, if there is room.
    Where there is too little room, columns before the last three are left out.
    """
    heads, rows = _in_full(table)
    columns = [list(cells) for cells in zip(heads, *rows, strict=True)]
    spare = len(table.columns) - 3
    while (room := width - sum(max(map(len, cells)) + 2 for cells in columns)) < -2 and spare > 0:
        del columns[len(table.row_names)]
        spare -= 1
    if room >= _LEAST_BAR and table.columns:
        last = [entry.estimate for entry in table.entries_of(table.columns[-1])]
        columns.append(["", *_bars(last, min(room, _MOST_BAR))])
    first, *lines = zip(*columns, strict=True)
    return text_table(first, lines, width)


def _cells(entries: Sequence[HeadlineEntry]) -> list[str]:
    """Return values with their intervals and marks, aligned at the decimal point."""
    parts = [entry.parts for entry in entries]
    before, after = (max(len(part[i]) for part in parts) for i in range(2))
    return [
        f"{value.rjust(before)}{f' ± {half.rjust(after)}' if half else ''}{mark or ' '}".rstrip()
        for value, half, mark in parts
    ]


def _bars(estimates: Sequence[Estimate | None], width: int) -> list[str]:
    """Return each interval as a bar on a common scale, with 0 marked."""
    values = [None if one is None or one.value != one.value else _percent(one) for one in estimates]
    ends = [0.0, *(x for one in values for x in one or () if x == x)]
    low, span = min(ends), (max(ends) - min(ends)) or 1.0

    def place(x: float) -> int:
        return round((x - low) / span * (width - 1))

    return ["" if one is None else _bar(*one, place, width) for one in values]


def _bar(value: float, low: float, high: float, place: Callable[[float], int], width: int) -> str:
    line = [" "] * width
    line[place(0.0)] = "╎"
    if low == low:
        first, last = place(low), place(high)
        line[first : last + 1] = "─" * (last - first + 1)
        if last - first > 1:
            line[first], line[last] = "├", "┤"
    line[place(value)] = "●"
    return "".join(line).rstrip()
