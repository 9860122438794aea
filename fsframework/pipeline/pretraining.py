"""Training a backbone without a task: weights for other methods."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

import fsframework
from fsframework.errors import DataError, OptionError
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.experiment.configuration import Experiment
from fsframework.pipeline.fitting import fitted_training
from fsframework.pipeline.learning.model import FewShotModel, resolve_device, save_tensors
from fsframework.pipeline.learning.training import Trained, check_stages
from fsframework.pipeline.lineage import having_trained, lineage_of, under_test
from fsframework.pipeline.preparation import open_source, pixel_notes
from fsframework.pipeline.session import Session
from fsframework.pipeline.training_job import TrainingJob

__all__ = ["PretrainedBackbone", "pretrain_experiment"]


@dataclass(frozen=True)
class PretrainedBackbone:
    """The result of a training.

    Args:
        trained: how it went.
        n_images: number of training images.
        file: of the weights of the backbone.
    """

    trained: Trained
    n_images: int
    file: Path


def pretrain_experiment(experiment: Experiment, session: Session, file: Path) -> PretrainedBackbone:
    """Train an experiment's backbone with its method and write the backbone's weights.

    Args:
        file: is replaced if it exists.

    Raises:
        FsfError: bad input, in one sentence.
    """
    job, notes = _job(experiment, session)
    for note in notes:
        session.reporter.note(note)
    model, images = job.untrained(), job.images()
    trained = job.train(model, images, lambda _: None)
    weights = {f"backbone.{k}": v for k, v in model.extractor.state_dict().items()}
    save_tensors(file, weights, _header(job, model, trained, len(images[0][0])))
    return PretrainedBackbone(trained, len(images[0][0]), file)


def _job(experiment: Experiment, session: Session) -> tuple[TrainingJob, tuple[str, ...]]:
    """Return the training, checked, and what was changed to fit the data."""
    settings = experiment.settings
    method = experiment.method.create()
    if not experiment.learns:
        raise OptionError(
            f"nothing to train: {experiment.method.name} learns nothing, or training.epochs is 0; "
            "choose a method that learns, such as simclr, which needs no labels"
        )
    device = resolve_device(settings.device)
    settings = replace(settings, split=_split(experiment.dataset.create()))
    source = open_source(experiment.dataset, experiment.backbone, settings, session, trains=True)
    pool = source.pool_of("train")
    options = experiment.sampler.options
    way_shot = options.get("n_way", 5), options.get("n_shot", 5)
    fitting, note = fitted_training(
        experiment,
        way_shot,
        pool,
        lambda stages: check_stages(stages, method, way_shot, pool, session.registry),
    )
    job = TrainingJob(fitting, source, way_shot, device, session)
    return job, (*pixel_notes(source, settings, device), *([note] if note else ()))


def _split(dataset: Dataset) -> str:
    """Return the split trained on.

    Raises:
        DataError: the data set has none.
    """
    if "train" not in dataset.splits:
        known = " and ".join(dataset.splits) or "none"
        raise DataError(f"the data set has no split 'train' to learn from (its splits: {known})")
    return "train"


def _header(
    job: TrainingJob, model: FewShotModel, trained: Trained, n_images: int
) -> dict[str, object]:
    experiment, stages = job.experiment, job.experiment.stages
    seen = lineage_of(
        model.extractor,
        [stage.init_from for stage in stages if stage.init_from is not None],
        [stage.teacher for stage in stages if stage.teacher is not None],
    )
    data = under_test(experiment.dataset, job.source.store.dataset, "train")
    seen = replace(having_trained(seen, data), name=data.name, image_size=model.size)
    return {
        "what": "weights",
        "version": fsframework.__version__,
        "method": experiment.method.to_json(),
        "backbone": experiment.backbone.to_json(),
        "dataset": experiment.dataset.to_json(),
        "training": experiment.training_json(),
        "data": msgspec.to_builtins(seen),
        "training_seed": experiment.settings.training_seed,
        "n_images": n_images,
        "best_accuracy": trained.best_accuracy,
        "notes": trained.notes,
    }
