"""A benchmark: how much harder each method finds crowded images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from fsf_benchmarks.interfaces import Benchmark, BenchmarkResults, ExperimentDescription, Selection
from fsf_reports.values import (
    Entry,
    FigureDeclaration,
    Panel,
    Point,
    Quantity,
    Series,
    TableDeclaration,
)
from fsframework.values import footnotes

__all__ = ["Crowding"]

_ARMS = ("crowded", "plain")


class Crowding(Benchmark):
    """Accuracy on crowded queries, on plain ones, and the difference, per method."""

    axes: ClassVar[tuple[str, ...]] = ("dataset", "method", "shot")
    reserved: ClassVar[tuple[str, ...]] = ("sampler",)
    arms: ClassVar[tuple[str, ...]] = _ARMS

    def experiments(self, selection: Selection) -> Iterator[ExperimentDescription]:
        """Describe one experiment per method and number of shots."""
        data = selection.only("dataset")
        for method in selection.methods or ("nearest-shot", "ncc"):
            for shot in selection.shots or (5,):
                chosen = {"method": method, "shot": shot}
                yield ExperimentDescription(
                    f"{method}, {shot}-shot",
                    {
                        **chosen,
                        "sampler": "plain-queries",
                        "dataset": data.value if data else "planted",
                    },
                    defaults={"tasks": 600},
                    tags=chosen,
                )

    def tables(self, results: BenchmarkResults) -> Sequence[TableDeclaration]:
        """Return one table: a row per experiment, a column per arm, the last their difference."""
        entries = []
        for result in results:
            row = (str(result.tags["method"]), str(result.tags["shot"]))
            for arm in (*_ARMS, "gap"):
                found = result.estimates.get(f"acc-{arm}")
                measured = None if found is None else Quantity.of(found)
                about = {**result.tags, "arm": arm}
                entries.append(Entry(row, arm, measured, result.reason, about=about))
        return [
            TableDeclaration(
                "Crowding",
                "Acc in %; the gap is crowded minus plain.",
                ("method", "shot"),
                tuple(entries),
                tuple(footnotes(results.cautions)),
            )
        ]

    def figures(self, results: BenchmarkResults) -> Sequence[FigureDeclaration]:
        """Return one figure: the gap of each method by its number of shots."""
        lines = []
        for method in dict.fromkeys(str(result.tags["method"]) for result in results):
            points = []
            for result in results.where(method=method):
                gap = result.estimates.get("acc-gap")
                points.append(Point(result.tags["shot"], None if gap is None else Quantity.of(gap)))
            lines.append(Series(method, tuple(points)))
        panel = Panel("", tuple(lines))
        return [FigureDeclaration("Crowding", "Gap by shots.", "shots", "gap in %", (panel,))]
