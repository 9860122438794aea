"""Calls inside the caller's modes of PyTorch: the same numbers, and the modes stay as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fsframework as fsf
from fsf_self_supervised import pretrain

PLANTED = {"name": "planted", "n_per_class": 8, "size": 16}
TASKS: dict[str, Any] = {"sampler": "random", "way": 2, "shot": 1, "queries": 2, "tasks": 5}
ONCE = {"epochs": 1, "steps": 2, "validation_tasks": 0}


@contextmanager
def setting(change: Callable[[Any], object], value: object, usual: object) -> Iterator[None]:
    """Set a state of the process for a block."""
    change(value)
    try:
        yield
    finally:
        change(usual)


MODES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "inference": torch.inference_mode,
    "no gradients": torch.no_grad,
    "gradients off": lambda: setting(torch.set_grad_enabled, False, True),
    "float64": lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
    "meta": lambda: setting(torch.set_default_device, "meta", None),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "deterministic": lambda: setting(torch.use_deterministic_algorithms, True, False),
}


def state() -> tuple[object, ...]:
    """Return the modes that are in force."""
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    autocast = torch.is_autocast_enabled("cpu")
    return grad, inference, autocast, torch.get_default_dtype(), torch.get_default_device()


def numbers(folder: Path) -> list[object]:
    """Return what a run with an inner loop, an evaluation, a model and a pretraining give."""
    places = {"cache_dir": folder / "cache", "progress": False}
    shared: dict[str, Any] = {**places, "dataset": PLANTED, "image_size": 24, "device": "cpu"}
    made = fsf.run(method="maml", **TASKS, **shared, training=ONCE, runs_dir=folder / "runs")
    model, images = made.model(device="cpu"), np.full((2, 24, 24, 3), 9, np.uint8)
    again = fsf.evaluate(model, made.tasks, PLANTED, device="cpu", **places)
    file = folder / "w.safetensors"
    pretrained = pretrain(file, method="simclr", training={**ONCE, "batch_size": 8}, **shared)
    return [
        made.outcomes["random"].predictions.tolist(),
        again["random"].predictions.tolist(),
        model.scores(images, [0, 1], images).tolist(),
        pretrained.history[0].loss,
    ]


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """The numbers without a mode."""
    return numbers(tmp_path_factory.mktemp("usual"))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_of_the_caller_changes_no_number(
    mode: str, usual: list[object], tmp_path: Path
) -> None:
    with MODES[mode]():
        before = state()
        found = numbers(tmp_path)
        assert state() == before
    assert found == usual
