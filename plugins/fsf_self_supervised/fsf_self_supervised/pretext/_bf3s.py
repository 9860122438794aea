"""Rotations or relative places of patches beside another method."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_self_supervised.pretext._wrapper import (
    Wrapper,
    check_kinds,
    views_of,
    with_items,
)
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    OptionError,
    ViewMaker,
    check_at_least,
    check_one_of,
)

__all__ = ["BF3S", "CosineClassifier", "PairHead", "ResidualHead", "standardised"]

Pretext = Literal["transformation", "location"]
_GRID = 9


class BF3S(Wrapper):
    """Train another method and, beside it, to recognise rotations or where patches lie.

    Source: Gidaris, Bursuc, Komodakis, Pérez and Cord 2019, "Boosting Few-Shot Visual Learning with
    Self-Supervision" (ICCV), section 3: the loss is the base's own plus ``alpha`` times that of a
    pretext task on all images of the step. The heads are those of the authors' code. In evaluation
    nothing is changed, and features are computed once per image.

    - ``pretext=transformation``, with ``views=rotation``: the angle of each of the four rotations
      of an image, from its feature map: ``blocks`` residual blocks of as many channels as the map,
      the first with a stride of 2, their mean over locations, and a cosine classifier whose learned
      scale starts at 10.
    - ``pretext=location``, with ``views=patches``: which of the eight neighbours of the middle
      patch another patch is, from the means of their two maps, concatenated: a hidden layer of the
      same length with BatchNorm and ReLU, and a linear classifier. Beside it the base, with weights
      of its own, is trained on the mean vector of each image's patches; ``patch_weight`` is the
      weight of this loss. The code also halves the sum of the three losses, which a learning rate
      does, too.

    Views pass the backbone together, apart from the images of the base; the authors' code takes the
    unrotated views for the base, so there BatchNorm sees all of them at once. With batches, it can
    train the base on rotated images, too, which is left out here.

    Args:
        base: the method that is trained.
        views: makes the views.
        pretext: what is predicted, as above.
        alpha: weight of the pretext task, at least 0.
        blocks: residual blocks of the head for transformations, at least 1.
        standardise: whether each patch has a mean of 0 and a standard deviation of 1, so that
            colours do not tell where it lies.
        patch_weight: weight of the base's loss on patches, at least 0.

    Raises:
        OptionError: an option is outside its range, the base learns from neither episodes nor
            batches, the views do not fit the pretext task, or a base on patches does not consume
            vectors.
    """

    usual_components: ClassVar[Mapping[str, str]] = {"views": "rotation"}

    def __init__(
        self,
        *,
        base: FewShotMethod,
        views: ViewMaker,
        pretext: Pretext = "transformation",
        alpha: float = 1.0,
        blocks: int = 4,
        standardise: bool = True,
        patch_weight: float = 1.0,
    ) -> None:
        super().__init__(base=base)
        check_one_of(("transformation", "location"), pretext=pretext)
        check_at_least(0, alpha=alpha, patch_weight=patch_weight)
        check_at_least(1, blocks=blocks)
        check_kinds(views)
        self.on_patches = pretext == "location" and patch_weight > 0
        if pretext == "location":
            self._check_patches(views)
        elif views.together:
            raise OptionError(
                f"views must each have a transformation of its own, but {type(views).__name__} "
                "makes all views of an image together"
            )
        self.views = views
        self.pretext = pretext
        self.alpha = alpha
        self.blocks = blocks
        self.standardise = standardise
        self.patch_weight = patch_weight
        if self.on_patches:
            self.patch_base = copy.deepcopy(base)

    @property
    def bases(self) -> Sequence[FewShotMethod]:
        """The base, and the one that is trained on patches."""
        return (self.base, self.patch_base) if self.on_patches else (self.base,)

    def _check_patches(self, views: ViewMaker) -> None:
        if not views.n_views == views.n_kinds == _GRID:
            raise OptionError(
                "pretext 'location' needs views=patches, the 9 cells of an image, but "
                f"{type(views).__name__} makes {views.n_views} views of {views.n_kinds} kinds"
            )
        if self.on_patches and (self.base_sees_images or self.base.consumes != "vectors"):
            raise OptionError(
                "base must be trained on vectors, to learn from the mean of an image's patches, "
                f"but {self.name_of(self.base)} is not; use patch_weight=0"
            )

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Build the base and the head of the pretext task."""
        super().build(item_shape, n_base_classes, backbone)
        self.head: nn.Module
        width = self.channels
        if self.pretext == "location":
            self.head = PairHead(width)
        else:
            self.head = ResidualHead(width, self.blocks, self.views.n_kinds)
        if self.on_patches:
            self.patch_base.build((width,), n_base_classes, backbone)

    def loss(self, batch: Batch) -> Tensor:
        """Return the base's loss plus that of the pretext task, times ``alpha``."""
        return self.base_loss(batch) + self.pretext_loss(batch)

    def pretext_loss(self, batch: Batch) -> Tensor:
        """Return the loss of the pretext task, times ``alpha``, and of the base on patches."""
        views, applied = views_of(batch, self)
        flat = views.flatten(0, 1)
        if self.pretext == "transformation":
            logits = self.head(self.extractor(flat))
            return self.alpha * functional.cross_entropy(logits, applied.flatten())
        if self.standardise:
            flat = standardised(flat)
        vectors = self.pooled(flat).unflatten(0, applied.shape)
        loss = self.alpha * location_loss(self.head, vectors, applied)
        if self.on_patches:
            plain = dataclasses.replace(batch, views=None, applied=None, small_views=None)
            of_patches = with_items(plain, vectors.mean(dim=1))
            loss = loss + self.patch_weight * self.patch_base.loss(of_patches)
        return loss


