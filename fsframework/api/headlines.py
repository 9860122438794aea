"""The answer of a run: a few sentences and one table."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan

from fsframework._text import printable
from fsframework.api.running import Run
from fsframework.errors import DataError
from fsframework.statistics.measures import Measure
from fsframework.values import Contrast, Estimate, text_table

__all__ = [
    "PLACEBO",
    "Headline",
    "RunHeadline",
    "gap_told",
    "head_of",
    "headline_of_run",
    "limits_told",
    "loss_told",
    "measures_of_table",
    "points",
    "reading_told",
]

PLACEBO = "This is a placebo: the images of each class are permuted, so no gap comes from words."


@dataclass(frozen=True, repr=False, eq=False)
class Headline:
    """What experiments found: printed, sentences and one table that fits 80 columns.

    Args:
        sentences: the answer in words.
        notes: what is needed to read the table.
    """

    sentences: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def table_text(self, width: int) -> str:
        """Return the table as lines of at most ``width`` characters."""
        raise NotImplementedError

    def text(self, width: int = 80) -> str:
        """Return sentences, table and notes as lines of at most ``width`` characters."""
        paragraphs = [
            textwrap.fill(" ".join(self.sentences), width),
            self.table_text(width),
            "\n".join(textwrap.fill(note, width) for note in self.notes),
        ]
        return printable("\n\n".join(filter(None, paragraphs)))

    def __repr__(self) -> str:
        return self.text()


@dataclass(frozen=True, repr=False, eq=False)
class RunHeadline(Headline):
    """What one run found.

    Args:
        label: what the run is called.
        estimates: by the heads of their columns: measures of both arms, and what is lost.
        limits: which values are near guessing or below it; they are among the notes.
    """

    label: str = ""
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    limits: tuple[str, ...] = ()

    def table_text(self, width: int) -> str:
        """Return the table; too little room leaves out columns, but not the first and last."""
        cells = {"method": self.label} | {
            head: str(one).partition(" (")[0].removesuffix(" %")
            for head, one in self.estimates.items()
        }
        return text_table(list(cells), [list(cells.values())], width, list(cells)[2:-2])


def headline_of_run(run: Run) -> RunHeadline:
    """Return the answer of a run from the estimates it holds.

    Raises:
        DataError: it has no estimates.
    """
    record, estimates = run.record, run.estimates
    if not estimates:
        raise DataError(f"{run.name}: has no estimates")
    names = list(dict.fromkeys(e.statistic for e in estimates.values()))
    usual = [one.name for one in measures_of_table(names, tuple(record.arms), record.contrast)]
    label = record.method.called if record.method is not None else run.name
    own = [estimates[name] for name in usual if name in estimates] or list(estimates.values())
    called = record.labels.get(own[-1].statistic) or own[-1].statistic
    shown = {head_of(record.label(one), called): one for one in own}
    (head, main), notes = list(shown.items())[-1], [reading_told(list(shown.values()))]
    sentence, limits = f"{label} has {head} {main}.", tuple[str, ...]()
    same = {head: e for head, e in shown.items() if e.statistic == main.statistic}
    of_arms = {head: e for head, e in same.items() if len(e.arms) == 1}
    if len(main.arms) > 1:
        sentence = loss_told(label, called, main, list(of_arms.values()))
        notes += [told for name, told in gap_told(of_arms).items() if name in shown]
        limits = tuple(limits_told({head: {label: e} for head, e in shown.items()}, main.arms))
    notes += [*limits, *(f"note: {caution}" for caution in record.cautions)]
    told = (PLACEBO, sentence) if record.settings.get("placebo") else (sentence,)
    return RunHeadline(told, tuple(notes), label, shown, limits)


def measures_of_table(
    statistics: Sequence[str], arms: Sequence[str], contrast: Contrast | None
) -> list[Measure]:
    """Return the measures of the table: the main statistic, which is the last, in every arm.

    Others have the value in the control arm, and their gap. The main gap is the last.
    """
    own, main = contrast.arms if contrast is not None else tuple(arms), statistics[-1]
    of_others = [own[:1]] if contrast is None else [own[:1], own]
    measures = [Measure(name, of) for name in statistics[:-1] for of in of_others]
    measures += [Measure(main, (arm,)) for arm in own]
    if contrast is not None:
        measures += [Measure(main, own, relative) for relative in (True, False)]
    return measures


def head_of(label: str, main: str) -> str:
    """Return the head of a column: gap and drop of the main statistic go without its name.

    >>> head_of("wAcc gap = wAcc-R − wAcc-A", "wAcc"), head_of("wAcc-A", "wAcc")
    ('gap', 'wAcc-A')
    """
    return label.partition(" = ")[0].removeprefix(f"{main} ")


def reading_told(estimates: Sequence[Estimate]) -> str:
    """Return a sentence on units, intervals and tasks."""
    tasks = sorted({e.n_tasks // max(1, len(e.arms) if not e.paired else 1) for e in estimates})
    counts = f"{tasks[0]:,}" if len(tasks) == 1 else f"{tasks[0]:,} to {tasks[-1]:,}"
    unit = "In percent" if all(e.share for e in estimates) else "Shares in percent"
    over = " and training seeds" if any(e.n_seeds > 1 for e in estimates) else ""
    meaning = {
        "closed": "closed: tasks share images, so it holds for this data set only",
        "open": "open: no two tasks share an image, so it holds for the data's distribution",
    }
    said = "; ".join(meaning[scope] for scope in sorted({e.scope for e in estimates}))
    return (
        f"{unit}; ± {100 * estimates[0].level:g} % interval over {counts} tasks per arm{over} "
        f"({said})."
    )


def gap_told(of_arms: Mapping[str, Estimate]) -> dict[str, str]:
    """Return what gap and drop are made of by name, from the value of each arm by its label."""
    first, control = next(iter(of_arms.items()))
    terms = " − ".join(of_arms if control.higher_is_better else [*of_arms][::-1])
    drop = f"gap as a share of {first} beyond guessing ({_shown(control, control.guessing)})"
    return {n: f"{n} = {told}; larger is worse." for n, told in (("gap", terms), ("drop", drop))}


def limits_told(
    columns: Mapping[str, Mapping[str, Estimate]],
    arms: Sequence[str],
    names: Callable[[Sequence[str]], str] = ", ".join,
) -> Iterator[str]:
    """Yield which rows of columns are near guessing or below it, each once per arm, control first.

    The last column of an arm speaks for a row. Nothing is said of the tested arm of rows whose gap
    says nothing anyway. What only an interval leaves possible is said as such.
    """
    told: set[str] = set()
    for arm in arms:
        for head, own in list(columns.items())[::-1]:
            of_arm = {k: e for k, e in own.items() if e.arms == (arm,) and k not in told}
            below = [k for k, e in of_arm.items() if e.below_guessing]
            near = [k for k, e in of_arm.items() if e.near_guessing and k not in below]
            sure = [k for k in near if replace(own[k], low=nan, high=nan).near_guessing]
            told |= {*below, *near}
            nothing = "a drop would say nothing, and nothing can be read from the gap"
            for where, rows, limit in (
                ("is below", below, f"the hint misleads {'it' if len(below) == 1 else 'them'}"),
                ("is near", sure, "little is left to lose, so the gap cannot grow further"),
                ("may be near", [k for k in near if k not in sure], "little may be left to lose"),
            ):
                if rows:
                    limit = limit if arm != arms[0] else nothing
                    first = own[rows[0]]
                    gives = f"what guessing gives ({_shown(first, first.guessing)})"
                    yield f"{head} of {names(rows)} {where} {gives}: {limit}."


def _shown(one: Estimate, value: float | None) -> str:
    value = value or 0.0
    return f"{100 * value:.1f} %" if one.share else f"{value:.4g}"


def loss_told(label: str, statistic: str, gap: Estimate, of_arms: Sequence[Estimate]) -> str:
    """Return what one method loses from the control arm to the tested one."""
    ends = " to ".join(_shown(one, one.value) for one in of_arms)
    arms = f"of {statistic} from {gap.arms[0]} to {gap.arms[1]} tasks"
    verbs, change = ("loses", "gains"), "loss"
    if not gap.higher_is_better:
        verbs, change, ends = ("gains", "loses"), "rise", f"{ends}; lower is better"
    if gap.low > 0:
        return f"{label} {verbs[0]} {points(gap)} {arms} ({ends})."
    if gap.high < 0:
        return f"{label} {verbs[1]} {points(gap, -1)} {arms} ({ends})."
    why = "an interval that contains 0" if gap.low == gap.low else "without an interval"
    return f"No {change} {arms} is shown for {label}: the gap is {points(gap)}, {why} ({ends})."


def points(estimate: Estimate, sign: int = 1) -> str:
    """Return a difference with its half-width, of shares in points."""
    factor, unit = (100, " points") if estimate.share else (1, "")
    value = f"{sign * factor * estimate.value:z.1f}".replace("-", "−")
    half = f" ± {factor * estimate.half_width:.1f}" if estimate.low == estimate.low else ""
    return value + half + unit
