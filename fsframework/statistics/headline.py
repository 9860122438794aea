"""The answer of experiments: a few sentences and one table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import Any

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
from fsframework.statistics.headline_text import table_text
from fsframework.statistics.headline_words import sentences_on
from fsframework.statistics.measures import DEFAULT_STATISTICS, Measure
from fsframework.statistics.results import (
    MethodResult,
    comparable,
    grouped_by_tasks,
    tasks_told_apart,
    thread_cautions,
)
from fsframework.values import (
    Entry,
    Estimate,
    Quantity,
    TableDeclaration,
    footnotes,
    html_table,
    label_in_arms,
)

__all__ = [
    "Column",
    "Headline",
    "HeadlineRow",
    "headline_of",
    "headline_of_estimates",
    "usual_statistics",
]


@dataclass(frozen=True, eq=False)
class HeadlineRow:
    """A row of the table: a method, or an experiment that failed.

    Args:
        names: one for each name of a row.
        result: its answers; ``None`` where it failed.
        reason: why it failed, a sentence without a full stop.
        called: what sentences call it; by default what tells it from the other rows.
    """

    names: tuple[str, ...]
    result: MethodResult | None
    reason: str = ""
    called: str = ""

    @property
    def label(self) -> str:
        """What notes call it; unique among the rows."""
        return self.called or ", ".join(name for name in self.names if name)


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
        called: by label, what tells a row from the others of the column; the label where it has
            nothing.
    """

    label: str
    statistic: str
    measure: Measure
    higher_is_better: bool
    values: Mapping[str, Estimate]
    compared: MeasureComparison | None = None
    called: Mapping[str, str] = field(default_factory=dict)

    def name(self, label: str) -> str:
        """Return what tells a row from the others of the column, for sentences."""
        return self.called.get(label, label)

    @cached_property
    def best(self) -> str:
        """Label of the best row."""
        sign = -1 if self.higher_is_better else 1
        return min(self.values, key=lambda label: sign * self.values[label].value)

    @cached_property
    def tied(self) -> tuple[str, ...]:
        """Labels of the rows that cannot be distinguished from the best one, by Holm's p."""
        if self.compared is None:
            return ()
        best, most = self.best, 1 - self.compared.level
        return tuple(
            label
            for label in self.values
            if label != best
            and (p := self.compared.pair(best, label)[0].p_holm) is not None
            and p >= most
        )

    def mark(self, label: str) -> str:
        """Return ``best``, ``tied`` or nothing; a single row has no mark."""
        if self.compared is None:
            return ""
        return "best" if label == self.best else "tied" if label in self.tied else ""


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
    table: TableDeclaration
    notes: tuple[str, ...] = ()
    columns: tuple[tuple[Column, ...], ...] = field(default=())

    def text(self, width: int = 80) -> str:
        """Return sentences, table and notes as lines of at most ``width`` characters."""
        paragraphs = [
            textwrap.fill(" ".join(self.sentences), width),
            table_text(self.table, width),
            "\n".join(textwrap.fill(note, width) for note in self.notes),
        ]
        return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)

    def sorted(self) -> Headline:
        """Return the same with the rows of equal tasks in the order of the last column."""
        place: dict[str, tuple[int, float]] = {}
        for number, columns in enumerate(self.columns):
            for column in columns[-1:]:
                sign = -1 if column.higher_is_better else 1
                own = {label: (number, sign * e.value) for label, e in column.values.items()}
                place |= own
        last = (len(self.columns), 0.0)
        entries = sorted(self.table.entries, key=lambda one: place.get(one.about["row"], last))
        return replace(self, table=replace(self.table, entries=tuple(entries)))

    def to_json(self) -> dict[str, Any]:
        """Return sentences, table and notes as JSON values."""
        return {
            "sentences": list(self.sentences),
            **self.table.to_json(),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        heads, cells = _cells(self.table)
        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        below = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return said + html_table(heads, cells) + below


def _cells(table: TableDeclaration) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells of the table in full."""
    entries = {(entry.row, entry.column): entry for entry in table.entries}
    marks = {"best": " *", "tied": " ~", "": ""}
    rows = []
    for names in dict.fromkeys(entry.row for entry in table.entries):
        row = list(names)
        for column in table.columns:
            one = entries.get((names, column))
            known = one is not None and one.measured is not None
            row.append(f"{one.measured.text()}{marks[one.mark]}" if one and known else "–")  # type: ignore[union-attr]
        rows.append(row)
    return [*table.row_names, *table.columns], rows


def headline_of(
    rows: Sequence[HeadlineRow],
    row_names: Sequence[str],
    statistics: Mapping[str, Statistic],
    how: ComparisonOptions | None = None,
) -> Headline:
    """Return the answer of experiments.

    Args:
        rows: in the order of the table.
        row_names: what the names of a row are, such as ``method``.
        statistics: by name: the one whose gap is asked for, and others that stand before it with
            their value in the control arm only.
        how: intervals and resamples.

    Raises:
        DataError: there are no rows, or none of the statistics can be computed.
    """
    if not rows:
        raise DataError("there are no results to show")
    how = how or ComparisonOptions()
    # Among equal tasks, what the others have too need not be said again.
    bare = {id(row.result): replace(row, called="") for row in rows}
    told = zip(rows, _told_apart(rows, row_names), strict=True)
    rows = [replace(row, called=name) for row, name in told]
    of_result = {id(row.result): row for row in rows if row.result is not None}
    groups, left_out = [], dict[str, None]()
    grouped = grouped_by_tasks([row.result for row in rows if row.result is not None])
    for group in grouped:
        own = [of_result[id(result)] for result in group]
        columns, missing = _columns(own, statistics, how)
        apart = _told_apart([bare[id(result)] for result in group], row_names)
        short = dict(zip((row.label for row in own), apart, strict=True))
        groups.append(tuple(replace(column, called=short) for column in columns))
        left_out.update(dict.fromkeys(missing))
    if not any(groups) and left_out:
        raise DataError("nothing can be measured: " + "; ".join(left_out))
    main = list(statistics.items())[-1:]
    called = "".join(one.label or name for name, one in main)
    return _assembled(rows, row_names, groups, called, _places(grouped), left_out)


_COUNTS = ("seeds", "tasks")
"""Names of rows that say how much was measured, and not what."""


def _told_apart(rows: Sequence[HeadlineRow], row_names: Sequence[str]) -> list[str]:
    """Return what tells each row from the others: the names that vary, else the first.

    >>> rows = [HeadlineRow((name, "1"), None) for name in ("maml", "renet")]
    >>> _told_apart(rows, ("method", "shot")), _told_apart(rows[:1], ("method", "shot"))
    (['maml', 'renet'], ['maml'])
    """
    heads = list(row_names)
    varied = [i for i in range(len(heads)) if len({row.names[i] for row in rows}) > 1]
    chosen = [i for i in varied if heads[i] not in _COUNTS]
    found = [_called(row, heads, chosen or [0]) for row in rows]
    if len(set(found)) < len(found):
        return [row.called or ", ".join(name for name in row.names if name) for row in rows]
    return found


def _called(row: HeadlineRow, heads: Sequence[str], chosen: Sequence[int]) -> str:
    """Return some names of a row; all but methods with what they name."""
    said = (row.names[i] if heads[i] == "method" else f"{heads[i]} {row.names[i]}" for i in chosen)
    return row.called or ", ".join(said)


def _places(groups: Sequence[Sequence[MethodResult]]) -> list[str]:
    """Return what tells the tasks of each group from those of the others, for sentences."""
    if len(groups) == 1:
        return [""]
    apart = tasks_told_apart(groups)
    places = []
    for number in range(len(groups)):
        told = {name: values[number] for name, values in apart.items()}
        if "set" in told:
            places.append(f"Tasks {told['set']} of {len(groups)}: ")
            continue
        before = [told.pop(name) for name in ("count", "tasks") if name in told]
        of = f" of {told.pop('data')}" if "data" in told else ""
        options = " and ".join(f"{name} {value or 'none'}" for name, value in told.items())
        places.append(" ".join(["On", *before, "tasks"]) + of + f" with {options}" * bool(told)
                      + ": ")  # fmt: skip
    return places


def headline_of_estimates(
    label: str, record: RunRecord, estimates: Mapping[str, Estimate]
) -> Headline:
    """Return the answer of one run, or of runs over seeds, from estimates that are known.

    Args:
        label: name of the method.
        record: of the run; its last statistic is the one whose gap is told.
        estimates: by name of the measure.

    Raises:
        DataError: there are no estimates.
    """
    if not estimates:
        raise DataError("there are no estimates to show")
    names = list(dict.fromkeys(e.statistic for e in estimates.values()))
    arms = list(record.arms) if record.contrast is None else list(record.contrast.arms)
    wanted = [Measure(name, tuple(arms[:1])) for name in names[:-1]]
    wanted += [Measure(names[-1], (arm,)) for arm in arms]
    if record.contrast is not None:
        wanted.append(Measure(names[-1], record.contrast.arms))
    if not any(measure.name in estimates for measure in wanted):
        wanted = [Measure(one.statistic, one.arms) for one in estimates.values()]
    columns = []
    for measure in wanted:
        if (one := estimates.get(measure.name)) is not None:
            called = record.labels.get(one.statistic) or one.statistic
            head = "gap" if measure.is_gap else record.label(one)
            better = one.higher_is_better and not measure.is_gap
            columns.append(Column(head, called, measure, better, {label: one}))
    row = HeadlineRow((label,), MethodResult(label, {}, cautions=record.cautions))
    return _assembled([row], ("method",), [tuple(columns)], columns[-1].statistic)


def _assembled(
    rows: Sequence[HeadlineRow],
    row_names: Sequence[str],
    groups: Sequence[tuple[Column, ...]],
    main: str,
    places: Sequence[str] = ("",),
    left_out: Iterable[str] = (),
) -> Headline:
    """Return the headline of columns that are computed."""
    table = TableDeclaration(
        "headline",
        f"{main} by arm, and its gap",
        tuple(row_names),
        tuple(_entries(rows, groups)),
        differences=False,
    )
    notes = (*_notes(rows, groups), *left_out)
    return Headline(tuple(sentences_on(groups, places)), table, notes, tuple(groups))


def _columns(
    rows: Sequence[HeadlineRow], statistics: Mapping[str, Statistic], how: ComparisonOptions
) -> tuple[tuple[Column, ...], list[str]]:
    """Return the columns of rows with equal tasks, and why others are left out."""
    results = [row.result for row in rows if row.result is not None]
    if len(results) > 1:
        results = comparable(results)
    labels = [row.label for row in rows]
    found, missing = [], []
    for measure in _measures(results[0], list(statistics)):
        statistic = statistics[measure.statistic]
        try:
            values = values_of(results, measure, statistic)
        except DataError as error:
            missing.append(f"{measure.name} is left out: {error}")
            continue
        if len(labels) > 1:
            compared = compare_methods(labels, values, how)
            own = compared.values
        else:
            compared, own = None, estimates_of_methods(labels, values, how)
        better = statistic.higher_is_better and not measure.is_gap
        called = statistic.label or measure.statistic
        label = _label(measure, called, results[0])
        found.append(Column(label, called, measure, better, own, compared))
    return tuple(found), missing


def _measures(result: MethodResult, statistics: Sequence[str]) -> Iterator[Measure]:
    """Yield the measures of the table: the main statistic, which is the last, in every arm."""
    contrast, main = result.contrast, statistics[-1]
    arms = contrast.arms if contrast is not None else tuple(result.outcomes)
    for name in statistics[:-1]:
        yield Measure(name, arms[:1])
    for arm in arms:
        yield Measure(main, (arm,))
    if contrast is not None:
        yield Measure(main, contrast.arms)


def _label(measure: Measure, statistic: str, result: MethodResult) -> str:
    if measure.is_gap:
        return "gap"
    symbols = {} if result.arms is None else result.arms.symbols
    only = len(result.outcomes) == 1
    return label_in_arms(statistic, measure.arms, symbols, only=only)


def _entries(rows: Sequence[HeadlineRow], groups: Sequence[Sequence[Column]]) -> Iterator[Entry]:
    labels = dict.fromkeys(column.label for columns in groups for column in columns)
    for row in rows:
        own = {
            column.label: column
            for columns in groups
            for column in columns
            if row.result is not None and row.label in column.values
        }
        for label in labels:
            column = own.get(label)
            if column is None:
                why = row.reason or "not measured on its tasks"
                yield Entry(row.names, label, None, why, about={"row": row.label, "measure": ""})
                continue
            estimate = column.values[row.label]
            yield Entry(
                row.names,
                label,
                Quantity.of(estimate),
                mark=column.mark(row.label),  # type: ignore[arg-type]
                about={"row": row.label, "measure": column.measure.name},
            )


def _notes(rows: Sequence[HeadlineRow], groups: Sequence[Sequence[Column]]) -> Iterator[str]:
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
    yield from _definitions(groups)
    failed: dict[str, list[str]] = {}
    for row in rows:
        if row.result is None:
            failed.setdefault(row.reason, []).append(row.label)
    for reason, labels in failed.items():
        yield f"–: {', '.join(labels)}: {reason}."
    yield from _comparison_notes(groups)
    done = {row.label: row.result for row in rows if row.result is not None}
    threads = thread_cautions({label: (one.threads, one.trained) for label, one in done.items()})
    cautions = {label: (*one.cautions, *threads.get(label, ())) for label, one in done.items()}
    shared = set.intersection(*map(set, cautions.values())) if cautions else set()
    for caution in dict.fromkeys(one for said in cautions.values() for one in said):
        if caution in shared:
            yield f"note: {caution}"
    own = {label: [one for one in said if one not in shared] for label, said in cautions.items()}
    yield from footnotes(own)


def _comparison_notes(groups: Sequence[Sequence[Column]]) -> Iterator[str]:
    """Yield what the comparisons note; what only some columns note names them."""
    for columns in groups:
        of: dict[str, list[str]] = {}
        for column in columns:
            for note in column.compared.notes if column.compared is not None else ():
                of.setdefault(note, []).append(column.label)
        for note, labels in of.items():
            where = "" if len(labels) == len(columns) else f"{', '.join(labels)}: "
            yield f"note: {where}{note}"


def _reading(estimates: Sequence[Estimate]) -> str:
    """Return a sentence on units, intervals and tasks."""
    tasks = sorted({e.n_tasks // max(1, len(e.arms) if not e.paired else 1) for e in estimates})
    counts = f"{tasks[0]:,}" if len(tasks) == 1 else f"{tasks[0]:,} to {tasks[-1]:,}"
    scopes = {e.scope for e in estimates}
    unit = "In percent" if all(e.share for e in estimates) else "Shares in percent"
    over = " and training seeds" if any(e.n_seeds > 1 for e in estimates) else ""
    meaning = {
        "closed": "closed: images recur between tasks, so they speak of this data set only",
        "open": "open: no image recurs between tasks, so they speak of the data's distribution",
    }
    said = "; ".join(meaning[scope] for scope in sorted(scopes))
    return (
        f"{unit}; ± {100 * estimates[0].level:g} % interval over {counts} tasks per arm{over} "
        f"({said})."
    )


def _definitions(groups: Sequence[Sequence[Column]]) -> Iterator[str]:
    """Yield what the gap is."""
    said = dict.fromkeys(
        f"gap = {terms[0]} − {terms[1]}; larger is worse."
        for columns in groups
        if (terms := _terms(columns))
    )
    yield from said


def _terms(columns: Sequence[Column]) -> tuple[str, str] | None:
    """Return the labels of the measures that a gap subtracts, the minuend first."""
    gap = next((column for column in columns if column.measure.is_gap), None)
    if gap is None:
        return None
    main = [
        column
        for column in columns
        if column.measure.statistic == gap.measure.statistic and not column.measure.is_gap
    ]
    first, second = main if main[0].higher_is_better else reversed(main)
    return first.label, second.label


def usual_statistics(asked: str | None) -> tuple[str, ...]:
    """Return the names of the statistics of a headline: by default Acc, then wAcc.

    >>> usual_statistics(None), usual_statistics("acc")
    (('acc', 'wacc'), ('acc',))
    """
    main = asked or DEFAULT_STATISTICS[-1]
    return tuple(dict.fromkeys([DEFAULT_STATISTICS[0], main])) if asked != "acc" else ("acc",)
