from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fsf_methods.local import FRN, _descriptors
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks
from tests.golden_heads import (
    Case,
    assert_array,
    assert_loss,
    assert_scores,
    golden_heads,
    read_case,
)


@parametrize_with_checks([FRN, partial(FRN, auxiliary_norm="task", loss_divisor=5.0)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def reference(case: Case, **options: Any) -> FRN:
    method = FRN(**options)
    parameters = case.parameters
    method.load_state_dict({"scale": parameters["scale"], "exponents": parameters["r"]})
    return method


@golden_heads("FRN")
def test_golden_heads_frn(path: Path) -> None:
    case = read_case(path)
    method = reference(case, auxiliary_norm="task")
    support, query, labels = (
        case.tensor(name)[None] for name in ("support", "query", "query_labels")
    )
    batch = Batch(support, query, labels)
    embedded = method.embed_episode(batch)
    assert_scores(method.eval().scores(*embedded)[0], case.tensor("scores"))
    assert_scores(-method.errors(*embedded)[0], case.tensor("neg_l2_dist"))
    overlap = method.auxiliary_weight * method.overlap(embedded[0])
    assert_array(overlap, case.tensor("auxiliary")[None])
    assert_loss(method.train().loss(batch).detach(), case.tensor("loss"))
    without = reference(case, auxiliary_weight=0.0)
    assert_loss(without.loss(batch).detach(), case.tensor("nll"))


def items(shot: int, channels: int, side: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(3, 4, shot, channels, side, side, generator=generator).relu(),
        torch.randn(3, 7, channels, side, side, generator=generator).relu(),
    )


def literal_errors(method: FRN, support: Tensor, query: Tensor) -> Tensor:
    """Reconstruct maps ``(n, C, h, w)`` from ``(way, shot, C, h, w)`` location by location."""
    alpha, beta = method.exponents.double()
    errors = []
    for maps in support.double():
        rows = maps.movedim(1, 3).flatten(0, 2)
        k, channels = rows.shape
        added = (k / channels * alpha.exp() + 1e-6) * torch.eye(channels)
        hat = torch.linalg.solve(rows.T @ rows + added, rows.T @ rows)
        q = query.double().movedim(1, 3).flatten(1, 2)
        errors.append((beta.exp() * q @ hat - q).square().sum(dim=2).mean(dim=1))
    return torch.stack(errors, dim=1)


@pytest.mark.parametrize("at_once", [1, 5000, 1 << 20])
@pytest.mark.parametrize(("shot", "channels"), [(1, 5), (1, 9), (1, 20), (3, 5), (3, 40)])
def test_errors_are_the_literal_ones(
    shot: int, channels: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_descriptors._NUMBERS_AT_ONCE, "cpu", at_once)
    method = FRN()
    torch.nn.init.constant_(method.exponents, -0.4)
    support, query = items(shot, channels)
    with torch.no_grad():
        found = method.errors(*method.embed_episode(Batch(support, query)))
    expected = torch.stack(
        [literal_errors(method, s, q) for s, q in zip(support, query, strict=True)]
    )
    torch.testing.assert_close(found.double(), expected.detach(), rtol=1e-4, atol=1e-5)


def test_errors_worked_by_hand() -> None:
    # One descriptor each: S = (2, 0), q = (3, 4), lambda = 1/2 * 2 = 1, so that the first number is
    # reconstructed as 3 * 4 / (4 + 1) = 2.4 and the second as 0.
    method = FRN()
    with torch.no_grad():
        method.exponents[0] = torch.tensor(2.0).log()
        support, query = torch.tensor([2.0, 0.0]), torch.tensor([3.0, 4.0])
        errors = method.errors(support.reshape(1, 1, 1, 1, 2), query.reshape(1, 1, 1, 2))
    assert errors.item() == pytest.approx(0.6**2 + 4**2, rel=1e-5)


def test_the_overlap_worked_by_hand() -> None:
    # Rows (1, 0), (0, 2) and (3, 3): the third has cosines of 1 / sqrt(2) with the others.
    support = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]).reshape(1, 3, 1, 1, 2)
    torch.testing.assert_close(FRN().overlap(support), torch.tensor([1.0]))
    # Of the whole task, 1 + 4 + 18 = 23: products 3 and 6, over 23.
    torch.testing.assert_close(
        FRN(auxiliary_norm="task").overlap(support), torch.tensor([(9 + 36) / 23**2])
    )


def test_the_divisor_of_the_loss() -> None:
    support, query = items(2, 6)
    labels = torch.arange(7).expand(3, 7) % 4
    batch = Batch(support, query, labels)
    divided = Batch(support / 5, query / 5, labels)
    found = FRN(loss_divisor=5.0).loss(batch)
    torch.testing.assert_close(found, FRN().loss(divided))
    torch.testing.assert_close(FRN(divisor=5.0).loss(batch), found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"divisor": 0.0}, "divisor must be above 0, got 0.0"),
        ({"loss_divisor": -1.0}, "loss_divisor must be above 0, got -1.0"),
        ({"auxiliary_weight": -0.5}, "auxiliary_weight must be at least 0, got -0.5"),
        ({"auxiliary_norm": "all"}, "auxiliary_norm must be 'rows' or 'task', got 'all'"),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        FRN(**options)
