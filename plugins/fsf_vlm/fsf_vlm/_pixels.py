"""Images as they are."""

from __future__ import annotations

from torch import Tensor

from fsframework.interfaces import Backbone, Preprocessing, check_at_least

__all__ = ["Pixels"]


class Pixels(Backbone):
    """Images as they are, for methods that show them to a network of their own.

    It has no weights, so that nothing is trained; values are in 0..1.

    Args:
        size: height and width of the images in pixels.

    Raises:
        OptionError: an option is outside its range.
    """

    keeps_weights = True
    licence = "none: no weights"

    def __init__(self, *, size: int = 224) -> None:
        super().__init__()
        check_at_least(1, size=size)
        self.size = size
        self.offline = False
        """Whether the method that gets the images must not reach another machine."""
        self.preprocessing = Preprocessing(
            size, mean=(0.0,) * 3, std=(1.0,) * 3, interpolation="bicubic", binding=True
        )

    def load_pretrained(self, *, offline: bool = False) -> None:
        """Note whether a method may reach another machine; there is nothing to load."""
        self.offline = offline

    def forward(self, images: Tensor) -> Tensor:
        """Return the images ``(n, 3, H, W)`` themselves."""
        return images
