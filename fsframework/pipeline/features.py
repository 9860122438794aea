"""The features of a model that needs no training, as a run would compute them."""

from __future__ import annotations

from fsframework.errors import OptionError, argument
from fsframework.pipeline.cache.images import pixels_of
from fsframework.pipeline.experiment.configuration import Experiment
from fsframework.pipeline.learning.evaluation import FeatureStore
from fsframework.pipeline.learning.model import build_model, resolve_device
from fsframework.pipeline.learning.training import start_from
from fsframework.pipeline.preparation import open_source
from fsframework.pipeline.session import Session
from fsframework.pipeline.task_sources import candidate_splits

__all__ = ["features_of"]


def features_of(experiment: Experiment, session: Session) -> FeatureStore:
    """Return the store of the features of the images under test, which are decoded if needed.

    Raises:
        OptionError: the model is to be trained first, or its method works on images.
        FsfError: the data or the model cannot be opened.
    """
    settings = experiment.settings
    if experiment.learns:
        raise OptionError(
            f"{experiment.method.called} is to be trained, and has features only then; train it "
            f"with fsf run and give the run with {argument('model')}, or train nothing with "
            f"{argument('training.epochs', 0)}"
        )
    method = experiment.method.create()
    if method.consumes == "images" and not method.embeds_images:
        raise OptionError(
            f"{experiment.method.called} adapts its backbone to each task, so that images have no "
            "features that could be kept"
        )
    source = open_source(experiment.dataset, experiment.backbone, settings, session, trains=False)
    split = candidate_splits(experiment, source.dataset, trains=False)[0]
    model = build_model(
        experiment.backbone,
        experiment.method,
        source.store.size,
        0,
        settings.training_seed,
        pretrained=settings.model is None,
        offline=settings.offline,
    ).to(resolve_device(settings.device))
    for stage in experiment.stages:
        if stage.init_from is not None:
            whole = settings.model is not None
            start_from(model, stage.init_from, stage.init_parts, whole=whole)
    images = pixels_of(source.store, source.dataset, split, session.reporter)
    return FeatureStore(model, images, session.workspace, settings.precision)
