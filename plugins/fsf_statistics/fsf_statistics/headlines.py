"""The answer of several runs: sentences, and a table of both arms and the gap."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

from fsf_statistics._answers import (
    arms_of,
    names_told,
    near_guessing,
    rank_agreements,
    sentences,
)
from fsf_statistics._columns import Column, columns_of, main_of, robustness_of
from fsf_statistics._headline_table import HeadlineEntry, HeadlineTable
from fsf_statistics.cautions import cautions_of
from fsf_statistics.comparing import letters_shown, letters_told
from fsf_statistics.equal_tasks import labels_of
from fsf_statistics.estimating import statistic_of_run, statistics_of
from fsf_statistics.given import Comparable, collect_results
from fsf_statistics.task_sets import facts_of, sets_of, tasks_told_apart
from fsframework.api.headlines import PLACEBO, Headline, gap_told, limits_told, reading_told
from fsframework.api.running import Run
from fsframework.api.session import open_session
from fsframework.errors import DataError
from fsframework.interfaces import Statistic
from fsframework.statistics.differences import ComparisonOptions
from fsframework.statistics.estimators import Interval, IntervalChoice
from fsframework.statistics.facts import called
from fsframework.statistics.measures import DEFAULT_STATISTICS
from fsframework.statistics.results import MethodResult
from fsframework.values import Estimate, footnotes, html_table

__all__ = ["Column", "ComparedHeadline", "HeadlineRow", "headline", "headline_of_runs", "limits_of"]

_ELSEWHERE = "not measured on its tasks"
_COUNTS = ("seeds", "count")
"""Names of rows that say how much was measured, and not what."""


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


@dataclass(frozen=True, repr=False, eq=False)
class ComparedHeadline(Headline):
    """What several experiments found.

    The best value of a column on equal tasks is marked, and those that cannot be distinguished
    from it.

    Args:
        table: a row per method; columns are the measures of both arms, and what is lost.
        columns: for every set of equal tasks, the estimates and comparisons behind the table.
        terms: what gap, drop and robustness are made of, by column; among the notes, as are the
            limits.
        limits: what gaps do not rank, which values are near guessing or below it, and what that
            says of their gaps.
        left_out: which measures are left out, and why; among the notes too.
    """

    table: HeadlineTable = field(default_factory=HeadlineTable)
    columns: tuple[tuple[Column, ...], ...] = ()
    terms: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def near_guessing(self) -> tuple[str, ...]:
        """Labels of the rows that are near guessing in the control arm, so that none is ranked."""
        return tuple(label for own in self.columns if own for label in near_guessing(own))

    def table_text(self, width: int) -> str:
        """Return the table as lines of at most ``width`` characters."""
        return self.table.text(width) if self.table.entries else ""

    def text(self, width: int = 80) -> str:
        """Return sentences, table and notes; the answer on each set of tasks begins a line."""
        if len(self.columns) < 2:
            return super().text(width)
        answers = [ComparedHeadline((said,)).text(width) for said in self.sentences]
        return "\n".join([*answers, "", replace(self, sentences=(), columns=()).text(width)])

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
    found = collect_results(results, session.workspace.runs)
    first, main = DEFAULT_STATISTICS[0], DEFAULT_STATISTICS[-1] if statistic is None else statistic
    asked = [main] if main == first else [first, main]
    how = ComparisonOptions(IntervalChoice(level, interval))
    names = _row_names(found)
    rows = list(map(HeadlineRow, zip(*names.values(), strict=True), found))
    statistics = statistics_of(session.registry, asked, found)
    return _headline_of(rows, list(names), statistics, how, ranked=True)


def _row_names(results: Sequence[MethodResult]) -> dict[str, list[str]]:
    """Return what tells results apart: names by head."""
    groups = sets_of(results)
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
    grouped = sets_of([row.result for row in rows if row.result is not None])
    facts = [facts_of(group[0]) for group in grouped]
    apart = tasks_told_apart(facts) if len(grouped) > 1 else {}
    places = [called({k: v[i] for k, v in apart.items()}) for i in range(len(grouped))]
    groups: list[list[Column]] = []
    left_out: dict[str, None] = {}
    for group, place in zip(grouped, places, strict=True):
        own = [label_of[id(result)] for result in group]
        short = dict(zip(own, _called([labelled[o] for o in own], row_names), strict=True))
        columns, missing = columns_of(short, group, statistics, how)
        groups.append(columns)
        left_out |= dict.fromkeys(f"{place}: {one}" if place else one for one in missing)
    if not any(groups) and left_out:
        raise DataError(f"nothing can be measured: {' '.join(left_out)}".removesuffix("."))
    if ranked:
        order = [label for columns in groups if columns for label in _order(columns)]
        labelled = {label: labelled[label] for label in dict.fromkeys([*order, *labelled])}
    found = _assembled(labelled, row_names, groups, places)
    if facts and all(one.get("placebo") == "true" for one in facts):
        found = replace(found, sentences=(PLACEBO, *found.sentences))
    return replace(found, notes=(*found.notes, *left_out), left_out=tuple(left_out))


def _called(rows: Sequence[HeadlineRow], heads: Sequence[str]) -> list[str]:
    """Return what tells each row from the others: the names that vary, else the first.

    >>> rows = [HeadlineRow((name, "1"), None) for name in ("maml", "renet")]
    >>> _called(rows, ("method", "shot")), _called(rows[:1], ("strength", "seeds"))
    (['maml', 'renet'], ['strength maml'])
    """
    varied = [
        i
        for i, head in enumerate(heads)
        if head not in _COUNTS and len({row.names[i] for row in rows}) > 1
    ]
    found = [
        ", ".join(filter(None, (called({heads[i]: row.names[i]}) for i in varied or [0])))
        for row in rows
    ]
    if len(set(found)) < len(found):
        return [", ".join(filter(None, row.names)) for row in rows]
    return found


def _assembled(
    rows: Mapping[str, HeadlineRow],
    row_names: Sequence[str],
    groups: Sequence[Sequence[Column]],
    places: Sequence[str],
) -> ComparedHeadline:
    """Return the headline of rows by label, and of columns for each set of equal tasks."""
    every = [column for columns in groups for column in columns]
    at = {(label, column.label): column for column in every for label in column.values}
    reasons = {(label, c.label): why for c in every for label, why in c.missing.items()}
    entries = []
    for label, row in rows.items():
        for head in dict.fromkeys(column.label for column in every):
            column, why = (
                at.get((label, head)),
                row.reason or reasons.get((label, head), _ELSEWHERE),
            )
            if column is None:
                one = HeadlineEntry(row.names, head, label, None, why)
            else:
                own, mark = column.values[label], column.mark(label)
                one = HeadlineEntry(row.names, head, label, own, mark=mark)
            entries.append(one)
    ranked = [
        (column.values, column.compared.letters)
        for columns in groups
        if (column := robustness_of(columns)) is not None and column.compared is not None
    ]
    letters = {label: letter for _, own in ranked for label, letter in own.items()}
    if letters:
        row_names = (*row_names, "letter")
        entries = [
            replace(e, row=(*e.row, letters_shown(letters.get(e.label, "")))) for e in entries
        ]
    table = HeadlineTable(tuple(row_names), tuple(entries))
    terms = {name: told for columns in groups for name, told in _terms(columns).items()}
    if letters:
        terms["letter"] = letters_told(
            (one for values, _ in ranked for one in values.values()), letters.values()
        )
    limits = tuple(limits_of(groups, places))
    return ComparedHeadline(
        tuple(sentences(groups, places)),
        tuple(_notes(rows, groups, (*terms.values(), *limits, *rank_agreements(groups, places)))),
        table,
        tuple(map(tuple, groups)),
        terms,
        limits,
    )


def _notes(
    rows: Mapping[str, HeadlineRow], groups: Sequence[Sequence[Column]], terms: Sequence[str]
) -> Iterator[str]:
    """Yield what is needed to read the table, each sentence once."""
    estimates = [e for columns in groups for column in columns for e in column.values.values()]
    if estimates:
        yield reading_told([one for one in estimates if one.arms])
    if any(column.compared for columns in groups for column in columns):
        where = " on equal tasks" if len(groups) > 1 else ""
        yield (
            f"* best of its column{where}; ~ not distinguishable from it (paired where tasks are, "
            f"Holm over all pairs, {100 * estimates[0].level:g} %)."
        )
    yield from terms
    yield from dict.fromkeys(same for columns in groups for same in _the_same(columns))
    failed = {label: [f"{row.reason}."] for label, row in rows.items() if row.result is None}
    yield from (f"–: {note}" for note in footnotes(failed))
    for columns in groups:
        # Those of robustness are among the limits.
        others = [column for column in columns if column is not robustness_of(columns)]
        yield from _shared_first(
            {c.label: c.compared.notes if c.compared is not None else () for c in others}
        )
    done = {label: row.result for label, row in rows.items() if row.result is not None}
    yield from _shared_first(cautions_of({label: one.records for label, one in done.items()}))


def _the_same(columns: Sequence[Column]) -> Iterator[str]:
    """Yield which rows have equal values in every task of every arm: they may be one model."""
    arms = [c for c in columns if c.compared is not None and len(c.measure.arms) == 1]
    same: dict[str, list[str]] = {}
    for first, second in itertools.combinations(arms[0].values if arms else (), 2):
        alike = all(column.alike(first, second) for column in arms)
        if alike and not any(first in others for others in same.values()):
            same.setdefault(first, []).append(second)
    for first, others in same.items():
        names = names_told([columns[0].name(label) for label in (first, *others)])
        yield f"note: {names} have equal values in every task: one model or one file, given twice?"


def _shared_first(said: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the notes that all have, then the others with the names of those that have them."""
    shared = set.intersection(*map(set, said.values())) if said else set()
    yield from (f"note: {one}" for one in next(iter(said.values()), ()) if one in shared)
    yield from footnotes({k: [one for one in own if one not in shared] for k, own in said.items()})


