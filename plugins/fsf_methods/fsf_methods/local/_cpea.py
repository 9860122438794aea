"""Class-aware patch embedding adaptation."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.local._descriptors import by_blocks, descriptors
from fsframework.interfaces import Backbone, Batch, FewShotMethod, OptionError

__all__ = ["CPEA"]

_HIDDEN = 256
_CLASS_WEIGHT = 2.0


class CPEA(FewShotMethod):
    """Adapt an image's patches to its class token, and compare all pairs of patches.

    Source: Hao, He, Liu, Wu, Tao and Cheng 2023, "Class-aware Patch Embedding Adaptation for
    Few-Shot Image Classification" (ICCV), sections 3.3 and 3.4, and the authors' code. To the class
    token and the patches of an image, a small network of their mean is added, then they are
    normalised (LayerNorm), and twice the class token is added to each patch. A class's patches are
    the means over its shots. Patches of length 1, minus their mean over channels, are compared by
    their inner products; a small network scores the squares of those of all pairs. The loss is the
    cross-entropy of the scores, with smoothed labels.

    A backbone here gives a map; its locations are the patches, and their mean stands in for the
    class token, which a map does not have. ``adapt`` takes the tokens of a transformer.

    Args:
        smoothing: share of a label that is spread evenly over the other ways in the loss, in
            [0, 1).
        dropout: share of numbers dropped after each layer of the small networks in training, in
            [0, 1).

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "maps"

    def __init__(self, *, smoothing: float = 0.1, dropout: float = 0.1) -> None:
        super().__init__()
        if not 0 <= smoothing < 1:
            raise OptionError(f"smoothing must be in [0, 1), got {smoothing}")
        if not 0 <= dropout < 1:
            raise OptionError(f"dropout must be in [0, 1), got {dropout}")
        self.smoothing = smoothing
        self.dropout = dropout

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the small networks for maps ``(C, h, w)``."""
        channels, patches = item_shape[0], math.prod(item_shape[1:])
        self.shift = _Network(channels, max(1, channels // 4), channels, self.dropout)
        self.norm = nn.LayerNorm(channels)
        self.relate = _Network(patches**2, _HIDDEN, 1, self.dropout)

    def embed(self, items: Tensor) -> Tensor:
        """Turn maps ``(n, C, h, w)`` into adapted patches ``(n, h * w, C)``."""
        patches = descriptors(items)
        return self.adapt(torch.cat([patches.mean(dim=1, keepdim=True), patches], dim=1))

    def adapt(self, tokens: Tensor) -> Tensor:
        """Adapt patches to their class token.

        Args:
            tokens: float ``(n, 1 + m, C)``, the class token first.

        Returns:
            float ``(n, m, C)``.
        """
        tokens = self.norm(self.shift(tokens.mean(dim=1, keepdim=True)) + tokens)
        return tokens[:, 1:] + _CLASS_WEIGHT * tokens[:, :1]

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the scores of all pairs of patches, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, m, C)``, embedded.
            query: float ``(tasks, n, m, C)``, embedded.
        """
        classes = _directions(support.mean(dim=2))
        pairs = classes.shape[1] * query.shape[2] ** 2
        return by_blocks(self._scores, [classes], _directions(query), pairs)

    def _scores(self, classes: Tensor, query: Tensor) -> Tensor:
        products = (
            classes[:, None] @ query.mT[:, :, None]
        )  # (tasks, n, way, m of class, m of query)
        scores: Tensor = self.relate(products.square_().flatten(3))
        return scores.squeeze(3)

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy of the scores with smoothed labels."""
        assert batch.query_labels is not None
        return self.smoothed(self.scores(*self.embed_episode(batch)), batch.query_labels)

    def smoothed(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of scores ``(tasks, n, way)`` with labels ``(tasks, n)``."""
        logits = scores.flatten(0, 1).log_softmax(dim=1)
        own = logits.gather(1, labels.flatten()[:, None])[:, 0]
        others = (logits.sum(dim=1) - own) / (logits.shape[1] - 1)
        return -((1 - self.smoothing) * own + self.smoothing * others).mean()


class _Network(nn.Module):
    """Two layers with a GELU between them and dropout after each."""

    def __init__(self, inner: int, hidden: int, outer: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(inner, hidden)
        self.second = nn.Linear(hidden, outer)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop(functional.gelu(self.first(x)))
        out: Tensor = self.drop(self.second(hidden))
        return out


def _directions(patches: Tensor) -> Tensor:
    """Return patches ``(..., C)`` of length 1, minus their mean over channels."""
    units = functional.normalize(patches, dim=-1)
    return units - units.mean(dim=-1, keepdim=True)
