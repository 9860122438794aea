"""The contract of what writes tables into files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from fsf_reports.values import TableDeclaration
from fsframework.interfaces import Configurable

__all__ = ["TableWriter"]


class TableWriter(Configurable, ABC, kind="table"):
    """Writes declared tables into a file.

    All of a declaration is written: every row, every column of
    ``fsf_reports.values.shown_columns`` with its intervals, the marks, the reasons for missing
    values, title and notes. Names are text, whatever characters they contain. The same tables give
    the same file.
    """

    formats: ClassVar[tuple[str, ...]] = ()
    """What it writes, as suffixes of files without the dot, such as ``tex``."""

    @abstractmethod
    def write(self, tables: Sequence[TableDeclaration], path: Path) -> None:
        """Write tables into a file, in their order.

        Args:
            tables: at least one.
            path: of the file; its suffix is one of ``formats``. It does not exist yet, but its
                folder does.
        """
