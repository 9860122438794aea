"""Small tables, as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fsframework._text import printable

__all__ = ["footnotes", "html_table", "text_table"]

_NO_LIMIT = 100_000


def text_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None
) -> str:
    """Return a plain table with two spaces between columns.

    Args:
        columns: their heads.
        rows: their cells.
        width: characters per line; wide cells wrap to fit, and without a width none does.

    >>> print(text_table(["measure", "value"], [["wacc-gap", "16.9 ± 1.8 %"]]))
    measure   value
    wacc-gap  16.9 ± 1.8 %
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="none")
    for column in columns:
        table.add_column(Text(printable(column)), overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(width=width or _NO_LIMIT, color_system=None, force_jupyter=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return an HTML table; every cell is shown as text.

    >>> html_table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    # Imported late: it takes a while, and few tables are shown in a notebook.
    from html import escape

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
