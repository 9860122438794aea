"""Decoding the images of a data set once, before any run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fsframework.api.experiments import tree_of_call
from fsframework.api.session import open_session
from fsframework.api.sharing import sharing_of
from fsframework.pipeline.cache.images import (
    Broken,
    ImageStore,
    decoding_difference,
    image_size,
    store_of,
)
from fsframework.pipeline.experiment.configuration import resolve_part
from fsframework.pipeline.progress import Reporter
from fsframework.pipeline.session import Session
from fsframework.pipeline.work.shards import MissingRows, Sharing

__all__ = [
    "PackedImages",
    "PixelDifference",
    "described_store",
    "pack_described",
    "pack_images",
]

_USUAL_SIZE, _USUAL_INTERPOLATION = 84, "bilinear"


@dataclass(frozen=True)
class PixelDifference:
    """How far the pixels of scaled decoding are from those of exact decoding, in levels of 0..255.

    Args:
        mean: absolute difference.
        percentile_99: that 99 % of the pixels do not exceed.
        largest: of all.
    """

    mean: float
    percentile_99: float
    largest: int


@dataclass(frozen=True)
class PackedImages:
    """The decoded images of a data set.

    Args:
        file: NumPy array of bytes ``(images, size, size, 3)``.
        images: their number.
        size: pixels per side.
        decoded_now: number of images that were not decoded before.
        bytes: of all images.
        digest: of their pixels.
        broken: why images were skipped, by key.
        scaled_decoding_differs_by: for scaled decoding, where an image can be read.
    """

    file: Path
    images: int
    size: int
    decoded_now: int
    bytes: int
    digest: str
    broken: Mapping[str, str]
    scaled_decoding_differs_by: PixelDifference | None

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {**asdict(self), "file": str(self.file)}


def pack_images(
    dataset: Any,
    *,
    plugins: Sequence[str | Path] = (),
    cache_dir: str | Path | None = None,
    progress: bool = True,
    **arguments: Any,
) -> PackedImages:
    """Decode and resize all images of a data set, where this was not done before.

    Runs on the same data and size read these images. An interrupted call resumes where it stopped.

    Args:
        dataset: a name, a mapping of a name and options, a class or an instance.
        plugins: Python files whose plugin classes are loaded too.
        cache_dir: where the images are stored; by default ``FSF_CACHE``, else the user's cache
            folder.
        progress: whether progress is shown on standard error.
        **arguments: ``image_size`` in pixels, by default that of the data set, else 84;
            ``backbone``, whose size and interpolation are used; ``decoding`` (``exact`` or
            ``scaled``) and ``broken`` (``fatal`` or ``skip``) as in ``fsframework.run``;
            ``launcher``, whose workers decode the images.

    Raises:
        FsfError: an argument is wrong, or an image cannot be read.
    """
    session = open_session(cache_dir=cache_dir, plugins=plugins, progress=progress)
    return pack_described(tree_of_call({"dataset": dataset, **arguments}), session, plugins)


def pack_described(
    tree: Mapping[str, Any], session: Session, plugins: Sequence[str | Path] = ()
) -> PackedImages:
    """Decode the images that a tree of ``Given`` describes; see ``pack_images``.

    Args:
        plugins: the files of the session's plugins, for the workers of a launcher.
    """
    sharing, tree = sharing_of("images", tree, session, plugins)
    store, broken = described_store(tree, session)
    decoded = _fill(store, broken, sharing, session.reporter)
    apart = decoding_difference(store) if store.decoding == "scaled" else None
    return PackedImages(
        file=store.path,
        images=len(store),
        size=store.size,
        decoded_now=decoded,
        bytes=len(store) * store.row_bytes,
        digest=store.digest_of_all(),
        broken={store.dataset.keys[row]: why for row, why in store.broken().items()},
        scaled_decoding_differs_by=None if apart is None else PixelDifference(*apart),
    )


def described_store(tree: Mapping[str, Any], session: Session) -> tuple[ImageStore, Broken]:
    """Return the store of the images that a tree describes, and what to do with broken ones."""
    settings, component = resolve_part(session.registry, tree, "dataset")
    dataset = component.create()
    size = settings.image_size or dataset.native_size or _USUAL_SIZE
    interpolation = _USUAL_INTERPOLATION
    if "backbone" in tree:
        wanted = resolve_part(session.registry, tree, "backbone")[1].create().preprocessing
        size, interpolation = image_size(dataset, wanted, settings.image_size), wanted.interpolation
    store = store_of(component, dataset, size, interpolation, settings.decoding, session.workspace)
    return store, settings.broken


def _fill(store: ImageStore, broken: Broken, sharing: Sharing | None, reporter: Reporter) -> int:
    """Fill a whole store and return how many images were decoded."""
    everything = np.arange(len(store))
    missing = store.missing(everything, broken, reporter)
    if missing.size and sharing is not None:
        store.demand_disk(missing, reporter)
        with sharing.opened("images", store.key) as shared:
            shared.compute(MissingRows(missing, store.images_a_block))
    store.fill(everything, broken, "images", reporter)
    return int(missing.size)
