"""FewSTAB's Tables 3, S5, S6, S7 and S8 from finished experiments, with the printed values.

Source: Zheng et al. 2024.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from fsf_benchmarks._fewstab import PLAIN, TECHNIQUES, spelt
from fsf_benchmarks._fewstab_notes import about, named, printed, printed_note, settings
from fsf_benchmarks._published import AVERAGE, DETECTORS
from fsf_benchmarks.interfaces import BenchmarkResults, ExperimentResult
from fsf_reports.values import Entry, Quantity, TableDeclaration
from fsf_statistics import mean_interval
from fsframework.errors import DataError, FsfError
from fsframework.statistics.differences import ComparisonOptions
from fsframework.statistics.estimators import IntervalChoice
from fsframework.values import FloatArray, footnotes

__all__ = [
    "ABLATIONS",
    "PLAIN_TABLES",
    "ablation",
    "failed",
    "paired_difference",
    "per_task",
]

_ESTIMATES = {"Acc": "acc-random", "wAcc-A": "wacc-biased", "wAcc-R": "wacc-random"}

ABLATIONS: Mapping[str, str] = {
    "S5": "Accuracy gap wAcc-R − wAcc-A by construction of the support, in %: random (SC1), with "
    "the class's attribute (SC2), with no other class's attribute either (SC3, FewSTAB)",
    "S6": "Accuracy gap wAcc-R − wAcc-A by construction of the queries, in %: without the class's "
    "attribute (QC1), with another class's (QC2), with the fewest other attributes (QC3, FewSTAB)",
}
"""Titles of the tables of constructions."""


def table_3(block: BenchmarkResults) -> TableDeclaration:
    """Declare wAcc-A and wAcc-R."""
    title = "Worst-class accuracy on attribute-biased (wAcc-A) and random tasks (wAcc-R), in %"
    return _accuracies("3", title, block, ("wAcc-A", "wAcc-R"))


def table_s7(block: BenchmarkResults) -> TableDeclaration:
    """Declare Acc and wAcc-A."""
    title = (
        "Accuracy on random tasks (Acc) and worst-class accuracy on attribute-biased tasks "
        "(wAcc-A), in %"
    )
    return _accuracies("S7", title, block, ("Acc", "wAcc-A"))


def table_s8(block: BenchmarkResults) -> TableDeclaration:
    """Declare wAcc-A with each source of attributes."""
    results = block.where(technique=PLAIN)
    entries = [
        _entry("S8", r, "wacc-biased", DETECTORS.get(r.tags["words"], r.tags["words"]))
        for r in results
    ]
    return _table("S8", "wAcc-A by source of the attributes, in %", results, entries)


PLAIN_TABLES: tuple[Callable[[BenchmarkResults], TableDeclaration], ...] = (
    table_3,
    table_s7,
    table_s8,
)
"""The tables that are always made for a data set and a backbone."""


def _accuracies(
    name: str, title: str, block: BenchmarkResults, columns: tuple[str, ...]
) -> TableDeclaration:
    results = block.where(technique=PLAIN, words=block[0].tags["words"])
    entries = [
        _entry(name, result, _ESTIMATES[column], column) for result in results for column in columns
    ]
    return _table(name, title, results, entries)


def _entry(table: str, result: ExperimentResult, estimate: str, column: str) -> Entry:
    """Return one estimate of a run with the printed value of that column."""
    found, method = result.estimates.get(estimate), spelt(result.tags["method"])
    return Entry(
        (str(result.tags["shot"]), method),
        column,
        None if found is None else Quantity.of(found),
        failed(result.reason),
        printed(table, result, method, column),
        about=about(result, estimate),
    )


def failed(reason: str) -> str:
    """Return why a value is missing; empty if nothing failed."""
    return f"failed: {reason}" if reason else ""


def ablation(name: str, block: BenchmarkResults) -> TableDeclaration | None:
    """Declare the gaps by construction; return ``None`` if no constructions were asked for.

    Args:
        name: a key of ``ABLATIONS``.
        block: results of one data set and backbone.
    """
    techniques = [t for t in TECHNIQUES if t.startswith("SC" if name == "S5" else "QC")]
    columns = [list(block.where(technique=technique)) for technique in techniques]
    rows = list(zip(*columns, strict=True))
    if not rows:
        return None
    entries: list[Entry] = []
    for _, group in itertools.groupby(rows, key=lambda row: row[0].tags["shot"]):
        same_shot = list(group)
        entries += [
            _entry(name, result, "wacc-gap", result.tags["technique"])
            for row in same_shot
            for result in row
        ]
        # A method that failed in one construction would shift the others' averages.
        whole = [row for row in same_shot if all(result.finished for result in row)]
        for place, example in enumerate(same_shot[0]):
            entries.append(_average_drop(name, example, [row[place] for row in whole]))
    notes = [
        "average drop: the mean of the gaps over the methods; since they share their tasks, its "
        "interval is Welch's on each task's mean over methods",
    ]
    if any(entry.printed for entry in entries):
        notes.append(
            "the paper gives no intervals for gaps: the interval of a difference is that of the "
            "measured gap"
        )
    every = BenchmarkResults(block.selection, (r for column in columns for r in column))
    return _table(name, ABLATIONS[name], every, entries, notes)


def _average_drop(
    table: str, example: ExperimentResult, results: Sequence[ExperimentResult]
) -> Entry:
    """Return the gap averaged over methods, the paper's average drop."""
    measured, reason = None, "none: no method finished all constructions"
    technique = example.tags["technique"]
    if results:
        try:
            random, biased = (per_task(results, arm).mean(axis=0) for arm in ("random", "biased"))
            measured, reason = _difference(random, biased, float(example.options["level"])), ""
        except FsfError as error:
            reason = f"none: {error}"
    names = [spelt(result.tags["method"]) for result in results]
    values = [q.value for n in names if (q := printed(table, example, n, technique)) is not None]
    known = bool(values) and len(values) == len(names)
    count = len(results)
    return Entry(
        (
            str(example.tags["shot"]),
            f"average drop ({count} {'method' if count == 1 else 'methods'})",
        ),
        technique,
        measured,
        reason,
        printed(table, example, AVERAGE, technique),
        Quantity(float(np.mean(values))) if known else None,
        {
            **about(results[0] if results else example, "wacc-gap"),
            "method": ";".join(result.tags["method"] for result in results),
            "methods": count,
            "estimator": "welch-t",
            "run": None,
            "fingerprint": None,
        },
    )


