"""Few-shot embedding adaptation with a transformer."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods._shared import full_precision
from fsf_methods.sets._attention import SelfAttention, class_centres
from fsf_methods.sets._vectors import squared_distances
from fsframework.interfaces import Backbone, Batch, FewShotMethod, OptionError

__all__ = ["FEAT"]


class FEAT(FewShotMethod):
    """Adapt the prototypes of a task to each other by self-attention.

    Source: Ye, Hu, Zhan and Sha 2020, "Few-Shot Learning via Embedding Adaptation with Set-to-Set
    Functions" (CVPR), sections 3.3 and 3.4, and the authors' code. The class means of a task are a
    set that self-attention transforms; the score is minus the squared distance of the query to
    them, or the cosine, divided by a temperature. The loss is the cross-entropy of the scores plus
    ``balance`` times that of a regulariser: the images of one class, support and queries, are
    transformed as a set, whose mean is a centre, and each image is to be nearest to its own
    class's centre.

    The authors first train the backbone on all base classes, as the recipes ``paper`` and
    ``paper-conv64f`` do; ``--init-from`` starts from such a run. The defaults are the values of
    their command for ResNet-12 and 1 shot of miniImageNet, whatever the backbone and shot of a run:

    ============================  ===========  =======================  =======
    command                       temperature  regulariser_temperature  balance
    ============================  ===========  =======================  =======
    ResNet-12, 1 shot (defaults)  64           64                       0.01
    ResNet-12, 5 shots            64           32                       0.1
    Conv-64F, 1 shot              64           16                       1
    Conv-64F, 5 shots             32           64                       0.1
    ============================  ===========  =======================  =======

    Args:
        metric: ``euclidean`` for the negative squared distance, or ``cosine``.
        temperature: divides the scores, above 0.
        regulariser_temperature: divides the scores of the regulariser, above 0.
        balance: weight of the regulariser, at least 0.
        objective: ``paper``; or ``libfewshot``, whose code gives ``balance`` to the cross-entropy
            of the scores instead, and compares the images of the regulariser, sorted by class, with
            labels sorted otherwise: first those of the support, then those of the queries.
        dropout: share of numbers dropped after the attention in training, in [0, 1).
        attention_dropout: share of attention weights dropped in training, in [0, 1).

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        temperature: float = 64.0,
        regulariser_temperature: float = 64.0,
        balance: float = 0.01,
        objective: Literal["paper", "libfewshot"] = "paper",
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if metric not in ("euclidean", "cosine"):
            raise OptionError(f"metric must be 'euclidean' or 'cosine', got {metric!r}")
        if objective not in ("paper", "libfewshot"):
            raise OptionError(f"objective must be 'paper' or 'libfewshot', got {objective!r}")
        if not balance >= 0:
            raise OptionError(f"balance must be at least 0, got {balance}")
        temperatures = {
            "temperature": temperature,
            "regulariser_temperature": regulariser_temperature,
        }
        for name, value in temperatures.items():
            if not value > 0:
                raise OptionError(f"{name} must be above 0, got {value}")
        for name, value in {"dropout": dropout, "attention_dropout": attention_dropout}.items():
            if not 0 <= value < 1:
                raise OptionError(f"{name} must be in [0, 1), got {value}")
        self.metric = metric
        self.temperature = temperature
        self.regulariser_temperature = regulariser_temperature
        self.balance = balance
        self.objective = objective
        self.dropout = dropout
        self.attention_dropout = attention_dropout

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the self-attention for vectors ``(D,)``."""
        self.attention = SelfAttention(item_shape[0], self.dropout, self.attention_dropout)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return scores of the adapted prototypes, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        with torch.autocast(query.device.type, enabled=False):
            prototypes = self.attention(full_precision(support).mean(dim=2))
            return self._compared(full_precision(query), prototypes) / self.temperature

    def _compared(self, query: Tensor, points: Tensor) -> Tensor:
        if self.metric == "cosine":
            return functional.normalize(query, dim=2) @ functional.normalize(points, dim=2).mT
        return -squared_distances(query, points)

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy of the scores + balance * that of the regulariser."""
        assert batch.query_labels is not None
        support, query = self.embed_episode(batch)
        logits = self.scores(support, query)
        loss = functional.cross_entropy(logits.flatten(0, 1), batch.query_labels.flatten())
        with torch.autocast(query.device.type, enabled=False):
            regulariser = self.regulariser(
                full_precision(support), full_precision(query), batch.query_labels
            )
        if self.objective == "paper":
            return loss + self.balance * regulariser
        return self.balance * loss + regulariser

    def regulariser(self, support: Tensor, query: Tensor, query_labels: Tensor) -> Tensor:
        """Return the cross-entropy of all images with the centres of the classes.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
            query_labels: int64 ``(tasks, n)``.
        """
        tasks, way, shot = support.shape[:3]
        own = torch.arange(way, device=query.device).repeat_interleave(shot).expand(tasks, -1)
        items = torch.cat([support.flatten(1, 2), query], dim=1)
        classes = torch.cat([own, query_labels], dim=1)
        centres = class_centres(self.attention, items, classes, way)
        logits = self._compared(items, centres) / self.regulariser_temperature
        if self.objective == "libfewshot":
            order = classes.argsort(dim=1, stable=True)
            logits = logits.gather(1, order[:, :, None].expand(-1, -1, way))
            classes = torch.cat([own, query_labels.sort(dim=1).values], dim=1)
        return functional.cross_entropy(logits.flatten(0, 1), classes.flatten())
