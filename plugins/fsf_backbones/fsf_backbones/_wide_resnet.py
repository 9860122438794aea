"""The wide residual backbone."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones._layout import Colour, PooledBackbone, Pooling, normed, prepared, thinned
from fsframework.interfaces import OptionError, Preprocessing

__all__ = ["WideResNet"]

_STEM = 16
_STRIDES = (1, 2, 2)


class WideResNet(PooledBackbone):
    """Three stages of wide residual blocks, by default the WRN-28-10 of few-shot papers.

    A block is BatchNorm, rectifier and 3 x 3 convolution, twice, with dropout between the
    convolutions; a 3 x 3 convolution of 16 filters comes before the stages, BatchNorm and a
    rectifier after them. Source: Zagoruyko and Komodakis 2016, "Wide Residual
    Networks" (BMVC), section 2 and table 1; in the form
    of few-shot papers (S2M2, MetaCoCo's appendix C) the strides are the same 1, 2 and 2 for images
    of 80 or 84 pixels, and the vector is the mean over locations.

    Args:
        depth: number of layers, ``6 n + 4`` for ``n`` blocks per stage.
        width: factor of the three stages' channels, which are 16, 32 and 64 at width 1.
        drop_rate: share of values dropped within a block in training, in [0, 1).
        pooling: how ``vectors`` pools a map: the ``mean`` over locations, or ``flatten`` to
            ``C * h * w`` numbers, channel first.
        mean: red, green and blue, in 0..1; subtracted from the pixel values. The default is
            ImageNet's; weights trained with other values need those.
        std: red, green and blue, above 0; divides the difference.

    Raises:
        OptionError: an option is outside its range.

    >>> import torch
    >>> backbone = WideResNet(depth=10, width=1)
    >>> maps = backbone(torch.zeros(2, 3, 84, 84))
    >>> maps.shape, backbone.vectors(maps).shape
    (torch.Size([2, 64, 21, 21]), torch.Size([2, 64]))
    """

    def __init__(
        self,
        *,
        depth: int = 28,
        width: int = 10,
        drop_rate: float = 0.0,
        pooling: Pooling = "mean",
        mean: Colour = Preprocessing.mean,
        std: Colour = Preprocessing.std,
    ) -> None:
        super().__init__(pooling, mean, std)
        if depth < 10 or depth % 6 != 4:
            raise OptionError(f"depth must be 10, 16, 22, 28 and so on in steps of 6, got {depth}")
        if width < 1:
            raise OptionError(f"width must be at least 1, got {width}")
        if not 0 <= drop_rate < 1:
            raise OptionError(f"drop_rate must be in [0, 1), got {drop_rate}")
        self.depth = depth
        self.width = width
        self.drop_rate = drop_rate

        self.conv = nn.Conv2d(3, _STEM, 3, padding=1, bias=False)
        self.stages = nn.Sequential()
        before = _STEM
        for number, stride in enumerate(_STRIDES):
            channels = 2**number * _STEM * width
            stage = nn.Sequential()
            for place in range((depth - 4) // 6):
                stage.append(_Block(before, channels, 1 if place else stride, drop_rate))
                before = channels
            self.stages.append(stage)
        self.norm = nn.BatchNorm2d(before)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Map float images ``(n, 3, H, W)`` to maps ``(n, C, h, w)``, channels last in memory."""
        maps = self.stages(self.conv(prepared(images, 1, "wrn-28-10")))
        return functional.relu(self.norm(maps), inplace=True)


class _Block(nn.Module):
    """Two 3 x 3 convolutions, each after its norm and rectifier, with a shortcut."""

    shortcut: nn.Conv2d | None

    def __init__(self, in_width: int, width: int, stride: int, drop_rate: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_width)
        self.conv1 = nn.Conv2d(in_width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.drop = nn.Dropout(drop_rate)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.stride = stride
        self.shortcut = None
        if in_width != width:
            self.shortcut = nn.Conv2d(in_width, width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(x), inplace=True)
        # Where the width changes, norm and rectifier come before the shortcut too.
        kept = x if self.shortcut is None else self.shortcut(thinned(y, self.stride))
        y = functional.relu(normed(self.conv1, self.norm2, y), inplace=True)
        out: Tensor = kept + self.conv2(self.drop(y))
        return out
