"""A section, a part of the page that `fsf report` writes.

Try it: fsf report runs --section my-section
"""

from collections.abc import Iterator

from fsf_reports.interfaces import ReportedRuns, Section
from fsf_reports.values import Block, Entry, Quantity, TableDeclaration, Text


class MySection(Section):
    """How often no query of a class was right."""

    title = "Classes without a right answer"
    place = 450  # sections are sorted by it; those of fsf-reports are at 0, 100, ..., 900

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return texts, tables and figures; some runs may be unfinished."""
        for group in runs.by_tasks():
            entries = []
            for run in group:
                for arm, outcomes in (run.outcomes or {}).items():
                    share = 100 * float((outcomes.class_accuracy == 0).mean())
                    entries.append(Entry((run.label,), arm, Quantity(share)))
            yield TableDeclaration("No right answer", "Share of classes.", ("run",), tuple(entries))
        if not runs.finished:
            yield Text(("No run is finished.",))
