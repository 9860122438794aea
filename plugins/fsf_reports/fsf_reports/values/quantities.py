"""A number with its interval as tables and figures show it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

from fsframework.values import Estimate

__all__ = ["Quantity", "quantity_fields"]


@dataclass(frozen=True)
class Quantity:
    """A number with its interval, measured or printed elsewhere.

    Args:
        value: the number.
        low: lower bound of its interval, NaN where there is none; ``high`` the upper bound.
        unit: ``%``, or empty.
        exact: whether it is known exactly, as a count or a setting is: shown in full, and no
            interval is missing.

    >>> Quantity.around(32.07, 0.58).text()
    '32.07 ± 0.58'
    >>> Quantity(0.96, 0.9, 1.0, unit="").text()
    '0.96 [0.90, 1.00]'
    >>> Quantity.known(38400).text(), Quantity.known(0.0005).text()
    ('38,400', '0.0005')
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    unit: str = "%"
    exact: bool = False

    @classmethod
    def known(cls, value: float) -> Self:
        """Return a number that is known exactly."""
        return cls(float(value), unit="", exact=True)

    @classmethod
    def around(cls, value: float, half_width: float, unit: str = "%") -> Self:
        """Return a value with a symmetric interval."""
        return cls(value, value - half_width, value + half_width, unit)

    @classmethod
    def of(cls, estimate: Estimate) -> Self:
        """Return an estimate; shares of 1 become percent."""
        factor, unit = (100, "%") if estimate.share else (1, "")
        return cls(factor * estimate.value, factor * estimate.low, factor * estimate.high, unit)

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval."""
        return not math.isnan(self.low)

    @property
    def half_width(self) -> float:
        """Half the length of the interval, NaN where there is none."""
        return round((self.high - self.low) / 2, 12)

    def minus(self, other: Quantity) -> Quantity:
        """Return the difference to an independent quantity.

        Its half-width is the root of the sum of both squared. Where only one of them has an
        interval, the other counts as exact.
        """
        halves = [q.half_width for q in (self, other) if q.has_interval]
        half = math.hypot(*halves) if halves else math.nan
        difference = Quantity.around(self.value - other.value, half, self.unit)
        return replace(difference, exact=self.exact and other.exact)

    def text(self, *, signed: bool = False) -> str:
        """Return value and interval with two decimals; an exact value in full."""
        if self.exact:
            return f"{self.value:+,.10g}" if signed else f"{self.value:,.10g}"
        value = f"{self.value:+z.2f}" if signed else f"{self.value:z.2f}"
        if not self.has_interval:
            return value
        if self.unit:
            return f"{value} ± {self.half_width:.2f}"
        return f"{value} [{self.low:.2f}, {self.high:.2f}]"


def quantity_fields(
    name: str, quantity: Quantity | None, *, bounds: bool = False
) -> dict[str, Any]:
    """Return a number and its half-width as JSON values; what is missing is null."""
    q = quantity or Quantity(math.nan)
    ends = {f"{name}_low": _known(q.low), f"{name}_high": _known(q.high)} if bounds else {}
    return {name: _known(q.value), f"{name}_half_width": _known(q.half_width), **ends}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)
