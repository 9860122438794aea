"""The contract of backbones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from fsframework._calls import checked
from fsframework.errors import OptionError, argument
from fsframework.interfaces.component import Configurable

__all__ = ["Backbone", "Preprocessing"]


@dataclass(frozen=True)
class Preprocessing:
    """The preparation of an image for a backbone.

    Args:
        size: height and width in pixels to which the image is resized.
        mean: mean per RGB channel of pixel values in 0..1, which is subtracted.
        std: standard deviation per RGB channel, by which pixels are then divided.
        interpolation: the interpolation of the resizing.
        binding: whether ``size`` takes precedence over the native size of a data set, as pretrained
            weights and transformers require; a size given by the user takes precedence over both.
    """

    size: int = 84
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    binding: bool = False


class Backbone(Configurable, nn.Module, ABC, kind="backbone"):
    """Images in, feature maps out; ``vectors`` pools the maps into one vector an image.

    The constructor makes random weights; ``load_pretrained`` replaces them by pretrained ones.
    """

    catalogue: ClassVar[str] = ""
    """The library whose models ``argument`` names (``timm``); empty where it names none. The error
    for an unknown backbone shows how to name a model of the library."""

    preprocessing: Preprocessing = Preprocessing()
    """How images must be prepared; an instance may have its own value."""

    pretrained_on: str | None = None
    """Name of the data that the weights were pretrained on, lower-case with hyphens
    (``imagenet-1k``, ``lvd-142m``); ``None`` for no data."""

    keeps_weights: bool = False
    """Whether training leaves its weights unchanged: none of its parameters requires a gradient. An
    instance may have its own value."""

    reads_values: str = ""
    """Why it must look at the values of its tensors, for which a GPU waits, in words; empty for
    backbones that never do. Otherwise all tensors stay on the device of the images and no shape
    depends on values. An instance may have its own value."""

    reads_text: bool = False
    """Whether ``text_features`` works. An instance may have its own value."""

    licence: str = "none: randomly initialised"
    """Licence of the pretrained weights."""

    @classmethod
    def installed(cls) -> Sequence[str]:
        """Return the models, by ``argument``, whose pretrained weights are installed."""
        return ()

    def load_pretrained(self, *, offline: bool = False) -> None:
        """Replace the random weights by pretrained ones; by default, do nothing.

        Called once after construction, unless all weights come from an earlier run.

        Args:
            offline: make no network call.

        Raises:
            DataError: the weights are missing, cannot be read or do not fit.
        """

    def provenance(self) -> Mapping[str, str]:
        """Return where the pretrained weights came from, by keys such as ``package``.

        Called after the weights are loaded; the run's record stores it and a note shows it. Usual
        keys are ``package`` (name and version), ``repository``, ``file`` and ``licence``. Empty by
        default.
        """
        return {}

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Map float images ``(n, 3, H, W)``, normalised, to feature maps ``(n, C, h, w)``.

        Works for any ``H`` and ``W`` that leave a map of at least 1 x 1. In evaluation mode the map
        of an image does not depend on the other images.

        Raises:
            OptionError: the images are too small to leave a map.
        """

    def vectors(self, maps: Tensor) -> Tensor:
        """Pool maps ``(n, C, h, w)`` into vectors ``(n, D)``; by default mean pooling."""
        return maps.mean(dim=(2, 3))

    def encode(self, images: Tensor) -> Tensor:
        """Map normalised images ``(n, 3, H, W)`` to vectors ``(n, D)``, the pooled maps by default.

        Override it where a vector is not a pooled map, such as the class token of a transformer.
        """
        return self.vectors(checked(self, "forward", self(images), Tensor))

    def text_features(self, texts: Sequence[str]) -> Tensor:
        """Map texts to float ``(n, D)`` in the space of ``encode``; neither is normalised.

        In evaluation mode the features of a text do not depend on the other texts.

        Raises:
            OptionError: the backbone reads no text, which is the default.
        """
        del texts
        raise OptionError(
            f"{type(self).__name__} reads no text; use a backbone that does, such as "
            f"{argument('backbone', 'clip:MODEL')}"
        )
