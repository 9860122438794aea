"""A number with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from fsframework._tables import data_frame, html_table, text_table
from fsframework.errors import DataError
from fsframework.values._arrays import ByName
from fsframework.values.outcomes import QueryBatch, Scope

__all__ = ["Estimate", "Estimates", "measure_name", "table_of"]


NEAR = 0.05
"""Share of the way from guessing to perfect answers below which a value is near guessing."""


def measure_name(statistic: str, arms: Sequence[str], *, relative: bool = False) -> str:
    """Return the name of a measure: a statistic of one arm, or of the contrast of two.

    >>> measure_name("wacc", ["biased"]), measure_name("wacc", ["random", "biased"])
    ('wacc-biased', 'wacc-gap')
    >>> measure_name("wacc", ["random", "biased"], relative=True)
    'wacc-drop'
    """
    if not arms:
        return statistic
    contrast = "drop" if relative else "gap"
    return f"{statistic}-{contrast if len(arms) == 2 else arms[0]}"


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, and all that is needed to interpret it.

    Args:
        statistic: name of the statistic.
        value: the estimate.
        low: lower bound of its interval, NaN without one; ``high`` the upper bound.
        level: confidence level, 0 < level < 1.
        scope: ``open`` refers to the distribution of the data, ``closed`` to this data set only.
        paired: whether it is a mean difference between paired tasks.
        estimator: how the interval was made, such as ``student-t``.
        n_tasks: number of tasks behind it.
        n_images: number of distinct images in those tasks, 0 if unknown.
        share: whether the value is a fraction, shown in percent.
        query_batch: which queries the method saw together.
        arms: the arm of its tasks, or the two arms of a gap, the control first.
        higher_is_better: whether larger values are better; a gap is positive where the tested arm
            is worse.
        n_seeds: models behind it, trained alike with different seeds and evaluated on the same
            tasks; with more than one, the interval is over seeds and tasks.
        seed_deviation: standard deviation between these models, without the share of the tasks;
            ``None`` with one model.
        relative: whether it is a relative drop: a gap divided by what the control arm has above
            guessing.
        guessing: what guessing gives in this arm, ``None`` if it is not known.

    Raises:
        DataError: the level is out of range, or the value is outside its interval.

    >>> gap = Estimate("wacc", 0.169, 0.151, 0.187, 0.95, "closed", False, "welch-t", 1200, 3200,
    ...                share=True, arms=("random", "biased"))
    >>> print(f"{gap.name}: {gap}")
    wacc-gap: 16.9 ± 1.8 %
    """

    statistic: str
    value: float
    low: float
    high: float
    level: float
    scope: Scope
    paired: bool
    estimator: str
    n_tasks: int
    n_images: int
    share: bool = False
    query_batch: QueryBatch = "task"
    arms: tuple[str, ...] = ()
    higher_is_better: bool = True
    n_seeds: int = 1
    seed_deviation: float | None = None
    relative: bool = False
    guessing: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", tuple(self.arms))
        if not 0 < self.level < 1:
            raise DataError(f"level must be between 0 and 1, not {self.level}")
        if not (math.isnan(self.low) or self.low <= self.value <= self.high):
            raise DataError(
                f"the value {self.value} is outside its interval {self.low}..{self.high}"
            )

    @property
    def name(self) -> str:
        """Name of the measure, such as ``wacc-biased`` or ``wacc-gap``."""
        return measure_name(self.statistic, self.arms, relative=self.relative)

    @property
    def near_guessing(self) -> bool:
        """Whether nothing can be read from how much of it is lost, or is left.

        That is so if its interval begins less than 5 % of the way from guessing to perfect
        answers, or below guessing.
        """
        if self.guessing is None:
            return False
        sign, best = (1, 1.0) if self.higher_is_better else (-1, 0.0)
        least = self.guessing + self.share * NEAR * (best - self.guessing)
        end = self.low if self.higher_is_better else self.high
        return sign * ((self.value if math.isnan(end) else end) - least) < 0

    @property
    def below_guessing(self) -> bool:
        """Whether its whole interval is worse than guessing, so that something misleads.

        Without an interval, whether its value is.
        """
        if self.guessing is None:
            return False
        low, high = (self.value if math.isnan(end) else end for end in (self.low, self.high))
        return high < self.guessing if self.higher_is_better else low > self.guessing

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return round((self.high - self.low) / 2, 12)

    @property
    def between_seeds(self) -> str:
        """The standard deviation between seeds as text, empty with one seed."""
        found = self.seed_deviation
        return "" if found is None else self._number(found) + " %" * self.share

    def __str__(self) -> str:
        interval = "" if math.isnan(self.low) else f" ± {self._number(self.half_width)}"
        none = "" if interval else " (no interval)"
        return self._number(self.value) + interval + " %" * self.share + none

    def _number(self, value: float) -> str:
        return (f"{100 * value:z.1f}" if self.share else f"{value:z.4f}").replace("-", "−")

    def _repr_html_(self) -> str:
        scope = f"{100 * self.level:g} % {self.scope} interval, {self.estimator}"
        return f"<p><b>{escape(self.name)}</b>: {escape(str(self))} ({scope})</p>"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; NaN becomes null."""
        raw = {**msgspec.to_builtins(self), "arms": list(self.arms)}
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in raw.items()}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Build an estimate from the output of ``to_json``.

        Raises:
            DataError: a field is missing or of the wrong type.
        """
        missing = {k: math.nan for k in ("value", "low", "high") if raw.get(k, 0) is None}
        try:
            return msgspec.convert({**raw, **missing}, cls)
        except msgspec.ValidationError as error:
            raise DataError(f"not an estimate ({error})") from None


class Estimates(ByName[Estimate]):
    """Estimates by the names of their measures; prints as a table."""

    noun = "estimate"

    def __repr__(self) -> str:
        return text_table(*table_of(self, "measure"))

    def _repr_html_(self) -> str:
        return html_table(*table_of(self, "measure"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return float64 ``(n, 3)``: value, low and high of each, in their order."""
        del copy
        return np.array([(e.value, e.low, e.high) for e in self.values()], dtype or np.float64)

    def to_pandas(self) -> Any:
        """Return a pandas ``DataFrame``: a row per estimate, its fields as columns."""
        return data_frame([{"measure": name, **e.to_json()} for name, e in self.items()])


def table_of(
    estimates: Mapping[str, Estimate], head: str, **more: Mapping[str, str]
) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of a table of estimates, with all that is needed to read them.

    Args:
        estimates: by the names of their rows; ``head`` is the head of these names.
        more: other columns by their heads, each with its cells by name of the row.
    """
    over_seeds = any(e.n_seeds > 1 for e in estimates.values())
    seeds = ("between seeds", "seeds") if over_seeds else ()
    rows = [
        [
            *(name, str(e), *(cells.get(name, "") for cells in more.values())),
            *((e.between_seeds, str(e.n_seeds)) if over_seeds else ()),
            f"{100 * e.level:g} % {e.scope}, {e.estimator}{', paired' if e.paired else ''}",
            f"{e.n_tasks:,}",
            f"{e.n_images:,}" if e.n_images else "not known",
        ]
        for name, e in estimates.items()
    ]
    return [head, "value", *more, *seeds, "interval", "tasks", "images"], rows
