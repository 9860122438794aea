"""Numbers in text, read without importing NumPy."""

from __future__ import annotations

import math
import re

__all__ = ["parse_number"]

_DECIMAL = re.compile(r"[ \t\r\n]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t\r\n]*")


def parse_number(text: str) -> float | None:
    """Return the finite number that a text writes in decimals, or ``None``.

    Python alone also reads ``1_0`` as 10, digits of other scripts, ``nan`` and ``inf``; in a table
    these are misprints or missing values.

    >>> parse_number(" 2.5e-1 "), parse_number("1_0"), parse_number("nan"), parse_number("1e400")
    (0.25, None, None, None)
    """
    if _DECIMAL.fullmatch(text) is None:
        return None
    number = float(text)
    return number if math.isfinite(number) else None
