from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.gradient import LEO
from fsframework.interfaces import Batch, OptionError

TASKS, WAY, SHOT, N, SIZE, LATENT = 3, 3, 2, 4, 6, 5


def built(**options: Any) -> LEO:
    torch.manual_seed(0)
    options = {"latent_size": LATENT, "inner_lr": 0.7, "finetune_lr": 0.2} | options
    method = LEO(**options)
    method.build((SIZE,), 0, Conv64F())
    return method.double()


def episode() -> Batch:
    generator = torch.Generator().manual_seed(1)

    def items(*shape: int) -> Tensor:
        drawn = torch.randn(*shape, SIZE, generator=generator, dtype=torch.float64)
        return drawn.relu().requires_grad_()

    labels = (torch.arange(N) % WAY).expand(TASKS, N)
    return Batch(support=items(TASKS, WAY, SHOT), query=items(TASKS, N), query_labels=labels)


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
    assert support is not None
    assert query is not None
    assert batch.query_labels is not None
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


@pytest.mark.parametrize("options", OPTIONS)
def test_loss_and_gradients_are_those_of_the_formulas(options: dict[str, Any]) -> None:
    method, batch = built(**WEIGHTS, **options).train(), episode()
    torch.manual_seed(3)
    expected = literal(method, batch)[1]
    torch.manual_seed(3)
    loss = method.loss(batch)
    torch.testing.assert_close(loss, expected)
    leaves = [batch.query, *method.parameters()]
    if not method.first_order:
        leaves.append(batch.support)
    found = torch.autograd.grad(loss, leaves)
    wanted = torch.autograd.grad(expected, leaves)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("options", OPTIONS)
def test_scores_are_those_of_the_formulas(options: dict[str, Any]) -> None:
    method, batch = built(**options).eval(), episode()
    expected = literal(method, batch)[0]
    with torch.no_grad():
        torch.testing.assert_close(method.scores(*method.embed_episode(batch)), expected)


def test_training_draws_and_evaluation_does_not() -> None:
    method, batch = built(), episode()
    state = torch.get_rng_state()
    method.eval()
    first, second = (method.scores(batch.support, batch.query) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)
    method.train()
    assert method.loss(batch) != method.loss(batch)
    method = built(sample=False).train()
    assert method.loss(batch) == method.loss(batch)


@pytest.mark.parametrize(("normalize", "length"), [(True, 100.0), (False, 3.0)])
def test_training_with_long_vectors_stays_finite(normalize: bool, length: float) -> None:
    # Without a bound on the exponentials, a code's step overflowed after 26 steps.
    torch.manual_seed(0)
    method = LEO(normalize=normalize)
    method.build((64,), 0, Conv64F())
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
    learned = {name for name, _ in built().named_parameters()}
    fixed = {name for name, _ in built(learned_rates=False).named_parameters()}
    assert learned - fixed == {"inner_rate", "finetune_rate"}


def test_adapted_codes_separate_what_initial_codes_do_not() -> None:
    method = built(finetune_steps=0, inner_steps=0).eval()
    support = torch.eye(WAY, SIZE).double()[None, :, None].expand(1, -1, SHOT, -1) * 3
    with torch.no_grad():
        before = method.scores(support, support.flatten(1, 2)).softmax(dim=2)
        method.inner_steps = 20
        after = method.scores(support, support.flatten(1, 2)).softmax(dim=2)
    own = torch.arange(WAY).repeat_interleave(SHOT)[None, :, None]
    assert after.gather(2, own).mean() > before.gather(2, own).mean() + 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latent_size": 0}, "latent_size must be at least 1, got 0"),
        ({"inner_lr": 0.0}, "inner_lr must be above 0, got 0.0"),
        ({"inner_steps": -1}, "inner_steps must be at least 0, got -1"),
        ({"kl_weight": -0.1}, "kl_weight must be at least 0, got -0.1"),
        ({"spread": "x"}, "spread must be one of exp, relu, got 'x'"),
        ({"orthogonal": "x"}, "orthogonal must be one of latents, outputs, got 'x'"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
    ],
)
def test_options_outside_their_range_are_refused(options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}$"):
        LEO(**options)
