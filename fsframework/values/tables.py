"""Small tables, as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

__all__ = ["footnotes", "html_table", "text_table"]


def text_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a plain table with two spaces between columns.

    >>> print(text_table(["measure", "value"], [["wacc-gap", "16.9 ± 1.8 %"]]))
    measure   value
    wacc-gap  16.9 ± 1.8 %
    """
    lines = [tuple(columns), *map(tuple, rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return an HTML table; every cell is shown as text.

    >>> html_table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


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
