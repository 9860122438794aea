"""Results that can be compared: on equal tasks, with labels that tell them apart, by measures."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fsf_statistics.path_names import PathNames
from fsframework.errors import DataError, OptionError, argument, close_matches
from fsframework.statistics.facts import called, facts_of, told_apart
from fsframework.statistics.measures import DEFAULT_STATISTICS, Measure, measures_of
from fsframework.statistics.results import MethodResult
from fsframework.values import Arms, Contrast

__all__ = ["comparable", "grouped_by_tasks", "labelled", "labels_of", "measures_named"]


def comparable(results: Sequence[MethodResult]) -> list[MethodResult]:
    """Return results with labels that tell them apart, and only the arms that they share.

    Raises:
        DataError: tasks or scoring differ; the message says how.
        OptionError: a result is given twice.
    """
    first, labels = results[0], labels_of(results)
    for label, other in zip(labels[1:], results[1:], strict=True):
        both = f"{labels[0]} and {label}"
        shared = [arm for arm in first.outcomes if arm in other.outcomes]
        if not shared:
            arms = [", ".join(one.outcomes) for one in (first, other)]
            raise DataError(
                f"{both} share no arm: the arms of the first are {arms[0]}, those of the second "
                f"{arms[1]}"
            )
        for arm in shared:
            one, two = first.outcomes[arm], other.outcomes[arm]
            if one.task_digest != two.task_digest:
                raise DataError(
                    f"{both} were evaluated on different tasks, so their values cannot be paired: "
                    f"{_difference(first, other, arm)}; {argument('by_tasks', True)} compares "
                    "those on equal tasks"
                )
            if one.query_batch != two.query_batch:
                raise DataError(
                    f"{both} were scored differently: the queries of one were passed by "
                    f"{one.query_batch}, those of the other by {two.query_batch}"
                )
    arms = [arm for arm in first.outcomes if all(arm in one.outcomes for one in results)]
    one_contrast = all(one.contrast == first.contrast for one in results)
    return [
        dataclasses.replace(
            one,
            label=label,
            outcomes={arm: one.outcomes[arm] for arm in arms},
            other_seeds=tuple({arm: o[arm] for arm in arms} for o in one.other_seeds),
            arms=_only(one.arms, arms, one_contrast),
        )
        for one, label in zip(results, labels, strict=True)
    ]


def _only(tasks: Arms | None, arms: Sequence[str], with_contrast: bool) -> Arms | None:
    if tasks is None:
        return None
    contrast = tasks.contrast
    kept = with_contrast and contrast is not None and set(contrast.arms) <= set(arms)
    return Arms({arm: tasks[arm] for arm in arms}, contrast if kept else None, tasks.symbols)


def _difference(first: MethodResult, other: MethodResult, arm: str) -> str:
    """Return how the tasks of two results differ."""
    one, two = first.outcomes[arm], other.outcomes[arm]
    found: list[tuple[str, Any, Any]] = []
    if first.arms is not None and other.arms is not None:
        a, b = first.arms[arm], other.arms[arm]
        found += [("ways", a.n_way, b.n_way), ("shots", a.n_shot, b.n_shot)]
        found.append(("queries per class", a.n_query, b.n_query))
    found.append(("tasks", f"{len(one):,}", f"{len(two):,}"))
    if first.task_set or other.task_set:
        names = repr(first.tasks_called([arm])), repr(other.tasks_called([arm]))
        found = [("as names", *names), *found, ("as scopes", one.scope, two.scope)]
    for what, *values in found:
        if values[0] != values[1]:
            return f"the first has {values[0]}, the second {values[1]} {what}"
    return (
        "they were drawn with another seed or sampler, or from other images (digests "
        f"{one.task_digest[:8]} and {two.task_digest[:8]})"
    )


def grouped_by_tasks(results: Sequence[MethodResult]) -> list[list[MethodResult]]:
    """Group results of equal tasks, in the order in which the tasks first appear."""
    groups: dict[tuple[tuple[str, str], ...], list[MethodResult]] = {}
    for one in results:
        key = tuple(sorted((arm, o.task_digest) for arm, o in one.outcomes.items()))
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def labels_of(results: Sequence[MethodResult]) -> list[str]:
    """Return distinct labels, none longer than necessary.

    Raises:
        OptionError: a result is given twice.

    >>> from pathlib import Path
    >>> labels_of([MethodResult("ncc", {}, source=Path("a")), MethodResult("maml", {})])
    ['ncc', 'maml']
    """
    names = PathNames()
    labels = labelled([one.label for one in results], [_facts(one, names) for one in results])
    double = [label for label, count in Counter(labels).items() if count > 1]
    if double:
        raise OptionError(f"{min(double)} is given twice")
    return labels


def _facts(result: MethodResult, names: PathNames) -> dict[str, str]:
    facts = facts_of(result.records[0]) if result.records else {}
    if result.source is None:
        return {**facts, "run": "", "folder": ""}
    return {**facts, "run": result.source.name, "folder": names.name(str(result.source))}


def labelled(labels: Sequence[str], facts: Sequence[Mapping[str, str]]) -> list[str]:
    """Return labels, equal ones each with the facts that tell it from the others.

    >>> labelled(["ncc", "ncc", "knn"], [{"shot": "1"}, {"shot": "5"}, {"shot": "1"}])
    ['ncc 1-shot', 'ncc 5-shot', 'knn']
    """
    found = list(labels)
    for label in set(labels):
        places = [place for place, one in enumerate(labels) if one == label]
        told = told_apart([facts[place] for place in places])
        for at, place in enumerate(places):
            own = called({name: values[at] for name, values in told.items()})
            found[place] = f"{label} {own}".strip()
    return found


def measures_named(
    names: Sequence[str],
    statistics: Collection[str],
    arms: Sequence[str],
    contrast: Contrast | None,
) -> list[Measure]:
    """Return the measures that names stand for.

    A name is that of a statistic, meaning the statistic in every arm; or that of a measure, such as
    ``wacc-biased`` or ``wacc-gap``; or ``gap``, short for ``wacc-gap``. Names are not parsed: each
    is looked up among the names of all measures of the statistics and arms. A name of both a
    statistic and a measure of another statistic means the statistic.

    Args:
        names: of the requested measures.
        statistics: names of the known statistics.
        arms: that the results share.
        contrast: the two arms that are compared, if any.

    Raises:
        OptionError: a name is unknown.

    >>> pair = Contrast("random", "biased")
    >>> [m.arms for m in measures_named(["range-gap"], ["range-gap"], ["random", "biased"], pair)]
    [('random',), ('biased',)]
    >>> [m.name for m in measures_named(["range-gap"], ["acc", "range"], ["iid", "ood"], pair)]
    ['range-gap']
    """
    every = {statistic: measures_of(statistic, arms, contrast) for statistic in statistics}
    known = {one.name: [one] for own in every.values() for one in own}
    if contrast is not None:
        known["gap"] = [Measure(DEFAULT_STATISTICS[-1], contrast.arms)]
    known |= {name: [one for one in own if not one.is_gap] for name, own in every.items()}
    for name in names:
        if name not in known:
            examples = ", ".join(one.name for one in next(iter(every.values()), []))
            raise OptionError(
                f"{argument('statistic')}: no measure is called {name!r}"
                f"{close_matches(name, known)}; give a statistic ({', '.join(statistics)}), or one "
                f"in the arms that all results share, as in {examples}"
            )
    return list(dict.fromkeys(one for name in names for one in known[name]))
