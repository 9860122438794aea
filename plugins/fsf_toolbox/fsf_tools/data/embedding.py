"""Embedding the images of a data set before runs need their features."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from fsf_tools.sharing import Do, sharing_of
from fsframework.api.experiments import resolved, tree_of_call
from fsframework.api.session import Session, open_session
from fsframework.api.stores import FeatureStore, feature_store
from fsframework.errors import FsfError, OptionError, argument

if TYPE_CHECKING:
    from fsframework.api.arguments import Arguments, Launcher

__all__ = ["EmbeddedImages", "embed_described", "embed_images"]


@dataclass(frozen=True)
class EmbeddedImages:
    """The features of the images of a split.

    Args:
        file: NumPy array of float32, one row per image.
        shape: of the array.
        embedded_now: number of images that were not embedded before.
        bytes: of all features.
    """

    file: Path
    shape: tuple[int, ...]
    embedded_now: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {**asdict(self), "file": str(self.file)}


def embed_images(
    *,
    plugins: Sequence[str | Path] = (),
    cache_dir: str | Path | None = None,
    progress: bool = True,
    launcher: Launcher | None = None,
    **arguments: Unpack[Arguments],
) -> EmbeddedImages:
    """Compute the features of all images under test, where this was not done before.

    Runs with the same model, images and precision read these features. An interrupted call resumes
    where it stopped.

    Args:
        plugins: Python files whose plugin classes are loaded too.
        cache_dir: where features are stored; by default ``FSF_CACHE``, else the user's cache
            folder.
        progress: whether progress is shown on standard error.
        launcher: whose workers embed the images.
        **arguments: those of ``fsframework.run`` for a model that needs no training: ``model``, or
            ``method`` and ``backbone``; ``dataset``, ``split``, ``image_size``, ``precision``,
            ``device`` and others.

    Raises:
        FsfError: an argument is wrong, or the model is to be trained first.
    """
    session = open_session(cache_dir=cache_dir, plugins=plugins, progress=progress)
    tree = tree_of_call({**arguments, "launcher": launcher})
    return embed_described(tree, session, plugins)


def embed_described(
    tree: Mapping[str, Any], session: Session, plugins: Sequence[str | Path] = ()
) -> EmbeddedImages:
    """Embed the images that a tree of ``Given`` describes; see ``embed_images``.

    Args:
        plugins: the files of the session's plugins, for the workers of a launcher.
    """
    sharing, tree = sharing_of(_embedding, tree, session, plugins)
    features = _features(tree, session)
    reporter = session.reporter
    missing = features.missing(reporter)
    if missing.size and sharing is not None:
        sharing = replace(sharing, options={"key": features.key})
        sharing.compute("features", features.key, missing, features.block)
    features.built(np.arange(features.shape[0]), reporter)
    size = math.prod(features.shape) * np.dtype(np.float32).itemsize
    return EmbeddedImages(features.path, features.shape, int(missing.size), size)


def _features(tree: Mapping[str, Any], session: Session) -> FeatureStore:
    """Return the store of the features that a tree describes.

    Raises:
        OptionError: the model is to be trained first, or its method works on images.
    """
    experiment = resolved(tree, session)
    if experiment.learns:
        raise OptionError(
            f"{experiment.method.called} is to be trained, and has features only then; train it "
            f"with fsf run and give the run with {argument('model')}, or train nothing with "
            f"{argument('training.epochs', 0)}"
        )
    method = experiment.method.create()
    if method.consumes == "images" and not method.embeds:
        raise OptionError(
            f"{experiment.method.called} adapts its backbone to each task, so that images have no "
            "features that could be kept"
        )
    return feature_store(experiment, session)


def _embedding(tree: Mapping[str, Any], session: Session, options: Mapping[str, Any]) -> Do:
    """Return what a worker does.

    Raises:
        FsfError: its features would be others.
    """
    features = _features(tree, session)
    if features.key != options["key"]:
        raise FsfError(
            "this worker would compute other features than the command that started it, as on "
            f"another kind of device; give {argument('device')}"
        )
    return lambda rows: features.embed(rows, session.reporter)
