"""Milliseconds per task of RENet's head, compared with its formulas written literally.

Run ``python benchmarks/renet_head.py``; it takes about a minute. A task is 5-way 5-shot with 15
queries per way and maps of 64 x 5 x 5: 100 maps are embedded and 75 x 25 pairs correlated. Both
forms run in turn and the fastest time of each counts, so other work on the machine hardly affects
the ratio. The published implementation takes 477 ms on a quiet machine of two cores.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from _options import positive
from torch import Tensor
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.metric import RENet

WAY, SHOT, N_QUERY, CHANNELS, SIDE = 5, 5, 75, 64, 5
N_TASKS, N_REPEATS = 4, 7
PUBLISHED_MS, REQUIRED_MS = 477, 160


def literal_embed(method: RENet, maps: Tensor) -> Tensor:
    """Embed maps ``(n, C, h, w)`` with unfolded windows and 3-d convolutions."""
    layers = method.self_correlation
    n, _, h, w = maps.shape
    unit = functional.normalize(maps.relu(), dim=1)
    windows = functional.unfold(unit, 5, padding=2).reshape(n, -1, 5, 5, h, w)
    x = (windows * unit[:, :, None, None]).permute(0, 1, 4, 5, 2, 3).flatten(2, 3)
    x = layers.enter.norm(layers.enter.conv(x.flatten(3))).relu().reshape(n, -1, h * w, 5, 5)
    for layer in (layers.shrink, layers.shrink_more):
        x = functional.conv3d(x, layer.conv.weight[:, :, None])
        x = layer.norm(x.flatten(3)).reshape(x.shape).relu()
    return (layers.leave.norm(layers.leave.conv(x.reshape(n, -1, h, w))) + maps).relu()


def literal_refined(method: RENet, x: Tensor) -> Tensor:
    """Refine correlations ``(pairs, 1, h, w, u, v)`` of all pairs at once."""
    pairs, _, h, w, u, v = x.shape
    for layer in (method.widen, method.narrow):
        x = x.reshape(pairs, -1, h, w, u * v)
        x = functional.conv3d(x, layer.over_hw.conv.weight[..., None], padding=(1, 1, 0))
        x = layer.over_hw.norm(x.flatten(3)).relu().reshape(pairs, -1, h * w, u, v)
        x = functional.conv3d(x, layer.over_uv.conv.weight[:, :, None], padding=(0, 1, 1))
        x = layer.over_channels.norm(layer.over_channels.conv(layer.over_uv.norm(x.flatten(3))))
        x = x.relu() if layer is method.widen else x
    return x.reshape(pairs, 1, h, w, u, v)


def literal_scores(method: RENet, support: Tensor, query: Tensor) -> Tensor:
    """Score ``(way, shot, C, h, w)`` and ``(n, C, h, w)``; returns ``(n, way)``."""
    way, shot, _, h, w = support.shape
    n = len(query)
    support = support.flatten(0, 1)
    support = support - support.mean(dim=1, keepdim=True)
    query = query - query.mean(dim=1, keepdim=True)
    directions = [
        functional.normalize(method.reduce.norm(method.reduce.conv(maps)).relu(), dim=1)
        for maps in (support, query)
    ]
    x = torch.einsum("scij,qckl->qsijkl", *directions).reshape(-1, 1, h, w, h, w)
    swapped = literal_refined(method, x.permute(0, 1, 4, 5, 2, 3))
    x = literal_refined(method, x) + swapped.permute(0, 1, 4, 5, 2, 3)
    x = x.reshape(n, way * shot, h * w, h * w)

    def weights(dim: int) -> Tensor:
        normal = (x - x.mean(dim=dim, keepdim=True)) / (x.var(dim=dim, keepdim=True) + 1e-5).sqrt()
        return (normal / method.temperature_attn).softmax(dim=dim)

    attended = (
        weights(2).sum(dim=3).reshape(n, way * shot, 1, h, w) * support,
        weights(3).sum(dim=2).reshape(n, way * shot, 1, h, w) * query[:, None],
    )
    pooled = [a.mean(dim=(-2, -1)).reshape(n, way, shot, -1).mean(dim=2) for a in attended]
    return functional.cosine_similarity(*pooled, dim=-1) / method.temperature


def quickest(*steps: Callable[[], object], repeats: int = N_REPEATS) -> list[float]:
    """Run the steps in turn and return the shortest time of each, in seconds."""
    seconds = [float("inf")] * len(steps)
    for _ in range(repeats):
        for i, step in enumerate(steps):
            start = time.perf_counter()
            step()
            seconds[i] = min(seconds[i], time.perf_counter() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=positive, default=2, metavar="N", help="default: 2")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    method = RENet()
    method.build((CHANNELS, SIDE, SIDE), 0, Conv64F())
    method.eval()
    n_support = WAY * SHOT
    maps = torch.randn(N_TASKS, n_support + N_QUERY, CHANNELS, SIDE, SIDE).relu()

    def embedded() -> tuple[Tensor, Tensor]:
        items = method.embed(maps.flatten(0, 1)).reshape(maps.shape)
        support = items[:, :n_support].reshape(N_TASKS, WAY, SHOT, CHANNELS, SIDE, SIDE)
        return support, items[:, n_support:]

    def literal_task() -> Tensor:
        items = literal_embed(method, maps[0])
        support = items[:n_support].reshape(WAY, SHOT, CHANNELS, SIDE, SIDE)
        return literal_scores(method, support, items[n_support:])

    with torch.inference_mode():
        support, query = embedded()
        difference = (method.scores(support, query)[0] - literal_task()).abs().max().item()
        embed, scores, literal = quickest(
            embedded, lambda: method.scores(support, query), literal_task
        )
    embed_ms, scores_ms, literal_ms = 1e3 * embed / N_TASKS, 1e3 * scores / N_TASKS, 1e3 * literal
    head_ms = embed_ms + scores_ms
    print(f"largest difference of a score: {difference:.1e}")
    print(f"{'head of one task':<28}{'ms':>8}")
    print(f"{'  embed (once per image)':<28}{embed_ms:>8.1f}")
    print(f"{'  scores':<28}{scores_ms:>8.1f}")
    print(
        f"{'both':<28}{head_ms:>8.1f}   required: {REQUIRED_MS} on the published figure's machine"
    )
    print(
        f"{'literal, in this run':<28}{literal_ms:>8.1f}   {literal_ms / head_ms:.1f} times as slow"
    )
    print(f"{'published':<28}{PUBLISHED_MS:>8.1f}")


if __name__ == "__main__":
    main()
