"""The embeddings of a run's images, from its own model."""

from __future__ import annotations

from typing import Any

import numpy as np

import fsframework as fsf
from fsframework.api.experiments import resolved, tree_of_call
from fsframework.api.session import open_session
from fsframework.api.stores import feature_store
from fsframework.errors import DataError
from fsframework.values import FloatArray

__all__ = ["embeddings_of"]

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
    import torch

    model, rows = run.model(device=device), np.arange(len(run.pool))
    network, parts = model.network.eval(), []
    for start in range(0, len(rows), _AT_ONCE):
        images = run.images(rows[start : start + _AT_ONCE])
        lacking = [run.pool.keys[i] for i in rows[start : start + _AT_ONCE] if int(i) not in images]
        if lacking:
            raise DataError(f"{run.folder}: the image {lacking[0]!r} can no longer be read")
        pixels = np.stack([images[i] for i in sorted(images)])
        if network.has_features:
            parts.append(model.embed(pixels))
            continue
        with torch.no_grad():
            shown = network.images(torch.from_numpy(pixels).to(network.mean.device))
            parts.append(network.extractor.encode(shown).float().cpu().numpy())
    return np.concatenate(parts)
