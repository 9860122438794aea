"""Milliseconds per task of the heads on local descriptors and sets, beside their plain forms.

Run ``python benchmarks/local_heads.py``; it takes about two minutes. A task is 5-way 5-shot with 15
queries per way, on features as Conv-64F gives them for images of 84 x 84 pixels: maps of 64 x 5 x 5
or, for ADM, ATL-Net and CovaMNet, of 64 x 10 x 10; vectors of 1600 numbers. A plain form scores
task by task, with the paper's formulas vectorised within the task. Both forms run in turn and the
fastest time of each counts, so other work on the machine hardly affects the ratio.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_local_methods import ADM, CPEA, FRN, ATLNet, CovaMNet, DeepBDC
from fsf_set_methods import FEAT
from fsframework.interfaces import Batch, FewShotMethod

WAY, SHOT, N_QUERY, N_TASKS = 5, 5, 75, 4


def plain_frn(method: FRN, support: Tensor, query: Tensor) -> Tensor:
    """Reconstruct every query from every class; items are embedded, here and below."""
    rows = support.flatten(1, 2)
    k, channels = rows.shape[1:]
    added = (k / channels * method.exponents[0].exp() + 1e-6) * torch.eye(channels)
    gram = rows.mT @ rows
    hat = torch.linalg.inv(gram + added) @ gram * method.exponents[1].exp()
    apart = query.flatten(0, 1) @ hat - query.flatten(0, 1)
    errors = apart.square().sum(dim=2).reshape(len(rows), *query.shape[:2]).mean(dim=2)
    return (-method.scale * errors.T).log_softmax(dim=1)


def plain_deepbdc(method: DeepBDC, support: Tensor, query: Tensor) -> Tensor:
    """Subtract every mean from every query."""
    return -(query[:, None] - support.mean(dim=1)).square().sum(dim=2)


def plain_covamnet(method: CovaMNet, support: Tensor, query: Tensor) -> Tensor:
    """Multiply every descriptor with every covariance matrix."""
    pools = support.flatten(1, 2)
    pools = pools - pools.mean(dim=1, keepdim=True)
    covariances = pools.mT @ pools / (pools.shape[1] - 1)
    centred = query - query.mean(dim=1, keepdim=True)
    forms = (centred[:, None] @ covariances * centred[:, None]).sum(dim=3)
    return method.weigh(functional.leaky_relu(forms, 0.2)).squeeze(2)


def plain_adm(method: ADM, support: Tensor, query: Tensor) -> Tensor:
    """Invert, multiply all pairs of matrices, and sort all cosines."""

    def moments(rows: Tensor) -> tuple[Tensor, Tensor]:
        centred = rows - rows.mean(dim=1, keepdim=True)
        covariance = centred.mT @ centred / (rows.shape[1] - 1)
        return rows.mean(dim=1), covariance + 0.01 * torch.eye(rows.shape[2])

    pools = support.flatten(1, 2)
    (means, covariances), (own, of_query) = moments(pools), moments(query)
    inverses = torch.linalg.inv(covariances)
    products = of_query[:, None] @ inverses
    traces = products.diagonal(dim1=2, dim2=3).sum(dim=2)
    apart = own[:, None] - means
    distances = (apart[:, :, None] @ inverses @ apart[..., None])[..., 0, 0]
    sizes = torch.linalg.slogdet(covariances)[1] - torch.linalg.slogdet(of_query)[1][:, None]
    divergences = (traces + distances + sizes - query.shape[2]) / 2
    units, of_query = (functional.normalize(x, dim=2) for x in (pools, query))
    cosines = (of_query[:, None] @ units.mT).topk(method.n_k, dim=3).values.sum(dim=(2, 3))
    normed = method.norm(torch.cat([-divergences, cosines], dim=1))
    return (normed.reshape(len(query), 2, -1) * method.weights[:, None]).sum(dim=1)


def plain_atlnet(method: ATLNet, support: Tensor, query: Tensor) -> Tensor:
    """Weigh all cosines of the task."""
    way, shot = support.shape[:2]
    original, learned = support.flatten(0, 2).chunk(2, dim=1)
    of_query, of_query_learned = query.chunk(2, dim=2)
    hidden = functional.leaky_relu(method.hide(of_query_learned), 0.2)
    threshold = method.threshold(hidden).sigmoid() * method.threshold_range
    threshold = threshold + method.least_threshold
    attention = (method.attention_scale * (of_query_learned @ learned.T - threshold)).sigmoid()
    matches = functional.normalize(attention, p=1, dim=2) * (of_query @ original.T)
    sums = matches.reshape(*query.shape[:2], way, -1).sum(dim=3)
    return sums.mean(dim=1) * method.scale / shot


def plain_cpea(method: CPEA, support: Tensor, query: Tensor) -> Tensor:
    """Compare all pairs of patches."""

    def directed(patches: Tensor) -> Tensor:
        units = functional.normalize(patches, dim=-1)
        return units - units.mean(dim=-1, keepdim=True)

    pairs = directed(support.mean(dim=1)) @ directed(query)[:, None].mT
    return method.relate(pairs.square().flatten(2)).squeeze(2)


def plain_feat(method: FEAT, support: Tensor, query: Tensor) -> Tensor:
    """Subtract every adapted prototype from every query."""
    prototypes = method.attention(support.mean(dim=1)[None])[0]
    return -(query[:, None] - prototypes).square().sum(dim=2) / method.temperature


@dataclass(frozen=True)
class Case:
    """One row: a method, its plain form, and the shape of its items."""

    method: FewShotMethod
    plain: Callable[..., Tensor]
    item: tuple[int, ...]


CASES = (
    Case(FRN(), plain_frn, (64, 5, 5)),
    Case(DeepBDC(), plain_deepbdc, (64, 5, 5)),
    Case(CovaMNet(), plain_covamnet, (64, 10, 10)),
    Case(ADM(), plain_adm, (64, 10, 10)),
    Case(ATLNet(), plain_atlnet, (64, 10, 10)),
    Case(CPEA(), plain_cpea, (64, 5, 5)),
    Case(FEAT(), plain_feat, (1600,)),
)


def quickest(forms: list[Callable[[], Tensor]], seconds: float) -> list[float]:
    """Return the fastest time of each form in seconds, running them in turn."""
    best = [float("inf")] * len(forms)
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        rounds += 1
        for i, form in enumerate(forms):
            start = time.process_time()
            form()
            best[i] = min(best[i], time.process_time() - start)
    return best


def measured(case: Case, seconds: float) -> tuple[float, float, float]:
    """Return milliseconds per task of both forms, and their largest relative difference."""
    torch.manual_seed(0)
    method = case.method
    method.build(case.item, 0, Conv64F())
    method.eval()
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(N_TASKS, WAY, SHOT, *case.item, generator=generator).relu()
    query = torch.randn(N_TASKS, N_QUERY, *case.item, generator=generator).relu()
    support, query = method.embed_episode(Batch(support, query))

    def batched() -> Tensor:
        return method.scores(support, query)

    def plain() -> Tensor:
        pairs = zip(support, query, strict=True)
        return torch.stack([case.plain(method, s, q) for s, q in pairs])

    found, expected = batched(), plain()
    spread = (expected.amax(dim=2) - expected.amin(dim=2)).mean()
    apart = float((found - expected).abs().max() / spread)
    ours, theirs = quickest([batched, plain], seconds)
    return 1000 * ours / N_TASKS, 1000 * theirs / N_TASKS, apart


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="time per row")
    seconds = parser.parse_args().seconds
    print(f"{N_TASKS} tasks per batch, {torch.get_num_threads()} threads, processor time")
    print(f"{'method':<10} {'items':<12} {'ms/task':>8} {'plain':>8} {'ratio':>6} {'apart':>8}")
    with torch.no_grad():
        for case in CASES:
            ours, plain, apart = measured(case, seconds)
            items = " x ".join(map(str, case.item))
            print(
                f"{type(case.method).__name__:<10} {items:<12} {ours:8.2f} {plain:8.2f} "
                f"{plain / ours:6.1f} {apart:8.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
