"""What a GPU waits for: nothing in a training step, one check in a batch of an evaluation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fsframework as fsf
from fsf_methods.metric import ProtoNet
from fsf_methods.transfer import Baseline
from fsframework.engine.learning import scoring
from fsframework.engine.learning.batches import Split, StepBatches
from fsframework.engine.learning.evaluation import ImageSource, ModelClassifier, _Predictor
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


def test_a_gpu_waits_once_in_a_batch_of_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FewShotModel(TinyBackbone(), ProtoNet(), SIDE, 0).to(ON)
    pool = ImagePool([str(i) for i in range(24)], np.arange(24) % N_CLASSES, tuple("abcd"))
    tasks = fsf.draw("random", pool, tasks=3, way=N_CLASSES, shot=2, queries=2)["random"]
    shape = (24, *model.method.embed(torch.zeros(1, 8, device=ON)).shape[1:])
    classifier = ModelClassifier(model, ImageSource(torch.zeros(shape, device=ON)))
    predictor = _Predictor(classifier, tasks, "task")
    checked: list[object] = []
    # The check reads whether scores are finite, which tensors without values cannot tell.
    monkeypatch.setattr(scoring, "check_tensor", lambda *given: checked.append(given))
    assert fault_on_meta(lambda: predictor(0), feeds=True) == ""
    assert len(checked) == 1
