"""The twelve-layer residual backbone and its DropBlock."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones._layout import Colour, PooledBackbone, Pooling, normed, prepared
from fsframework.interfaces import OptionError, Preprocessing

__all__ = ["ResNet12"]

_N_STAGES = 4


class ResNet12(PooledBackbone):
    """Four residual blocks of three convolutions, the large backbone of most few-shot papers.

    A block is three 3 x 3 convolutions with BatchNorm and a leaky ReLU of slope 0.1, a 1 x 1
    convolution with BatchNorm as shortcut, and 2 x 2 max-pooling that drops an odd last row or
    column. Source: Lee, Maji, Ravichandran and Soatto 2019, "Meta-Learning with Differentiable
    Convex Optimization" (CVPR), section 4.1, in the form that FEAT, RENet and LibFewShot's
    ``resnet12`` share.

    In training, the first two stages end in dropout and the last two in DropBlock (Ghiasi et al.
    2018), whose rate rises linearly to ``drop_rate`` over the first ``drop_ramp_steps`` batches.

    Args:
        widths: channels of the four stages.
        drop_rate: share of values dropped in training, in [0, 1).
        drop_block_size: side of the dropped squares, in locations of the pooled map; at most the
            side of the map is used.
        drop_ramp_steps: batches until DropBlock reaches ``drop_rate``; 0 for no ramp.
        maxpool_last2: pool in the last two stages; without it 84 x 84 images give 21 x 21 maps
            rather than 5 x 5.
        last_pool: pool in the last stage; without only this 84 x 84 images give 10 x 10 maps, as
            for Brownian distance covariances (DeepBDC).
        pooling: how ``vectors`` pools a map: the ``mean`` over locations, as in the papers, or
            ``flatten`` to ``C * h * w`` numbers, channel first.
        mean: red, green and blue, in 0..1; subtracted from the pixel values. The default is
            ImageNet's; weights trained with other values need those.
        std: red, green and blue, above 0; divides the difference.

    Raises:
        OptionError: an option is outside its range.

    >>> backbone = ResNet12(widths=(8, 16, 24, 32))
    >>> maps = backbone(torch.zeros(2, 3, 84, 84))
    >>> maps.shape, backbone.vectors(maps).shape
    (torch.Size([2, 32, 5, 5]), torch.Size([2, 32]))
    """

    def __init__(  # noqa: PLR0913 - its parameters are the options
        self,
        *,
        widths: tuple[int, int, int, int] = (64, 160, 320, 640),
        drop_rate: float = 0.0,
        drop_block_size: int = 5,
        drop_ramp_steps: int = 40_000,
        maxpool_last2: bool = True,
        last_pool: bool = True,
        pooling: Pooling = "mean",
        mean: Colour = Preprocessing.mean,
        std: Colour = Preprocessing.std,
    ) -> None:
        super().__init__(pooling, mean, std)
        if len(widths) != _N_STAGES or min(widths) < 1:
            raise OptionError(f"widths must be four positive integers, got {widths}")
        if not 0 <= drop_rate < 1:
            raise OptionError(f"drop_rate must be in [0, 1), got {drop_rate}")
        if drop_block_size < 1:
            raise OptionError(f"drop_block_size must be at least 1, got {drop_block_size}")
        if drop_ramp_steps < 0:
            raise OptionError(f"drop_ramp_steps must be at least 0, got {drop_ramp_steps}")
        self.widths = widths
        self.drop_rate = drop_rate
        self.drop_block_size = drop_block_size
        self.drop_ramp_steps = drop_ramp_steps
        self.maxpool_last2 = maxpool_last2
        self.last_pool = last_pool

        pooled = (True, True, maxpool_last2, maxpool_last2 and last_pool)
        self.smallest_size = 2 ** sum(pooled)
        self.stages = nn.Sequential()
        for i, (in_width, width) in enumerate(zip((3, *widths), widths, strict=False)):
            drop: nn.Module
            if i < 2:
                drop = nn.Dropout(drop_rate)
            else:
                drop = _DropBlock(drop_rate, drop_block_size, drop_ramp_steps)
            self.stages.append(_Block(in_width, width, pooled[i], drop))

    def forward(self, images: Tensor) -> Tensor:
        """Map float images ``(n, 3, H, W)`` to maps ``(n, C, h, w)``, channels last in memory.

        Raises:
            OptionError: the images are too small to leave a map.
        """
        maps: Tensor = self.stages(prepared(images, self.smallest_size, "resnet12"))
        return maps


class _Block(nn.Module):
    """Three convolutions with a shortcut, then pooling and dropout."""

    def __init__(self, in_width: int, width: int, pool: bool, drop: nn.Module) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(width)
        self.shortcut = nn.Conv2d(in_width, width, 1, bias=False)
        self.shortcut_norm = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(2) if pool else nn.Identity()
        self.drop = drop
        for conv in (self.conv1, self.conv2, self.conv3, self.shortcut):
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="leaky_relu")

    def forward(self, x: Tensor) -> Tensor:
        y = _rectified(normed(self.conv1, self.norm1, x))
        y = _rectified(normed(self.conv2, self.norm2, y))
        y = normed(self.conv3, self.norm3, y) + normed(self.shortcut, self.shortcut_norm, x)
        # The leaky ReLU is monotonic, so it can follow the pooling, on a quarter of the map.
        dropped: Tensor = self.drop(_rectified(self.pool(y)))
        return dropped


def _rectified(x: Tensor) -> Tensor:
    return functional.leaky_relu(x, 0.1, inplace=True)


class _DropBlock(nn.Module):
    """Zero whole squares of a map in training and scale up the rest to keep the mean.

    Ghiasi et al. 2018, algorithm 1, with one mask per channel as in MetaOptNet: a location is the
    corner of a dropped square with probability gamma, chosen so that about ``rate`` of all values
    are dropped.
    """

    n_steps: Tensor

    def __init__(self, rate: float, block_size: int, ramp_steps: int) -> None:
        super().__init__()
        self.rate = rate
        self.block_size = block_size
        self.ramp_steps = ramp_steps
        # A buffer, so that a resumed training continues the ramp where it stopped.
        self.register_buffer("n_steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        self.n_steps += 1
        height, width = x.shape[-2:]
        size = min(self.block_size, height, width)
        corners = (height - size + 1, width - size + 1)
        ramp = (self.n_steps / self.ramp_steps).clamp(max=1) if self.ramp_steps else 1
        gamma = self.rate * ramp * (height * width) / (size**2 * corners[0] * corners[1])
        corner = (torch.rand(*x.shape[:2], *corners, device=x.device) < gamma).to(x.dtype)
        # A location is dropped if any square that covers it is: a maximum over their corners.
        margin = size - 1
        padded = functional.pad(corner, (margin, margin, margin, margin))
        kept = 1 - functional.max_pool2d(padded, size, stride=1)
        return x * kept * (kept.numel() / kept.sum().clamp(min=1))
