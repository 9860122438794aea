"""How to read the tables, and what must be known of the runs, each once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from fsf_reports._sections._headline import cautions_of, headline_of, which_tasks
from fsf_reports.interfaces import ReportedRuns, Section
from fsf_reports.values import Block, Text

__all__ = ["Notes"]

_MOST_NAMED = 4


class Notes(Section):
    """How to read the tables, which values are near guessing, and the cautions of runs."""

    title: ClassVar[str] = "Notes"
    place: ClassVar[int] = 950

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return the notes of all tables, each once, and the cautions with their runs."""
        groups = runs.by_tasks()
        cautions = cautions_of(runs)
        where: dict[str, list[str]] = {}
        for number, group in enumerate(groups, start=1):
            for note in headline_of(group).notes:
                if not any(caution in note for caution in cautions):
                    where.setdefault(note, []).append(which_tasks(number, groups))
        notes = [
            note if len(own) == len(groups) else f"{_some(own)}: {note}"
            for note, own in where.items()
        ]
        if notes:
            yield Text(tuple(notes), title="Tables")
        told = [
            caution if len(labels) == len(runs) else f"{_some(labels)}: {caution}"
            for caution, labels in cautions.items()
        ]
        if told:
            yield Text(tuple(told), title="Cautions")


def _some(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return "; ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
