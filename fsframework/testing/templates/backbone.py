"""A backbone, which turns an image into features.

Try it: fsf run --backbone my-backbone
"""

from fsframework.interfaces import Backbone, check_at_least
from torch import Tensor, nn


class MyBackbone(Backbone):
    """Two strided convolutions."""

    # Options are keyword-only, have a type, and are stored under their own names.
    def __init__(self, *, width: int = 16) -> None:
        super().__init__()
        check_at_least(1, width=width)
        self.width = width
        # Change the layers: any image size must do, with random weights from the global seed.
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return maps ``(n, C, h, w)`` of normalised images ``(n, 3, H, W)``."""
        maps: Tensor = self.layers(images)
        return maps
