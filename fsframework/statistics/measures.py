"""Measures by name: a statistic on one arm, or on the contrast of two."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from fsframework.errors import OptionError, argument, close_matches
from fsframework.values import Contrast, measure_name

__all__ = ["DEFAULT_STATISTICS", "Measure", "measures_named", "measures_of"]

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


def measures_named(
    names: Sequence[str],
    statistics: Collection[str],
    arms: Sequence[str],
    contrast: Contrast | None,
) -> list[Measure]:
    """Return the measures that names stand for.

    A name is that of a statistic, meaning the statistic in every arm; or that of a measure, such as
    ``wacc-biased`` or ``wacc-gap``; or ``gap``, short for ``wacc-gap``. Names are not parsed: each
    is looked up among the names of all measures of the statistics and arms. A name of both a
    statistic and a measure of another statistic means the statistic.

    Args:
        names: of the requested measures.
        statistics: names of the known statistics.
        arms: that the results share.
        contrast: the two arms that are compared, if any.

    Raises:
        OptionError: a name is unknown.

    >>> pair = Contrast("random", "biased")
    >>> [m.arms for m in measures_named(["range-gap"], ["range-gap"], ["random", "biased"], pair)]
    [('random',), ('biased',)]
    >>> [m.name for m in measures_named(["range-gap"], ["acc", "range"], ["iid", "ood"], pair)]
    ['range-gap']
    """
    every = {statistic: measures_of(statistic, arms, contrast) for statistic in statistics}
    known = {one.name: [one] for own in every.values() for one in own}
    if contrast is not None:
        known["gap"] = [Measure(DEFAULT_STATISTICS[-1], contrast.arms)]
    known |= {name: [one for one in own if not one.is_gap] for name, own in every.items()}
    for name in names:
        if name not in known:
            examples = ", ".join(one.name for one in next(iter(every.values()), []))
            raise OptionError(
                f"{argument('statistic')}: no measure is called {name!r}"
                f"{close_matches(name, known)}; give a statistic ({', '.join(statistics)}), or one "
                f"in the arms that all results share, as in {examples}"
            )
    return list(dict.fromkeys(one for name in names for one in known[name]))
