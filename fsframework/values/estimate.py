"""A number with its interval."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from fsframework._files import atomic_path
from fsframework.errors import DataError
from fsframework.values._formats import SCHEMA_VERSION, check_header
from fsframework.values.outcomes import IntervalKind, QueryBatch

__all__ = ["Estimate"]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, and all that must be known to read it.

    Args:
        statistic: name of what was estimated.
        value: the estimate; ``low`` and ``high`` bound its interval (NaN where there is none).
        level: confidence level, 0 < level < 1.
        kind: ``open`` speaks of the data's distribution, ``closed`` of this data set alone.
        paired: whether it is a difference on equal tasks.
        estimator: how the interval was made, such as ``student-t``.
        n_tasks: tasks behind it; ``n_images``: distinct images in them.
        share: whether the value is a share of 1, to be shown in percent.
        query_batch: which queries the method was shown together.

    >>> Estimate("acc", 0.5, 0.4, 0.6, 0.95, "open", False, "student-t", 30, 900).half_width
    0.1
    """

    statistic: str
    value: float
    low: float
    high: float
    level: float
    kind: IntervalKind
    paired: bool
    estimator: str
    n_tasks: int
    n_images: int
    share: bool = False
    query_batch: QueryBatch = "task"

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise DataError(f"level must lie between 0 and 1, not {self.level}")
        if not (np.isnan(self.low) or self.low <= self.value <= self.high):
            raise DataError(f"{self.value} lies outside its interval {self.low}..{self.high}")

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return round((self.high - self.low) / 2, 12)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; NaN becomes null."""
        raw = dataclasses.asdict(self)
        return {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in raw.items()}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Build an estimate from what ``to_json`` gave."""
        numbers = {k: float("nan") if raw[k] is None else raw[k] for k in ("value", "low", "high")}
        return cls(**{**raw, **numbers})

    def save(self, path: str | Path) -> None:
        """Write JSON."""
        header = {"schema_version": SCHEMA_VERSION, "what": "an estimate"}
        with atomic_path(Path(path)) as temporary:
            temporary.write_text(json.dumps({**header, **self.to_json()}, indent=2))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what ``save`` wrote."""
        try:
            raw = json.loads(Path(path).read_text())
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not an estimate ({error})") from None
        check_header(raw, Path(path), "an estimate")
        fields = {k: v for k, v in raw.items() if k not in ("what", "schema_version")}
        try:
            return cls.from_json(fields)
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}: not an estimate ({error})") from None
