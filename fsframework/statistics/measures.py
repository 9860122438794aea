"""What is compared: a statistic on one arm, or on the contrast of two, found by its name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from fsframework.errors import OptionError, argument, close_matches
from fsframework.values import Contrast, measure_name

__all__ = ["DEFAULT_STATISTICS", "Measure", "measures_named", "usual_measures"]

DEFAULT_STATISTICS = ("acc", "wacc")
"""Statistics that are compared where none is asked for; the gap is that of the last."""


@dataclass(frozen=True)
class Measure:
    """A statistic on one arm, or on the contrast of two.

    Args:
        statistic: name of the statistic.
        arms: the arm, or the two arms of a gap, the control first; empty where arms have no names.

    >>> Measure("wacc", ("random", "biased")).name
    'wacc-gap'
    """

    statistic: str
    arms: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the measure, such as ``wacc-biased`` or ``wacc-gap``."""
        return measure_name(self.statistic, self.arms)

    @property
    def is_gap(self) -> bool:
        """Whether it is the difference of two arms."""
        return len(self.arms) == 2


def usual_measures(arms: Iterable[str], contrast: Contrast | None) -> list[Measure]:
    """Return what is compared by default: Acc and wAcc in every arm, and the gap of wAcc.

    >>> [one.name for one in usual_measures(["iid", "ood"], Contrast("iid", "ood", paired=True))]
    ['acc-iid', 'acc-ood', 'wacc-iid', 'wacc-ood', 'wacc-gap']
    """
    arms = list(arms)
    found = [Measure(name, (arm,)) for name in DEFAULT_STATISTICS for arm in arms]
    return found if contrast is None else [*found, Measure(DEFAULT_STATISTICS[-1], contrast.arms)]


def measures_named(
    names: Sequence[str],
    statistics: Collection[str],
    arms: Sequence[str],
    contrast: Contrast | None,
) -> list[Measure]:
    """Return the measures that names stand for.

    A name is that of a statistic, for the statistic in every arm; or that of a measure, such as
    ``wacc-biased`` or ``wacc-gap``; or ``gap``, short for ``wacc-gap``. Names are never cut: each
    is looked up among those that the statistics and arms come to. Where one name stands for a
    statistic and for a measure of another statistic, it is the statistic.

    Args:
        names: what is asked for.
        statistics: names of the statistics there are.
        arms: that the results share.
        contrast: the two arms that are compared, if any.

    Raises:
        OptionError: a name stands for nothing.

    >>> pair = Contrast("random", "biased")
    >>> [m.arms for m in measures_named(["range-gap"], ["range-gap"], ["random", "biased"], pair)]
    [('random',), ('biased',)]
    >>> measures_named(["range-gap"], ["acc", "range"], ["random", "biased"], pair)
    [Measure(statistic='range', arms=('random', 'biased'))]
    """
    measures = [Measure(statistic, (arm,)) for statistic in statistics for arm in arms]
    if contrast is not None:
        measures += [Measure(statistic, contrast.arms) for statistic in statistics]
    known = {measure.name: [measure] for measure in measures}
    if contrast is not None:
        known["gap"] = [Measure(DEFAULT_STATISTICS[-1], contrast.arms)]
    known |= {s: [Measure(s, (arm,)) for arm in arms] for s in statistics}
    found: list[Measure] = []
    for name in names:
        if name not in known:
            raise OptionError(_unknown(name, known, arms, contrast))
        found += known[name]
    return list(dict.fromkeys(found))


def _unknown(
    name: str, known: Collection[str], arms: Sequence[str], contrast: Contrast | None
) -> str:
    gap = "" if contrast is None else ", or their gap"
    share = "only the arm" if len(arms) == 1 else "the arms"
    return (
        f"{argument('statistic')}: nothing is called {name!r}{close_matches(name, known)}; give "
        f"a statistic, or a statistic in one of the arms{gap}, such as "
        f"{', '.join(sorted(known)[:6])} (the results share {share} {', '.join(arms)})"
    )
