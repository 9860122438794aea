"""A model of the public API: what it scores, and what its weights are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fsframework as fsf
from fsframework.errors import PluginError
from fsframework.interfaces import FewShotMethod

SIZE = 16


class Broken(FewShotMethod):
    """Return what is not a number for the first query."""

    def scores(self, support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        found = -torch.cdist(query, support.mean(dim=2))
        found[:, 0, 0] = torch.nan
        return found


class Transposed(FewShotMethod):
    """Return a row per class, not a column."""

    def scores(self, support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        return -torch.cdist(support.mean(dim=2), query)


def pixels(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, SIZE, SIZE, 3), dtype=np.uint8)


def average() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())


def test_embedded_images_are_scored_as_pixels_are() -> None:
    model = fsf.model("logistic", backbone=average(), image_size=SIZE, device="cpu")
    support, query = pixels(6, 0), pixels(4, 1)
    expected = model.scores(support, [0, 0, 1, 1, 2, 2], query)
    shown = model.embed(support)
    found = model.embedded_scores(shown.reshape(3, 2, *shown.shape[1:]), model.embed(query))
    assert found.shape == (4, 3)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (Broken(), r"returned float32 of shape \(1, 4, 3\) on cpu, 1 of them not finite; it must"),
        (Transposed(), r"returned float32 of shape \(1, 3, 4\) on cpu; .* of shape \(1, 4, 3\)"),
    ],
    ids=["not finite", "another shape"],
)
def test_scores_that_are_not_scores_are_refused(method: FewShotMethod, said: str) -> None:
    model = fsf.model(method, backbone=average(), image_size=SIZE, device="cpu")
    with pytest.raises(PluginError, match=said):
        model.scores(pixels(3, 0), [0, 1, 2], pixels(4, 1))


def test_a_model_says_which_of_its_weights_are_trained() -> None:
    untrained = fsf.model("ncc", backbone="conv64f", image_size=SIZE, device="cpu")
    assert (untrained.trained, untrained.backbone, untrained.source) == ("nothing", "conv64f", None)
    module = {"backbone": average(), "image_size": SIZE, "device": "cpu"}
    assert fsf.model("ncc", **module).trained == "all"
    assert fsf.model("r2d2", **module).trained == "backbone"
