"""LP++: class weights that blend visual prototypes and prompts."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fsf_clip_methods._named import Prompted
from fsf_clip_methods._prompts import DEFAULT
from fsframework.interfaces import check_at_least

__all__ = ["LPPlusPlus"]

_MOMENTUM = 0.9
_BLENDING = 250
"""Factor of the first blending weights in the authors' code, ``1 / (lambda N)`` times the shots."""
_EVERY = 10
"""Steps of the prototypes for each step of the blending weights."""
_SQUARINGS = 12


class LPPlusPlus(Prompted):
    """Fit class weights ``w + alpha t`` of prototypes w and prompts t with data-driven step sizes.

    Source: Huang et al. 2024, "LP++: A Surprisingly Strong Linear Probe for Few-Shot CLIP" (CVPR),
    and the authors' code. The logit of a unit vector f for a class is ``f'(w + alpha t)``, with
    blending weights ``alpha`` of each class; the loss is the mean cross-entropy of the N support
    images, F their unit vectors. Prototypes start as the sums of their classes' vectors, ``alpha``
    as 250 times the mean of ``f't`` over images and their own classes. Step sizes come from
    Lipschitz constants: ``4 N / lambda_max(F'F)`` for w, by gradient descent with momentum 0.9, and
    ``N / (4 max over classes of the sum over images of (f't)^2)`` for ``alpha``, which takes a step
    after every tenth step of w.

    There is nothing to search. The authors keep the step that is best on validation images, here
    the last one is kept; their code has a bias that starts at random and sums the gradients of
    ``alpha`` over all earlier steps, whereas here, as in the paper, there is no bias and the
    gradient is the current one. The logits have no scale.

    Args:
        steps: of the prototypes, at least 1.
        prompts: a template with ``{}`` for the name; several separated by ``|``; or the name of a
            set.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(self, *, steps: int = 300, prompts: str = DEFAULT) -> None:
        super().__init__(prompts=prompts)
        check_at_least(1, steps=steps)
        self.steps = steps

    def _logits(self, support: Tensor, query: Tensor, names: Tensor) -> Tensor:
        way, shot = support.shape[1:3]
        unit, text = functional.normalize(support, dim=3), names.to(support.dtype)
        items, n = unit.flatten(1, 2), way * shot
        near = items @ text.mT
        own = torch.eye(way, dtype=items.dtype, device=items.device)
        own = own[:, None].expand(-1, shot, -1).flatten(0, 1)

        weight = unit.sum(dim=2)
        first = _BLENDING * (near * own).sum(dim=(1, 2)) / n
        alpha = first[:, None].expand(-1, way)
        rate = (4 * n / _largest_eigenvalue(items @ items.mT))[:, None, None]
        alpha_rate = (n / (4 * near.square().sum(dim=1).amax(dim=1)))[:, None]
        velocity = torch.zeros_like(weight)
        for step in range(1, self.steps + 1):
            logits = items @ weight.mT + alpha[:, None] * near
            error = (logits.softmax(dim=2) - own) / n
            velocity = _MOMENTUM * velocity + error.mT @ items
            weight = weight - rate * velocity
            if step % _EVERY == 0:
                alpha = alpha - alpha_rate * (error * near).sum(dim=1)
        return functional.normalize(query, dim=2) @ (weight + alpha[..., None] * text).mT


def _largest_eigenvalue(gram: Tensor) -> Tensor:
    """Return the largest eigenvalue of positive matrices ``(tasks, m, m)``, or up to 0.3 % more.

    With p = 4096, ``lambda_max <= trace(G^p)^(1/p) <= m^(1/p) lambda_max``. A GPU would wait for an
    eigenvalue decomposition.
    """
    log = torch.zeros_like(gram[:, 0, 0])
    for number in range(_SQUARINGS + 1):
        size = gram.diagonal(dim1=1, dim2=2).sum(dim=1)
        log = log + size.log() / 2**number
        gram = gram / size[:, None, None]
        gram = gram @ gram
    return log.exp()
