"""ANIL, LEO and MTL, which adapt what comes after the backbone."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional

from fsf_backbones import Conv64F, ResNet12
from fsf_methods.gradient import ANIL, LEO, MTL
from fsf_methods.gradient._mtl import _accuracies, _hardest
from fsframework.interfaces import Backbone, Batch, OptionError
from plugins.fsf_methods.tests.toys import assert_same_gradients, built, by_task, episode, scored


def anil(size: int, **options: Any) -> ANIL:
    return built(ANIL, size, **options).double()


def looped(method: ANIL, support: Tensor, query: Tensor) -> Tensor:
    """Return the logits of one task, support ``(way, shot, D)``, by PyTorch's gradients."""
    way, shot, _ = support.shape
    labels = torch.arange(way).repeat_interleave(shot)
    head = method.classify.start(1, way)
    weight, bias = head[0][0], head[1][0]
    for _ in range(method.train_steps if method.training else method.test_steps):
        logits = functional.linear(support.flatten(0, 1), weight, bias)
        loss = functional.cross_entropy(logits, labels)
        found = torch.autograd.grad(loss, (weight, bias), create_graph=not method.first_order)
        weight, bias = weight - method.inner_lr * found[0], bias - method.inner_lr * found[1]
    return functional.linear(query, weight, bias)


@pytest.mark.parametrize("options", [{}, {"head": "shared"}, {"first_order": True}])
@pytest.mark.parametrize("training", [True, False])
def test_scores_and_gradients_of_anil_are_those_of_a_loop(options: Any, training: bool) -> None:
    method = anil(6, n_way=3, inner_lr=0.4, train_steps=3, test_steps=5, **options)
    method.train(training)
    batch = episode(6, tasks=4, n=7, dtype=torch.float64)
    support, query = batch.support.requires_grad_(), batch.query.requires_grad_()
    scores, expected = method.scores(support, query), by_task(looped, method, batch)
    torch.testing.assert_close(scores, expected)
    leaves = [query, *method.parameters(), *([] if method.first_order else [support])]
    assert_same_gradients(scores, expected, leaves)


def test_long_vectors_and_high_rates_do_not_amplify_rounding() -> None:
    method, batch = anil(1600, inner_lr=0.05, test_steps=10), episode(1600, way=5, shot=5, n=20)
    expected = scored(method, Batch(batch.support.double(), batch.query.double()))
    spread = (expected.amax(dim=2) - expected.amin(dim=2)).mean()
    assert (scored(method.float(), batch) - expected).abs().max() / spread < 1e-3


TASKS, WAY, SHOT, N, SIZE, LATENT = 3, 3, 2, 4, 6, 5


def leo(**options: Any) -> LEO:
    options = {"latent_size": LATENT, "inner_lr": 0.7, "finetune_lr": 0.2} | options
    return built(LEO, SIZE, backbone=Conv64F(), **options).double()


def rectified() -> Batch:
    batch = episode(SIZE, tasks=TASKS, way=WAY, shot=SHOT, n=N, dtype=torch.float64)
    return Batch(batch.support.requires_grad_(), batch.query.requires_grad_(), batch.query_labels)


