"""Benchmarks by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsframework.api.experiments import ORIGIN
from fsframework.components.objects import named
from fsframework.components.registry import Registry
from fsframework.components.resolution import Given, resolve_component
from fsframework.interfaces.benchmark import Benchmark
from fsframework.pipeline.experiment.arguments import given_tree

__all__ = ["benchmark", "benchmark_of"]


def benchmark(request: Any, **options: Any) -> Benchmark:
    """Return a benchmark.

    Args:
        request: a name (``fewstab``), a mapping of a name and options, a class, or an instance,
            which is returned as it is.
        **options: of the benchmark, in addition to those in ``request``.

    Raises:
        PluginError: the benchmark is unknown.
        OptionError: an option is unknown or not allowed.
    """
    if isinstance(request, Benchmark):
        return request
    tree = given_tree({"name": request}, ORIGIN)["name"]
    own = {key: Given(value, ORIGIN) for key, value in options.items()}
    return benchmark_of(Registry(), {"name": tree, **own})


def benchmark_of(registry: Registry, tree: Mapping[str, Any]) -> Benchmark:
    """Return the benchmark of a tree of ``Given`` with a name and options."""
    component = resolve_component(registry, "benchmark", named(registry, "benchmark", tree))
    made: Benchmark = component.create()
    return made
