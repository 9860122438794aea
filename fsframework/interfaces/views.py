"""The contract of view makers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from fsframework.interfaces.component import Configurable

__all__ = ["ViewMaker", "Views"]


@dataclass(frozen=True)
class Views:
    """Several views of each of n images.

    Args:
        images: float ``(n, v, 3, h, w)``, values in 0..1.
        applied: int64 ``(n, v)``, number of the transformation that made the view, from 0 to
            ``ViewMaker.n_kinds`` - 1.
        small: float ``(n, s, 3, h, w)``, values in 0..1, further views of another size; ``None``
            for a maker that makes none.
    """

    images: Tensor
    applied: Tensor
    small: Tensor | None = None


class ViewMaker(Configurable, ABC, kind="view"):
    """Images in, several views of each image out: rotations, parts, pairs of augmentations.

    A method that learns from views has one, usually as its option ``views``. In each training step
    it is called once, for all images of the step, on their device.

    >>> import torch
    >>> class Mirrors(ViewMaker):
    ...     '''An image and its mirror image.'''
    ...     n_views = n_kinds = 2
    ...     def make(self, images):
    ...         both = torch.stack([images, images.flip(-1)], dim=1)
    ...         return Views(both, torch.arange(2).expand(len(images), -1))
    >>> Mirrors().make(torch.rand(4, 3, 8, 8)).images.shape
    torch.Size([4, 2, 3, 8, 8])
    """

    n_views: int
    """Views per image (v), not counting ``Views.small``."""

    n_kinds: int = 1
    """How many transformations it chooses from; 1 where views differ by random draws only."""

    random: bool = False
    """Whether it draws random numbers; otherwise the views of an image depend on the image only.
    An option may set it for an instance."""

    together: bool = False
    """Whether one transformation makes all views of an image, as a permutation of its parts does;
    ``Views.applied`` then has equal numbers for them."""

    @abstractmethod
    def make(self, images: Tensor) -> Views:
        """Return the views of images.

        Random numbers come from PyTorch's global generators, which the caller has seeded, and are
        drawn for each image on its own. They are drawn on the CPU, so that a seed has the same
        effect on every device.

        Args:
            images: float ``(n, 3, H, W)``, values in 0..1; they are not changed.
        """
