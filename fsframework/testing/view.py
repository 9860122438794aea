"""Checks of view makers on small random images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fsframework._calls import seeded
from fsframework.interfaces.views import ViewMaker, Views
from fsframework.testing._example import note_call
from fsframework.testing._suite import Make, NotApplicable, Suite, require

suite = Suite(ViewMaker)

_SIZES = (30, 47)
_MANY = 40


def _images(n: int = 4, size: int = 30, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(n, 3, 6, 6, generator=generator)
    return torch.nn.functional.interpolate(coarse, (size, size), mode="bilinear")


def _made(make: Make, images: Tensor, seed: int = 0) -> Views:
    note_call(f"make(images {tuple(images.shape)})")
    with seeded(seed), torch.no_grad():
        views: Views = make().make(images.clone())
    return views


def _tensors(views: Views) -> list[Tensor]:
    return [views.images, views.applied, *([] if views.small is None else [views.small])]


def _same(left: Views, right: Views) -> bool:
    return all(map(torch.equal, _tensors(left), _tensors(right)))


@suite.check()
def check_declarations(make: Make) -> None:
    """``n_views`` and ``n_kinds`` are numbers of at least 1; the others are true or false."""
    maker = make()
    for name in ("n_views", "n_kinds"):
        value = getattr(maker, name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        require(whole and value >= 1, f"{name} must be a number of at least 1, not {value!r}")
    for name in ("random", "together"):
        value = getattr(maker, name)
        require(isinstance(value, bool), f"{name} must be true or false, not {value!r}")


@suite.check(after=[check_declarations])
def check_views(make: Make) -> None:
    """``make`` returns floats in 0..1 ``(n, n_views, 3, h, w)``, for images of any size."""
    for size in _SIZES:
        for n in (1, 3):
            found = _made(make, _images(n, size))
            require(isinstance(found, Views), f"it must return Views, not {type(found).__name__}")
            _require_images(found.images, (n, make().n_views), "images")
            if found.small is not None:
                _require_images(found.small, (n, found.small.shape[1]), "small")
    ends = torch.stack([torch.zeros(3, 30, 30), torch.ones(3, 30, 30)]).repeat(10, 1, 1, 1)
    _require_images(_made(make, ends).images, (20, make().n_views), "images of black and white")


def _require_images(views: Tensor, first: tuple[int, int], name: str) -> None:
    shape = tuple(views.shape)
    require(
        len(shape) == 5 and shape[:3] == (*first, 3),
        f"{name} must have the shape ({first[0]}, {first[1]}, 3, h, w), not {shape}",
    )
    require(views.is_floating_point(), f"{name} must be floats, not {views.dtype}")
    low, high = views.min().item(), views.max().item()
    require(low >= 0 and high <= 1, f"{name} must have values in 0..1, not {low:.3g}..{high:.3g}")


@suite.check(after=[check_views])
def check_applied(make: Make) -> None:
    """``applied`` is int64 ``(n, n_views)``, in 0..n_kinds - 1, and over many images most occur.

    Equal views of an image have equal numbers; if ``together``, all views of an image have one.
    """
    maker = make()
    applied = _made(make, _images(2)).applied
    require(applied.dtype == torch.int64, f"applied must be int64, not {applied.dtype}")
    shape = (2, maker.n_views)
    require(applied.shape == shape, f"applied must have the shape {shape}, not {applied.shape}")
    many = torch.cat([_made(make, _images(20, 9), seed).applied for seed in range(10)])
    low, high = int(many.min()), int(many.max())
    require(
        low >= 0 and high < maker.n_kinds,
        f"applied must be in 0..{maker.n_kinds - 1} for n_kinds = {maker.n_kinds}, not "
        f"{low}..{high}",
    )
    require(
        not maker.together or bool((many == many[:, :1]).all()),
        "together is True, but applied differs between views of an image",
    )
    seen = len(many.unique())
    require(
        2 * seen > maker.n_kinds,
        f"n_kinds is {maker.n_kinds}, but only {seen} transformations occur for 200 images",
    )
    alike = _made(make, _images(1).expand(20 * maker.n_kinds, -1, -1, -1).contiguous())
    # Of one permutation of parts, another may share some parts.
    views = [alike.images] if maker.together else alike.images.unbind(1)
    for view, numbers in zip(views, alike.applied.unbind(1), strict=False):
        kinds, kind_of_view = view.flatten(1).unique(dim=0, return_inverse=True)
        pairs = torch.stack([kind_of_view, numbers]).unique(dim=1).shape[1]
        require(pairs == len(kinds), "equal views of an image have different numbers in applied")


@suite.check(after=[check_views])
def check_random(make: Make) -> None:
    """Views differ from seed to seed if and only if the maker is ``random``."""
    images = _images(8)
    first, second = (_made(make, images, seed) for seed in (0, 1))
    if make().random:
        require(not _same(first, second), "random is True, but two seeds give the same views")
    else:
        require(_same(first, second), "two seeds give other views; declare random = True")


@suite.check(after=[check_views])
def check_repeatable(make: Make) -> None:
    """The same seed gives the same views, whatever was made before."""
    images, maker = _images(), make()
    first = _made(lambda: maker, images)
    _made(lambda: maker, _images(2, 33, seed=1), seed=1)
    require(_same(first, _made(lambda: maker, images)), "a second call gives other views")
    require(_same(first, _made(make, images)), "another instance gives other views")


@suite.check(after=[check_random, check_repeatable])
def check_drawn_per_image(make: Make) -> None:
    """Random draws are made for each image: equal images get different views."""
    if not make().random:
        raise NotApplicable("it draws nothing")
    images = _images(1).expand(6, -1, -1, -1).contiguous()
    found = _made(make, images)
    parts = [t for t in _tensors(found) if t.is_floating_point()]
    alike = all(bool((t == t[:1]).all()) for t in parts)
    require(not alike, "equal images get equal views; draw for each image on its own")
    if make().n_views > 1 and make().n_kinds == 1:
        repeated = (found.images == found.images[:, :1]).flatten(1).all(dim=1).any()
        require(not repeated, "all views of an image are equal; draw for each view on its own")


@suite.check(after=[check_random, check_repeatable])
def check_images_independent(make: Make) -> None:
    """The views of an image do not depend on the other images, or on their order."""
    images, others = _images(_MANY), _images(_MANY, seed=1)
    mixed = torch.cat([images[:1], others[1:]])
    first, second = _made(make, images), _made(make, mixed)
    for name, left, right in zip(
        ("images", "applied", "small"), _tensors(first), _tensors(second), strict=False
    ):
        require(torch.equal(left[0], right[0]), f"other images change an image's {name}")
    if not make().random:
        backwards = _made(make, images.flip(0)).images.flip(0)
        require(torch.equal(backwards, first.images), "in reverse order, images have other views")


@suite.check(after=[check_views])
def check_inputs_unchanged(make: Make) -> None:
    """The images are not changed."""
    images = _images()
    given = images.clone()
    with seeded(0):
        make().make(given)
    require(torch.equal(given, images), "make changes its input")


@suite.answers(after=[check_repeatable])
def _answers(make: Make) -> dict[str, Any]:
    made = _made(make, _images())
    return {"the views": made.images.numpy(), "applied": made.applied.numpy()}
