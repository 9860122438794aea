"""What the numbers of a headline say, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fsframework.values import Estimate

if TYPE_CHECKING:
    from fsframework.statistics.headline import Column

__all__ = ["sentences_on"]

_MOST_NAMES = 3
_MOST_GROUPS = 4


def sentences_on(groups: Sequence[Sequence[Column]], places: Sequence[str]) -> Iterator[str]:
    """Yield the answer: which gap is smallest and largest, or what a single method loses.

    Args:
        groups: the columns of each set of equal tasks.
        places: what tells each set from the others, before its first sentence.
    """
    told = [(columns, place) for columns, place in zip(groups, places, strict=True) if columns]
    for columns, place in told[:_MOST_GROUPS]:
        first, *others = _on_equal_tasks(columns)
        yield place + first
        yield from others
    if len(told) > _MOST_GROUPS:
        yield f"The table has {len(told) - _MOST_GROUPS} more sets of tasks."


def _on_equal_tasks(columns: Sequence[Column]) -> Iterator[str]:
    main = columns[-1]
    if not main.measure.is_gap:
        yield from _on_values(main)
        return
    of_arms = [
        column
        for column in columns
        if column.measure.statistic == main.measure.statistic and not column.measure.is_gap
    ]
    if len(main.values) == 1:
        yield _loss(main, of_arms)
        return
    yield from _extremes(main, of_arms[0])


def _loss(gap: Column, of_arms: Sequence[Column]) -> str:
    """Return what one method loses from the control arm to the tested one."""
    ((label, estimate),) = gap.values.items()
    called = gap.name(label)
    control, tested = (column.values[label] for column in of_arms)
    ends = f"{_short(control)} to {_short(tested)}"
    arms = f"of {gap.statistic} from {gap.measure.arms[0]} to {gap.measure.arms[1]} tasks"
    if estimate.low > 0:
        return f"{called} loses {_points(estimate)} {arms} ({ends})."
    if estimate.high < 0:
        return f"{called} gains {_points(estimate, -1)} {arms} ({ends})."
    return (
        f"No loss {arms} is shown for {called}: the gap is {_points(estimate)}, an interval that "
        f"contains 0 ({ends})."
    )


def _extremes(gap: Column, control: Column) -> Iterator[str]:
    """Yield which methods have the smallest and the largest gap, and what that does not show."""
    best, tied = gap.best, gap.tied
    if len(tied) == len(gap.values) - 1:
        low, high = (f(e.value for e in gap.values.values()) for f in (min, max))
        factor, unit = _unit(gap.values[best])
        every = "both" if len(gap.values) == 2 else f"all {len(gap.values)}"
        yield (
            f"No {gap.statistic} gap can be distinguished from the smallest, that of "
            f"{gap.name(best)}; {every} lie between {factor * low:.1f} and "
            f"{factor * high:.1f}{unit}."
        )
    else:
        others = _others(gap)
        smallest = f"{gap.name(best)} has the smallest {gap.statistic} gap"
        yield f"{smallest}, {_points(gap.values[best])}{others}."
        worst = max(gap.values, key=lambda label: gap.values[label].value)
        yield f"{gap.name(worst)} has the largest, {_points(gap.values[worst])}."
    if (ahead := control.best) != best and best not in control.tied:
        factor, unit = _unit(control.values[best])
        behind = factor * abs(control.values[ahead].value - control.values[best].value)
        yield (
            f"But {control.label} of {gap.name(best)} is {behind:.1f}{unit} worse than that of "
            f"{gap.name(ahead)}: a method that answers worse has less to lose."
        )


def _on_values(column: Column) -> Iterator[str]:
    """Yield the best and the worst value of a measure that is not a gap."""
    best = column.best
    if len(column.values) == 1:
        yield f"{column.name(best)} has {column.label} {column.values[best]}."
        return
    value = column.values[best]
    yield f"{column.name(best)} has the best {column.label}, {value}{_others(column)}."


def _others(column: Column) -> str:
    """Return which rows cannot be distinguished from the best."""
    tied = [column.name(label) for label in column.tied]
    return f"; {_named(tied)} cannot be distinguished from it" if tied else ""


def _unit(estimate: Estimate) -> tuple[float, str]:
    return (100, " points") if estimate.share else (1, "")


def _points(estimate: Estimate, sign: int = 1) -> str:
    factor, unit = _unit(estimate)
    value = f"{sign * factor * estimate.value:.1f}"
    if estimate.low != estimate.low:
        return value + unit
    return f"{value} ± {factor * estimate.half_width:.1f}{unit}"


def _short(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f} %" if estimate.share else f"{estimate.value:.4g}"


def _named(labels: Sequence[str]) -> str:
    """Return names as a list in words.

    >>> _named(["a", "b"]), _named(["a", "b", "c", "d", "e"])
    ('a and b', 'a, b, c and 2 more')
    """
    shown = list(labels[:_MOST_NAMES])
    if len(labels) > _MOST_NAMES:
        return f"{', '.join(shown)} and {len(labels) - _MOST_NAMES} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
