"""The operations on several tasks: precision, and what is left to PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.gradient._operations import TaskOperations


def test_what_is_not_covered_goes_to_pytorch() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)
    mean, var = torch.randn(3), torch.rand(3)

    def all_of_them() -> list[Tensor]:
        return [
            functional.conv2d(x, weight, padding="same"),
            functional.conv2d(x[0], weight),
            functional.batch_norm(x, mean, var),
            functional.batch_norm(x[:, :, 0, 0], None, None, training=True),
            *functional.max_pool2d(x, 2, return_indices=True),
            functional.max_pool2d(x[0], 2),
            functional.adaptive_avg_pool2d(x, 2),
        ]

    expected = all_of_them()
    with TaskOperations(vmapped=True):
        found = all_of_them()
    torch.testing.assert_close(found, expected)


def test_half_precision_as_autocast_has_it() -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3), torch.randn(4)
    with torch.autocast("cpu", torch.bfloat16):
        expected = functional.conv2d(x, weight, bias)
        with TaskOperations(vmapped=False):
            found = functional.conv2d(x, weight, bias)
            normed = functional.batch_norm(found, None, None, training=True)
    assert found.dtype == normed.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


def test_statistics_of_many_locations_are_exact() -> None:
    torch.manual_seed(0)
    x = (torch.randn(20, 4, 64, 64) + 2).contiguous(memory_format=torch.channels_last)
    mean, variance = torch.zeros(4), torch.zeros(4)
    with TaskOperations(vmapped=False):
        functional.batch_norm(x, mean, variance, training=True, momentum=1.0)
    wanted_variance, wanted_mean = torch.var_mean(x.double(), dim=(0, 2, 3))
    torch.testing.assert_close(mean.double(), wanted_mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(variance.double(), wanted_variance, rtol=1e-6, atol=0)
