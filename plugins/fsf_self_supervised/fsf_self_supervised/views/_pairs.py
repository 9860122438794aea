"""Views by random augmentation, as contrastive and other self-supervised methods compare them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from fsf_self_supervised.views._color import jittered
from fsframework.interfaces import OptionError, ViewMaker, Views, check_at_least

__all__ = ["MoCoV2", "MultiCrop", "SimCLR"]


@dataclass(frozen=True)
class _Augmentation:
    """A random augmentation of an image.

    Args:
        scale: least and largest share of the area that is cropped.
        jitter: largest change of brightness, contrast, saturation (shares) and hue (turns).
        jitter_p: share of the views whose colours are changed.
        grey_p: share of the views without colour; ``blur_p``: of the blurred ones.
    """

    scale: tuple[float, float]
    jitter: tuple[float, float, float, float]
    jitter_p: float = 0.8
    grey_p: float = 0.2
    blur_p: float = 0.5

    def views(self, images: Tensor, n_views: int, size: tuple[int, int]) -> Tensor:
        """Return views ``(n, n_views, 3, *size)`` of images ``(n, 3, H, W)``."""
        n = len(images)
        found = images.repeat_interleave(n_views, dim=0)
        found = _cropping(size, self.scale)(found)
        found = jittered(found, self.jitter, self.jitter_p)
        found = _finishing(self.grey_p, self.blur_p, _kernel(min(size)))(found)
        return found.clamp(0, 1).reshape(n, n_views, 3, *size)


def _kernel(side: int) -> int:
    """Return the width of the blur, an odd number near a tenth of the side, at least 3."""
    return max(3, side // 10 // 2 * 2 + 1)


@lru_cache(maxsize=16)
def _cropping(size: tuple[int, int], scale: tuple[float, float]) -> nn.Module:
    from kornia import augmentation

    # The mode "slice" would go through the images one by one.
    crop = augmentation.RandomResizedCrop(
        size, scale, cropping_mode="resample", align_corners=False
    )
    return nn.Sequential(crop, augmentation.RandomHorizontalFlip(0.5))


@lru_cache(maxsize=16)
def _finishing(grey_p: float, blur_p: float, kernel: int) -> nn.Module:
    from kornia import augmentation

    return nn.Sequential(
        augmentation.RandomGrayscale(p=grey_p),
        augmentation.RandomGaussianBlur((kernel, kernel), (0.1, 2.0), p=blur_p),
    )


class SimCLR(ViewMaker):
    """Two random crops with strong changes of colour, greyscale and blur.

    Source: Chen, Kornblith, Norouzi and Hinton 2020, "A Simple Framework for Contrastive Learning
    of Visual Representations" (ICML), appendix A: a crop of 8 to 100 % of the area with an aspect
    ratio of 3:4 to 4:3, resized; mirrored with probability 0.5; colours changed with probability
    0.8 by up to 0.8 s (brightness, contrast, saturation) and 0.2 s (hue); greyscale with
    probability 0.2; blurred with probability 0.5 by a Gaussian of 0.1 to 2 pixels over a tenth of
    the side. The paper draws the order of the four changes of colour; here it is fixed, and hue is
    turned in YIQ coordinates.

    Args:
        strength: the paper's s; 0 changes no colours. The paper takes 1, and 0.5 for images of 32
            pixels.
        min_area: smallest share of the area that is cropped.
        blur: share of the views that are blurred; the paper takes 0 for images of 32 pixels.
        grey: share of the views without colour.
        n_views: views per image.

    Raises:
        OptionError: an option is outside its range.
    """

    random = True

    def __init__(
        self,
        *,
        strength: float = 1.0,
        min_area: float = 0.08,
        blur: float = 0.5,
        grey: float = 0.2,
        n_views: int = 2,
    ) -> None:
        check_at_least(1, n_views=n_views)
        _check_shares(blur=blur, grey=grey)
        _check_area("min_area", min_area)
        if not 0 <= strength <= 1.25:
            raise OptionError(f"strength must be in 0..1.25, got {strength}")
        self.strength, self.min_area, self.blur, self.grey = strength, min_area, blur, grey
        self.n_views = n_views

    def make(self, images: Tensor) -> Views:
        """Return the views at the size of the images."""
        return _alike(self._augmentation(), images, self.n_views)

    def _augmentation(self) -> _Augmentation:
        return _Augmentation(
            (self.min_area, 1.0),
            _jitter_of(self.strength),
            grey_p=self.grey,
            blur_p=self.blur,
        )


class MoCoV2(ViewMaker):
    """Two random crops with moderate changes of colour, greyscale and blur.

    Source: Chen, Fan, Girshick and He 2020, "Improved Baselines with Momentum Contrastive Learning"
    (arXiv:2003.04297), section 3, and the authors' code: a crop of 20 to 100 % of the area;
    colours changed with probability 0.8 by up to 0.4 (brightness, contrast, saturation) and 0.1
    (hue); greyscale with probability 0.2; blurred with probability 0.5 by a Gaussian of 0.1 to 2
    pixels; mirrored with probability 0.5. The order of the changes of colour is fixed, and hue is
    turned in YIQ coordinates.

    Args:
        min_area: smallest share of the area that is cropped.
        blur: share of the views that are blurred.

    Raises:
        OptionError: an option is outside its range.
    """

    n_views = 2
    random = True

    def __init__(self, *, min_area: float = 0.2, blur: float = 0.5) -> None:
        _check_shares(blur=blur)
        _check_area("min_area", min_area)
        self.min_area, self.blur = min_area, blur

    def make(self, images: Tensor) -> Views:
        """Return the views at the size of the images."""
        drawn = _Augmentation((self.min_area, 1.0), (0.4, 0.4, 0.4, 0.1), blur_p=self.blur)
        return _alike(drawn, images, self.n_views)


class MultiCrop(ViewMaker):
    """Two random crops of large parts of the image, and smaller images of small parts.

    Source: Caron et al. 2020, "Unsupervised Learning of Visual Features by Contrasting Cluster
    Assignments" (NeurIPS), section 3.2 and appendix A: two crops of 14 to 100 % of the area, and
    small ones of 5 to 14 % at 96 instead of 224 pixels; colours change as for SimCLR.

    Args:
        n_large: large views per image.
        n_small: small views per image (``Views.small``); 0 for none.
        small_side: height and width of the small views, as a share of that of the images.
        border: share of the area at which small parts end and large ones begin.
        min_area: smallest share of the area that is cropped.
        strength: of the changes of colour, as of ``simclr``.

    Raises:
        OptionError: an option is outside its range.
    """

    random = True

    def __init__(
        self,
        *,
        n_large: int = 2,
        n_small: int = 4,
        small_side: float = 96 / 224,
        border: float = 0.14,
        min_area: float = 0.05,
        strength: float = 1.0,
    ) -> None:
        check_at_least(1, n_large=n_large)
        check_at_least(0, n_small=n_small)
        for name, value in (("border", border), ("min_area", min_area), ("small_side", small_side)):
            _check_area(name, value)
        if not min_area < border:
            raise OptionError(f"min_area must be below border ({border}), got {min_area}")
        if not 0 <= strength <= 1.25:
            raise OptionError(f"strength must be in 0..1.25, got {strength}")
        self.n_large, self.n_small, self.small_side = n_large, n_small, small_side
        self.border, self.min_area, self.strength = border, min_area, strength
        self.n_views = n_large

    def make(self, images: Tensor) -> Views:
        """Return large views at the size of the images, and small ones."""
        jitter = _jitter_of(self.strength)
        found = _alike(_Augmentation((self.border, 1.0), jitter), images, self.n_large)
        if not self.n_small:
            return found
        height, width = (max(1, round(self.small_side * side)) for side in images.shape[-2:])
        drawn = _Augmentation((self.min_area, self.border), jitter)
        return Views(
            found.images, found.applied, drawn.views(images, self.n_small, (height, width))
        )


def _jitter_of(strength: float) -> tuple[float, float, float, float]:
    return 0.8 * strength, 0.8 * strength, 0.8 * strength, 0.2 * strength


def _alike(drawn: _Augmentation, images: Tensor, n_views: int) -> Views:
    """Return views of one kind, at the size of the images."""
    height, width = images.shape[-2:]
    made = drawn.views(images, n_views, (height, width))
    return Views(made, torch.zeros(made.shape[:2], dtype=torch.int64, device=made.device))


def _check_shares(**shares: float) -> None:
    for name, value in shares.items():
        if not 0 <= value <= 1:
            raise OptionError(f"{name} must be in 0..1, got {value}")


def _check_area(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise OptionError(f"{name} must be above 0 and at most 1, got {value}")
