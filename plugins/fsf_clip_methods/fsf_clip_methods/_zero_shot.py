"""Zero-shot classification by the names of the classes."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from fsf_clip_methods._named import Prompted

__all__ = ["ZeroShot"]


class ZeroShot(Prompted):
    """Give a query to the class whose prompt is the most similar; the support is not used.

    Source: Radford et al. 2021, "Learning Transferable Visual Models From Natural Language
    Supervision" (ICML), section 3.1.2: scaled cosines of the query and the prompts' vectors.

    Args:
        prompts: a template with ``{}`` for the name; several separated by ``|``; or the name of a
            set: ``clip-imagenet-7``, ``cub``, ``dtd`` and others, see the guide on CLIP.
        logit_scale: factor of cosines, above 0; ``None`` for the model's own. It changes no
            prediction here.

    Raises:
        OptionError: an option is outside its range.
    """

    def _logits(self, support: Tensor, query: Tensor, names: Tensor) -> Tensor:
        del support
        return self._scale * functional.normalize(query, dim=2) @ names.to(query.dtype).mT
