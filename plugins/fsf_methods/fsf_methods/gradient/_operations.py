"""Twice-differentiable operations on the maps and tokens of several tasks in parallel.

PyTorch's own do all this too, at several times the cost: under ``vmap`` they lose the channels-last
layout between any two layers, and the second derivative of BatchNorm takes dozens of passes over
its maps. Here the tasks of a ``vmap`` are merged with the channels, ``(n, tasks * C, h, w)``, so a
convolution has one group per task, and BatchNorm and pooling are unaffected by tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

__all__ = ["TaskOperations"]

_Dims = tuple[int | None, ...]


class TaskOperations(TorchFunctionMode):
    """Within the block, the operations on maps and tokens are those of this module.

    They are convolutions, BatchNorm in batch mode, max-pooling, means of whole maps and attention.

    Calls that they do not cover, such as padding by name, go to PyTorch.

    Args:
        vmapped: whether the block is in a ``vmap`` over tasks.
    """

    def __init__(self, *, vmapped: bool) -> None:
        super().__init__()
        self._operations = _OF_MANY if vmapped else _OF_ONE

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call this module's operation, or PyTorch's."""
        ours = self._operations.get(func)
        result = ours(*args, **(kwargs or {})) if ours else NotImplemented
        return func(*args, **(kwargs or {})) if result is NotImplemented else result


def _applied(function: type[torch.autograd.Function], *args: Any) -> Any:
    """Call a function that has a gradient of its own; ``apply`` has no annotations."""
    return function.apply(*args)


# The parameters below have the names by which PyTorch's functions may be called.


