"""The columns of a headline: each measure of methods on equal tasks, and how it ranks them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from fsf_statistics.comparing import MeasureComparison, compare_methods
from fsf_statistics.equal_tasks import comparable
from fsframework.api.headlines import head_of, measures_of_table
from fsframework.errors import DataError, OptionError
from fsframework.interfaces import Statistic
from fsframework.statistics.differences import NO_SPREAD, ComparisonOptions
from fsframework.statistics.measures import Measure
from fsframework.statistics.results import MethodResult
from fsframework.statistics.task_values import estimates_of_methods, values_of
from fsframework.values import Estimate, footnotes, label_in_arms

__all__ = ["FEWEST_ORDERED", "Column", "columns_of", "main_of", "robustness_of"]

FEWEST_ORDERED = 6
"""Through fewer methods a line says little, and tables have no effective robustness."""


@dataclass(frozen=True, eq=False)
class Column:
    """One measure on one set of tasks: what its rows have.

    Args:
        label: its head in the table, such as ``wAcc-R``.
        statistic: name of its statistic in tables, such as ``wAcc``.
        measure: a statistic on an arm, or on a contrast.
        higher_is_better: whether larger values are better; for gaps they are worse.
        values: by label of the row.
        compared: all pairs of rows; ``None`` for a single one.
        called: by label, what sentences call the row.
        ranks: whether its values rank the rows.
        missing: by label, why a row has no value.
    """

    label: str
    statistic: str
    measure: Measure
    higher_is_better: bool
    values: Mapping[str, Estimate]
    compared: MeasureComparison | None = None
    called: Mapping[str, str] = field(default_factory=dict)
    ranks: bool = True
    missing: Mapping[str, str] = field(default_factory=dict)

    def name(self, label: str) -> str:
        """Return what sentences call a row."""
        return self.called.get(label, label)

    @property
    def ranked(self) -> list[str]:
        """Labels of the rows, the best first."""
        sign = -1 if self.higher_is_better else 1
        return sorted(self.values, key=lambda label: sign * self.values[label].value)

    @cached_property
    def best(self) -> str:
        """Label of the best row."""
        return self.ranked[0]

    @cached_property
    def tied(self) -> tuple[str, ...]:
        """Labels of the rows that cannot be distinguished from the best one, by Holm's p."""
        if self.compared is None:
            return ()
        others = (label for label in self.values if label != self.best)
        return tuple(label for label in others if not self.differ(self.best, label))

    def differ(self, first: str, second: str) -> bool:
        """Whether two compared rows can be told apart, by Holm's p."""
        assert self.compared is not None
        p = self.compared.pair(first, second)[0].p_holm
        return p is not None and p < 1 - self.compared.level

    def alike(self, first: str, second: str) -> bool:
        """Whether two compared rows have equal values in every task."""
        assert self.compared is not None
        pair, _ = self.compared.pair(first, second)
        return pair.p is None and abs(pair.difference.value) < NO_SPREAD

    @property
    def is_one_group(self) -> bool:
        """Whether no two rows can be told apart."""
        if self.compared is None:
            return True
        most = 1 - self.compared.level
        return not any(
            pair.p_holm is not None and pair.p_holm < most
            for pair in self.compared.pairs
            if pair.first in self.values and pair.second in self.values
        )

    def without(self, labels: Collection[str]) -> Column:
        """Return the column without some rows."""
        kept = {label: one for label, one in self.values.items() if label not in labels}
        return replace(self, values=kept)

    @property
    def near_guessing(self) -> list[str]:
        """Labels of the rows from whose values nothing can be read."""
        return [label for label, one in self.values.items() if one.near_guessing]

    def mark(self, label: str) -> Literal["", "best", "tied"]:
        """Return ``best``, also of equal answers, ``tied`` or nothing; a single row has no mark."""
        if self.compared is None or not self.ranks:
            return ""
        if label == self.best or self.alike(self.best, label):
            return "best"
        return "tied" if label in self.tied else ""


def main_of(columns: Sequence[Column]) -> Column:
    """Return the column of what was asked for: the gap, or the value in the only arm."""
    own = (c for c in reversed(columns) if c.measure.arms and not c.measure.relative)
    return next(own)


