"""Sentences on the values of declared tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fsf_reports.values import Entry, TableDeclaration

__all__ = ["beside_printed", "conclusive", "per_column"]


def beside_printed(tables: Iterable[TableDeclaration]) -> Iterator[str]:
    """Yield how measured values lie beside printed ones, if there are any."""
    found = [e.difference for table in tables for e in table.entries if e.difference is not None]
    if not found:
        return
    values = np.array([one.value for one in found])
    if len(found) == 1:
        yield f"The measured value differs by {values[0]:+.1f} points from the printed one."
        return
    yield (
        f"The {len(found)} measured values with a printed one beside them differ from it by "
        f"{values.mean():+.1f} points on average ({values.min():+.1f} to {values.max():+.1f})."
    )


def conclusive(entries: Sequence[Entry]) -> tuple[int, int, int]:
    """Return how many differences are above 0 and below 0 by their intervals, and how many known.

    >>> from fsf_reports.values import Quantity
    >>> conclusive([Entry((str(x),), "gap", Quantity.around(x, 1.0)) for x in (-2, 0, 2, 3)])
    (2, 1, 4)
    """
    known = [entry.measured for entry in entries if entry.measured is not None]
    return sum(q.low > 0 for q in known), sum(q.high < 0 for q in known), len(known)


def per_column(entries: Iterable[Entry]) -> str:
    """Return the values of one row as a list in words.

    >>> from fsf_reports.values import Quantity
    >>> per_column([Entry(("a",), name, Quantity(5.25)) for name in ("SC1", "SC2")])
    '5.2 (SC1), 5.2 (SC2)'
    """
    known = ((entry, entry.measured) for entry in entries if entry.measured is not None)
    return ", ".join(f"{value.value:.1f} ({entry.column})" for entry, value in known)
