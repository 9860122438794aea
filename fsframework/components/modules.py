"""Modules of PyTorch as backbones."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from fsframework._calls import Called, is_out_of_memory, text_of, top_level
from fsframework._code import code_of
from fsframework.components.registry import kebab
from fsframework.errors import OptionError
from fsframework.interfaces.backbone import Backbone, Preprocessing

__all__ = ["backbone_called", "backbone_of"]

_GIVEN: WeakSet[nn.Module] = WeakSet()
"""The modules that backbones were made of, while they are in use."""
_CLASSIFIERS = ("fc", "classifier", "head", "heads")
"""What torchvision calls the part of a model that maps features to the logits of classes."""


def _name_module(module: nn.Module) -> str:
    """Return the name of a backbone that is a module, with a digest of its weights and code.

    Raises:
        OptionError: its weights cannot be read.
    """
    kind = type(module).__name__
    if any(one.is_meta for one in chain(module.parameters(), module.buffers())):
        raise OptionError(f"the module {kind} is on the device meta, so its weights have no values")
    try:
        called = f"{kebab(kind)}-{code_of(type(module), module).digest[:12]}"
        if others := [k for k, v in module.state_dict().items() if not isinstance(v, Tensor)]:
            raise TypeError(f"{others[0]} is no tensor")
    except (AttributeError, TypeError, ValueError) as error:
        raise OptionError(
            f"the module {kind} has weights that cannot be read, as those of a lazy or quantised "
            f"module ({text_of(error)})"
        ) from error
    return called


def backbone_of(module: nn.Module) -> type[Backbone]:
    """Return the class of a backbone that is a module with its weights.

    A module maps normalised images ``(n, 3, H, W)`` to vectors ``(n, D)`` or maps
    ``(n, C, h, w)``. A classifier of timm, torchvision or Transformers gives what its last layer
    sees; a model of images and texts, as those of CLIP, gives its embedding of images; an output of
    several parts gives its projected, else its pooled part. Images are in the module's own floating
    point type, the results in float32. The name of the backbone has a digest of the module's
    weights, layers and code.
    """
    kind = type(module).__name__
    usual, required, called = *_preprocessing(module), _name_module(module)
    _GIVEN.add(module)

    class Module(Backbone):
        """A module of PyTorch with its weights as they are.

        Args:
            size: height and width of the images in pixels; by default the module's own, if it has
                one, else the data set's.
            mean: per RGB channel of pixels in 0..1, subtracted; by default the module's own, if it
                has one, else ImageNet's.
            std: by which the difference is divided.
            pretrained_on: name of the data that the weights were trained on; ``none`` for no data.
        """

        name = called
        keeps_weights = True
        _label = Called(f"the module {kind}", "", top_level(type(module).__module__))
        _probed = False

        def __init__(
            self,
            *,
            size: int | None = required,
            mean: tuple[float, float, float] = usual.mean,
            std: tuple[float, float, float] = usual.std,
            pretrained_on: str | None = "unknown",
        ) -> None:
            super().__init__()
            self.pretrained_on = pretrained_on
            self.size, self.mean, self.std = size, mean, std
            with torch.no_grad():  # which scripted modules need
                self.module = _without_classifier(copy.deepcopy(module))
            for parameter in self.module.parameters():
                parameter.requires_grad = False
            self.preprocessing = Preprocessing(
                size or usual.size, mean, std, usual.interpolation, binding=size is not None
            )

        def forward(self, images: Tensor) -> Tensor:
            """Return the module's maps; a vector becomes a 1 x 1 map."""
            n = len(images)
            # Many modules take a view of their input, which needs the usual memory format.
            ready = images.contiguous().to(_dtype(module))
            found = _given(self.module, kind, ready)
            if not (self._probed or self.training or torch.is_grad_enabled() or ready.is_meta):
                self._probed = True
                _probe(self.module, kind, ready[:1])
            if (
                not (is_tensor := _is_plain(found, images))
                or len(found.shape) < 2
                or (len(found) != n or found[0].numel() < 2)
            ):
                shape = f" of shape {tuple(found.shape)}" if is_tensor else ""
                raise OptionError(
                    f"the module {kind} must return vectors (n, D) of at least two numbers or maps "
                    f"(n, C, h, w) for n images, not a {type(found).__name__}{shape} for {n}"
                )
            maps: Tensor = found.float()
            return maps if maps.ndim == 4 else maps.flatten(1)[:, :, None, None]

    return Module


