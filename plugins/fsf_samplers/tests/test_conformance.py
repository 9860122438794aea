"""Every sampler of this package keeps the contract of samplers."""

from __future__ import annotations

from functools import partial

from fsf_samplers import (
    ContextSampler,
    DepletingSampler,
    FewStabPublishedSampler,
    FewStabSampler,
    RandomSampler,
)
from fsframework.testing import Check, Make, parametrize_with_checks


@parametrize_with_checks(
    [
        RandomSampler,
        DepletingSampler,
        partial(DepletingSampler, choose="by-what-is-left"),
        ContextSampler,
        partial(ContextSampler, n_shot=2, n_query=3, n_contexts=2),
        FewStabSampler,
        FewStabPublishedSampler,
    ]
)
def test_conformance(make: Make, check: Check) -> None:
    check(make)
