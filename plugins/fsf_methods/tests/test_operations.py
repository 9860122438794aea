"""The operations on several tasks, compared with PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from fsf_methods.gradient._operations import TaskOperations, _Convolution, _Normalisation


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("learned", [(0, 1, 2), (1, 2), (0,), (2,)])
@pytest.mark.parametrize("shape", [((2, 1), (1, 1), (1, 1), 2), ((1, 1), (0, 2), (2, 1), 1)])
def test_the_first_two_derivatives_of_a_convolution(shape: Any, learned: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    *sizes, groups = shape

    def convolved(*inputs: Tensor) -> Any:
        # Squared, since gradients of a function linear in all parameters would not depend on them.
        return _Convolution.apply(*inputs, *sizes, groups).square()

    inputs = [double(2, 4, 6, 5), double(2, 4 // groups, 3, 3), double(2)]
    inputs = [t.requires_grad_(i in learned) for i, t in enumerate(inputs)]
    assert torch.autograd.gradcheck(convolved, inputs)
    assert torch.autograd.gradgradcheck(convolved, inputs)


@pytest.mark.parametrize("weight", [None, 0.0])
def test_the_first_two_derivatives_of_batch_norm(weight: float | None) -> None:
    torch.manual_seed(0)
    inputs = [double(3, 4, 3, 2), double(4), double(4)]

    def normalised(*inputs: Tensor) -> Any:
        return _Normalisation.apply(*inputs, 1e-2)[0]

    if weight is not None:
        # A weight of 0 gives the input no gradient, but the weight's own depends on the input.
        inputs[1] = torch.full((4,), weight, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(normalised, inputs)
    assert torch.autograd.gradgradcheck(normalised, inputs)


def network(x: Tensor, weight: Tensor, bias: Tensor | None, mean: Tensor, var: Tensor) -> Tensor:
    y = functional.conv2d(x, weight, bias, stride=2, padding=1)
    y = functional.batch_norm(y, mean, var, bias, None, training=True, momentum=0.3)
    return functional.max_pool2d(y, 2, padding=1)


@pytest.mark.parametrize("shared", ["nothing", "weight", "images"])
@pytest.mark.parametrize("with_bias", [True, False])
def test_values_and_statistics_under_vmap_are_those_of_a_loop(shared: str, with_bias: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 5, 2, 7, 7), torch.randn(3, 4, 2, 3, 3)
    bias = torch.randn(3, 4) if with_bias else None
    mean, var = torch.randn(3, 4), torch.rand(3, 4)
    # What all tasks share is given once.
    given = [x[0] if shared == "images" else x, weight[0] if shared == "weight" else weight, bias]
    in_dims = [0 if part is not None and part.ndim in (2, 5) else None for part in given]
    wanted_mean, wanted_var = mean.clone(), var.clone()
    expected = []
    for t in range(3):
        own = [part if dim is None else part[t] for part, dim in zip(given, in_dims, strict=True)]
        expected.append(network(*own, wanted_mean[t], wanted_var[t]))
    with TaskOperations(vmapped=True):
        found = torch.vmap(network, (*in_dims, 0, 0))(*given, mean, var)
    torch.testing.assert_close(found, torch.stack(expected))
    torch.testing.assert_close((mean, var), (wanted_mean, wanted_var))


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
        ]

    expected = all_of_them()
    with TaskOperations(vmapped=True):
        found = all_of_them()
    torch.testing.assert_close(found, expected)


def transformer(x: Tensor, weight: Tensor) -> Tensor:
    """Attention between the locations of maps ``(n, C, h, w)``, then the mean of the result."""
    tokens = x.flatten(2).transpose(1, 2)[:, None] @ weight
    attended = functional.scaled_dot_product_attention(tokens, tokens, 2 * tokens)
    maps = attended[:, 0].transpose(1, 2).reshape_as(x)
    return functional.adaptive_avg_pool2d(maps, 1)


def test_attention_and_means_under_vmap_and_twice_differentiated() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 5, 4, 2, 3), torch.randn(3, 4, 4)

    def adapted(x: Tensor, weight: Tensor) -> Tensor:
        step = grad(lambda w: transformer(x, w).square().sum())
        return transformer(x, weight - 0.1 * step(weight)).square().sum()

    with TaskOperations(vmapped=True):
        together = vmap(grad(adapted, argnums=1))(x, weight)
    for t in range(3):
        with TaskOperations(vmapped=False):
            alone = grad(adapted, argnums=1)(x[t], weight[t])
        torch.testing.assert_close(together[t], alone, rtol=1e-4, atol=1e-5)
    with TaskOperations(vmapped=True):
        pooled = functional.adaptive_avg_pool2d(x[0], 2)
    torch.testing.assert_close(pooled, functional.adaptive_avg_pool2d(x[0], 2))


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
    _, mean, variance = _Normalisation.apply(x, torch.ones(4), torch.zeros(4), 1e-5)
    wanted_variance, wanted_mean = torch.var_mean(x.double(), dim=(0, 2, 3), correction=0)
    torch.testing.assert_close(mean.double(), wanted_mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(variance.double(), wanted_variance, rtol=1e-6, atol=0)
