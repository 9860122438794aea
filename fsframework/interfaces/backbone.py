"""The contract of backbones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

__all__ = ["Backbone", "Preprocessing"]


@dataclass(frozen=True)
class Preprocessing:
    """What is done to an image before a backbone sees it.

    Args:
        size: height and width in pixels the image is resized to.
        mean: per RGB channel, of pixel values in 0..1; subtracted.
        std: per RGB channel; divided by.
        interpolation: of the resizing.
    """

    size: int = 84
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"


class Backbone(nn.Module, ABC):
    """Images in, feature maps out; ``vectors`` pools the maps into one vector an image."""

    preprocessing: Preprocessing = Preprocessing()
    """How images must be prepared; an instance may have its own."""

    pretrained_on: str | None = None
    """Name of the data the weights were trained on before we train, lower-case with hyphens
    (``imagenet-1k``, ``lvd-142m``); ``None`` for no data."""

    licence: str = "none: randomly initialised"
    """Licence of the pretrained weights."""

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Map float images ``(n, 3, H, W)``, normalised, to feature maps ``(n, C, h, w)``.

        Works for any ``H`` and ``W`` that leave a map of at least 1 x 1. In evaluation mode the
        map of an image does not depend on the images beside it.

        Raises:
            OptionError: the images are too small to leave a map.
        """

    def vectors(self, maps: Tensor) -> Tensor:
        """Pool maps ``(n, C, h, w)`` into vectors ``(n, D)``; here the mean over locations."""
        return maps.mean(dim=(2, 3))

    def encode(self, images: Tensor) -> Tensor:
        """Map normalised images ``(n, 3, H, W)`` to vectors ``(n, D)``, the pooled maps by default.

        Override it where a vector is not a pooled map, as the class token of a transformer.
        """
        return self.vectors(self(images))
