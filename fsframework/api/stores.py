"""The pixels and features that runs read from the cache, for packages that make them in advance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsframework._files import held
from fsframework.api.models import network_of
from fsframework.engine.cache.images import Broken, ImageStore
from fsframework.engine.cache.rows import Rows, records_of
from fsframework.engine.configuration import Experiment, resolve_experiment
from fsframework.engine.learning.evaluation import FeatureStore
from fsframework.engine.preparation import candidate_splits, open_source, open_store
from fsframework.engine.session import Session

__all__ = [
    "Broken",
    "FeatureStore",
    "ImageStore",
    "Rows",
    "feature_store",
    "held",
    "image_store",
    "records_of",
]


def image_store(tree: Mapping[str, Any], session: Session) -> tuple[ImageStore, Broken]:
    """Return the store of the images that a tree describes, and what to do with broken ones."""
    experiment = resolve_experiment(session.registry, tree)
    return open_store(experiment, session), experiment.settings.broken


def feature_store(experiment: Experiment, session: Session) -> FeatureStore:
    """Return the store of the features of the images under test, which are decoded if needed.

    Args:
        experiment: of a model that needs no training and embeds images.

    Raises:
        FsfError: the data or the model cannot be opened.
    """
    source = open_source(experiment, session, trains=False)
    split = candidate_splits(experiment, source.dataset, trains=False)[0]
    model = network_of(experiment, source.store.size)
    images = source.pixels(split, session.reporter)
    return FeatureStore(model, images, session.workspace, experiment.settings.precision)
