"""Linear probes that start from the names of the classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fsf_clip_methods._fit import Parameters, Sgd, fitted, support_loss
from fsf_clip_methods._named import Prompted
from fsf_clip_methods._prompts import DEFAULT
from fsframework.interfaces import check_above, check_at_least

__all__ = ["CLAP", "LinearProbe"]


class LinearProbe(Prompted):
    """Fit a logistic regression on unit vectors that starts from the classes' prompts.

    Source: ZS-LP of Silva-Rodriguez, Hajimiri, Ben Ayed and Dolz 2024, "A Closer Look at the
    Few-Shot Adaptation of Large Vision-Language Models" (CVPR), section 3, and the authors' code.
    The weights of the classes start as their prompts' vectors, which are not of length 1; logits
    are scaled cosines with them, without bias. The fit to the support's cross-entropy is by SGD
    with momentum 0.9, whose rate falls along half a cosine. Lin et al. 2023, "Multimodality Helps
    Unimodality: Cross-Modal Few-Shot Learning with Multimodal Models" (CVPR) start a linear probe
    in the same way, but choose its rate and its decay on validation images.

    The authors fit 20 augmented views per image in batches of 256, with a first pass at a rate of
    1e-5; here each step takes the whole support without augmentation, from the first rate on.

    Args:
        steps: of the fit, at least 1.
        lr: rate of the first step, above 0.
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
        prompts: str = DEFAULT,
        logit_scale: float | None = None,
    ) -> None:
        super().__init__(prompts=prompts, logit_scale=logit_scale)
        check_at_least(1, steps=steps)
        check_above(0, lr=lr)
        self.steps = steps
        self.lr = lr

    def embed_names(self, names: Sequence[str]) -> Tensor:
        """Return the mean of the vectors of a name's prompts, float ``(n, D)``, not normalised."""
        return self._read(names).mean(dim=1)

    def _logits(self, support: Tensor, query: Tensor, names: Tensor) -> Tensor:
        items = functional.normalize(support, dim=3).flatten(1, 2)
        text, scale, shot = names.to(items.dtype), self._scale, support.shape[2]

        def logits(weight: Tensor, of: Tensor) -> Tensor:
            return scale * of @ functional.normalize(weight, dim=2).mT

        multipliers = self._multipliers(logits(text, items), shot)

        def loss(found: Parameters) -> Tensor:
            away = (found["weight"] - text).square().sum(dim=2)
            fit = support_loss(logits(found["weight"], items), shot)
            return fit + (multipliers * away).mean(dim=1)

        weight = fitted({"weight": text}, loss, Sgd(), steps=self.steps, lr=self.lr)["weight"]
        return logits(weight, functional.normalize(query, dim=2))

    def _multipliers(self, logits: Tensor, shot: int) -> Tensor:
        """Return how much each class is held where it starts, ``(tasks, way)``: not at all.

        Args:
            logits: of zero-shot classification of the support, ``(tasks, way * shot, way)``.
        """
        del shot
        return torch.zeros_like(logits[:, 0])


class CLAP(LinearProbe):
    """Fit a linear probe that stays near the prompts of the classes that they recognise well.

    Source: Silva-Rodriguez, Hajimiri, Ben Ayed and Dolz 2024, "A Closer Look at the Few-Shot
    Adaptation of Large Vision-Language Models" (CVPR), section 4, and the authors' code. To the
    loss of ``clip-linear-probe`` comes the mean over classes of ``multiplier * |w - t|^2``, with
    the weights w of a class and their start t. The multiplier of a class is the mean probability
    that zero-shot classification gives it on its own support images: one outer step of the
    augmented Lagrangian method, after which it stays.

    The rest is as in ``clip-linear-probe``, and so are the deviations.

    Args:
        steps: of the fit, at least 1.
        lr: rate of the first step, above 0.
        prompts: a template with ``{}`` for the name; several separated by ``|``; or the name of a
            set.
        logit_scale: factor of cosines, above 0; ``None`` for the model's own.

    Raises:
        OptionError: an option is outside its range.
    """

    def _multipliers(self, logits: Tensor, shot: int) -> Tensor:
        believed = logits.softmax(dim=2).unflatten(1, (-1, shot)).mean(dim=2)
        return torch.diagonal(believed, dim1=1, dim2=2)
