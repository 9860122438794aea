"""The conformance checks of every method, with few steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fsf_clip_methods import (
    CLAP,
    CLIPAdapter,
    CoCoOp,
    CoOp,
    ImageTextTower,
    LinearProbe,
    LPPlusPlus,
    TipAdapter,
    TipAdapterF,
    ZeroShot,
)
from fsframework.interfaces import Backbone
from fsframework.testing import parametrize_with_checks
from fsframework.testing.method import TOY_NAMES, ToyBackbone

WORDS = ("", "7", "a", "x", *TOY_NAMES)


class Words(nn.Module):
    """Embeddings of words without parameters: of a toy class its centre, of others a little."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(WORDS), 32)
        del self.embedding.weight
        centres = ToyBackbone().text_features(WORDS[1:])
        self.embedding.register_buffer("weight", torch.cat([torch.zeros(1, 32), centres]))


class ToyTower(ImageTextTower):
    """A text is the sum of the embeddings of its words; the images are those of ``ToyBackbone``."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Words()

    def forward(self, images: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def logit_scale(self) -> Tensor:
        return self.net.embedding.weight.new_full((), 10.0)

    def _ids(self, texts: Sequence[str], room: int = 0, length: int | None = None) -> Tensor:
        rows = torch.zeros(len(texts), length or 6, dtype=torch.int64)
        for row, text in zip(rows, texts, strict=True):
            for place, word in enumerate(re.findall(r"\w+", text)[: len(row)]):
                row[place] = WORDS.index(word)
        return rows[:, None]

    def _features(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.net.embedding(tokens[:, 0])
        return found.sum(dim=1)


class _OnToyTower:
    """Learns the words of a tower into which embeddings can be put, as no toy of the suite is."""

    def read_with(self, backbone: Backbone) -> None:
        self.toy = ToyTower()
        super().read_with(self.toy)  # type: ignore[misc]

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        super().build(item_shape, n_base_classes, self.toy)  # type: ignore[misc]


class ToyCoOp(_OnToyTower, CoOp):
    """CoOp on the toy tower."""


class ToyCoCoOp(_OnToyTower, CoCoOp):
    """CoCoOp on the toy tower."""


@parametrize_with_checks(
    [
        ZeroShot,
        TipAdapter,
        partial(TipAdapterF, steps=3),
        partial(LinearProbe, steps=3),
        partial(CLAP, steps=3),
        partial(CLIPAdapter, steps=3),
        partial(LPPlusPlus, steps=12),
        partial(ToyCoOp, steps=2, length=2, room=4),
        partial(ToyCoCoOp, passes=2, context="x", room=4),
    ]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)
