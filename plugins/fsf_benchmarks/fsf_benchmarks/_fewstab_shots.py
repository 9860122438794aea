"""FewSTAB's Figure 6: does training with more shots make a method more robust?

Source: Zheng et al. 2024, section 5.5 and appendix B: the wAcc-A of a model trained on 5-shot
episodes minus that of a model trained on 1-shot episodes, both tested on the same tasks of 1, 5 and
10 shots. The figure prints no numbers, so there are none to compare with.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsf_benchmarks._fewstab import TRAINED, shots_tested, spelt
from fsf_benchmarks._fewstab_notes import SCOPES, about, joined, named, settings
from fsf_benchmarks._fewstab_tables import paired_difference
from fsf_benchmarks.interfaces import BenchmarkResults, ExperimentResult
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

__all__ = ["drawn", "tabulated"]

_NAME = "Figure 6"
_FEW, _MANY = TRAINED


def tabulated(results: BenchmarkResults) -> list[TableDeclaration]:
    """Declare one table per data set and backbone.

    Args:
        results: those of models trained at a given number of shots.
    """
    return [
        TableDeclaration(
            _NAME,
            f"{_title(block)}: wAcc-A of models trained at {_MANY} shots minus at {_FEW}, in "
            "percentage points, by shots of the tasks.",
            ("method",),
            entries := tuple(_entries(block)),
            (*_notes(block, entries), *footnotes(block.cautions)),
            differences=False,
            source="FewSTAB",
        )
        for block in _blocks(results)
    ]


def drawn(results: BenchmarkResults) -> FigureDeclaration:
    """Declare the same values as bars, one panel per data set and backbone."""
    return FigureDeclaration(
        _NAME,
        f"wAcc-A of models trained at {_MANY} shots minus at {_FEW}.",
        "method",
        "difference in percentage points",
        tuple(_panel(block) for block in _blocks(results)),
        source="FewSTAB",
    )


def _blocks(results: BenchmarkResults) -> Iterator[BenchmarkResults]:
    for dataset, backbone in dict.fromkeys(
        (r.tags["dataset"], r.tags["backbone"]) for r in results
    ):
        yield results.where(dataset=dataset, backbone=backbone)


def _title(block: BenchmarkResults) -> str:
    return f"{named(block[0])}, {block[0].tags['backbone']}"


def _panel(block: BenchmarkResults) -> Panel:
    entries = list(_entries(block))
    columns = dict.fromkeys(entry.column for entry in entries)
    series = (
        Series(
            f"{column} tasks",
            tuple(Point(e.row[0], e.measured) for e in entries if e.column == column),
        )
        for column in columns
    )
    return Panel(_title(block), tuple(series))


def _entries(block: BenchmarkResults) -> Iterator[Entry]:
    for method in dict.fromkeys(result.tags["method"] for result in block):
        own = block.where(method=method)
        for shot in shots_tested(block.selection):
            pair = [_tested(own, trained, shot) for trained in TRAINED]
            measured, reason = _difference(*pair)
            facts = {
                **about(pair[1], "wacc-biased"),
                "shot": shot,
                "estimator": "student-t",
                "run": None,
                "fingerprint": None,
            }
            yield Entry((spelt(method),), f"{shot}-shot", measured, reason, about=facts)


def _tested(own: BenchmarkResults, trained: int, shot: int) -> ExperimentResult:
    """Return a method's result on tasks of a shot; without one, that of its training."""
    found = own.where(trained_at=trained, shot=shot) or own.where(trained_at=trained, shot=trained)
    return found[0]


def _difference(few: ExperimentResult, many: ExperimentResult) -> tuple[Quantity | None, str]:
    """Return the paired difference of wAcc-A, or why there is none."""
    if not (few.reason or many.reason) and few.tags["shot"] != many.tags["shot"]:
        return None, "none: the method does not train"
    return paired_difference(few, many)


def _notes(block: BenchmarkResults, entries: tuple[Entry, ...]) -> Iterator[str]:
    data, tasks, _ = settings(block)
    yield data
    yield tasks
    yield (
        f"models: each method was trained twice, on episodes of {_FEW} and of {_MANY} shots; above "
        f"0, {_MANY} shots made it more robust"
    )
    measured = [entry for entry in entries if entry.measured is not None]
    if measured:
        level = joined(f"{100 * entry.about['level']:g} %" for entry in measured)
        scopes = joined(SCOPES[entry.about["scope"]] for entry in measured)
        yield (
            f"intervals: {level}, Student's t over the tasks, which both models answered, weights "
            f"taken as fixed; {scopes}"
        )
    yield "printed: none; the paper's figure has no numbers"