def robustness_of(columns: Sequence[Column]) -> Column | None:
    """Return the column of effective robustness, if there is one."""
    return next((c for c in columns if not c.measure.arms), None)


def columns_of(
    called: Mapping[str, str],
    results: Sequence[MethodResult],
    statistics: Mapping[str, Statistic],
    how: ComparisonOptions,
) -> tuple[list[Column], list[str]]:
    """Return the columns of rows with equal tasks, and why others are left out, each a sentence.

    Gaps and drops rank the rows only if no two of them can be told apart in the control arm: a gap
    shrinks where a method knows little and where it knows all.

    Args:
        called: by label of the row, what sentences call it.
        results: of the rows.
        statistics: by name, the one whose gap is asked for last.
        how: intervals and resamples.
    """
    if len(results) > 1:
        results = comparable(results)
    first = results[0]
    by_label = dict(zip(called, results, strict=True))
    found: list[Column] = []
    left_out = []
    for measure in measures_of_table(list(statistics), list(first.outcomes), first.contrast):
        statistic, missing = statistics[measure.statistic], {}
        if measure.relative:
            missing = _without_drop(found, measure)
        kept = {label: one for label, one in by_label.items() if label not in missing}
        try:
            one = _column(kept, measure, statistic, how)
        except DataError as error:
            if not measure.relative:
                left_out.append(f"{measure.name} is left out: {error}.")
            continue
        main = statistics[list(statistics)[-1]].label or list(statistics)[-1]
        head = head_of(_label(first, measure, statistic), main)
        found.append(replace(one, label=head, called=called, missing=missing))
    if first.contrast is not None:
        control = first.contrast.arms[:1]
        alike = all(c.is_one_group for c in found if c.measure.arms == control)
        found = [replace(c, ranks=alike or not c.measure.is_gap) for c in found]
        if len(results) >= FEWEST_ORDERED:
            robustness = _robustness(by_label, statistics[list(statistics)[-1]], how, called)
            if isinstance(robustness, Column):
                found.append(robustness)
            else:
                left_out.append(f"No robustness: {robustness}.")
    return found, left_out


def _robustness(
    results: Mapping[str, MethodResult],
    statistic: Statistic,
    how: ComparisonOptions,
    called: Mapping[str, str],
) -> Column | str:
    """Return the effective robustness of rows, or why there is none."""
    from fsf_statistics.robustness import effective_robustness  # which imports scipy.stats

    try:
        found = effective_robustness(results, statistic, level=how.choice.level)
    except (DataError, OptionError) as error:
        return str(error)
    compared, missing = found.compared, found.left_out
    if len(found.values) < FEWEST_ORDERED:
        said = footnotes({called.get(label, label): [why] for label, why in missing.items()})
        few = f"a table needs {FEWEST_ORDERED} methods on the line, not {len(found.values)}"
        return "; ".join([few, *said])
    return Column(
        "robustness", "effective robustness", compared.measure, True, found.values, compared,
        called, missing=missing,
    )  # fmt: skip


def _without_drop(found: Sequence[Column], measure: Measure) -> dict[str, str]:
    """Return the rows that are near guessing in the control arm, with the reason."""
    control = next(c for c in found if c.measure == Measure(measure.statistic, measure.arms[:1]))
    return dict.fromkeys(control.near_guessing, f"{control.label} is near guessing")


def _label(first: MethodResult, measure: Measure, statistic: Statistic) -> str:
    name, only = statistic.label or measure.statistic, len(first.outcomes) == 1
    if measure.relative:
        return f"{name} drop"
    symbols = {} if first.arms is None else first.arms.symbols
    return label_in_arms(name, measure.arms, symbols, only=only)


def _column(
    results: Mapping[str, MethodResult],
    measure: Measure,
    statistic: Statistic,
    how: ComparisonOptions,
) -> Column:
    """Return a measure of rows, with its name as label."""
    better = statistic.higher_is_better and not measure.is_gap
    name = statistic.label or measure.statistic
    if not results:
        return Column(measure.name, name, measure, better, {})
    labels, values = list(results), values_of(list(results.values()), measure, statistic)
    compared = compare_methods(labels, values, how) if len(labels) > 1 else None
    own = estimates_of_methods(labels, values, how) if compared is None else compared.values
    return Column(measure.name, name, measure, better, own, compared)
