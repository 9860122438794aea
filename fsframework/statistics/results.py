"""What is compared: methods with their outcomes, found as runs, in folders or in files."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsframework.errors import DataError, OptionError, RecordError
from fsframework.records import RECORD_NAME, RunRecord, find_run
from fsframework.statistics.accuracies import SUFFIXES, TaskAccuracies, Unit, read_accuracies
from fsframework.values import Estimate, Outcomes, Scope

__all__ = ["KINDS_OF_TASKS", "Contestant", "by_tasks", "find_contestants", "same_tasks"]

KINDS_OF_TASKS = ("R", "A")
"""Random tasks and attribute-biased tasks."""

_TASKS_STATED = "tasks stated to be equal"


@dataclass(frozen=True, eq=False)
class Contestant:
    """A method on its tasks.

    Args:
        label: what it is called in a table; unique among those compared.
        source: run folder or file.
        outcomes: by kind of tasks, ``R`` random and ``A`` attribute-biased.
        tasks: what is known of the tasks of each kind, to say how two differ.
        fingerprint: of the run, empty for a file.
        estimates: what its run has computed, with the intervals asked for there.
        cautions: what must stand under every table that shows it; see ``RunRecord``.
        longer: more and more of its name, for contestants whose labels are equal.
    """

    label: str
    source: Path
    outcomes: Mapping[str, Outcomes]
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fingerprint: str = ""
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    longer: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    def task_set(self, kinds: Iterable[str]) -> str:
        """Return what its tasks of these kinds are called."""
        return " and ".join(self._called(kind) for kind in kinds)

    def _called(self, kind: str) -> str:
        facts, digest = self.tasks.get(kind, {}), self.outcomes[kind].task_digest[:8]
        if "name" in facts:
            return str(facts["name"])
        if "shot" not in facts:
            return digest
        return f"{facts['sampler']} {facts['way']}-way {facts['shot']}-shot {digest}"


def find_contestants(
    sources: Sequence[str],
    runs_dir: Path,
    *,
    stated_equal: bool = False,
    layout: str | None = None,
    kind: Scope = "closed",
    n_images: int = 0,
    unit: Unit = "auto",
) -> list[Contestant]:
    """Find every contestant: runs by folder or name, folders of runs, files of accuracies.

    Args:
        sources: each may be ``LABEL=SOURCE`` to be called otherwise.
        stated_equal: row i of every file of accuracies is said to be the same task.
        layout: see ``read_accuracies``; so are ``kind``, ``n_images`` and ``unit``.

    Raises:
        RecordError: there is no such run, or it has no outcomes.
        DataError: a file cannot be read.
    """
    found: list[Contestant] = []
    for source in sources:
        label, path = _labelled(source)
        if path.suffix in SUFFIXES and path.is_file():
            names = _TASKS_STATED if stated_equal else str(path)
            read = read_accuracies([path], task_set=names, unit=unit, kind=kind, n_images=n_images)
            part = [_of_accuracies(one) for one in read]
        elif path.is_dir() and not (path / RECORD_NAME).exists():
            folders = sorted(p.parent for p in path.glob(f"*/{RECORD_NAME}"))
            if folders:
                part = [_of_run(folder) for folder in folders if _has_outcomes(folder)]
            else:
                read = read_accuracies(
                    [path], layout=layout, unit=unit, kind=kind, n_images=n_images
                )
                part = [_of_accuracies(one) for one in read]
        else:
            part = [_of_run(find_run(str(path), runs_dir))]
        if label is not None:
            if len(part) != 1:
                raise OptionError(f"{source}: names {len(part)} methods, not one")
            part = [dataclasses.replace(part[0], label=label, longer=())]
        found += part
    return found


def _labelled(source: str) -> tuple[str | None, Path]:
    label, equals, rest = source.partition("=")
    if equals and label and "/" not in label and not Path(source).exists():
        return label, Path(rest)
    return None, Path(source)


def _has_outcomes(folder: Path) -> bool:
    return any((folder / f"outcomes-{kind}.parquet").exists() for kind in KINDS_OF_TASKS)


def _of_run(folder: Path) -> Contestant:
    record = RunRecord.load(folder)
    paths = {kind: folder / f"outcomes-{kind}.parquet" for kind in KINDS_OF_TASKS}
    outcomes = {kind: Outcomes.load(path) for kind, path in paths.items() if path.exists()}
    if not outcomes:
        state = "it is not finished" if record.status == "unfinished" else "nothing was evaluated"
        raise RecordError(f"{folder}: has no outcomes to compare, {state}")
    resolved = record.resolved
    if "method" not in resolved:
        facts = resolved["imported"]
        tasks = {"R": {"name": facts["task_set"], "count": facts["n_tasks"]}}
        label, longer = str(facts["method"]), tuple[str, ...]()
    else:
        method, backbone = (str(resolved[part]["name"]) for part in ("method", "backbone"))
        label, tasks = method, dict(record.tasks)
        longer = (f"{method} {backbone}", f"{method} {backbone} {record.fingerprint[:8]}")
    return Contestant(
        label,
        folder,
        outcomes,
        tasks,
        record.fingerprint,
        dict(record.estimates),
        longer,
        record.cautions,
    )


def _of_accuracies(read: TaskAccuracies) -> Contestant:
    facts = {"name": read.task_set, "count": len(read.values)}
    return Contestant(read.method, read.source, {"R": read.outcomes}, {"R": facts})


def by_tasks(contestants: Sequence[Contestant]) -> list[list[Contestant]]:
    """Group contestants of equal tasks, in the order in which the tasks first come."""
    groups: dict[tuple[tuple[str, str], ...], list[Contestant]] = {}
    for one in contestants:
        key = tuple(sorted((kind, o.task_digest) for kind, o in one.outcomes.items()))
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def same_tasks(contestants: Sequence[Contestant]) -> list[Contestant]:
    """Return contestants with labels that tell them apart, and the kinds of tasks they share.

    Raises:
        DataError: tasks or scoring differ; the message says in what.
    """
    first = contestants[0]
    for other in contestants[1:]:
        shared = first.outcomes.keys() & other.outcomes.keys()
        if not shared:
            kinds = [", ".join(c.outcomes) for c in (first, other)]
            raise DataError(
                f"{_both(first, other)} were evaluated on different kinds of tasks: "
                f"{kinds[0]} and {kinds[1]} (R random, A attribute-biased)"
            )
        for kind in sorted(shared):
            one, two = first.outcomes[kind], other.outcomes[kind]
            if one.task_digest != two.task_digest:
                raise DataError(_difference(first, other, kind))
            if one.query_batch != two.query_batch:
                raise DataError(
                    f"{_both(first, other)} were not scored alike: the queries of one "
                    f"were shown by {one.query_batch}, those of the other by {two.query_batch}"
                )
    kinds_shared = [k for k in KINDS_OF_TASKS if all(k in c.outcomes for c in contestants)]
    return [
        dataclasses.replace(
            c, label=label, outcomes={kind: c.outcomes[kind] for kind in kinds_shared}
        )
        for c, label in zip(contestants, _labels(contestants), strict=True)
    ]


def _names(first: Contestant, other: Contestant) -> tuple[str, str]:
    """Return what tells two contestants apart: their labels, else where they come from.

    >>> runs = [Contestant("ncc", Path("runs") / name, {}) for name in ("ncc-1a", "ncc-2b")]
    >>> _names(*runs)
    ('ncc-1a', 'ncc-2b')
    """
    if first.label != other.label:
        return first.label, other.label
    if first.source.name != other.source.name:
        return first.source.name, other.source.name
    return str(first.source), str(other.source)


def _both(first: Contestant, other: Contestant) -> str:
    return " and ".join(_names(first, other))


def _difference(first: Contestant, other: Contestant, kind: str) -> str:
    """Say how the tasks of two contestants differ, and what can be done."""
    one, two = (dict(c.tasks.get(kind, {})) for c in (first, other))
    labels = _names(first, other)
    intro = f"{labels[0]} and {labels[1]} were evaluated on different tasks, so no pair of values"
    intro += " belongs together: "
    counts = [len(c.outcomes[kind]) for c in (first, other)]
    for key, what in (("way", "ways"), ("shot", "shots"), ("query", "queries a class")):
        if key in one and key in two and one[key] != two[key]:
            return intro + f"{one[key]} and {two[key]} {what}"
    names = [facts.get("name") for facts in (one, two)]
    if counts[0] != counts[1] and not any(names):
        return intro + f"{counts[0]:,} and {counts[1]:,} tasks; give both runs the same --tasks"
    if counts[0] != counts[1] and names[0] == names[1]:
        missing = abs(counts[0] - counts[1])
        lacks = labels[counts[1] < counts[0]]
        return (
            intro + f"{counts[0]:,} and {counts[1]:,} tasks; {lacks} lacks {missing:,}, and "
            "which ones cannot be told"
        )
    if all(names) and names[0] != names[1]:
        files = all(c.fingerprint == "" for c in (first, other))
        hint = "; if row i of each is the same task, say --same-tasks" if files else ""
        return intro + f"{names[0]!r} and {names[1]!r}{hint} (--by-tasks compares those that share)"
    kinds = [c.outcomes[kind].kind for c in (first, other)]
    if all(names) and kinds[0] != kinds[1]:
        return intro + f"{names[0]!r} was called {kinds[0]} once and {kinds[1]} once"
    return intro + (
        f"they were drawn with another seed, sampler or from other images (digests "
        f"{first.outcomes[kind].task_digest[:8]} and {other.outcomes[kind].task_digest[:8]})"
    )


def _labels(contestants: Sequence[Contestant]) -> list[str]:
    """Return labels that differ, none longer than it must be.

    >>> runs = [Contestant("ncc", Path("a"), {}, longer=(f"ncc {b}",)) for b in ("x", "y")]
    >>> _labels([*runs, Contestant("maml", Path("c"), {})])
    ['ncc x', 'ncc y', 'maml']
    """
    labels = [c.label for c in contestants]
    for step in range(max((len(c.longer) for c in contestants), default=0)):
        double = _doubles(labels)
        labels = [
            c.longer[min(step, len(c.longer) - 1)] if label in double and c.longer else label
            for c, label in zip(contestants, labels, strict=True)
        ]
    double = _doubles(labels)
    labels = [
        str(c.source) if label in double else label
        for c, label in zip(contestants, labels, strict=True)
    ]
    double = _doubles(labels)
    if double:
        raise OptionError(f"{sorted(double)[0]} is given twice")
    return labels


def _doubles(labels: Iterable[str]) -> set[str]:
    return {label for label, count in Counter(labels).items() if count > 1}
