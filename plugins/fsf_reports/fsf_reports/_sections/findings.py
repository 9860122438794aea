"""What was asked, what was found, and what may not be concluded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from fsf_reports._sections._headline import (
    estimates_of,
    gap_name,
    headline_of,
    measure,
    several_seeds,
    tasks_called,
    which_tasks,
)
from fsf_reports.interfaces import ReportedRuns, Section
from fsf_reports.values import Block, Text
from fsframework.values import Estimate

__all__ = ["Findings"]

_MOST_NAMED = 6


class Findings(Section):
    """What was asked and found, in plain words, and what may not be concluded."""

    title: ClassVar[str] = "What was found"
    place: ClassVar[int] = 0

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return two sentences for each set of tasks, and the limits of all."""
        groups = runs.by_tasks()
        for number, group in enumerate(groups, start=1):
            which = f"{_begun(which_tasks(number, groups))}: " if len(groups) > 1 else ""
            yield Text((f"{which}{_asked(group)} {_found(group)}",), "lead")
        if not groups:
            yield Text(("None of these runs has outcomes, so nothing can be said yet.",), "lead")
        limits = tuple(_limits(runs, groups))
        if limits:
            yield Text(limits, "caution", "What may not be concluded")


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]


def _asked(group: ReportedRuns) -> str:
    first = group[0]
    assert first.arms is not None
    does, who = ("does", first.label) if len(group) == 1 else ("do", _these(group))
    contrast = first.arms.contrast
    if contrast is None:
        return f"How well {does} {who} answer {tasks_called(first)}?"
    return (
        f"{does.capitalize()} {who} answer {contrast.tested} {tasks_called(first)} worse than "
        f"{contrast.control} ones?"
    )


def _these(group: ReportedRuns) -> str:
    name = gap_name(group)
    if name is None or not several_seeds(group):
        return f"these {len(group)} runs"
    methods = len(estimates_of(group, name))
    return f"these {methods} methods ({len(group)} trainings)"


def _found(group: ReportedRuns) -> str:
    name = gap_name(group)
    told = " ".join(headline_of(group).sentences)
    if name is None:
        return told
    gaps = estimates_of(group, name)
    if len(gaps) == 1:
        ((label, gap),) = gaps.items()
        called = _plain(measure(group, name))
        return f"{_verdict(gap)}: {label} loses {_points(gap)} of {called}."
    hurt = [label for label, gap in gaps.items() if gap.low > 0]
    return f"{_count(len(hurt), len(gaps))}. {told}"


def _plain(name: str) -> str:
    return {"wAcc gap": "worst-class accuracy", "Acc gap": "accuracy"}.get(
        name, name.removesuffix(" gap")
    )


def _points(gap: Estimate) -> str:
    if not gap.share:
        return str(gap)
    return f"{100 * gap.value:.1f} ± {100 * gap.half_width:.1f} points".replace("-", "−")


def _verdict(gap: Estimate) -> str:
    if gap.low > 0:
        return "Yes"
    return "No, it answers them better" if gap.high < 0 else "No difference can be shown"


def _count(hurt: int, of: int) -> str:
    if hurt == of:
        return "Yes, both do" if of == 2 else f"Yes, all {of} do"
    return "None measurably does" if not hurt else f"{hurt} of {of} measurably do"


def _limits(runs: ReportedRuns, groups: list[ReportedRuns]) -> Iterator[str]:
    estimates = [e for run in runs.finished for e in run.estimates.values()]
    if any(e.scope == "closed" for e in estimates):
        yield (
            "The tasks share images, so the intervals hold for these images only: they do not say "
            "how the methods would do on other images or classes."
        )
    if any(len(e.arms) == 2 for e in estimates):
        yield (
            "A gap says that these tasks are harder, not which word makes them so; two arms may "
            "differ in more than one word."
        )
    for group in groups:
        yield from headline_of(group).limits
    once = _trained_once(runs.finished)
    if once:
        yield (
            f"{_some(once)}: trained once. Another training of the same method may give other "
            "values, and no interval here covers that."
        )
    if len(groups) > 1:
        yield (
            f"These runs have {len(groups)} different sets of tasks or data. Values of different "
            "sets are not comparable, and are never in the same table."
        )
    if placebo := [run.label for run in runs.finished if run.record["settings"].get("placebo")]:
        yield f"{_some(placebo)}: the words were shuffled (placebo), so any gap is an artefact."
    yield from _left_out(runs)


def _trained_once(finished: ReportedRuns) -> list[str]:
    seeds: dict[str, set[object]] = {}
    for run in finished:
        if run.record["training"]["history"]:
            group = str(run.record["group"]) or run.label
            seeds.setdefault(group, set()).add(run.record["settings"].get("training_seed"))
    return [
        run.label
        for run in finished
        if run.record["training"]["history"]
        and len(seeds[str(run.record["group"]) or run.label]) == 1
    ]


def _left_out(runs: ReportedRuns) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for run in runs:
        if run.outcomes is None:
            reasons.setdefault(run.reason, []).append(run.label)
    for reason, labels in reasons.items():
        yield f"Left out where answers are needed: {_some(labels)} ({reason})."


def _some(labels: list[str]) -> str:
    more = len(labels) - _MOST_NAMED
    return ", ".join(labels[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
