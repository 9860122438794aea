"""The base of methods that train on all base classes together."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from fsframework.interfaces import Backbone, Batch, FewShotMethod, OptionError

__all__ = ["BaseClassifier"]


class BaseClassifier(FewShotMethod):
    """A method whose vectors are trained by a classifier of the base classes."""

    consumes = "vectors"
    learns_from = "batches"

    classify: nn.Module | None
    """Vectors ``(n, D)`` to logits ``(n, n_base_classes)``; ``None`` without base classes."""

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the classifier for vectors ``(D,)``, only with base classes."""
        self.classify = self.classifier(item_shape[0], n_base_classes) if n_base_classes else None

    def classifier(self, dim: int, n_classes: int) -> nn.Module:
        """Create a classifier, by default a linear one."""
        return nn.Linear(dim, n_classes)

    def class_logits(self, items: Tensor) -> Tensor:
        """Score vectors ``(n, D)`` for the base classes, float ``(n, n_base_classes)``."""
        if self.classify is None:
            return super().class_logits(items)
        logits: Tensor = self.classify(items)
        return logits

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy of the batch's base classes.

        Raises:
            OptionError: the step has a teacher.
        """
        if batch.teacher_logits is not None:
            raise OptionError(
                f"{type(self).__name__} does not learn from a teacher (training.distill)"
            )
        return self.class_loss(batch)[0]

    def class_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy of the batch's base classes, and their logits."""
        assert self.classify is not None, "built without base classes, there is no loss"
        assert batch.items is not None
        assert batch.classes is not None
        logits = self.class_logits(batch.items)
        return functional.cross_entropy(logits, batch.classes), logits
