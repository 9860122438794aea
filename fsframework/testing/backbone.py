"""Checks of backbones.

Maps are compared to within a thousandth of their range, in float32 and evaluation mode. Images have
the size in the backbone's ``preprocessing``; an instance with a small size is checked faster.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fsframework._calls import seeded
from fsframework.errors import FsfError, OptionError
from fsframework.interfaces.backbone import Backbone, Preprocessing
from fsframework.testing._example import note_call
from fsframework.testing._meta import fault_on_meta, mixes_devices
from fsframework.testing._suite import ConformanceError, Make, NotApplicable, Suite, require
from fsframework.testing._tensors import require_close, snapshot, usual_settings

suite = Suite(Backbone)

_COUNT = 3
_MANY = 40


def _made(make: Make, seed: int = 0) -> Backbone:
    """Return a backbone in evaluation mode, with weights drawn from the seed."""
    with seeded(seed):
        backbone: Backbone = make()
    return backbone.eval()


def _images(height: int, width: int | None = None, *, count: int = _COUNT) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, height, width or height, generator=generator)


def _maps(backbone: Backbone, images: Tensor) -> Tensor:
    """Return the maps that a copy of the backbone gives for a copy of the images."""
    note_call(f"forward(images {tuple(images.shape)})")
    with torch.no_grad():
        maps: Tensor = copy.deepcopy(backbone)(images.clone())
    return maps


def _require_maps(maps: Tensor, shape: tuple[int, ...]) -> None:
    found = tuple(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__
    require(
        isinstance(maps, Tensor) and maps.ndim == 4 and len(maps) == _COUNT and maps.numel(),
        f"images {shape} must give maps ({_COUNT}, C, h, w), not {found}",
    )
    require(maps.is_floating_point(), f"maps must be floats, not {maps.dtype}")
    require(maps.isfinite().all(), f"the maps of images {shape} must be finite")


@suite.check()
def check_preprocessing(make: Make) -> None:
    """``preprocessing`` has a size in pixels, and a mean and deviation of values in 0..1."""
    found = make().preprocessing
    require(
        isinstance(found, Preprocessing), f"it must be a Preprocessing, not {type(found).__name__}"
    )
    size, mean, std = found.size, found.mean, found.std
    require(isinstance(size, int) and size > 0, f"size must be a positive integer, not {size!r}")
    require(len(mean) == 3 and all(0 <= m <= 1 for m in mean), f"mean must be in 0..1, not {mean}")
    require(len(std) == 3 and all(0 < s <= 1 for s in std), f"std must be in 0..1, not {std}")
    known = "bilinear", "bicubic"
    require(
        found.interpolation in known,
        f"interpolation must be one of {known}, not {found.interpolation!r}",
    )


@suite.check()
def check_catalogue(make: Make) -> None:
    """A backbone with a ``catalogue`` has an ``argument`` that names one of its models."""
    backbone = make()
    found = backbone.catalogue
    require(isinstance(found, str), f"catalogue must be the name of a library, not {found!r}")
    require(
        not found or backbone.argument is not None,
        f"catalogue is {found!r}, but argument is None, so no option names a model",
    )


@suite.check()
def check_licence(make: Make) -> None:
    """``licence`` is a text, and pretrained weights have one of their own."""
    backbone = make()
    named, data = backbone.licence, backbone.pretrained_on
    require(data is None or isinstance(data, str), f"pretrained_on must be a name, not {data!r}")
    require(named and isinstance(named, str), f"licence must be a non-empty string, not {named!r}")
    require(
        data is None or named != Backbone.licence,
        f"it is pretrained on {data} and must state the licence of those weights",
    )


@suite.check()
def check_provenance(make: Make) -> None:
    """``provenance`` describes where weights came from, and is empty without any."""
    backbone = make()
    found = backbone.provenance()
    require(isinstance(found, Mapping), f"it must be a mapping, not {type(found).__name__}")
    texts = [text for pair in found.items() for text in pair]
    require(
        all(isinstance(text, str) and text for text in texts),
        f"its keys and values must be strings, not {dict(found)!r}",
    )
    require(
        not found or backbone.pretrained_on is not None,
        f"pretrained_on is None, but its weights came from {dict(found)!r}",
    )


@suite.check()
def check_keeps_weights(make: Make) -> None:
    """A backbone ``keeps_weights`` if and only if none of its parameters requires a gradient.

    A pass in training mode then changes no buffer either.
    """
    backbone = make()
    learning = [name for name, p in backbone.named_parameters() if p.requires_grad]
    require(
        not (learning and backbone.keeps_weights),
        f"keeps_weights is True, but these require a gradient: {', '.join(learning[:3])}",
    )
    require(
        bool(learning) or backbone.keeps_weights,
        "no parameter requires a gradient; declare keeps_weights = True",
    )
    if backbone.keeps_weights:
        before = copy.deepcopy(backbone.train().state_dict())
        with seeded(0), torch.no_grad():
            backbone(_images(backbone.preprocessing.size))
        moved = [n for n, tensor in backbone.state_dict().items() if not tensor.equal(before[n])]
        require(not moved, f"keeps_weights is True, but training changes {', '.join(moved[:3])}")


@suite.check()
def check_pretrained(make: Make) -> None:
    """``load_pretrained`` replaces all weights: those that the constructor drew do not matter."""
    backbones = _made(make, 0), _made(make, 1)
    if type(backbones[0]).load_pretrained is Backbone.load_pretrained:
        raise NotApplicable("it has no pretrained weights")
    drawn = copy.deepcopy(backbones[0].state_dict())
    for backbone in backbones:
        try:
            backbone.load_pretrained(offline=True)
        except FsfError as error:
            raise NotApplicable(f"its weights are not here: {error}") from None
    if all(tensor.equal(drawn[name]) for name, tensor in backbones[0].state_dict().items()):
        raise NotApplicable("with these options it loads no weights")
    first, second = (backbone.state_dict() for backbone in backbones)
    left = [name for name, tensor in first.items() if not tensor.equal(second[name])]
    require(not left, f"load_pretrained leaves random weights: {', '.join(left[:3])}")


@suite.check()
def check_same_weights(make: Make) -> None:
    """The same seed gives the same weights, whatever was made before."""
    first, _, again = (_made(make, seed).state_dict() for seed in (0, 1, 0))
    for name, tensor in first.items():
        same = name in again and torch.equal(tensor, again[name])
        require(same, f"the same seed gives other weights {name} the second time")


@suite.check(after=[check_preprocessing])
def check_maps(make: Make) -> None:
    """Images become finite float maps ``(n, C, h, w)``, the same again in evaluation mode."""
    backbone = _made(make)
    images = _images(backbone.preprocessing.size)
    maps = _maps(backbone, images)
    _require_maps(maps, tuple(images.shape))
    require_close(
        _maps(backbone, images),
        maps,
        "the same images give other maps a second time (does it draw random numbers?)",
    )


@suite.check(after=[check_maps])
def check_vectors(make: Make) -> None:
    """``vectors`` pools the maps into one finite vector per image."""
    backbone = _made(make)
    with torch.no_grad():
        vectors = backbone.vectors(_maps(backbone, _images(backbone.preprocessing.size)))
    require(
        vectors.ndim == 2 and len(vectors) == _COUNT,
        f"vectors must have shape ({_COUNT}, D), not {tuple(vectors.shape)}",
    )
    require(vectors.isfinite().all(), "vectors must be finite")


@suite.check(after=[check_maps])
def check_other_sizes(make: Make) -> None:
    """Images that are half as large again, or not square, also work, and all their parts count."""
    backbone = _made(make)
    size = backbone.preprocessing.size
    larger = size * 3 // 2
    for images in (_images(larger), _images(size, larger)):
        maps = _maps(backbone, images)
        _require_maps(maps, tuple(images.shape))
        images[..., size:] = 0
        blind = torch.equal(_maps(backbone, images), maps)
        require(not blind, "the right part of a larger image makes no difference")


@suite.check(after=[check_maps])
def check_too_small(make: Make) -> None:
    """An image of one pixel gives a map, or an ``OptionError`` that states what is too small."""
    try:
        maps = _maps(_made(make), _images(1))
    except OptionError as error:
        require(str(error), "the OptionError must state what is too small")
    except Exception as error:
        raise ConformanceError(
            f"images of 1 x 1 must raise OptionError, not {type(error).__name__}: {error}"
        ) from None
    else:
        _require_maps(maps, (_COUNT, 3, 1, 1))


@suite.check(after=[check_maps])
def check_images_independent(make: Make) -> None:
    """In evaluation mode the map of an image does not depend on the other images."""
    backbone = _made(make)
    images = _images(backbone.preprocessing.size, count=_MANY)
    parts = (slice(0, 1), slice(1, 3), slice(_MANY - 1, _MANY))
    chosen = torch.cat([images[part] for part in parts])
    alone = torch.cat([_maps(backbone, images[part]) for part in parts])
    together = _maps(backbone, images)
    require_close(
        alone,
        torch.cat([together[part] for part in parts]),
        f"images one by one give different maps than among {_MANY}",
    )
    require_close(
        _maps(backbone, chosen.flip(0)).flip(0), alone, "in reverse order, the maps differ"
    )


@suite.check(after=[check_vectors, check_images_independent])
def check_encode(make: Make) -> None:
    """``encode`` gives one finite vector per image, independent of the other images."""
    backbone = _made(make)
    images = _images(backbone.preprocessing.size)
    with torch.no_grad():
        together = copy.deepcopy(backbone).encode(images.clone())
        alone = torch.cat([copy.deepcopy(backbone).encode(image[None]) for image in images])
    require(
        together.ndim == 2 and len(together) == _COUNT,
        f"encoded images must have shape ({_COUNT}, D), not {tuple(together.shape)}",
    )
    require(together.isfinite().all(), "encoded images must be finite")
    require_close(alone, together, "images one by one are encoded differently than in a batch")


@suite.check(after=[check_encode])
def check_text_features(make: Make) -> None:
    """``text_features`` gives vectors of the length of ``encode``, each text by itself.

    A backbone that does not declare ``reads_text`` is not asked.
    """
    backbone = _made(make)
    require(isinstance(backbone.reads_text, bool), "reads_text must be True or False")
    if not backbone.reads_text:
        raise NotApplicable("it reads no text")
    texts = ("a photo of a bird", "dog", "A small red sail boat on the sea.")
    with torch.no_grad():
        width = backbone.encode(_images(backbone.preprocessing.size)).shape[1]
        note_call(f"text_features({len(texts)} texts)")
        together = backbone.text_features(texts)
        again = backbone.text_features(texts)
        alone = torch.cat([backbone.text_features([text]) for text in texts])
        backwards = backbone.text_features(texts[::-1]).flip(0)
    require(
        together.shape == (len(texts), width) and together.is_floating_point(),
        f"text_features must be floats of shape ({len(texts)}, {width}), the length of encode, "
        f"not {together.dtype} of {tuple(together.shape)}",
    )
    require(together.isfinite().all(), "text_features must be finite")
    require_close(again, together, "the same texts get other features a second time")
    require_close(alone, together, "texts one by one get other features than in a batch")
    require_close(backwards, together, "texts in reverse order get other features")


@suite.check(after=[check_maps, check_other_sizes])
def check_no_memory(make: Make) -> None:
    """In evaluation mode the same images give the same maps again, whatever came before."""
    backbone = _made(make)
    size = backbone.preprocessing.size
    images = _images(size)
    used = copy.deepcopy(backbone)
    with torch.no_grad():
        used(_images(size * 3 // 2, count=1))
        after = used(images.clone())
    require_close(after, _maps(backbone, images), "after larger images, the maps are others")
    with torch.no_grad():
        first, second = (backbone(images.clone()) for _ in range(2))
    require_close(second, first, "the same images give different maps the second time")


@suite.check(after=[check_maps])
def check_state_unchanged(make: Make) -> None:
    """In evaluation mode no parameter, buffer, training flag or setting of PyTorch changes."""
    backbone = _made(make)
    with usual_settings(), torch.no_grad():
        before = snapshot(backbone)
        backbone(_images(backbone.preprocessing.size))
        changed = before.difference(backbone)
    require(not changed, f"a forward pass in evaluation mode changes {', '.join(changed)}")


@suite.check(after=[check_maps])
def check_images_unchanged(make: Make) -> None:
    """The images are not changed."""
    backbone = _made(make)
    images = _images(backbone.preprocessing.size)
    with torch.no_grad():
        backbone(images)
    same = torch.equal(images, _images(backbone.preprocessing.size))
    require(same, "forward changes the images it is given")


@suite.check(after=[check_maps])
def check_memory_format(make: Make) -> None:
    """Images stored channels-last give the same maps as contiguous images."""
    backbone = _made(make)
    images = _images(backbone.preprocessing.size)
    with torch.no_grad():
        last = copy.deepcopy(backbone)(images.to(memory_format=torch.channels_last))
    require_close(last, _maps(backbone, images), "channels-last images give different maps")


@suite.check(after=[check_maps])
def check_gradients(make: Make) -> None:
    """In training mode every parameter that requires a gradient gets one."""
    backbone = _made(make).train()
    with seeded(0):
        maps = backbone(_images(backbone.preprocessing.size))
    learning = {name: p for name, p in backbone.named_parameters() if p.requires_grad}
    if not learning:
        return
    maps.square().mean().backward()
    without = [name for name, p in learning.items() if p.grad is None]
    require(
        not without,
        f"no gradient reaches {', '.join(without[:3])}: remove or freeze unused parameters",
    )
    broken = [name for name, p in learning.items() if not _finite(p.grad)]
    require(not broken, f"the gradient of {', '.join(broken[:3])} is not finite")


def _finite(tensor: Tensor | None) -> bool:
    return tensor is not None and bool(tensor.isfinite().all())


@suite.check(after=[check_maps])
def check_device(make: Make) -> None:
    """No pass, forward or backward, makes a GPU wait, except where ``reads_values`` says why.

    The passes run on PyTorch's meta device, whose tensors have no values.
    """
    backbone = _made(make).to("meta")
    reason = backbone.reads_values
    require(isinstance(reason, str), f"reads_values must be the reason in words, not {reason!r}")
    images = _images(backbone.preprocessing.size).to("meta")

    def step() -> None:
        with torch.no_grad():
            backbone.encode(images)
        maps = backbone.train()(images)
        if maps.requires_grad:
            maps.square().mean().backward()

    fault = fault_on_meta(step)
    mixed = fault_on_meta(step, feeds=True) if reason else fault
    require(not mixes_devices(mixed), f"a pass mixes devices: {mixed}; pass device=images.device")
    if reason:
        require(fault, f"reads_values is {reason!r}, but no pass reads any; remove it")
    else:
        require(
            not fault,
            f"a pass would make a GPU wait: {fault}; if it must, state why in reads_values",
        )


@suite.check(after=[check_maps])
def check_state_dict(make: Make) -> None:
    """A state dict loaded into another instance gives the same maps."""
    first, second = _made(make, 0), _made(make, 1)
    images = _images(first.preprocessing.size)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    require_close(
        _maps(second, images), _maps(first, images), "maps differ with the same state dict"
    )


@suite.answers(after=[check_maps, check_same_weights])
def _answers(make: Make) -> dict[str, Any]:
    backbone = _made(make)
    with torch.no_grad():
        encoded = backbone.encode(_images(backbone.preprocessing.size))
    return {"the encoded images": encoded.numpy(), "provenance": dict(backbone.provenance())}