def _order(columns: Sequence[Column]) -> list[str]:
    """Return the rows by effective robustness, else by gap, or by the control arm's value."""
    main, robustness = main_of(columns), robustness_of(columns)
    if robustness is not None:
        return [
            *robustness.ranked,
            *(one for one in columns[0].ranked if one in robustness.missing),
        ]
    return (main if main.ranks else columns[0]).ranked


def _terms(columns: Sequence[Column]) -> dict[str, str]:
    """Return what a gap, a drop and effective robustness are made of, by column."""
    main = main_of(columns) if columns else None
    if main is None or not main.measure.is_gap:
        return {}
    arms = {c.label: next(iter(c.values.values())) for c in arms_of(main, columns)}
    found = {name: told for name, told in gap_told(arms).items() if _has(columns, name)}
    if robustness_of(columns) is not None:
        control, tested = arms
        found["robustness"] = (
            f"robustness = {tested} beyond what {control} predicts, by a line through the logits "
            "of all methods on equal tasks; larger is better."
        )
    return found


def _has(columns: Sequence[Column], head: str) -> bool:
    """Whether a column has any value."""
    return any(column.label == head and column.values for column in columns)


def limits_of(groups: Sequence[Sequence[Column]], places: Sequence[str]) -> Iterator[str]:
    """Yield what gaps and robustness do not rank, and which rows are near guessing, each once.

    Sets of tasks on which guessing gives the same share one sentence.

    Args:
        groups: the columns of each set of equal tasks.
        places: what tells each set from the others.
    """
    gaps = [
        (number, columns)
        for number, columns in enumerate(groups)
        if columns and main_of(columns).measure.is_gap
    ]
    if any(not main_of(columns).ranks for _, columns in gaps):
        yield (
            "A gap shrinks where a method knows little and where it knows all, so gaps rank only "
            "methods that do equally well in the control arm."
        )
    alike: dict[tuple[Any, ...], dict[str, dict[str, Estimate]]] = {}
    names: dict[str, str] = {}
    for number, columns in gaps:
        main, robustness = main_of(columns), robustness_of(columns)
        where = f" ({places[number]})" if places[number] else ""
        if robustness is not None:
            missing = {robustness.name(one): [why] for one, why in robustness.missing.items()}
            yield from (f"No robustness of {one}." for one in footnotes(missing))
            notes = robustness.compared.notes if robustness.compared is not None else ()
            yield from (f"Robustness{where}: {note}." for note in notes)
        guessed = [next(iter(c.values.values())).guessing for c in columns if c.values]
        heads = alike.setdefault((main.measure.arms, *guessed), {})
        for column in columns:
            own = {f"{number} {label}": one for label, one in column.values.items()}
            heads.setdefault(column.label, {}).update(own)
            names |= {f"{number} {label}": main.name(label) + where for label in column.values}
    for (arms, *_), heads in alike.items():
        yield from limits_told(heads, arms, lambda rows: names_told([names[one] for one in rows]))
