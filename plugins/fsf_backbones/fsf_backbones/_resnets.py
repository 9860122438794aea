"""The residual backbones with a stem, of 10, 18 and 50 layers."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones._layout import Colour, PooledBackbone, Pooling, normed, prepared, thinned
from fsframework.interfaces import OptionError, Preprocessing

__all__ = ["ResNet10", "ResNet18", "ResNet50"]

Stem = Literal["7x7", "3x3"]
"""What comes before the four stages.

``7x7`` is a 7 x 7 convolution and a 3 x 3 max-pooling, both of stride 2, for images of 224 pixels;
``3x3`` is a 3 x 3 convolution of stride 1, for images of 84 pixels.
"""

_SIZES: dict[str, int] = {"7x7": 224, "3x3": 84}
"""Side of the images that each stem is designed for, in pixels."""


class _Block(nn.Module):
    """Convolutions with a shortcut, which is a 1 x 1 convolution where the shapes differ."""

    expansion: ClassVar[int]
    downsample: nn.Sequential | None

    def __init__(self, in_width: int, width: int, stride: int) -> None:
        super().__init__()
        out_width = width * self.expansion
        self.stride = stride
        self.downsample = None
        if stride > 1 or in_width != out_width:
            conv = nn.Conv2d(in_width, out_width, 1, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(out_width))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        if self.downsample is not None:
            conv, norm = self.downsample
            shortcut = normed(conv, norm, thinned(x, self.stride))
        return functional.relu(self.residual(x) + shortcut, inplace=True)

    def residual(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class _BasicBlock(_Block):
    """Two 3 x 3 convolutions: He et al. 2016, figure 5, left."""

    expansion = 1

    def __init__(self, in_width: int, width: int, stride: int) -> None:
        super().__init__(in_width, width, stride)
        self.conv1 = nn.Conv2d(in_width, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def residual(self, x: Tensor) -> Tensor:
        y = functional.relu(normed(self.conv1, self.bn1, x), inplace=True)
        return normed(self.conv2, self.bn2, y)


class _Bottleneck(_Block):
    """A 3 x 3 convolution between two 1 x 1: He et al. 2016, figure 5, right.

    The 3 x 3 convolution has the stride, as is usual today; in the paper the first one has it.
    """

    expansion = 4

    def __init__(self, in_width: int, width: int, stride: int) -> None:
        super().__init__(in_width, width, stride)
        self.conv1 = nn.Conv2d(in_width, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)

    def residual(self, x: Tensor) -> Tensor:
        y = functional.relu(normed(self.conv1, self.bn1, x), inplace=True)
        y = functional.relu(normed(self.conv2, self.bn2, y), inplace=True)
        return normed(self.conv3, self.bn3, y)


class _ResNet(PooledBackbone):
    """Base of the residual backbones; a subclass sets the kind and number of blocks per stage.

    Weights have the names of PyTorch's own ResNets, so that published weights fit.
    """

    _name: ClassVar[str]
    _block: ClassVar[type[_Block]]
    _depths: ClassVar[tuple[int, int, int, int]]

    def __init__(
        self,
        *,
        stem: Stem = "7x7",
        widths: tuple[int, int, int, int] = (64, 128, 256, 512),
        pooling: Pooling = "mean",
        mean: Colour = Preprocessing.mean,
        std: Colour = Preprocessing.std,
    ) -> None:
        if stem not in _SIZES:
            raise OptionError(f"stem must be '7x7' or '3x3', got {stem!r}")
        super().__init__(pooling, mean, std, _SIZES[stem])
        if len(widths) != 4 or min(widths) < 1:
            raise OptionError(f"widths must be four positive integers, got {widths}")
        self.stem = stem
        self.widths = widths

        width = widths[0]
        if stem == "7x7":
            self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        else:
            self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        stages = []
        for number, (depth, inner) in enumerate(zip(self._depths, widths, strict=True)):
            blocks = nn.Sequential()
            for place in range(depth):
                stride = 2 if number and not place else 1
                blocks.append(self._block(width, inner, stride))
                width = inner * self._block.expansion
            stages.append(blocks)
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Map float images ``(n, 3, H, W)`` to maps ``(n, C, h, w)``, channels last in memory."""
        x = functional.relu(
            normed(self.conv1, self.bn1, prepared(images, 1, self._name)), inplace=True
        )
        if self.stem == "7x7":
            x = functional.max_pool2d(x, 3, stride=2, padding=1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return x


class ResNet10(_ResNet):
    """Four residual blocks of two convolutions, the usual backbone across domains.

    Source: Chen, Liu, Kira, Wang and Huang 2019, "A Closer Look at Few-shot Classification" (ICLR),
    section 4.1 and appendix A3, at 224 pixels; MetaCoCo, appendix C, describes the same four stages
    of one block, 64 to 512 channels wide.

    Args:
        stem: what comes before the stages: ``7x7``, a 7 x 7 convolution and a max-pooling, both
            of stride 2, as in the paper, or ``3x3``, a 3 x 3 convolution of stride 1. 84 x 84
            images give 3 x 3 or 11 x 11 maps. Images are 224 or 84 pixels wide unless the run or
            the data set states another size.
        widths: channels of the four stages.
        pooling: how ``vectors`` pools a map: the ``mean`` over locations, or ``flatten`` to
            ``C * h * w`` numbers, channel first.
        mean: red, green and blue, in 0..1; subtracted from the pixel values. The default is
            ImageNet's; weights trained with other values need those.
        std: red, green and blue, above 0; divides the difference.

    Raises:
        OptionError: an option is outside its range.

    >>> import torch
    >>> backbone = ResNet10(widths=(8, 16, 24, 32))
    >>> maps = backbone(torch.zeros(2, 3, 84, 84))
    >>> maps.shape, backbone.vectors(maps).shape
    (torch.Size([2, 32, 3, 3]), torch.Size([2, 32]))
    """

    _name = "resnet10"
    _block = _BasicBlock
    _depths = (1, 1, 1, 1)


class ResNet18(_ResNet):
    """Eight residual blocks of two convolutions, 64 to 512 channels wide.

    Source: He, Zhang, Ren and Sun 2016, "Deep Residual Learning for Image Recognition" (CVPR),
    table 1. The stem is that of few-shot libraries (LibFewShot's ``resnet18``, which MetaCoCo uses
    at 84 pixels): one 3 x 3 convolution that keeps the size; ``stem="7x7"`` is that of the paper
    and of ImageNet weights.

    Args:
        stem: what comes before the stages: ``3x3``, a 3 x 3 convolution of stride 1, or ``7x7``,
            a 7 x 7 convolution and a max-pooling, both of stride 2. 84 x 84 images give 11 x 11
            or 3 x 3 maps. Images are 84 or 224 pixels wide unless the run or the data set states
            another size.
        widths: channels of the four stages.
        pooling: how ``vectors`` pools a map: the ``mean`` over locations, or ``flatten`` to
            ``C * h * w`` numbers, channel first.
        mean: red, green and blue, in 0..1; subtracted from the pixel values. The default is
            ImageNet's; weights trained with other values need those.
        std: red, green and blue, above 0; divides the difference.

    Raises:
        OptionError: an option is outside its range.

    >>> import torch
    >>> backbone = ResNet18(widths=(8, 16, 24, 32))
    >>> maps = backbone(torch.zeros(2, 3, 84, 84))
    >>> maps.shape, backbone.vectors(maps).shape
    (torch.Size([2, 32, 11, 11]), torch.Size([2, 32]))
    """

    _name = "resnet18"
    _block = _BasicBlock
    _depths = (2, 2, 2, 2)

    def __init__(
        self,
        *,
        stem: Stem = "3x3",
        widths: tuple[int, int, int, int] = (64, 128, 256, 512),
        pooling: Pooling = "mean",
        mean: Colour = Preprocessing.mean,
        std: Colour = Preprocessing.std,
    ) -> None:
        super().__init__(stem=stem, widths=widths, pooling=pooling, mean=mean, std=std)


class ResNet50(_ResNet):
    """Sixteen residual blocks of three convolutions, the backbone of self-supervised learning.

    Source: He, Zhang, Ren and Sun 2016, "Deep Residual Learning for Image Recognition" (CVPR),
    table 1, with the stride in the 3 x 3 convolution of a block; the backbone of MoCo and SimCLR,
    also in MetaCoCo's comparison.

    Args:
        stem: what comes before the stages: ``7x7``, a 7 x 7 convolution and a max-pooling, both
            of stride 2, as in the paper, or ``3x3``, a 3 x 3 convolution of stride 1. 84 x 84
            images give 3 x 3 or 11 x 11 maps. Images are 224 or 84 pixels wide unless the run or
            the data set states another size.
        widths: channels inside the blocks of the four stages; their maps have four times as many.
        pooling: how ``vectors`` pools a map: the ``mean`` over locations, or ``flatten`` to
            ``C * h * w`` numbers, channel first.
        mean: red, green and blue, in 0..1; subtracted from the pixel values. The default is
            ImageNet's; weights trained with other values need those.
        std: red, green and blue, above 0; divides the difference.

    Raises:
        OptionError: an option is outside its range.

    >>> import torch
    >>> backbone = ResNet50(widths=(4, 8, 12, 16))
    >>> maps = backbone(torch.zeros(2, 3, 84, 84))
    >>> maps.shape, backbone.vectors(maps).shape
    (torch.Size([2, 64, 3, 3]), torch.Size([2, 64]))
    """

    _name = "resnet50"
    _block = _Bottleneck
    _depths = (3, 4, 6, 3)
