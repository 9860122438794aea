"""Milliseconds per task of OpTA, SLA and HTS, many tasks at once and one by one.

Run ``python benchmarks/pretext_heads.py``; it takes about a minute. OpTA gets vectors of 64 and
1600 numbers, as Conv-64F gives them for images of 84 x 84 pixels; its plain form runs Sinkhorn's
algorithm for one task until it stops, and classifies by scikit-learn's logistic regression. SLA and
HTS get images of 32 x 32 pixels, which they encode by Conv-64F before they are scored, SLA in four
rotations each; its plain form compares the views of one task with all joint prototypes. HTS scores
as its base does. ``_heads.py`` explains the columns.
"""

from __future__ import annotations

import math

import torch
from _heads import WAY, Case, run
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional

from fsf_methods.metric import ProtoNet
from fsf_methods.transfer import NCC, Logistic
from fsf_self_supervised.methods import OpTA
from fsf_self_supervised.pretext import HTS, SLA
from fsf_self_supervised.views import Rotation

IMAGE = (3, 32, 32)


def plain_opta(method: OpTA, support: Tensor, query: Tensor) -> Tensor:
    """Transport the prototypes of one task, and fit a regression to them."""
    moved, queries = aligned(method, support, query)
    model = LogisticRegression(C=1, max_iter=1000).fit(moved.numpy(), range(WAY))
    return torch.from_numpy(model.decision_function(queries.numpy()))


def plain_opta_ncc(method: OpTA, support: Tensor, query: Tensor) -> Tensor:
    """Transport the prototypes of one task, and compare."""
    moved, queries = aligned(method, support, query)
    return functional.normalize(queries, dim=1) @ functional.normalize(moved, dim=1).T


def aligned(method: OpTA, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """Return the prototypes and the queries of one task."""
    support, query = (functional.layer_norm(x, x.shape[-1:], eps=0) for x in (support, query))
    size = query.shape[1]
    support, query = (math.sqrt(1 - 1 / size) * x for x in (support, query))
    means = support.mean(dim=1)
    cost = torch.cdist(means, query).square()
    cost = -cost / cost.max() / method.epsilon
    row, column = (math.log(1 / size + 1e-8) for size in cost.shape)
    first, second = torch.zeros(WAY, 1), torch.zeros(1, len(query))
    for _ in range(method.max_iter):
        before = first
        first = row - (cost + second).logsumexp(dim=1, keepdim=True)
        second = column - (cost + first).logsumexp(dim=0, keepdim=True)
        if method.epsilon * (first - before).abs().sum() < method.tol:
            break
    plan = (cost + first + second).exp()
    moved = plan / plan.sum(dim=1, keepdim=True) @ query
    return method.ratio * moved + (1 - method.ratio) * means, query


def plain_sla(method: SLA, support: Tensor, query: Tensor) -> Tensor:
    """Compare the views of one task with the prototypes of all joint classes."""
    prototypes, m = support.mean(dim=1).flatten(0, 1), method.views.n_views
    joint = -torch.cdist(query.flatten(0, 1), prototypes).square()
    return sum((joint[view::m, view::m] for view in range(m)), torch.zeros(())) / m


def opta() -> OpTA:
    """Create the usual OpTA."""
    return OpTA(classifier=Logistic())


CASES = (
    Case("OpTA", opta, (64,), 128, plain_opta, trained=0),
    Case("OpTA", opta, (1600,), 32, plain_opta, trained=0),
    Case("OpTA with ncc", lambda: OpTA(classifier=NCC()), (64,), 128, plain_opta_ncc, trained=0),
    Case("OpTA with ncc", lambda: OpTA(classifier=NCC()), (1600,), 32, plain_opta_ncc, trained=0),
    Case("SLA on ProtoNet", lambda: SLA(base=ProtoNet(), views=Rotation()), IMAGE, 16, plain_sla,
         trained=2),
    Case("HTS on ProtoNet", lambda: HTS(base=ProtoNet(), views=Rotation()), IMAGE, scored=False,
         trained=2),
)  # fmt: skip

if __name__ == "__main__":
    run(CASES, __doc__)
