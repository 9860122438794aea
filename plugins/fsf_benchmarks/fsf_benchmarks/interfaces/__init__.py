"""The contract of benchmarks."""

from fsf_benchmarks.interfaces.benchmark import (
    AXES,
    Benchmark,
    BenchmarkResults,
    Labelled,
    Selection,
)
from fsf_benchmarks.interfaces.experiments import ExperimentDescription, ExperimentResult
from fsf_benchmarks.interfaces.values import Answer, Cell, PrintedValue

__all__ = [
    "AXES",
    "Answer",
    "Benchmark",
    "BenchmarkResults",
    "Cell",
    "ExperimentDescription",
    "ExperimentResult",
    "Labelled",
    "PrintedValue",
    "Selection",
]
