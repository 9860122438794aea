"""How far a model here deviates from another library, next to what rounding alone does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fsf_importing.checkpoints import Checkpoint
from fsf_importing.interfaces import ImportedModel
from fsf_importing.reference import Reference
from fsframework.api.models import Model
from fsframework.errors import DataError
from fsframework.interfaces import Batch

__all__ = ["Deviation", "Difference", "deviation"]

_MARGIN = 4.0
"""A computation rounds at every step, a perturbation only once, before the first."""

_MOST = 0.05
"""Limit above which no measured rounding raises the tolerance."""


@dataclass(frozen=True)
class Difference:
    """A difference from a reference, and what it is judged by.

    Args:
        value: the difference, relative to the reference.
        rounding: largest movement when weights and images change by one rounding step, likewise.
        tolerance: largest difference that is always allowed.

    >>> Difference(3e-3, 1e-3, 1e-3).agrees, Difference(3e-3, 1e-5, 1e-3).agrees
    (True, False)
    >>> Difference(0.3, 0.2, 1e-3).limit
    0.05
    """

    value: float
    rounding: float
    tolerance: float

    @property
    def limit(self) -> float:
        """The tolerance, or four times the movement by rounding up to 0.05 if that is more."""
        return max(self.tolerance, min(_MARGIN * self.rounding, _MOST))

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the limit; NaN never is."""
        return self.value <= self.limit


@dataclass(frozen=True)
class Deviation:
    """How far a model deviates from a reference.

    Args:
        reference: the reference.
        outputs: largest absolute difference of a score, divided by the mean over the queries of
            their largest minus their smallest score; for labels, the share that differs.
        loss: training loss here, ``None`` if the reference has none.
        loss_difference: difference relative to the given loss.
        undecided: number of labels that change with one rounding step; they are not compared.
    """

    reference: Reference
    outputs: Difference
    loss: float | None = None
    loss_difference: Difference | None = None
    undecided: int = 0

    @property
    def agrees(self) -> bool:
        """Whether everything compared agrees."""
        return self.outputs.agrees and (self.loss_difference is None or self.loss_difference.agrees)

    def described(self) -> str:
        """Return what was found in one sentence, for the notes of a run."""
        reference, outputs = self.reference, self.outputs
        found = f"compared with {reference.path.name}: "
        if reference.labels is not None:
            decided = len(reference.labels) - self.undecided
            found += f"{decided} of {len(reference.labels)} labels are equal"
            if self.undecided:
                found += ", the others depend on rounding"
        else:
            found += (
                f"largest difference {outputs.value:.1e} of the range of the scores (one rounding "
                f"step moves them by {outputs.rounding:.1e})"
            )
        if (loss := self.loss_difference) is not None:
            found += f", training loss {loss.value:.1e} apart ({loss.rounding:.1e})"
        return found


def deviation(
    checkpoint: Checkpoint,
    reference: Reference,
    *,
    tolerance: float,
    device: str = "cpu",
    perturbations: int = 4,
) -> Deviation:
    """Return how far scores and training loss deviate from those given.

    Adaptation amplifies rounding: ten inner steps of MAML move scores by a thousandth of their
    range. So the computation is repeated with every weight and every normalised pixel moved to the
    next number above or below, at random, and differences are judged by that movement too.

    Each is computed with a separate model, since training mode changes BatchNorm's statistics; the
    checkpoint is not changed.

    Args:
        checkpoint: what is compared.
        reference: what the other library returned.
        tolerance: largest difference that is always allowed.
        device: where it is computed.
        perturbations: how often everything is moved, at least 1. The one that moves the outputs
            most counts, so fewer allow less.

    Raises:
        DataError: every label depends on rounding.
        OptionError: the device is unknown or not available.
    """
    cudnn = torch.backends.cudnn
    # On a GPU, convolutions round to 10 bits (TF32) by default.
    with cudnn.flags(
        enabled=cudnn.enabled,
        benchmark=cudnn.benchmark,
        deterministic=cudnn.deterministic,
        allow_tf32=False,
    ):
        scores, *moved = (
            _scores(model, reference, images, checkpoint.read)
            for model, images in _variants(checkpoint, reference, device, perturbations)
        )
        if reference.train_loss is None:
            losses = []
        else:
            losses = [
                _training_loss(model, reference, images)
                for model, images in _variants(checkpoint, reference, device, perturbations)
            ]
    if reference.labels is not None:
        outputs, undecided = _of_labels(scores, moved, reference.labels, reference)
    else:
        outputs, undecided = _of_scores(scores, moved, reference, tolerance), 0
    if reference.train_loss is None:
        return Deviation(reference, outputs, undecided=undecided)
    loss, *others = losses
    given = reference.train_loss
    size = abs(given) or 1.0
    rounding = max(abs(other - loss) for other in others) / size
    difference = Difference(abs(loss - given) / size, rounding, tolerance)
    return Deviation(reference, outputs, loss, difference, undecided)


