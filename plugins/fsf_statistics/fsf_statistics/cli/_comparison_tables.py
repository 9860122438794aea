"""Comparisons as tables of text, for every output format, and counts of their pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsframework.values import Estimate

if TYPE_CHECKING:
    from fsf_statistics.comparing import MeasureComparison, Pair

__all__ = [
    "READ_WITH",
    "SIGNS",
    "ComparisonTable",
    "PairCounts",
    "comparison_notes",
    "count_pairs",
    "counts_in_words",
    "pairs_table",
    "values_table",
]

SIGNS = {"+": "+", "-": "−", "0": "0"}
"""How the conclusions of a comparison are printed."""

READ_WITH = ("interval", "tasks", "images")
"""Columns that are needed to read a value."""

_LETTERS = "methods that share a letter cannot be told apart (Holm's p over all pairs)"
_PAIRS = (
    "p two-sided; Holm and BH adjusted for all pairs on the same tasks; r correlation over tasks; "
    "verdict by Holm"
)


@dataclass(frozen=True)
class ComparisonTable:
    """A table for every output format: a title, columns, rows of text, and lines below."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()


def values_table(parts: Sequence[MeasureComparison]) -> ComparisonTable:
    """Return the methods' own values in one measure, on one or several sets of tasks."""
    several, name = len(parts) > 1, parts[0].measure.name
    over_seeds = _over_seeds(parts)
    lettered = any(part.letters for part in parts)
    rows = []
    for part in parts:
        start: tuple[str, ...] = (part.task_set,) if several else ()
        for label in part.letters or part.values:
            letters: tuple[str, ...] = (part.letters[label],) if lettered else ()
            value = part.values[label]
            seeds = (value.between_seeds, str(value.n_seeds)) if over_seeds else ()
            rows.append((*start, label, _number(value), *letters, *seeds, *_read_with(value)))
            if label in part.other_scope:
                value, letters = part.other_scope[label], ("",) * len(letters)
                rows.append((*start, label, _number(value), *letters, *_read_with(value)))
    return ComparisonTable(
        name if several else f"{name} on {parts[0].task_set}",
        (
            *(("tasks of",) if several else ()),
            "method",
            name,
            *(("letter",) if lettered else ()),
            *(("between seeds", "seeds") if over_seeds else ()),
            *READ_WITH,
        ),
        tuple(rows),
        (_LETTERS,) if lettered else (),
    )


def pairs_table(parts: Sequence[MeasureComparison]) -> ComparisonTable:
    """Return the paired differences in one measure, on one or several sets of tasks."""
    several, over_seeds = len(parts) > 1, _over_seeds(parts)
    rows = [
        (
            *((part.task_set,) if several else ()),
            f"{pair.first} − {pair.second}",
            _number(pair.difference, signed=True),
            _p(pair.p),
            _p(pair.p_holm),
            _p(pair.p_bh),
            "" if pair.correlation is None else f"{pair.correlation:.2f}".replace("-", "−"),
            SIGNS[pair.direct],
            SIGNS[pair.paired] + (" !" if pair.inverted else ""),
            _verdict(pair, 1 - part.level),
            *((_seeds(part, pair),) if over_seeds else ()),
            *_read_with(pair.difference),
        )
        for part in parts
        for pair in part.pairs
    ]
    columns = ("pair", "difference", "p", "Holm", "BH", "r", "direct", "paired", "verdict")
    return ComparisonTable(
        f"{parts[0].measure.name}, paired differences",
        (
            *(("tasks of",) if several else ()),
            *columns,
            *(("seeds",) if over_seeds else ()),
            *READ_WITH,
        ),
        tuple(rows),
        (_PAIRS,),
    )


def _over_seeds(parts: Sequence[MeasureComparison]) -> bool:
    """Return whether any method has several training seeds."""
    return any(value.n_seeds > 1 for part in parts for value in part.values.values())


def _seeds(part: MeasureComparison, pair: Pair) -> str:
    """Return the number of seeds of both methods, or of each if they differ."""
    both = [part.values[label].n_seeds for label in (pair.first, pair.second)]
    return ", ".join(map(str, dict.fromkeys(both)))


@dataclass(frozen=True)
class PairCounts:
    """How many pairs each way of comparing calls different."""

    pairs: int
    direct: int
    paired: int
    holm: int
    inverted: int
    only_direct: int
    only_paired: int


def count_pairs(comparisons: Iterable[MeasureComparison]) -> PairCounts:
    """Count the conclusive pairs of comparisons."""
    pairs = [(p, 1 - c.level) for c in comparisons for p in c.pairs]
    direct = [p.direct != "0" for p, _ in pairs]
    paired = [p.paired != "0" for p, _ in pairs]
    both = list(zip(direct, paired, strict=True))
    return PairCounts(
        len(pairs),
        sum(direct),
        sum(paired),
        sum(p.p_holm is not None and p.p_holm <= alpha for p, alpha in pairs),
        sum(p.inverted for p, _ in pairs),
        sum(d and not p for d, p in both),
        sum(p and not d for d, p in both),
    )


def counts_in_words(counts: PairCounts) -> list[str]:
    """Return two sentences on how many pairs each kind of comparison tells apart."""
    plural = "pair" if counts.pairs == 1 else "pairs"
    return [
        f"{counts.pairs} {plural}: direct comparison tells {counts.direct} apart, paired "
        f"{counts.paired}, paired after Holm {counts.holm}",
        f"told apart only by paired comparison {counts.only_paired}, only by direct comparison "
        f"{counts.only_direct}, inversions {counts.inverted}",
    ]


def comparison_notes(part: MeasureComparison, several: bool) -> list[str]:
    """Return the notes on the methods and pairs of a part.

    Args:
        several: whether there are parts on other tasks, so that a note must name the tasks.
    """
    about = f"{part.measure.name} on {part.task_set}: " if several else ""
    own = [*part.notes, *(pair.note for pair in part.pairs if pair.note)]
    notes = [f"note: {about}{note}" for note in own]
    if part.scope == "closed":
        notes.append("closed: tasks share images, so the interval holds for this data set only")
    return notes


def _read_with(estimate: Estimate) -> tuple[str, str, str]:
    """Return the cells that must accompany every ±."""
    paired = ", paired" if estimate.paired else ""
    return (
        f"{100 * estimate.level:g} % {estimate.scope}, {estimate.estimator}{paired}",
        f"{estimate.n_tasks:,}",
        f"{estimate.n_images:,}" if estimate.n_images else "not known",
    )


def _number(estimate: Estimate, *, signed: bool = False) -> str:
    factor, unit, digits = (100, " %", 2) if estimate.share else (1, "", 4)
    sign = "+" if signed and estimate.value else ""
    value = f"{factor * estimate.value:{sign}z.{digits}f}".replace("-", "−")
    if math.isnan(estimate.low):
        return f"{value}{unit} (no interval)"
    if estimate.estimator in ("percentile", "bca"):
        bounds = (
            f"{factor * b:.{digits}f}".replace("-", "−") for b in (estimate.low, estimate.high)
        )
        return f"{value} [{' to '.join(bounds)}]{unit}"
    return f"{value} ± {factor * estimate.half_width:.{digits}f}{unit}"


def _p(p: float | None) -> str:
    if p is None:
        return "none"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _verdict(pair: Pair, alpha: float) -> str:
    if pair.p_holm is None:
        return "see note"
    if pair.p_holm > alpha:
        return "not significant"
    return f"{pair.first if pair.difference.value > 0 else pair.second} higher"
