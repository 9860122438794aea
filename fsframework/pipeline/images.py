"""Pixels: decoded and resized once, then read from one memory-mapped array."""

from __future__ import annotations

from fsframework.interfaces.backbone import Preprocessing
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.progress import Reporter
from fsframework.pipeline.workspace import StoredArray, Workspace, stored_array
from fsframework.values import digest_of

__all__ = ["image_array", "image_size"]

_BLOCK = 256


def image_size(dataset: Dataset, preprocessing: Preprocessing, wanted: int | None) -> int:
    """Return the size images are used at: as asked for, the data's own, else the backbone's."""
    return wanted or dataset.native_size or preprocessing.size


def image_array(
    dataset: Dataset,
    identity: str,
    split: str,
    size: int,
    interpolation: str,
    workspace: Workspace,
    reporter: Reporter,
) -> StoredArray:
    """Return the images of a split, uint8 ``(n, size, size, 3)``, in the order of its pool.

    Args:
        identity: fingerprint of the component that made ``dataset``: its code and options.

    Raises:
        DataError: an image cannot be read; the message names it.
    """
    indices = dataset.split_indices(split)
    key = digest_of("images", identity, dataset.fingerprint, indices, f"{size} {interpolation}")
    return stored_array(
        workspace.cache / "images" / key[:24],
        (len(indices), size, size, 3),
        "uint8",
        lambda start, stop: dataset.images(indices[start:stop], size, interpolation),
        block=_BLOCK,
        label=f"images of {split}",
        reporter=reporter,
    )