def _variants(
    checkpoint: Checkpoint, reference: Reference, device: str, perturbations: int
) -> Iterator[tuple[Model, Tensor]]:
    """Yield the model with its normalised images, then perturbations of both by one step."""
    for draw in range(1 + perturbations):
        model = checkpoint.model_as_there(device=device)
        pixels = torch.from_numpy(reference.pixels).to(model.network.mean.device)
        with torch.no_grad():
            images = model.network.images(pixels)
            if draw:
                random = torch.Generator().manual_seed(draw)
                for values in model.network.state_dict().values():
                    if values.is_floating_point():
                        values.copy_(_next(values, random))
                images = _next(images, random)
        yield model, images


def _next(values: Tensor, random: torch.Generator) -> Tensor:
    """Return each number's neighbour in its type, above or below at random."""
    up = torch.rand(values.shape, generator=random).to(values.device) < 0.5
    ends = torch.where(up, torch.inf, -torch.inf).to(values.dtype)
    return torch.nextafter(values, ends)


def _scores(
    model: Model, reference: Reference, images: Tensor, read: ImportedModel
) -> npt.NDArray[np.float64]:
    """Return scores float64 ``(way * query, way)`` in evaluation mode."""
    network = model.network.eval()
    with torch.no_grad(), _seeded(images.device):
        support, query = _split(network.method.embed(network.encode(images)), reference)
        if read.check_scores is None or len(reference.given) < len(read.check_arrays):
            scores = network.method.scores(support, query)
        else:
            given = {k: torch.from_numpy(v).to(images) for k, v in reference.given.items()}
            scores = read.check_scores(network.method, support, query, given)
    found: npt.NDArray[np.float64] = scores[0].double().cpu().numpy()
    return found


def _training_loss(model: Model, reference: Reference, images: Tensor) -> float:
    """Return the loss in training mode; the images are the episode and the batch at once."""
    network = model.network.train()
    ways = torch.arange(reference.way, device=images.device)
    of_support = ways[:, None].expand(-1, reference.shot)[None]
    of_query = ways.repeat_interleave(reference.query)[None]
    of_images = ways.repeat_interleave(reference.shot + reference.query)
    # Gradients stay on: methods that adapt may need them for the loss itself.
    with _seeded(images.device):
        items = network.encode(images)
        support, query = _split(items, reference)
        loss = network.method.loss(
            Batch(
                support=support,
                query=query,
                query_labels=of_query,
                support_classes=of_support,
                query_classes=of_query,
                items=items,
                classes=of_images,
            )
        )
    return float(loss.detach())


@contextmanager
def _seeded(device: torch.device) -> Iterator[None]:
    """Let a block draw the same random numbers each time, and restore the old state."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(0)
        yield


def _split(items: Tensor, reference: Reference) -> tuple[Tensor, Tensor]:
    """Split items of one task into ``(1, way, shot, *item)`` and ``(1, way * query, *item)``."""
    shot = reference.shot
    by_way = items.reshape(1, reference.way, shot + reference.query, *items.shape[1:])
    return by_way[:, :, :shot], by_way[:, :, shot:].flatten(1, 2)


def _of_scores(
    scores: npt.NDArray[np.float64],
    moved: list[npt.NDArray[np.float64]],
    reference: Reference,
    tolerance: float,
) -> Difference:
    assert reference.scores is not None
    given = reference.scores
    # Scores that are all equal have a range of 0.
    extent = float((given.max(axis=1) - given.min(axis=1)).mean()) or 1.0
    rounding = max(float(np.abs(other - scores).max()) for other in moved)
    return Difference(float(np.abs(scores - given).max()) / extent, rounding / extent, tolerance)


def _of_labels(
    scores: npt.NDArray[np.float64],
    moved: list[npt.NDArray[np.float64]],
    given: npt.NDArray[np.int64],
    reference: Reference,
) -> tuple[Difference, int]:
    """Compare the labels that no rounding step changes; they must all be equal."""
    labels = scores.argmax(axis=1)
    decided = np.all([other.argmax(axis=1) == labels for other in moved], axis=0)
    if not decided.any():
        raise DataError(
            f"--check {reference.path}: one rounding step changes every label, so there is nothing "
            "to compare"
        )
    differs = float((labels != given)[decided].mean())
    return Difference(differs, 0.0, 0.0), int((~decided).sum())