def _conv2d(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    if isinstance(padding, str) or input.ndim != 4:
        return NotImplemented
    # What autocast does for PyTorch's own operation.
    kind = input.device.type
    autocast = torch.is_autocast_enabled(kind)
    dtype = torch.get_autocast_dtype(kind) if autocast else weight.dtype
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    sizes = _pair(stride), _pair(padding), _pair(dilation)
    return _applied(_Convolution, input.to(dtype), weight.to(dtype), bias.to(dtype), *sizes, groups)


def _pair(value: int | Sequence[int]) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


class _Convolution(torch.autograd.Function):
    """The 2-d convolution of ``x (n, i, h, w)`` with ``weight (o, i // groups, k, l)``, plus bias.

    It is linear in image and weight, and its two gradients are linear in all their inputs: of the
    three functions, each one's gradients are the other two.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, *shape: Any) -> Tensor:
        return _convolved(x, weight, bias, shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _, *ctx.shape = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        gradients = _applied(
            _ConvolutionGradient, g, x, weight, ctx.needs_input_grad[0], *ctx.shape
        )
        return *gradients, *[None] * 4

    @staticmethod
    def vmap(
        info: Any, in_dims: _Dims, x: Tensor, weight: Tensor, bias: Tensor, *shape: Any
    ) -> Any:
        tasks = info.batch_size
        *sizes, groups = shape
        if in_dims[1] is None and in_dims[2] is None:
            assert in_dims[0] is not None
            y = _applied(_Convolution, x.movedim(in_dims[0], 0).flatten(0, 1), weight, bias, *shape)
            return y.unflatten(0, (tasks, -1)), 0
        flat = [
            (t.expand(tasks, *t.shape) if dim is None else t.movedim(dim, 0)).flatten(0, 1)
            for t, dim in zip((weight, bias), in_dims[1:3], strict=True)
        ]
        y = _applied(_Convolution, _merged(x, in_dims[0], tasks), *flat, *sizes, groups * tasks)
        return y.unflatten(1, (tasks, -1)), 1


class _ConvolutionGradient(torch.autograd.Function):
    """The gradients for input, weight and bias of a convolution whose output has ``g``.

    The input's is ``None`` where ``wants_input`` is false.
    """

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, weight: Tensor, wants_input: bool, *shape: Any
    ) -> tuple[Tensor | None, ...]:
        ctx.save_for_backward(g, x, weight)
        ctx.shape = shape
        ctx.set_materialize_grads(False)
        return _gradients(g, x, weight, shape, (wants_input, True, True))

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, a: Tensor | None, b: Tensor | None, c: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        g, x, weight = ctx.saved_tensors
        wants_g, wants_x, wants_weight = ctx.needs_input_grad[:3]
        of_g = of_x = of_weight = None
        if wants_g:
            # The bias is added to the first available convolution.
            if a is not None:
                of_g, c = _convolved(_like(a, x), weight, c, ctx.shape), None
            if b is not None:
                of_b, c = _convolved(x, b, c, ctx.shape), None
                of_g = of_b if of_g is None else of_g.add_(of_b)
            if c is not None:
                of_g = _channels(c).expand_as(g)
        if wants_x and b is not None:
            of_x = _gradients(g, x, b, ctx.shape, (True, False, False))[0]
        if wants_weight and a is not None:
            of_weight = _gradients(g, _like(a, x), weight, ctx.shape, (False, True, False))[1]
        return of_g, of_x, of_weight, *[None] * 5


def _convolved(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Sequence[Any]) -> Tensor:
    stride, padding, dilation, groups = shape
    return torch.convolution(x, weight, bias, stride, padding, dilation, False, [0, 0], groups)


def _gradients(
    g: Tensor, x: Tensor, weight: Tensor, shape: Sequence[Any], mask: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    stride, padding, dilation, groups = shape
    g = _like(g, x)
    # On a CPU, a sum of its own takes a fifth of what the bias adds to the weights' gradient.
    of_x, of_weight, _ = torch.ops.aten.convolution_backward(
        g, x, weight, None, stride, padding, dilation, False, [0, 0], groups,
        (*mask[:2], False),
    )  # fmt: skip
    return of_x, of_weight, g.sum((0, 2, 3)) if mask[2] else None


def _like(g: Tensor, x: Tensor) -> Tensor:
    """Return ``g`` in the layout of ``x``, since mixed layouts are many times as slow."""
    is_last = x.is_contiguous(memory_format=torch.channels_last)
    return g.contiguous(memory_format=torch.channels_last) if is_last else g


def _merged(x: Tensor, dim: int | None, tasks: int) -> Tensor:
    """Merge the tasks, dimension ``dim`` of images, with the channels: ``(n, tasks * C, h, w)``.

    Channels are last in memory; ``None`` means images that all tasks share.
    """
    if dim is None:
        return x.repeat(1, tasks, 1, 1).contiguous(memory_format=torch.channels_last)
    x = x.movedim(dim, 1)
    if x.stride(2) != 1:
        x = x.movedim((1, 2), (-2, -1)).contiguous().movedim((-2, -1), (1, 2))
    return x.flatten(1, 2).contiguous(memory_format=torch.channels_last)


def _batch_norm(  # noqa: PLR0913 - the parameters of PyTorch's function
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if not training or input.ndim != 4:
        return NotImplemented
    channels = input.shape[1]
    weight = input.new_ones(channels) if weight is None else weight
    bias = input.new_zeros(channels) if bias is None else bias
    normed, mean, r = _applied(_Normalisation, input, weight, bias, eps)
    if running_mean is not None and running_var is not None:
        n = input.numel() // channels
        variance = r.pow(-2) - eps
        with torch.no_grad():
            running_mean.mul_(1 - momentum).add_(momentum * mean)
            running_var.mul_(1 - momentum).add_(momentum * n / max(1, n - 1) * variance)
    return normed


class _Normalisation(torch.autograd.Function):
    """Maps ``x (n, C, h, w)`` minus mean, over deviation, times weight, plus bias ``(C,)``.

    Returns the result, the mean and one over the deviation, ``(C,)``. PyTorch's own BatchNorm does
    this, but in channels-last its sums of squares have rounding errors that grow with the number of
    locations, and many steps amplify them. In single precision on a CPU, each column of the maps
    therefore has statistics of its own, which are then combined.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, ...]:
        if x.device.type != "cpu" or x.dtype != torch.float32:
            return torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
        rows = x.movedim(1, -1).flatten(2).flatten(0, 1)
        found = torch.batch_norm_update_stats(rows, None, None, 0.0)
        means, variances = (of_columns.view(-1, x.shape[1]) for of_columns in found)
        mean = means.mean(dim=0)
        variance = (variances + (means - mean).square()).mean(dim=0)
        y = torch.native_batch_norm(x, weight, bias, mean, variance, False, 0.0, eps)[0]
        return y, mean, torch.rsqrt(variance + eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, weight, *_ = inputs
        _, mean, r = output
        ctx.mark_non_differentiable(mean, r)
        ctx.save_for_backward(x, weight, mean, r)

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Any, ...]:
        return *_applied(_NormalisationGradient, g, *ctx.saved_tensors), None

    @staticmethod
    def vmap(info: Any, in_dims: _Dims, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Any:
        tasks = info.batch_size
        flat = [
            (t.expand(tasks, -1) if dim is None else t.movedim(dim, 0)).flatten()
            for t, dim in zip((weight, bias), in_dims[1:3], strict=True)
        ]
        normed, mean, r = _applied(_Normalisation, _merged(x, in_dims[0], tasks), *flat, eps)
        by_task = (mean.unflatten(0, (tasks, -1)), r.unflatten(0, (tasks, -1)))
        return (normed.unflatten(1, (tasks, -1)), *by_task), (1, 0, 0)


class _NormalisationGradient(torch.autograd.Function):
    """The gradients for input, weight and bias of a normalisation whose output has ``g``.

    With ``u = (x - mean) * r`` and ``P(g) = g - mean(g) - u * mean(g * u)`` they are
    ``weight * r * P(g)``, ``sum(g * u)`` and ``sum(g)``. Their own gradients, given ``a``, ``b``
    and ``c``, follow from ``du = r * P(dx)`` and ``dr = -r**2 * mean(u * dx)``. All are
    combinations of x, g and a with one factor per channel.
    """

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, r: Tensor
    ) -> tuple[Tensor, ...]:
        g = _like(g, x)
        of_x, dot_g, sum_g = torch.ops.aten.native_batch_norm_backward(
            g, x, weight, None, None, mean, r, True, 0.0, (True, True, True)
        )
        ctx.save_for_backward(g, x, weight, mean, r, sum_g, dot_g)
        return of_x, dot_g, sum_g

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor | None, ...]:
        g, x, weight, mean, r, sum_g, dot_g = ctx.saved_tensors
        a = _like(a, x)
        n = x.numel() // x.shape[1]
        sum_a = _sum(a)
        dot_a = (_sum(a * x) - mean * sum_a) * r
        dot_ag = _sum(a * g) - (sum_a * sum_g + dot_a * dot_g) / n  # sum(a * P(g))
        by_u = b - weight * r * dot_a / n
        of_g = None
        if ctx.needs_input_grad[0]:
            by_a = weight * r
            constant = c - by_a * sum_a / n - by_u * r * mean
            of_g = _affine(g.dtype, constant, (a, by_a), (x, by_u * r))
        of_x = None
        if ctx.needs_input_grad[1]:
            by_g, by_a = r * by_u, -weight * r.square() * dot_g / n
            by_x = -r * (by_g * dot_g + by_a * dot_a + weight * r.square() * dot_ag) / n
            constant = -(by_g * sum_g + by_a * sum_a) / n - by_x * mean
            of_x = _affine(x.dtype, constant, (x, by_x), (g, by_g), (a, by_a))
        return of_g, of_x, r * dot_ag, None, None


