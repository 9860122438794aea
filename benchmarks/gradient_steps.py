"""Time of the gradient-based methods, compared with literal forms that take one task at a time.

Run ``python benchmarks/gradient_steps.py``; it takes about four minutes. A task is 5-way 5-shot
with 15 queries per way. The first table measures the heads on fixed vectors of 1600 numbers, in
evaluation and in batches of tasks. The other two measure training steps, forward and backward,
through Conv-64F: on such tasks of 84 x 84 pixels, and on 5-way 1-shot tasks of 28 x 28 pixels with
three queries per way, as on Omniglot; ours with one task per update and with four, both as time per
task. The literal forms follow the formulas with PyTorch's gradients, one task at a time, with
images in the default memory layout. All forms run in turn and the fastest time of each counts. The
figures of the published implementation were measured on a quiet machine of two cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
from _options import positive
from renet_head import quickest
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional
from training_step import ContiguousConv64F

from fsf_backbones import Conv64F
from fsf_methods.gradient import ANIL, BOIL, LEO, MAML
from fsframework.engine.learning.memory import keep_freed_memory
from fsframework.interfaces import Batch, FewShotMethod

WAY, SHOT, N_QUERY, SIZE = 5, 5, 75, 1600
N_SUPPORT = WAY * SHOT
HEAD_TASKS, UPDATE_TASKS = 12, 4
PUBLISHED_MS = {"ANIL": 1.9, "LEO": 15.9}


@dataclass(frozen=True)
class Shape:
    """The shape of the tasks of a step: images of ``side`` pixels, shots and queries."""

    side: int
    shot: int
    n_query: int
    published: dict[str, str]

    @property
    def n_support(self) -> int:
        """Support images of a task."""
        return WAY * self.shot

    @property
    def labels(self) -> Tensor:
        """Ways of the queries."""
        return torch.arange(self.n_query) % WAY


SHAPES = (
    Shape(84, 5, 75, {"ANIL": "0.68 s", "BOIL": "0.99 s", "MAML": "4.7 s"}),
    Shape(28, 1, 15, {}),
)


def labels_of(shot: int) -> Tensor:
    """Return the ways of the support images."""
    return torch.arange(WAY).repeat_interleave(shot)


def literal_head(
    method: ANIL, support: Tensor, query: Tensor, steps: int, *, second_order: bool
) -> Tensor:
    """Fit a head to support ``(m, D)`` and return the logits of the query ``(n, D)``."""
    labels = labels_of(len(support) // WAY)
    weight, bias = method.classify.weight, method.classify.bias
    for _ in range(steps):
        loss = functional.cross_entropy(functional.linear(support, weight, bias), labels)
        found = torch.autograd.grad(loss, (weight, bias), create_graph=second_order)
        weight, bias = weight - method.inner_lr * found[0], bias - method.inner_lr * found[1]
    return functional.linear(query, weight, bias)


def literal_leo(method: LEO, support: Tensor, query: Tensor) -> Tensor:
    """Do the same by adapting codes, with every pair of images related separately."""
    labels = labels_of(SHOT)
    encoded = method.encode(support)
    left = encoded.repeat_interleave(N_SUPPORT, dim=0)
    pairs = torch.cat([left, encoded.repeat(N_SUPPORT, 1)], dim=1)
    related = functional.relu(method.relate(pairs)).reshape(WAY, SHOT * N_SUPPORT, -1).mean(dim=1)
    codes = related[:, : method.latent_size]
    for _ in range(method.inner_steps):
        logits = support @ method.decode(codes)[:, :SIZE].T
        found = torch.autograd.grad(functional.cross_entropy(logits, labels), codes)
        codes = codes - method.inner_lr * found[0]
    weight = method.decode(codes)[:, :SIZE]
    for _ in range(method.finetune_steps):
        loss = functional.cross_entropy(support @ weight.T, labels)
        weight = weight - method.finetune_lr * torch.autograd.grad(loss, weight)[0]
    return query @ weight.T


def head_rows() -> None:
    """Print the table of heads."""
    items = torch.randn(HEAD_TASKS, N_SUPPORT + N_QUERY, SIZE).relu()
    support = items[:, :N_SUPPORT].reshape(HEAD_TASKS, WAY, SHOT, SIZE).contiguous()
    query = items[:, N_SUPPORT:].contiguous()
    anil = ANIL(inner_lr=0.01, test_steps=10)
    leo = LEO(
        inner_lr=0.5, finetune_lr=0.01, learned_rates=False, sample=False, bias=True, spread="relu"
    )
    literals: dict[FewShotMethod, Callable[[], Tensor]] = {
        anil: lambda: literal_head(anil, items[0, :N_SUPPORT], query[0], 10, second_order=False),
        leo: lambda: literal_leo(leo, items[0, :N_SUPPORT], query[0]),
    }
    print(f"{'head, per task':<16}{'ours':>10}{'literal':>12}{'ratio':>8}{'published':>14}")
    for method, literal in literals.items():
        method.build((SIZE,), 0, Conv64F())
        method.eval()

        @torch.no_grad()
        def ours(method: FewShotMethod = method) -> Tensor:
            return method.scores(support, query)

        name = type(method).__name__
        different = (ours()[0] - literal()).abs().max() / literal().abs().max()
        assert different < 1e-3, f"{name} differs by {different:.1e}"
        fast, slow = quickest(ours, literal, repeats=30)
        print(
            f"{name:<16}{1e3 * fast / HEAD_TASKS:>7.2f} ms{1e3 * slow:>9.2f} ms"
            f"{slow * HEAD_TASKS / fast:>8.1f}{PUBLISHED_MS[name]:>11} ms"
        )


def literal_network(
    method: MAML | BOIL, support: Tensor, query: Tensor, rates: tuple[float, float]
) -> Tensor:
    """Adapt backbone and head to the support and return the logits of the query."""
    labels = labels_of(len(support) // WAY)
    backbone = method.backbone
    body = dict(backbone.named_parameters())
    head = [method.classify.weight, method.classify.bias]

    def logits(images: Tensor) -> Tensor:
        return functional.linear(backbone.vectors(functional_call(backbone, body, images)), *head)

    for _ in range(method.train_steps):
        loss = functional.cross_entropy(logits(support), labels)
        found = torch.autograd.grad(loss, [*body.values(), *head], create_graph=True)
        body = {
            name: weight - rates[0] * gradient
            for (name, weight), gradient in zip(body.items(), found, strict=False)
        }
        head = [w - rates[1] * g for w, g in zip(head, found[-2:], strict=True)]
    return logits(query)


def step(backbone: Conv64F, method: FewShotMethod, images: Tensor, shape: Shape) -> None:
    """Do forward and backward on the images ``(tasks, n, 3, H, W)``."""
    tasks = len(images)
    items = images
    if method.consumes == "vectors":
        items = backbone.vectors(backbone(images.flatten(0, 1))).unflatten(0, (tasks, -1))
    batch = Batch(
        support=items[:, : shape.n_support].unflatten(1, (WAY, shape.shot)),
        query=items[:, shape.n_support :],
        query_labels=shape.labels.expand(tasks, -1),
    )
    backbone.zero_grad()
    method.zero_grad()
    method.loss(batch).backward()


def literal_step(
    backbone: Conv64F, method: ANIL | BOIL | MAML, images: Tensor, shape: Shape
) -> None:
    """Do forward and backward on the images ``(n, 3, H, W)`` of one task."""
    items = images
    if isinstance(method, ANIL):
        items = backbone.vectors(backbone(images))
    support, query = items[: shape.n_support], items[shape.n_support :]
    if isinstance(method, ANIL):
        logits = literal_head(method, support, query, method.train_steps, second_order=True)
    elif isinstance(method, BOIL):
        rates = method.extractor_lr, method.classifier_lr
        logits = literal_network(method, support, query, rates)
    else:
        logits = literal_network(method, support, query, (method.inner_lr, method.inner_lr))
    backbone.zero_grad()
    method.zero_grad()
    functional.cross_entropy(logits, shape.labels).backward()


def step_rows(shape: Shape) -> None:
    """Print the table of training steps on tasks of a shape."""
    side = shape.side
    images = torch.randn(UPDATE_TASKS, shape.n_support + shape.n_query, 3, side, side)
    makes: tuple[Callable[[], ANIL | BOIL | MAML], ...] = (
        lambda: ANIL(inner_lr=0.01),
        lambda: BOIL(extractor_lr=0.02),
        lambda: MAML(inner_lr=0.01, train_steps=5),
    )
    print(
        f"{f'step, {side} x {side}':<16}{'literal':>10}{'one':>10}{'ratio':>8}{'four':>10}"
        f"{'ratio':>8}{'published':>12}"
    )
    for make in makes:
        ours, theirs = Conv64F(), ContiguousConv64F()
        mine, literal = make(), make()
        item = (3, side, side)
        if mine.consumes == "vectors":
            item = tuple(ours.vectors(ours(images[0, :1])).shape[1:])
        mine.build(item, 0, ours)
        literal.build(item, 0, theirs)
        slow, one, four = quickest(
            lambda backbone=theirs, method=literal: literal_step(
                backbone, method, images[0], shape
            ),
            lambda backbone=ours, method=mine: step(backbone, method, images[:1], shape),
            lambda backbone=ours, method=mine: step(backbone, method, images, shape),
            repeats=6 if side > 28 else 30,
        )
        four /= UPDATE_TASKS
        name = type(mine).__name__
        print(
            f"{name:<16}{slow:>8.3f} s{one:>8.3f} s{slow / one:>8.2f}{four:>8.3f} s"
            f"{slow / four:>8.2f}{shape.published.get(name, ''):>12}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=positive, default=2, metavar="N", help="default: 2")
    options = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    head_rows()
    for shape in SHAPES:
        step_rows(shape)


if __name__ == "__main__":
    main()
