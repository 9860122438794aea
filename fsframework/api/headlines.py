"""The answer of experiments in a few sentences and one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fsframework.api.results import Comparable, results_of, statistics_of
from fsframework.api.running import Run
from fsframework.api.seeds import SeedGroup, StatisticsOfRuns
from fsframework.api.session import open_session
from fsframework.errors import DataError, FsfError, RecordError
from fsframework.records import RECORD_NAME, RunRecord
from fsframework.statistics.differences import ComparisonOptions
from fsframework.statistics.estimators import Interval, IntervalChoice
from fsframework.statistics.headline import (
    Headline,
    HeadlineRow,
    headline_of,
    headline_of_estimates,
    usual_statistics,
)
from fsframework.statistics.results import (
    MethodResult,
    grouped_by_tasks,
    joined_over_seeds,
    labels_of,
    result_of_run,
    tasks_called,
    tasks_told_apart,
)
from fsframework.values import TableDeclaration

__all__ = [
    "Headline",
    "headline",
    "headline_among_others",
    "headline_of_answer",
    "headline_of_groups",
    "headline_of_run",
    "result_of_group",
    "standing",
]

_MOST_RUNS = 2000
"""Runs of a folder that are looked at for the standing of one."""


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
    >>> data = {"name": "planted", "n_per_class": 12, "size": 16}
    >>> arms = fsf.draw("random", fsf.pool(data), tasks=30, way=2, shot=1, queries=4)
    >>> models = {name: fsf.method(name) for name in ("ncc", "logistic")}
    >>> found = fsf.headline({name: fsf.evaluate(m, arms, data) for name, m in models.items()})
    >>> found.table.columns
    ('Acc', 'wAcc')
    """
    session = open_session(runs_dir=runs_dir, plugins=plugins, progress=False)
    found = joined_over_seeds(list(results_of(results, session.workspace.runs)))
    rows, row_names = _rows(found)
    choice = IntervalChoice(level, interval)
    names: list[Any] = list(usual_statistics(statistic if isinstance(statistic, str) else None))
    if statistic is not None and not isinstance(statistic, str):
        names[-1] = statistic
    statistics = statistics_of(session.registry, names)
    return headline_of(rows, row_names, statistics, ComparisonOptions(choice)).sorted()


def headline_of_run(run: Run | SeedGroup) -> Headline:
    """Return the answer of a run, or of runs over seeds, from the estimates they hold.

    Raises:
        DataError: it has no estimates.
    """
    record = run.record
    label = record.method.called if record.method is not None else run.name
    return headline_of_estimates(label, record, run.estimates)


def headline_among_others(run: Run | SeedGroup) -> Headline:
    """Return the answer of a run, and where it stands among other runs.

    Raises:
        DataError: it has no estimates.
    """
    alone = headline_of_run(run)
    others = standing(run) if isinstance(run, Run) else ""
    return replace(alone, sentences=(*alone.sentences, *filter(None, (others,))))


def standing(run: Run) -> str:
    """Return where the gap of a run stands among the other finished runs of its folder.

    Only runs on equal tasks count, and of those that differ from this one in more than the training
    seed. Empty where there is no gap or no other run.
    """
    record = run.record
    gap = next((e for e in list(record.estimates.values())[::-1] if len(e.arms) == 2), None)
    if gap is None:
        return ""
    digests = {name: arm.digest for name, arm in record.arms.items()}
    others = dict[str, float]()
    for path in sorted(run.folder.resolve().parent.glob(f"*/{RECORD_NAME}"))[:_MOST_RUNS]:
        # A record is read in full only where it names the tasks.
        if path.parent.name == run.name or next(iter(digests.values())) not in path.read_text():
            continue
        try:
            other = RunRecord.load(path.parent)
        except RecordError:
            continue
        same = {name: arm.digest for name, arm in other.arms.items()} == digests
        if same and gap.name in other.estimates and (other.group or path) != record.group:
            others[other.group or path.parent.name] = other.estimates[gap.name].value
    if not others:
        return ""
    smaller = sum(value < gap.value for value in others.values())
    low, high = (
        100 * of(others.values()) if gap.share else of(others.values()) for of in (min, max)
    )
    if len(others) == 1:
        return (
            f"The other run on these tasks has a {'smaller' if smaller else 'larger'} gap "
            f"({low:.1f})."
        )
    return (
        f"Of the {len(others)} other runs on these tasks, {smaller or 'none'} "
        f"{'has' if smaller == 1 else 'have'} a smaller gap ({low:.1f} to {high:.1f})."
    )


def result_of_group(group: SeedGroup) -> MethodResult:
    """Return runs over seeds as one result."""
    [joined] = joined_over_seeds([result_of_run(run.folder, run.record) for run in group.runs])
    return joined


