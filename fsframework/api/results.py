"""Estimates of outcomes, and their comparison."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fsframework.api.components import component
from fsframework.api.headlines import limits_told
from fsframework.api.running import Run, load_run, load_runs, runs
from fsframework.api.session import open_session
from fsframework.components.registry import Registry
from fsframework.errors import DataError, OptionError, RecordError
from fsframework.interfaces.statistic import Statistic
from fsframework.records import RECORD_NAME, RunRecord, read_outcomes
from fsframework.statistics.comparison import (
    Comparison,
    MeasureComparison,
    compare_methods,
    values_of,
)
from fsframework.statistics.differences import ComparisonOptions
from fsframework.statistics.estimation import estimates_of
from fsframework.statistics.estimators import Interval, IntervalChoice
from fsframework.statistics.facts import options_told
from fsframework.statistics.measures import DEFAULT_STATISTICS, Measure, measures_named
from fsframework.statistics.results import (
    MethodResult,
    cautions_of,
    comparable,
    grouped_by_tasks,
    joined_over_seeds,
)
from fsframework.values import ArmOutcomes, Estimates, ImagePool

__all__ = [
    "Comparable",
    "Comparison",
    "compare",
    "estimate",
    "finished_of",
    "method_result",
    "results_of",
    "statistic_of_run",
    "statistics_of",
]

Comparable = Run | MethodResult | ArmOutcomes | str | Path
"""What can be compared: a run, a folder or name of runs, or outcomes."""


def statistics_of(
    registry: Registry, requests: Any, results: Iterable[MethodResult] = ()
) -> dict[str, Statistic]:
    """Return statistics by name, from one request or several.

    Args:
        requests: a name, a mapping with options, a class or an instance; or several of these.
        results: of runs, whose recorded options a statistic given by its name has.

    Raises:
        DataError: the runs have different options of a statistic.
    """
    several = requests if isinstance(requests, (list, tuple)) else [requests]
    records = [run for one in results for run in one.records]
    found: dict[str, Statistic] = {}
    for request in several:
        if isinstance(request, str):
            request = _as_recorded(request, records)
        chosen = component(registry, "statistic", request)
        found[chosen.name] = chosen.create()
    return found


def _as_recorded(name: str, records: Sequence[RunRecord]) -> Any:
    """Return a statistic with the options with which runs have computed it."""
    known = {options_told(one, name): one for one in records if name in one.statistics}
    if len(known) > 1:
        raise DataError(
            f"these runs have different options of {name}: {' and '.join(known)}; run them again "
            "with equal ones"
        )
    return next((one.statistic_tree(name) for one in known.values()), name)


def statistic_of_run(registry: Registry, name: str, *records: RunRecord) -> Statistic:
    """Return a statistic as a run computed it, or all of several that did.

    Raises:
        DataError: they computed it with different options, or its code is another now.
    """
    found = component(registry, "statistic", records[0].statistic_tree(name))
    asked = [records[0], *(one for one in records if name in one.statistics)]
    if any(one.statistics.get(name) != found.fingerprint for one in asked):
        raise DataError(f"its runs computed {name} with other options or another version")
    made: Statistic = found.create()
    return made


def estimate(
    outcomes: ArmOutcomes | Run,
    statistic: Any | Sequence[Any] = "wacc",
    *,
    level: float = 0.95,
    interval: Interval = "student-t",
    pool: ImagePool | None = None,
) -> Estimates:
    """Estimate statistics of every arm, and of their contrast.

    Whether an interval is open (it holds for the data's distribution) or closed (for this data set)
    is decided from the tasks; see ``Estimate.scope``. Paired arms are compared task by task, others
    by Welch's interval. A gap is positive where the tested arm is worse.

    Args:
        outcomes: what ``fsframework.evaluate`` returned, or a run.
        statistic: a name (``acc``, ``wacc``), a mapping of a name and options, a class or an
            instance; or several of these.
        level: confidence level, 0 < level < 1.
        interval: ``student-t``, ``percentile``, ``bca``, ``image-level`` or ``class-level``; only
            the first for runs of several seeds.
        pool: that the tasks were drawn from, for the last two.

    Raises:
        OptionError: the level or the interval is not allowed.
        DataError: a statistic cannot be computed from these outcomes.
    """
    choice = IntervalChoice(level, interval)
    given = [outcomes] if isinstance(outcomes, Run) else {"these outcomes": outcomes}
    [result] = joined_over_seeds(list(results_of(given, Path(), pool)))
    statistics = statistics_of(Registry(), statistic, [result])
    return Estimates(estimates_of(statistics, result, choice))


def compare(  # noqa: PLR0913 - an option each
    results: Iterable[Comparable] | Mapping[str, Comparable],
    statistic: Any | Sequence[Any] | None = None,
    *,
    interval: Interval = "student-t",
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    baseline: str | None = None,
    by_tasks: bool = False,
    pool: ImagePool | None = None,
    runs_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
) -> Comparison:
    """Compare methods on equal tasks, pair by pair.

    Values are paired task by task. Where the arms of a gap are pairs of tasks, so are the gaps;
    otherwise the difference of two gaps has Welch's interval. A gap is positive where the tested
    arm is worse, so a higher gap is worse.

    Runs that differ only in their training seed count as one method, unless they have labels of
    their own. Seeds and tasks are then crossed random effects: tasks of two methods are paired,
    their seeds never, and the interval adds the variance between seeds. See
    ``Runs.over_seeds``.

    Caveats: intervals cover other tasks, and other images only where they are open; they cover
    retrained models only for methods with several seeds. A note names methods with one seed next to
    others with several: their intervals speak of these weights. Judge many pairs by ``p_holm`` or
    ``p_bh``, not by ``p``.

    Args:
        results: runs, their folders, names or beginnings of names, selectors (``shot=5``: all
            runs that match), folders of runs; or a mapping of labels to these or to what
            ``fsframework.evaluate`` returned.
        statistic: names of statistics, each compared in every arm (``wacc``), or of measures
            (``wacc-biased``, ``wacc-gap``; ``gap`` is ``wacc-gap``); or a mapping of a name and
            options, a class, an instance; or several. By default Acc and wAcc in every arm, and
            the gap of wAcc.
        interval: ``student-t``; ``percentile`` or ``bca``, bootstraps of the tasks; ``image-level``
            or ``class-level``, open intervals for uniformly drawn tasks that share images; only
            ``student-t`` where a method has several seeds.
        level: confidence level, 0 < level < 1.
        resamples: of the bootstraps; ``seed`` their seed.
        baseline: label of a method that the others are compared with.
        by_tasks: compare within each set of equal tasks, instead of refusing different ones.
        pool: that the tasks of outcomes were drawn from, for ``image-level`` and ``class-level``;
            not needed for runs.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.
        plugins: Python files whose plugin classes are loaded too.

    Raises:
        DataError: the tasks differ, or a requested statistic cannot be computed.
        OptionError: a measure is unknown, or an option is out of range.
        RecordError: a run does not exist, or has no outcomes.

    >>> import fsframework as fsf
    >>> data = {"name": "planted", "n_per_class": 12, "size": 16}
    >>> arms = fsf.draw("random", fsf.pool(data), tasks=30, way=2, shot=1, queries=4)
    >>> models = {name: fsf.model(name) for name in ("ncc", "logistic")}
    >>> outcomes = {name: fsf.evaluate(model, arms, data) for name, model in models.items()}
    >>> found = fsf.compare(outcomes, "acc")
    >>> [(pair.first, pair.second, pair.difference.n_tasks) for pair in found.pairs]
    [('ncc', 'logistic', 30)]
    """
    session = open_session(runs_dir=runs_dir, plugins=plugins, progress=False)
    how = ComparisonOptions(IntervalChoice(level, interval), resamples, seed, baseline)
    results, unfinished = finished_of(results, session.workspace.runs)
    found = joined_over_seeds(list(results_of(results, session.workspace.runs, pool)))
    if not found:
        raise OptionError("a comparison needs at least two methods, and none is given")
    if len(found) == 1 and found[0].other_seeds:
        raise OptionError(
            f"all {len(found[0].models)} runs differ only in their training seed and count as one "
            "method; give each a label of its own to compare them with each other"
        )
    requests = statistic if isinstance(statistic, (list, tuple)) else [statistic]
    asked = [one for one in requests if one is not None]
    groups = grouped_by_tasks(found) if by_tasks else [found]
    # A baseline that no group has is refused when methods are compared.
    groups = [group for group in groups if baseline in [one.label for one in group]] or groups
    parts: list[MeasureComparison] = []
    notes: list[str] = [unfinished] if unfinished else []
    cautions: dict[str, tuple[str, ...]] = {}
    for group in groups:
        if by_tasks and len(group) < 2:
            continue
        chosen = comparable(group)
        made, left_out = _compared(asked, session.registry, chosen, how)
        parts, notes = [*parts, *made], [*notes, *left_out]
        for label, said in cautions_of({one.label: one.records for one in chosen}).items():
            cautions[label] = tuple(dict.fromkeys((*cautions.get(label, ()), *said)))
    single = [group[0].label for group in groups if by_tasks and len(group) < 2]
    if alone := list(dict.fromkeys(single)):
        some = ", ".join(alone[:4]) + (f" and {len(alone) - 4} more" if len(alone) > 4 else "")
        notes.append(f"no other method was tested on the tasks of {some}")
    if not parts:
        raise OptionError("no two of these methods have the same tasks")
    return Comparison(tuple(parts), tuple(dict.fromkeys(notes)), cautions)


def method_result(run: Run) -> MethodResult:
    """Return a run as one result, of one model or of those of several seeds.

    Raises:
        RecordError: it has no outcomes.
    """
    [joined] = joined_over_seeds([_of_run(one) for one in run.runs])
    return joined


def _of_run(run: Run) -> MethodResult:
    """Return a run of one model as a result."""
    folder, record = run.folder, run.record
    if not _is_evaluated(run):
        state = "it is not finished" if record.status == "unfinished" else "nothing was evaluated"
        raise RecordError(f"{folder}: has no outcomes to compare, {state}")
    if record.method is None or record.backbone is None:
        # Accuracies measured elsewhere: only the name of their tasks is known.
        label = folder.name if record.imported is None else record.imported.method
        loaded = read_outcomes(folder, record)
        named = " and ".join(arm.name for arm in record.arms.values())
        return MethodResult(label, loaded, task_set=named, source=folder, records=(record,))
    found, sizes = run.outcomes, record.tested.class_sizes if record.tested is not None else ()
    label = record.method.called
    return MethodResult(label, dict(found), found.arms, "", sizes, folder, (record,))


def _is_evaluated(run: Run) -> bool:
    files = [run.record.outcomes_file(run.folder, arm) for arm in run.record.arms]
    ended = run.record.status != "unfinished"
    return ended and bool(files) and all(file.exists() for file in files)


def finished_of(given: Any, folder: Path | None = None) -> tuple[Any, str]:
    """Return what is given, folders and selectors as those of their runs that were evaluated.

    Returns:
        What is given, and a sentence that names the runs left out; empty if all are kept.

    Raises:
        RecordError: a run of a folder is damaged, or none of them was evaluated.
    """
    if isinstance(given, Mapping):
        return given, ""
    kept: list[Any] = []
    left: list[str] = []
    for one in [given] if isinstance(given, (str, Path, Run)) else given:
        path = Path(one) if isinstance(one, (str, Path)) and str(one).strip() else None
        if path is None or (path / RECORD_NAME).exists():
            kept.append(one)
            continue
        holds_runs = any(path.glob(f"*/{RECORD_NAME}"))
        listed = runs(path) if holds_runs else load_runs(path, folder)
        if len(listed) == 1 and not holds_runs:
            kept += listed
            continue
        for reason in listed.broken.values():
            raise RecordError(reason)
        ended = [run for run in listed if _is_evaluated(run)]
        if not ended:
            raise RecordError(f"{path}: no run in it is finished")
        kept += ended
        left += [run.name for run in listed if run not in ended]
    some = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
    return kept, f"left out, not finished: {some}" if left else ""


def results_of(
    given: Iterable[Comparable] | Mapping[str, Comparable],
    folder: Path,
    pool: ImagePool | None = None,
) -> Iterator[MethodResult]:
    """Yield results with their labels.

    Args:
        given: what ``compare`` takes.
        folder: of runs given by name.
        pool: that the tasks of outcomes were drawn from, if it is known.

    Raises:
        OptionError: outcomes have no label, or a label is given to several methods.
        RecordError: a run does not exist, or has no outcomes.
    """
    given, _ = finished_of(given, folder)
    named: Iterable[tuple[str | None, Comparable]]
    named = given.items() if isinstance(given, Mapping) else ((None, one) for one in given)
    for label, one in named:
        found = _result(one, label, folder)
        if label is not None and (n := len(joined_over_seeds(found))) != 1:
            raise OptionError(f"{label}: {one} holds the results of {n} methods, not one")
        for result in found:
            if label is not None:
                result = dataclasses.replace(result, label=label)
            if pool is not None and not result.class_sizes:
                sizes = tuple(int(n) for n in pool.class_sizes)
                result = dataclasses.replace(result, class_sizes=sizes)
            yield result


def _result(one: Comparable, label: str | None, folder: Path) -> list[MethodResult]:
    if isinstance(one, MethodResult):
        return [one]
    if isinstance(one, Run):
        return [_of_run(run) for run in one.runs]
    if isinstance(one, ArmOutcomes):
        if label is None:
            raise OptionError("outcomes have no name: give a mapping of labels to outcomes")
        return [MethodResult(label, dict(one), one.arms)]
    found, _ = finished_of(one, folder)
    return [_of_run(each if isinstance(each, Run) else load_run(each, folder)) for each in found]


def _compared(
    asked: Sequence[Any],
    registry: Registry,
    results: Sequence[MethodResult],
    how: ComparisonOptions,
) -> tuple[list[MeasureComparison], list[str]]:
    """Compare results on equal tasks in each measure; also return what is left out."""
    arms, contrast = list(results[0].outcomes), results[0].contrast
    made: dict[str, Statistic] = {}
    names: list[str] = []
    for request in asked:
        own = {} if isinstance(request, str) else statistics_of(registry, request, results)
        made |= own
        names += own or [request]
    usual = [*DEFAULT_STATISTICS, *([] if contrast is None else ["gap"])]
    known = dict.fromkeys([*registry.names("statistic"), *made, *DEFAULT_STATISTICS])
    measures = measures_named(names or usual, list(known), arms, contrast)
    labels, found, left_out = [one.label for one in results], [], []
    for measure in measures:
        if measure.statistic not in made:
            made |= statistics_of(registry, measure.statistic, results)
        try:
            values = values_of(results, measure, made[measure.statistic])
        except DataError as error:
            if names:
                raise DataError(f"{measure.name} cannot be compared: {error}") from None
            left_out.append(f"without {measure.name}: {error}")
            continue
        one = compare_methods(labels, values, how)
        limits = _limits(results, measure, made[measure.statistic]) if measure.is_gap else ()
        found.append(dataclasses.replace(one, limits=tuple(limits)))
    if not found:
        raise DataError("nothing can be compared: " + "; ".join(left_out))
    return found, left_out


def _limits(results: Sequence[MethodResult], gap: Measure, statistic: Statistic) -> Iterator[str]:
    """Yield what the gaps of methods do not say, as their headline does."""
    labels, arms = [one.label for one in results], [Measure(gap.statistic, (a,)) for a in gap.arms]
    control, tested = (compare_methods(labels, values_of(results, a, statistic)) for a in arms)
    if len(set(control.groups.values())) > 1:
        yield f"The gaps do not rank these methods, whose {control.measure.name} differs."
    yield from limits_told({p.measure.name: p.values for p in (control, tested)}, gap.arms)
