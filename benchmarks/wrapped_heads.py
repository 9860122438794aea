"""Milliseconds per task of methods within others, many tasks at once and one by one.

Run ``python benchmarks/wrapped_heads.py``; it takes about four minutes. IFSL cuts vectors of 64
numbers into eight parts; its plain form is the base, called on one part of one task at a time. FT,
ATA and LRP score as their bases do and change only the training: with RelationNet on maps of
64 x 5 x 5, with GNN and TPN on the vectors and maps of images of 32 x 32 pixels through Conv-64F;
ATA is trained on such images. ``_heads.py`` explains the columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from _heads import Case, run
from torch import Tensor

from fsf_methods.cross_domain import ATA, FT, LRP
from fsf_methods.gradient import MAML, MTL
from fsf_methods.interventional import IFSL
from fsf_methods.metric import MatchingNet, RelationNet
from fsf_methods.transductive import GNN, SIB, TPN
from fsframework.interfaces import FewShotMethod

MAP, IMAGE = (64, 2, 2), (3, 32, 32)


def plain_ifsl(method: IFSL, support: Tensor, query: Tensor) -> Tensor:
    """Average the probabilities of the parts of one task."""
    found = [
        base.scores(support[None, :, :, i], query[None, :, i])[0].log_softmax(dim=1)
        for i, base in enumerate(method.bases)
    ]
    return torch.stack(found).logsumexp(dim=0) - math.log(len(found))


def on(base: type[FewShotMethod], wrapper: Callable[..., FewShotMethod], **options: Any) -> Any:
    """Return what creates a wrapper with a base in it."""
    return lambda: wrapper(base=base(), **options)


CASES = (
    Case("IFSL on MAML", on(MAML, IFSL), (64,), 16, plain_ifsl, trained=2),
    Case("IFSL on MatchingNet", on(MatchingNet, IFSL), (64,), 64, plain_ifsl),
    Case("IFSL on SIB", on(SIB, IFSL), (64,), 64, plain_ifsl),
    Case("IFSL on MTL", on(MTL, IFSL), (64,), 16, plain_ifsl, trained=2),
    Case("FT on RelationNet", on(RelationNet, FT), (64, 5, 5), scored=False),
    Case("FT on GNN", on(GNN, FT), (256,), scored=False, trained=2, queries=15),
    Case("FT on TPN", on(TPN, FT), MAP, scored=False),
    Case("LRP on RelationNet", on(RelationNet, LRP), (64, 5, 5), scored=False, trained=2),
    Case("LRP on GNN", on(GNN, LRP), (256,), scored=False, trained=2, queries=15),
    Case("LRP on TPN", on(TPN, LRP), MAP, scored=False),
    Case(
        "ATA on RelationNet", on(RelationNet, ATA, steps=1), (64, 2, 2), scored=False, trained=2,
        queries=15, wide=IMAGE,
    ),
    Case(
        "ATA on GNN", on(GNN, ATA, steps=1), (256,), scored=False, trained=2, queries=15,
        wide=IMAGE,
    ),
    Case(
        "ATA on TPN", on(TPN, ATA, steps=1), MAP, scored=False, trained=2, queries=15, wide=IMAGE,
    ),
)  # fmt: skip

if __name__ == "__main__":
    run(CASES, __doc__)
