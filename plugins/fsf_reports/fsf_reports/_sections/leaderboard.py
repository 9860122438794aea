"""All methods in one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from fsf_reports._sections._headline import every_measure, headline_of, numbered
from fsf_reports.interfaces import ReportedRuns, Section
from fsf_reports.values import Block, Text, table_of_headline

__all__ = ["Leaderboard"]


class Leaderboard(Section):
    """Every method with its intervals, one table for each set of equal tasks."""

    title: ClassVar[str] = "Leaderboard"
    place: ClassVar[int] = 100

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return for each set of equal tasks the headline and a table of every measure."""
        groups = runs.by_tasks()
        if len(groups) > 1:
            yield Text(("Each set of tasks has its own tables.",))
        for number, group in enumerate(groups, start=1):
            found = headline_of(group)
            name = numbered("Leaderboard", number, groups)
            yield dataclasses.replace(table_of_headline(found), name=name)
            yield every_measure(group, numbered("Every measure", number, groups))
