"""What the sections of a report are made of; drawn elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fsf_reports.values.figures import FigureDeclaration
from fsf_reports.values.tables import TableDeclaration
from fsframework.errors import DataError

__all__ = ["Block", "Gallery", "ImageGroup", "Listing", "TaskBrowser", "Text"]


@dataclass(frozen=True)
class Text:
    """Paragraphs of plain text.

    Args:
        paragraphs: a text each; nothing in them is markup.
        weight: ``lead`` for what a reader must see first, ``caution`` for what must not be
            overlooked.
        title: above them, one level below that of the section; empty for none.
    """

    paragraphs: tuple[str, ...]
    weight: Literal["plain", "lead", "caution"] = "plain"
    title: str = ""

    def __post_init__(self) -> None:
        if self.weight not in ("plain", "lead", "caution"):
            raise DataError(f"weight must be plain, lead or caution, not {self.weight!r}")


@dataclass(frozen=True)
class Listing:
    """A text to copy, such as a command or a citation.

    Args:
        title: what it is, in a few words.
        text: of any number of lines.
        language: such as ``shell``, ``python`` or ``bibtex``.
        files: that a page links to, one for each line of the text; none for no links.

    Raises:
        DataError: there are files, but not one for each line.
    """

    title: str
    text: str
    language: str = ""
    files: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if self.files and len(self.files) != (lines := self.text.count("\n") + 1):
            raise DataError(f"{self.title}: {len(self.files)} files for {lines} lines")


@dataclass(frozen=True)
class ImageGroup:
    """Images that belong together.

    Args:
        caption: what they have in common.
        images: indices into the pool of the gallery's run.
    """

    caption: str
    images: tuple[int, ...]


@dataclass(frozen=True)
class Gallery:
    """Rows of images of a run's data.

    Args:
        title: what they show.
        run: position of the run among those of the report.
        groups: from left to right.
    """

    title: str
    run: int
    groups: tuple[ImageGroup, ...]


@dataclass(frozen=True)
class TaskBrowser:
    """The tasks of runs, one by one: support, queries, words and answers.

    Args:
        runs: positions of the runs among those of the report; all have outcomes.
    """

    runs: tuple[int, ...]


Block = Text | Listing | Gallery | TaskBrowser | TableDeclaration | FigureDeclaration
"""One part of a section."""
