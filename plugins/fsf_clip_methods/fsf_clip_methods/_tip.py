"""Tip-Adapter: a cache of the support beside zero-shot classification."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from fsf_clip_methods._fit import AdamW, Parameters, fitted, support_loss
from fsf_clip_methods._named import Prompted
from fsf_clip_methods._prompts import DEFAULT
from fsframework.interfaces import check_above, check_at_least

__all__ = ["TipAdapter", "TipAdapterF"]


class TipAdapter(Prompted):
    """Add to zero-shot logits how similar a query is to the support images; nothing is fitted.

    Source: Zhang et al. 2022, "Tip-Adapter: Training-free Adaption of CLIP for Few-shot
    Classification" (ECCV), section 3.1. With unit vectors f of a query, F of the support, T of the
    prompts and one-hot labels L, the logits are ``alpha * exp(-beta * (1 - f F')) L`` plus the
    zero-shot logits ``scale * f T'``. The sum over a class's shots is not divided by their number.

    The authors' key of an image is the mean of ten augmented views; here it is the image itself.
    They search ``alpha`` and ``beta`` for each data set; the defaults are those with which their
    code starts for ImageNet.

    Args:
        alpha: weight of the cache, at least 0.
        beta: sharpness of the similarity, above 0.
        prompts: a template with ``{}`` for the name; several separated by ``|``; or the name of a
            set.
        logit_scale: factor of cosines, above 0; ``None`` for the model's own.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        alpha: float = 1.17,
        beta: float = 1.0,
        prompts: str = DEFAULT,
        logit_scale: float | None = None,
    ) -> None:
        super().__init__(prompts=prompts, logit_scale=logit_scale)
        check_at_least(0, alpha=alpha)
        check_above(0, beta=beta)
        self.alpha = alpha
        self.beta = beta

    def _logits(self, support: Tensor, query: Tensor, names: Tensor) -> Tensor:
        keys, way = functional.normalize(support, dim=3), support.shape[1]
        return self._with_cache(functional.normalize(query, dim=2), keys.flatten(1, 2), names, way)

    def _with_cache(self, items: Tensor, keys: Tensor, names: Tensor, way: int) -> Tensor:
        """Return the logits of unit items ``(tasks, n, D)`` for keys ``(tasks, way * shot, D)``."""
        affinity = (-self.beta * (1 - items @ keys.mT)).exp()
        cached = affinity.reshape(*items.shape[:2], way, -1).sum(dim=3)
        return self.alpha * cached + self._scale * items @ names.to(items.dtype).mT


class TipAdapterF(TipAdapter):
    """Fit the keys of Tip-Adapter's cache to the support of each task.

    Source: Zhang et al. 2022, "Tip-Adapter: Training-free Adaption of CLIP for Few-shot
    Classification" (ECCV), section 3.2, and the authors' code: the logits are those of
    ``tip-adapter``; its keys, which start as the support's unit vectors, follow AdamW (weight decay
    0.01, eps 1e-4) on the support's cross-entropy at a rate that falls along half a cosine.

    The authors take 20 passes in batches of 256 augmented views and keep the pass that is best on
    the test set; here each step takes the whole support without augmentation, and the last keys are
    kept.

    Args:
        alpha: weight of the cache, at least 0.
        beta: sharpness of the similarity, above 0.
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
        alpha: float = 1.17,
        beta: float = 1.0,
        steps: int = 20,
        lr: float = 0.001,
        prompts: str = DEFAULT,
        logit_scale: float | None = None,
    ) -> None:
        super().__init__(alpha=alpha, beta=beta, prompts=prompts, logit_scale=logit_scale)
        check_at_least(1, steps=steps)
        check_above(0, lr=lr)
        self.steps = steps
        self.lr = lr

    def _logits(self, support: Tensor, query: Tensor, names: Tensor) -> Tensor:
        way, shot = support.shape[1:3]
        items = functional.normalize(support, dim=3).flatten(1, 2)

        def loss(found: Parameters) -> Tensor:
            return support_loss(self._with_cache(items, found["keys"], names, way), shot)

        optimizer = AdamW(weight_decay=0.01, eps=1e-4)
        keys = fitted({"keys": items}, loss, optimizer, steps=self.steps, lr=self.lr)["keys"]
        return self._with_cache(functional.normalize(query, dim=2), keys, names, way)
