"""What several sections say of runs on equal tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import fsf_statistics
import fsframework as fsf
from fsf_reports.interfaces import ReportedRun, ReportedRuns
from fsf_reports.values import Entry, Quantity, TableDeclaration
from fsf_statistics import ComparedHeadline, results_of
from fsframework.statistics.facts import called

__all__ = [
    "cautions_of",
    "estimates_of",
    "every_measure",
    "gap_name",
    "headline_of",
    "measure",
    "several_seeds",
    "tasks_called",
    "titled",
    "which_tasks",
]


_known: WeakKeyDictionary[ReportedRun, tuple[list[str], ComparedHeadline]] = WeakKeyDictionary()


def headline_of(runs: ReportedRuns) -> ComparedHeadline:
    """Return the answer of runs on equal tasks; runs of several seeds are one row."""
    labels = [run.short for run in runs]
    if runs[0] not in _known or _known[runs[0]][0] != labels:
        _known[runs[0]] = labels, _headline(runs)
    return _known[runs[0]][1]


def _headline(runs: ReportedRuns) -> ComparedHeadline:
    if several_seeds(runs):
        results = results_of([run.folder for run in runs], runs[0].folder.parent)
        named = [
            dataclasses.replace(one, label=str(run.record["name"]) or one.label)
            for one, run in zip(results, runs, strict=True)
        ]
        return fsf_statistics.headline(named)
    return fsf_statistics.headline(
        {run.short: run.outcomes for run in runs if run.outcomes is not None}
    )


def several_seeds(runs: ReportedRuns) -> bool:
    """Return whether some of the runs are trainings of one method with different seeds."""
    groups = [str(run.record["group"]) for run in runs if run.record["group"]]
    return len(set(groups)) < len(groups)


def estimates_of(runs: ReportedRuns, name: str) -> dict[str, fsf.Estimate]:
    """Return a measure by method, or by run where every method was trained once."""
    if several_seeds(runs):
        for column in headline_of(runs).columns[0]:
            if column.measure.name == name:
                return dict(column.values)
    return {run.short: run.estimates[name] for run in runs if name in run.estimates}


def titled(name: str, number: int, groups: Sequence[ReportedRuns]) -> str:
    """Return a name that says which tasks it is about, where there are several sets of tasks."""
    return f"{name}: {which_tasks(number, groups)}" if len(groups) > 1 else name


def which_tasks(number: int, groups: Sequence[ReportedRuns]) -> str:
    """Return what a set of tasks is called, such as ``birds, 5-way 1-shot``.

    Args:
        number: of the set, from 1.
        groups: all of them: the options that tell it from the others are said too.
    """
    told = fsf_statistics.tasks_told_apart([_facts(group[0]) for group in groups])
    options = {
        name: values[number - 1]
        for name, values in told.items()
        if name not in ("data", "way", "shot")
    }
    return ", ".join(filter(None, (_data_and_shape(groups[number - 1][0]), called(options))))


def _data_and_shape(run: ReportedRun) -> str:
    data = run.data.name if run.data is not None else "unknown data"
    if run.arms is None:
        return data
    return f"{data}, {run.arms.tested.n_way}-way {run.arms.tested.n_shot}-shot"


def _facts(run: ReportedRun) -> dict[str, str]:
    parts = run.record.get("components", {})
    components = {role: (part["name"], part["options"]) for role, part in parts.items()}
    found = fsf_statistics.options_of_tasks(components, run.record.get("settings", {}))
    count = max((len(one) for one in (run.outcomes or {}).values()), default=0)
    shape = (
        {} if run.arms is None else {"way": run.arms.tested.n_way, "shot": run.arms.tested.n_shot}
    )
    return {
        "data": run.data.name if run.data is not None else "",
        **{name: str(value) for name, value in shape.items()},
        "count": f"{count:,}",
        **found,
    }


def gap_name(runs: ReportedRuns) -> str | None:
    """Return the name of the gap that methods are judged by, ``None`` where none has one."""
    gaps = {name: e for run in runs for name, e in run.estimates.items() if len(e.arms) == 2}
    names = [name for name, e in gaps.items() if not e.relative]
    return next((n for n in names if n.startswith("wacc")), names[0] if names else None)


def measure(runs: ReportedRuns, name: str) -> str:
    """Return what tables print for a measure; the gap without its terms."""
    printed = next((run.measures[name] for run in runs if name in run.measures), name)
    return printed.partition(" = ")[0]


def tasks_called(run: ReportedRun) -> str:
    """Return the tasks of a run in a few words: their shape and their data."""
    assert run.arms is not None
    tested = run.arms.tested
    data = run.data.name if run.data is not None else "unknown data"
    return f"{tested.n_way}-way {tested.n_shot}-shot tasks of {data}"


def every_measure(runs: ReportedRuns, name: str) -> TableDeclaration:
    """Return every estimate of every run; all have the same tasks."""
    columns = list(dict.fromkeys(n for run in runs for n in run.estimates))
    entries = tuple(
        Entry(
            (run.short,),
            measure(runs, column),
            Quantity.of(run.estimates[column]) if column in run.estimates else None,
            "" if column in run.estimates else "not computed in this run",
        )
        for run in runs
        for column in columns
    )
    assert runs[0].arms is not None
    counts = " and ".join(f"{len(tasks):,} {arm}" for arm, tasks in runs[0].arms.items())
    title = f"{counts} {tasks_called(runs[0])}, each run by itself"
    return TableDeclaration(name, title, ("run",), entries, folded=True)


def cautions_of(runs: ReportedRuns) -> dict[str, list[str]]:
    """Return what users must know of runs, each sentence with the labels of the runs."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for caution in run.record["cautions"]:
            found.setdefault(caution, []).append(run.label)
    return found
