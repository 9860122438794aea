"""The convolutional backbone of R2D2."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones._layout import Colour, PooledBackbone, Pooling, normed, prepared
from fsframework.interfaces import OptionError, Preprocessing

__all__ = ["ConvR2D2"]

_WIDTHS = (96, 192, 384, 512)
_SLOPE = 0.1
_SMALLEST = 16


class ConvR2D2(PooledBackbone):
    """Four blocks of 96, 192, 384 and 512 convolutions; a map holds the last two blocks.

    Source: Bertinetto, Henriques, Torr and Vedaldi 2019, "Meta-learning with Differentiable
    Closed-form Solvers" (ICLR), section 4.2, and the authors' code. A block is a 3 x 3 convolution,
    BatchNorm, 2 x 2 max-pooling and a leaky rectifier of slope 0.1, with dropout after the last
    two. The last pooling moves by one location; so does another one of the third block's map, and
    the two maps, now of one size, are concatenated: 896 channels, and vectors of 8064 numbers for
    32 x 32 images, as printed.

    Args:
        drop_rate: share of values dropped after the last two blocks in training, in [0, 1); the
            paper uses 0.4 for CIFAR-FS and 0.1 for miniImageNet.
        pooling: how ``vectors`` pools a map: ``flatten`` to ``896 * h * w`` numbers, channel
            first, or the ``mean`` over locations, 896 numbers.
        mean: red, green and blue, in 0..1; subtracted from the pixel values. The default is
            ImageNet's; weights trained with other values need those.
        std: red, green and blue, above 0; divides the difference.

    Raises:
        OptionError: an option is outside its range.

    >>> import torch
    >>> backbone = ConvR2D2()
    >>> maps = backbone(torch.zeros(2, 3, 32, 32))
    >>> maps.shape, backbone.vectors(maps).shape
    (torch.Size([2, 896, 3, 3]), torch.Size([2, 8064]))
    """

    def __init__(
        self,
        *,
        drop_rate: float = 0.1,
        pooling: Pooling = "flatten",
        mean: Colour = Preprocessing.mean,
        std: Colour = Preprocessing.std,
    ) -> None:
        super().__init__(pooling, mean, std)
        if not 0 <= drop_rate < 1:
            raise OptionError(f"drop_rate must be in [0, 1), got {drop_rate}")
        self.drop_rate = drop_rate
        before = (3, *_WIDTHS[:-1])
        pairs = list(zip(before, _WIDTHS, strict=True))
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for b in _WIDTHS)
        for conv in self.convs:
            # BatchNorm subtracts what the bias adds.
            conv.bias.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """Map float images ``(n, 3, H, W)`` to maps ``(n, 896, h, w)``, channels last in memory.

        Raises:
            OptionError: the images are too small to leave a map.
        """
        maps = prepared(images, _SMALLEST, "conv-r2d2")
        kept = []
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            stride = 1 if i == 3 else 2
            maps = functional.max_pool2d(normed(conv, norm, maps), 2, stride)
            maps = functional.leaky_relu(maps, _SLOPE)
            if i >= 2:
                maps = functional.dropout(maps, self.drop_rate, self.training)
                kept.append(maps)
        third, fourth = kept
        return torch.cat([functional.max_pool2d(third, 2, 1), fourth], dim=1)
