"""Small tables, as text and as HTML."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fsframework._text import printable
from fsframework.errors import FsfError, install_hint

__all__ = ["data_frame", "first_rows", "footnotes", "html_table", "text_table"]

_BETWEEN = "  "
_NO_LIMIT = 100_000
_SCREEN = 30
"""Rows of a table that a notebook or a Python prompt shows."""


def text_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int | None = None,
    spare: Sequence[str] = (),
) -> str:
    """Return a plain table with two spaces between columns.

    Args:
        columns: their heads.
        rows: their cells.
        width: characters per line; wide cells wrap to fit, and without a width none does.
        spare: columns that are left out, in this order, until no cell wraps.

    >>> print(text_table(["measure", "value"], [["wacc-gap", "16.9 ± 1.8 %"]]))
    measure   value
    wacc-gap  16.9 ± 1.8 %
    >>> print(text_table(["run", "words", "Acc"], [["one", "green;blue", "50 %"]], 12, ["words"]))
    run  Acc
    one  50 %
    """
    from rich.cells import cell_len

    given = [columns, *rows]
    table = [[printable(cell) for cell in row] for row in given]
    lines = [[cell.expandtabs(8).splitlines() or [""] for cell in row] for row in table]
    columns_of_lines = zip(*lines, strict=True)
    widths = [
        max(cell_len(line) for cell in column for line in cell) for column in columns_of_lines
    ]
    room = (width or _NO_LIMIT) - len(_BETWEEN) * (len(columns) - 1)
    if sum(widths) > room and spare:
        left = columns.index(spare[0])
        head, *kept = ([*row[:left], *row[left + 1 :]] for row in given)
        return text_table(head, kept, width, spare[1:])
    if sum(widths) > room:
        widths = _narrowed(widths, room)
        lines = [[_wrapped(c, n) for c, n in zip(row, widths, strict=True)] for row in table]
    padded = []
    for row in lines:
        for parts in itertools.zip_longest(*row, fillvalue=""):
            spaces = [" " * (n - cell_len(p)) for p, n in zip(parts, widths, strict=True)]
            line = _BETWEEN.join(p + space for p, space in zip(parts, spaces, strict=True))
            padded.append(line.rstrip())
    return "\n".join(padded)


def _narrowed(widths: Sequence[int], room: int) -> list[int]:
    """Return widths of columns that fit, the widest made narrower."""
    found = list(widths)
    while sum(found) > room and max(found) > 1:
        found[found.index(max(found))] -= 1
    return found


def _wrapped(cell: str, width: int) -> list[str]:
    """Return the lines of a cell; long words are folded."""
    from rich.console import Console
    from rich.text import Text

    console = Console(color_system=None, force_jupyter=False)
    return [line.plain.rstrip() for line in Text(cell).wrap(console, width, overflow="fold")]


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return an HTML table of the first rows; every cell is shown as text.

    >>> html_table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    # Imported late: it takes a while, and few tables are shown in a notebook.
    from html import escape

    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    shown = first_rows(rows)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in shown
    )
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def first_rows(rows: Iterable[Sequence[str]]) -> list[Sequence[str]]:
    """Return as many rows as a screen has room for, and one that says how many there are more."""
    known = list(rows)
    more = len(known) - _SCREEN
    if more <= 0:
        return known
    return [*known[:_SCREEN], (f"… {more:,} more", *[""] * (len(known[0]) - 1))]


def data_frame(data: Any) -> Any:
    """Return rows or columns as a pandas ``DataFrame``.

    Raises:
        FsfError: pandas is not installed.
    """
    try:
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise FsfError(f"to_pandas needs pandas: {install_hint('pandas')}") from None
    return pd.DataFrame(data)


def footnotes(cautions: Mapping[str, Sequence[str]]) -> list[str]:
    """Return each caution once, with the names of its rows.

    Args:
        cautions: cautions by name of the row.

    >>> footnotes({"a": ["x"], "b": ["x", "y"], "c": []})
    ['a, b: x', 'b: y']
    """
    of: dict[str, list[str]] = {}
    for label, sentences in cautions.items():
        for sentence in sentences:
            of.setdefault(sentence, []).append(label)
    return [f"{_some(tuple(dict.fromkeys(labels)))}: {caution}" for caution, labels in of.items()]


def _some(labels: Sequence[str], most: int = 4) -> str:
    more = len(labels) - most
    return ", ".join(labels[:most]) + (f" and {more} more" if more > 0 else "")
