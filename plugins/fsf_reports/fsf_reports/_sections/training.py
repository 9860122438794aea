"""The course of the trainings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from fsf_reports.interfaces import ReportedRun, ReportedRuns, Section
from fsf_reports.values import Block, FigureDeclaration, Panel, Point, Quantity, Series, Text

__all__ = ["Training"]

_MOST_CURVES = 12


class Training(Section):
    """Loss and validation accuracy of every epoch."""

    title: ClassVar[str] = "Training"
    place: ClassVar[int] = 600

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return the curves of the runs that were trained."""
        trained = [run for run in runs if run.record["training"]["history"]]
        others = [run.label for run in runs.finished if not run.record["training"]["history"]]
        if not trained:
            yield Text(("None of these runs trained a model.",))
            return
        if others:
            more = f" and {len(others) - 8} more" if len(others) > 8 else ""
            yield Text((f"These runs trained no model: {', '.join(others[:8])}{more}.",))
        shown = trained[:_MOST_CURVES]
        if len(trained) > len(shown):
            yield Text((f"The curves of the first {len(shown)} of {len(trained)} trained runs.",))
        accuracies = [_curve(run, "validation_accuracy", 100) for run in shown]
        yield from _figure("Validation accuracy", "accuracy (%)", accuracies)
        losses = [_curve(run, "loss", 1) for run in shown]
        yield from _figure("Training loss", "loss", losses)


def _curve(run: ReportedRun, name: str, factor: float) -> Series:
    """Return the values of every epoch, numbered through all stages."""
    history: Sequence[dict[str, Any]] = run.record["training"]["history"]
    unit = "%" if factor == 100 else ""
    points = [
        Point(number, Quantity(factor * epoch[name], unit=unit))
        for number, epoch in enumerate(history, start=1)
        if epoch[name] is not None
    ]
    return Series(run.label, tuple(points))


def _figure(name: str, axis: str, curves: Sequence[Series]) -> Iterator[FigureDeclaration]:
    known = tuple(series for series in curves if series.points)
    if known:
        title = "Stages of a training follow each other."
        yield FigureDeclaration(name, title, "epoch", axis, (Panel("", known),), mark="lines")
