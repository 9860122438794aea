"""Support images that weigh by their words."""

from __future__ import annotations

import torch
from torch import Tensor

from fsframework.interfaces import (
    FewShotMethod,
    Known,
    MethodWrapper,
    OptionError,
    check_above,
)

__all__ = ["SupportWeighted", "balanced_shots"]

_STEPS = 500


class SupportWeighted(MethodWrapper):
    """Weigh the support images of a class so that every word has the same share in all classes.

    Source: ours; the aim is that of Idrissi, Arjovsky, Pezeshki and Lopez-Paz 2022, "Simple data
    balancing achieves competitive worst-group-accuracy" (CLeaR), for the few images of a task.

    The weights a_c of the shots of each class c are positive, sum to 1, and minimise the sum over
    words and classes of (s_cw - s_w)^2 plus ``ridge`` * shot * the sum of (a_ci - 1/shot)^2, with
    s_cw the share of word w in class c under the weights and s_w its mean over classes. This convex
    problem is solved for all tasks at once by 500 steps of exponentiated gradient descent.

    So that any base can use the weights, the shots of a class are moved together, by the difference
    between their weighted and their plain mean: the mean of the class is then the weighted one, and
    the spread stays. With one shot nothing changes. A word that all images of one class have, and
    none of another, cannot be balanced: in FewSTAB's biased tasks that is the word tied to the
    class, so only the other words change. Training is that of the base.

    Args:
        base: the method that scores. Its embedded items are vectors or maps.
        ridge: above 0; the larger, the more equal the weights.

    Raises:
        OptionError: ``ridge`` is outside its range, or the base scores pixels.
    """

    needs_words = True

    def __init__(self, *, base: FewShotMethod, ridge: float = 0.1) -> None:
        super().__init__(base=base)
        if base.consumes == "images" and not base.embeds:
            raise OptionError(
                "base must score vectors or maps, but "
                f"{type(base).__name__} sees the images of each task"
            )
        check_above(0, ridge=ridge)
        self.ridge = ridge

    def scores_with(self, support: Tensor, query: Tensor, known: Known) -> Tensor:
        """Return the base's scores with a moved support, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, *embedded)``.
            query: float ``(tasks, n, *embedded)``.
            known: with the words of the support images.
        """
        if known.words is not None:
            weights = balanced_shots(known.words, self.ridge).to(support.dtype)
            change = weights - 1 / support.shape[2]
            change = change.reshape(*change.shape, *[1] * (support.ndim - 3))
            support = support + (change * support).sum(dim=2, keepdim=True)
        return self.base.scores_with(support, query, known)


@torch.no_grad()
def balanced_shots(words: Tensor, ridge: float) -> Tensor:
    """Return weights of the shots of each class, float ``(tasks, way, shot)``, that sum to 1.

    Args:
        words: bool ``(tasks, way, shot, w)``.
        ridge: see ``SupportWeighted``.
    """
    tasks, way, shot, _ = words.shape
    have = words.to(torch.float32).flatten(1, 2)
    gram = have @ have.mT
    own = torch.arange(way, device=words.device).repeat_interleave(shot)
    same = (own[:, None] == own).to(gram.dtype)
    # With s the shares, sum_c (s_c - s)^2 = sum_c s_c^2 - way * s^2.
    curved = gram * (same - 1 / way)
    curved.diagonal(dim1=1, dim2=2).add_(ridge * shot)
    # Of half the objective, which has the gradient curved @ a but for a constant within a class,
    # way * max |curved| is the smoothness in the sum of squared 1-norms.
    rate = 1 / (way * curved.abs().amax(dim=(1, 2)))[:, None]
    logs = torch.zeros(tasks, way * shot, device=words.device)
    for _ in range(_STEPS):
        weights = logs.unflatten(1, (way, shot)).softmax(dim=2).flatten(1)
        logs = logs - rate * (curved @ weights[..., None])[..., 0]
    return logs.unflatten(1, (way, shot)).softmax(dim=2)