def literal_codes(method: LEO, support: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of the codes, each ``(tasks, way, LATENT)``, pair by pair."""
    encoded = method.encode(support)
    last = functional.relu if method.spread == "relu" else lambda x: x
    numbers = [
        torch.stack(
            [
                last(method.relate(torch.cat([encoded[t, w, s], encoded[t, v, r]])))
                for s in range(SHOT)
                for v in range(WAY)
                for r in range(SHOT)
            ]
        ).mean(dim=0)
        for t in range(TASKS)
        for w in range(WAY)
    ]
    mean, spread = torch.stack(numbers).reshape(TASKS, WAY, -1).chunk(2, dim=2)
    if method.spread == "exp":
        spread = (spread.exp() - 1).clamp(min=1e-10)
    return mean, spread


def literal_weight(method: LEO, codes: Tensor) -> Tensor:
    """Decode codes, drawing if the method does."""
    mean, spread = method.decode(codes).chunk(2, dim=2)
    if not (method.training and method.sample):
        return mean
    if method.spread == "exp":
        spread = (spread.exp() - 1 + math.sqrt(2 / (WAY + SIZE))).clamp(min=1e-10)
    return mean + spread * torch.randn_like(spread)


def literal(method: LEO, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return logits and loss, by PyTorch's gradients."""
    support, query = batch.support, batch.query
    if method.normalize:
        support, query = (functional.normalize(items, dim=-1) for items in (support, query))
    labels = torch.arange(WAY).repeat_interleave(SHOT).repeat(TASKS)
    second_order = not method.first_order

    def gradient(weight: Tensor, of: Tensor) -> Tensor:
        logits = torch.einsum("twsd,tvd->twsv", support, weight).reshape(-1, WAY)
        # The sum over tasks of each task's mean.
        loss = functional.cross_entropy(logits, labels) * TASKS
        return torch.autograd.grad(loss, of, create_graph=second_order, retain_graph=True)[0]

    mean, deviation = literal_codes(method, support)
    drawn = method.training and method.sample
    first = codes = mean + deviation * torch.randn_like(mean) if drawn else mean
    inner = method.inner_lr if method.inner_rate is None else method.inner_rate
    for _ in range(method.inner_steps):
        codes = codes - inner * gradient(literal_weight(method, codes), codes)
    weight = literal_weight(method, codes)
    rate = method.finetune_lr if method.finetune_rate is None else method.finetune_rate
    for _ in range(method.finetune_steps):
        weight = weight - rate * gradient(weight, weight)
    logits = torch.einsum("tnd,twd->tnw", query, weight)

    own = Normal(mean, deviation + 1e-20)
    prior = Normal(torch.zeros_like(mean), torch.ones_like(mean))
    rows = method.decode.weight if method.orthogonal == "outputs" else method.decode.weight.T
    rows = rows / rows.norm(dim=1, keepdim=True)
    loss = (
        functional.cross_entropy(logits.flatten(0, 1), batch.query_labels.flatten())
        + method.kl_weight * (own.log_prob(first) - prior.log_prob(first)).mean()
        + method.encoder_penalty_weight * (codes.detach() - first).square().mean()
        + method.orthogonality_weight * (rows @ rows.T - torch.eye(len(rows))).square().mean()
    )
    return logits, loss


WEIGHTS = {"kl_weight": 0.3, "encoder_penalty_weight": 0.2, "orthogonality_weight": 0.5}


OPTIONS: list[dict[str, Any]] = [
    {},
    {"sample": False},
    {"spread": "relu", "bias": True, "orthogonal": "outputs"},
    {"spread": "relu", "bias": True, "sample": False, "learned_rates": False, "first_order": True},
    {"first_order": True, "normalize": False},
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", OPTIONS)
def test_scores_loss_and_gradients_of_leo_are_those_of_the_formulas(
    options: dict[str, Any], training: bool
) -> None:
    method, batch = leo(**WEIGHTS, **options).train(training), rectified()
    if not training:
        expected = literal(method, batch)[0]
        torch.testing.assert_close(scored(method, batch), expected.detach())
        return
    torch.manual_seed(3)
    expected = literal(method, batch)[1]
    torch.manual_seed(3)
    loss = method.loss(batch)
    torch.testing.assert_close(loss, expected)
    leaves = [batch.query, *method.parameters(), *([] if method.first_order else [batch.support])]
    torch.testing.assert_close(
        torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves)
    )


def test_evaluation_draws_nothing() -> None:
    method, batch = leo().eval(), rectified()
    state = torch.get_rng_state()
    method.scores(batch.support, batch.query)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("normalize", "length"), [(True, 100.0), (False, 3.0)])
def test_training_with_long_vectors_stays_finite(normalize: bool, length: float) -> None:
    # Without a bound on the exponentials, a code's step overflowed after 26 steps.
    torch.manual_seed(0)
    method = LEO(normalize=normalize)
    method.build((64,), 0, None)
    method.train()
    optimiser = torch.optim.Adam(method.parameters(), lr=5e-3)
    means = torch.randn(5, 1, 64)
    losses = []
    for _ in range(30):
        support, query = (length * (means + torch.randn(5, n, 64)) for n in (1, 3))
        labels = torch.arange(5).repeat_interleave(3)
        loss = method.loss(Batch(support[None], query.flatten(0, 1)[None], labels[None]))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert all(map(math.isfinite, losses))
    if normalize:
        assert sum(losses[-10:]) < 0.5 * sum(losses[:10])


def test_rates_are_learned_only_if_requested() -> None:
    learned = {name for name, _ in leo().named_parameters()}
    fixed = {name for name, _ in leo(learned_rates=False).named_parameters()}
    assert learned - fixed == {"inner_rate", "finetune_rate"}


