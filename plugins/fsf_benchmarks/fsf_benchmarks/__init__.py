"""Published experiments, with the values that their papers print."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_benchmarks._beside import beside_printed, printed_of_runs, printed_values
    from fsf_benchmarks._contexts import Contexts
    from fsf_benchmarks._fewstab import FewStab
    from fsf_benchmarks._metacoco import MetaCoCo
    from fsf_benchmarks._open_intervals import OpenIntervals
    from fsf_benchmarks._running import FinishedBenchmark, run_benchmark
    from fsf_benchmarks._section import PrintedValues
    from fsf_benchmarks._similarity import Templates, measure_similarities

__all__ = [
    "Contexts",
    "FewStab",
    "FinishedBenchmark",
    "MetaCoCo",
    "OpenIntervals",
    "PrintedValues",
    "Templates",
    "beside_printed",
    "measure_similarities",
    "printed_of_runs",
    "printed_values",
    "run_benchmark",
]

__version__ = "0.1.0"

_HOME = {
    "Contexts": "_contexts",
    "FewStab": "_fewstab",
    "FinishedBenchmark": "_running",
    "MetaCoCo": "_metacoco",
    "OpenIntervals": "_open_intervals",
    "PrintedValues": "_section",
    "Templates": "_similarity",
    "beside_printed": "_beside",
    "measure_similarities": "_similarity",
    "printed_of_runs": "_beside",
    "printed_values": "_beside",
    "run_benchmark": "_running",
}
"""The module of each name; accessing a name imports only its module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
