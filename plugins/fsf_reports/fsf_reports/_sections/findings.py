"""What was asked, what was found, and what does not follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from fsf_reports._sections._headline import (
    cautions_of,
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
    """What was asked and found, in plain words, and what does not follow."""

    title: ClassVar[str] = "What was found"
    place: ClassVar[int] = 0

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return two sentences for each set of tasks, and the limits of all."""
        groups = runs.by_tasks()
        if len(groups) == 1:
            yield Text((f"{_asked(groups[0])} {_found(groups[0])}",), "lead")
        elif shared := _asked_of_all(groups):
            yield Text((shared,), "lead")
        for number, group in enumerate(groups if len(groups) > 1 else (), start=1):
            said = _found(group) if shared else f"{_asked(group)} {_found(group)}"
            yield Text((said,), title=which_tasks(number, groups))
        if not groups:
            yield Text(("None of these runs has outcomes, so nothing can be said yet.",), "lead")
        limits = tuple(_limits(runs, groups))
        if limits:
            yield Text(limits, "caution", "What does not follow")


def _asked(group: ReportedRuns) -> str:
    first = group[0]
    assert first.arms is not None
    who = first.short if len(group) == 1 else _these(group)
    does = "do" if who.startswith("these") else "does"
    contrast = first.arms.contrast
    if contrast is None:
        return f"How well {does} {who} answer {tasks_called(first)}?"
    return (
        f"{does.capitalize()} {who} answer {contrast.tested} {tasks_called(first)} worse than "
        f"{contrast.control} ones?"
    )


def _asked_of_all(groups: list[ReportedRuns]) -> str:
    """Return the question of all sets of tasks; empty where they have different arms."""
    found = [None if group[0].arms is None else group[0].arms.contrast for group in groups]
    contrast = found[0] if found else None
    if contrast is None or any(one != contrast for one in found):
        return ""
    return f"Do these runs answer {contrast.tested} tasks worse than {contrast.control} ones?"


def _these(group: ReportedRuns) -> str:
    name = gap_name(group)
    if name is None or not several_seeds(group):
        return f"these {len(group)} runs"
    methods = list(estimates_of(group, name))
    called = methods[0] if len(methods) == 1 else f"these {len(methods)} methods"
    return f"{called} ({len(group)} trainings)"


def _found(group: ReportedRuns) -> str:
    name = gap_name(group)
    told = " ".join(headline_of(group).sentences)
    if name is None:
        return told
    gaps = estimates_of(group, name)
    near = headline_of(group).near_guessing
    if len(gaps) == len(near):
        return told
    if len(gaps) == 1:
        ((label, gap),) = gaps.items()
        called = _plain(measure(group, name))
        what = f"{label} loses" if gap.low > 0 else f"the gap of {label} is"
        return f"{_verdict(gap)}: {what} {_points(gap)} of {called}."
    hurt = [label for label, gap in gaps.items() if gap.low > 0 and label not in near]
    return f"{_count(len(hurt), len(gaps))}. {told}"


def _plain(name: str) -> str:
    return {"wAcc gap": "worst-class accuracy", "Acc gap": "accuracy"}.get(
        name, name.removesuffix(" gap")
    )


def _points(gap: Estimate) -> str:
    if not gap.share:
        return str(gap)
    return f"{100 * gap.value:z.1f} ± {100 * gap.half_width:.1f} points".replace("-", "−")


def _verdict(gap: Estimate) -> str:
    if gap.low > 0:
        return "Yes"
    return "No, it answers them better" if gap.high < 0 else "No difference can be shown"


def _count(hurt: int, of: int) -> str:
    if hurt == of:
        return "Yes, both do" if of == 2 else f"Yes, all {of} do"
    return "No loss is shown for any of them" if not hurt else f"A loss is shown for {hurt} of {of}"


def _limits(runs: ReportedRuns, groups: list[ReportedRuns]) -> Iterator[str]:
    estimates = [e for run in runs.finished for e in run.estimates.values()]
    if cautioned := {label: None for own in cautions_of(runs).values() for label in own}:
        yield f"Cautions apply to {_some(list(cautioned))}; they are in the notes at the end."
    if any(e.scope == "closed" for e in estimates):
        yield (
            "The tasks share images, so the intervals hold for these images only, not for other "
            "images or classes."
        )
    if any(len(e.arms) == 2 for e in estimates):
        yield "A gap shows that these tasks are harder, not which word makes them so."
    if once := _trained_once(runs.finished):
        yield (
            f"Trained once: {_some(once)}. Another training may give other values, which no "
            "interval here covers."
        )
    if len(groups) > 1:
        yield f"Values of the {len(groups)} sets of tasks are not comparable with each other."
    if placebo := [run.label for run in runs.finished if run.record["settings"].get("placebo")]:
        yield (
            "A placebo permutes the images of each class, so a gap there does not come from the "
            f"words: {_some(placebo)}."
        )
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
        yield f"Left out: {_some(labels)} ({reason})."


def _some(labels: list[str]) -> str:
    more = len(labels) - _MOST_NAMED
    return "; ".join(labels[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