def standardised(images: Tensor) -> Tensor:
    """Shift and scale each image ``(n, 3, h, w)`` to mean 0 and standard deviation 1."""
    dims = (1, 2, 3)
    centred = images - images.mean(dim=dims, keepdim=True)
    return centred / (images.std(dim=dims, keepdim=True) + 1e-5)


def location_loss(head: nn.Module, vectors: Tensor, cells: Tensor) -> Tensor:
    """Return the cross-entropy of where patches lie around the middle one.

    Args:
        head: maps pairs ``(m, 2 D)`` to logits of the eight neighbours.
        vectors: of the patches, ``(n, 9, D)``.
        cells: int64 ``(n, 9)``, the cell of each patch, row by row.
    """
    n, _, width = vectors.shape
    vectors = vectors.take_along_dim(cells.argsort(dim=1)[:, :, None], dim=1)
    middle = _GRID // 2
    others = torch.cat([vectors[:, :middle], vectors[:, middle + 1 :]], dim=1)
    around = vectors[:, middle, None].expand_as(others)
    logits = head(torch.cat([others, around], dim=-1).reshape(-1, 2 * width))
    places = torch.arange(_GRID - 1, device=vectors.device).repeat(n)
    return functional.cross_entropy(logits, places)


class PairHead(nn.Sequential):
    """Classifies pairs of vectors ``(m, 2 width)`` by eight directions."""

    def __init__(self, width: int) -> None:
        super().__init__(
            nn.Linear(2 * width, 2 * width, bias=False),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, _GRID - 1),
        )


class ResidualHead(nn.Sequential):
    """Classifies maps ``(n, width, h, w)`` after some residual blocks.

    Args:
        width: channels.
        blocks: residual blocks.
        n_kinds: classes.
    """

    def __init__(self, width: int, blocks: int, n_kinds: int) -> None:
        super().__init__(
            *(_Block(width, stride=1 if i else 2) for i in range(blocks)),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            CosineClassifier(width, n_kinds),
        )


class CosineClassifier(nn.Module):
    """Logits are cosines to a vector per class, times a learned scale that starts at 10."""

    def __init__(self, width: int, n_classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_classes, width) * (2 / width) ** 0.5)
        self.scale = nn.Parameter(torch.tensor(10.0))

    def forward(self, vectors: Tensor) -> Tensor:
        """Map vectors ``(n, width)`` to logits ``(n, n_classes)``."""
        units = functional.normalize(vectors, dim=-1)
        return self.scale * functional.linear(units, functional.normalize(self.weight, dim=-1))


class _Block(nn.Module):
    """The block of a wide residual network: twice BatchNorm, ReLU and a 3 x 3 convolution."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.first = _activated(width, nn.Conv2d(width, width, 3, stride, padding=1, bias=False))
        self.second = _activated(width, nn.Conv2d(width, width, 3, padding=1, bias=False))
        shortcut = nn.Conv2d(width, width, 1, stride, bias=False)
        self.shortcut = nn.Identity() if stride == 1 else shortcut

    def forward(self, maps: Tensor) -> Tensor:
        """Map ``(n, width, h, w)`` to maps of the same number of channels."""
        found: Tensor = self.shortcut(maps) + self.second(self.first(maps))
        return found


def _activated(width: int, convolution: nn.Conv2d) -> nn.Sequential:
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), convolution)
