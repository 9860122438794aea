"""Self-attention over sets of vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["SelfAttention", "class_centres"]


class SelfAttention(nn.Module):
    """One head of self-attention with a residual connection and LayerNorm.

    Source: Vaswani et al. 2017, sections 3.2 and 5.4, in the form of the FEAT code.

    Args:
        length: of the vectors.
        dropout: share of the numbers dropped before the residual connection in training.
        attention_dropout: share of the attention weights dropped in training.
    """

    def __init__(self, length: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.queries = nn.Linear(length, length, bias=False)
        self.keys = nn.Linear(length, length, bias=False)
        self.values = nn.Linear(length, length, bias=False)
        self.leave = nn.Linear(length, length)
        self.norm = nn.LayerNorm(length)
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        for layer in (self.queries, self.keys, self.values):
            nn.init.normal_(layer.weight, std=1 / math.sqrt(length))
        nn.init.xavier_normal_(self.leave.weight)

    def forward(self, x: Tensor, together: Tensor | None = None) -> Tensor:
        """Transform sets ``(sets, m, length)``.

        Args:
            x: the sets.
            together: bool ``(sets, m, m)``, which vectors attend to which; ``None`` for all.
        """
        logits = self.queries(x) @ self.keys(x).mT / math.sqrt(x.shape[-1])
        if together is not None:
            logits = logits.masked_fill(~together, -torch.inf)
        weights = functional.dropout(logits.softmax(dim=2), self.attention_dropout, self.training)
        found = self.leave(weights @ self.values(x))
        normed: Tensor = self.norm(functional.dropout(found, self.dropout, self.training) + x)
        return normed


def class_centres(attention: SelfAttention, items: Tensor, classes: Tensor, way: int) -> Tensor:
    """Transform the images of each class as a set of its own, and average over the set.

    Args:
        attention: transforms the sets, all at once.
        items: float ``(tasks, m, length)``.
        classes: int64 ``(tasks, m)``, 0..way-1, each of them there.
        way: number of classes.

    Returns:
        float ``(tasks, way, length)``.
    """
    adapted = attention(items, classes[:, :, None] == classes[:, None])
    members = functional.one_hot(classes, way).to(items.dtype)
    centres: Tensor = (members / members.sum(dim=1, keepdim=True)).mT @ adapted
    return centres
