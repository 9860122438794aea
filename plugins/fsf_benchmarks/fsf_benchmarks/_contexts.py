"""Figure 3 of MetaCoCo: queries in the contexts of their support and in other contexts.

Source: Zhang et al. 2024, "MetaCoCo: A New Few-Shot Classification Benchmark with Spurious
Correlation", sections 4 and 5.3. The figure prints no numbers, so there are none to compare with.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from fsf_benchmarks._models import of_model
from fsf_benchmarks.interfaces import (
    Answer,
    Benchmark,
    BenchmarkResults,
    ExperimentDescription,
    ExperimentResult,
    Selection,
)
from fsf_reports.values import (
    Entry,
    FigureDeclaration,
    Panel,
    Point,
    Quantity,
    Series,
    TableDeclaration,
)
from fsframework.api.data import draw
from fsframework.errors import InfeasibleTask, OptionError, argument
from fsframework.statistics.facts import called
from fsframework.values import Estimate, footnotes

__all__ = ["Contexts"]

_EMBEDDED, _EMBEDDED_COLUMN, _EMBEDDED_QUERIES = "planted", "background", 10
_COLUMN = "context"
_METHODS = ("protonet", "baseline-plus-plus", "r2d2")
_SHOTS = (1, 5)
_ARMS = {"iid": "IID", "ood": "OOD"}
_DIFFERENCE = "IID − OOD"
_ESTIMATES = {**{f"Acc {symbol}": f"acc-{arm}" for arm, symbol in _ARMS.items()}}
_ABOUT_SCOPE = {
    "closed": "about this data set",
    "open": "about its distribution",
}


class Contexts(Benchmark):
    """Accuracy on queries in the contexts of their support and in others (MetaCoCo, Figure 3).

    Each method is trained once per number of shots and answers pairs of tasks with the same classes
    and the same support: queries of arm ``iid`` are in the contexts of their class's support,
    those of arm ``ood`` in others. Source: Zhang et al. 2024, section 5.3.

    Args:
        column: metadata column of the contexts; ``None`` for ``context``, and for ``background``
            on the embedded data set.
        n_contexts: number of contexts of a class's support, and of its queries; ``None`` for the
            smallest number that the data allow.
    """

    axes: ClassVar[tuple[str, ...]] = ("dataset", "method", "backbone", "shot", "model")
    reserved: ClassVar[tuple[str, ...]] = ("sampler", "sampler.column", "sampler.n_contexts")

    def __init__(self, *, column: str | None = None, n_contexts: int | None = None) -> None:
        self.column = column
        self.n_contexts = n_contexts

    def experiments(self, selection: Selection) -> Iterator[ExperimentDescription]:
        """Describe one run with both arms per method and number of shots."""
        asked, backbone = selection.only("dataset"), selection.only("backbone")
        dataset = asked.value if asked else _EMBEDDED
        model = selection.only("model")
        if model and backbone:
            raise OptionError(
                f"{argument('model', model.value)} already sets the backbone; leave out "
                f"{argument('backbone')}"
            )
        methods = selection.methods or selection.usable("method", _METHODS)
        if not methods:
            raise OptionError(
                f"none of {', '.join(_METHODS)} is installed; name others with {argument('method')}"
            )
        embedded = dataset.partition(":")[0] == _EMBEDDED
        column = self.column or (_EMBEDDED_COLUMN if embedded else _COLUMN)
        shape = {"n_query": _EMBEDDED_QUERIES} if embedded else {}
        shots = selection.shots or _SHOTS
        fewest = {shot: self._contexts(selection, dataset, column, shape, shot) for shot in shots}
        for shot, method in itertools.product(shots, methods):
            sampler = {"name": "context", "column": column, "n_contexts": fewest[shot]}
            arguments: dict[str, Any] = {
                "dataset": dataset,
                "method": method,
                "sampler": sampler,
                "shot": shot,
            }
            if model:
                arguments |= of_model(Path(model.value), method)
            elif backbone:
                arguments["backbone"] = backbone
            yield ExperimentDescription(
                f"{method}, {dataset}, {shot}-shot",
                arguments,
                {"sampler": shape} if shape else {},
                {"dataset": dataset, "method": method, "shot": shot, "contexts": fewest[shot]},
            )

    def _contexts(
        self,
        selection: Selection,
        dataset: str,
        column: str,
        shape: Mapping[str, Any],
        shot: int,
    ) -> int:
        """Return the number of contexts of a class's support: as asked, else the smallest possible.

        Raises:
            InfeasibleTask: no number is possible; the reason is that for one context.
        """
        if self.n_contexts is not None:
            return self.n_contexts
        data = selection.open_dataset(dataset)
        split = selection.options.get("split") or ("test" if "test" in data.splits else "all")
        pool = data.pool(split)
        options = {**shape, **selection.options.get("sampler", {})}
        first: InfeasibleTask | None = None
        for number in range(1, shot + 1):
            own = {**options, "name": "context", "column": column, "n_contexts": number}
            try:
                draw({**own, "n_shot": shot}, pool, tasks=1)
            except InfeasibleTask as error:
                first = first or error
            else:
                return number
        raise InfeasibleTask(f"{shot}-shot, split {split}: {first}")

    def answer(self, results: BenchmarkResults, tables: Sequence[TableDeclaration]) -> Answer:
        """Compare the methods by what they lose in other contexts, per number of shots."""
        del tables
        names = {tag: partial(_tag, tag) for tag in ("method", "shot")}
        return Answer.comparing(results, names, "acc")

    def tables(self, results: BenchmarkResults) -> list[TableDeclaration]:
        """Declare the table of accuracies and their paired differences."""
        entries: list[Entry] = []
        for result in results:
            row = (str(result.tags["shot"]), str(result.tags["method"]))
            reason = f"failed: {result.reason}" if result.reason else ""
            for column, name in (*_ESTIMATES.items(), (_DIFFERENCE, "acc-gap")):
                estimate = result.estimates.get(name)
                measured = None if estimate is None else Quantity.of(estimate)
                entries.append(Entry(row, column, measured, reason, about=_about(result, estimate)))
        title = "Acc in percent, queries in the contexts of their support (IID) and in others (OOD)"
        return [
            TableDeclaration(
                "Figure 3",
                title,
                ("shot", "method"),
                tuple(entries),
                (*_notes(results), *footnotes(results.cautions)),
                differences=False,
                source="MetaCoCo",
            )
        ]

    def figures(self, results: BenchmarkResults) -> list[FigureDeclaration]:
        """Declare the accuracies as bars, one panel per number of shots."""
        shots = dict.fromkeys(result.tags["shot"] for result in results)
        return [
            FigureDeclaration(
                "Figure 3",
                "Queries in the contexts of their support (IID) and in others (OOD).",
                "method",
                "Acc in %",
                tuple(_panel(shot, results.where(shot=shot)) for shot in shots),
                caption_axis="IID minus OOD, in points",
                source="MetaCoCo",
            )
        ]


def _tag(tag: str, result: ExperimentResult) -> str:
    return str(result.tags[tag])


def _panel(shot: int, results: Sequence[ExperimentResult]) -> Panel:
    series, captions = [], {}
    for arm, symbol in _ARMS.items():
        points = []
        for result in results:
            estimate = result.estimates.get(f"acc-{arm}")
            quantity = None if estimate is None else Quantity.of(estimate)
            points.append(Point(result.tags["method"], quantity))
        series.append(Series(symbol, tuple(points)))
    for result in results:
        if (gap := result.estimates.get("acc-gap")) is not None:
            captions[result.tags["method"]] = Quantity.of(gap).text(signed=True)
    return Panel(f"{shot}-shot", tuple(series), captions)


def _about(result: ExperimentResult, estimate: Estimate | None) -> dict[str, Any]:
    """Return the facts that identify a value and that a reader needs."""
    facts = ("scope", "estimator", "level", "n_tasks", "n_images", "paired")
    known = {} if estimate is None else estimate.to_json()
    return {
        "dataset": result.tags["dataset"],
        "column": result.options["sampler"]["column"],
        "method": result.tags["method"],
        "backbone": result.options["backbone"]["name"],
        "shot": result.tags["shot"],
        "contexts": result.tags["contexts"],
        "run": None if result.folder is None else str(result.folder),
        **{fact: known.get(fact) for fact in facts},
    }


def _notes(results: BenchmarkResults) -> Iterator[str]:
    first = results[0]
    fewest = {result.tags["shot"]: result.tags["contexts"] for result in results}
    yield (
        f"contexts: the column {first.options['sampler']['column']} of {first.tags['dataset']}; "
        "support and queries of a class: "
        + ", ".join(
            f"from {number} {'context' if number == 1 else 'contexts'} each at {shot}-shot"
            for shot, number in fewest.items()
        )
    )
    finished = [result for result in results if result.finished]
    shapes = dict.fromkeys(
        (
            result.n_tasks["ood"],
            result.options["sampler"]["n_way"],
            result.options["sampler"]["n_query"],
        )
        for result in finished
    )
    for n_tasks, n_way, n_query in shapes:
        yield (
            f"{n_tasks:,} pairs of {n_way}-way tasks with {called({'queries': str(n_query)})}; "
            "both tasks of a pair have the same classes and the same support"
        )
    gaps = [result.estimates["acc-gap"] for result in finished]
    for level, scope in dict.fromkeys((100 * gap.level, gap.scope) for gap in gaps):
        yield (
            f"intervals of the differences: {level:g} %, Student's t over the pairs, {scope} "
            f"({_ABOUT_SCOPE[scope]})"
        )
    if gaps:
        above, below = sum(gap.low > 0 for gap in gaps), sum(gap.high < 0 for gap in gaps)
        yield (
            f"the whole interval of IID − OOD is above 0 in {above} of {len(gaps)} cases and below "
            f"0 in {below}"
        )
