from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.gradient import MAML
from fsf_methods.metric import DN4, ProtoNet, RENet
from fsf_methods.transfer import Baseline
from fsf_self_supervised.pretext import SLA
from fsf_self_supervised.pretext._sla import distillation, joint_batch
from fsf_self_supervised.views import Patches, Rotation
from fsframework.interfaces import Batch, OptionError
from fsframework.testing.method import ToyBackbone, built

WAY, SHOT, N, M = 3, 2, 5, 2


def turned() -> Rotation:
    return Rotation(angles=(0, 90))


def episode(tasks: int = 4) -> Batch:
    generator = torch.Generator().manual_seed(0)
    return Batch(
        support=torch.randn(tasks, WAY, SHOT, 3, 20, 20, generator=generator),
        query=torch.randn(tasks, N, 3, 20, 20, generator=generator),
        query_labels=torch.randint(WAY, (tasks, N), generator=generator),
    )


def vectors(method: Any, images: Tensor) -> list[Tensor]:
    """Return the vectors of the image and of the image turned by 90 degrees."""
    return [
        method.backbone.encode(view.flatten(0, -4)).unflatten(0, images.shape[:-3])
        for view in (images, torch.rot90(images, 1, (-2, -1)))
    ]


@torch.no_grad()
def test_scores_and_loss_on_protonet_one_by_one() -> None:
    method, batch = built(lambda: SLA(base=ProtoNet(), views=turned())), episode()
    assert batch.support is not None
    assert batch.query is not None
    assert batch.query_labels is not None
    support, query = method.embed_episode(batch)
    assert support.shape[:4] == (4, WAY, SHOT, M)
    found = method.scores(support, query)
    of_support, of_query = vectors(method, batch.support), vectors(method, batch.query)
    losses = []
    for t in range(4):
        prototypes = [of_support[v][t, c].mean(dim=0) for c in range(WAY) for v in range(M)]
        for i in range(N):
            joint = torch.tensor(
                [
                    [-(of_query[v][t, i] - prototype).square().sum() for prototype in prototypes]
                    for v in range(M)
                ]
            )
            expected = torch.stack(
                [torch.stack([joint[v, c * M + v] for v in range(M)]).mean() for c in range(WAY)]
            )
            torch.testing.assert_close(found[t, i], expected, rtol=1e-4, atol=1e-4)
            label = int(batch.query_labels[t, i])
            losses += [-joint[v].log_softmax(0)[label * M + v] for v in range(M)]
    torch.testing.assert_close(method.loss(batch), torch.stack(losses).mean(), rtol=1e-4, atol=0)


def test_a_joint_batch_has_a_class_for_each_view_of_each_class() -> None:
    # Numbers instead of images: image i has the views 10 i and 10 i + 1.
    batch = Batch(
        support=torch.tensor([[[0, 1], [2, 3]]]),
        query=torch.tensor([[4, 5, 6]]),
        query_labels=torch.tensor([[1, 0, 1]]),
        support_classes=torch.tensor([[[7, 7], [3, 3]]]),
        query_classes=torch.tensor([[3, 7, 3]]),
        items=torch.tensor([7]),
        classes=torch.tensor([5]),
    )
    joint = joint_batch(batch, torch.tensor([[10 * i, 10 * i + 1] for i in range(8)]))
    expected = {
        "support": [[[0, 10], [1, 11], [20, 30], [21, 31]]],
        "support_classes": [[[14, 14], [15, 15], [6, 6], [7, 7]]],
        "query": [[40, 41, 50, 51, 60, 61]],
        "query_labels": [[2, 3, 0, 1, 2, 3]],
        "query_classes": [[6, 7, 14, 15, 6, 7]],
        "items": [70, 71],
        "classes": [10, 11],
    }
    for name, values in expected.items():
        assert getattr(joint, name).tolist() == values, name


def test_divergence_worked_by_hand() -> None:
    # P = (1/2, 1/2), Q = (1/4, 3/4) at T = 2: KL = log(2) / 2 + log(2/3) / 2 = 0.1438, times 4.
    teacher, student = torch.zeros(1, 2), 2 * torch.tensor([[1.0, 3.0]]).log()
    assert distillation(teacher, student, 2.0).item() == pytest.approx(4 * 0.143841, rel=1e-4)
    both = distillation(teacher.expand(3, -1), student.expand(3, -1), 2.0)
    assert both.item() == pytest.approx(4 * 0.143841, rel=1e-4)


def test_distillation_adds_to_the_joint_loss_and_scores_without_views() -> None:
    options = {"self_distillation": True, "temperature": 3.0}
    both = built(lambda: SLA(base=ProtoNet(), views=turned(), **options))
    fast = built(lambda: SLA(base=ProtoNet(), views=turned(), inference="single", **options))
    plain = built(lambda: SLA(base=ProtoNet(), views=turned()))
    batch = episode()
    assert batch.query_labels is not None
    support, query = fast.embed_episode(batch)
    assert query.shape == (4, N, 32), "an image is embedded as one vector"
    alone = fast.scores(support, query).flatten(0, 1)
    together = plain.scores(*plain.embed_episode(batch)).flatten(0, 1)
    cross_entropy = functional.cross_entropy(alone, batch.query_labels.flatten())
    expected = plain.loss(batch) + cross_entropy + distillation(together, alone, 3.0)
    torch.testing.assert_close(both.loss(batch), expected)


@pytest.mark.parametrize("base", [DN4, RENet, Baseline, MAML])
def test_an_image_passes_the_backbone_once_per_view(base: Any) -> None:
    options = {"n_way": 10, "train_steps": 1, "test_steps": 1} if base is MAML else {}
    method = built(lambda: SLA(base=base(**options), views=turned()))
    [backbone] = [m for m in method.modules() if isinstance(m, ToyBackbone)]
    seen: list[int] = []
    backbone.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    with torch.no_grad():
        method.embed(torch.randn(6, 3, 20, 20))
    # MAML adapts its backbone to each task, so its views stay images.
    assert seen == ([] if base is MAML else [12])
    assert method.embeds_images == (base is not MAML)
    assert method.n_way == (5 if base is MAML else None)


def test_what_does_not_fit_is_one_sentence() -> None:
    with pytest.raises(OptionError, match="made for 2 times as many .*, but MAML is made for 5"):
        SLA(base=MAML(), views=turned())
    with pytest.raises(OptionError, match="but MAML is made for 10"):
        SLA(base=MAML(n_way=10), views=turned(), inference="single")
    with pytest.raises(OptionError, match="one by each transformation, as rotation does, but Pat"):
        SLA(base=ProtoNet(), views=Patches())
    with pytest.raises(OptionError, match="temperature must be above 0, got 0"):
        SLA(base=ProtoNet(), views=turned(), temperature=0.0)
    inner = SLA(base=ProtoNet(), views=turned())
    with pytest.raises(OptionError, match="for self_distillation, but SLA is trained on images"):
        SLA(base=inner, views=turned(), self_distillation=True)
    method = built(lambda: SLA(base=Baseline(), views=turned()))
    taught = Batch(items=torch.zeros(2, 3, 20, 20), teacher_logits=torch.zeros(2, 11))
    with pytest.raises(OptionError, match="SLA has no loss of a teacher's logits"):
        method.loss(taught)
