"""Threads of one process compute one call at a time, and the user's generators stay as they are."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import fsframework as fsf
from fsframework.testing._random import global_states
from tests.toys import TinyBackbone

SMALL: dict[str, Any] = {
    "dataset": {"name": "planted", "n_per_class": 8, "size": 16},
    "training": {"epochs": 1, "steps": 20, "n_query": 1, "validation_tasks": 0},
    **dict.fromkeys(("way", "tasks"), 2),
    **dict.fromkeys(("shot", "queries"), 1),
    "method": "protonet",
    "sampler": "random",
    "backbone": TinyBackbone,  # has dropout: every step draws
    "progress": False,
}
TRAININGS: list[dict[str, Any]] = [{"seed": 0}, {"seed": 1}]


def trained(folder: Path, given: dict[str, Any]) -> bytes:
    run = fsf.run(**SMALL, **given, runs_dir=folder, cache_dir=folder / "cache")
    assert not run.reused
    return (run.folder / "weights.safetensors").read_bytes()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A folder of runs that were made one after the other, and their weights."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, [trained(folder, given) for given in TRAININGS]


def in_threads(call: Callable[[dict[str, Any]], bytes]) -> list[bytes]:
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(call, TRAININGS))


def in_tasks(call: Callable[[dict[str, Any]], bytes]) -> list[bytes]:
    async def both() -> list[bytes]:
        return await asyncio.gather(*(asyncio.to_thread(call, given) for given in TRAININGS))

    return asyncio.run(both())


@pytest.mark.slow
@pytest.mark.parametrize("together", [in_threads, in_tasks])
def test_two_trainings_at_once_give_the_weights_of_two_in_turn(
    together: Callable[..., list[bytes]], alone: tuple[Path, list[bytes]], tmp_path: Path
) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change places wherever they may
    try:
        assert together(partial(trained, tmp_path)) == alone[1]
    finally:
        sys.setswitchinterval(interval)


def test_calls_leave_the_generators_where_they_were() -> None:
    given = {**SMALL, "backbone": "conv64f"}
    for call in (
        partial(fsf.describe, **given),
        partial(fsf.run, **given),
        partial(fsf.run, **given),  # finished before
        lambda: fsf.run(**given).model(),
        partial(fsf.model, "protonet"),
    ):
        before = global_states(), torch.get_rng_state().tolist()
        call()
        assert (global_states(), torch.get_rng_state().tolist()) == before
