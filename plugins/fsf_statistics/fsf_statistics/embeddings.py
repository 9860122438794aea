"""The embeddings of a run's images, from its own model."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import fsframework as fsf
from fsframework.api.components import component
from fsframework.api.experiments import resolved, tree_of_call
from fsframework.api.models import resolve_device
from fsframework.api.run_pixels import RunImages
from fsframework.api.session import open_session
from fsframework.api.stores import feature_store
from fsframework.errors import DataError, OptionError, argument
from fsframework.interfaces import AttributeDetector, ImageTextModel
from fsframework.values import FloatArray, UInt8Array

__all__ = ["embeddings_of", "images_and_texts"]

_AT_ONCE = 256
"""Images that are in memory together."""


def embeddings_of(run: fsf.Run, *, device: str = "auto") -> FloatArray:
    """Return the features that the model of a run compares, float32 ``(images, D)``.

    Features that the run left in the cache are used again. Feature maps are averaged over their
    locations. A method that works on images has none: its backbone, before it is adapted to any
    task, embeds them instead.

    Args:
        run: of one model; rows are in the order of its ``pool``.
        device: that computes what is missing.

    Raises:
        DataError: an image can no longer be read, or the run has several models.
        RecordError: the run holds accuracies measured elsewhere.
    """
    found = _kept(run, device)
    if found is None:
        found = _computed(run, device)
    if found.ndim == 4:  # maps (n, C, h, w)
        found = found.mean(axis=(2, 3))
    return np.ascontiguousarray(found.reshape(len(found), -1), np.float32)


def _kept(run: fsf.Run, device: str) -> FloatArray | None:
    """Return the features from the cache, where those of the run's data set are its images."""
    model = run.model(device=device)
    values, _ = run.options
    if not model.network.has_features:
        return None
    session = open_session(progress=False)
    told = ("dataset", "split", "precision")
    asked: dict[str, Any] = {name: values[name] for name in told if name in values}
    tree = tree_of_call({"model": run.folder, "device": device, **asked})
    store = feature_store(resolved(tree, session), session)
    if store.shape[0] != len(run.pool):
        return None
    return np.asarray(store.built(np.arange(store.shape[0]), session.reporter))


def _computed(run: fsf.Run, device: str) -> FloatArray:
    model = run.model(device=device)
    network = model.network.eval()
    embed = model.embed if network.has_features else functools.partial(_encoded, network)
    return np.concatenate([embed(pixels) for pixels in _blocks(run)])


def _encoded(network: Any, pixels: UInt8Array) -> FloatArray:
    """Return the vectors of the backbone, float32 ``(n, D)``."""
    import torch

    with torch.no_grad():
        shown = network.images(torch.from_numpy(pixels).to(network.mean.device))
        return np.asarray(network.extractor.encode(shown).float().cpu().numpy())


def _blocks(run: fsf.Run) -> Iterator[UInt8Array]:
    """Yield the images of a run in the order of its pool.

    Raises:
        DataError: one can no longer be read.
    """
    rows, reader = np.arange(len(run.pool)), RunImages(run)
    for start in range(0, len(rows), _AT_ONCE):
        block = rows[start : start + _AT_ONCE].tolist()
        images = reader.read(block)
        if lacking := [run.pool.keys[i] for i in block if i not in images]:
            raise DataError(f"{run.folder}: the image {lacking[0]!r} can no longer be read")
        yield np.stack([images[i] for i in block])


def images_and_texts(
    run: fsf.Run, texts: Sequence[str], model: ImageTextModel | str | None, *, device: str = "auto"
) -> tuple[FloatArray | None, str]:
    """Return the cosine similarity of each image of a run with each text, and what computed it.

    Args:
        run: of one model; rows are in the order of its ``pool``.
        texts: words or phrases.
        model: a detector that embeds images and texts, or its name; by default the run's backbone
            if it reads text.
        device: that computes them.

    Returns:
        float32 ``(images, texts)`` and a name; ``None`` and no name where nothing reads text.

    Raises:
        DataError: an image can no longer be read.
        OptionError: the detector does not embed texts.
    """
    if model is None:
        network = run.model(device=device).network.eval()
        if not network.extractor.reads_text:
            return None, ""
        import torch

        with torch.no_grad():
            words = network.extractor.text_features(list(texts)).float().cpu().numpy()
        parts = [_encoded(network, pixels) for pixels in _blocks(run)]
        called = run.record.backbone.called if run.record.backbone else "the backbone"
    else:
        called = model if isinstance(model, str) else type(model).__name__
        detector: Any = model
        if isinstance(model, str):
            session = open_session(progress=False)
            detector = component(session.registry, "detector", model).create()
        if not isinstance(detector, ImageTextModel):
            raise OptionError(
                f"{argument('similarity', called)} must be a detector that embeds images and texts,"
                " such as clip-words:MODEL"
            )
        if isinstance(detector, AttributeDetector) and isinstance(model, str):
            detector.prepare(device=str(resolve_device(device)))
        words = detector.text_features(list(texts))
        parts = [detector.image_features(list(pixels)) for pixels in _blocks(run)]
    return _unit(np.concatenate(parts)) @ _unit(words).T, called


def _unit(vectors: FloatArray) -> FloatArray:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, 1e-12))
