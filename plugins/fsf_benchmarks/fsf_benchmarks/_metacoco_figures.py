"""MetaCoCo's Figures 4 and 5: accuracy by backbone, by ways and by shots.

Source: Zhang et al. 2024, "MetaCoCo: A New Few-Shot Classification Benchmark with Spurious
Correlation", section 5.3. The figures print no numbers; Tables 2 and 7 print some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fsf_benchmarks.interfaces import BenchmarkResults, ExperimentResult, Selection
from fsf_reports.values import FigureDeclaration, Panel, Point, Quantity, Series

__all__ = ["FIGURES", "drawn", "shapes"]

FIGURES: Mapping[str, str] = MappingProxyType({"figure-4": "Figure 4", "figure-5": "Figure 5"})
"""The figures, by the name with which a user asks for them."""

_METHODS = ("versa", "r2d2", "anil", "can", "protonet", "dn4", "baseline", "baseline-plus-plus")
"""The methods of Table 7, whose 1-shot column is the right half of Figure 4."""

_BACKBONES = ("conv64f", "resnet12", "resnet18")
_FIGURE_4_WAYS, _SHOTS = (5, 10), (1, 5, 10)
_FEW_SHOTS, _FEW_WAYS = 1, 5

_TITLES = {
    "Figure 4": "Accuracy by backbone.",
    "Figure 5": "Accuracy by ways and by shots of the tasks.",
}


def shapes(
    name: str, selection: Selection, ways: Sequence[int]
) -> Iterator[tuple[str, str, int, int]]:
    """Yield method, backbone, way and shot of each experiment of a figure, each once.

    Args:
        name: a value of ``FIGURES``.
        selection: what the user asks for.
        ways: of the left half of Figure 5.
    """
    methods = selection.methods or selection.usable("method", _METHODS)
    if name == "Figure 4":
        backbones = selection.backbones or selection.usable("backbone", _BACKBONES)
        shots = selection.shots or (_FEW_SHOTS,)
        asked = [(way, shot) for way in _FIGURE_4_WAYS for shot in shots]
    else:
        backbones = selection.backbones or selection.usable("backbone", ("resnet12",))
        asked = [(way, _FEW_SHOTS) for way in ways]
        asked += [(_FEW_WAYS, shot) for shot in selection.shots or _SHOTS]
    for method in methods:
        for backbone in backbones:
            for way, shot in dict.fromkeys(asked):
                yield method, backbone, way, shot


Spelt = Callable[[Mapping[str, Any]], tuple[str, str]]
Measured = Callable[[ExperimentResult], Quantity | None]


def drawn(
    name: str, results: BenchmarkResults, spelt: Spelt, measured: Measured
) -> FigureDeclaration:
    """Declare a figure.

    Args:
        name: a value of ``FIGURES``.
        results: its experiments.
        spelt: gives method and backbone of tags in the paper's spelling.
        measured: gives the accuracy of an experiment.
    """
    panels = _by_backbone if name == "Figure 4" else _by_shape
    return FigureDeclaration(
        name,
        _TITLES[name],
        "method" if name == "Figure 4" else "",
        "Acc in %",
        tuple(panels(results, spelt, measured)),
        source="MetaCoCo",
        mark="bars" if name == "Figure 4" else "lines",
        limits=(0.0, 100.0),
    )


def _by_backbone(results: BenchmarkResults, spelt: Spelt, measured: Measured) -> Iterator[Panel]:
    backbones = dict.fromkeys(result.tags["backbone"] for result in results)
    for way, shot in dict.fromkeys((r.tags["way"], r.tags["shot"]) for r in results):
        series = []
        for backbone in backbones:
            own = results.where(way=way, shot=shot, backbone=backbone)
            points = tuple(Point(spelt(one.tags)[0], measured(one)) for one in own)
            series.append(Series(spelt(own[0].tags)[1], points))
        yield Panel(f"{way}-way {shot}-shot", tuple(series))


def _by_shape(results: BenchmarkResults, spelt: Spelt, measured: Measured) -> Iterator[Panel]:
    for title, held, varied in (
        (f"{_FEW_SHOTS}-shot, by ways", {"shot": _FEW_SHOTS}, "way"),
        (f"{_FEW_WAYS}-way, by shots", {"way": _FEW_WAYS}, "shot"),
    ):
        half = results.where(**held)
        series: dict[str, list[Point]] = {}
        several = len({one.tags["backbone"] for one in half}) > 1
        for one in sorted(half, key=lambda result: result.tags[varied]):
            method, backbone = spelt(one.tags)
            name = f"{method}, {backbone}" if several else method
            point = Point(f"{one.tags[varied]}-{varied}", measured(one))
            series.setdefault(name, []).append(point)
        yield Panel(title, tuple(Series(n, tuple(points)) for n, points in series.items()))
