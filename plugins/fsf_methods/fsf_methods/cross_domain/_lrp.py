"""Explanation-guided training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fsf_methods.cross_domain._bases import kept_buffers, need_episodes
from fsframework.interfaces import Batch, FewShotMethod, MethodWrapper, OptionError

__all__ = ["LRP", "relevance"]

_LINEAR = {
    functional.linear, functional.conv2d, functional.bilinear,
    torch.matmul, torch.bmm, torch.mm, Tensor.matmul, Tensor.bmm, Tensor.mm, Tensor.__matmul__,
}  # fmt: skip
"""Functions that are linear in what is explained."""


class LRP(MethodWrapper):
    """Train another method also on features weighted by what explains its scores.

    Source: Sun, Lapuschkin, Samek, Zhao, Cheung and Binder 2021, "Explanation-Guided Training for
    Cross-Domain Few-Shot Classification" (ICPR 2020), section III. Layer-wise relevance propagation
    explains the scores by the features f that the backbone gives the base, with relevances R(f),
    divided by the largest absolute one of an image, so that they are in [-1, 1]. The features are
    weighted, f_lrp = (1 + R(f)) * f, and the loss is xi * L(f) + lambda * L(f_lrp), with L the
    base's loss. In evaluation nothing is changed.

    Relevance starts from the log-odds of a query's own class, log(P / (1 - P)) with P the softmax
    of the scores, summed over the queries. It passes linear maps (fully connected layers,
    convolutions, products) by the epsilon rule, R_i = sum over j of a_i w_ij R_j / (z_j + epsilon
    sign(z_j)); everything else passes it by its derivative, which for rectifiers and max-pooling is
    the usual rule. This holds for any base, where the paper has a rule for each layer of its three
    classifiers. Relevances are constants in the loss. Running statistics and other buffers see
    the two losses, not the explanation.

    The authors' code differs in three points: relevance starts from the log-odds of every way
    rather than of the query's own; these are log(4 (P + 0.01) / (1.01 - P)); and it weights what is
    within the classifier, the pairs of RelationNet and the nodes of GNN, and divides relevances of
    maps by the largest of each location.

    Args:
        base: the method that is trained, on episodes and on features.
        xi: weight of the loss of the features, at least 0; 1 in the authors' code.
        lambda_: weight of the loss of the weighted features, at least 0; the authors' code uses 0.5
            for GNN and for RelationNet with 1 shot, and 1 for RelationNet with 5 shots.
        epsilon: stabiliser of the epsilon rule, at least 0; 0.01 in the authors' code.

    Raises:
        OptionError: an option is outside its range, or the base does not learn from episodes or
            is trained on images.
    """

    def __init__(
        self,
        *,
        base: FewShotMethod,
        xi: float = 1.0,
        lambda_: float = 0.5,
        epsilon: float = 0.01,
    ) -> None:
        super().__init__(base=base)
        need_episodes(base)
        if base.consumes == "images" or base.trains_on_images:
            raise OptionError(
                "base must be trained on vectors or maps, but "
                f"{type(base).__name__} is trained on images"
            )
        for name, value in (("xi", xi), ("lambda_", lambda_), ("epsilon", epsilon)):
            if not 0 <= value < float("inf"):
                raise OptionError(f"{name} must be at least 0 and finite, got {value}")
        if xi + lambda_ == 0:
            raise OptionError("xi and lambda_ must not both be 0")
        self.xi = xi
        self.lambda_ = lambda_
        self.epsilon = epsilon

    def loss(self, batch: Batch) -> Tensor:
        """Return the weighted sum of the base's losses of the features, plain and weighted."""
        support, query = batch.support, batch.query
        if support is None or query is None:
            raise OptionError("LRP learns from episodes, but this step has none")
        with kept_buffers(self):
            explained = relevance(
                lambda parts: self._log_odds(batch, parts), (support, query), self.epsilon
            )
        weighted = [
            items * (1 + _scaled(share, leading)).to(items.dtype)
            for items, share, leading in zip((support, query), explained, (3, 2), strict=True)
        ]
        other = dataclasses.replace(batch, support=weighted[0], query=weighted[1])
        return self.xi * self.base.loss(batch) + self.lambda_ * self.base.loss(other)

    def _log_odds(self, batch: Batch, parts: Sequence[Tensor]) -> Tensor:
        """Return the sum over queries of the log-odds of their classes."""
        assert batch.query_labels is not None
        shown = dataclasses.replace(batch, support=parts[0], query=parts[1])
        scores = self.base.scores(*self.base.embed_episode(shown)).float()
        own = functional.one_hot(batch.query_labels, scores.shape[2]).bool()
        others = scores.masked_fill(own, float("-inf")).logsumexp(dim=2)
        return scores.masked_fill(~own, 0).sum() - others.sum()


def relevance(
    explained: Callable[[Sequence[Tensor]], Tensor], inputs: Sequence[Tensor], epsilon: float
) -> tuple[Tensor, ...]:
    """Return the relevance of every number of the inputs for a scalar, in the inputs' shapes.

    Args:
        explained: maps the inputs to the scalar.
        inputs: floats.
        epsilon: stabiliser of the epsilon rule for linear maps; with 0, the relevance is the input
            times the gradient.

    >>> weight = torch.tensor([[1.0, -2.0]])
    >>> relevance(lambda parts: functional.linear(parts[0], weight).sum(), [torch.ones(1, 2)], 0.0)
    (tensor([[ 1., -2.]]),)
    """
    leaves = [part.detach().requires_grad_() for part in inputs]
    with torch.enable_grad(), _EpsilonRule(epsilon):
        total = explained(leaves)
    gradients = torch.autograd.grad(total, leaves)
    return tuple(
        (leaf * gradient).detach() for leaf, gradient in zip(leaves, gradients, strict=True)
    )


class _EpsilonRule(TorchFunctionMode):
    """Scales the gradient of linear maps so that input times gradient follows the epsilon rule.

    With c_j = R_j / z_j, the rule says c_i = sum over j of w_ij c_j * z_j / (z_j + epsilon
    sign(z_j)): the gradient with one factor more per output.
    """

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self._epsilon = epsilon

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if func not in _LINEAR or not self._epsilon:
            return found
        size = found.detach().abs()
        factor = size / (size + self._epsilon)
        return factor * found + ((1 - factor) * found).detach()


def _scaled(relevances: Tensor, leading: int) -> Tensor:
    """Divide by the largest absolute relevance of an item, after the leading dimensions."""
    largest = relevances.abs().flatten(leading).amax(dim=-1)
    largest = largest.clamp(min=torch.finfo(relevances.dtype).tiny)
    return relevances / largest.reshape(*largest.shape, *[1] * (relevances.ndim - leading))
