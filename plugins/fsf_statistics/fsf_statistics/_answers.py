"""What a headline says in words: which methods lose least, and what may not be said."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from fsf_statistics._columns import FEWEST_ORDERED, Column, main_of, robustness_of
from fsf_statistics.ranking import rank
from fsframework.api.headlines import loss_told, points

__all__ = ["arms_of", "names_told", "near_guessing", "rank_agreements", "sentences"]

_MOST_NAMES = 3
_MOST_GROUPS = 4


def sentences(groups: Sequence[Sequence[Column]], places: Sequence[str]) -> Iterator[str]:
    """Yield the answer: which methods lose least, or what a single method loses.

    Of several sets of tasks, each has a text of its own, which may be several sentences.

    Args:
        groups: the columns of each set of equal tasks.
        places: what tells each set from the others.
    """
    told = [(columns, place) for columns, place in zip(groups, places, strict=True) if columns]
    for columns, place in told[:_MOST_GROUPS]:
        found = _on_equal_tasks(columns)
        yield from [f"{place}: {' '.join(found)}"] if place else found
    if (more := len(told) - _MOST_GROUPS) > 0:
        yield f"The table has {more} more {'set' if more == 1 else 'sets'} of tasks."


def rank_agreements(groups: Sequence[Sequence[Column]], places: Sequence[str]) -> Iterator[str]:
    """Yield how alike effective robustness ranks methods on each two sets of tasks."""
    found = [(robustness_of(columns), place) for columns, place in zip(groups, places, strict=True)]
    known = [(one, place) for one, place in found if one is not None]
    for (first, here), (second, there) in itertools.combinations(known, 2):
        names = [{one.name(label): e for label, e in one.values.items()} for one in (first, second)]
        shared = [name for name in names[0] if name in names[1]]
        if len(shared) < FEWEST_ORDERED:
            continue
        values = ([own[name].value for name in shared] for own in names)
        one = rank(*(np.array(own) for own in values))
        yield (
            f"Spearman's rank correlation of robustness between {here} and {there}: {one.rho:.2f} "
            f"[{one.rho_low:.2f}, {one.rho_high:.2f}] over {len(shared)} methods "
            f"({100 * one.level:g} % interval over methods)."
        )


def arms_of(gap: Column, columns: Sequence[Column]) -> list[Column]:
    """Return the columns of the arms whose difference is a gap."""
    own = [c for c in columns if c.measure.statistic == gap.measure.statistic]
    return [c for c in own if not c.measure.is_gap]


def names_told(names: Sequence[str]) -> str:
    """Return a few names and the number of the others.

    >>> names_told(["ncc"]), names_told(["a", "b", "c", "d", "e"])
    ('ncc', 'a, b, c and 2 more')
    """
    shown = list(names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        shown = [", ".join(shown), f"{len(names) - _MOST_NAMES} more"]
    elif len(shown) > 1:
        shown = [", ".join(shown[:-1]), shown[-1]]
    return " and ".join(shown)


def _on_equal_tasks(columns: Sequence[Column]) -> Iterator[str]:
    main = main_of(columns)
    near = near_guessing(columns)
    called = names_told([main.name(label) for label in near])
    if near and len(main.values) - len(near) < 2 <= len(main.values):
        who = _every(main) if len(near) == len(main.values) else called
        verb = "is" if len(near) == 1 else "are"
        yield f"{who} {verb} near guessing, so nothing can be ranked."
        return
    if len(main.values) == 1:
        yield _of_one(main, columns)
        return
    if near:
        are, its = ("is", "its gap says") if len(near) == 1 else ("are", "their gaps say")
        yield f"{called} {are} near guessing, so {its} nothing."
    shown = [column.without(near) for column in columns]
    if main.measure.is_gap:
        yield from _of_gaps(main.without(near), shown)
    else:
        yield _of_values(main.without(near))


def near_guessing(columns: Sequence[Column]) -> list[str]:
    """Return the rows that are near guessing in the control arm, whose gaps say nothing."""
    main = main_of(columns)
    arm = main.measure.arms[:1]
    found = {one for c in columns if c.measure.arms == arm for one in c.near_guessing}
    return [label for label in main.values if label in found]


def _of_one(main: Column, columns: Sequence[Column]) -> str:
    ((label, value),) = main.values.items()
    name = main.name(label)
    if not main.measure.is_gap:
        return f"{name} has {main.label} {value}."
    if near_guessing(columns):
        return f"{name} is near guessing, so its gap says nothing."
    of_arms = [column.values[label] for column in arms_of(main, columns)]
    return loss_told(name, main.statistic, value, of_arms)


def _every(column: Column) -> str:
    """Return all rows of a column as the subject of a sentence; others may have been left out."""
    count = len(column.values)
    other = " other" if count < len(column.called) else ""
    return f"{'Both' if count == 2 else f'All {count}'}{other} methods"


def _of_values(main: Column) -> str:
    """Return which methods have the best values in the only arm."""
    group, others = _split(main)
    if main.is_one_group or not others:
        ends = _values(main, main.ranked, " %")
        return f"{_every(main)} are one group: {main.label} {ends}."
    have = "has" if len(group) == 1 else "are one group with"
    best = str(main.values[main.best]) if len(group) == 1 else _values(main, group, " %")
    said = f"{_names(main, group)} {have} the best {main.label}, {best}"
    if worse := _apart(main, group, others):
        said += f"; {_names(main, worse)} {'is' if len(worse) == 1 else 'are'} worse"
    return f"{said}."


def _of_gaps(gap: Column, columns: Sequence[Column]) -> Iterator[str]:
    """Yield how the gaps of methods compare, if they may be compared."""
    controls = [column for column in columns if column.measure.arms == gap.measure.arms[:1]]
    if (robustness := robustness_of(columns)) is not None:
        yield from _beyond(robustness, controls[-1])
    elif apart := [control for control in controls if not control.is_one_group]:
        yield _not_ranked(apart[0])
    else:
        yield from _extremes(gap)


def _beyond(robustness: Column, control: Column) -> Iterator[str]:
    """Yield which methods do best beyond what their values in the control arm predict."""
    if robustness.is_one_group:
        ends = _values(robustness, robustness.ranked)
        yield (
            f"These methods are one group: no effective robustness can be told from another "
            f"({ends} beyond what {control.label} predicts)."
        )
        return
    group, others = _split(robustness)
    if not others:
        yield _none_apart(robustness, "effective robustness", "highest")
        return
    have = "has" if len(group) == 1 else "are one group with"
    yield (
        f"{_names(robustness, group)} {have} the highest effective robustness, "
        f"{_values(robustness, group)} beyond what {control.label} predicts."
    )
    if lower := _apart(robustness, group, others):
        verb = "is" if len(lower) == 1 else "are"
        yield f"{_names(robustness, lower)} {verb} lower, {_values(robustness, lower)}."


def _none_apart(column: Column, what: str, best: str) -> str:
    """Return that the best value differs from none, although others differ from each other."""
    ends = _values(column, column.ranked)
    return f"No {what} can be told from the {best}; all {len(column.values)} are {ends}."


def _split(column: Column) -> tuple[list[str], list[str]]:
    """Return the best row with those that cannot be told from it, and the others."""
    group = [label for label in column.ranked if label == column.best or label in column.tied]
    return group, [label for label in column.ranked if label not in group]


def _apart(column: Column, group: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the others that can be told from every row of the group."""
    return [one for one in others if all(column.differ(one, member) for member in group)]


