"""Everything that is drawn on the terminal."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from fsframework.interfaces.dataset import About
from fsframework.values import Estimate

__all__ = [
    "chart",
    "class_counts",
    "estimates_table",
    "print_json",
    "print_problems",
    "print_table",
    "shown",
    "sparkline",
    "text_table",
]

_NAMES = {
    "acc-R": "Acc",
    "acc-A": "Acc-A",
    "acc-gap": "Acc gap = Acc − Acc-A",
    "wacc-R": "wAcc-R",
    "wacc-A": "wAcc-A",
    "wacc-gap": "gap = wAcc-R − wAcc-A",
}
_NO_LIMIT = 100_000
_MOST_PROBLEMS = 20


def print_json(value: Any) -> None:
    """Print JSON on standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str] = ()
) -> None:
    """Print a plain table; wide cells wrap on a terminal and stay whole in a pipe.

    Args:
        spare: columns that a narrow terminal does without, the first of them first.
    """
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else _NO_LIMIT
    shown = fitting(columns, rows, spare, room)
    print(text_table([columns[i] for i in shown], [[row[i] for i in shown] for row in rows]))


def fitting(
    columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str], room: int
) -> list[int]:
    """Return the columns that stay so that no cell need wrap, as far as others may go.

    >>> fitting(["run", "words", "Acc"], [["one", "green;blue", "50 %"]], ["words"], room=12)
    [0, 2]
    """
    widths = [max(map(len, cells)) + 2 for cells in zip(columns, *rows, strict=True)]
    shown = list(range(len(columns)))
    for name in spare:
        if sum(widths[i] for i in shown) - 2 > room:
            shown.remove(columns.index(name))
    return shown


def class_counts(classes: int, images: int) -> str:
    """Return numbers in words; 0 images are those that are not published.

    >>> class_counts(1, 20), class_counts(64, 0)
    ('1 class, 20 images', '64 classes')
    """
    told = f"{classes:,} {'class' if classes == 1 else 'classes'}"
    return f"{told}, {images:,} {'image' if images == 1 else 'images'}" if images else told


def print_problems(problems: Sequence[str], about: About | None, published: str | None) -> None:
    """Print what is wrong with data that can be used, or that nothing is.

    Args:
        about: what is published of the data, if anything.
        published: what to say where the counts are those published; ``None`` where there are none.
    """
    for problem in problems[:_MOST_PROBLEMS]:
        print(f"problem: {problem}")
    if len(problems) > _MOST_PROBLEMS:
        print(f"and {len(problems) - _MOST_PROBLEMS} more problems (fsf data check names all)")
    if problems:
        note = "" if about is None else "; every run on it carries a note of this"
        print(f"it can be used as it is{note}")
    elif about is not None and published is None:
        print("nothing is published to compare with")
    elif about is not None:
        print(f"{published}: its counts are those published")


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a plain table; wide cells wrap on a terminal and stay whole in a pipe."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    # In a pipe there is no width to keep to, and a wrapped row cannot be parsed.
    width = None if sys.stdout.isatty() else _NO_LIMIT
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def shown(estimate: Estimate) -> str:
    """Return value and half-width as text, shares in percent.

    >>> shown(Estimate("acc-R", 0.5, 0.49, 0.51, 0.95, "closed", False, "t", 9, 9, share=True))
    '50.0 ± 1.0 %'
    """
    factor, unit, digits = (100, " %", 1) if estimate.share else (1, "", 4)
    value = f"{factor * estimate.value:.{digits}f}"
    if math.isnan(estimate.low):
        return f"{value}{unit} (no interval from one task)"
    return f"{value} ± {factor * estimate.half_width:.{digits}f}{unit}"


def estimates_table(estimates: Mapping[str, Estimate]) -> None:
    """Print estimates with all that must be known to read them."""
    order = {name: i for i, name in enumerate(_NAMES)}
    rows = [
        (
            _NAMES.get(name, name),
            shown(e),
            f"{100 * e.level:g} % {e.kind}, {e.estimator}",
            f"{e.n_tasks:,}",
            f"{e.n_images:,}" if e.n_images else "not known",
            e.query_batch,
        )
        for name, e in sorted(estimates.items(), key=lambda item: (order.get(item[0], 99), item[0]))
    ]
    print_table(("measure", "value", "interval", "tasks", "images", "queries by"), rows)


_BLOCKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = 8


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Return a curve as one line of blocks from the least to the greatest value.

    >>> sparkline([0.0, 1.0, 2.0, 7.0]), sparkline([3.0, 3.0]), sparkline([1.0, 3.0, 5.0, 7.0], 2)
    ('▁▂▃█', '▁▁', '▁█')
    """
    values = _averaged(values, width)
    low, span = min(values), (max(values) - min(values)) or 1.0
    return "".join(_BLOCKS[round((v - low) / span * (_EIGHTHS - 1))] for v in values)


def chart(series: Sequence[float], height: int = 10, width: int = 72) -> list[str]:
    """Return a curve as lines of blocks with its greatest and least value beside it.

    >>> print("\\n".join(chart([0.0, 1.0, 2.0], height=2)))
      2.000 │  █
      0.000 │▁██
    """
    series = _averaged(series, width)
    low, span = min(series), (max(series) - min(series)) or 1.0
    eighths = [max(1, round((v - low) / span * height * _EIGHTHS)) for v in series]
    lines = []
    for row in range(height - 1, -1, -1):
        cells = (max(0, min(_EIGHTHS, e - row * _EIGHTHS)) for e in eighths)
        drawn = "".join(" " if c == 0 else _BLOCKS[c - 1] for c in cells)
        label = {height - 1: f"{low + span:7.3f}", 0: f"{low:7.3f}"}.get(row, " " * 7)
        lines.append(f"{label} │{drawn}".rstrip())
    return lines


def _averaged(values: Sequence[float], most: int) -> Sequence[float]:
    """Return means of equal parts where there are more values, so that none is left out."""
    if len(values) <= most:
        return values
    edges = [round(i * len(values) / most) for i in range(most + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
