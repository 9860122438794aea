"""Milliseconds per task of the heads on local descriptors, many tasks at once and one by one.

Run ``python benchmarks/local_heads.py``; it takes about three minutes. Features are as Conv-64F
gives them for images of 84 x 84 pixels: maps of 64 x 5 x 5, or, for ADM, ATL-Net and CovaMNet, of
64 x 10 x 10. STL DeepBDC is compared with scikit-learn. ``_heads.py`` explains the columns.
"""

from __future__ import annotations

import torch
from _heads import Case, run, scikit_learn
from torch import Tensor
from torch.nn import functional

from fsf_methods.local import ADM, CPEA, FRN, ATLNet, CovaMNet, DeepBDC, STLDeepBDC
from fsf_methods.transfer import RFS


def plain_frn(method: FRN, support: Tensor, query: Tensor) -> Tensor:
    """Reconstruct every query from every class."""
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


CASES = (
    Case("FRN", FRN, (64, 5, 5), plain=plain_frn),
    Case("DeepBDC", DeepBDC, (64, 5, 5), plain=plain_deepbdc),
    Case(
        "STL DeepBDC", lambda: STLDeepBDC(classifier=RFS()), (64, 5, 5), 64,
        scikit_learn, trained=0,
    ),
    Case("CovaMNet", CovaMNet, (64, 10, 10), 4, plain_covamnet),
    Case("ADM", ADM, (64, 10, 10), 4, plain_adm),
    Case("ATL-Net", ATLNet, (64, 10, 10), 4, plain_atlnet),
    Case("CPEA", CPEA, (64, 5, 5), 4, plain_cpea),
)  # fmt: skip

if __name__ == "__main__":
    run(CASES, __doc__)
