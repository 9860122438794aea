"""The figures of Lafargue et al. 2024 from finished experiments.

Source: "Oops, I Sampled it Again: Reinterpreting Confidence Intervals in Few-Shot Learning",
Figures 1, 4, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np

from fsf_benchmarks._interval_tables import COUNTED, SOURCE, conclusive, curve_of, evaluations
from fsf_benchmarks._open_intervals import OPEN, Setting
from fsf_benchmarks.interfaces import BenchmarkResults
from fsf_reports.values import FigureDeclaration, Panel, Point, Quantity, Series
from fsframework.errors import FsfError
from fsframework.values import FloatArray

__all__ = ["FIGURES"]

_QUERIES = 15


def _figure_1(results: BenchmarkResults, baseline: str) -> Iterator[FigureDeclaration]:
    found = evaluations(results, drawn=OPEN, queries=_QUERIES)
    panels = []
    for setting in dict.fromkeys(Setting.of(one) for one in found):
        values = _per_task(found.where(**setting._asdict()))
        for contestant in (name for name in values if baseline in values and name != baseline):
            x, y = values[baseline], values[contestant]
            spread = x.std() > 0 and y.std() > 0
            told = f", r = {np.corrcoef(x, y)[0, 1]:.2f}" if spread else ""
            points = tuple(Point(float(a), Quantity.known(b)) for a, b in zip(x, y, strict=True))
            title = f"{contestant}, {setting.dataset}, {setting.shot}-shot{told}"
            panels.append(Panel(title, (Series("", points),)))
    yield FigureDeclaration(
        "Figure 1",
        "Accuracies of the tasks by two methods, a point per task.",
        f"Acc of {baseline} (%)",
        "Acc of the other method (%)",
        tuple(panels) or (Panel("", (Series("", ()),)),),
        source=SOURCE,
        mark="points",
        diagonal=True,
        limits=(0.0, 100.0),
        notes=("r: Pearson's correlation over the tasks, which are drawn without replacement.",),
    )


def _per_task(results: BenchmarkResults) -> dict[str, FloatArray]:
    """Return the accuracy of each task in percent, by contestant; those that failed are missing."""
    found = {}
    for result in results:
        try:
            (answers,) = result.outcomes().values()
        except (FsfError, ValueError):
            continue
        found[result.tags["contestant"]] = np.asarray(100 * answers.task_accuracy)
    return found


def _figure_4(results: BenchmarkResults, baseline: str) -> Iterator[FigureDeclaration]:
    del baseline
    curves = list(curve_of(results))
    several = len({contestant for _, contestant, *_ in curves}) > 1
    for name, title, axis in (
        ("Figure 4", "Half-width of the interval by queries per class.", "half-width (points)"),
        ("Figure 4, tasks", "Number of tasks by queries per class.", "tasks"),
    ):
        panels = []
        for shot in dict.fromkeys(setting.shot for setting, *_ in curves):
            series: dict[str, list[Point]] = {}
            for setting, contestant, half, n_tasks, _ in curves:
                if setting.shot != shot:
                    continue
                label = f"{setting.dataset}, {contestant}" if several else setting.dataset
                tasks = None if half is None else Quantity.known(n_tasks)
                value = half if name == "Figure 4" else tasks
                series.setdefault(label, []).append(Point(float(setting.queries), value))
            drawn = tuple(Series(label, tuple(points)) for label, points in series.items())
            panels.append(Panel(f"{shot}-shot", drawn))
        yield FigureDeclaration(
            name, title, "queries per class", axis, tuple(panels), source=SOURCE, mark="lines"
        )


def _figure_6(results: BenchmarkResults, baseline: str) -> Iterator[FigureDeclaration]:
    del baseline
    counts = conclusive(results)
    series = tuple(
        Series(kind, tuple(Point(f"{shot}-shot", counts[shot][kind]) for shot in counts))
        for kind in COUNTED
    )
    yield FigureDeclaration(
        "Figure 6",
        "Pairs of methods that are told apart, over all data sets.",
        "",
        "pairs told apart",
        (Panel("", series),),
        source=SOURCE,
    )


FIGURES: Mapping[str, Callable[[BenchmarkResults, str], Iterator[FigureDeclaration]]] = (
    MappingProxyType({"figure-1": _figure_1, "figure-4": _figure_4, "figure-6": _figure_6})
)
"""What makes the figures of a part, from all results and the baseline."""