def headline_of_groups(
    rows: Sequence[HeadlineRow], row_names: Sequence[str], groups: Sequence[SeedGroup]
) -> Headline:
    """Return the answer of runs over seeds, with the statistics and the level they were run with.

    Args:
        rows: in the order of the table.
        row_names: what the names of a row are.
        groups: behind the rows.

    Raises:
        DataError: nothing is finished, or the runs have no estimates.
    """
    if not groups:
        raise DataError("nothing is finished, so there is no table")
    made = StatisticsOfRuns()
    record = groups[0].record
    names = list(dict.fromkeys(one.statistic for one in record.estimates.values()))
    if not names:
        raise DataError(f"{groups[0].name}: has no estimates")
    wanted = dict.fromkeys([*(name for name in names[:1] if name != names[-1]), names[-1]])
    statistics = {name: made.of(name, record) for name in wanted}
    level = float(record.settings.get("level", 0.95))
    how = ComparisonOptions(IntervalChoice(level))
    return headline_of(rows, row_names, statistics, how)


def headline_of_answer(answer: Any) -> Headline:
    """Return what many experiments say together: sentences, and a table of what is compared.

    Runs that are equal, as are those of experiments that several tables share, are one row. What
    cannot be compared is said in a sentence.
    """
    rows, records = _rows_of_answer(answer)
    nothing = Headline(answer.sentences, TableDeclaration("headline", "nothing", (), ()))
    if not answer.rows:
        return nothing
    if not records:
        reasons = "; ".join(dict.fromkeys(row.reason for row in rows))
        told = f"No experiment finished: {reasons}."
        return replace(nothing, sentences=(told, *answer.sentences))
    first, options = records[0], next(one.options for _, one in answer.rows if one.finished)
    made, own = StatisticsOfRuns(), dict.fromkeys(e.statistic for e in first.estimates.values())
    main = answer.statistic or list(own)[-1]
    names = dict.fromkeys([*(name for name in usual_statistics(main) if name in own), main])
    how = ComparisonOptions(IntervalChoice(float(options.get("level", 0.95))))
    try:
        statistics = {name: made.of(name, first) for name in names}
        found = headline_of(rows, answer.row_names, statistics, how).sorted()
    except FsfError as error:
        return replace(nothing, sentences=(f"The runs are not compared: {error}.",))
    return replace(found, sentences=(*found.sentences, *answer.sentences))


def _rows_of_answer(answer: Any) -> tuple[list[HeadlineRow], list[RunRecord]]:
    """Return a row per distinct run or failure, and the records of those that are finished."""
    rows, records, seen = [], [], set[tuple[str, ...] | Path]()
    for names, result in answer.rows:
        key = names if result.folder is None else result.folder
        if key in seen:
            continue
        seen.add(key)
        if result.folder is None:
            rows.append(HeadlineRow(names, None, result.reason))
            continue
        folders = (result.folder, *result.other_seeds)
        [joined] = joined_over_seeds([result_of_run(folder) for folder in folders])
        rows.append(HeadlineRow(names, joined))
        records.append(RunRecord.load(result.folder))
    return rows, records


def _called(names: Mapping[str, str]) -> str:
    """Return what sentences call a row: its method, and what tells its tasks from others.

    >>> _called({"method": "ncc", "data": "planted", "count": "600", "strength": "0.2"})
    'ncc (planted, 600 tasks, strength 0.2)'
    """
    told = tasks_called({name: value for name, value in names.items() if name != "method"})
    return names["method"] + (f" ({told})" if told else "")


def _rows(results: Sequence[MethodResult]) -> tuple[list[HeadlineRow], tuple[str, ...]]:
    """Return a row per result, with the names that tell them apart."""
    groups = grouped_by_tasks(results)
    labels: dict[int, str] = {}
    for group in groups:
        labels |= {id(one): label for one, label in zip(group, labels_of(group), strict=True)}
    number = {id(one): i for i, group in enumerate(groups) for one in group}
    heads: dict[str, list[str]] = {"method": [labels[id(one)] for one in results]}
    if len(groups) > 1:
        for name, values in tasks_told_apart(groups).items():
            heads[name] = [values[number[id(one)]] for one in results]
    if any(one.other_seeds for one in results):
        heads["seeds"] = [str(len(one.models)) for one in results]
    names, lines = list(heads), list(zip(*heads.values(), strict=True))
    places = [i for i, name in enumerate(heads) if name != "seeds"]
    called = [_called({names[i]: line[i] for i in places}) for line in lines]
    # Numbers of seeds are in the table; sentences need them only where nothing else differs.
    if len(set(called)) < len(called):
        called = [""] * len(lines)
    rows = [
        HeadlineRow(line, one, called=name)
        for line, one, name in zip(lines, results, called, strict=True)
    ]
    return rows, tuple(heads)
