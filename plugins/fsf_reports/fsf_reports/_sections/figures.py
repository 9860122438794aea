"""Accuracy under test against that of the control, and the gaps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from fsf_reports._sections._headline import (
    estimates_of,
    gap_name,
    headline_of,
    measure,
    tasks_called,
    titled,
)
from fsf_reports.interfaces import ReportedRuns, Section
from fsf_reports.values import Block, FigureDeclaration, Panel, Point, Quantity, Series

__all__ = ["Figures"]

_MOST_WHISKERS = 60
_MOST_SERIES, _MOST_LABELLED = 16, 60


class Figures(Section):
    """The two arms against each other, and the gap of every run."""

    title: ClassVar[str] = "Figures"
    place: ClassVar[int] = 200

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return two figures for each set of tasks with a contrast."""
        groups = runs.by_tasks()
        for number, group in enumerate(groups, start=1):
            gap = gap_name(group)
            if gap is None:
                continue
            shown = ReportedRuns(run for run in group if gap in run.estimates)
            # The name says which of several sets it is.
            where = "" if len(groups) > 1 else f"On {tasks_called(group[0])}. "
            for figure in (*_both_arms(shown, gap, where), _gaps(shown, gap, where)):
                yield dataclasses.replace(figure, name=titled(figure.name, number, groups))


def _both_arms(runs: ReportedRuns, gap: str, where: str) -> Iterator[FigureDeclaration]:
    control, tested = (f"{gap.removesuffix('gap')}{arm}" for arm in runs[0].estimates[gap].arms)
    x, y = estimates_of(runs, control), estimates_of(runs, tested)
    points = [
        Point(Quantity.of(x[label]), Quantity.of(y[label]), label) for label in x if label in y
    ]
    # Each of a few runs can be switched off; many are told apart by their labels or by pointing.
    many = len(points) > _MOST_SERIES
    series = [Series("", tuple(points))] if many else [Series(p.label, (p,)) for p in points]
    told = " Point at a run to see its name." if len(points) > _MOST_LABELLED else ""
    share = all(estimate.share for estimate in y.values())
    if points:
        yield FigureDeclaration(
            f"{measure(runs, tested)} against {measure(runs, control)}",
            f"{where}Below the line, the arm under test is worse.{told}",
            f"{measure(runs, control)} (%)",
            f"{measure(runs, tested)} (%)",
            (Panel("", tuple(series)),),
            mark="points",
            diagonal=True,
            limits=(0.0, 100.0) if share else None,
        )


def _gaps(runs: ReportedRuns, gap: str, where: str) -> FigureDeclaration:
    gaps = estimates_of(runs, gap)
    rows = (one.row[0] for one in headline_of(runs).table.entries)
    shown = [label for label in dict.fromkeys((*rows, *gaps)) if label in gaps][:_MOST_WHISKERS]
    points = tuple(Point(label, Quantity.of(gaps[label])) for label in shown)
    left = len(gaps) - len(shown)
    more = f" {left} more are in the table." if left else ""
    return FigureDeclaration(
        measure(runs, gap),
        f"{where}In the order of the leaderboard.{more}",
        "",
        f"{measure(runs, gap)} (points)",
        (Panel("", (Series("", points),)),),
        mark="whiskers",
    )
