"""Fixtures of the core's tests, and the experiments of a benchmark without running them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fsf_benchmarks._running import Job, make_job
from fsframework.api.components import Given
from fsframework.api.experiments import given_tree
from fsframework.api.session import open_session
from tests.conftest import (
    _cache_of_module,
    _own_folders,
    distribution,
    failing,
    fsf,
    shared_cache,
)

__all__ = [
    "_cache_of_module",
    "_own_folders",
    "distribution",
    "failing",
    "fsf",
    "shared_cache",
]

Planned = Callable[..., Job]
TOYS = Path(__file__).with_name("toy_grid.py")


@pytest.fixture
def planned() -> Planned:
    """Return a function that makes a benchmark ready with the toys, and runs nothing."""

    def make(
        name: str,
        chosen: Mapping[str, Sequence[Any]] | None = None,
        own: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Job:
        session = open_session(plugins=[TOYS], progress=False)
        tree = given_tree(options, "call")
        tree["benchmark"] = {key: Given(value, "call") for key, value in (own or {}).items()}
        return make_job(name, session, tree, {}, chosen or {})

    return make
