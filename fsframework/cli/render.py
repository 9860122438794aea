"""Tables, small curves and JSON on the terminal."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from fsframework.records import RunRecord
    from fsframework.statistics.headline import Headline
    from fsframework.values import Estimate, TableDeclaration

__all__ = [
    "estimates_table",
    "print_declared",
    "print_headline",
    "print_json",
    "print_table",
    "print_text",
    "sparkline",
    "text_table",
]

_NO_LIMIT = 100_000


def print_json(value: Any) -> None:
    """Print JSON on standard output, in ASCII where that cannot encode every character."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    print(text)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str] = ()
) -> None:
    """Print a plain table; wide cells wrap on a terminal and stay whole in a pipe.

    Args:
        spare: columns that are left out on a narrow terminal, in this order.
    """
    shown = fitting(columns, rows, spare, _room())
    print(text_table([columns[i] for i in shown], [[row[i] for i in shown] for row in rows]))


def fitting(
    columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str], room: int
) -> list[int]:
    """Return the columns that remain if ``spare`` ones are left out until no cell wraps.

    >>> fitting(["run", "words", "Acc"], [["one", "green;blue", "50 %"]], ["words"], room=12)
    [0, 2]
    """
    widths = [max(map(len, cells)) + 2 for cells in zip(columns, *rows, strict=True)]
    shown = list(range(len(columns)))
    for name in spare:
        if sum(widths[i] for i in shown) - 2 > room:
            shown.remove(columns.index(name))
    return shown


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a plain table; wide cells wrap on a terminal and stay whole in a pipe."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    # A pipe has no width to keep to, and a wrapped row cannot be parsed.
    width = None if sys.stdout.isatty() else _NO_LIMIT
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def print_headline(headline: Headline) -> None:
    """Print a headline so that it fits the terminal; in a pipe nothing wraps or is cut."""
    print(headline.text(_room()))


def print_declared(table: TableDeclaration) -> None:
    """Print a declared table so that it fits the terminal; in a pipe nothing wraps or is cut."""
    from fsframework.cli.declared import table_lines

    for line in table_lines(table, _room()):
        print(line)


def print_text(text: str) -> None:
    """Print a sentence, on a terminal in lines that fit."""
    print(textwrap.fill(text, _room(), break_on_hyphens=False))


def _room() -> int:
    """Return the characters of a line."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _NO_LIMIT


def estimates_table(record: RunRecord, estimates: Mapping[str, Estimate] | None = None) -> None:
    """Print estimates with everything needed to read them.

    Args:
        record: of a run, which has their names in tables.
        estimates: by default those of the run.
    """
    shown = (record.estimates if estimates is None else estimates).values()
    over_seeds = any(e.n_seeds > 1 for e in shown)
    rows = [
        (
            record.label(e),
            str(e),
            f"{100 * e.level:g} % {e.scope}, {e.estimator}",
            *((e.between_seeds, str(e.n_seeds)) if over_seeds else ()),
            f"{e.n_tasks:,}{' pairs' if e.paired else ''}",
            f"{e.n_images:,}" if e.n_images else "not known",
            e.query_batch,
        )
        for e in shown
    ]
    seeds = ("between seeds", "seeds") if over_seeds else ()
    print_table(("measure", "value", "interval", *seeds, "tasks", "images", "queries by"), rows)


_BLOCKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = 8


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Return a curve as one line of blocks, scaled from its least to its greatest value.

    More values than ``width`` are averaged in as many parts.

    >>> sparkline([0.0, 1.0, 2.0, 7.0]), sparkline([3.0, 3.0]), sparkline([1.0, 3.0, 5.0, 7.0], 2)
    ('▁▂▃█', '▁▁', '▁█')
    """
    if len(values) > width:
        edges = [round(i * len(values) / width) for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, span = min(values), (max(values) - min(values)) or 1.0
    return "".join(_BLOCKS[round((v - low) / span * (_EIGHTHS - 1))] for v in values)
