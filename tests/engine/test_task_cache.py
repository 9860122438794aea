"""Tasks are kept under what decides them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.engine import tasks
from fsframework.engine.progress import Reporter
from fsframework.engine.session import Session, Workspace
from fsframework.engine.tasks import draw_arms
from fsframework.testing.toys import toy_pool
from tests.toys import Counting


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


@pytest.mark.parametrize("name", ["random", "fewstab", "context"])
def test_the_progress_of_a_long_draw_counts_every_task(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr(tasks, "_MANY", 50)
    monkeypatch.setattr(tasks, "_REPORTED", 10)
    sampler = resolve_component(Registry(), "sampler", {"name": name, "n_shot": 1, "n_query": 2})
    for n_tasks, counted in ((49, {}), (60, {f"drawing {name} tasks": 60})):
        reporter = Counting()
        session = Session(Registry(), Workspace(tmp_path, tmp_path), reporter)
        tasks.draw_tasks(sampler, toy_pool(), n_tasks, 0, session)
        assert reporter.units == counted
