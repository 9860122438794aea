"""Milliseconds per task of GNN, TPN, SIB and PUTM, many tasks at once and one by one.

Run ``python benchmarks/transductive_heads.py``; it takes about two minutes. Features are as
Conv-64F gives them for images of 84 x 84 pixels: vectors of 1600 numbers, and for SIB also of 64,
and maps of 64 x 5 x 5 for TPN. The plain form of GNN applies PyTorch's own layers to all pairs of
all graphs of a task, that of SIB differentiates automatically. ``_heads.py`` explains the columns.
"""

from __future__ import annotations

from typing import Any

import torch
from _heads import SHOT, WAY, Case, run
from torch import Tensor
from torch.nn import functional

from fsf_methods.adaptation import PUTM
from fsf_methods.transductive import GNN, SIB, TPN


def plain_gnn(method: GNN, support: Tensor, query: Tensor) -> Tensor:
    """Send all pairs of nodes of all graphs through the network."""
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
    nodes = torch.cat([support.flatten(0, 1), query])
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


def plain_putm(method: PUTM, support: Tensor, query: Tensor) -> Tensor:
    """Refine the prototypes of one task."""
    items = functional.normalize(torch.cat([support.flatten(0, 1), query]), dim=1)
    items = functional.normalize(items - items.mean(dim=0), dim=1)
    support, query = items[: WAY * SHOT].unflatten(0, (WAY, SHOT)), items[WAY * SHOT :]
    prototypes, prior = support.mean(dim=1), torch.full((WAY,), 1 / WAY)
    for _ in range(method.steps):
        nearness = method.temperature * query @ functional.normalize(prototypes, dim=1).T
        forward = (nearness + prior.log()).softmax(dim=1)
        prior = forward.mean(dim=0)
        backward = nearness.softmax(dim=0)
        plan = method.beta * forward + (1 - method.beta) * len(query) / WAY * backward
        mass = SHOT + method.gamma * plan.sum(dim=0)[:, None]
        prototypes = (support.sum(dim=1) + method.gamma * plan.T @ query) / mass
    nearness = method.temperature * query @ functional.normalize(prototypes, dim=1).T
    return (nearness + prior.log()).log_softmax(dim=1)


def across_domains() -> GNN:
    """Create the variant of the papers across domains."""
    return GNN(width=128, statistics="batch", graph="class", unknown="zeros")


CASES = (
    Case("GNN", GNN, (1600,), 4, plain_gnn, plain_tasks=1, trained=2, queries=15),
    Case("GNN across domains", across_domains, (1600,), 8, queries=15),
    Case("TPN", TPN, (64, 5, 5), 16, plain_tpn),
    Case("SIB", SIB, (1600,), 32, plain_sib),
    Case("SIB", SIB, (64,), 128, plain_sib),
    Case("PUTM", PUTM, (1600,), 32, plain_putm, trained=0),
    Case("PUTM", PUTM, (64,), 128, plain_putm, trained=0),
)

if __name__ == "__main__":
    run(CASES, __doc__)
