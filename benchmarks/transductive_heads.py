"""Milliseconds per task of GNN, TPN and SIB, compared with plain forms one task at a time.

Run ``python benchmarks/transductive_heads.py``; it takes about a minute. A task is 5-way 5-shot
with 15 queries per way, on features as Conv-64F gives them for images of 84 x 84 pixels: vectors of
1600 numbers, and for SIB also of 64, and maps of 64 x 5 x 5 for TPN. A plain form is
PyTorch's own layers on all pairs of all graphs of one task, and automatic differentiation for SIB.
All forms of a method run in turn and the fastest time of each counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from _options import positive
from renet_head import quickest
from torch import Tensor
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_transductive_methods import GNN, SIB, TPN
from fsframework.interfaces import Batch, FewShotMethod

WAY, SHOT, N_QUERY = 5, 5, 75


def plain_gnn(method: GNN, support: Tensor, query: Tensor) -> Tensor:
    """Score ``(way, shot, D)`` and ``(n, D)``: ``(n, way)``; the same for all below."""
    labels = torch.eye(WAY).repeat_interleave(SHOT, dim=0)
    nodes = torch.cat([support.flatten(0, 1), labels], dim=1).expand(len(query), -1, -1)
    last = torch.cat([query, torch.full((len(query), WAY), 1 / WAY)], dim=1)
    x = torch.cat([nodes, last[:, None]], dim=1)
    for number in range(3):
        edges: Any = method.edges[number]
        y = (x[:, :, None] - x[:, None]).abs().flatten(0, 2)
        for layer, norm in zip(edges.layers, edges.norms, strict=True):
            y = functional.leaky_relu(normed(norm, layer(y)), 0.01)
        logits = edges.last(y).reshape(len(x), x.shape[1], x.shape[1])
        z = torch.cat([x, (logits - 1e8 * torch.eye(x.shape[1])).softmax(dim=2) @ x], dim=2)
        if number == 2:
            found: Tensor = method.last(z[:, -1])
            return found
        new = normed(method.norms[number], method.layers[number](z).flatten(0, 1))
        x = torch.cat([x, functional.leaky_relu(new, 0.01).reshape(*x.shape[:2], -1)], dim=2)
    raise AssertionError


def normed(norm: Any, x: Tensor) -> Tensor:
    """Apply PyTorch's BatchNorm with running statistics."""
    return functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)


def plain_tpn(method: TPN, support: Tensor, query: Tensor) -> Tensor:
    """Invert the matrix of one task."""
    maps = torch.cat([support.flatten(0, 1), query])
    nodes = maps.flatten(1) / method.scale(maps)
    weights = torch.exp(-0.5 * (nodes[:, None] - nodes).square().mean(dim=2))
    kept = torch.zeros_like(weights).scatter_(1, weights.topk(method.k, dim=1).indices, 1)
    weights = weights * ((kept + kept.T) > 0)
    root = weights.sum(dim=1).rsqrt()
    smooth = root[:, None] * weights * root
    labels = torch.zeros(len(nodes), WAY)
    labels[: WAY * SHOT] = torch.eye(WAY).repeat_interleave(SHOT, dim=0)
    return (torch.linalg.inv(torch.eye(len(nodes)) - method.alpha * smooth) @ labels)[WAY * SHOT :]


def plain_sib(method: SIB, support: Tensor, query: Tensor) -> Tensor:
    """Differentiate the scores of one task."""
    query = functional.normalize(query, dim=1)
    prototypes = functional.normalize(support, dim=2).mean(dim=1) * method.weight

    def scored(prototypes: Tensor) -> Tensor:
        cosine = query @ functional.normalize(prototypes, dim=1).T
        return method.scale * (cosine + method.bias)

    with torch.enable_grad():
        for _ in range(method.steps):
            prototypes = prototypes.detach().requires_grad_()
            scores = scored(prototypes)
            gradient = method.gradient(scores.detach()[None])[0].detach()
            [pull] = torch.autograd.grad(scores, prototypes, gradient)
            prototypes = prototypes - method.lr * pull
    return scored(prototypes)


@dataclass(frozen=True)
class Case:
    """One row: a method, its plain form, the shape of its items and the tasks per batch."""

    method: FewShotMethod
    plain: Callable[..., Tensor]
    item: tuple[int, ...]
    n_tasks: int


CASES = [
    Case(GNN(), plain_gnn, (1600,), 2),
    Case(TPN(), plain_tpn, (64, 5, 5), 16),
    Case(SIB(), plain_sib, (1600,), 32),
    Case(SIB(), plain_sib, (64,), 128),
]


def measure(case: Case, seconds: float) -> str:
    """Return the row of a case, measured for about this many seconds."""
    torch.manual_seed(0)
    method = case.method
    method.build(case.item, 0, Conv64F())
    method.eval()
    support = torch.randn(case.n_tasks, WAY, SHOT, *case.item).relu()
    query = torch.randn(case.n_tasks, N_QUERY, *case.item).relu()

    def batched() -> Tensor:
        return method.scores(*method.embed_episode(Batch(support, query)))

    def plain() -> Tensor:
        return case.plain(method, support[0], query[0])

    with torch.no_grad():
        expected, found = plain().detach(), batched()[0]
        repeats = max(3, int(seconds / sum(quickest(batched, plain, repeats=1))))
        ours, theirs = quickest(batched, plain, repeats=min(repeats, 2000))
    ours = ours / case.n_tasks
    spread = (expected.amax(dim=1) - expected.amin(dim=1)).mean()
    error = ((found - expected).abs().max() / spread).item()
    shape = " x ".join(map(str, case.item))
    return (
        f"{type(method).__name__:<6}{shape:>12}{1e3 * ours:>10.2f}{1e3 * theirs:>10.2f}"
        f"{theirs / ours:>8.1f}{error:>12.0e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="default: 1")
    parser.add_argument(
        "--seconds", type=float, default=12.0, metavar="S", help="time per row (default: 12)"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"ms per task of {WAY}-way {SHOT}-shot, {N_QUERY} queries; {options.threads} thread(s)")
    print(f"{'head':<6}{'items':>12}{'batched':>10}{'plain':>10}{'ratio':>8}{'difference':>12}")
    for case in CASES:
        print(measure(case, options.seconds), flush=True)


if __name__ == "__main__":
    main()
