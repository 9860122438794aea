"""Milliseconds per task of the metric methods' heads, compared with their formulas one by one.

Run ``python benchmarks/metric_heads.py``; it takes about two minutes. A task is 5-way 5-shot with
15 queries per way, on features as Conv-64F gives them for images of 84 x 84 pixels: vectors of 1600
numbers; maps of 64 x 10 x 10 for DN4 and CAN, which use it without the last pooling, and of 64 x 5
x 5 for RelationNet and RENet. A literal form is the formula of the paper for one task, in PyTorch,
with every tensor in one piece. All forms of a method run in turn and the fastest time of each
counts, so other work on the machine hardly affects the ratio.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
from _options import one_of, positive
from renet_head import literal_embed, literal_scores, quickest
from torch import Tensor
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.metric import CAN, DN4, R2D2, MatchingNet, ProtoNet, RelationNet, RENet
from fsframework.interfaces import Batch, FewShotMethod

WAY, SHOT, N_QUERY = 5, 5, 75


def literal_protonet(method: ProtoNet, support: Tensor, query: Tensor) -> Tensor:
    """Score ``(way, shot, D)`` and ``(n, D)``: ``(n, way)``; the same for all below."""
    del method
    return -(query[:, None] - support.mean(dim=1)).square().sum(dim=-1)


def literal_r2d2(method: R2D2, support: Tensor, query: Tensor) -> Tensor:
    """Solve the dual system with an inverse."""
    vectors = support.flatten(0, 1)
    targets = torch.eye(len(support)).repeat_interleave(support.shape[1], dim=0)
    system = vectors @ vectors.T + method.regularisation * torch.eye(len(vectors))
    weights = vectors.T @ torch.linalg.inv(system) @ targets
    return method.scale * (query @ weights) + method.bias


def literal_matchingnet(method: MatchingNet, support: Tensor, query: Tensor) -> Tensor:
    """Sum attention class by class."""
    way, shot = support.shape[:2]
    cosines = functional.cosine_similarity(query[:, None], support.flatten(0, 1), dim=-1)
    attention = (cosines / method.temperature).softmax(dim=1)
    return attention.reshape(-1, way, shot).sum(dim=2).log()


def literal_dn4(method: DN4, support: Tensor, query: Tensor) -> Tensor:
    """Take the largest of all cosines."""
    way, _, channels = support.shape[:3]
    pools = functional.normalize(support.transpose(1, 2).reshape(way, channels, -1), dim=1)
    descriptors = functional.normalize(query.flatten(2).mT, dim=2)
    cosines = descriptors[:, None] @ pools
    return cosines.topk(method.n_k, dim=-1).values.sum(dim=(-2, -1))


def literal_can(method: CAN, support: Tensor, query: Tensor) -> Tensor:
    """Correlate all locations of all pairs."""
    classes, query = support.mean(dim=1).flatten(2), query.flatten(2)
    alike = torch.einsum(
        "kci,ncj->nkij", functional.normalize(classes, dim=1), functional.normalize(query, dim=1)
    )

    def weights(x: Tensor) -> Tensor:
        means = x.mean(dim=-2)
        hidden = method.norm(method.reduce(means).flatten(0, 1)).relu()
        kernels = method.expand(hidden).reshape(means.shape)
        fused = (x * kernels[..., None, :]).sum(dim=-1)
        return (fused / method.temperature).softmax(dim=-1) + 1

    on_classes, on_queries = weights(alike), weights(alike.mT)
    attended = (
        (classes[None] * on_classes[:, :, None]).mean(dim=-1),
        (query[:, None] * on_queries[:, :, None]).mean(dim=-1),
    )
    return method.scale * functional.cosine_similarity(*attended, dim=-1)


def literal_relationnet(method: RelationNet, support: Tensor, query: Tensor) -> Tensor:
    """Convolve every pair."""
    classes, n, way = support.sum(dim=1), len(query), len(support)
    shape = n, way, *query.shape[1:]
    x = torch.cat([classes[None].expand(shape), query[:, None].expand(shape)], dim=2).flatten(0, 1)
    for block in (method.first, method.second):
        x = functional.max_pool2d(block.norm(block.conv(x)).relu(), 2)
    return method.relate(method.combine(x.flatten(1)).relu()).reshape(n, way)


def literal_renet(method: RENet, support: Tensor, query: Tensor) -> Tensor:
    """Embed and correlate with 3-d convolutions over unfolded correlations."""
    items = literal_embed(method, torch.cat([support.flatten(0, 1), query]))
    n_support = support.shape[:2].numel()
    return literal_scores(method, items[:n_support].reshape(support.shape), items[n_support:])


@dataclass(frozen=True)
class Case:
    """One row: a method, the shape of its items, tasks per batch, and the required ratio."""

    method: FewShotMethod
    literal: Callable[..., Tensor]
    item: tuple[int, ...]
    n_tasks: int
    reference_ms: float | None = None
    required: int | None = None


CASES = [
    Case(ProtoNet(), literal_protonet, (1600,), 16, 0.6, 10),
    Case(R2D2(), literal_r2d2, (1600,), 16, 0.5, 10),
    Case(MatchingNet(), literal_matchingnet, (1600,), 16),
    Case(DN4(), literal_dn4, (64, 10, 10), 2, 62, 2),
    Case(CAN(), literal_can, (64, 10, 10), 8, 13.5, 2),
    Case(RelationNet(), literal_relationnet, (64, 5, 5), 8),
    Case(RENet(), literal_renet, (64, 5, 5), 2, 477, 3),
]


def measure(case: Case, seconds: float) -> str:
    """Return the row of a case, measured for about this many seconds."""
    torch.manual_seed(0)
    method = case.method
    method.build(case.item, 0, Conv64F())
    method.eval()
    support = torch.randn(case.n_tasks, WAY, SHOT, *case.item).relu()
    query = torch.randn(case.n_tasks, N_QUERY, *case.item).relu()

    def embed() -> tuple[Tensor, Tensor]:
        return method.embed_episode(Batch(support, query))

    def literal() -> Tensor:
        return case.literal(method, support[0], query[0])

    with torch.inference_mode():
        embedded = embed()
        expected, found = literal(), method.scores(*embedded)[0]
        steps = (literal, embed, lambda: method.scores(*embedded))
        repeats = max(3, int(seconds / sum(quickest(*steps, repeats=1))))
        literal_s, embed_s, scores_s = quickest(*steps, repeats=min(repeats, 2000))
    embed_ms, scores_ms = 1e3 * embed_s / case.n_tasks, 1e3 * scores_s / case.n_tasks
    if type(method).embed is FewShotMethod.embed:
        embed_ms = 0.0
    ours, theirs = embed_ms + scores_ms, 1e3 * literal_s
    spread = (expected.amax(dim=1) - expected.amin(dim=1)).mean()
    error = ((found - expected).abs().max() / spread).item()
    reference = "" if case.reference_ms is None else f"{case.reference_ms:g}"
    share = "" if case.reference_ms is None else f"{case.reference_ms / ours:.1f}"
    required = "" if case.required is None else f"{case.required}"
    return (
        f"{type(method).__name__:<14}{embed_ms:>8.3f}{scores_ms:>9.3f}{ours:>9.3f}"
        f"{theirs:>12.3f}{theirs / ours:>8.1f}{reference:>12}{share:>8}"
        f"{required:>10}{error:>12.0e}"
    )


def main() -> None:
    cases = {type(case.method).__name__: case for case in CASES}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="default: 1")
    parser.add_argument(
        "--seconds", type=float, default=12.0, metavar="S", help="time per method (default: 12)"
    )
    parser.add_argument(
        "methods", nargs="*", type=one_of(cases), metavar="METHOD", help=f"of {', '.join(cases)}"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"ms per task of {WAY}-way {SHOT}-shot, {N_QUERY} queries; {options.threads} thread(s)")
    print(
        f"{'head':<14}{'embed':>8}{'scores':>9}{'both':>9}{'literal':>12}{'ratio':>8}"
        f"{'reference':>12}{'ratio':>8}{'required':>10}{'difference':>12}"
    )
    for name in options.methods or cases:
        print(measure(cases[name], options.seconds), flush=True)
    print(
        "embed: once per image, here for the 100 images of a task; ratios are of embed and scores"
    )
    print("reference: a published implementation, on a quiet machine of two cores")
    print(
        "difference: the largest difference of a score, relative to the spread of a query's scores"
    )


if __name__ == "__main__":
    main()
