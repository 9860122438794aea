"""A method on vectors that a linear map changes, and the classifier that such a map learns with."""

from __future__ import annotations

import dataclasses

from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.robust._heads import has_class_logits
from fsframework.interfaces import Backbone, Batch, FewShotMethod, MethodWrapper, OptionError

__all__ = ["OnMappedVectors"]


class OnMappedVectors(MethodWrapper):
    """Gives a base vectors that a linear map has changed.

    A step on batches trains a linear classifier of the base classes, unless the base has one of its
    own; a step on what the base learns from trains the base.
    """

    consumes = "vectors"
    learns_from = "batches"
    uses_labels = True
    weightless = False
    needs_words = True

    def __init__(self, *, base: FewShotMethod) -> None:
        super().__init__(base=base)
        name = type(base).__name__
        if base.consumes != "vectors":
            raise OptionError(f"base must consume vectors, but {name} consumes {base.consumes}")
        if base.trains_on_images or base.views is not None:
            raise OptionError(f"base must be trained on vectors, but {name} is trained on images")
        if base.learns_from in ("episodes", "both"):
            self.learns_from = "both"
        self._own_head = not (base.learns_from in ("batches", "both") and has_class_logits(base))

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Build the base, and a classifier of the base classes if it has none.

        Raises:
            OptionError: there are no base classes.
        """
        if n_base_classes < 1:
            raise OptionError(f"{type(self).__name__} needs base classes, but nothing is trained")
        super().build(item_shape, n_base_classes, backbone)
        self.classify = nn.Linear(item_shape[0], n_base_classes) if self._own_head else None

    def mapped(self, items: Tensor) -> Tensor:
        """Map vectors ``(..., D)`` to vectors of the same shape."""
        raise NotImplementedError

    def embed(self, items: Tensor) -> Tensor:
        """Map vectors ``(n, D)``, then embed them as the base does."""
        return self.base.embed(self.mapped(items))

    def class_logits(self, items: Tensor) -> Tensor:
        """Score vectors ``(n, D)`` for the base classes, float ``(n, n_base_classes)``."""
        if self.classify is None:
            return self.base.class_logits(self.mapped(items))
        logits: Tensor = self.classify(self.mapped(items))
        return logits

    def head_loss(self, batch: Batch, items: Tensor | None) -> Tensor | None:
        """Return the loss of its own classifier on vectors, if it has one and there are any."""
        if self.classify is None or items is None:
            return None
        assert batch.classes is not None
        return functional.cross_entropy(self.classify(items), batch.classes)

    def base_loss(self, batch: Batch, *, mapped: bool) -> Tensor | None:
        """Return the base's loss on a step, if it has what the base learns from."""
        has_episodes, has_items = batch.support is not None, batch.items is not None
        if not {
            "episodes": has_episodes,
            "batches": has_items,
            "both": has_episodes and has_items,
        }.get(self.base.learns_from, False):
            return None
        if mapped:
            given = {"support": batch.support, "query": batch.query, "items": batch.items}
            found = {k: self.mapped(v) for k, v in given.items() if v is not None}
            batch = dataclasses.replace(batch, **found)
        return self.base.loss(batch)

    def summed(self, losses: list[Tensor | None]) -> Tensor:
        """Return the sum of the losses that a step has.

        Raises:
            OptionError: it has none.
        """
        found = [loss for loss in losses if loss is not None]
        if not found:
            raise OptionError(
                f"{type(self).__name__} learns from batches, and its base "
                f"{type(self.base).__name__} from {self.base.learns_from}, but this step has "
                "neither"
            )
        return sum(found[1:], found[0])
