from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.metric import CAN, _can
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks

N_BASE = 7


@parametrize_with_checks(
    [
        CAN,
        partial(CAN, fusion="mean", reduction=5),
        partial(CAN, transductive=True),
        partial(CAN, transductive=True, n_iterations=3, candidates=0.2),
    ]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def built(side: int = 3, **options: Any) -> CAN:
    """Return a method in evaluation mode whose BatchNorm has seen something."""
    torch.manual_seed(0)
    method = CAN(**options)
    method.build((6, side, side), N_BASE, Conv64F())
    norm = method.norm
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    nn.init.normal_(norm.running_mean, std=0.1)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    return method.eval()


def items(side: int = 3, *, tasks: int = 2, shot: int = 2, n: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(tasks, 3, shot, 6, side, side, generator=generator).relu(),
        torch.randn(tasks, n, 6, side, side, generator=generator).relu(),
    )


def scored(method: CAN, support: Tensor, query: Tensor) -> Tensor:
    return method.scores(*method.embed_episode(Batch(support, query)))


def literal_attended(method: CAN, classes: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """Weigh maps ``(way, C, m)`` and ``(n, C, m)`` for each other: two ``(n, way, C, m)``."""
    unit_classes, unit_query = (functional.normalize(x, dim=1) for x in (classes, query))
    alike = torch.einsum("kci,ncj->nkij", unit_classes, unit_query)

    def weights(x: Tensor) -> Tensor:
        """Weigh the locations in the third dimension by kernels over those in the fourth."""
        means = x.mean(dim=2)
        hidden = method.norm(method.reduce(means).flatten(0, 1)).relu()
        kernels = method.expand(hidden).reshape(means.shape)
        fused = x * kernels[:, :, None]
        fused = fused.sum(dim=3) if method.fusion == "sum" else fused.mean(dim=3)
        return (fused / method.temperature).softmax(dim=2) + 1

    on_classes, on_query = weights(alike), weights(alike.mT)
    return classes[None] * on_classes[:, :, None], query[:, None] * on_query[:, :, None]


def literal_cosines(method: CAN, classes: Tensor, query: Tensor) -> Tensor:
    pooled = [x.mean(dim=3) for x in literal_attended(method, classes, query)]
    return method.scale * functional.cosine_similarity(*pooled, dim=2)


def close(found: Tensor, expected: Tensor) -> bool:
    # The temperature makes rounding errors 40 times as large.
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("fusion", ["sum", "mean"])
@pytest.mark.parametrize("side", [1, 2, 3, 6])
def test_scores_are_the_literal_ones(side: int, fusion: str) -> None:
    method = built(side, fusion=fusion)
    support, query = items(side)
    with torch.no_grad():
        found = scored(method, support, query)
        for t in range(2):
            maps = support[t].mean(dim=1).flatten(2)
            assert close(found[t], literal_cosines(method, maps, query[t].flatten(2)))


def test_with_one_location_scores_are_cosines() -> None:
    support, query = items(1)
    with torch.no_grad():
        found = scored(built(1), support, query)
    means = support.mean(dim=2).flatten(2)[:, None]
    expected = 7 * functional.cosine_similarity(query.flatten(2)[:, :, None], means, dim=3)
    torch.testing.assert_close(found, expected)


def test_sum_and_mean_start_from_the_same_function() -> None:
    methods = []
    for fusion in ("sum", "mean"):
        torch.manual_seed(0)
        methods.append(CAN(fusion=fusion))  # type: ignore[arg-type]
        methods[-1].build((6, 4, 4), 0, Conv64F())
    with torch.no_grad():
        first, second = (scored(method.eval(), *items(4)) for method in methods)
    assert close(first, second)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("side", [1, 3])
def test_the_loss_is_the_literal_one(side: int, training: bool) -> None:
    method = built(side, weight_nearest=0.3).train(training)
    other = copy.deepcopy(method)
    support, query = items(side, tasks=1)
    labels = torch.arange(6)[None] % 3
    base = torch.tensor([[4, 0, 2, 4, 0, 2]])
    batch = Batch(support, query, labels, query_classes=base)
    with torch.no_grad():
        loss = method.loss(batch)
        maps, queries = support[0].mean(dim=1).flatten(2), query[0].flatten(2)
        on_classes, on_query = literal_attended(other, maps, queries)
        pooled = on_classes.mean(dim=3)
        expected = 0.0
        for i in range(6):
            for place in range(side**2):
                own = on_query[i, labels[0, i], :, place]
                expected += functional.cross_entropy(other.classify(own), base[0, i])
                cosines = functional.cosine_similarity(on_query[i, :, :, place], pooled[i], dim=1)
                expected += 0.3 * functional.cross_entropy(7 * cosines, labels[0, i])
        torch.testing.assert_close(loss, expected / (6 * side**2), rtol=1e-3, atol=1e-4)
    for found, wanted in zip(method.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("training", [False, True])
def test_the_gradient_reaches_every_parameter(training: bool) -> None:
    method = built(fusion="mean").train(training)
    support, query = items()
    labels = torch.arange(6).expand(2, 6) % 3
    method.loss(Batch(support, query, labels, query_classes=labels)).backward()
    without = {n for n, p in method.named_parameters() if p.grad is None or not p.grad.any()}
    # In training the BatchNorm removes what the bias before it adds.
    assert without <= ({"reduce.bias"} if training else set())


def literal_transductive(method: CAN, support: Tensor, query: Tensor) -> Tensor:
    """Score one task, letting queries join one by one."""
    scores = literal_cosines(method, support.mean(dim=1), query)
    n = len(query)
    for i in range(1, method.n_iterations + 1):
        count = min(n, max(1, round(i * method.candidates * n)))
        joining = scores.amax(dim=1).argsort(descending=True)[:count]
        own = scores.argmax(dim=1)
        members = [list(maps) for maps in support]
        for q in joining:
            members[own[q]].append(query[q])
        classes = torch.stack([torch.stack(maps).mean(dim=0) for maps in members])
        scores = literal_cosines(method, classes, query)
    return scores


@pytest.mark.parametrize(("n_iterations", "candidates"), [(1, 0.5), (2, 35 / 75), (3, 1.0)])
def test_transductive_scores_are_those_of_queries_that_join_one_by_one(
    n_iterations: int, candidates: float
) -> None:
    method = built(transductive=True, n_iterations=n_iterations, candidates=candidates)
    assert method.transductive
    assert not CAN().transductive
    support, query = items(n=15)
    with torch.no_grad():
        found = scored(method, support, query)
        for t in range(2):
            expected = literal_transductive(method, support[t].flatten(3), query[t].flatten(2))
            assert close(found[t], expected)
        assert not close(found, scored(built(), support, query))


def test_the_papers_shares_of_75_queries() -> None:
    assert [round(i * CAN().candidates * 75) for i in (1, 2)] == [35, 70]


@pytest.mark.parametrize("transductive", [False, True])
def test_the_blocks_leave_no_seam(transductive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    method = built(transductive=transductive)
    batch = items(tasks=5)
    with torch.no_grad():
        whole = scored(method, *batch)
        monkeypatch.setitem(_can._WEIGHTS_AT_ONCE, "cpu", 400)
        assert close(scored(method, *batch), whole)


def test_maps_of_zeros_give_finite_gradients() -> None:
    method = built().train()
    support, query = items()
    support[:, 0], query[:, 0], query[:, 1, :, 0] = 0.0, 0.0, 0.0
    leaves = support.requires_grad_(), query.requires_grad_()
    labels = torch.arange(6).expand(2, 6) % 3
    method.loss(Batch(*leaves, labels, query_classes=labels)).backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in leaves)


def test_without_base_classes_there_is_no_classifier() -> None:
    method = CAN()
    method.build((6, 3, 3), 0, Conv64F())
    assert method.classify is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0.0}, "scale must be above 0, got 0.0"),
        ({"temperature": -1.0}, "temperature must be above 0, got -1.0"),
        ({"reduction": 0}, "reduction must be at least 1, got 0"),
        ({"fusion": "max"}, "fusion must be 'sum' or 'mean', got 'max'"),
        ({"weight_nearest": -0.5}, "weight_nearest must be at least 0, got -0.5"),
        ({"n_iterations": 0}, "n_iterations must be at least 1, got 0"),
        ({"candidates": 1.5}, "candidates must be above 0 and at most 1, got 1.5"),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CAN(**options)
