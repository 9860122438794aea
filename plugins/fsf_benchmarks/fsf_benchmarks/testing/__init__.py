"""Checks that benchmarks fulfil their contract.

``fsframework.testing.check_component`` and ``fsf plugins check NAME`` run them.
"""

from fsf_benchmarks.testing.toys import toy_benchmark_results, toy_selection

__all__ = ["toy_benchmark_results", "toy_selection"]
