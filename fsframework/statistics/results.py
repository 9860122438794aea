"""Results of methods on their tasks, from runs or elsewhere, ready to be compared."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fsframework.errors import DataError, OptionError, argument
from fsframework.records import RunRecord
from fsframework.statistics.facts import facts_of, labelled
from fsframework.values import Arms, Contrast, Outcomes

__all__ = [
    "MethodResult",
    "cautions_of",
    "comparable",
    "grouped_by_seeds",
    "grouped_by_tasks",
    "joined_over_seeds",
    "labels_of",
]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class MethodResult:
    """A method with its answers on its tasks.

    Args:
        label: its name in tables; unique among those compared.
        outcomes: by name of the arm.
        arms: the tasks; ``None`` if only accuracies of whole tasks are known.
        task_set: name of tasks that are known only by a name.
        class_sizes: images of each class of the data, for intervals over images or classes.
        source: run folder or file.
        records: of its runs, one per training seed; empty if it is from no run.
        other_seeds: outcomes of models that were trained with other seeds, by name of the arm, on
            the same tasks.
    """

    label: str
    outcomes: Mapping[str, Outcomes]
    arms: Arms | None = None
    task_set: str = ""
    class_sizes: tuple[int, ...] = ()
    source: Path | None = None
    records: tuple[RunRecord, ...] = ()
    other_seeds: tuple[Mapping[str, Outcomes], ...] = ()

    @property
    def models(self) -> tuple[Mapping[str, Outcomes], ...]:
        """Outcomes of each of its models by name of the arm."""
        return (self.outcomes, *self.other_seeds)

    @property
    def contrast(self) -> Contrast | None:
        """The two arms that are compared, if both have outcomes."""
        found = None if self.arms is None else self.arms.contrast
        return found if found and all(arm in self.outcomes for arm in found.arms) else None

    def tasks_called(self, arms: Iterable[str]) -> str:
        """Return the name of its tasks of these arms."""
        return " and ".join(self._called(arm) for arm in arms)

    def _called(self, arm: str) -> str:
        digest = self.outcomes[arm].task_digest[:8]
        if self.arms is None:
            return self.task_set or digest
        tasks = self.arms[arm]
        return f"{tasks.sampler} {tasks.n_way}-way {tasks.n_shot}-shot {digest}"


def joined_over_seeds(results: Sequence[MethodResult]) -> list[MethodResult]:
    """Return results with those that differ only in their training seed joined to one.

    Results are joined if the groups of their runs and their labels are equal, in the order of their
    seeds. A seed that appears again, as in a copy of a run, begins another result.
    """

    def told(one: MethodResult) -> tuple[str, int | None]:
        group = one.records[0].group if one.records else ""
        return group and f"{group} {one.label}", one.records[0].training_seed if group else None

    return [
        dataclasses.replace(
            group[0],
            records=tuple(record for one in group for record in one.records),
            other_seeds=tuple(model for one in group for model in one.models)[1:],
        )
        for group in grouped_by_seeds(results, told)
    ]


def grouped_by_seeds(
    items: Sequence[T], told: Callable[[T], tuple[str, int | None]]
) -> list[list[T]]:
    """Return items that differ only in their training seed together, in the order of their seeds.

    Args:
        items: groups are in the order of their first items.
        told: group of an item and its training seed. Without a group, which is empty then, or a
            seed an item stays alone; one with a seed that its group has already begins another.

    >>> runs = [("a", 1), ("b", 0), ("a", 0), ("a", 1)]
    >>> grouped_by_seeds(runs, lambda run: run)
    [[('a', 0), ('a', 1)], [('b', 0)], [('a', 1)]]
    """
    found: list[dict[int | None, T]] = []
    by_group: dict[str, list[dict[int | None, T]]] = {}
    for item in items:
        group, seed = told(item)
        alike = by_group.setdefault(group, []) if group and seed is not None else []
        own = next((one for one in alike if seed not in one), None)
        if own is None:
            own = {}
            alike.append(own)
            found.append(own)
        own[seed] = item
    return [[own[seed] for seed in sorted(own, key=lambda one: one or 0)] for own in found]


def grouped_by_tasks(results: Sequence[MethodResult]) -> list[list[MethodResult]]:
    """Group results of equal tasks, in the order in which the tasks first appear."""
    groups: dict[tuple[tuple[str, str], ...], list[MethodResult]] = {}
    for one in results:
        key = tuple(sorted((arm, o.task_digest) for arm, o in one.outcomes.items()))
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def cautions_of(records: Mapping[str, Sequence[RunRecord]]) -> dict[str, tuple[str, ...]]:
    """Return by label what to print under a table of runs.

    That is their own cautions; that nothing was trained, where others are of trained weights; and
    where they were computed with different numbers of PyTorch threads and anything was trained,
    these numbers: sums of floating-point numbers depend on how they are split among threads, and a
    training amplifies the difference.

    Args:
        records: of the runs of each label.
    """
    every = [record for own in records.values() for record in own]
    threads = {record.environment.threads for record in every} - {0}
    differ = len(threads) > 1 and any(record.training.history for record in every)
    trained = any(record.data.seen for record in every)
    found = {}
    for label, own in records.items():
        said = [caution for record in own for caution in record.cautions]
        if trained and any(record.method and not record.data.seen for record in own):
            said.append("nothing was trained or loaded; other methods here have trained weights")
        said += [
            f"computed with {n} PyTorch thread{'s' if n > 1 else ''}; other numbers of threads "
            "train slightly different weights"
            for n in (record.environment.threads for record in own)
            if n and differ
        ]
        found[label] = tuple(dict.fromkeys(said))
    return found


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


def labels_of(results: Sequence[MethodResult]) -> list[str]:
    """Return distinct labels, none longer than necessary.

    Raises:
        OptionError: a result is given twice.

    >>> labels_of([MethodResult("ncc", {}, source=Path("a")), MethodResult("maml", {})])
    ['ncc', 'maml']
    """
    labels = labelled([one.label for one in results], [_facts(one) for one in results])
    double = [label for label, count in Counter(labels).items() if count > 1]
    if double:
        raise OptionError(f"{min(double)} is given twice")
    return labels


def _facts(result: MethodResult) -> dict[str, str]:
    facts = facts_of(result.records[0]) if result.records else {}
    source = result.source or Path()
    return {**facts, "run": source.name, "folder": str(source)}
