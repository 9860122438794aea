"""Scores against plain forms of one task, written from the papers' equations in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_clip_methods import (
    CLAP,
    Clip,
    CLIPAdapter,
    CoCoOp,
    CoOp,
    LinearProbe,
    LPPlusPlus,
    TipAdapter,
    TipAdapterF,
    ZeroShot,
)
from fsframework.interfaces import FewShotMethod, Known, OptionError
from tests.tiny_models import tiny_model

NAMES = ("red ball", "blue_ball", "grass", "sand", "snow", "dog", "tree")
PROMPTS = "a photo of a {}. | the {}"
TASKS, WAY, SHOT, N = 3, 4, 2, 6


@cache
def tower() -> Clip:
    found = Clip(model=str(tiny_model("clip")))
    found.load_pretrained(offline=True)
    return found.eval()


@dataclass(frozen=True)
class Tasks:
    """Tasks near the texts of their classes, float64; ``classes`` are indices of ``NAMES``."""

    support: Tensor
    query: Tensor
    classes: Tensor
    labels: Tensor


@cache
def tasks() -> Tasks:
    generator = torch.Generator().manual_seed(0)
    read = tower().text_features([name.replace("_", " ") for name in NAMES])
    centres = functional.normalize(read, dim=1).double()
    order = [torch.randperm(len(NAMES), generator=generator)[:WAY] for _ in range(TASKS)]
    classes = torch.stack(order)
    labels = torch.arange(N).expand(TASKS, -1) % WAY

    def around(of: Tensor) -> Tensor:
        noise = torch.randn(*of.shape, centres.shape[1], generator=generator, dtype=torch.float64)
        return 3 * (centres[of] + 0.1 * noise)

    shown = classes[:, :, None].expand(-1, -1, SHOT)
    return Tasks(around(shown), around(classes.gather(1, labels)), classes, labels)


def built(method: FewShotMethod) -> FewShotMethod:
    method.read_with(tower())
    method.build((tasks().support.shape[-1],), 0, tower())
    return method.eval()


def found(method: FewShotMethod) -> Tensor:
    made = built(method)
    with torch.no_grad():
        names = made.embed_names(NAMES)[tasks().classes]
        return made.scores_with(tasks().support, tasks().query, Known(names=names))


def each_task() -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield the support ``(way * shot, D)``, its labels, the queries and the classes of a task."""
    labels = torch.arange(WAY).repeat_interleave(SHOT)
    for support, query, classes in zip(
        tasks().support, tasks().query, tasks().classes, strict=True
    ):
        yield support.flatten(0, 1), labels, query, classes


def texts_of(classes: Tensor, *, unit: bool = True) -> Tensor:
    """Return a vector for each class, the mean over the two prompts, ``(way, D)``."""
    rows = []
    for c in classes.tolist():
        name = NAMES[c].replace("_", " ")
        read = tower().text_features([f"a photo of a {name}.", f"the {name}"]).double()
        one = functional.normalize(read, dim=1).mean(dim=0) if unit else read.mean(dim=0)
        rows.append(one / one.norm() if unit else one)
    return torch.stack(rows)


def scale() -> float:
    return math.exp(float(tower().net.logit_scale))


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def by_torch(
    parameters: list[Tensor], loss: Callable[[], Tensor], kind: Any, steps: int, **options: Any
) -> None:
    """Fit parameters in place by an optimiser of PyTorch, its rate along half a cosine."""
    optimiser = kind(parameters, **options)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
        schedule.step()


def leaf(x: Tensor) -> Tensor:
    return x.clone().double().requires_grad_()


def zero_shot(support: Tensor, labels: Tensor, query: Tensor, classes: Tensor) -> Tensor:
    return scale() * unit(query) @ texts_of(classes).T


def tip_logits(items: Tensor, keys: Tensor, labels: Tensor, texts: Tensor) -> Tensor:
    affinity = torch.exp(-5.5 * (1 - unit(items) @ keys.T))
    one_hot = functional.one_hot(labels, WAY).double()
    return 2.0 * affinity @ one_hot + scale() * unit(items) @ texts.T


def tip(support: Tensor, labels: Tensor, query: Tensor, classes: Tensor) -> Tensor:
    return tip_logits(query, unit(support), labels, texts_of(classes))


def tip_f(support: Tensor, labels: Tensor, query: Tensor, classes: Tensor) -> Tensor:
    keys, texts = leaf(unit(support)), texts_of(classes)

    def loss() -> Tensor:
        return functional.cross_entropy(tip_logits(support, keys, labels, texts), labels)

    by_torch([keys], loss, torch.optim.AdamW, 5, lr=0.05, eps=1e-4)
    return tip_logits(query, keys, labels, texts).detach()


