"""Tables of runs by name, declared as values; see ``_table_files`` for how they are written."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import fsf_statistics
from fsf_reports._results import Group, Results, Shown, natural, reading
from fsf_reports.values import Entry, Quantity, TableDeclaration, table_of_headline
from fsf_statistics import facts_of, head_of_fact, told_value
from fsframework.errors import DataError, OptionError, argument, close_matches
from fsframework.interfaces import Statistic
from fsframework.values import Estimate

__all__ = ["FACTS", "TABLES", "Request", "table"]

FACTS = ("method", "data", "way", "shot", "backbone", "words", "seeds")
"""What rows can be named and grouped by."""

_GAP = "gap"
_ROBUSTNESS, _LETTERS = "robustness", "letter"
"""Rows that share a letter cannot be told apart in robustness."""
_WITHIN_TASKS = ("method", "seeds", _LETTERS)
"""Names of rows that do not say which tasks a value is of."""
_ALIKE = "all tasks have the same difference"


@dataclass(frozen=True)
class Request:
    """What a table is asked to show.

    Args:
        statistic: whose values and gap.
        columns: names of the measures to show, such as ``gap`` or ``wacc-biased``, or their heads;
            empty for all.
        group_by: one of ``FACTS``, or an option in which the tasks differ, by whose values rows
            are grouped; empty for none.
        question: how a word is related to a query; ``None`` for the first, or for all.
    """

    statistic: str = "wacc"
    columns: tuple[str, ...] = ()
    group_by: str = ""
    question: str | None = None


@dataclass(frozen=True)
class NamedTable:
    """A table that can be asked for: what it shows, and what makes it."""

    summary: str
    declare: Callable[[Results, Request], TableDeclaration]


def table(  # noqa: PLR0913 - an option each
    results: Any,
    of: str = "headline",
    *,
    statistic: str = "wacc",
    columns: Sequence[str] = (),
    group_by: str = "",
    question: str | None = None,
    level: float = 0.95,
    runs_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
) -> TableDeclaration:  # fmt: skip
    """Declare a table of runs.

    Args:
        results: as for ``fsframework.compare``; one run is enough for most tables.
        of: ``headline``, ``shots``, ``datasets``, ``differences``, ``classes``, ``attributes``,
            ``pairs``, ``contexts``, ``worst-groups`` or ``harm``.
        statistic: whose values and gap are shown.
        columns: the measures to show, by name (``wacc-biased``, ``gap``) or by head (``wAcc-A``);
            by default all.
        group_by: ``data``, ``shot``, ``backbone``, another fact, or an option in which the tasks
            differ, by which rows are grouped.
        question: for words, ``tied`` in the support or ``present`` in a query; by default
            breakdowns show the first and ``harm`` both.
        level: confidence level of the intervals.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.
        plugins: Python files whose plugin classes are loaded too.

    Raises:
        OptionError: the table or a column is unknown, or an option is out of range.
        DataError: the runs lack what the table needs.
        RecordError: a run does not exist, or has no outcomes.
    """
    if of not in TABLES:
        raise OptionError(
            f"{argument('of', of)}: no table has this name{close_matches(of, TABLES)}; the tables "
            f"are {', '.join(TABLES)}"
        )
    opened = Results.of(results, level=level, runs_dir=runs_dir, plugins=plugins)
    facts = tuple(dict.fromkeys([*FACTS, *opened.groups[0].apart]))
    if group_by and group_by not in facts:
        raise OptionError(
            f"{argument('group_by', group_by)} must be one of {', '.join(facts)}"
            f"{close_matches(group_by, facts)}"
        )
    return TABLES[of].declare(opened, Request(statistic, tuple(columns), group_by, question))


@dataclass(frozen=True, eq=False)
class _Cell:
    """A measure of a method on its tasks."""

    one: Shown
    group: Group
    entry: Entry
    estimate: Estimate | None
    letters: str = ""


@dataclass(frozen=True, eq=False)
class _Cells:
    """Measures of methods on their tasks, and what is said of them.

    Args:
        shown: the measures, in the order of rows and columns.
        terms: what columns are made of, by column.
        remarks: what must be known of gaps and drops.
    """

    shown: list[_Cell]
    terms: Mapping[str, str]
    remarks: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """The columns, in order."""
        return list(dict.fromkeys(cell.entry.column for cell in self.shown))

    @property
    def estimates(self) -> list[Estimate]:
        """The values that were measured."""
        return [cell.estimate for cell in self.shown if cell.estimate is not None]


def _cells(results: Results, request: Request) -> _Cells:
    """Return every measure of every method, as ``fsf_statistics.headline`` gives them.

    A column without any value is left out unless it is requested.

    Raises:
        OptionError: a requested column does not exist.
    """
    found: list[_Cell] = []
    terms: dict[str, str] = {}
    sets, places, left_out = [], [], list[str]()
    for group in results.groups:
        place = group.title if len(results.groups) > 1 else ""
        by_label = {one.label: one for one in group.shown}
        answer = results.headline(group, request.statistic)
        estimates = {
            (label, column.label): estimate
            for columns in answer.columns
            for column in columns
            for label, estimate in column.values.items()
        }
        names = answer.table.row_names
        for entry in table_of_headline(answer).entries:
            label = entry.row[0]
            estimate = estimates.get((label, entry.column))
            letters = dict(zip(names, entry.row, strict=True)).get(_LETTERS, "")
            found.append(_Cell(by_label[label], group, entry, estimate, letters))
        terms |= answer.terms
        sets += answer.columns
        places += [place] * len(answer.columns)
        left_out += [f"{place}: {one}" if place else one for one in answer.left_out]
    measured = {cell.entry.column for cell in found if cell.estimate is not None}
    if not request.columns:
        found = [cell for cell in found if cell.entry.column in measured]
    said = (*fsf_statistics.limits_of(sets, places), *fsf_statistics.rank_agreements(sets, places))
    return _Cells(_chosen(found, request.columns), terms, (*said, *left_out))


def _chosen(cells: list[_Cell], columns: Sequence[str]) -> list[_Cell]:
    """Return the cells of the requested columns, in their order."""
    if not columns:
        return cells
    names: dict[str, set[str]] = {}
    for cell in cells:
        own = names.setdefault(cell.entry.column, set())
        own |= {cell.entry.column.lower(), *([cell.estimate.name] if cell.estimate else ())}
    picked = []
    for column in columns:
        heads = [head for head, own in names.items() if column.lower() in own]
        if not heads:
            known = [n for head, own in names.items() for n in (head, *sorted(own))]
            raise OptionError(
                f"{argument('columns', column)}: no column has this name"
                f"{close_matches(column, known)}; the columns are {', '.join(names)}"
            )
        picked += [cell for cell in cells if cell.entry.column in heads]
    return picked


def _fact(name: str, one: Shown) -> str:
    """Return a fact about a method on its tasks; empty where it is not known."""
    result = one.result
    if name == "method":
        return result.label
    if name in ("data", "words"):
        return facts_of(result).get(name, "")
    if name in ("way", "shot"):
        return "" if result.arms is None else str(getattr(result.arms.tested, f"n_{name}"))
    if name == "seeds":
        return str(len(result.models))
    component = one.record.components.get(name)
    return "" if component is None else component.called


def _row_names(results: Results, request: Request, in_columns: Sequence[str]) -> list[str]:
    """Return what rows are named by: the group, what varies between runs, and the method."""
    varied = [
        name
        for name in ("data", "way", "shot", "seeds")
        if name not in in_columns and len({_fact(name, one) for one in results.shown}) > 1
    ]
    names = [request.group_by] if request.group_by else []
    return list(dict.fromkeys([*names, *varied, *results.groups[0].apart, "method"]))


def _named(
    results: Results, request: Request, cells: Sequence[_Cell], pivot: str = ""
) -> tuple[list[str], list[Entry]]:
    """Return names of rows and entries; a fact may be part of the columns instead of the rows."""
    names = _row_names(results, request, [pivot] if pivot else [])
    if any(cell.letters and cell.entry.column == _ROBUSTNESS for cell in cells) and not pivot:
        names.append(_LETTERS)

    def told(name: str, cell: _Cell) -> str:
        if name == _LETTERS:
            return cell.letters
        if name == "method":
            return cell.one.label
        return cell.group.apart.get(name) or _fact(name, cell.one)

    if pivot == "shot":
        cells = sorted(cells, key=lambda cell: cell.one.n_shot)
    entries = []
    for cell in cells:
        column = cell.entry.column
        if pivot:
            value = _fact(pivot, cell.one)
            column = f"{column}, {value}{'-shot' if pivot == 'shot' else ''}"
        facts = {name: cell.group.facts[name] for name in ("data", "tasks")}
        about = {**cell.entry.about, **facts}
        row = tuple(told_value(told(name, cell)) for name in names)
        entries.append(dataclasses.replace(cell.entry, row=row, column=column, about=about))
    constant = _constant(names, entries, request.group_by)
    names = [name for place, name in enumerate(names) if place not in constant]
    entries = [
        dataclasses.replace(
            one, row=tuple(name for place, name in enumerate(one.row) if place not in constant)
        )
        for one in entries
    ]
    tasks = [place for place, name in enumerate(names) if name not in _WITHIN_TASKS]
    entries.sort(key=lambda entry: [natural(entry.row[place]) for place in tasks])
    return [head_of_fact(name) for name in names], entries


def _constant(names: Sequence[str], entries: Sequence[Entry], group_by: str) -> set[int]:
    """Return the places of names that say the same of every row."""
    return {
        place
        for place, name in enumerate(names)
        if name not in ("method", _LETTERS, group_by)
        and len({entry.row[place] for entry in entries}) == 1
    }


def _headline(results: Results, request: Request) -> TableDeclaration:
    cells = _cells(results, request)
    names, entries = _named(results, request, cells.shown)
    return TableDeclaration(
        "headline",
        _title(results, cells),
        tuple(names),
        tuple(entries),
        _terms(results, cells, [*cells.columns, *names]),
        differences=False,
        reading=_reading(results, cells.estimates),
        remarks=(*cells.remarks, *results.remarks),
    )


def _pivoted(fact: str, title: str) -> Callable[[Results, Request], TableDeclaration]:
    def declare(results: Results, request: Request) -> TableDeclaration:
        cells = _cells(results, request if request.columns else
                       dataclasses.replace(request, columns=(_GAP,)))  # fmt: skip
        names, entries = _named(results, request, cells.shown, fact)
        own = results.statistic_of(request.statistic).label or request.statistic
        head = [f"{own} gap" if column == _GAP else column for column in cells.columns]
        return TableDeclaration(
            f"by {fact}",
            f"{', '.join(head)} {title}, in percent.",
            tuple(names),
            tuple(entries),
            _terms(results, cells, cells.columns),
            differences=False,
            reading=_reading(results, cells.estimates),
            remarks=(*cells.remarks, *results.remarks),
        )

    return declare


def _title(results: Results, cells: _Cells) -> str:
    """Return what a table shows: statistics, and the arms that they are of."""
    first = results.groups[0]
    statistics = dict.fromkeys(one.statistic for one in cells.estimates if one.arms)
    what = [results.statistic_of(name).label or name for name in statistics]
    shown = {arm for one in cells.estimates for arm in one.arms}
    arms = [arm for arm in first.first.outcomes if arm in shown]
    symbols = {} if first.first.arms is None else first.first.arms.symbols
    where = [f"{arm} ({symbols[arm]})" if arm in symbols else arm for arm in arms]
    shares = all(one.share for one in cells.estimates)
    on = f" on {' and '.join(where)} tasks" if len(arms) > 1 else ""
    return f"{' and '.join(what)}{on}{', in percent' if shares else ''}."


def _reading(results: Results, estimates: Iterable[Estimate]) -> str:
    """Return data, tasks and intervals, what all runs share, and what is left out."""
    said = (reading(estimates, results.groups), _shared(results), results.left_told)
    return " ".join(filter(None, said))


def _shared(results: Results) -> str:
    """Return queries, backbone and source of words, each if all runs have the same."""
    queries = {group.facts.get("queries", "") for group in results.groups}
    found = {"{} queries per class": queries}
    for name, head in (("backbone", "backbone {}"), ("words", "words from {}")):
        found[head] = {_fact(name, one) for one in results.shown}
    told = [
        head.format(*values) for head, values in found.items() if len(values) == 1 and any(values)
    ]
    return f"{_capital('; '.join(told))}." if told else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _terms(results: Results, cells: _Cells, heads: Sequence[str]) -> tuple[str, ...]:
    """Return what the statistics are, and what the shown columns are made of."""
    statistics = dict.fromkeys(one.statistic for one in cells.estimates if one.arms)
    about = [_about(results.statistic_of(name)) for name in statistics]
    return (*filter(None, about), *(told for name, told in cells.terms.items() if name in heads))


def _about(statistic: Statistic) -> str:
    """Return what a statistic is, the first sentence of its docstring, after its label."""
    told, _, _ = (inspect.getdoc(type(statistic)) or "").partition("\n")
    told = told.removesuffix(".").removesuffix(f" ({statistic.label})")
    return f"{statistic.label} = {told[:1].lower()}{told[1:]}." if statistic.label and told else ""


def _differences(results: Results, request: Request) -> TableDeclaration:
    import fsframework as fsf

    entries: list[Entry] = []
    seen: list[Estimate] = []
    for group in results.groups:
        if len(group.shown) < 2:
            raise DataError(f"differences: {group.title}: only one method has these tasks")
        found = fsf.compare(
            {one.label: one.result for one in group.shown},
            list(request.columns) or None,
            level=results.level,
        )
        where = (group.title,) if len(results.groups) > 1 else ()
        for part in found:
            seen += part.values.values()
            head = group.label(part.measure, results.statistic_of(part.measure.statistic))
            for pair in part.pairs:
                about = {"p": pair.p, "p_holm": pair.p_holm}
                row = (*where, f"{pair.first} − {pair.second}")
                entries.append(Entry(row, head, Quantity.of(pair.difference), about=about))
                holm = None if pair.p_holm is None else Quantity(pair.p_holm, unit="")
                entries.append(Entry(row, f"{head}, Holm's p", holm, _ALIKE, about=about))
    return TableDeclaration(
        "differences",
        "Differences between methods, in points.",
        (*(("tasks",) if len(results.groups) > 1 else ()), "pair"),
        tuple(entries),
        ("Differences are paired where tasks are.",),
        differences=False,
        reading=_reading(results, seen),
        remarks=results.remarks,
    )


def _breakdown(by: str) -> Callable[[Results, Request], TableDeclaration]:
    def declare(results: Results, request: Request) -> TableDeclaration:

        one = _only(results, by)
        of: Any = by
        question: Any = request.question or "tied"
        found = fsf_statistics.breakdown(one.run, of, question=question, level=results.level)
        entries = tuple(
            Entry(
                row.names,
                row.arm,
                Quantity.of(row.estimate),
                about={"n_tasks": row.n_tasks, "n_queries": row.n_queries,
                       "n_images": row.n_images, "p_corrected": row.p_corrected},
            )
            for row in found.rows
            if not request.columns or row.arm in request.columns
        )  # fmt: skip
        if not entries:
            known = ", ".join(dict.fromkeys(row.arm for row in found.rows))
            raise OptionError(f"{argument('columns')}: the columns are {known}")
        what = " and ".join(found.row_names)
        return TableDeclaration(
            f"by {by}",
            f"Accuracy per {what} of {one.label}.",
            found.row_names,
            entries,
            found.notes,
            differences=False,
            reading=_reading(results, [row.estimate for row in found.rows]),
            remarks=results.remarks,
        )

    return declare


def _worst_groups(results: Results, request: Request) -> TableDeclaration:
    one = _only(results, "worst-groups")
    question: Any = request.question or "present"
    found = fsf_statistics.worst_groups(one.run, question=question, level=results.level)
    entries = []
    for row in found.rows:
        about = {"n_groups": row.n_groups, "n_queries": row.n_queries}
        names = (row.arm, " + ".join(row.group))
        entries.append(Entry(names, "worst group", Quantity.of(row.estimate), about=about))
        if row.statistic is not None:
            entries.append(Entry(names, "wAcc", Quantity.of(row.statistic), about=about))
    return TableDeclaration(
        "worst-groups",
        f"Accuracy of the worst group of class and word of {one.label}.",
        ("arm", "group"),
        tuple(entries),
        found.notes,
        differences=False,
        reading=_reading(results, [row.estimate for row in found.rows]),
        remarks=results.remarks,
    )


def _harm(results: Results, request: Request) -> TableDeclaration:
    one = _only(results, "harm")
    question: Any = request.question
    found = fsf_statistics.harmful_pairs(one.run, question, level=results.level)
    entries = []
    for row in found.rows:
        names = (row.class_name, row.words, row.question)
        about = {"n_tasks": row.n_tasks, "n_queries": row.n_queries,
                 "share_wrong": row.share_wrong,
                 "inseparable": " + ".join(row.inseparable)}  # fmt: skip
        values = (("lost", Quantity.of(row.estimate)), ("with", Quantity(100 * row.with_word)),
                  ("without", Quantity(100 * row.without)))  # fmt: skip
        entries += [Entry(names, column, value, about=about) for column, value in values]
    if not entries:
        raise DataError(f"harm: no pair of a class and a word is found to hurt {one.label}")
    return TableDeclaration(
        "harm",
        f"Accuracy that a class loses by a word, in points, {one.label}.",
        ("class", "word", "question"),
        tuple(entries),
        found.notes,
        differences=False,
        reading=_reading(results, [row.estimate for row in found.rows]),
        remarks=results.remarks,
    )


def _only(results: Results, name: str) -> Shown:
    if len(results.shown) != 1:
        raise OptionError(f"a table by {name} shows one run, and {len(results.shown)} are given")
    return results.shown[0]


TABLES: Mapping[str, NamedTable] = MappingProxyType(
    {
        "headline": NamedTable("methods by Acc, both arms and the gap", _headline),
        "shots": NamedTable("the gap by shots of the tasks", _pivoted("shot", "by shots")),
        "datasets": NamedTable("the gap by data set", _pivoted("data", "by data set")),
        "differences": NamedTable("differences between all pairs of methods", _differences),
        "classes": NamedTable("accuracy per class of one run", _breakdown("class")),
        "attributes": NamedTable("accuracy per word of one run", _breakdown("attribute")),
        "pairs": NamedTable("accuracy per class and word of one run", _breakdown("pair")),
        "contexts": NamedTable("accuracy per context of one run", _breakdown("context")),
        "worst-groups": NamedTable("the worst group of class and word of one run", _worst_groups),
        "harm": NamedTable("the words that hurt classes most, of one run", _harm),
    }
)
"""The tables of runs by name."""
