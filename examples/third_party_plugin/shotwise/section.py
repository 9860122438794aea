"""A section of the report: which tasks every method finds hard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from fsf_reports.interfaces import ReportedRuns, Section
from fsf_reports.values import Block, Entry, Quantity, TableDeclaration, Text

__all__ = ["HardTasks"]


class HardTasks(Section):
    """The tasks with the lowest accuracy over all runs that have them.

    Args:
        most: tasks per arm.
    """

    title: ClassVar[str] = "Tasks that all find hard"
    place: ClassVar[int] = 450

    def __init__(self, *, most: int = 5) -> None:
        self.most = most

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return one table for each set of equal tasks that several runs have."""
        for group in runs.by_tasks():
            if len(group) < 2:
                yield Text(("Only one run has these tasks.",))
                continue
            entries = []
            for arm in group[0].outcomes or ():
                answers = [run.outcomes[arm] for run in group if run.outcomes is not None]
                accuracy = np.stack([one.task_accuracy for one in answers])
                for task in np.argsort(accuracy.mean(axis=0), kind="stable")[: self.most]:
                    values = {"mean": accuracy[:, task].mean(), "best": accuracy[:, task].max()}
                    entries += [
                        Entry((arm, str(task)), name, Quantity(100 * float(value)))
                        for name, value in values.items()
                    ]
            yield TableDeclaration(
                "Hard tasks",
                f"Accuracy in percent over {len(group)} runs.",
                ("arm", "task"),
                tuple(entries),
            )
