"""Milliseconds per task of the heads that read class names, many tasks at once and one by one.

Run ``python benchmarks/clip_heads.py``; it takes about five minutes and needs ``open_clip_torch``.
Features are vectors of 256 numbers, and the text tower that of open_clip's ViT-S-32-alt with random
weights: 10 blocks of width 256. The plain forms fit one task with PyTorch's optimisers. CoOp takes
1 step, usually 100; it is compared with itself on one task at a time, as the text tower takes
nearly all of the time, and so it would of CoCoOp, which reads a text for every image and class.
``_heads.py`` explains the columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from _heads import SHOT, WAY, Case, Flat, run, support_labels
from torch import Tensor
from torch.nn import functional

from fsf_clip_methods import (
    CLAP,
    CLIPAdapter,
    CoOp,
    LinearProbe,
    LPPlusPlus,
    OpenClip,
    TipAdapter,
    TipAdapterF,
    ZeroShot,
)
from fsframework.interfaces import Backbone, FewShotMethod, Known

NAMES = ("sparrow", "bicycle", "teapot", "oak tree", "lighthouse")
SCALE = 100.0


@cache
def tower() -> OpenClip:
    """Return a small CLIP with random weights."""
    return OpenClip(model="ViT-S-32-alt", weights="none").eval()


class Told(FewShotMethod):
    """A head that knows the names of the classes of every task."""

    names: Tensor

    def __init__(self, head: Callable[..., FewShotMethod], **options: Any) -> None:
        super().__init__()
        self.head = head(logit_scale=SCALE, **options) if head is not LPPlusPlus else head()

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Build the head, and read the names."""
        del backbone
        self.head.read_with(tower())
        self.head.build(item_shape, n_base_classes, tower())
        self.names = self.head.embed_names(NAMES)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the logits of the head."""
        names = self.names.expand(len(support), *self.names.shape)
        return self.head.scores_with(support, query, Known(names=names))


def unit(items: Tensor) -> Tensor:
    """Return vectors of length 1."""
    return functional.normalize(items, dim=-1)


def fit(
    weights: list[Tensor], logits: Callable[..., Tensor], optimiser: Any, steps: int, **more: Any
) -> list[Tensor]:
    """Return weights after steps on the cross-entropy of one task's support."""
    labels, penalty = support_labels(), more.pop("penalty", None)
    with torch.enable_grad():
        weights = [w.clone().requires_grad_() for w in weights]
        stepping = optimiser(weights, **more)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(stepping, steps)
        for _ in range(steps):
            stepping.zero_grad()
            loss = functional.cross_entropy(logits(*weights), labels)
            (loss + penalty(*weights) if penalty else loss).backward()
            stepping.step()
            schedule.step()
    return [w.detach() for w in weights]


def plain_zero_shot(method: Told, support: Tensor, query: Tensor) -> Tensor:
    """Compare the queries of one task with its names."""
    del support
    return SCALE * unit(query) @ method.names.T


def cached(head: TipAdapter, items: Tensor, keys: Tensor, names: Tensor) -> Tensor:
    """Return Tip-Adapter's logits of unit items of one task."""
    affinity = (-head.beta * (1 - items @ keys.T)).exp()
    values = functional.one_hot(support_labels()).to(items)
    return head.alpha * affinity @ values + SCALE * items @ names.T


def plain_tip(method: Told, support: Tensor, query: Tensor) -> Tensor:
    """Add the cache of one task."""
    return cached(method.head, unit(query), unit(support).flatten(0, 1), method.names)


def plain_tip_f(method: Told, support: Tensor, query: Tensor) -> Tensor:
    """Fit the keys of one task."""
    head, items = method.head, unit(support).flatten(0, 1)
    logits = partial(cached, head, items, names=method.names)
    [keys] = fit([items], logits, torch.optim.AdamW, head.steps, lr=head.lr, eps=1e-4)
    return cached(head, unit(query), keys, method.names)


def plain_probe(method: Told, support: Tensor, query: Tensor) -> Tensor:
    """Fit the linear probe of one task."""
    head, items, text = method.head, unit(support).flatten(0, 1), method.names
    penalty = None
    if isinstance(head, CLAP):
        believed = (SCALE * items @ unit(text).T).softmax(dim=1)
        multiplier = believed[torch.arange(WAY * SHOT), support_labels()]
        multiplier = multiplier.reshape(WAY, SHOT).mean(dim=1)

        def penalty(weight: Tensor) -> Tensor:
            return (multiplier * (weight - text).square().sum(dim=1)).mean()

    [weight] = fit(
        [text],
        lambda w: SCALE * items @ unit(w).T,
        torch.optim.SGD,
        head.steps,
        lr=head.lr,
        momentum=0.9,
        penalty=penalty,
    )
    return SCALE * unit(query) @ unit(weight).T


def plain_adapter(method: Told, support: Tensor, query: Tensor) -> Tensor:
    """Fit the adapter of one task."""
    head, items = method.head, support.flatten(0, 1)

    def logits(of: Tensor, down: Tensor, up: Tensor) -> Tensor:
        adapted = ((of @ down).relu() @ up).relu()
        return SCALE * unit(head.ratio * adapted + (1 - head.ratio) * of) @ method.names.T

    found = fit(
        [head.down, head.up],
        partial(logits, items),
        torch.optim.SGD,
        head.steps,
        lr=head.lr,
        momentum=0.9,
        weight_decay=5e-4,
    )
    return logits(query, *found)


def plain_lp_plus_plus(method: Told, support: Tensor, query: Tensor) -> Tensor:
    """Fit prototypes and blending weights of one task."""
    items, text, labels = unit(support).flatten(0, 1), method.names, support_labels()
    n, near = len(items), items @ text.T
    rate = 4 * n / float(torch.linalg.eigvalsh(items @ items.T)[-1])
    alpha_rate = n / (4 * float(near.square().sum(dim=0).max()))
    with torch.enable_grad():
        weight = unit(support).sum(dim=1).requires_grad_()
        start = 250 * near[torch.arange(n), labels].mean()
        alpha = start.expand(WAY).clone().requires_grad_()
        optimiser = torch.optim.SGD([weight], lr=rate, momentum=0.9)
        for step in range(1, method.head.steps + 1):
            optimiser.zero_grad()
            alpha.grad = None
            functional.cross_entropy(items @ weight.T + alpha * near, labels).backward()
            optimiser.step()
            if step % 10 == 0:
                with torch.no_grad():
                    alpha -= alpha_rate * alpha.grad
    return (unit(query) @ (weight + alpha[:, None] * text).T).detach()


def case(name: str, head: Any, plain: Any, tasks: int = 64, **options: Any) -> Case:
    """Return a row that is measured in evaluation only."""
    return Case(
        name, partial(Told, head, **options), (256,), tasks, plain, trained=0, backbone=Flat
    )


CASES = (
    case("zero-shot CLIP", ZeroShot, plain_zero_shot),
    case("Tip-Adapter", TipAdapter, plain_tip),
    case("Tip-Adapter-F", TipAdapterF, plain_tip_f),
    case("linear probe", LinearProbe, plain_probe),
    case("CLAP", CLAP, plain_probe),
    case("LP++", LPPlusPlus, plain_lp_plus_plus),
    case("CLIP-Adapter", CLIPAdapter, plain_adapter, 8),
    case("CoOp, 1 step", CoOp, None, 4, steps=1),
)

if __name__ == "__main__":
    run(CASES, str(__doc__))
