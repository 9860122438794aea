"""Curves of block characters for the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

__all__ = ["chart"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = 8


def chart(series: Sequence[float], height: int = 10, width: int = 72) -> list[str]:
    """Return a curve as lines of blocks, labelled with its greatest and least value.

    >>> print("\\n".join(chart([0.0, 1.0, 2.0], height=2)))
      2.000 │  █
      0.000 │▁██
    """
    if len(series) > width:
        edges = [round(i * len(series) / width) for i in range(width + 1)]
        series = [sum(series[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, span = min(series), (max(series) - min(series)) or 1.0
    eighths = [max(1, round((v - low) / span * height * _EIGHTHS)) for v in series]
    lines = []
    for row in range(height - 1, -1, -1):
        cells = (max(0, min(_EIGHTHS, e - row * _EIGHTHS)) for e in eighths)
        drawn = "".join(" " if c == 0 else _BLOCKS[c - 1] for c in cells)
        label = {height - 1: f"{low + span:7.3f}", 0: f"{low:7.3f}"}.get(row, " " * 7)
        lines.append(f"{label} │{drawn}".rstrip())
    return lines
