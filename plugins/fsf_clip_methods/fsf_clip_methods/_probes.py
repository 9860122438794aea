"""Linear probes that start from the names of the classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fsf_clip_methods._fit import AdamW, Parameters, Sgd, fitted, support_loss
from fsf_clip_methods._named import Prompted
from fsf_clip_methods._prompts import DEFAULT
from fsframework.interfaces import check_above, check_at_least

__all__ = ["CLAP", "LinearProbe"]


class LinearProbe(Prompted):
    """Fit a logistic regression on unit vectors that starts from the classes' prompts.

    Source: the linear classifier of Lin et al. 2023, "Multimodality Helps Unimodality: Cross-Modal
    Few-Shot Learning with Multimodal Models" (CVPR), section 3, on images only, and the authors'
    code: logits are ``scale * f W'`` without bias, W starts as the unit vectors of the prompts and
    follows AdamW on the support's cross-entropy.

    The authors choose rate, weight decay, batch and number of steps on a validation set; the
    defaults are the first rate and the first decay above 0 that they try. Here each step takes the
    whole support, there are 100 of them instead of up to 12,800 in batches of 8, and the rate falls
    along half a cosine from the first step on. The fit is in float64: AdamW makes whole steps of
    the rounding errors of a gradient that is 0.

    Args:
        steps: of the fit, at least 1.
        lr: rate of the first step, above 0.
        weight_decay: decoupled weight decay, at least 0.
        prompts: a template with ``{}`` for the name; several separated by ``|``; or the name of a
            set.
        logit_scale: factor of the products, above 0; ``None`` for the model's own.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        steps: int = 100,
        lr: float = 0.001,
        weight_decay: float = 0.01,
        prompts: str = DEFAULT,
        logit_scale: float | None = None,
    ) -> None:
        super().__init__(prompts=prompts, logit_scale=logit_scale)
        check_at_least(1, steps=steps)
        check_above(0, lr=lr)
        check_at_least(0, weight_decay=weight_decay)
        self.steps = steps
        self.lr = lr
        self.weight_decay = weight_decay

    def _logits(self, support: Tensor, query: Tensor, names: Tensor) -> Tensor:
        items = functional.normalize(support.double(), dim=3).flatten(1, 2)
        scale, shot = self._scale, support.shape[2]

        def loss(found: Parameters) -> Tensor:
            return support_loss(scale * items @ found["weight"].mT, shot)

        start = {"weight": names.to(items.dtype)}
        optimizer = AdamW(weight_decay=self.weight_decay)
        weight = fitted(start, loss, optimizer, steps=self.steps, lr=self.lr)["weight"]
        return scale * functional.normalize(query, dim=2) @ weight.to(query.dtype).mT


class CLAP(Prompted):
    """Fit a linear probe that stays near the prompts of the classes that they recognise well.

    Source: Silva-Rodriguez, Hajimiri, Ben Ayed and Dolz 2024, "A Closer Look at the Few-Shot
    Adaptation of Large Vision-Language Models" (CVPR), section 4, and the authors' code. The
    prototypes w start as the prompts' vectors t, which are not of length 1; logits are scaled
    cosines. To the support's cross-entropy comes the mean over classes of
    ``multiplier * |w - t|^2``. The multiplier of a class is the mean probability that zero-shot
    classification gives it on its own support images: one outer step of the augmented Lagrangian
    method, after which it stays. The fit is by SGD with momentum 0.9, whose rate falls along half a
    cosine.

    The authors fit 20 augmented views per image in batches of 256, with a first pass at a rate of
    1e-5; here each step takes the whole support without augmentation, from the first rate on.

    Args:
        steps: of the fit, at least 1.
        lr: rate of the first step, above 0.
        penalty: factor of the penalty, at least 0; 1 is CLAP, 0 the authors' linear probe ZS-LP.
        prompts: a template with ``{}`` for the name; several separated by ``|``; or the name of a
            set.
        logit_scale: factor of cosines, above 0; ``None`` for the model's own.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        steps: int = 300,
        lr: float = 0.1,
        penalty: float = 1.0,
        prompts: str = DEFAULT,
        logit_scale: float | None = None,
    ) -> None:
        super().__init__(prompts=prompts, logit_scale=logit_scale)
        check_at_least(1, steps=steps)
        check_above(0, lr=lr)
        check_at_least(0, penalty=penalty)
        self.steps = steps
        self.lr = lr
        self.penalty = penalty

    def embed_names(self, names: Sequence[str]) -> Tensor:
        """Return the mean of the vectors of a name's prompts, float ``(n, D)``, not normalised."""
        return self._read(names).mean(dim=1)

    def _logits(self, support: Tensor, query: Tensor, names: Tensor) -> Tensor:
        items = functional.normalize(support, dim=3).flatten(1, 2)
        text, scale, shot = names.to(items.dtype), self._scale, support.shape[2]

        def logits(weight: Tensor, of: Tensor) -> Tensor:
            return scale * of @ functional.normalize(weight, dim=2).mT

        believed = logits(text, items).softmax(dim=2).unflatten(1, (-1, shot)).mean(dim=2)
        multiplier = self.penalty * torch.diagonal(believed, dim1=1, dim2=2)

        def loss(found: Parameters) -> Tensor:
            away = (found["weight"] - text).square().sum(dim=2)
            fit = support_loss(logits(found["weight"], items), shot)
            return fit + (multiplier * away).mean(dim=1)

        weight = fitted({"weight": text}, loss, Sgd(), steps=self.steps, lr=self.lr)["weight"]
        return logits(weight, functional.normalize(query, dim=2))
