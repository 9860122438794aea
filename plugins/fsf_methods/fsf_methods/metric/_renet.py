"""Relational embedding networks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.metric._layers import fold
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    check_above,
    check_at_least,
)

__all__ = ["RENet"]

_WINDOW = 5
_REDUCED = 64
_PLANES = 16
_CORRELATIONS_AT_ONCE = {"cpu": 25_000, "cuda": 1_250_000}
"""Pairs of locations refined per block in evaluation, 625 for a pair of 5 x 5 maps: on a CPU the
results must stay in the caches, on a GPU there should be enough of them to fill it."""


class RENet(FewShotMethod):
    """Compare the parts of a query and a support image that attention finds alike.

    Source: Kang, Kwon, Min and Cho 2021, "Relational Embedding for Few-Shot Classification" (ICCV),
    and its authors' code. ``embed`` is the self-correlational representation: the similarity of
    each location to its 5 x 5 neighbours, which convolutions turn into an addition to the map.
    ``scores`` is the cross-correlational attention: the similarity of every location of a support
    image with every location of a query, refined by separable 4-d convolutions, weighs the
    locations of both; the score is the cosine of the two pooled maps. The loss adds to the
    episode's two class losses, of a linear classifier of pooled maps: that of a batch of the base
    classes drawn in addition to the episode, and that of the queries without their channel mean.
    The batch is embedded separately from the episode, so BatchNorm sees one after the other.

    In a stage of episodes only (``training.learns_from=episodes``), the episode's own images
    replace the batch, as in LibFewShot. One deviation: where a map has a single location, its
    attention is 1.

    Args:
        temperature: divides the cosines, above 0.
        temperature_attn: divides the logits of the attention, above 0; the authors use 2 for CUB
            and 5 for miniImageNet, tieredImageNet and CIFAR-FS.
        lambda_epi: weight of the episode's loss relative to the class losses, at least 0; the
            authors use 0.25 for miniImageNet and tieredImageNet, 0.5 for CIFAR-FS and 1.5 for CUB.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "maps"
    learns_from = "both"

    def __init__(
        self,
        *,
        temperature: float = 0.2,
        temperature_attn: float = 5.0,
        lambda_epi: float = 0.25,
    ) -> None:
        super().__init__()
        check_above(0, temperature=temperature, temperature_attn=temperature_attn)
        check_at_least(0, lambda_epi=lambda_epi)
        self.temperature = temperature
        self.temperature_attn = temperature_attn
        self.lambda_epi = lambda_epi

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the layers for maps ``(C, h, w)``; the classifier only with base classes."""
        channels = item_shape[0]
        self.self_correlation = _SelfCorrelation(channels)
        self.reduce = _ConvNorm(channels, _REDUCED, 1)
        self.widen = _SeparableConv4d(1, _PLANES)
        self.narrow = _SeparableConv4d(_PLANES, 1)
        self.classify = nn.Linear(channels, n_base_classes) if n_base_classes else None

    def embed(self, items: Tensor) -> Tensor:
        """Add the self-correlational representation to maps ``(n, C, h, w)``; at least 0."""
        added: Tensor = self.self_correlation(items)
        return functional.relu(added + items)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return cosines over ``temperature``, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, C, h, w)``, embedded.
            query: float ``(tasks, n, C, h, w)``, embedded.
        """
        support = support - support.mean(dim=-3, keepdim=True)
        query = query - query.mean(dim=-3, keepdim=True)
        on_support, on_query = self._attention(
            self._directions(support.flatten(1, 2)), self._directions(query)
        )
        # Sums over shots and locations replace the paper's means: the cosine is the same.
        tasks, way, shot = support.shape[:3]
        support_pooled = torch.einsum(
            "twsln,twscl->tnwc",
            on_support.reshape(tasks, way, shot, *on_support.shape[2:]),
            support.flatten(-2),
        )
        query_pooled = torch.einsum(
            "twnl,tncl->tnwc",
            on_query.reshape(tasks, way, shot, *on_query.shape[2:]).sum(dim=2),
            query.flatten(-2),
        )
        cosines = functional.cosine_similarity(support_pooled, query_pooled, dim=-1)
        return cosines / self.temperature

    def loss(self, batch: Batch) -> Tensor:
        """Return class loss + class loss of the shifted queries + lambda_epi * episode loss."""
        assert self.classify is not None, "built without base classes, RENet has no loss"
        assert batch.support_classes is not None
        assert batch.query_classes is not None
        assert batch.query_labels is not None
        support, query = self.embed_episode(batch)
        support_pooled = support.mean(dim=(-2, -1)).flatten(0, 2)
        query_pooled = query.mean(dim=(-2, -1)).flatten(0, 1)
        query_classes = batch.query_classes.flatten()
        if batch.items is None:
            images = torch.cat([support_pooled, query_pooled])
            classes = torch.cat([batch.support_classes.flatten(), query_classes])
        else:
            assert batch.classes is not None
            images, classes = self.embed(batch.items).mean(dim=(-2, -1)), batch.classes
        of_images = functional.cross_entropy(self.classify(images), classes)
        shifted = query_pooled - query_pooled.mean(dim=1, keepdim=True)
        of_queries = functional.cross_entropy(self.classify(shifted), query_classes)
        of_episode = functional.cross_entropy(
            self.scores(support, query).flatten(0, 1), batch.query_labels.flatten()
        )
        return of_images + of_queries + self.lambda_epi * of_episode

    def _directions(self, maps: Tensor) -> Tensor:
        """Map ``(tasks, n, C, h, w)`` to 64 channels whose vector has length 1 everywhere."""
        reduced = functional.relu(self.reduce(maps.flatten(0, 1)), inplace=True)
        directions = functional.normalize(reduced, dim=1, eps=1e-8)
        return directions.reshape(*maps.shape[:2], *directions.shape[1:])

    def _attention(self, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """Weigh the locations of every support image and query for each other.

        Args:
            support: ``(tasks, s, 64, h, w)``, directions.
            query: ``(tasks, n, 64, h, w)``, directions.

        Returns:
            ``(tasks, s, h * w, n)`` for the support images and ``(tasks, s, n, h * w)`` for the
            queries.
        """
        if self.training:
            # In one call, since BatchNorm must see all of them.
            return self._attend(support, query, (self.widen, self.narrow))
        layers = [layer.folded(query.shape[-2:]) for layer in (self.widen, self.narrow)]
        tasks, n_support = support.shape[:2]
        n_query, locations = query.shape[1], math.prod(query.shape[-2:])
        on_support = query.new_empty(tasks, n_support, locations, n_query)
        on_query = query.new_empty(tasks, n_support, n_query, locations)
        most = _CORRELATIONS_AT_ONCE["cpu" if query.device.type == "cpu" else "cuda"]
        pairs = max(1, most // locations**2)
        blocks = itertools.product(
            _slices(tasks, 1),
            _slices(n_support, max(1, pairs // n_query)),
            _slices(n_query, pairs),
        )
        for t, s, q in blocks:
            weights = self._attend(support[t, s], query[t, q], layers)
            on_support[t, s, :, q], on_query[t, s, q] = weights
        return on_support, on_query

    def _attend(
        self, support: Tensor, query: Tensor, layers: Sequence[_Step]
    ) -> tuple[Tensor, Tensor]:
        """Do the work of ``_attention`` with given layers, for all pairs in one call."""
        tasks, n_support, channels, height, width = support.shape
        locations, n_query = height * width, query.shape[1]
        alike = torch.matmul(
            support.flatten(-2).mT,
            query.flatten(-2).movedim(2, 1).reshape(tasks, 1, channels, n_query * locations),
        )
        shape = (tasks * n_support, height, width, n_query, height, width, 1)
        refined = self._symmetric(alike.reshape(shape), layers)
        refined = refined.reshape(tasks, n_support, locations, n_query, locations)
        return (
            _location_weights(refined, 2, self.temperature_attn).sum(dim=4),
            _location_weights(refined, 4, self.temperature_attn).sum(dim=2),
        )

    def _symmetric(self, x: Tensor, layers: Sequence[_Step]) -> Tensor:
        """Refine correlations, and those with support and query swapped, and add the two."""
        swapped = x.permute(0, 4, 5, 3, 1, 2, 6)
        if self.training:
            # One after the other, so that each has its own batch statistics.
            first, second = _by_pair(x, layers), _by_pair(swapped, layers)
        else:
            first, second = _stacked(torch.cat([x, swapped]), layers).chunk(2)
        return first + second.permute(0, 4, 5, 3, 1, 2, 6)


def _slices(n: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, n, size)]


class _SelfCorrelation(nn.Module):
    """Maps ``(n, C, h, w)`` to their self-correlational representation of the same shape.

    The 5-d self-correlation - the product, channel by channel, of a location with each of its 5 x 5
    neighbours - and the convolutions over the neighbourhood, which two unpadded 3 x 3 kernels
    shrink to a point.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter = _ConvNorm(channels, _REDUCED, 1)
        self.shrink = _ConvNorm(_REDUCED, _REDUCED, 3)
        self.shrink_more = _ConvNorm(_REDUCED, _REDUCED, 3)
        self.leave = _ConvNorm(_REDUCED, channels, 1)

    def forward(self, maps: Tensor) -> Tensor:
        n, channels, height, width = maps.shape
        locations = height * width
        unit = functional.normalize(functional.relu(maps), dim=1).permute(0, 2, 3, 1).contiguous()
        margin = _WINDOW // 2
        padded = functional.pad(unit, (0, 0, margin, margin, margin, margin))
        neighbours = padded.unfold(1, _WINDOW, 1).unfold(2, _WINDOW, 1).permute(0, 4, 5, 1, 2, 3)
        # (n, u, v, h, w, C): the window positions first, each with all locations of the map, so
        # that neighbours along v are h * w apart and the convolutions work on long rows.
        products = unit[:, None, None] * neighbours.contiguous()
        x = products.reshape(n, _WINDOW, _WINDOW * locations, channels).permute(0, 3, 1, 2)
        x = functional.relu(self.enter(x), inplace=True)
        x = functional.relu(self.shrink(x, dilation=(1, locations)), inplace=True)
        x = functional.relu(self.shrink_more(x, dilation=(1, locations)), inplace=True)
        result: Tensor = self.leave(x)
        return result.reshape(n, channels, height, width)


class _ConvNorm(nn.Module):
    """A convolution and its BatchNorm, folded into the convolution in evaluation."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor, dilation: tuple[int, int] = (1, 1)) -> Tensor:
        if not self.training:
            return functional.conv2d(x, *fold(self.conv, self.norm), dilation=dilation)
        normed: Tensor = self.norm(functional.conv2d(x, self.conv.weight, dilation=dilation))
        return normed


# Below, correlations of pairs of images are tensors (m, h, w, n, u, v, c): m support images and for
# each n queries, (h, w) a location of the one and (u, v) of the other, c channels. With the
# channels innermost, both 2-d convolutions of a separable 4-d one work in place: over (u, v)
# because it is next to them, over (h, w) as rows whose neighbours are n * u * v apart.

_Step = Callable[[Tensor], Tensor]


def _stacked(x: Tensor, layers: Sequence[_Step]) -> Tensor:
    for i, layer in enumerate(layers):
        x = layer(_rectified(x) if i else x)
    return x


def _by_pair(x: Tensor, layers: Sequence[_Step]) -> Tensor:
    """Do what ``_stacked`` does as if each pair had its own support image.

    Gradients are several times as fast with the shorter rows; without them, long rows are faster.
    """
    m, h, w, n, *rest = x.shape
    y = _stacked(x.movedim(3, 1).reshape(m * n, h, w, 1, *rest), layers)
    return y.reshape(m, n, h, w, *rest).movedim(1, 3)


class _SeparableConv4d(nn.Module):
    """A 4-d convolution as one over (h, w), one over (u, v) and one over channels.

    Yang and Ramanan 2019, as the paper uses it: every step ends in BatchNorm, and the first also in
    a ReLU. Padding with zeros keeps (h, w, u, v).
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.over_hw = _ConvNorm(in_channels, in_channels, 3)
        self.over_uv = _ConvNorm(in_channels, in_channels, 3)
        self.over_channels = _ConvNorm(in_channels, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(m, h, w, n, u, v, in_channels)`` to ``(m, h, w, n, u, v, out_channels)``."""
        size = x.shape[1:3]
        x = _batch_norm(self.over_hw.norm, _over_hw(size, self.over_hw.conv.weight)(x))
        x = _over_uv(size, self.over_uv.conv.weight)(_rectified(x))
        x = _batch_norm(self.over_uv.norm, x)
        x = functional.linear(x, self.over_channels.conv.weight.flatten(1))
        return _batch_norm(self.over_channels.norm, x)

    def folded(self, size: Sequence[int]) -> _Step:
        """Return the same function with running statistics, for maps of a size.

        Everything after the ReLU is linear: one convolution over (u, v) directly to the output
        channels suffices, with 1/16 of the work where there is only one of these.
        """
        uv_weight, uv_bias = fold(self.over_uv.conv, self.over_uv.norm)
        mix, mix_bias = fold(self.over_channels.conv, self.over_channels.norm)
        mix = mix.flatten(1)
        over_hw = _over_hw(size, *fold(self.over_hw.conv, self.over_hw.norm))
        over_uv = _over_uv(
            size, torch.einsum("om,mikl->oikl", mix, uv_weight), mix @ uv_bias + mix_bias
        )
        return lambda x: over_uv(_rectified(over_hw(x)))


def _rectified(x: Tensor) -> Tensor:
    # In place on a view, autograd would copy the whole base twice.
    return functional.relu(x, inplace=not torch.is_grad_enabled())


def _batch_norm(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Normalise ``(..., c)``, as one channels-last image a pixel high."""
    y: Tensor = norm(x.reshape(1, 1, -1, x.shape[-1]).permute(0, 3, 1, 2))
    return y.permute(0, 2, 3, 1).reshape(x.shape)


def _over_hw(size: Sequence[int], weight: Tensor, bias: Tensor | None = None) -> _Step:
    """Return the convolution of maps ``size`` over (h, w) by a 3 x 3 ``weight (o, i, 3, 3)``."""
    if weight.shape[:2] == (1, 1):
        matrix = _as_matrix(weight, size)

        def multiply(x: Tensor) -> Tensor:
            y = matrix @ x.reshape(len(x), len(matrix), -1)
            return (y if bias is None else y + bias).reshape(x.shape)

        return multiply

    def convolve(x: Tensor) -> Tensor:
        m, h, w, n, u, v, i = x.shape
        apart = n * u * v
        rows = x.reshape(m, h, w * apart, i).permute(0, 3, 1, 2)
        y = functional.conv2d(rows, weight, bias, padding=(1, apart), dilation=(1, apart))
        return y.permute(0, 2, 3, 1).reshape(m, h, w, n, u, v, -1)

    return convolve


def _over_uv(size: Sequence[int], weight: Tensor, bias: Tensor | None = None) -> _Step:
    """Return the convolution of maps ``size`` over (u, v) by a 3 x 3 ``weight (o, i, 3, 3)``."""
    if 1 in weight.shape[:2]:
        # Nine taps of a single channel leave vector units idle; a matrix product does not.
        matrix = _as_matrix(weight, size)
        biases = None if bias is None else bias.repeat(math.prod(size))
        if biases is not None and weight.shape[1] == 1:
            # Adding the biases would first write them into every row of the product, which is far
            # larger than the factors: a column of ones is cheaper.
            with_biases = torch.cat([matrix, biases[:, None]], dim=1)

            def multiply_widening(x: Tensor) -> Tensor:
                rows = functional.pad(x.reshape(-1, matrix.shape[1]), (0, 1), value=1.0)
                return (rows @ with_biases.mT).reshape(*x.shape[:-1], -1)

            return multiply_widening

        def multiply(x: Tensor) -> Tensor:
            y = functional.linear(x.reshape(-1, matrix.shape[1]), matrix, biases)
            return y.reshape(*x.shape[:-1], -1)

        return multiply

    def convolve(x: Tensor) -> Tensor:
        images = x.reshape(-1, *x.shape[-3:]).permute(0, 3, 1, 2)
        y = functional.conv2d(images, weight, bias, padding=1)
        return y.permute(0, 2, 3, 1).reshape(*x.shape[:-1], -1)

    return convolve


def _as_matrix(weight: Tensor, size: Sequence[int]) -> Tensor:
    """Return the matrix by which a padded 3 x 3 convolution multiplies a channels-last map.

    Args:
        weight: ``(o, i, 3, 3)``.
        size: height and width of the map.

    Returns:
        ``(height * width * o, height * width * i)``.
    """
    o, i = weight.shape[:2]
    n_in, n_out = math.prod(size) * i, math.prod(size) * o
    units = torch.eye(n_in, dtype=weight.dtype, device=weight.device)
    units = units.reshape(n_in, *size, i).permute(0, 3, 1, 2)
    columns = functional.conv2d(units, weight, padding=1)
    return columns.permute(0, 2, 3, 1).reshape(n_in, n_out).mT


def _location_weights(x: Tensor, dim: int, temperature: float) -> Tensor:
    """Return the softmax of standardised ``x`` over the locations in ``dim``.

    A single location gets the weight 1.
    """
    centred = x - x.mean(dim=dim, keepdim=True)
    # Several times as fast as Tensor.var, and as exact, since it is centred.
    variance = centred.square().sum(dim=dim, keepdim=True) / max(1, x.shape[dim] - 1)
    return (centred / (temperature * torch.sqrt(variance + 1e-5))).softmax(dim=dim)
