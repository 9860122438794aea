"""FewSTAB's Figures 4, 5 and S1 from the plain experiments.

Source: Zheng et al. 2024, sections 5.3 and 5.4, appendix D.2. Figure 5 is the panel of Figure S1
for miniImageNet at five shots.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsf_benchmarks._fewstab import PLAIN, spelt
from fsf_benchmarks._fewstab_notes import named
from fsf_benchmarks.interfaces import BenchmarkResults, ExperimentResult
from fsf_reports.values import FigureDeclaration, Panel, Point, Quantity, Series

__all__ = ["plain_figures"]


def plain_figures(results: BenchmarkResults) -> list[FigureDeclaration]:
    """Declare the gaps by shots, and the accuracy against wAcc-A.

    Args:
        results: plain results; of several sources of words, the first of each data set is shown.
    """
    blocks = list(_blocks(results))
    return [
        FigureDeclaration(
            "Figure 4",
            "Accuracy gaps, wAcc-R minus wAcc-A, by shots of the tasks.",
            "method",
            "wAcc gap (points)",
            tuple(_gaps(title, block) for title, block in blocks),
            source="FewSTAB",
        ),
        FigureDeclaration(
            "Figure S1",
            "Worst-class accuracy on attribute-biased tasks against accuracy on random ones.",
            "Acc (%)",
            "wAcc-A (%)",
            tuple(panel for title, block in blocks for panel in _scattered(title, block)),
            source="FewSTAB",
            mark="points",
            limits=(0.0, 100.0),
        ),
    ]


def _blocks(results: BenchmarkResults) -> Iterator[tuple[str, BenchmarkResults]]:
    """Yield the results of each data set and backbone with the first source of its words."""
    plain = results.where(technique=PLAIN)
    backbones = {result.tags["backbone"] for result in plain}
    for dataset, backbone in dict.fromkeys((r.tags["dataset"], r.tags["backbone"]) for r in plain):
        block = plain.where(dataset=dataset, backbone=backbone)
        title = named(block[0]) + (f", {backbone}" if len(backbones) > 1 else "")
        yield title, block.where(words=block[0].tags["words"])


def _value(result: ExperimentResult, name: str) -> Quantity | None:
    found = result.estimates.get(name)
    return None if found is None else Quantity.of(found)


def _gaps(title: str, block: BenchmarkResults) -> Panel:
    shots = dict.fromkeys(result.tags["shot"] for result in block)
    series = []
    for shot in shots:
        own = block.where(shot=shot)
        points = (Point(spelt(one.tags["method"]), _value(one, "wacc-gap")) for one in own)
        series.append(Series(f"{shot}-shot", tuple(points)))
    return Panel(title, tuple(series))


def _scattered(title: str, block: BenchmarkResults) -> Iterator[Panel]:
    for shot in dict.fromkeys(result.tags["shot"] for result in block):
        points = []
        for one in block.where(shot=shot):
            x, y = _value(one, "acc-random"), _value(one, "wacc-biased")
            if x is not None:
                points.append(Point(x, y, spelt(one.tags["method"])))
        yield Panel(f"{title}, {shot}-shot", (Series("", tuple(points)),))
