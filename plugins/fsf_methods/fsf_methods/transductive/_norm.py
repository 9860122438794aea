"""BatchNorm over the rows of a task, with running statistics or without."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["RowNorm"]

_EPS = 1e-5
_MOMENTUM = 0.1


class RowNorm(nn.Module):
    """BatchNorm of rows, in which a row may count several times.

    With running statistics it is PyTorch's BatchNorm: training uses the statistics of all rows of
    all tasks and updates the running ones, evaluation uses those. Without, it normalises each task
    by the statistics of its own rows, in training and in evaluation.

    Args:
        width: numbers per row.
        running: whether to keep running statistics.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, *, running: bool) -> None:
        super().__init__()
        self.running = running
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        if running:
            self.register_buffer("running_mean", torch.zeros(width))
            self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Tensor, counts: Tensor | None = None) -> Tensor:
        """Normalise rows ``(tasks, rows, width)``.

        Args:
            counts: how often each row counts, float ``(rows,)``; once if not given.
        """
        scale, offset = self.affine(x, counts)
        return torch.addcmul(offset, x, scale)

    def affine(self, x: Tensor | None, counts: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return factor and offset of the normalisation, ``(tasks or 1, 1, width)``.

        Args:
            x: the rows; ``None`` where running statistics are used, in evaluation.
        """
        if self.running and not self.training:
            mean, variance = self.running_mean, self.running_var
            mean, variance = mean[None, None], variance[None, None]
        else:
            assert x is not None
            mean, variance = self._measured(x.float(), counts)
        scale = self.weight * torch.rsqrt(variance + _EPS)
        return scale, self.bias - mean * scale

    def _measured(self, x: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return mean and variance ``(tasks or 1, 1, width)`` of the rows."""
        dims = (0, 1) if self.running else (1,)
        if counts is None:
            counts = x.new_ones(x.shape[1])
        share = (counts / counts.sum())[:, None]
        if self.running:
            share = share / len(x)
        mean = (share * x).sum(dim=dims, keepdim=True)
        variance = (share * (x - mean).square()).sum(dim=dims, keepdim=True)
        if self.running:
            with torch.no_grad():
                total = len(x) * counts.sum()
                unbiased = variance[0, 0] * total / (total - 1).clamp(min=1)
                self.running_mean.lerp_(mean[0, 0], _MOMENTUM)
                self.running_var.lerp_(unbiased, _MOMENTUM)
        return mean, variance
