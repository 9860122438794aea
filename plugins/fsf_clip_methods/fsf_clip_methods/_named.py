"""What the methods of this package share: they read the names of the classes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fsf_clip_methods._prompts import DEFAULT, templates_of, texts_of
from fsf_clip_methods._tower import ImageTextTower
from fsframework.interfaces import Backbone, FewShotMethod, Known, OptionError, check_above

__all__ = ["Named", "Prompted"]

_USUAL_SCALE = 100.0
"""What CLIP's learned scale was limited to (Radford et al. 2021, section 2.5)."""


class Named(FewShotMethod):
    """A method on the vectors and names of a task; nothing is trained before.

    Args:
        logit_scale: factor of cosines, above 0; ``None`` for the model's own, or 100 where the
            backbone states none.
    """

    consumes = "vectors"
    learns_from = "nothing"
    weightless = True
    needs_class_names = True
    needs_text = True

    def __init__(self, *, logit_scale: float | None = None) -> None:
        super().__init__()
        if logit_scale is not None:
            check_above(0, logit_scale=logit_scale)
        self.logit_scale = logit_scale
        self._towers: tuple[Backbone, ...] = ()

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Remember the backbone, whose scale of cosines is used."""
        del item_shape, n_base_classes
        self._towers = (backbone,)  # in a tuple, so that PyTorch does not count its weights here

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Refuse to score without names.

        Raises:
            OptionError: always.
        """
        del support, query
        raise OptionError(f"{type(self).__name__} needs the names of the classes: use scores_with")

    def scores_with(self, support: Tensor, query: Tensor, known: Known) -> Tensor:
        """Return logits, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
            known: with ``names``.
        """
        assert known.names is not None
        with torch.no_grad(), torch.autocast(support.device.type, enabled=False):
            return self._logits(_precise(support), _precise(query), known.names).to(query.dtype)

    @abstractmethod
    def _logits(self, support: Tensor, query: Tensor, names: Tensor) -> Tensor:
        """Return logits of items that are float32 or float64 and not normalised."""

    @property
    def _scale(self) -> Tensor | float:
        if self.logit_scale is not None:
            return self.logit_scale
        tower = self._towers[0]
        return tower.logit_scale if isinstance(tower, ImageTextTower) else _USUAL_SCALE


class Prompted(Named):
    """A method whose names are vectors of prompts, which it does not change.

    Args:
        prompts: a template with ``{}`` for the name; several separated by ``|``; or the name of a
            set of templates, see ``fsf_clip_methods._prompts.SETS``.
        logit_scale: factor of cosines, above 0; ``None`` for the model's own.
    """

    def __init__(self, *, prompts: str = DEFAULT, logit_scale: float | None = None) -> None:
        super().__init__(logit_scale=logit_scale)
        self._templates = templates_of(prompts)
        self.prompts = prompts

    def embed_names(self, names: Sequence[str]) -> Tensor:
        """Return the mean of the unit vectors of a name's prompts, float ``(n, D)``, of length 1.

        Source: Radford et al. 2021, section 3.1.4: the ensemble is over embeddings, not over
        probabilities.
        """
        vectors = functional.normalize(self._read(names), dim=2)
        return functional.normalize(vectors.mean(dim=1), dim=1)

    def _read(self, names: Sequence[str]) -> Tensor:
        """Return the vectors of all prompts of each name, ``(n, prompts, D)``, not normalised."""
        texts = texts_of(names, self._templates)
        vectors = super().embed_names(texts)
        return vectors.reshape(len(names), len(self._templates), -1)


def _precise(items: Tensor) -> Tensor:
    return items if items.dtype == torch.float64 else items.float()
