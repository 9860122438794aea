"""A maker of views, from which methods learn without labels.

Try it: fsf run --method simclr -o method.views=my-view
"""

import torch
from fsframework.interfaces import ViewMaker, Views
from torch import Tensor


class MyView(ViewMaker):
    """An image and the image upside down."""

    n_views = 2  # for each image
    n_kinds = 2  # transformations that it chooses from
    # Add `random = True` if it draws random numbers.

    def make(self, images: Tensor) -> Views:
        """Return views of images ``(n, 3, H, W)`` in 0..1, and the number of each one's kind."""
        views = torch.stack([images, images.flip(-2)], dim=1)
        kinds = torch.arange(self.n_kinds, device=images.device)
        return Views(views, kinds.expand(len(images), -1))
