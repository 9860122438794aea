"""Relational embedding networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsframework.interfaces import Backbone, Batch, FewShotMethod, OptionError

__all__ = ["RENet"]

_WINDOW = 5
_REDUCED = 64
_PLANES = 16
_PAIRS_AT_ONCE = {"cpu": 40, "cuda": 2048}
"""Pairs of images correlated in one go in evaluation: on a CPU their activations must stay in
the caches, on a GPU there should be enough of them to fill it."""


class RENet(FewShotMethod):
    """Compare what attention finds in a query and in a support image to be alike.

    Source: Kang, Kwon, Min and Cho 2021, "Relational Embedding for Few-Shot Classification"
    (ICCV). ``embed`` is the self-correlational representation (section 4.2): how each location
    resembles its 5 x 5 neighbours, turned by convolutions into what is added to the map.
    ``scores`` is the cross-correlational attention (section 4.3): the similarity of every location
    of a support image with every location of a query, refined by separable 4-d convolutions,
    weights the locations of both; the score is the cosine of the two pooled maps (section 4.4).
    The loss (section 4.5) adds to the episode's the class losses of all the images and of the
    queries without their channel mean.

    Two deviations: the class loss is that of the episode's own images, where the paper draws
    another batch; and where a map has a single location, its attention is 1.

    Args:
        temperature: divides the cosines, above 0; tau of equation 9.
        temperature_attn: divides the logits of the attention, above 0; gamma of equations 5 and
            6: 5 in the paper for CUB, miniImageNet and tieredImageNet, 2 for CIFAR-FS.
        lambda_epi: weight of the episode's loss beside the class losses, at least 0.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes: ClassVar[Literal["vectors", "maps", "images"]] = "maps"

    def __init__(
        self,
        *,
        temperature: float = 0.2,
        temperature_attn: float = 5.0,
        lambda_epi: float = 0.25,
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise OptionError(f"temperature must be above 0, got {temperature}")
        if not temperature_attn > 0:
            raise OptionError(f"temperature_attn must be above 0, got {temperature_attn}")
        if not lambda_epi >= 0:
            raise OptionError(f"lambda_epi must be at least 0, got {lambda_epi}")
        self.temperature = temperature
        self.temperature_attn = temperature_attn
        self.lambda_epi = lambda_epi

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the layers for maps ``(C, h, w)``; the classifier only where there are classes."""
        channels = item_shape[0]
        self.self_correlation = _SelfCorrelation(channels)
        self.reduce = nn.Sequential(
            nn.Conv2d(channels, _REDUCED, 1, bias=False), nn.BatchNorm2d(_REDUCED), nn.ReLU()
        )
        self.refine = nn.ModuleList([_SeparableConv4d(1, _PLANES), _SeparableConv4d(_PLANES, 1)])
        self.classify = nn.Linear(channels, n_base_classes) if n_base_classes else None

    def embed(self, items: Tensor) -> Tensor:
        """Add to maps ``(n, C, h, w)`` what their self-correlation says; at least 0."""
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
        way_shot = support.shape[1:3]
        # Sums over shots and locations stand for the paper's means: the cosine is the same.
        support_pooled = torch.einsum(
            "twsln,twscl->tnwc", on_support.unflatten(1, way_shot), support.flatten(-2)
        )
        query_pooled = torch.einsum(
            "twnl,tncl->tnwc", on_query.unflatten(1, way_shot).sum(dim=2), query.flatten(-2)
        )
        return functional.cosine_similarity(support_pooled, query_pooled, dim=-1) / self.temperature

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
        of_images = functional.cross_entropy(
            self.classify(torch.cat([support_pooled, query_pooled])),
            torch.cat([batch.support_classes.flatten(), query_classes]),
        )
        shifted = query_pooled - query_pooled.mean(dim=1, keepdim=True)
        of_queries = functional.cross_entropy(self.classify(shifted), query_classes)
        of_episode = functional.cross_entropy(
            self.scores(support, query).flatten(0, 1), batch.query_labels.flatten()
        )
        return of_images + of_queries + self.lambda_epi * of_episode

    def _directions(self, maps: Tensor) -> Tensor:
        """Map ``(tasks, n, C, h, w)`` to 64 channels whose vector has length 1 everywhere."""
        reduced: Tensor = self.reduce(maps.flatten(0, 1))
        return functional.normalize(reduced, dim=1, eps=1e-8).unflatten(0, maps.shape[:2])

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
            # All at once, as BatchNorm must see them.
            return self._attend(support, query, list(self.refine))
        layers = [layer.folded() for layer in self.refine]
        pairs = _PAIRS_AT_ONCE.get(query.device.type, _PAIRS_AT_ONCE["cuda"])
        n_query_chunks = math.ceil(query.shape[1] / pairs)
        supports_at_once = max(1, pairs // math.ceil(query.shape[1] / n_query_chunks))
        of_tasks = []
        for task_support, task_query in zip(support.split(1), query.split(1), strict=True):
            of_queries = []
            for some_query in task_query.chunk(n_query_chunks, dim=1):
                parts = [
                    self._attend(some_support, some_query, layers)
                    for some_support in task_support.split(supports_at_once, dim=1)
                ]
                of_queries.append([torch.cat(part, dim=1) for part in zip(*parts, strict=True)])
            on_support, on_query = zip(*of_queries, strict=True)
            of_tasks.append((torch.cat(on_support, dim=3), torch.cat(on_query, dim=2)))
        on_support, on_query = zip(*of_tasks, strict=True)
        return torch.cat(on_support), torch.cat(on_query)

    def _attend(
        self, support: Tensor, query: Tensor, layers: Sequence[_Layer]
    ) -> tuple[Tensor, Tensor]:
        """Do the work of ``_attention`` with given layers, for all pairs at once."""
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

    def _symmetric(self, x: Tensor, layers: Sequence[_Layer]) -> Tensor:
        """Refine correlations, and those with support and query swapped, and add the two."""
        swapped = x.permute(0, 4, 5, 3, 1, 2, 6)
        if self.training:
            # One after the other, so that each has batch statistics of its own.
            first, second = _stacked(x, layers), _stacked(swapped.contiguous(), layers)
        else:
            first, second = _stacked(torch.cat([x, swapped]), layers).chunk(2)
        return first + second.permute(0, 4, 5, 3, 1, 2, 6)


class _SelfCorrelation(nn.Module):
    """Maps ``(n, C, h, w)`` to what their self-correlation says of them, of the same shape.

    The 5-d self-correlation of equation 1 - the product, channel by channel, of a location with
    each of its 5 x 5 neighbours - and equation 2's convolutions over the neighbourhood, which
    two unpadded 3 x 3 kernels shrink to a point.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.over_window = nn.Sequential(
            *_convolution(channels, _REDUCED, 1),
            nn.ReLU(inplace=True),
            *_convolution(_REDUCED, _REDUCED, 3),
            nn.ReLU(inplace=True),
            *_convolution(_REDUCED, _REDUCED, 3),
            nn.ReLU(inplace=True),
            *_convolution(_REDUCED, channels, 1),
        )

    def forward(self, maps: Tensor) -> Tensor:
        n, channels, height, width = maps.shape
        # Channels last throughout: the products then need no rearrangement for the convolutions.
        centre = functional.normalize(functional.relu(maps), dim=1).permute(0, 2, 3, 1)
        margin = _WINDOW // 2
        padded = functional.pad(centre.contiguous(), (0, 0, margin, margin, margin, margin))
        windows = padded.unfold(1, _WINDOW, 1).unfold(2, _WINDOW, 1).movedim(3, 5)
        products = centre[:, :, :, None, None, :] * windows
        products = products.reshape(-1, _WINDOW, _WINDOW, channels).permute(0, 3, 1, 2)
        said: Tensor = self.over_window(products)
        return said.reshape(n, height, width, channels).permute(0, 3, 1, 2)


def _convolution(in_channels: int, out_channels: int, size: int) -> tuple[nn.Module, nn.Module]:
    conv = nn.Conv2d(in_channels, out_channels, size, bias=False)
    return conv, nn.BatchNorm2d(out_channels)


# Below, correlations of pairs of images are tensors (m, h, w, n, u, v, c): m support images and
# for each n queries, (h, w) a location of the one and (u, v) of the other, c channels. With the
# channels innermost, both 2-d convolutions of a separable 4-d one act in place: over (u, v)
# because it lies beside them, over (h, w) as rows whose neighbours are n * u * v apart.

_Layer = Callable[[Tensor], Tensor]


def _stacked(x: Tensor, layers: Sequence[_Layer]) -> Tensor:
    for i, layer in enumerate(layers):
        x = layer(functional.relu(x, inplace=True) if i else x)
    return x


class _SeparableConv4d(nn.Module):
    """A 4-d convolution as one over (h, w), one over (u, v) and one over channels.

    Yang and Ramanan 2019, as the paper uses it: every step ends in BatchNorm, and the first also
    in a ReLU. Nothing is padded but with zeros, so that (h, w, u, v) stay.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.over_hw = nn.Conv2d(in_channels, in_channels, 3, bias=False)
        self.norm_hw = nn.BatchNorm2d(in_channels)
        self.over_uv = nn.Conv2d(in_channels, in_channels, 3, bias=False)
        self.norm_uv = nn.BatchNorm2d(in_channels)
        self.over_channels = nn.Conv2d(in_channels, out_channels, 1, bias=False)
        self.norm_channels = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(m, h, w, n, u, v, in_channels)`` to ``(m, h, w, n, u, v, out_channels)``."""
        x = functional.relu(_channels_last(self.norm_hw, _conv_hw(x, self.over_hw.weight)))
        x = _channels_last(self.norm_uv, _conv_uv(x, self.over_uv.weight))
        return _channels_last(self.norm_channels, _channels_last(self.over_channels, x))

    def folded(self) -> _FoldedConv4d:
        """Return the same function with running statistics, its linear steps made one.

        All that follows the ReLU is linear: a convolution over (u, v) straight to the output
        channels does it, with 1/16 of the work where there is but one of these.
        """
        hw_weight, hw_bias = _folded(self.over_hw, self.norm_hw)
        uv_weight, uv_bias = _folded(self.over_uv, self.norm_uv)
        mix, mix_bias = _folded(self.over_channels, self.norm_channels)
        mix = mix.flatten(1)
        return _FoldedConv4d(
            hw_weight,
            hw_bias,
            torch.einsum("om,mikl->oikl", mix, uv_weight),
            mix @ uv_bias + mix_bias,
        )


class _FoldedConv4d(NamedTuple):
    hw_weight: Tensor
    hw_bias: Tensor
    uv_weight: Tensor
    uv_bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        x = functional.relu(_conv_hw(x, self.hw_weight, self.hw_bias), inplace=True)
        return _conv_uv(x, self.uv_weight, self.uv_bias)


def _folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a convolution that does a BatchNorm's work as well."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    return conv.weight * scale[:, None, None, None], norm.bias - norm.running_mean * scale


def _channels_last(module: nn.Module, x: Tensor) -> Tensor:
    """Apply a module for images to ``(..., c)``, as to one image a pixel high."""
    y: Tensor = module(x.reshape(1, 1, -1, x.shape[-1]).permute(0, 3, 1, 2))
    return y.permute(0, 2, 3, 1).reshape(*x.shape[:-1], -1)


def _conv_hw(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolve ``(m, h, w, n, u, v, i)`` over (h, w) with a 3 x 3 ``weight`` ``(o, i, 3, 3)``."""
    m, h, w, n, u, v, i = x.shape
    if weight.shape[:2] == (1, 1):
        y = _as_matrix(weight, h, w) @ x.reshape(m, h * w, n * u * v)
        return (y if bias is None else y + bias).reshape(x.shape)
    apart = n * u * v
    rows = x.reshape(m, h, w * apart, i).permute(0, 3, 1, 2)
    y = functional.conv2d(rows, weight, bias, padding=(1, apart), dilation=(1, apart))
    return y.permute(0, 2, 3, 1).reshape(m, h, w, n, u, v, -1)


def _conv_uv(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolve ``(m, h, w, n, u, v, i)`` over (u, v) with a 3 x 3 ``weight`` ``(o, i, 3, 3)``."""
    *outer, u, v, i = x.shape
    if 1 in weight.shape[:2]:
        # Nine taps of a single channel leave vector units idle; a matrix product does not.
        every = None if bias is None else bias.repeat(u * v)
        y = functional.linear(x.reshape(-1, u * v * i), _as_matrix(weight, u, v), every)
        return y.reshape(*outer, u, v, -1)
    y = functional.conv2d(x.reshape(-1, u, v, i).permute(0, 3, 1, 2), weight, bias, padding=1)
    return y.permute(0, 2, 3, 1).reshape(*outer, u, v, -1)


def _as_matrix(weight: Tensor, height: int, width: int) -> Tensor:
    """Return the matrix by which a padded 3 x 3 convolution multiplies a channels-last map.

    Args:
        weight: ``(o, i, 3, 3)``.
        height: of the map.
        width: of the map.

    Returns:
        ``(height * width * o, height * width * i)``.
    """
    o, i = weight.shape[:2]
    size = height * width * i
    unit = torch.eye(size, dtype=weight.dtype, device=weight.device)
    unit = unit.reshape(size, height, width, i).permute(0, 3, 1, 2)
    columns = functional.conv2d(unit, weight, padding=1)
    return columns.permute(0, 2, 3, 1).reshape(size, height * width * o).mT


def _location_weights(x: Tensor, dim: int, temperature: float) -> Tensor:
    """Return the softmax of ``x``, brought to unit variance, over the locations in ``dim``.

    The paper also subtracts the mean, which a softmax does not notice.
    """
    variance = x.var(dim=dim, correction=min(1, x.shape[dim] - 1), keepdim=True)
    return (x / (temperature * torch.sqrt(variance + 1e-5))).softmax(dim=dim)
