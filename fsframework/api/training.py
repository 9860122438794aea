"""Training a model without any tasks to test it on, for packages of commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fsframework._calls import entered
from fsframework.api.session import Session
from fsframework.engine.configuration import Experiment
from fsframework.engine.learning.history import write_tensorboard
from fsframework.engine.learning.model import FewShotModel, save_tensors
from fsframework.engine.learning.training import Trained, Training
from fsframework.engine.lineage import seen_by, under_test
from fsframework.engine.preparation import (
    open_source,
    pixel_notes,
    training_words,
    with_fitted_stages,
)
from fsframework.engine.session import resolve_device
from fsframework.errors import OptionError
from fsframework.records import DataRecord, Epoch

__all__ = ["Epoch", "TrainedModel", "save_tensors", "train_experiment", "write_tensorboard"]


@dataclass(frozen=True)
class TrainedModel:
    """A model trained on the split ``train`` of a data set.

    Args:
        model: with its trained weights.
        trained: how it went.
        n_images: number of training images.
        data: what the weights have seen.
        options: resolved, with those that the data decided.
    """

    model: FewShotModel
    trained: Trained
    n_images: int
    data: DataRecord
    options: Mapping[str, Any]


@entered()
def train_experiment(experiment: Experiment, session: Session) -> TrainedModel:
    """Train the model of an experiment, or take the weights of an equal training from the cache.

    Raises:
        OptionError: nothing is to be trained.
        FsfError: the data or the options are wrong.
    """
    if not experiment.learns:
        raise OptionError(
            f"nothing to train: {experiment.method.name} learns nothing, or training.epochs is 0; "
            "choose a method that learns, such as simclr, which needs no labels"
        )
    settings = replace(experiment.settings, split="train")
    device = resolve_device(settings.device)
    source = open_source(replace(experiment, settings=settings), session, trains=True)
    options = experiment.sampler.options
    way_shot = options.get("n_way", 5), options.get("n_shot", 5)
    experiment, _ = with_fitted_stages(experiment, way_shot, source.dataset.pool("train"), session)
    for note in pixel_notes(source, settings, device):
        session.reporter.note(note)
    words, _ = training_words(experiment, source.dataset, session)
    job = Training(experiment, source, way_shot, device, session, words)
    model = job.untrained()
    trained = job.train(model, lambda _: None)
    tested = under_test(experiment.dataset, source.store.dataset, "train")
    data, _ = seen_by(tested, model.extractor, experiment.stages, trains=True)
    data = replace(data, image_size=model.size)
    return TrainedModel(model, trained, len(job.splits[0].pool), data, experiment.options)
