"""Deep subspace networks."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from fsf_methods._shared import full_precision
from fsf_methods.sets._vectors import smoothed_cross_entropy, squared_distances
from fsframework.interfaces import Backbone, Batch, FewShotMethod, OptionError

__all__ = ["DSN"]

_LEAST = 1e-10
"""Share of the mean squared length below which there is no direction of the support."""

_TINY = 1e-30
_SQUARINGS = 24


class DSN(FewShotMethod):
    """Score how close a query lies to the subspace that the support of a class spans.

    Source: Simon, Koniusz, Nock and Harandi 2020, "Adaptive Subspaces for Few-Shot Learning"
    (CVPR), section 4, and the authors' code. The vectors of a class, minus their mean, span a
    subspace; the score is minus the squared distance of the query to it, divided by the length of
    the vectors and multiplied by a learned factor. The loss is the cross-entropy of the scores,
    with labels that can be smoothed, plus ``discriminative_weight`` times the sum, over ordered
    pairs of classes, of the squared cosines between their subspaces (equation 7).

    The authors' code has two heads. For Conv-64F it subtracts the mean, scores by minus the
    distance, not squared, without divisor and factor, and adds the cosines. For ResNet-12 it does
    not subtract the mean, has divisor, factor and smoothed labels, and leaves the cosines out.

    The only image of a class is joined by its mirror image, as one vector spans no subspace;
    therefore the method consumes images, and embeds each with its mirror image.

    Args:
        centre: subtract the mean of a class. Without it, as in the authors' code for ResNet-12 and
            in LibFewShot, the subspace is that of the first ``shot - 1`` singular vectors.
        mirror: what makes the second image of a class with one: reversed ``columns``, as in the
            authors' code, or reversed ``channels``, as in LibFewShot.
        learn_scale: learn the factor; else it is 1.
        smoothing: share of a label that is spread evenly over the other ways in the loss, in
            [0, 1); 0 in the authors' code for Conv-64F, 0.1 in their command for ResNet-12 and in
            LibFewShot.
        discriminative_weight: weight of the cosines between subspaces, at least 0; 0.03 in the
            authors' code for Conv-64F, none for ResNet-12.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "images"

    def __init__(
        self,
        *,
        centre: bool = True,
        mirror: Literal["columns", "channels"] = "columns",
        learn_scale: bool = True,
        smoothing: float = 0.0,
        discriminative_weight: float = 0.03,
    ) -> None:
        super().__init__()
        if mirror not in ("columns", "channels"):
            raise OptionError(f"mirror must be 'columns' or 'channels', got {mirror!r}")
        if not 0 <= smoothing < 1:
            raise OptionError(f"smoothing must be in [0, 1), got {smoothing}")
        if not discriminative_weight >= 0:
            raise OptionError(
                f"discriminative_weight must be at least 0, got {discriminative_weight}"
            )
        self.centre = centre
        self.mirror = mirror
        self.learn_scale = learn_scale
        self.smoothing = smoothing
        self.discriminative_weight = discriminative_weight
        self.weightless = not learn_scale
        if learn_scale:
            self.scale = nn.Parameter(torch.ones(1))

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone."""
        self.backbone = backbone

    def embed(self, items: Tensor) -> Tensor:
        """Turn images ``(n, 3, H, W)`` into vectors of each and its mirror image, ``(n, 2, D)``."""
        both = torch.stack([items, self._mirrored(items)], dim=1)
        return self._encoded(both.flatten(0, 1)).unflatten(0, (-1, 2))

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return scaled squared distances, float ``(tasks, n, way)``, in float32 or float64.

        Args:
            support: float ``(tasks, way, shot, 2, D)``, embedded.
            query: float ``(tasks, n, 2, D)``, embedded.
        """
        vectors = support[:, :, 0] if support.shape[2] == 1 else support[:, :, :, 0]
        with torch.autocast(query.device.type, enabled=False):
            means, bases = self.subspaces(vectors)
            return self._scores(means, bases, query[:, :, 0])

    def _mirrored(self, images: Tensor) -> Tensor:
        return images.flip(-1 if self.mirror == "columns" else -3)

    def _encoded(self, images: Tensor) -> Tensor:
        return full_precision(self.backbone.encode(images))

    def _vectors(self, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """Encode the images of a step: ``(tasks, way, shot, D)`` and ``(tasks, n, D)``."""
        if support.shape[2] == 1:
            support = torch.cat([support, self._mirrored(support)], dim=2)
        vectors = self._encoded(torch.cat([support.flatten(0, 2), query.flatten(0, 1)]))
        of_support, of_query = vectors.tensor_split([support.shape[:3].numel()])
        return (
            of_support.reshape(*support.shape[:3], -1),
            of_query.reshape(*query.shape[:2], -1),
        )

    def subspaces(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return a point of each class's subspace, and an orthonormal basis of its directions.

        Args:
            vectors: float ``(tasks, way, shot, D)``, at least two shots.

        Returns:
            ``(tasks, way, D)`` and ``(tasks, way, rows, D)``; a row is 0 for a direction that the
            vectors do not have.
        """
        rows = vectors.double()
        means = torch.zeros_like(rows[:, :, :1])
        if self.centre:
            means = rows.mean(dim=2, keepdim=True)
            rows = rows - means
        gram = rows @ rows.mT
        shot = gram.shape[-1]
        size = gram.diagonal(dim1=2, dim2=3).mean(dim=2)[..., None, None].detach() + _TINY
        identity = torch.eye(shot, dtype=gram.dtype, device=gram.device)
        # The rows have one direction fewer than there are rows; this projector takes its place.
        if self.centre:
            left_out = torch.full_like(gram, 1 / shot)
        else:
            left_out = _smallest(gram, size)
            rows = rows - left_out @ rows
            gram = rows @ rows.mT
        completed = gram + size * (left_out + _LEAST * identity)
        # A failed factorisation shows in the scores; checking for it would make a GPU wait.
        factor = torch.linalg.cholesky_ex(completed).L
        bases = torch.linalg.solve_triangular(factor, rows, upper=False)
        return means[:, :, 0].to(vectors.dtype), bases.to(vectors.dtype)

    def _scores(self, means: Tensor, bases: Tensor, query: Tensor) -> Tensor:
        tasks, way, rows, length = bases.shape
        # Rows as long as the queries are faster than rows as short as the ways.
        origins = (bases @ means[..., None]).flatten(1, 2)
        products = torch.baddbmm(origins, bases.flatten(1, 2), query.mT, beta=-1)
        within = products.square().reshape(tasks, way, rows, -1).sum(dim=2).mT
        distances = squared_distances(query, means) - within
        return -distances / length * (self.scale if self.learn_scale else 1.0)

    def loss(self, batch: Batch) -> Tensor:
        """Return the smoothed cross-entropy + discriminative_weight * squared cosines."""
        assert batch.query_labels is not None
        if batch.support is None or batch.query is None:
            raise OptionError("DSN learns from episodes, but this step has none")
        vectors, query = self._vectors(batch.support, batch.query)
        with torch.autocast(query.device.type, enabled=False):
            means, bases = self.subspaces(vectors)
            scores = self._scores(means, bases, query)
            loss = smoothed_cross_entropy(scores, batch.query_labels, self.smoothing)
            return loss + self.discriminative_weight * self.overlap(bases).mean()

    def overlap(self, bases: Tensor) -> Tensor:
        """Return the squared cosines summed over ordered pairs of classes, float ``(tasks,)``.

        Args:
            bases: float ``(tasks, way, rows, D)``, orthonormal.
        """
        way, rows = bases.shape[1:3]
        flat = bases.flatten(1, 2)
        squares = (flat @ flat.mT).square().reshape(len(bases), way, rows, way, rows)
        of_pairs = squares.sum(dim=(2, 4))
        return of_pairs.sum(dim=(1, 2)) - of_pairs.diagonal(dim1=1, dim2=2).sum(dim=1)


def _smallest(gram: Tensor, size: Tensor) -> Tensor:
    """Return the projector on the eigenvector of the smallest eigenvalue, ``(..., k, k)``.

    A high power of the inverse is found by repeated squaring. Unlike a decomposition, this neither
    reads values nor has infinite gradients where other eigenvalues are equal.
    """
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky_ex(gram + _LEAST * size * identity).L
    power = torch.cholesky_inverse(factor)
    for _ in range(_SQUARINGS):
        power = power / power.diagonal(dim1=-2, dim2=-1).sum(dim=-1)[..., None, None]
        power = power @ power
    return power / power.diagonal(dim1=-2, dim2=-1).sum(dim=-1)[..., None, None]
