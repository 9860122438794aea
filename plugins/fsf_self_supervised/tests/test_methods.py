"""What the methods do with views and with what they remember, worked out again."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.transfer import NCC, Logistic
from fsf_self_supervised.methods import BECLR, MoCo, OpTA, PsCo, UniSiam
from fsf_self_supervised.methods._clusters import ClusteredMemory
from fsf_self_supervised.methods._losses import (
    nt_xent,
)
from fsf_self_supervised.methods._memory import MomentumCopy, Queue
from fsf_self_supervised.methods._opta import relative_cost, transport_plan
from fsframework.interfaces import Batch, FewShotMethod, OptionError
from fsframework.testing.method import ToyBackbone
from tests.toy_views import Dimmed


def built(method: FewShotMethod) -> Any:
    torch.manual_seed(0)
    method.build((32,), 0, ToyBackbone())
    return method.train()


def views(n: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(n, 2, 3, 20, 20, generator=torch.Generator().manual_seed(seed))


def test_nt_xent_worked_by_hand() -> None:
    # Two images whose views are at right angles to the other's; one view is longer.
    first, second = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[4.0, 0.0], [0.0, 1.0]])
    expected = math.log(math.exp(2) + 2) - 2
    assert nt_xent(first, second, 0.5).item() == pytest.approx(expected, abs=1e-6)


def test_a_teacher_adds_the_cosine_of_each_view_with_its_own_target() -> None:
    method = built(UniSiam(views=Dimmed(), width=8, teacher_width=16))
    batch = Batch(views=views(6))
    own = method.loss(batch).item()
    # What the head predicts, view by view of each image, as the targets are ordered too.
    vectors = method.backbone.encode(batch.views.flatten(0, 1))
    predicted = method.follow(vectors).detach().unflatten(0, (6, 2))
    for factor, cosine in ((2.0, 1.0), (-0.5, -1.0)):
        taught = Batch(views=batch.views, teacher_vectors=factor * predicted)
        assert method.loss(taught).item() == pytest.approx(own / 2 - cosine / 2, abs=1e-6)
    # Targets of the other view are others.
    swapped = Batch(views=batch.views, teacher_vectors=predicted.flip(1))
    assert method.loss(swapped).item() > own / 2 - 1 / 2 + 1e-4
    longer = Batch(views=batch.views, teacher_vectors=torch.ones(6, 2, 9))
    with pytest.raises(OptionError, match="must be 9, the length of the teacher's vectors, not 16"):
        method.loss(longer)


def test_parts_are_normalised_on_their_own_and_keys_keep_their_order() -> None:
    method, seen = built(MoCo(views=Dimmed(), queue=16, width=4, parts=3)), list[int]()
    method.backbone.register_forward_hook(lambda _, images, __: seen.append(len(images[0])))
    method.loss(Batch(views=views(8)))
    assert seen == [3, 3, 2]
    # In evaluation BatchNorm sees no batch, so parts change nothing.
    method.eval()
    method.loss(Batch(views=views(8)))
    expected = functional.normalize(method.slow(views(8)[:, 1]), dim=1)
    torch.testing.assert_close(method.carried["keys"], expected)


def test_loss_leaves_queue_and_copy_alone_and_after_step_changes_them() -> None:
    made = built(MoCo(views=Dimmed(), queue=16, width=4))
    with torch.no_grad():
        for parameter in made.backbone.parameters():
            parameter += 0.1
    before = {k: v.clone() for k, v in made.state_dict().items() if "running" not in k}
    made.loss(Batch(views=views()))
    kept = made.state_dict()
    assert all(torch.equal(kept[k], v) for k, v in before.items() if "num_batches" not in k)
    made.after_step(made.carried)
    torch.testing.assert_close(made.keys.entries[:8], made.carried["keys"])
    own = dict(made.slow.slow_backbone.named_parameters())
    assert all(torch.equal(own[name], p) for name, p in made.backbone.named_parameters())


def test_the_heads_of_psco_compare_predictions_with_projections() -> None:
    method = built(PsCo(views=Dimmed(), queue=16, width=4, hidden=8)).eval()
    support, query = torch.rand(2, 3, 2, 32), torch.rand(2, 5, 32)
    embedded = [method.embed(t.flatten(0, -2)).reshape(*t.shape[:-1], 8) for t in (support, query)]
    means = functional.normalize(method.project(support.flatten(0, 2)), dim=1)
    means = functional.normalize(means.reshape(2, 3, 2, 4).mean(dim=2), dim=2)
    asked = functional.normalize(method.predict(method.project(query.flatten(0, 1))), dim=1)
    expected = asked.reshape(2, 5, 4) @ means.mT
    torch.testing.assert_close(method.scores(*embedded), expected)
    plain = built(PsCo(views=Dimmed(), queue=16, width=4, hidden=8, space="backbone"))
    torch.testing.assert_close(plain.scores(support, query), NCC().scores(support, query))
    assert plain.embed(query) is query


def beclr(**options: Any) -> Any:
    usual = {"memory": 32, "clusters": 2, "k": 3, "rounds": 1, "mask": 0.0, "mask_spread": 0.0}
    return built(BECLR(views=Dimmed(), inference=NCC(), **{**usual, **options}))


def test_neighbours_come_from_step_start_on() -> None:
    method, losses = beclr(start=3), list[tuple[float, float]]()
    for step in range(5):
        loss = method.loss(Batch(views=views(seed=step)))
        rows = {k: v.transpose(0, 1).flatten(0, 1) for k, v in method.carried.items()}
        losses.append((loss.item(), method._loss(rows).item()))
        method.after_step(method.carried)
    assert [loss == pytest.approx(plain) for loss, plain in losses] == [True] * 3 + [False] * 2


def test_a_step_is_enlarged_by_k_neighbours_of_each_view() -> None:
    method = beclr(start=0)
    for step in range(3):
        method.loss(Batch(views=views(seed=step)))
        method.after_step(method.carried)
    rows = torch.randn(10, 32)
    enlarged = method._enlarged("taught", rows)
    assert enlarged.shape == (40, 32)
    first, second = enlarged.chunk(2)
    assert torch.equal(torch.cat([first[:5], second[:5]]), rows)
    near = method.taught.neighbours(rows[5:6], 3)[0]
    assert torch.equal(second[5:8], near)


def test_masked_cells_are_whole_and_of_the_share_asked_for() -> None:
    method = beclr(mask=0.4, mask_spread=0.2, cell=8)
    torch.manual_seed(0)
    masked = method._masked(torch.ones(500, 3, 20, 20)) == 0
    assert masked[:, :, :8, :8].float().mean().item() == pytest.approx(0.4, abs=0.05)
    cells = masked[:, 0].float()
    assert torch.equal(
        cells[:, ::8, ::8].repeat_interleave(8, 1).repeat_interleave(8, 2)[:, :20, :20], cells
    )
    assert not beclr()._masked(torch.ones(5, 3, 20, 20)).eq(0).any()


def test_beclr_scores_as_its_inference_does() -> None:
    method = BECLR(views=Dimmed(), inference=OpTA(classifier=Logistic()))
    assert method.transductive
    assert method.reads_values
    assert not BECLR(views=Dimmed(), inference=NCC()).transductive
    support, query = torch.rand(2, 3, 1, 8), torch.rand(2, 6, 8)
    expected = OpTA(classifier=Logistic()).scores(support, query)
    torch.testing.assert_close(method.scores(support, query), expected)


def test_each_transport_stops_on_its_own() -> None:
    torch.manual_seed(0)
    prototypes, query = torch.randn(6, 3, 8), torch.randn(6, 9, 8)
    # Costs that differ little are transported in fewer iterations.
    query[::2] *= 1e-3
    cost = relative_cost(prototypes, query)
    together = transport_plan(cost, 0.05, 1000, 1e-4)
    alone = [transport_plan(one[None], 0.05, 1000, 1e-4) for one in cost]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-6)
    # They do not all stop together: few iterations are enough for some only.
    few = transport_plan(cost, 0.05, 12, 1e-4)
    same = (few - together).abs().amax(dim=(1, 2)) == 0
    assert 0 < same.sum() < len(same)


def test_without_passes_opta_is_its_classifier_on_class_means() -> None:
    method = OpTA(classifier=NCC(), passes=0)
    support, query = torch.randn(2, 3, 4, 8), torch.randn(2, 5, 8)
    away = [t - t.mean(dim=-1, keepdim=True) for t in (support, query)]
    support, query = (t / t.std(dim=-1, keepdim=True) for t in away)
    expected = NCC().scores(support.mean(dim=2, keepdim=True), query)
    torch.testing.assert_close(method.scores(*away), expected)


def test_a_queue_writes_over_its_oldest_vectors() -> None:
    queue = Queue(5, 1)
    for first in (0, 3, 6):
        queue.write(torch.arange(first, first + 3.0)[:, None])
    assert queue.entries.flatten().tolist() == [5.0, 6.0, 7.0, 8.0, 4.0]
    # More than fit: the last ones count.
    queue.write(torch.arange(10.0, 17.0)[:, None])
    assert sorted(queue.entries.flatten().tolist()) == [12.0, 13.0, 14.0, 15.0, 16.0]


def test_a_queue_starts_with_vectors_of_length_one() -> None:
    torch.testing.assert_close(Queue(7, 4).entries.norm(dim=1), torch.ones(7))


def test_a_copy_takes_over_the_weights_first_and_then_follows_slowly() -> None:
    backbone, head = ToyBackbone(), nn.Linear(2, 1, bias=False)
    slow = MomentumCopy(backbone, head, 0.75)
    assert not any(p.requires_grad for p in slow.parameters())
    for value, expected in ((4.0, 4.0), (8.0, 5.0), (5.0, 5.0)):
        nn.init.constant_(head.weight, value)
        slow.follow(backbone, head)
        assert slow.slow_head.weight.tolist() == [[expected, expected]]
    own = dict(slow.slow_backbone.named_parameters())
    assert all(torch.equal(own[name], p) for name, p in backbone.named_parameters())


def axes(*numbers: int, noise: float = 0.1) -> torch.Tensor:
    """Return vectors near axes of three dimensions."""
    generator = torch.Generator().manual_seed(0)
    return 3 * torch.eye(3)[list(numbers)] + noise * torch.randn(
        len(numbers), 3, generator=generator
    )


def test_a_full_memory_is_clustered_and_new_vectors_join_the_clusters() -> None:
    memory = ClusteredMemory(6, 3, 3, epsilon=0.05, iterations=10, rounds=2)
    memory.write(axes(0, 1, 2, 0))
    assert not memory.ready
    assert not memory.centres.any()
    memory.write(axes(1, 2))  # full: the first round of k-means
    memory.write(axes(2, 1))  # the second one, with the two oldest vectors written over
    assert memory.ready
    memory.write(axes(0, 1))
    # The places hold axes 2 1 | 0 1 | 1 2.
    labels = memory.labels.tolist()
    assert [labels[i] for i in (1, 3, 4)] == [labels[1]] * 3
    assert labels[0] == labels[5]
    assert len(set(labels)) == 3
    nearest = memory.centres[labels[2]].argmax()
    assert nearest == 0
    torch.testing.assert_close(memory.centres[labels[1]], memory.queue.entries[[1, 3, 4]].mean(0))


def test_neighbours_are_of_the_nearest_cluster_if_it_has_enough() -> None:
    memory = ClusteredMemory(4, 2, 2, epsilon=0.05, iterations=3, rounds=1)
    units = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]])
    memory.queue.entries.copy_(units)
    memory.labels.copy_(torch.tensor([0, 0, 0, 1]))
    memory.centres.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    vectors = torch.tensor([[3.0, 0.3], [0.5, 5.0]])
    # The second row's cluster has one vector, too few for two.
    assert torch.equal(memory.neighbours(vectors, 2), units[torch.tensor([[0, 1], [3, 2]])])
    # The second row's cluster has one vector, enough for one.
    assert torch.equal(memory.neighbours(vectors, 1), units[torch.tensor([[0], [3]])])


def test_a_cluster_without_vectors_keeps_its_centre() -> None:
    memory = ClusteredMemory(2, 2, 2, epsilon=0.05, iterations=3, rounds=1)
    memory.write(torch.eye(2))
    for _ in range(2):
        memory.write(torch.tensor([[1.0, 0.0]]))
    assert memory.labels.tolist() == [0, 0]
    assert torch.equal(memory.centres, torch.eye(2))
