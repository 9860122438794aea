"""Decoding the images of a data set once, before any run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from fsf_tools.sharing import Do, Sharing, sharing_of
from fsframework.api.experiments import tree_of_call
from fsframework.api.session import Reporter, Session, open_session
from fsframework.api.stores import Broken, ImageStore, image_store

if TYPE_CHECKING:
    from fsframework.api.arguments import Backbone, Dataset, Launcher
    from fsframework.interfaces import Decoding

__all__ = [
    "PackedImages",
    "PixelDifference",
    "decoding_difference",
    "pack_described",
    "pack_images",
]

_MOST_COMPARED = 64
"""Images whose decoding is compared, spread evenly over the data set."""


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


class Packing(TypedDict, total=False):
    """Options of ``pack_images``, as in ``fsframework.run``."""

    image_size: int | None
    backbone: Backbone | None
    decoding: Decoding | None
    broken: Broken | None
    launcher: Launcher | None


def pack_images(
    dataset: Dataset,
    *,
    plugins: Sequence[str | Path] = (),
    cache_dir: str | Path | None = None,
    progress: bool = True,
    **arguments: Unpack[Packing],
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
    sharing, tree = sharing_of(_decoding, tree, session, plugins)
    store, broken = image_store(tree, session)
    decoded = _fill(store, broken, sharing, session.reporter)
    apart = decoding_difference(store) if store.decoding == "scaled" else None
    return PackedImages(
        file=store.rows.path,
        images=len(store),
        size=store.size,
        decoded_now=decoded,
        bytes=len(store) * store.row_bytes,
        digest=store.digest(np.arange(len(store)), session.reporter),
        broken={store.dataset.keys[row]: why for row, why in store.broken().items()},
        scaled_decoding_differs_by=apart,
    )


def _decoding(tree: Mapping[str, Any], session: Session, options: Mapping[str, Any]) -> Do:
    """Return what a worker does."""
    del options
    store, broken = image_store(tree, session)
    return lambda rows: store.fill(rows, broken, "images", session.reporter, alone=False)


def _fill(store: ImageStore, broken: Broken, sharing: Sharing | None, reporter: Reporter) -> int:
    """Fill a whole store and return how many images were decoded."""
    everything = np.arange(len(store))
    missing = store.missing(everything, broken, reporter)
    if missing.size and sharing is not None:
        store.demand_disk(missing, reporter)
        sharing.compute("images", store.key, missing, store.images_a_block)
    store.fill(everything, broken, "images", reporter)
    return int(missing.size)


def decoding_difference(store: ImageStore) -> PixelDifference | None:
    """Compare scaled with exact decoding; ``None`` where no image can be read."""
    good = np.setdiff1d(np.arange(len(store)), np.fromiter(store.broken(), np.int64))
    if not good.size:
        return None
    places = np.linspace(0, len(good) - 1, min(_MOST_COMPARED, len(good))).astype(int)
    chosen = good[np.unique(places)]
    size, how = store.size, store.interpolation
    exact = store.dataset.images(chosen, size, how).astype(np.int16)
    apart = np.abs(exact - store.dataset.scaled_images(chosen, size, how))
    return PixelDifference(float(apart.mean()), float(np.percentile(apart, 99)), int(apart.max()))
