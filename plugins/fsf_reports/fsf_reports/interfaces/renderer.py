"""The contract of renderers, which draw figures into files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from fsf_reports.values import FigureDeclaration
from fsframework.interfaces import Configurable

__all__ = ["Renderer"]


class Renderer(Configurable, ABC, kind="renderer"):
    """Draws a declared figure into a file.

    All of the declaration is drawn: every panel, series, value, interval, label, caption and note
    that the mark has a place for. Names are text, whatever characters they contain. A value that is
    missing leaves its place empty.
    """

    formats: ClassVar[tuple[str, ...]] = ()
    """What it writes, as suffixes of files without the dot, such as ``pdf``."""

    @abstractmethod
    def draw(self, figure: FigureDeclaration, path: Path, *, columns: Literal[1, 2] = 1) -> None:
        """Draw a figure into a file; the same figure gives the same drawing.

        Args:
            figure: without a title where its ``title`` is empty.
            path: of the file; its suffix is one of ``formats``. It does not exist yet, but its
                folder does.
            columns: width, in columns of a paper of two columns.

        Raises:
            DataError: the figure has nothing to draw.
        """

    def bundle(self, figure: FigureDeclaration) -> Mapping[str, Any]:
        """Return a figure for a notebook: contents by media type, the best first.

        By default nothing, and the notebook shows the numbers as a table.

        Raises:
            DataError: the figure has nothing to draw.
        """
        del figure
        return {}
