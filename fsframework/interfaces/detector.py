"""The contract of attribute detectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from fsframework.values import UInt8Array

__all__ = ["AttributeDetector"]


class AttributeDetector(ABC):
    """Images in, words out; a detector knows nothing of classes or tasks.

    Source: psi of Definition 1 in FewSTAB (Zheng et al. 2024), section 4.2.
    """

    @abstractmethod
    def detect(self, images: Sequence[UInt8Array]) -> list[frozenset[str]]:
        """Return the words seen in each image.

        Args:
            images: uint8 RGB arrays ``(H, W, 3)``, each of its own size.

        Returns:
            One set of non-empty words an image, in the order of ``images``. The words of an
            image must not depend on the images it is shown with.
        """
