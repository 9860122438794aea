"""Linear, cosine and nearest-neighbour classifiers on pretrained features."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.transfer._classifiers import Cosines, score_cosine, score_linear
from fsf_methods.transfer._fit import Fitting, Optimizer
from fsframework.interfaces import FewShotMethod, OptionError, check_above, check_at_least

__all__ = ["KNN", "Cosine", "Linear"]


class _Untrained(FewShotMethod):
    """A method on the vectors of a backbone that something else has trained."""

    consumes = "vectors"
    learns_from = "nothing"
    weightless = True


class Linear(Fitting, _Untrained):
    """Fit a linear classifier to the support by gradient steps; nothing is trained before.

    Source: the baseline "Linear" of Yue, Zhang, Sun and Hua 2020, "Interventional Few-Shot
    Learning" (NeurIPS), section 5: pretrained features and the linear classifier of Chen et al.
    2019, fitted as ``baseline`` fits it; ``baseline`` also trains the features, with this
    classifier of the base classes. ``logistic`` is the minimum of the same loss with a penalty.

    Args:
        steps: steps, at least 1; ``None`` for those of 100 epochs of 4 images per step: 700 for 25
            support images.
        lr: learning rate, above 0.
        weight_decay: weight decay, at least 0.
        optimizer: ``sgd`` with momentum 0.9 and dampening 0.9, or ``adam``.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        steps: int | None = None,
        lr: float = 0.01,
        weight_decay: float = 0.001,
        optimizer: Optimizer = "sgd",
    ) -> None:
        super().__init__()
        self.set_fit(steps, lr, weight_decay, optimizer)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return logits, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        return score_linear(support, query, self.fit(support))


class Cosine(Fitting, _Untrained):
    """Fit a cosine classifier to the support by gradient steps; nothing is trained before.

    Source: the baseline "Cosine" of Yue, Zhang, Sun and Hua 2020, "Interventional Few-Shot
    Learning" (NeurIPS), section 5: pretrained features and the cosine classifier of Chen et al.
    2019, fitted as ``baseline-plus-plus`` fits it, without learned lengths; that method also trains
    the features, by cosines. ``ncc`` is the start of this fit, without any step.

    Args:
        scale: factor of the cosines, above 0.
        steps: steps, at least 1; ``None`` for those of 100 epochs of 4 images per step: 700 for 25
            support images.
        lr: learning rate, above 0.
        weight_decay: weight decay, at least 0.
        optimizer: ``sgd`` with momentum 0.9 and dampening 0.9, or ``adam``.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        scale: float = 10.0,
        steps: int | None = None,
        lr: float = 0.01,
        weight_decay: float = 0.001,
        optimizer: Optimizer = "sgd",
    ) -> None:
        super().__init__()
        check_above(0, scale=scale)
        self.scale = scale
        self.set_fit(steps, lr, weight_decay, optimizer)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return scaled cosines, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        return score_cosine(support, query, self.fit(support), Cosines(self.scale))


class KNN(_Untrained):
    """Give a query to the class of most of its nearest support images; nothing is trained.

    Source: the baseline "k-NN" of Yue, Zhang, Sun and Hua 2020, "Interventional Few-Shot Learning"
    (NeurIPS), section 5: the nearest neighbours of a query among the support's pretrained features.
    The score of a class is its number of neighbours plus, to decide between equal numbers, the mean
    similarity of its neighbours brought to 0..1/2; a class without neighbours has 0.

    Args:
        k: neighbours, at least 1; all support images where there are fewer. With 1 image per
            class, any ``k`` gives the nearest image's class.
        metric: ``cosine``, or ``euclidean`` for the distance.

    Raises:
        OptionError: an option is outside its range.

    >>> support = torch.tensor([[[[1.0, 0.0], [0.8, 0.6]], [[0.0, 1.0], [-1.0, 0.0]]]])
    >>> KNN(k=3).scores(support, torch.tensor([[[0.6, 0.8]]])).argmax(dim=2)
    tensor([[0]])
    """

    def __init__(self, *, k: int = 5, metric: Literal["cosine", "euclidean"] = "cosine") -> None:
        super().__init__()
        check_at_least(1, k=k)
        if metric not in ("cosine", "euclidean"):
            raise OptionError(f"metric must be 'cosine' or 'euclidean', got {metric!r}")
        self.k = k
        self.metric = metric

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return neighbours per class, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        way, shot = support.shape[1:3]
        items = support.flatten(1, 2)
        if self.metric == "cosine":
            unit = functional.normalize(query, dim=-1)
            closeness = (1 + unit @ functional.normalize(items, dim=-1).mT) / 2
        else:
            closeness = 1 / (1 + torch.cdist(query, items))
        nearest = closeness.topk(min(self.k, way * shot), dim=-1)
        owners = functional.one_hot(nearest.indices // shot, way).to(closeness.dtype)
        votes = owners.sum(dim=2)
        near = (nearest.values[:, :, None] @ owners)[:, :, 0] / votes.clamp(min=1)
        return votes + near / 2
