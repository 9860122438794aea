"""The tables of Lafargue et al. 2024 from finished experiments, with the printed values.

Source: "Oops, I Sampled it Again: Reinterpreting Confidence Intervals in Few-Shot Learning", Tables
1 to 6 and Figure 6.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fsf_benchmarks._intervals_printed import (
    printed_accuracies,
    printed_differences,
    printed_signs,
)
from fsf_benchmarks._open_intervals import (
    BASELINE_METHOD,
    CLOSED,
    OPEN,
    QUERIES,
    Setting,
    called,
    datasets_of,
    pool_of,
)
from fsf_benchmarks.interfaces import BenchmarkResults, ExperimentResult
from fsf_reports.values import Entry, Quantity, TableDeclaration
from fsframework.values import Estimate, footnotes

if TYPE_CHECKING:
    from fsf_statistics import MeasureComparison, Pair

__all__ = [
    "COUNTED",
    "SOURCE",
    "TABLES",
    "about",
    "accuracy_of",
    "compared",
    "conclusions",
    "conclusive",
    "curve_of",
    "evaluations",
]

SOURCE = "Lafargue et al. 2024"

_SHAPE = (5, 15)
"""Shots and queries per class of Tables 1, 2 and 3."""

_SIGNS = {"+": 1, "-": -1, "0": 0}
_SIGNS_TOLD = (
    "1: the first is higher, -1: lower, 0: not decided. With replacement and without: whether the "
    "two intervals overlap; paired: whether the interval of the difference without replacement "
    "excludes 0"
)
_OF_BASELINE = {"DINO FT": "Table 5", "CLIP FT": "Table 6"}

COUNTED = ("direct, 15 queries", "paired, 15 queries", "paired, best queries")
"""How Figure 6 compares a pair."""


def accuracy_of(result: ExperimentResult) -> Estimate | None:
    """Return the accuracy in the only arm there is."""
    return next((e for e in result.estimates.values() if e.statistic == "acc"), None)


def evaluations(results: BenchmarkResults, **tags: Any) -> BenchmarkResults:
    """Return the evaluations with these tags."""
    return results.where(role="evaluation", **tags)


def _best(results: BenchmarkResults) -> BenchmarkResults:
    """Return the evaluations without replacement with the numbers of queries of section 5."""
    found = evaluations(results, drawn=OPEN)
    kept = (one for one in found if one.tags["queries"] == QUERIES.get(one.tags["shot"]))
    return BenchmarkResults(results.selection, kept)


def compared(
    results: Sequence[ExperimentResult], baseline: str | None = None
) -> dict[Setting, MeasureComparison]:
    """Compare the contestants of each set of tasks by accuracy.

    Args:
        results: evaluations, those of a set of tasks one after the other.
        baseline: with which the others are compared; ``None`` for all pairs.
    """
    from fsf_statistics import compare

    found = {}
    for setting, group in itertools.groupby(results, Setting.of):
        runs = {r.tags["contestant"]: r for r in group if r.folder is not None}
        if len(runs) < 2 or baseline not in (None, *runs):
            continue
        accuracy = accuracy_of(next(iter(runs.values())))
        assert accuracy is not None
        outcomes = {contestant: result.outcomes() for contestant, result in runs.items()}
        (found[setting],) = compare(
            outcomes, accuracy.name, baseline=baseline, level=accuracy.level
        )
    return found


def about(result: ExperimentResult) -> dict[str, Any]:
    """Return the facts that identify a value and that a reader needs."""
    estimate = accuracy_of(result)
    known = {} if estimate is None else estimate.to_json()
    facts = ("scope", "estimator", "level", "n_tasks", "n_images")
    return {
        "dataset": result.tags["dataset"],
        "method": result.tags["method"],
        "backbone": result.options["backbone"]["name"],
        "shot": result.tags["shot"],
        "run": None if result.folder is None else str(result.folder),
        **{fact: known.get(fact) for fact in facts},
        "cautions": "; ".join(result.cautions),
    }


def _numbers_of_tasks(results: Sequence[ExperimentResult]) -> dict[Setting, str]:
    """Return the number of tasks per setting, a dash if nothing was measured."""
    found = {Setting.of(result): "–" for result in results}
    found |= {
        Setting.of(r): f"{sum(r.n_tasks.values()):,}" for r in results if r.folder is not None
    }
    return found


def _intervals(results: Iterable[ExperimentResult]) -> Iterator[str]:
    """Yield the level, scope and estimator of the intervals in a note, if there are any."""
    estimates = [e for result in results if (e := accuracy_of(result)) is not None]
    kinds = dict.fromkeys(f"{100 * e.level:g} % {e.scope}, {e.estimator}" for e in estimates)
    if kinds:
        yield f"intervals: {'; '.join(kinds)}"


def _tables_4(results: BenchmarkResults, baseline: str) -> Iterator[TableDeclaration]:
    found = _best(results)
    yield _accuracies(found)
    yield _differences(found, compared(found, baseline), baseline)


def _accuracies(results: BenchmarkResults) -> TableDeclaration:
    entries, tasks = [], _numbers_of_tasks(results)
    for result in results:
        setting = Setting.of(result)
        row = (setting.dataset, str(setting.shot), str(setting.queries), tasks[setting])
        estimate = accuracy_of(result)
        measured = None if estimate is None else Quantity.of(estimate)
        column = result.tags["contestant"]
        entries.append(Entry(row, column, measured, result.reason, about=about(result)))
    return TableDeclaration(
        "Table A",
        "Acc in percent on tasks that share no image",
        ("data set", "shots", "queries", "tasks"),
        tuple(entries),
        (*_intervals(results), *footnotes(results.cautions)),
        differences=False,
    )


def _differences(
    results: BenchmarkResults,
    comparisons: Mapping[Setting, MeasureComparison],
    baseline: str,
) -> TableDeclaration:
    entries, tasks = [], _numbers_of_tasks(results)
    for result in results:
        contestant, setting = result.tags["contestant"], Setting.of(result)
        if contestant == baseline:
            continue
        comparison = comparisons.get(setting)
        measured, reason = None, result.reason or "its baseline could not be measured"
        if comparison is not None and contestant in comparison.values:
            pair, _ = comparison.pair(baseline, contestant)
            measured, reason = Quantity.of(pair.difference), ""
        place = (setting.dataset, setting.shot, baseline, contestant)
        entries.append(
            Entry(
                (setting.dataset, str(setting.shot), tasks[setting]),
                contestant,
                measured,
                reason,
                printed_differences().get(place),
                about={"baseline": baseline, **about(result)},
            )
        )
    notes = (
        f"accuracy of {baseline} minus that of the method, on equal tasks: positive where "
        f"{baseline} is better",
        *conclusions(comparisons),
        *footnotes(results.cautions),
    )
    return TableDeclaration(
        _OF_BASELINE.get(baseline, "Table 4"),
        f"Difference in Acc from {baseline}, in points, with paired intervals",
        ("data set", "shots", "tasks"),
        tuple(entries),
        notes,
        source=SOURCE,
    )


def conclusions(comparisons: Mapping[Setting, MeasureComparison]) -> Iterator[str]:
    """Yield how many comparisons with the baseline each kind of interval decides."""
    pairs = [(pair, 1 - part.level) for part in comparisons.values() for pair in part.pairs]
    paired = sum(pair.paired != "0" for pair, _ in pairs)
    direct = sum(pair.direct != "0" for pair, _ in pairs)
    by_holm = sum(pair.p_holm is not None and pair.p_holm <= alpha for pair, alpha in pairs)
    if pairs:
        yield (
            f"Of {len(pairs)} comparisons with the baseline, {paired} are decided by the paired "
            f"interval, {direct} because the two open intervals do not overlap, and {by_holm} by "
            "the paired interval after Holm's correction within each set of tasks."
        )


def _table_2(results: BenchmarkResults, baseline: str) -> Iterator[TableDeclaration]:
    del baseline
    selection, entries = results.selection, []
    found = evaluations(results, queries=_SHAPE[1])
    sizes = {called(data): f"{len(pool_of(selection, data)):,}" for data in datasets_of(selection)}
    for drawn, scope in ((CLOSED, "closed"), (OPEN, "open")):
        for result in found.where(drawn=drawn):
            setting, contestant = Setting.of(result), result.tags["contestant"]
            estimate = accuracy_of(result)
            place = (setting.dataset, contestant, scope)
            entries.append(
                Entry(
                    (setting.dataset, sizes[setting.dataset], str(setting.shot), contestant),
                    drawn,
                    None if estimate is None else Quantity.of(estimate),
                    result.reason,
                    printed_accuracies().get(place) if setting.shot == _SHAPE[0] else None,
                    about=about(result),
                )
            )
    yield TableDeclaration(
        "Table 2",
        "Acc in percent on tasks drawn with replacement and without",
        ("data set", "images", "shots", "method"),
        tuple(entries),
        (*_intervals(found), *footnotes(found.cautions)),
        source=SOURCE,
    )


def _table_1(results: BenchmarkResults, baseline: str) -> Iterator[TableDeclaration]:
    del baseline
    contestants = dict.fromkeys(one.tags["contestant"] for one in evaluations(results))
    yield _signs(results, "1", list(itertools.combinations(contestants, 2)))


def _table_3(results: BenchmarkResults, baseline: str) -> Iterator[TableDeclaration]:
    found = evaluations(results)
    contestants = dict.fromkeys(one.tags["contestant"] for one in found)
    tuned = dict.fromkeys(one.tags["contestant"] for one in found.where(method=BASELINE_METHOD))
    pairs = itertools.product(tuned or (baseline,), contestants)
    yield _signs(results, "3", [pair for pair in pairs if pair[0] != pair[1]])


_COLUMNS = {"closed": CLOSED, "open": OPEN, "paired": "paired"}


def _signs(
    results: BenchmarkResults, table: str, pairs: Sequence[tuple[str, str]]
) -> TableDeclaration:
    """Declare who of each pair is higher by each kind of comparison.

    Args:
        results: evaluations with and without replacement.
        table: ``1``, or ``3``, which is without those with replacement.
        pairs: of contestants.
    """
    found = evaluations(results, queries=_SHAPE[1])
    parts = compared(found)
    entries: list[Entry] = []
    for setting in dict.fromkeys(Setting.of(one) for one in found.where(drawn=OPEN)):
        runs = {one.tags["contestant"]: one for one in found.where(**setting._asdict())}
        for first, second in pairs:
            row = (setting.dataset, str(setting.shot), first, second)
            methods = ";".join(runs[one].tags["method"] for one in (first, second))
            facts = {**about(runs[first]), "method": methods}
            for kind, column in _COLUMNS.items():
                if table == "3" and kind == "closed":
                    continue
                drawn = CLOSED if kind == "closed" else OPEN
                met = _met(parts.get(setting._replace(drawn=drawn)), first, second)
                sign = None if met is None else met[1] * _SIGNS[_sign_of(met[0], kind)]
                place = (table, setting.dataset, first, second, kind)
                printed = printed_signs().get(place) if setting.shot == _SHAPE[0] else None
                measured, beside = (
                    None if one is None else Quantity.known(one) for one in (sign, printed)
                )
                reason = "" if measured else _reason(runs[first], runs[second])
                entries.append(Entry(row, column, measured, reason, beside, about=facts))
            met = _met(parts.get(setting), first, second)
            apart = None if met is None else _turned(Quantity.of(met[0].difference), met[1])
            reason = "" if apart else _reason(runs[first], runs[second])
            entries.append(Entry(row, "difference", apart, reason, about=facts))
    return TableDeclaration(
        f"Table {table}",
        "Who is higher in Acc, and the paired difference in points",
        ("data set", "shots", "first", "second"),
        tuple(entries),
        (_SIGNS_TOLD, *_intervals(found), *footnotes(found.cautions)),
        differences=False,
        source=SOURCE,
    )


def _met(comparison: MeasureComparison | None, first: str, second: str) -> tuple[Pair, int] | None:
    """Return a pair and its direction, ``None`` where it was not compared."""
    if comparison is None or not {first, second} <= set(comparison.values):
        return None
    return comparison.pair(first, second)


def _sign_of(pair: Pair, kind: str) -> str:
    return pair.paired if kind == "paired" else pair.direct


def _turned(difference: Quantity, direction: int) -> Quantity:
    if direction > 0:
        return difference
    return Quantity(-difference.value, -difference.high, -difference.low, difference.unit)


def _reason(*results: ExperimentResult) -> str:
    return next((one.reason for one in results if one.reason), "not compared on equal tasks")


def conclusive(results: BenchmarkResults) -> dict[int, dict[str, Quantity | None]]:
    """Return how many pairs are told apart, by shot and by kind of comparison.

    The last kind, ``pairs``, is how many pairs there are. Where nothing was compared, a number is
    ``None``.
    """
    found = evaluations(results, drawn=OPEN)
    parts = compared(found)
    counts: dict[int, dict[str, Quantity | None]] = {}
    for shot in dict.fromkeys(one.tags["shot"] for one in found):
        own = {setting: part for setting, part in parts.items() if setting.shot == shot}
        usual = [p for s, part in own.items() if s.queries == _SHAPE[1] for p in part.pairs]
        best = [p for s, part in own.items() if s.queries == QUERIES[shot] for p in part.pairs]
        numbers = (
            sum(pair.direct != "0" for pair in usual),
            sum(pair.paired != "0" for pair in usual),
            sum(pair.paired != "0" for pair in best),
            len(usual),
        )
        counts[shot] = {
            kind: Quantity.known(number) if usual and best else None
            for kind, number in zip((*COUNTED, "pairs"), numbers, strict=True)
        }
    return counts


def _figure_6(results: BenchmarkResults, baseline: str) -> Iterator[TableDeclaration]:
    del baseline
    found = evaluations(results, drawn=OPEN)
    reason = next((one.reason for one in found if one.reason), "nothing could be compared")
    counts = conclusive(results)
    entries = [
        Entry((kind,), f"{shot}-shot", counts[shot][kind], reason, about={"shot": shot})
        for kind in (*COUNTED, "pairs")
        for shot in counts
    ]
    yield TableDeclaration(
        "Figure 6",
        "Pairs of methods that are told apart, over all data sets, on tasks without replacement",
        ("comparison",),
        tuple(entries),
        (
            f"best queries: {', '.join(f'{q} at {s}-shot' for s, q in QUERIES.items())}; no "
            "correction for the number of pairs",
            "printed in the text, not by shot: 57, 94 and 97 of 135 pairs of two models and three "
            "methods on nine data sets",
            *_intervals(found),
            *footnotes(found.cautions),
        ),
        source=SOURCE,
    )


def curve_of(results: BenchmarkResults) -> Iterator[tuple[Setting, str, Quantity | None, int, str]]:
    """Yield the points of Figure 4, which are means over trials.

    Each is a setting, a contestant, the half-width of the interval in points, the number of tasks,
    and the reason why there is no half-width.
    """
    found = results.where(role="curve")
    for setting, contestant in dict.fromkeys(
        (Setting.of(one), one.tags["contestant"]) for one in found
    ):
        trials = found.where(**setting._asdict(), contestant=contestant)
        estimates = [e for one in trials if (e := accuracy_of(one)) is not None]
        halves = [100 * e.half_width for e in estimates if not math.isnan(e.half_width)]
        tasks = [e.n_tasks for e in estimates]
        half = None if not halves else Quantity.known(round(sum(halves) / len(halves), 4))
        reason = next((one.reason for one in trials if one.reason), "no trial has an interval")
        yield setting, contestant, half, round(sum(tasks) / max(1, len(tasks))), reason


def _figure_4(results: BenchmarkResults, baseline: str) -> Iterator[TableDeclaration]:
    del baseline
    entries = []
    for setting, contestant, half, n_tasks, reason in curve_of(results):
        row = (setting.dataset, contestant, str(setting.shot), str(setting.queries))
        tasks = None if half is None else Quantity.known(n_tasks)
        facts = {**setting._asdict(), "contestant": contestant}
        for column, value in (("half-width", half), ("tasks", tasks)):
            entries.append(Entry(row, column, value, "" if value else reason, about=facts))
    found = results.where(role="curve")
    yield TableDeclaration(
        "Figure 4",
        "Half-width of the interval of Acc on all tasks without replacement, in points",
        ("data set", "method", "shots", "queries"),
        tuple(entries),
        (
            f"means over {max(one.tags['trial'] for one in found) + 1} draws of the tasks; with "
            "DINOv2 as the model this is Figure 5",
            *_intervals(found),
            *footnotes(found.cautions),
        ),
        source=SOURCE,
    )


TABLES: Mapping[str, Callable[[BenchmarkResults, str], Iterator[TableDeclaration]]] = (
    MappingProxyType(
        {
            "1": _table_1,
            "2": _table_2,
            "3": _table_3,
            "4": _tables_4,
            "figure-4": _figure_4,
            "figure-6": _figure_6,
        }
    )
)
"""What makes the tables of a part, from all results and the baseline."""
