"""Modules of PyTorch as backbones."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from fsframework._code import code_of
from fsframework.components.registry import kebab
from fsframework.interfaces.backbone import Backbone, Preprocessing

__all__ = ["backbone_of"]


def backbone_of(module: nn.Module) -> type[Backbone]:
    """Return the class of a backbone that is a module with its weights.

    The module maps normalised images ``(n, 3, H, W)`` to vectors ``(n, D)`` or maps
    ``(n, C, h, w)``. The name of the backbone has a digest of its weights, layers and code.
    """
    usual = Preprocessing()
    called = f"{kebab(type(module).__name__)}-{code_of(type(module), module).digest[:12]}"

    class Module(Backbone):
        """A module of PyTorch with its weights as they are.

        Args:
            mean: per RGB channel of pixels in 0..1, subtracted; by default ImageNet's.
            std: by which the difference is divided.
        """

        name = called
        pretrained_on = "unknown"
        keeps_weights = True

        def __init__(
            self,
            *,
            mean: tuple[float, float, float] = usual.mean,
            std: tuple[float, float, float] = usual.std,
        ) -> None:
            super().__init__()
            self.mean, self.std = mean, std
            self.module = copy.deepcopy(module).requires_grad_(False)
            self.preprocessing = Preprocessing(usual.size, mean, std)

        def forward(self, images: Tensor) -> Tensor:
            """Return the module's maps; a vector becomes a 1 x 1 map."""
            found: Tensor = self.module(images)
            return found if found.ndim == 4 else found.flatten(1)[:, :, None, None]

    return Module
