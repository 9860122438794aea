"""A benchmark, which describes experiments and declares tables of their results.

Try it: fsf benchmark my-benchmark --method ncc --tasks 200
"""

from collections.abc import Iterator, Sequence

from fsf_benchmarks.interfaces import (
    Benchmark,
    BenchmarkResults,
    ExperimentDescription,
    Selection,
)
from fsf_reports.values import Entry, Quantity, TableDeclaration
from fsframework.values import footnotes


class MyBenchmark(Benchmark):
    """Accuracy on random tasks by the number of shots."""

    axes = ("dataset", "method", "shot")  # what a user may choose

    def __init__(self, *, way: int = 5) -> None:
        self.way = way

    def experiments(self, selection: Selection) -> Iterator[ExperimentDescription]:
        """Describe the experiments; what the user leaves out is for the benchmark to choose."""
        data = selection.only("dataset")
        for method in selection.methods or ("protonet", "ncc"):
            for shot in selection.shots or (1, 5, 10):
                chosen = {"method": method, "shot": shot}
                yield ExperimentDescription(
                    f"{method}, {shot}-shot",
                    # Options of `fsf run`: first those that define the experiment, then defaults.
                    {**chosen, "way": self.way, "dataset": data.value if data else "planted"},
                    defaults={"sampler": "random", "tasks": 600},
                    tags=chosen,
                )

    def tables(self, results: BenchmarkResults) -> Sequence[TableDeclaration]:
        """Declare a table with a row for each experiment; a failed one has its reason."""
        entries = []
        for result in results:
            found = result.estimates.get("acc-random")
            measured = None if found is None else Quantity.of(found)
            row = (str(result.tags["method"]), str(result.tags["shot"]))
            entries.append(Entry(row, "Acc", measured, result.reason, about=dict(result.tags)))
        notes = tuple(footnotes(results.cautions))
        names = ("method", "shot")
        return [TableDeclaration("Shots", "Acc in %.", names, tuple(entries), notes)]
