"""The answer of several runs: sentences, and a table of both arms and the gap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fsframework.api.headlines import Headline, HeadlineRow, headline_of
from fsframework.api.results import Comparable, results_of, statistics_of
from fsframework.api.session import open_session
from fsframework.statistics.differences import ComparisonOptions
from fsframework.statistics.estimators import Interval, IntervalChoice
from fsframework.statistics.measures import DEFAULT_STATISTICS
from fsframework.statistics.results import (
    MethodResult,
    grouped_by_tasks,
    joined_over_seeds,
    labels_of,
    tasks_told_apart,
)

__all__ = ["headline"]


def headline(
    results: Iterable[Comparable] | Mapping[str, Comparable],
    statistic: Any | None = None,
    *,
    interval: Interval = "student-t",
    level: float = 0.95,
    runs_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
) -> Headline:
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
    return headline_of(rows, list(names), statistics_of(session.registry, asked), how, ranked=True)


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
        for name, values in tasks_told_apart(groups).items():
            heads[name] = [values[number[id(one)]] for one in results]
    if any(one.other_seeds for one in results):
        heads["seeds"] = [str(len(one.models)) for one in results]
    return heads
