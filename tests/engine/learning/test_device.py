"""A training step makes no GPU wait: it moves its images there and reads nothing back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fsframework as fsf
from fsf_methods.metric import ProtoNet
from fsf_methods.transfer import Baseline
from fsframework.engine.learning.batches import Split, StepBatches
from fsframework.engine.learning.model import FewShotModel
from fsframework.engine.stages import Stage
from fsframework.interfaces import FewShotMethod
from fsframework.testing._meta import fault_on_meta
from fsframework.values import ImagePool
from tests.toys import TinyBackbone

N_CLASSES, EACH, SIDE = 4, 6, 24
ON = torch.device("meta")


@pytest.mark.parametrize("method", [ProtoNet, Baseline])
@pytest.mark.parametrize("freeze", [(), ("backbone",)])
def test_a_training_step_makes_no_gpu_wait(
    method: type[FewShotMethod], freeze: tuple[str, ...]
) -> None:
    labels = np.arange(N_CLASSES).repeat(EACH)
    pool = ImagePool([str(i) for i in range(len(labels))], labels, tuple("abcd"))
    pixels = np.zeros((len(labels), SIDE, SIDE, 3), np.uint8)
    model = FewShotModel(TinyBackbone(), method(), SIDE, N_CLASSES).to(ON).train()
    augment = () if freeze else ("resized-crop", "color-jitter", "flip")
    stage = Stage(batch_size=8, augment=augment, tasks_per_step=1)
    shown = model.method.learns_from
    batches = StepBatches(
        stage, shown, model, Split(pool, pixels), model.encode, ON, fixed=bool(freeze)
    )
    drawn = fsf.draw("random", pool, tasks=1, way=N_CLASSES, shot=2, queries=4)["random"]
    batch = batches.of_epoch(drawn if batches.has_episodes else None, 0)
    batch(0)  # the items of a backbone that stays as it is are kept
    assert fault_on_meta(lambda: model.method.loss(batch(0)), feeds=True) == ""