def probe(
    support: Tensor, labels: Tensor, query: Tensor, classes: Tensor, *, penalty: float
) -> Tensor:
    text = texts_of(classes, unit=False)
    weight = leaf(text)
    believed = torch.softmax(scale() * unit(support) @ unit(text).T, dim=1)
    multiplier = torch.stack([believed[labels == c, c].mean() for c in range(WAY)])

    def loss() -> Tensor:
        logits = scale() * unit(support) @ unit(weight).T
        away = multiplier * (weight - text).pow(2).sum(dim=1)
        return functional.cross_entropy(logits, labels) + penalty * away.mean()

    by_torch([weight], loss, torch.optim.SGD, 5, lr=0.1, momentum=0.9)
    return (scale() * unit(query) @ unit(weight).T).detach()


def linear_probe(*task: Tensor) -> Tensor:
    return probe(*task, penalty=0.0)


def clap(*task: Tensor) -> Tensor:
    return probe(*task, penalty=1.0)


def clip_adapter(support: Tensor, labels: Tensor, query: Tensor, classes: Tensor) -> Tensor:
    start = built(CLIPAdapter(seed=3))
    down, up = leaf(start.get_buffer("down")), leaf(start.get_buffer("up"))
    texts = texts_of(classes)

    def logits(items: Tensor) -> Tensor:
        adapted = torch.relu(torch.relu(items @ down) @ up)
        return scale() * unit(0.4 * adapted + 0.6 * items) @ texts.T

    def loss() -> Tensor:
        return functional.cross_entropy(logits(support), labels)

    options = {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}
    by_torch([down, up], loss, torch.optim.SGD, 5, **options)
    return logits(query).detach()


def lp_plus_plus(support: Tensor, labels: Tensor, query: Tensor, classes: Tensor) -> Tensor:
    items, texts, n = unit(support), texts_of(classes), WAY * SHOT
    near = items @ texts.T
    weight = leaf(torch.stack([items[labels == c].sum(dim=0) for c in range(WAY)]))
    own = torch.stack([near[labels == c, c].mean() for c in range(WAY)])
    alpha = leaf(250 * own.mean() * torch.ones(WAY))
    # Lipschitz constants of the two gradients.
    eigenvalue = torch.linalg.eigvalsh(items.T @ items)[-1]
    weight_rate = 1 / (eigenvalue / (4 * n))
    alpha_rate = 1 / (4 * near.pow(2).sum(dim=0).max() / n)
    optimiser = torch.optim.SGD([weight], lr=float(weight_rate), momentum=0.9)
    for step in range(25):
        logits = items @ weight.T + alpha * near
        optimiser.zero_grad()
        alpha.grad = None
        functional.cross_entropy(logits, labels).backward()
        optimiser.step()
        if (step + 1) % 10 == 0:
            assert alpha.grad is not None
            alpha.data -= alpha_rate * alpha.grad
    return (unit(query) @ (weight + alpha[:, None] * texts).T).detach()


def read(name: str, context: Tensor) -> Tensor:
    """Return the unit vector of a name after embeddings ``(M, E)``, by the parts of the model."""
    model = tower().net.text_model
    none = torch.empty(0, dtype=torch.int64)
    tokens = tower().tokens([f" {name.replace('_', ' ')}."], none, 16)[0, 0]
    words = model.embeddings.token_embedding(tokens)
    row = torch.cat([words[:1], context.to(words.dtype), words[1:]])[None]
    row = row + model.embeddings.position_embedding.weight[: row.shape[1]]
    mask = torch.full((row.shape[1], row.shape[1]), -torch.inf).triu(1)[None, None]
    out = model.encoder(inputs_embeds=row, attention_mask=mask).last_hidden_state
    end = len(context) + int((tokens == model.eos_token_id).int().argmax())
    features = tower().net.text_projection(model.final_layer_norm(out)[0, end])
    return unit(features).double()


def coop(support: Tensor, labels: Tensor, query: Tensor, classes: Tensor) -> Tensor:
    context = leaf(built(CoOp(length=3, seed=5)).get_buffer("drawn"))

    def logits(items: Tensor) -> Tensor:
        texts = torch.stack([read(NAMES[c], context) for c in classes.tolist()])
        return scale() * unit(items) @ texts.T

    def loss() -> Tensor:
        return functional.cross_entropy(logits(support), labels)

    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}
    by_torch([context], loss, torch.optim.SGD, 4, **options)
    return logits(query).detach()


def cocoop(support: Tensor, labels: Tensor, query: Tensor, classes: Tensor) -> Tensor:
    start = built(CoCoOp(seed=5))
    down, down_bias, up, up_bias = (
        leaf(start.get_buffer(name)) for name in ("down", "down_bias", "up", "up_bias")
    )
    context = leaf(tower().net.text_model.embeddings.token_embedding(tower().word_ids("the red")))

    def logits(items: Tensor) -> Tensor:
        rows = []
        for item in unit(items):
            shift = torch.relu(item @ down + down_bias[0]) @ up + up_bias[0]
            texts = torch.stack([read(NAMES[c], context + shift) for c in classes.tolist()])
            rows.append(scale() * texts @ item)
        return torch.stack(rows)

    def loss() -> Tensor:
        return functional.cross_entropy(logits(support), labels)

    parameters = [context, down, down_bias, up, up_bias]
    # A pass is one step by the sum of the images' gradients.
    options = {"lr": 0.01 * WAY * SHOT, "momentum": 0.9, "weight_decay": 5e-4}
    by_torch(parameters, loss, torch.optim.SGD, 3, **options)
    return logits(query).detach()


