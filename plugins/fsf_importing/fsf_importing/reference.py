"""Outputs of another library for the images of one task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fsf_importing.interfaces import ImportedModel
from fsframework.errors import DataError
from fsframework.values import UInt8Array, open_file

__all__ = ["Reference", "read_reference"]


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
        given: the starts or noise that the outputs were made from, by name, if any.
    """

    path: Path
    pixels: UInt8Array
    way: int
    shot: int
    query: int
    scores: npt.NDArray[np.float64] | None
    labels: npt.NDArray[np.int64] | None
    train_loss: float | None
    given: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


def read_reference(path: Path, read: ImportedModel) -> Reference:
    """Read images and outputs from an ``.npz`` file: ``images``, ``output``, ``train_loss``.

    Images are uint8 ``(way * (shot + query), 3, H, W)``. Way, shot and query follow from the shape
    of scores, ``(way * query, way)``; labels, ``(way * query,)`` or ``(1, way * query)``, have as
    many ways as the checkpoint was made for. Outputs that were made from starts or noise drawn at
    random come with these, under the names that the importer knows.

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
    given = {name: stored[name] for name in read.check_arrays if name in stored}
    return Reference(path, pixels, way, shot, query, scores, labels, loss, given)


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
