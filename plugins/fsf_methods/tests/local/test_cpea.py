from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.local import CPEA, _descriptors
from fsframework.interfaces import OptionError
from fsframework.testing import parametrize_with_checks
from plugins.fsf_methods.tests.local.maps import episode, rows, scored
from tests.golden_heads import Case, assert_loss, assert_scores, golden_heads, read_case


@parametrize_with_checks([CPEA, partial(CPEA, smoothing=0.0, dropout=0.0)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def reference(case: Case) -> CPEA:
    method = CPEA(smoothing=case.number("label_smoothing"))
    n_tokens, channels = case.arrays["query"].shape[1:]
    method.build((channels, n_tokens - 1, 1), 0, Conv64F())
    named = {"fc1.fc": "shift.", "fc2.fc": "relate.", "fc_norm1.": "norm."}
    layers = {"1": "first", "2": "second"}
    state = {}
    for theirs, value in case.parameters.items():
        start = next(name for name in named if theirs.startswith(name))
        rest = theirs.removeprefix(start)
        if start != "fc_norm1.":
            rest = layers[rest[0]] + rest[1:]
        state[named[start] + rest] = value
    method.load_state_dict(state)
    return method.eval()


@golden_heads("CPEA")
def test_golden_heads_cpea(path: Path) -> None:
    case = read_case(path)
    method = reference(case)
    with torch.no_grad():
        support = method.adapt(case.tensor("support").flatten(0, 1))
        query = method.adapt(case.tensor("query"))
        support = support.reshape(1, case.way, case.shot, *support.shape[1:])
        assert_scores(method.scores(support, query[None])[0], case.tensor("scores"))
        assert_loss(
            method.smoothed(method.scores(support, query[None]), case.tensor("query_labels")[None]),
            case.tensor("loss"),
        )


def literal(method: CPEA, support: Tensor, query: Tensor) -> Tensor:
    """Score maps ``(n, C, h, w)`` for classes ``(way, shot, C, h, w)``, one pair at a time."""

    def adapted(image: Tensor) -> Tensor:
        patches = rows(image[None])
        tokens = torch.cat([patches.mean(dim=0, keepdim=True), patches])
        mean = tokens.mean(dim=0)
        shift = method.shift.second(functional.gelu(method.shift.first(mean)))
        tokens = method.norm(tokens + shift)
        return tokens[1:] + 2 * tokens[0]

    def directed(patches: Tensor) -> Tensor:
        units = patches / patches.norm(dim=1, keepdim=True)
        return units - units.mean(dim=1, keepdim=True)

    scores = torch.zeros(len(query), len(support))
    for i, q in enumerate(query):
        for k, maps in enumerate(support):
            mean = torch.stack([adapted(image) for image in maps]).mean(dim=0)
            pairs = (directed(mean) @ directed(adapted(q)).T).square().flatten()
            hidden = functional.gelu(method.relate.first(pairs))
            scores[i, k] = method.relate.second(hidden)
    return scores


@pytest.mark.parametrize("at_once", [1, 3000, 1 << 20])
@pytest.mark.parametrize("shot", [1, 2])
def test_scores_are_the_literal_ones(
    shot: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_descriptors._NUMBERS_AT_ONCE, "cpu", at_once)
    torch.manual_seed(0)
    method = CPEA()
    method.build((6, 3, 3), 0, Conv64F())
    method.eval()
    batch = episode(shot=shot)
    assert batch.support is not None
    assert batch.query is not None
    with torch.no_grad():
        pairs = zip(batch.support, batch.query, strict=True)
        expected = torch.stack([literal(method, s, q) for s, q in pairs])
    torch.testing.assert_close(scored(method, batch), expected, rtol=1e-4, atol=1e-5)


def test_the_smoothed_loss_worked_by_hand() -> None:
    # Probabilities 1/2, 1/4 and 1/4; of the label, 0.2 goes to the two others.
    logits = torch.tensor([[[0.5, 0.25, 0.25]]]).log()
    found = CPEA(smoothing=0.2).smoothed(logits, torch.tensor([[0]]))
    half = torch.tensor(2.0).log()
    torch.testing.assert_close(found, 0.8 * half + 0.2 * 2 * half)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"smoothing": 1.0}, r"smoothing must be in \[0, 1\), got 1.0"),
        ({"dropout": -0.1}, r"dropout must be in \[0, 1\), got -0.1"),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CPEA(**options)
