"""The contract of what writes a report as one page."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from fsf_reports.interfaces.section import ReportedRuns
from fsf_reports.values import Block
from fsframework.interfaces import Configurable

__all__ = ["PageWriter", "ReportPage", "ReportPart"]


@dataclass(frozen=True)
class ReportPart:
    """What a section gave.

    Args:
        name: of the section's plugin.
        title: its heading.
        blocks: what to show.
        problem: why there is nothing to show; empty where there is.
    """

    name: str
    title: str
    blocks: tuple[Block, ...] = ()
    problem: str = ""


@dataclass(frozen=True, eq=False)
class ReportPage:
    """All that a page shows.

    Args:
        title: of the page.
        parts: in order.
        runs: that blocks refer to.
        folder: that the file is written to, which links to other files begin at; ``None`` for a
            page of no folder, which links to none.
    """

    title: str
    parts: tuple[ReportPart, ...]
    runs: ReportedRuns
    folder: Path | None = None


class PageWriter(Configurable, ABC, kind="page"):
    """Writes a report as one HTML file that needs nothing else, from disk or offline.

    All texts are shown as text, whatever characters they contain. The same report gives the same
    file.
    """

    @abstractmethod
    def write(self, page: ReportPage) -> str:
        """Return the file, from ``<!doctype html>`` on."""
