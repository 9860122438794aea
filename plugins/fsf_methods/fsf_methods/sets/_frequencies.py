"""Images as the frequencies of JPEG: YCbCr and the discrete cosine transform of 8 x 8 blocks."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Frequencies"]

_BLOCK = 8
_FROM_RGB = (
    (0.299, 0.587, 0.114),
    (-0.168735892, -0.331264108, 0.5),
    (0.5, -0.418687589, -0.081312411),
)
_TO_RGB = (
    (1.0, 0.0, 1.402),
    (1.0, -0.344136286, -0.714136286),
    (1.0, 1.772, 0.0),
)


class Frequencies(nn.Module):
    """Normalised images to coefficients and back.

    Colours are those of JPEG (ITU-T T.871), with values of -128 to 127; the transform is the
    orthonormal DCT-II of each block of 8 x 8 pixels, whose coefficients take the block's place.
    Rows and columns that fill no block have coefficients of 0.

    Args:
        mean: red, green and blue, which normalised images lack.
        std: red, green and blue, by which they are divided.
    """

    mean: Tensor
    std: Tensor
    cosines: Tensor
    from_rgb: Tensor
    to_rgb: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        k = torch.arange(_BLOCK, dtype=torch.float64)
        cosines = torch.cos(k[:, None] * (2 * k + 1) * math.pi / (2 * _BLOCK))
        cosines *= math.sqrt(2 / _BLOCK)
        cosines[0] /= math.sqrt(2)
        constants = {
            "mean": torch.tensor(mean)[:, None, None],
            "std": torch.tensor(std)[:, None, None],
            "cosines": cosines.float(),
            "from_rgb": torch.tensor(_FROM_RGB),
            "to_rgb": torch.tensor(_TO_RGB),
        }
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the coefficients of normalised images, both ``(n, 3, H, W)``."""
        with torch.autocast(images.device.type, enabled=False):
            pixels = (images.float() * self.std + self.mean).clamp(0, 1) * 255
            colours = torch.einsum("dc,nchw->ndhw", self.from_rgb, pixels)
            # Only the first colour, the brightness, is not centred yet.
            colours = torch.cat([colours[:, :1] - 128, colours[:, 1:]], dim=1)
            return _by_blocks(colours, self.cosines)

    def images(self, coefficients: Tensor) -> Tensor:
        """Return the normalised images with these coefficients, both ``(n, 3, H, W)``."""
        with torch.autocast(coefficients.device.type, enabled=False):
            colours = _by_blocks(coefficients, self.cosines.mT)
            pixels = torch.einsum("dc,nchw->ndhw", self.to_rgb, colours) + 128
            return ((pixels / 255).clamp(0, 1) - self.mean) / self.std


def _by_blocks(x: Tensor, matrix: Tensor) -> Tensor:
    """Multiply each block of ``(n, 3, H, W)`` by a matrix from the left, and its transpose."""
    height, width = x.shape[2:]
    rows, columns = height // _BLOCK, width // _BLOCK
    inner = x[:, :, : rows * _BLOCK, : columns * _BLOCK]
    blocks = inner.reshape(*x.shape[:2], rows, _BLOCK, columns, _BLOCK).transpose(3, 4)
    done = (matrix @ blocks @ matrix.mT).transpose(3, 4).reshape(inner.shape)
    return functional.pad(done, (0, width - inner.shape[3], 0, height - inner.shape[2]))
