"""Modules of PyTorch as backbones."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fsframework._digest import digest_of
from fsframework.components.code import code_digest
from fsframework.components.package_files import top_level
from fsframework.components.registry import kebab
from fsframework.interfaces.backbone import Backbone, Preprocessing

__all__ = ["backbone_of"]


def backbone_of(module: nn.Module) -> type[Backbone]:
    """Return the class of a backbone that is a module with its weights.

    The module maps normalised images ``(n, 3, H, W)`` to vectors ``(n, D)`` or maps
    ``(n, C, h, w)``. The name of the backbone has a digest of its weights, layers and code.
    """
    usual = Preprocessing()
    called = f"{kebab(type(module).__name__)}-{digest_of(*_parts(module))[:12]}"

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


def _parts(module: nn.Module) -> Iterator[str | bytes]:
    """Yield what decides what a module computes."""
    yield repr(module)
    own = {cls for cls in map(type, module.modules()) if top_level(cls.__module__) != "torch"}
    yield from sorted(map(code_digest, own))
    for name, tensor in module.state_dict().items():
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}"
        yield tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
