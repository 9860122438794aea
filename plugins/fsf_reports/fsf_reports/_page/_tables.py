"""Declared tables as HTML."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from fsf_reports.values import Entry, Quantity, TableDeclaration, shown_columns

__all__ = ["html_of_table"]

_MOST_ROWS_AT_ONCE, _MOST_ROWS_ON_PAPER = 14, 40
_WIDEST = 4
"""A bar shows an interval up to so many times the median of its column."""
_SMALL = 0.1
_SIGNS = {"best": "*", "tied": "~"}
"""As in the tables of the command line."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class _Column:
    """A column of numbers.

    Args:
        name: its heading.
        values: one for each row of the table, ``None`` where there is none.
        entries: the entries they are of.
        kind: as in ``TableColumn``.
    """

    name: str
    values: tuple[Quantity | None, ...]
    entries: tuple[Entry | None, ...]
    kind: str = "measured"

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest bound, widened to zero where one is near it."""
        known = [q for q in self.values if q is not None and not math.isnan(q.value)]
        halves = [(q.high - q.low) / 2 for q in known if q.has_interval]
        most = _WIDEST * statistics.median(halves) if halves else 0.0
        # One very wide interval would press all others into a corner.
        ends = [
            end
            for q in known
            for end in (q.value, max(q.low, q.value - most), min(q.high, q.value + most))
            if not math.isnan(end)
        ]
        low, high = min(ends, default=0.0), max(ends, default=1.0)
        if low > 0 and low < 0.5 * high:
            low = 0.0
        return low, high if high > low else low + 1.0


def html_of_table(table: TableDeclaration, identity: str) -> str:
    """Return a table with caption and footnotes; numbers have their intervals as small bars.

    Args:
        identity: unique on the page.
    """
    rows = table.rows
    columns = [_Column(one.name, one.values, one.entries, one.kind) for one in shown_columns(table)]
    reasons = _Reasons(table)
    head = "".join(f'<th scope="col" dir="auto">{escape(name)}</th>' for name in table.row_names)
    head += "".join(
        f'<th scope="col" class="num" dir="auto">{escape(c.name)}</th>' for c in columns
    )
    body = "".join(
        f"<tr>{_names(row)}{''.join(_cell(c, place, reasons) for c in columns)}</tr>"
        for place, row in enumerate(rows)
    )
    below = "".join(f'<li dir="auto">{escape(note)}</li>' for note in (*reasons, *table.notes))
    title = escape(table.title)
    name = escape(table.name)
    long = " long" if len(rows) > _MOST_ROWS_AT_ONCE else ""
    long += " longer" if len(rows) > _MOST_ROWS_ON_PAPER else ""
    return (
        f'<div class="table"><div class="scroll{long}" role="region" aria-label="{name}" '
        'tabindex="0">'
        f'<table id="{identity}" data-name="{name}"><caption dir="auto"><span><b>{name}</b>'
        f"{'. ' if title else ''}{title}</span></caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        + (f'<ul class="below">{below}</ul>' if below else "")
        + "</div>"
    )


class _Reasons(Sequence[str]):
    """Footnotes that say why values are missing, each once."""

    def __init__(self, table: TableDeclaration) -> None:
        self._reasons = table.reasons

    def sign(self, reason: str) -> str:
        """Return the letter of a reason."""
        place = self._reasons.index(reason)
        return _LETTERS[place] if place < len(_LETTERS) else str(place + 1)

    def __getitem__(self, index):  # type: ignore[no-untyped-def,override]
        return f"{self.sign(self._reasons[index])}: {self._reasons[index]}"

    def __len__(self) -> int:
        return len(self._reasons)


def _names(row: tuple[str, ...]) -> str:
    return "".join(f'<th scope="row" dir="auto">{escape(name)}</th>' for name in row)


def _cell(column: _Column, place: int, reasons: _Reasons) -> str:
    entry, quantity = column.entries[place], column.values[place]
    if quantity is None or math.isnan(quantity.value):
        note = ""
        if column.kind == "measured" and entry is not None and entry.reason:
            note = f"<sup>{reasons.sign(entry.reason)}</sup>"
        return f'<td class="num" data-value="" data-text="–">–{note}</td>'
    signed = column.kind == "difference"
    text = _text(quantity, signed=signed)
    printed = escape(text.replace("-", "−"))
    shown, hidden, mark = f"<span>{printed}</span>", "", ""
    if column.kind == "measured" and entry is not None and entry.mark:
        word = "best" if entry.mark == "best" else "not distinguishable from the best"
        mark = f' data-mark="{entry.mark}"'
        shown = f'<span class="{entry.mark}">{printed}</span>'
        sign = _SIGNS[entry.mark]
        hidden = f'<span class="sign" aria-hidden="true">{sign}</span>'
        hidden += f'<span class="hidden"> ({word})</span>'
    # A single interval has nothing to be compared with.
    alone = len(column.values) == 1 or column.kind == "difference"
    bar = "" if alone else _whisker(quantity, column.range)
    return (
        f'<td class="num" data-value="{quantity.value!r}" data-text="{escape(text)}"{mark}>'
        f"{shown}{hidden}{bar}</td>"
    )


def _text(quantity: Quantity, *, signed: bool) -> str:
    """Return a count as a whole number, and any other value as tables print it."""
    if not quantity.unit and not quantity.has_interval and not quantity.exact:
        if quantity.value == int(quantity.value):
            return f"{int(quantity.value):,}"
        if abs(quantity.value) < _SMALL:
            return f"{quantity.value:.2g}" if abs(quantity.value) >= 1e-3 else "<0.001"
    return quantity.text(signed=signed)


def _whisker(quantity: Quantity, ends: tuple[float, float]) -> str:
    """Return the interval as a bar on the scale of its column."""
    if not quantity.has_interval:
        return ""
    low, high = ends
    left, middle, right = (
        min(100.0, max(0.0, 100 * (value - low) / (high - low)))
        for value in (quantity.low, quantity.value, quantity.high)
    )
    zero = -100 * low / (high - low)
    inside = 0 < zero < 100
    style = f"--l:{left:.2f}%;--w:{right - left:.2f}%;--m:{middle:.2f}%"
    style += f";--z:{zero:.2f}%" if inside else ""
    kind = "whisker zero" if inside else "whisker"
    return f'<span class="{kind}" aria-hidden="true" style="{style}"><i></i><b></b></span>'
