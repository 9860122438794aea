"""Batch enhanced contrastive few-shot learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fsf_self_supervised.methods._clusters import ClusteredMemory
from fsf_self_supervised.methods._heads import perceptron
from fsf_self_supervised.methods._losses import cross_views, log_uniformity
from fsf_self_supervised.methods._memory import MomentumCopy
from fsf_self_supervised.methods._pairs import PairMethod, full_precision
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    OptionError,
    ViewMaker,
    check_above,
    check_at_least,
    check_below_one,
)

__all__ = ["BECLR"]


class BECLR(PairMethod):
    """Enlarge each step by similar vectors of a clustered memory, and align prototypes in a task.

    Source: Poulakakis-Daktylidis and Jamali-Rad 2024, "BECLR: Batch Enhanced Contrastive Few-Shot
    Learning" (ICLR), section 4, and the authors' code. A student sees both views with some cells
    masked, a slow copy (the teacher) sees them whole; both project, and the student also predicts.
    The loss is minus the cosine of the student's predictions and the teacher's projections of the
    other view, plus ``weight`` times the logarithm of the mean exp(cosine / ``temperature``) of the
    student's projections of different images. From step ``start`` on, and once the memories have
    clusters, ``k`` vectors of the nearest cluster of a memory (DyCE) are put beside each vector:
    predictions and the projections of student and teacher have a memory each. As in the authors'
    code no gradient goes to the vectors of a memory: in the first term their pairs only scale it,
    in the second they are further images to stay away from.

    Scores are those of ``inference``, by default OpTA, which is transductive.

    Where this differs from the code: a step finds its neighbours among the vectors of earlier steps
    only; the teacher's momentum is constant instead of growing to 1; masked are cells drawn one by
    one instead of blocks of them.

    Args:
        views: makes two views of an image.
        inference: scores the tasks; it consumes vectors and learns nothing.
        weight: of the second term, at least 0.
        temperature: divides its cosines, above 0.
        width: of the projection, at least 4; ``None`` for the length of the backbone's vectors.
        k: neighbours per vector, at least 1.
        start: step from which there are neighbours, at least 0; the authors' 60 epochs of
            miniImageNet.
        memory: number of vectors that are remembered, at least ``k`` and ``clusters``.
        clusters: of each memory, at least 1.
        epsilon: weight of the assignment's entropy, above 0.
        iterations: of the assignment, at least 1; ``rounds`` of k-means.
        momentum: share of its own weights that the teacher keeps per step, in [0, 1).
        mask: mean share of cells that are masked, in [0, 1).
        mask_spread: the share of an image is at most so much smaller or larger, at least 0.
        cell: height and width of a cell in pixels, at least 1.

    Raises:
        OptionError: an option is outside its range, or the inference learns.
    """

    usual_components: ClassVar[Mapping[str, str]] = {"views": "simclr", "inference": "opta"}
    steps: Tensor

    def __init__(  # noqa: PLR0913
        self,
        *,
        views: ViewMaker,
        inference: FewShotMethod,
        weight: float = 0.1,
        temperature: float = 2.0,
        width: int | None = None,
        k: int = 5,
        start: int = 9000,
        memory: int = 8192,
        clusters: int = 200,
        epsilon: float = 0.05,
        iterations: int = 10,
        rounds: int = 10,
        momentum: float = 0.995,
        mask: float = 0.15,
        mask_spread: float = 0.1,
        cell: int = 16,
    ) -> None:
        super().__init__(views=views)
        if inference.consumes != "vectors" or inference.learns_from != "nothing":
            raise OptionError(
                "inference must consume vectors and learn nothing, but "
                f"{type(inference).__name__} consumes {inference.consumes} and learns from "
                f"{inference.learns_from}"
            )
        check_at_least(0, weight=weight, start=start, mask_spread=mask_spread)
        check_above(0, temperature=temperature, epsilon=epsilon)
        check_at_least(1, k=k, clusters=clusters, iterations=iterations, rounds=rounds, cell=cell)
        check_below_one(momentum=momentum, mask=mask)
        if width is not None:
            check_at_least(4, width=width)
        for name, value in (("k", k), ("clusters", clusters)):
            if memory < value:
                raise OptionError(f"memory must be at least {name}, {value}, got {memory}")
        self.inference = inference
        self.weight = weight
        self.temperature = temperature
        self.width = width
        self.k = k
        self.start = start
        self.memory = memory
        self.clusters = clusters
        self.epsilon = epsilon
        self.iterations = iterations
        self.rounds = rounds
        self.momentum = momentum
        self.mask = mask
        self.mask_spread = mask_spread
        self.cell = cell
        self.transductive = inference.transductive
        self.reads_values = inference.reads_values
        self.n_way = inference.n_way

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone; create heads, teacher and memories for vectors ``(D,)``."""
        super().build(item_shape, n_base_classes, backbone)
        self.inference.build(item_shape, n_base_classes, backbone)
        (size,) = item_shape
        width = self.width or size
        self.project = perceptron((size, width, width, width), last=True)
        self.predict = perceptron((width, width // 4, width))
        self.teacher = MomentumCopy(backbone, self.project, self.momentum)
        self.predicted = self._memory(width)
        self.projected = self._memory(width)
        self.taught = self._memory(width)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def embed(self, items: Tensor) -> Tensor:
        """Embed items as the inference does."""
        return self.inference.embed(items)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the scores of the inference, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``, embedded.
            query: float ``(tasks, n, D)``, embedded.
        """
        return self.inference.scores(support, query)

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the step, or of the enlarged one; carries vectors to the memories."""
        views = torch.cat(self.pair(batch))
        projected = self.project(self.backbone.encode(self._masked(views)))
        predicted = self.predict(projected)
        taught = self.teacher(views)
        with torch.autocast(views.device.type, enabled=False):
            vectors = {
                "predicted": full_precision(predicted),
                "projected": full_precision(projected),
                "taught": full_precision(taught),
            }
            # One row per image.
            self.carried = {
                name: torch.stack(rows.detach().chunk(2), dim=1) for name, rows in vectors.items()
            }
            enlarged = {name: self._enlarged(name, rows) for name, rows in vectors.items()}
            return torch.where(self._has_neighbours(), self._loss(enlarged), self._loss(vectors))

    def after_step(self, carried: Mapping[str, Tensor]) -> None:
        """Let the teacher follow, and write the vectors of both views into the memories."""
        self.teacher.follow(self.backbone, self.project)
        for name, memory in self._memories().items():
            memory.write(carried[name].flatten(0, 1))
        self.steps += 1

    def _memory(self, width: int) -> ClusteredMemory:
        return ClusteredMemory(
            self.memory,
            width,
            self.clusters,
            epsilon=self.epsilon,
            iterations=self.iterations,
            rounds=self.rounds,
        )

    def _memories(self) -> dict[str, ClusteredMemory]:
        return {"predicted": self.predicted, "projected": self.projected, "taught": self.taught}

    def _has_neighbours(self) -> Tensor:
        ready = torch.stack([memory.ready for memory in self._memories().values()]).all()
        return (self.steps >= self.start) & ready

    def _enlarged(self, name: str, rows: Tensor) -> Tensor:
        """Put the neighbours of each view's vectors ``(2 n, D)`` after them."""
        near = self._memories()[name].neighbours(rows.detach(), self.k)
        parts = zip(rows.chunk(2), near.chunk(2), strict=True)
        return torch.cat([part for own, its in parts for part in (own, its.flatten(0, 1))])

    def _loss(self, vectors: Mapping[str, Tensor]) -> Tensor:
        aligned = cross_views(vectors["predicted"], vectors["taught"])
        return aligned + self.weight * log_uniformity(vectors["projected"], self.temperature)

    def _masked(self, images: Tensor) -> Tensor:
        """Set random cells of normalised images ``(n, 3, H, W)`` to 0."""
        n, _, height, width = images.shape
        grid = (n, 1, -(-height // self.cell), -(-width // self.cell))
        share = self.mask + self.mask_spread * (
            2 * torch.rand(n, 1, 1, 1, device=images.device) - 1
        )
        kept = (torch.rand(grid, device=images.device) >= share).to(images.dtype)
        kept = functional.interpolate(kept, scale_factor=self.cell, mode="nearest")
        return images * kept[:, :, :height, :width]
