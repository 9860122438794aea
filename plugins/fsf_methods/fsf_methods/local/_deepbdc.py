"""Deep Brownian distance covariance."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from fsf_methods._shared import full_precision
from fsframework.interfaces import Backbone, Batch, FewShotMethod, OptionError

__all__ = ["DeepBDC", "STLDeepBDC"]

_EPS = 1e-5


class BDCPooling(nn.Module):
    """Maps ``(n, C, h, w)`` to the upper triangles of their BDC matrices.

    Args:
        channels: of the maps.
        locations: of a map, for the initial scale.
        reduce_dim: channels after a 1 x 1 convolution; without one if they are the same.
    """

    upper: Tensor

    def __init__(self, channels: int, locations: int, reduce_dim: int) -> None:
        super().__init__()
        self.reduce: nn.Module = nn.Identity()
        if reduce_dim != channels:
            mix = nn.Conv2d(channels, reduce_dim, 1, bias=False)
            nn.init.kaiming_normal_(mix.weight, mode="fan_out", nonlinearity="leaky_relu")
            self.reduce = nn.Sequential(mix, nn.BatchNorm2d(reduce_dim), nn.ReLU(inplace=True))
        self.log_scale = nn.Parameter(torch.tensor(-math.log(2 * locations)))
        rows, columns = torch.triu_indices(reduce_dim, reduce_dim)
        self.register_buffer("upper", rows * reduce_dim + columns, persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        maps = self.reduce(maps)
        with torch.autocast(maps.device.type, enabled=False):
            rows = full_precision(maps).flatten(2)
            products = rows @ rows.mT
            squares = products.diagonal(dim1=1, dim2=2)
            distances = squares[:, :, None] + squares[:, None] - 2 * products
            roots = (self.log_scale.exp() * distances.clamp_min(0) + _EPS).sqrt()
            means = roots.mean(dim=2, keepdim=True)
            centred = roots - means - means.mT + means.mean(dim=1, keepdim=True)
            return centred.flatten(1).index_select(1, self.upper)


class DeepBDC(FewShotMethod):
    """Compare images by the Brownian distance covariance of their channels.

    Source: Xie, Long, Lv, Wang and Li 2022, "Joint Distribution Matters: Deep Brownian Distance
    Covariance for Few-Shot Classification" (CVPR), sections 3.2 and 3.3, "Meta DeepBDC", and the
    authors' code. The Euclidean distances between the channels of a map, over its locations, make a
    matrix, from which row and column means are subtracted; its upper triangle with the diagonal is
    the vector of an image. A class is the mean of its support vectors.

    As in the authors' code, squared distances are multiplied by a learned number, initially 1 over
    twice the locations, and 1e-5 is added before the root. ``stl-deepbdc`` is the paper's other
    variant.

    Args:
        reduce_dim: channels to which a 1 x 1 convolution, BatchNorm and a rectifier bring the maps,
            at least 2; ``None`` for those of the backbone, without a convolution. A vector has
            ``reduce_dim * (reduce_dim + 1) / 2`` numbers: with ResNet-12's 640 channels, 205,120.
        metric: the score: the ``inner`` product with the class's mean, minus the squared
            ``euclidean`` distance to it, or, as in the authors' code, ``by-shot`` the former for
            one shot and the latter for more.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "maps"

    def __init__(
        self,
        *,
        reduce_dim: int | None = None,
        metric: Literal["by-shot", "inner", "euclidean"] = "by-shot",
    ) -> None:
        super().__init__()
        _check_width(reduce_dim)
        if metric not in ("by-shot", "inner", "euclidean"):
            raise OptionError(f"metric must be 'by-shot', 'inner' or 'euclidean', got {metric!r}")
        self.reduce_dim = reduce_dim
        self.metric = metric

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the pooling for maps ``(C, h, w)``."""
        self.pool = _pooling(item_shape, self.reduce_dim)

    def embed(self, items: Tensor) -> Tensor:
        """Turn maps ``(n, C, h, w)`` into vectors, in float32 or float64."""
        vectors: Tensor = self.pool(items)
        return vectors

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return inner products or minus squared distances, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``, embedded.
            query: float ``(tasks, n, D)``, embedded.
        """
        with torch.autocast(query.device.type, enabled=False):
            means = support.sum(dim=2) / support.shape[2]
            if self.metric == "inner" or (self.metric == "by-shot" and support.shape[2] == 1):
                return (means @ query.mT).mT
            # Rows as long as the queries are faster than rows as short as the ways.
            lengths = torch.linalg.vector_norm(query, dim=2)[:, None].square()
            norms = lengths + means.square().sum(dim=2)[:, :, None]
            return torch.baddbmm(norms, means, query.mT, beta=-1, alpha=2).mT


class STLDeepBDC(FewShotMethod):
    """Train another method on Brownian distance covariances instead of vectors.

    Source: Xie, Long, Lv, Wang and Li 2022, "Joint Distribution Matters: Deep Brownian Distance
    Covariance for Few-Shot Classification" (CVPR), section 3.3, "STL DeepBDC", and the authors'
    code: the vectors of ``deepbdc`` are trained by a linear classifier of all base classes, and
    distilled; in each task a logistic regression is fitted to vectors of length 1. All of this is
    ``classifier=rfs``, whose ``c`` the authors set to 0.1 for one shot and 2 for five.

    Args:
        classifier: the method that learns from the vectors and classifies them; it consumes vectors
            and learns from batches.
        reduce_dim: channels to which a 1 x 1 convolution, BatchNorm and a rectifier bring the maps,
            at least 2; ``None`` for those of the backbone, without a convolution.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "maps"
    learns_from = "batches"
    usual_components: ClassVar[Mapping[str, str]] = {"classifier": "rfs"}

    def __init__(self, *, classifier: FewShotMethod, reduce_dim: int | None = None) -> None:
        super().__init__()
        _check_width(reduce_dim)
        if classifier.consumes != "vectors" or classifier.learns_from != "batches":
            raise OptionError(
                "classifier must consume vectors and learn from batches, but "
                f"{type(classifier).__name__} consumes {classifier.consumes} and learns from "
                f"{classifier.learns_from}"
            )
        self.classifier = classifier
        self.reduce_dim = reduce_dim
        self.transductive = classifier.transductive
        self.reads_values = classifier.reads_values
        self.n_way = classifier.n_way

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the pooling for maps ``(C, h, w)``, and build the classifier."""
        self.pool = _pooling(item_shape, self.reduce_dim)
        self.classifier.build((len(self.pool.upper),), n_base_classes, backbone)

    def embed(self, items: Tensor) -> Tensor:
        """Turn maps ``(n, C, h, w)`` into vectors as the classifier embeds them."""
        return self.classifier.embed(self.pool(items))

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the scores of the classifier, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``, embedded.
            query: float ``(tasks, n, D)``, embedded.
        """
        return self.classifier.scores(support, query)

    def class_logits(self, items: Tensor) -> Tensor:
        """Score maps ``(n, C, h, w)`` for the base classes, float ``(n, n_base_classes)``."""
        return self.classifier.class_logits(self.pool(items))

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the classifier."""
        assert batch.items is not None
        return self.classifier.loss(dataclasses.replace(batch, items=self.pool(batch.items)))


def _check_width(reduce_dim: int | None) -> None:
    if reduce_dim is not None and reduce_dim < 2:
        raise OptionError(f"reduce_dim must be at least 2, got {reduce_dim}")


def _pooling(item_shape: tuple[int, ...], reduce_dim: int | None) -> BDCPooling:
    return BDCPooling(item_shape[0], math.prod(item_shape[1:]), reduce_dim or item_shape[0])