def _is_plain(found: Any, images: Tensor) -> bool:
    """Return whether a result is a tensor of real numbers with values, as vectors and maps are."""
    if not isinstance(found, Tensor) or found.is_nested or found.is_complex():
        return False
    return (found.layout, found.is_quantized, found.is_meta) == (
        torch.strided, False, images.is_meta
    )  # fmt: skip


_TOLERANCE = 0.05
"""Of the largest feature: half precision differs by less between batches of different sizes."""


def _probe(module: nn.Module, kind: str, images: Tensor) -> None:
    """Check that an image has the same features again, and beside another image.

    Args:
        images: one, of the shape that the module is given.
    """
    patterns = torch.arange(2 * images.numel(), device=images.device).sin().to(images.dtype)
    batch = patterns.reshape(2, *images.shape[1:])
    both, again, alone = (_given(module, kind, part.clone()) for part in (batch, batch, batch[:1]))
    if not all(_is_plain(found, images) and found.ndim for found in (both, again, alone)):
        return  # which is refused where it is returned
    limit = _TOLERANCE * both.float().abs().max()
    for found, how in ((again, "in another call"), (alone, "without the others of its batch")):
        expected = both[: len(found)]
        if (
            expected.shape == found.shape
            and ((found.float() - expected.float()).abs() > limit).any()
        ):
            raise OptionError(
                f"the module {kind} gives an image other features {how}; it must "
                "depend on nothing but the image: no random numbers, no statistics of the batch"
            )


def backbone_called(name: str) -> type[Backbone] | None:
    """Return the backbone of a name, if its module is in use and still has the same weights."""
    return next((cls for one in list(_GIVEN) if (cls := backbone_of(one)).name == name), None)


def _dtype(module: nn.Module) -> torch.dtype:
    tensors = chain(module.parameters(), module.buffers())
    return next((one.dtype for one in tensors if one.is_floating_point()), torch.float32)


def _preprocessing(module: nn.Module) -> tuple[Preprocessing, int | None]:
    """Return what a module says of its images, and their size if it says one.

    open_clip and timm keep a mapping; Transformers and torchvision only the size.
    """
    usual = Preprocessing()
    visual = getattr(module, "visual", module)
    told = getattr(visual, "preprocess_cfg", None) or getattr(visual, "pretrained_cfg", None)
    told = told if isinstance(told, Mapping) else {}
    config = getattr(module, "config", None)
    sizes = (
        getattr(getattr(visual, "patch_embed", None), "img_size", None),
        told.get("size"),
        told.get("input_size"),
        getattr(getattr(config, "vision_config", config), "image_size", None),
        getattr(visual, "image_size", None),
    )
    size: Any = next(filter(None, sizes), None)
    size = size[-1] if isinstance(size, Sequence) else size
    mean, std = (tuple(told.get(key) or getattr(usual, key)) for key in ("mean", "std"))
    found = Preprocessing(size or usual.size, mean, std)
    bicubic = told.get("interpolation") == "bicubic"
    return (replace(found, interpolation="bicubic") if bicubic else found), size


def _without_classifier(module: nn.Module) -> nn.Module:
    """Let the last linear layer of a classifier of torchvision return what it is given."""
    if type(module).__module__.startswith("torchvision.models"):
        linear = [name for name, one in module.named_modules() if isinstance(one, nn.Linear)]
        own = [name for name in linear if name.partition(".")[0] in _CLASSIFIERS]
        if own:
            module.set_submodule(own[-1], nn.Identity())
    return module


def _given(module: nn.Module, kind: str, images: Tensor) -> Any:
    """Return what a module gives for images; it is at fault for whatever it raises."""
    try:
        return _features(module, images)
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        shape = " x ".join(map(str, images.shape))
        raise OptionError(
            f"the module {kind} does not take {shape} images ({text_of(error)}); if they have the "
            "wrong size, give its own: size=PIXELS"
        ) from error


def _features(module: Any, images: Tensor) -> Any:
    """Return what a module gives for images, of a classifier without its logits."""
    towers = (getattr(module, name, None) for name in ("encode_image", "get_image_features"))
    embed: Any = next(filter(callable, towers), module)
    found: Any
    if hasattr(module, "forward_features") and hasattr(module, "forward_head"):  # timm's
        found = module.forward_head(module.forward_features(images), pre_logits=True)
    elif type(module).__name__.endswith("ForImageClassification"):  # Transformers'
        found = module.base_model(images)
    else:
        found = embed(images)
    if isinstance(found, tuple | list) and found:
        found = found[0]
    for name in ("image_embeds", "pooler_output", "last_hidden_state"):
        part = getattr(found, name, None)
        if isinstance(part, Tensor):
            return part[:, 0] if part.ndim == 3 else part
    return found