class Tiny(Backbone):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.second = nn.Conv2d(4, 5, 3, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.second(functional.relu(self.first(images)))
        return maps


def mtl(backbone: Backbone, size: int = 8, **options: Any) -> MTL:
    shape = 3, size, size
    given = {"n_way": 3, "train_steps": 3, "test_steps": 4, **options}
    return built(MTL, *shape, n_base=11, backbone=backbone, **given).train()


def test_kernels_are_scaled_and_biases_shifted() -> None:
    backbone = Tiny()
    method = mtl(backbone)
    assert [tuple(p.shape) for p in method.scales] == [(4, 3, 1, 1), (5, 4, 1, 1)]
    assert [tuple(p.shape) for p in method.shifts] == [(4,)], "one has no bias"
    images = torch.randn(6, 3, 8, 8)
    torch.testing.assert_close(method.embed(images), backbone.encode(images))
    with torch.no_grad():
        for part in (*method.scales, *method.shifts):
            part.uniform_(0.5, 2)
    weight = backbone.first.weight * method.scales[0]
    maps = functional.conv2d(images, weight, backbone.first.bias + method.shifts[0])
    maps = functional.conv2d(maps.relu(), backbone.second.weight * method.scales[1])
    torch.testing.assert_close(method.embed(images), maps.mean(dim=(2, 3)))


@pytest.mark.parametrize(
    ("backbone", "n_scales", "n_shifts"),
    [(Conv64F, 4, 4), (partial(ResNet12, widths=(4, 6, 8, 10)), 16, 0)],
)
def test_every_convolution_of_a_backbone_is_reached(
    backbone: Any, n_scales: int, n_shifts: int
) -> None:
    method = mtl(backbone(), size=32)
    method.backbone.requires_grad_(False)
    assert (len(method.scales), len(method.shifts)) == (n_scales, n_shifts)
    method.loss(episode(3, 32, 32, tasks=1)).backward()
    assert all(p.grad is not None and p.grad.any() for p in method.scales)
    assert all(p.grad is not None for p in [*method.shifts, *method.classify.parameters()])
    assert all(p.grad is None for p in method.backbone.parameters())


def test_a_head_moves_as_that_of_anil() -> None:
    backbone = Tiny()
    method = mtl(backbone, inner_lr=0.3).eval()
    other = ANIL(n_way=3, inner_lr=0.3, test_steps=4)
    other.build((5,), 0, backbone)
    other.classify.load_state_dict(method.classify.state_dict())
    support, query = torch.randn(2, 3, 2, 5), torch.randn(2, 6, 5)
    assert torch.equal(method.scores(support, query), other.eval().scores(support, query))


def test_the_hardest_classes_worked_by_hand() -> None:
    accuracy = torch.tensor([[0.5, 0.0, 1.0], [0.2, 0.1, 0.9], [0.3, 0.8, 0.4], [0.0, 0.0, 0.0]])
    classes = torch.tensor([[4, 7, 1], [2, 7, 5], [2, 7, 6], [0, 1, 2]])
    # 7 is the hardest of the first task, so the second gives 2, then the third 6. The fourth task
    # alone makes no hard task.
    assert _hardest(accuracy, classes).tolist() == [[1, 0, 2]]
    logits = torch.tensor([[[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 3.0, 0.0]]])
    found = _accuracies(logits, torch.tensor([[0, 0, 1, 1]]))
    assert found.tolist() == [[0.5, 1.0, float("inf")]]


def test_the_loss_of_hard_tasks_is_that_of_tasks_made_by_hand() -> None:
    method = mtl(Tiny(), inner_lr=0.3, hard_tasks=True).train()
    plain = mtl(Tiny(), inner_lr=0.3).train()
    plain.load_state_dict(method.state_dict())
    labels = torch.tensor([[0, 1, 2, 0, 1, 2], [2, 1, 0, 2, 1, 0], [0, 0, 1, 1, 2, 2]])
    batch = Batch(
        support=torch.randn(3, 3, 2, 3, 8, 8),
        query=torch.randn(3, 6, 3, 8, 8),
        query_labels=labels,
        support_classes=torch.arange(9).reshape(3, 3, 1).expand(3, 3, 2),
    )
    support, query = plain.embed_episode(batch)
    right = plain.scores(support, query).argmax(dim=2) == labels
    ways = [
        min(range(3), key=lambda way, t=t: float(right[t][labels[t] == way].float().mean()))
        for t in range(3)
    ]
    hard = Batch(
        support=torch.stack([batch.support[t, way] for t, way in enumerate(ways)])[None],
        query=torch.cat([batch.query[t][labels[t] == way] for t, way in enumerate(ways)])[None],
        query_labels=torch.arange(3).repeat_interleave(2)[None],
    )
    loss = method.loss(batch)
    torch.testing.assert_close(loss, plain.loss(batch) + plain.loss(hard))
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in method.scales)
    few = Batch(batch.support[:2], batch.query[:2], labels[:2], batch.support_classes)
    with pytest.raises(OptionError, match=r"as many tasks per step as a task has ways, 3, got 2"):
        method.loss(few)


def test_a_backbone_without_convolutions_is_refused() -> None:
    class Flat(Backbone):
        def forward(self, images: Tensor) -> Tensor:
            return images

    with pytest.raises(OptionError, match="convolutions, but Flat has none"):
        mtl(Flat())
