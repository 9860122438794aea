"""CLIP-Adapter: a bottleneck beside the image features."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fsf_clip_methods._fit import Parameters, Sgd, fitted, support_loss
from fsf_clip_methods._named import Prompted
from fsf_clip_methods._prompts import DEFAULT
from fsf_clip_methods._random import uniform_weights
from fsframework.interfaces import Backbone, OptionError, check_above, check_at_least

__all__ = ["CLIPAdapter"]

_REDUCTION = 4


class CLIPAdapter(Prompted):
    """Fit a bottleneck of two layers to each task, whose output is blended with the image features.

    Source: Gao et al. 2021, "CLIP-Adapter: Better Vision-Language Models with Feature Adapters",
    section 3.2, and the authors' code: a feature f becomes
    ``ratio * relu(relu(f A) B) + (1 - ratio) * f``, with a bottleneck of a quarter of its length;
    logits are its scaled cosines with the prompts. The fit is that of the configuration of CoOp
    that the code is run with: SGD with momentum 0.9 and weight decay 5e-4 at a rate that falls
    along half a cosine.

    The authors search ``ratio`` for each data set and take 200 passes in batches of 32 augmented
    views; here each step takes the whole support without augmentation. All tasks start from the
    same weights, drawn as PyTorch draws those of a linear layer.

    Args:
        ratio: weight of the adapter's output, in 0..1.
        steps: of the fit, at least 1.
        lr: rate of the first step, above 0.
        seed: of the initial weights, at least 0.
        prompts: a template with ``{}`` for the name; several separated by ``|``; or the name of a
            set.
        logit_scale: factor of cosines, above 0; ``None`` for the model's own.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        ratio: float = 0.2,
        steps: int = 200,
        lr: float = 0.002,
        seed: int = 0,
        prompts: str = DEFAULT,
        logit_scale: float | None = None,
    ) -> None:
        super().__init__(prompts=prompts, logit_scale=logit_scale)
        if not 0 <= ratio <= 1:
            raise OptionError(f"ratio must be in 0..1, got {ratio}")
        check_at_least(1, steps=steps)
        check_above(0, lr=lr)
        check_at_least(0, seed=seed)
        self.ratio = ratio
        self.steps = steps
        self.lr = lr
        self.seed = seed

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Draw the initial weights for vectors ``(D,)``."""
        super().build(item_shape, n_base_classes, backbone)
        dim, inner = item_shape[0], max(1, item_shape[0] // _REDUCTION)
        generator = torch.Generator().manual_seed(self.seed)
        self.down: Tensor
        self.up: Tensor
        self.register_buffer("down", uniform_weights(dim, inner, generator), persistent=False)
        self.register_buffer("up", uniform_weights(inner, dim, generator), persistent=False)

    def _logits(self, support: Tensor, query: Tensor, names: Tensor) -> Tensor:
        tasks, _, shot, _ = support.shape
        items, text, scale = support.flatten(1, 2), names.to(support.dtype), self._scale

        def logits(found: Parameters, of: Tensor) -> Tensor:
            adapted = ((of @ found["down"]).relu() @ found["up"]).relu()
            blended = self.ratio * adapted + (1 - self.ratio) * of
            return scale * functional.normalize(blended, dim=2) @ text.mT

        start = {
            name: part.to(items.dtype).expand(tasks, -1, -1)
            for name, part in (("down", self.down), ("up", self.up))
        }
        found = fitted(
            start,
            lambda one: support_loss(logits(one, items), shot),
            Sgd(weight_decay=5e-4),
            steps=self.steps,
            lr=self.lr,
        )
        return logits(found, query)
