"""Tasks are kept under what decides them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.pipeline.cache.workspace import Workspace
from fsframework.pipeline.progress import Reporter
from fsframework.pipeline.session import Session
from fsframework.pipeline.tasks import draw_arms
from fsframework.testing.toys import toy_pool


def test_the_arms_of_a_contrast_share_no_tasks_in_the_cache(tmp_path: Path) -> None:
    """The sampler of each arm has the same options, and is in the same file."""
    registry, pool = Registry(), toy_pool()
    options = {"name": "context", "n_shot": 1, "n_query": 4}
    sampler = resolve_component(registry, "sampler", options)
    fresh = draw_arms(registry, sampler, pool, 3, 0, None)
    assert not np.array_equal(fresh["iid"].query, fresh["ood"].query)
    session = Session(registry, Workspace(tmp_path, tmp_path), Reporter())
    for _ in range(2):  # drawn, then read
        kept = draw_arms(registry, sampler, pool, 3, 0, session)
        assert {arm: t.digest for arm, t in kept.items()} == {
            arm: t.digest for arm, t in fresh.items()
        }
