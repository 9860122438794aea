"""The four-block convolutional backbones."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from fsf_backbones._layout import Colour, PooledBackbone, Pooling, normed, prepared
from fsframework.interfaces import OptionError, Preprocessing

__all__ = ["Conv32F", "Conv64F", "Conv64FUnpadded"]

_N_BLOCKS = 4


class _FourBlocks(PooledBackbone):
    """Base of the backbones of four convolutions; a subclass sets filters and padding."""

    _name: ClassVar[str]
    _width: ClassVar[int]
    _padding: ClassVar[tuple[int, ...]] = (1,) * _N_BLOCKS

    def __init__(
        self,
        *,
        last_pool: bool = True,
        maxpool_last2: bool = True,
        leaky_relu: bool = False,
        negative_slope: float = 0.2,
        pooling: Pooling = "flatten",
        mean: Colour = Preprocessing.mean,
        std: Colour = Preprocessing.std,
    ) -> None:
        super().__init__(pooling, mean, std)
        if not 0 <= negative_slope < 1:
            raise OptionError(f"negative_slope must be in [0, 1), got {negative_slope}")
        self.last_pool = last_pool
        self.maxpool_last2 = maxpool_last2
        self.leaky_relu = leaky_relu
        self.negative_slope = negative_slope

        pooled = (True, True, maxpool_last2, last_pool)
        self.smallest_size = 1
        for pool, pad in zip(reversed(pooled), reversed(self._padding), strict=True):
            self.smallest_size = self.smallest_size * (2 if pool else 1) + 2 * (1 - pad)
        self.blocks = nn.Sequential(
            *(
                self._block(3 if i == 0 else self._width, pooled[i], self._padding[i])
                for i in range(_N_BLOCKS)
            )
        )

    def _block(self, in_channels: int, pool: bool, padding: int) -> nn.Sequential:
        block = _Block()
        conv = nn.Conv2d(in_channels, self._width, 3, padding=padding)
        # BatchNorm subtracts what the bias adds, so in training its gradient is rounding; finding
        # it takes longer than the gradient of the first block's weights.
        assert conv.bias is not None
        conv.bias.requires_grad_(False)
        block.add_module("conv", conv)
        block.add_module("norm", nn.BatchNorm2d(self._width))
        # Rectifiers are monotonic, so pooling first gives the same numbers with a quarter of the
        # work.
        if pool:
            block.add_module("pool", nn.MaxPool2d(2))
        slope = self.negative_slope if self.leaky_relu else 0.0
        block.add_module("relu", nn.LeakyReLU(slope, inplace=True) if slope else nn.ReLU(True))
        return block

    def forward(self, images: Tensor) -> Tensor:
        """Map float images ``(n, 3, H, W)`` to maps ``(n, C, h, w)``, channels last in memory.

        Raises:
            OptionError: the images are too small to leave a map.
        """
        maps: Tensor = self.blocks(prepared(images, self.smallest_size, self._name))
        return maps


class _Block(nn.Sequential):
    """A convolution, its norm, then pooling and a rectifier."""

    def forward(self, x: Tensor) -> Tensor:
        conv, norm, *rest = self
        maps = normed(conv, norm, x)
        for layer in rest:
            maps = layer(maps)
        return maps


class Conv64F(_FourBlocks):
    """Four blocks of 64 convolutions, the small backbone of most few-shot papers.

    A block is a 3 x 3 convolution with 64 filters, BatchNorm, a rectifier and 2 x 2 max-pooling
    that drops an odd last row or column. Source: Vinyals,
    Blundell, Lillicrap, Kavukcuoglu and Wierstra 2016, "Matching Networks for One Shot Learning",
    section 4.1, and Snell, Swersky and Zemel 2017, "Prototypical Networks for Few-shot Learning",
    section 3.1 (whose vectors are the flattened last map); the options are the variants of
    LibFewShot's ``Conv64F``.

    Args:
        last_pool: pool after the fourth block too; without it 84 x 84 images give 10 x 10 maps
            rather than 5 x 5.
        maxpool_last2: pool after the third block; without it and ``last_pool``, 21 x 21 maps.
        leaky_relu: rectify with a leaky ReLU.
        negative_slope: slope of the leaky ReLU, in [0, 1); the plain ReLU ignores it.
        pooling: how ``vectors`` pools a map: ``flatten`` to ``64 * h * w`` numbers, channel
            first, or the ``mean`` over locations, 64 numbers.
        mean: red, green and blue, in 0..1; subtracted from the pixel values. The default is
            ImageNet's; weights trained with other values need those.
        std: red, green and blue, above 0; divides the difference.

    Raises:
        OptionError: an option is outside its range.

    >>> import torch
    >>> backbone = Conv64F()
    >>> maps = backbone(torch.zeros(2, 3, 84, 84))
    >>> maps.shape, backbone.vectors(maps).shape
    (torch.Size([2, 64, 5, 5]), torch.Size([2, 1600]))
    """

    _name = "conv64f"
    _width = 64


class Conv32F(_FourBlocks):
    """Four blocks of 32 convolutions, the backbone of MAML on miniImageNet.

    ``Conv64F`` with half the filters. Source: Finn, Abbeel and Levine 2017,
    "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", section 5.2, who halve them
    to reduce overfitting; the options are the variants of LibFewShot's ``Conv32F``.

    Args:
        last_pool: pool after the fourth block too; without it 84 x 84 images give 10 x 10 maps
            rather than 5 x 5.
        maxpool_last2: pool after the third block; without it and ``last_pool``, 21 x 21 maps.
        leaky_relu: rectify with a leaky ReLU.
        negative_slope: slope of the leaky ReLU, in [0, 1); the plain ReLU ignores it.
        pooling: how ``vectors`` pools a map: ``flatten`` to ``32 * h * w`` numbers, channel
            first, or the ``mean`` over locations, 32 numbers.
        mean: red, green and blue, in 0..1; subtracted from the pixel values. The default is
            ImageNet's; weights trained with other values need those.
        std: red, green and blue, above 0; divides the difference.

    Raises:
        OptionError: an option is outside its range.

    >>> import torch
    >>> backbone = Conv32F()
    >>> maps = backbone(torch.zeros(2, 3, 84, 84))
    >>> maps.shape, backbone.vectors(maps).shape
    (torch.Size([2, 32, 5, 5]), torch.Size([2, 800]))
    """

    _name = "conv32f"
    _width = 32


class Conv64FUnpadded(_FourBlocks):
    """``Conv64F`` whose first two convolutions do not pad, that of relation networks.

    Source: Sung, Yang, Zhang, Xiang, Torr and Hospedales 2018, "Learning to Compare: Relation
    Network for Few-Shot Learning", section 4 and figure 2, whose last two blocks do not pool: 28 x
    28 images give 5 x 5 maps, 84 x 84 images 19 x 19 maps.

    Args:
        pooling: how ``vectors`` pools a map: ``flatten`` to ``64 * h * w`` numbers, channel
            first, or the ``mean`` over locations, 64 numbers.
        mean: red, green and blue, in 0..1; subtracted from the pixel values. The default is
            ImageNet's; weights trained with other values need those.
        std: red, green and blue, above 0; divides the difference.

    Raises:
        OptionError: an option is outside its range.

    >>> import torch
    >>> backbone = Conv64FUnpadded()
    >>> backbone(torch.zeros(2, 3, 28, 28)).shape, backbone(torch.zeros(2, 3, 84, 84)).shape
    (torch.Size([2, 64, 5, 5]), torch.Size([2, 64, 19, 19]))
    """

    _name = "conv64f-unpadded"
    _width = 64
    _padding = (0, 0, 1, 1)

    def __init__(
        self,
        *,
        pooling: Pooling = "flatten",
        mean: Colour = Preprocessing.mean,
        std: Colour = Preprocessing.std,
    ) -> None:
        super().__init__(last_pool=False, maxpool_last2=False, pooling=pooling, mean=mean, std=std)