def per_task(results: Sequence[ExperimentResult], arm: str) -> FloatArray:
    """Return wAcc of every task of an arm, float64 ``(results, tasks)``.

    Raises:
        DataError: the tasks are not the same.
        FsfError: the outcomes of a run are missing or damaged.
    """
    answered = [result.outcomes()[arm] for result in results]
    if len({outcomes.task_digest for outcomes in answered}) > 1:
        raise DataError("the methods were evaluated on different tasks")
    return np.stack([outcomes.class_accuracy.min(axis=1) for outcomes in answered])


def paired_difference(
    first: ExperimentResult, second: ExperimentResult
) -> tuple[Quantity | None, str]:
    """Return wAcc-A of the second minus the first on the same tasks, or why there is none.

    In percentage points, with Student's interval over the tasks.
    """
    for result in (first, second):
        if result.reason:
            return None, failed(result.reason)
    try:
        values = per_task([first, second], "biased")
    except FsfError as error:
        return None, f"none: {error}"
    how = ComparisonOptions(IntervalChoice(float(second.options["level"])))
    mean, low, high = mean_interval(100 * (values[1] - values[0]), how=how)
    return Quantity(mean, low, high), ""


def _difference(first: FloatArray, second: FloatArray, level: float) -> Quantity:
    """Return the difference of two means of shares, in percentage points, with Welch's interval."""
    from scipy import stats

    value = 100 * float(first.mean() - second.mean())
    if min(len(first), len(second)) < 2:
        return Quantity(value)
    if first.std() == second.std() == 0:
        return Quantity.around(value, 0.0)
    interval = stats.ttest_ind(first, second, equal_var=False).confidence_interval(level)
    return Quantity(value, 100 * float(interval.low), 100 * float(interval.high))


def _table(
    name: str,
    title: str,
    results: BenchmarkResults,
    entries: Sequence[Entry],
    notes: Iterable[str] = (),
) -> TableDeclaration:
    below = [*settings(results), *notes]
    if any(entry.printed for entry in entries):
        below.append(printed_note(name, results))
    first = results[0]
    return TableDeclaration(
        f"Table {name}",
        f"{named(first)}, {first.tags['backbone']}: {title}.",
        ("shot", "method"),
        tuple(entries),
        (*below, *footnotes(results.cautions)),
        source="FewSTAB",
    )
