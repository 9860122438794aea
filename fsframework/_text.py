"""Text from elsewhere as a terminal may show it; text for elsewhere without formulas."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

__all__ = ["NAME", "Printed", "csv_text", "inert_cell", "printable"]

NAME = r"\w[\w-]{0,127}"
"""Pattern of the names of components, statistics and arms, which files are named after too."""

_STEERING = re.compile(
    r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""Control characters but tab and line end, and the marks that turn the direction of a text."""


def printable(text: str) -> str:
    r"""Return text with what would steer a terminal as an escape sequence of JSON.

    >>> printable("a\x1b[2Jb\u202ec, and \t ü stay")
    'a\\u001b[2Jb\\u202ec, and \t ü stay'
    """
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Printed:
    """A stream on which only printable text arrives.

    A carriage return that begins a text stays: progress bars of other libraries begin with it.

    Args:
        stream: where the text goes; everything but writing is its own.
    """

    buffer = None
    """There is no way around: click would write to the buffer of a stream in ASCII."""

    def __init__(self, stream: TextIO) -> None:
        self.steered = stream

    def write(self, text: str | bytes) -> int:
        """Write text, printable; click writes bytes too where there is no other way."""
        if isinstance(text, bytes):
            text = text.decode(self.steered.encoding or "utf-8", "replace")
        start = text.startswith("\r")
        self.steered.write(text[:start] + printable(text[start:]))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write texts, printable."""
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.steered, name)


_FORMULA = re.compile(
    r"^(?=[\t\r\n])|(?:^|(?<=[;\t]))(?=[\s'\"\u200b-\u200f\ufeff]*[=+\-@＝＋－＠])"
)
"""Where a cell begins that a spreadsheet would run; it may split a text at ``;`` or a tab."""


def inert_cell(text: str) -> str:
    """Return a text that no spreadsheet runs: an apostrophe before what would begin a formula.

    >>> inert_cell("=cmd()"), inert_cell("-3.2"), inert_cell("a-b; @x")
    ("'=cmd()", '-3.2', "a-b;' @x")
    """
    try:
        float(text)
    except ValueError:
        return _FORMULA.sub("'", text)
    return text


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> str:
    r"""Return a table as CSV, each text as an ``inert_cell``; ``None`` is an empty cell.

    Args:
        columns: their heads.
        rows: their cells, in the order of the columns or by their heads.

    >>> csv_text(["key", "gap"], [["=a.png", -3.2], {"gap": 1}])
    "key,gap\n'=a.png,-3.2\n,1\n"
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    for row in (columns, *rows):
        cells = [row.get(name) for name in columns] if isinstance(row, Mapping) else row
        writer.writerow(["" if cell is None else inert_cell(str(cell)) for cell in cells])
    return out.getvalue()
