"""Outputs of another library for the images of one task, and how far a model here deviates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fsframework.api.checkpoints import Checkpoint
from fsframework.api.models import Model
from fsframework.errors import DataError
from fsframework.interfaces import Batch, ImportedModel
from fsframework.values import UInt8Array, open_file

__all__ = ["Deviation", "Reference", "deviation", "read_reference"]


@dataclass(frozen=True)
class Reference:
    """Images of one task and the outputs of the other library for them.

    Args:
        path: the file that was read.
        pixels: uint8 ``(way * (shot + query), H, W, 3)``, way by way, the support first.
        way: classes of the task; ``shot`` support images and ``query`` queries per class.
        scores: float64 ``(way * query, way)``; ``None`` if ``labels`` are given.
        labels: int64 ``(way * query,)``, the ways predicted.
        train_loss: loss on the same images with the model in training mode, if given.
    """

    path: Path
    pixels: UInt8Array
    way: int
    shot: int
    query: int
    scores: npt.NDArray[np.float64] | None
    labels: npt.NDArray[np.int64] | None
    train_loss: float | None


@dataclass(frozen=True)
class Deviation:
    """How far a model deviates from a reference.

    Args:
        reference: the reference.
        outputs: largest absolute difference of a score, divided by the mean over the queries of
            their largest minus their smallest score; for labels, the share that differs.
        loss: training loss here, ``None`` if the reference has none.
        loss_difference: difference relative to the given loss.
        tolerance: tolerance of both; labels must be equal.
    """

    reference: Reference
    outputs: float
    loss: float | None
    loss_difference: float | None
    tolerance: float

    @property
    def outputs_agree(self) -> bool:
        """Whether scores are within the tolerance, or all labels equal."""
        return self.outputs <= (self.tolerance if self.reference.labels is None else 0)

    @property
    def loss_agrees(self) -> bool:
        """Whether the training loss, if one is given, is within the tolerance."""
        return self.loss_difference is None or self.loss_difference <= self.tolerance

    @property
    def agrees(self) -> bool:
        """Whether everything compared agrees."""
        return self.outputs_agree and self.loss_agrees

    def described(self) -> str:
        """Return what was found in one sentence, for the notes of a run."""
        reference = self.reference
        found = f"compared with {reference.path.name}: "
        if reference.labels is not None:
            found += f"all {len(reference.labels)} labels are equal"
        else:
            found += f"largest difference {self.outputs:.1e} of the range of the scores"
        if self.loss_difference is not None:
            found += f", training loss {self.loss_difference:.1e} apart"
        return found


def read_reference(path: Path, read: ImportedModel) -> Reference:
    """Read images and outputs from an ``.npz`` file: ``images``, ``output``, ``train_loss``.

    Images are uint8 ``(way * (shot + query), 3, H, W)``. Way, shot and query follow from the shape
    of scores, ``(way * query, way)``; labels, ``(way * query,)`` or ``(1, way * query)``, have as
    many ways as the checkpoint was made for.

    Raises:
        DataError: the file cannot be read, or its arrays do not match each other or the model.
    """
    stored = _arrays(path)
    images, output = stored["images"], stored["output"]
    size = read.image_size
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (3, size, size):
        raise DataError(
            f"--check {path}: images must be uint8 (n, 3, {size}, {size}), the size this model is "
            f"made for, not {images.dtype} {images.shape}"
        )
    labels = scores = None
    if output.ndim == 1 or (output.ndim == 2 and len(output) == 1):
        labels, way = _labels(output, read.n_way, path), read.n_way
        n_queries = len(labels)
    elif output.ndim == 2:
        scores = output.astype(np.float64)
        n_queries, way = output.shape
    else:
        raise DataError(f"--check {path}: output must be (queries, way), not {output.shape}")
    query, left = divmod(n_queries, way)
    shot, too = divmod(len(images) - n_queries, way)
    if way < 2 or left or too or query < 1 or shot < 1:
        raise DataError(
            f"--check {path}: {len(images)} images and {n_queries} queries do not make "
            f"{way} ways of equal support and queries"
        )
    pixels = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    loss = _loss(stored["train_loss"], path) if "train_loss" in stored else None
    return Reference(path, pixels, way, shot, query, scores, labels, loss)


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        with open_file(path) as file, np.load(file, allow_pickle=False) as arrays:
            stored = {name: arrays[name] for name in arrays.files}
    except FileNotFoundError:
        raise DataError(f"--check {path}: no such file") from None
    except Exception as error:  # a damaged file can fail anywhere in zipfile and NumPy
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"--check {path}: cannot be read as .npz ({reason})") from None
    for name in ("images", "output"):
        if name not in stored:
            raise DataError(f"--check {path}: has no array {name!r}")
    return stored


def _labels(output: npt.NDArray[Any], way: int, path: Path) -> npt.NDArray[np.int64]:
    given: npt.NDArray[np.int64] = output.reshape(-1).astype(np.int64)
    if not np.array_equal(given, output.reshape(-1)) or given.min() < 0 or given.max() >= way:
        raise DataError(f"--check {path}: labels must be integers from 0 to {way - 1}")
    return given


def _loss(stored: npt.NDArray[Any], path: Path) -> float:
    if stored.size != 1 or not np.issubdtype(stored.dtype, np.floating):
        raise DataError(
            f"--check {path}: train_loss must be one floating-point number, not {stored.dtype} "
            f"{stored.shape}"
        )
    return float(stored.reshape(()))


def deviation(
    checkpoint: Checkpoint, reference: Reference, *, tolerance: float, device: str = "cpu"
) -> Deviation:
    """Return how far scores and training loss deviate from those given.

    Each is computed with a separate model, since training mode changes BatchNorm's statistics; the
    checkpoint is not changed.

    Raises:
        OptionError: the device is unknown or not available.
    """
    loss = difference = None
    cudnn = torch.backends.cudnn
    # On a GPU, convolutions round to 10 bits (TF32) by default.
    with cudnn.flags(
        enabled=cudnn.enabled,
        benchmark=cudnn.benchmark,
        deterministic=cudnn.deterministic,
        allow_tf32=False,
    ):
        model = checkpoint.model_as_there(device=device)
        outputs = _difference(_scores(model, reference), reference)
        if reference.train_loss is not None:
            loss = _training_loss(checkpoint.model_as_there(device=device), reference)
            difference = abs(loss - reference.train_loss) / (abs(reference.train_loss) or 1.0)
    return Deviation(reference, outputs, loss, difference, tolerance)


def _scores(model: Model, reference: Reference) -> npt.NDArray[np.float64]:
    """Return scores float64 ``(way * query, way)`` in evaluation mode."""
    model.network.eval()
    device = model.network.mean.device
    with torch.no_grad(), _seeded(device):
        items = model.network.items(torch.from_numpy(reference.pixels).to(device))
        embedded = model.network.method.embed(items)
        scores = model.network.method.scores(*_split(embedded, reference))
    found: npt.NDArray[np.float64] = scores[0].double().cpu().numpy()
    return found


def _training_loss(model: Model, reference: Reference) -> float:
    """Return the loss in training mode; the images are the episode and the batch at once."""
    network = model.network.train()
    device = network.mean.device
    ways = torch.arange(reference.way, device=device)
    of_support = ways[:, None].expand(-1, reference.shot)[None]
    of_query = ways.repeat_interleave(reference.query)[None]
    of_images = ways.repeat_interleave(reference.shot + reference.query)
    # Gradients stay on: methods that adapt may need them for the loss itself.
    with _seeded(device):
        items = network.items(torch.from_numpy(reference.pixels).to(device))
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


def _difference(scores: npt.NDArray[np.float64], reference: Reference) -> float:
    if reference.labels is not None:
        return float((scores.argmax(axis=1) != reference.labels).mean())
    assert reference.scores is not None
    given = reference.scores
    extent = float((given.max(axis=1) - given.min(axis=1)).mean())
    # Scores that are all equal have a range of 0.
    return float(np.abs(scores - given).max()) / (extent or 1.0)
