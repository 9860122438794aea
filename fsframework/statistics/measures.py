"""Measures by name: a statistic on one arm, or on the contrast of two."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fsframework.values import Contrast, measure_name

__all__ = ["DEFAULT_STATISTICS", "Measure", "measures_of"]

DEFAULT_STATISTICS = ("acc", "wacc")
"""Default statistics of a run or a comparison; the gap compared is that of the last."""


@dataclass(frozen=True)
class Measure:
    """A statistic on one arm, or on the contrast of two.

    Args:
        statistic: name of the statistic.
        arms: the arm, or the two arms of a gap, the control first; empty if arms have no names.
        relative: whether a gap is divided by what the control arm has above guessing.

    >>> Measure("wacc", ("random", "biased")).name
    'wacc-gap'
    """

    statistic: str
    arms: tuple[str, ...] = ()
    relative: bool = False

    @property
    def name(self) -> str:
        """Name of the measure, such as ``wacc-biased`` or ``wacc-gap``."""
        return measure_name(self.statistic, self.arms, relative=self.relative)

    @property
    def is_gap(self) -> bool:
        """Whether it is the difference of two arms."""
        return len(self.arms) == 2


def measures_of(statistic: str, arms: Iterable[str], contrast: Contrast | None) -> list[Measure]:
    """Return the measures of a statistic: in every arm, drop and gap where arms are compared.

    >>> [one.name for one in measures_of("acc", ["iid", "ood"], Contrast("iid", "ood"))]
    ['acc-iid', 'acc-ood', 'acc-drop', 'acc-gap']
    """
    found = [Measure(statistic, (arm,)) for arm in arms]
    if contrast is not None:
        found += [Measure(statistic, contrast.arms, relative) for relative in (True, False)]
    return found
