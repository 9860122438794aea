"""Modules of PyTorch as backbones."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fsframework._digest import digest_of
from fsframework.components.code import code_digest
from fsframework.components.registry import Loaded, Plugin, kebab
from fsframework.interfaces.backbone import Backbone, Preprocessing

__all__ = ["backbone_of"]


def backbone_of(module: nn.Module) -> Loaded:
    """Return a module as the plugin of a backbone that keeps the module's weights.

    The module maps normalised images ``(n, 3, H, W)`` to vectors ``(n, D)`` or maps
    ``(n, C, h, w)``. The version of the plugin is a digest of its weights, layers and code.
    """
    usual = Preprocessing()

    class Module(Backbone):
        """A module of PyTorch with its weights as they are.

        Args:
            mean: per RGB channel of pixels in 0..1, subtracted; by default ImageNet's.
            std: by which the difference is divided.
        """

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

    cls, version = type(module), digest_of(*_parts(module))[:12]
    target = f"{cls.__module__}:{cls.__qualname__}"
    return Loaded(Plugin("backbone", kebab(cls.__name__), target, "a module", version), Module)


def _parts(module: nn.Module) -> Iterator[str | bytes]:
    """Yield what decides what a module computes."""
    yield repr(module)
    yield from sorted({code_digest(type(part)) for part in module.modules()})
    for name, tensor in module.state_dict().items():
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}"
        yield tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