def _sum(x: Tensor) -> Tensor:
    """Sum ``(n, C, h, w)`` over all but the channels, in single precision at least."""
    dtype = torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype
    return x.sum(dim=(0, 2, 3), dtype=dtype)


def _affine(dtype: torch.dtype, constant: Tensor, *terms: tuple[Tensor, Tensor]) -> Tensor:
    """Return the constant plus the terms' maps times their factors, all ``(C,)`` per channel."""
    (x, factor), *rest = terms
    total = torch.addcmul(_channels(constant), x, _channels(factor))
    for x, factor in rest:
        total.addcmul_(x, _channels(factor))
    return total.to(dtype)


def _channels(x: Tensor) -> Tensor:
    return x[:, None, None]


def _max_pool2d(input: Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
    if input.ndim != 4 or kwargs.get("return_indices"):
        return NotImplemented
    return _applied(_Pooling, input, args, kwargs)


class _Pooling(torch.autograd.Function):
    """Max-pooling under ``vmap``, differentiated by PyTorch."""

    @staticmethod
    def forward(x: Tensor, args: Any, kwargs: Any) -> Tensor:
        raise NotImplementedError("must be called within a vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: _Dims, x: Tensor, args: Any, kwargs: Any) -> Any:
        tasks = info.batch_size
        y = functional.max_pool2d(_merged(x, in_dims[0], tasks), *args, **kwargs)
        return y.unflatten(1, (tasks, -1)), 1


def _mean_pool2d(input: Tensor, output_size: Any) -> Any:  # noqa: A002
    """Average whole maps, since PyTorch's operation does not support many tasks."""
    if output_size not in (1, (1, 1), [1, 1]) or input.ndim != 4:
        return NotImplemented
    return input.mean(dim=(2, 3), keepdim=True)


def _attention(*args: Any, **kwargs: Any) -> Tensor:
    """Attend without fusion, which lacks second derivatives and support for many tasks."""
    with sdpa_kernel(SDPBackend.MATH):
        return functional.scaled_dot_product_attention(*args, **kwargs)


_OF_ONE: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.conv2d: _conv2d,
    functional.batch_norm: _batch_norm,
    functional.scaled_dot_product_attention: _attention,
}
_OF_MANY: dict[Callable[..., Any], Callable[..., Any]] = {
    **_OF_ONE,
    functional.max_pool2d: _max_pool2d,
    functional.adaptive_avg_pool2d: _mean_pool2d,
}