def _names(column: Column, labels: Sequence[str]) -> str:
    return names_told([column.name(label) for label in labels])


def _not_ranked(control: Column) -> str:
    """Return that values in the control arm differ, so that gaps rank nothing."""
    best, worst = control.ranked[0], control.ranked[-1]
    ends = " to ".join(f"{control.values[one]} ({control.name(one)})" for one in (worst, best))
    return f"The gaps do not rank these methods, whose {control.label} differs ({ends})."


def _extremes(gap: Column) -> Iterator[str]:
    """Yield which methods have the smallest gap, and which lose more."""
    if gap.is_one_group:
        ends = _values(gap, gap.ranked)
        yield (
            f"{_every(gap)} are one group: their {gap.statistic} gaps, "
            f"{ends}, cannot be told apart."
        )
        return
    group, others = _split(gap)
    if not others:
        yield _none_apart(gap, f"{gap.statistic} gap", "smallest")
        return
    names, value = _names(gap, group), _values(gap, group)
    if len(group) == 1:
        yield f"{names} has the smallest {gap.statistic} gap, {value}."
    else:
        yield f"{names} are one group with the smallest {gap.statistic} gaps, {value}."
    lose = "loses" if len(others) == 1 else "lose"
    yield f"{_names(gap, others)} {lose} more than {gap.name(gap.best)}, {_values(gap, others)}."


def _values(column: Column, labels: Sequence[str], unit: str = " points") -> str:
    """Return the value of one row, or the range of several, in ascending order."""
    found = sorted((column.values[label] for label in labels), key=lambda one: one.value)
    if len(found) == 1:
        return points(found[0])
    share = found[0].share
    ends = (f"{(100 if share else 1) * one.value:z.1f}" for one in (found[0], found[-1]))
    told = " to ".join(dict.fromkeys(ends)).replace("-", "−")
    return f"{told}{unit if share else ''}"