PLAIN: dict[Callable[..., Tensor], Callable[[], FewShotMethod]] = {
    zero_shot: lambda: ZeroShot(prompts=PROMPTS),
    tip: lambda: TipAdapter(alpha=2.0, beta=5.5, prompts=PROMPTS),
    tip_f: lambda: TipAdapterF(alpha=2.0, beta=5.5, steps=5, lr=0.05, prompts=PROMPTS),
    linear_probe: lambda: LinearProbe(steps=5, prompts=PROMPTS),
    clap: lambda: CLAP(steps=5, prompts=PROMPTS),
    clip_adapter: lambda: CLIPAdapter(ratio=0.4, steps=5, lr=0.01, seed=3, prompts=PROMPTS),
    lp_plus_plus: lambda: LPPlusPlus(steps=25, prompts=PROMPTS),
    coop: lambda: CoOp(length=3, steps=4, lr=0.05, seed=5),
    cocoop: lambda: CoCoOp(context="the red", passes=3, lr=0.01, seed=5),
}


@pytest.mark.parametrize("plain", PLAIN, ids=lambda one: one.__name__)
def test_scores_are_those_of_the_plain_form(plain: Callable[..., Tensor]) -> None:
    expected = torch.stack([plain(*task) for task in each_task()])
    # The text tower computes in float32, and the step sizes of LP++ are within 0.1 %.
    tolerance = {lp_plus_plus: 0.02}.get(plain, 1e-3)
    torch.testing.assert_close(found(PLAIN[plain]()), expected, rtol=tolerance, atol=tolerance)


def test_a_fit_follows_the_support() -> None:
    """Labels by a permutation of the classes make the fitted methods change their answers."""
    method = built(LinearProbe(steps=100, prompts="{}"))
    names = method.embed_names(NAMES)[tasks().classes]
    support = tasks().support.roll(1, dims=1)
    told = method.scores_with(support, tasks().query, Known(names=names)).argmax(dim=2)
    usual = method.scores_with(tasks().support, tasks().query, Known(names=names)).argmax(dim=2)
    assert (usual == tasks().labels).float().mean() > 0.8
    assert (told == (tasks().labels + 1) % WAY).float().mean() > 0.6


def test_zero_shot_classification_does_not_look_at_the_support() -> None:
    method = built(ZeroShot(prompts="{}"))
    names = method.embed_names(NAMES)[tasks().classes]
    scores = [
        method.scores_with(support, tasks().query, Known(names=names))
        for support in (tasks().support, torch.zeros_like(tasks().support))
    ]
    assert torch.equal(*scores)
    assert (scores[0].argmax(dim=2) == tasks().labels).float().mean() > 0.8


def test_a_scale_of_ones_own_replaces_that_of_the_model() -> None:
    ratio = found(ZeroShot(logit_scale=2 * scale())) / found(ZeroShot())
    torch.testing.assert_close(ratio, torch.full_like(ratio, 2.0))


def test_prompts_may_be_a_set_by_name() -> None:
    read = [built(ZeroShot(prompts=one)).embed_names(NAMES) for one in ("dtd", "{} texture.")]
    assert torch.equal(*read)
    seven = built(ZeroShot(prompts="clip-imagenet-7")).embed_names(NAMES)
    torch.testing.assert_close(seven.norm(dim=1), torch.ones(len(NAMES)))
    assert not torch.allclose(seven, read[0])


def test_scores_need_names() -> None:
    with pytest.raises(OptionError, match="ZeroShot needs the names of the classes"):
        built(ZeroShot()).scores(tasks().support, tasks().query)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (ZeroShot, {"prompts": "a photo"}, r"prompts must be templates .* got 'a photo'"),
        (ZeroShot, {"prompts": "{} | {} {}"}, "must be templates"),
        (ZeroShot, {"logit_scale": 0.0}, r"logit_scale must be above 0, got 0\.0"),
        (TipAdapter, {"alpha": -1.0}, "alpha must be at least 0"),
        (TipAdapter, {"beta": 0.0}, "beta must be above 0"),
        (TipAdapterF, {"steps": 0}, "steps must be at least 1, got 0"),
        (CLAP, {"lr": -0.5}, "lr must be above 0"),
        (CLIPAdapter, {"ratio": 1.5}, r"ratio must be in 0\.\.1, got 1\.5"),
        (LPPlusPlus, {"steps": 0}, "steps must be at least 1"),
        (CoOp, {"length": 0}, "length must be at least 1"),
        (CoOp, {"lr": 0.0}, "lr must be above 0"),
        (CoOp, {"room": 3}, "room must be at least 4, got 3"),
        (CoCoOp, {"passes": 0}, "passes must be at least 1"),
    ],
)
def test_options_out_of_range(
    method: Callable[..., FewShotMethod], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        method(**options)
