"""The tasks of every run, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from fsf_reports.interfaces import ReportedRuns, Section
from fsf_reports.values import Block, TaskBrowser, Text

__all__ = ["Tasks"]


class Tasks(Section):
    """A browser of tasks in the manner of FewSTAB's Figure 3 (Zheng et al. 2024).

    Args:
        most_answers: answers to queries that a page holds; further runs are left out.
    """

    title: ClassVar[str] = "Tasks"
    place: ClassVar[int] = 400

    def __init__(self, *, most_answers: int = 12_000_000) -> None:
        self.most_answers = most_answers

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return one browser for all runs that fit."""
        chosen, left_out, answers = [], [], 0
        for number, run in enumerate(runs):
            if run.outcomes is None:
                continue
            answers += sum(one.predictions.size for one in run.outcomes.values())
            if chosen and answers > self.most_answers:
                left_out.append(run.label)
            else:
                chosen.append(number)
        if not chosen:
            return
        yield Text(
            (
                "Each task with its support and its queries; wrong predictions are framed. The "
                "images of the tasks with the lowest accuracy are in this file, and others are "
                "shown by their keys.",
            )
        )
        if left_out:
            yield Text(
                (
                    f"The tasks of {len(left_out)} further runs are not in this file, which would "
                    "become too large: report on fewer runs to see them.",
                ),
                "caution",
            )
        yield TaskBrowser(tuple(chosen))
