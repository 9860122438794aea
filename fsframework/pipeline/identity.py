"""Digests of everything that decides a run, a training and outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fsframework
from fsframework._reading import check_file
from fsframework.components.resolution import Component, canonical, differing
from fsframework.errors import DataError
from fsframework.pipeline.cache.images import Pixels
from fsframework.pipeline.experiment.configuration import Experiment
from fsframework.pipeline.experiment.options import Settings
from fsframework.pipeline.experiment.stages import Stage
from fsframework.pipeline.learning.model import FewShotModel
from fsframework.records import RunRecord
from fsframework.values import Arms, ImagePool, TaskSet, digest_of

__all__ = ["outcomes_key", "run_identity", "stage_digests", "training_key"]


_DECIDING = ("image_size", "decoding", "precision", "query_batch")
"""The settings that decide outcomes, besides what is made with the others."""


def run_identity(experiment: Experiment, data: str, arms: Arms, device: str) -> tuple[str, str]:
    """Return the digest of all that decides the outcomes of a run, and that of its group.

    Runs of equal groups are one method, trained with several seeds and evaluated on the same tasks.
    Where a run takes the model of another, that one's group stands for the weights: models that
    differ only in their training seeds stay a group on other tasks. The seed of the tasks decides
    by their digests.

    Args:
        data: fingerprint of the data set.
        arms: the tasks.
        device: its type.
    """
    settings, training = experiment.settings, _training(experiment)
    decides: dict[str, Any] = {
        "fsframework": fsframework.__version__,
        "components": [
            c.fingerprint for c in (experiment.dataset, experiment.backbone, experiment.method)
        ],
        "data": data,
        "tasks": {arm: tasks.digest for arm, tasks in arms.items()},
        "settings": differing(Settings, {name: getattr(settings, name) for name in _DECIDING}),
        "device": device,
    }
    stages: Any = stage_digests(experiment.stages)
    own = {"training": training, "stages": stages, "seed": settings.training_seed}
    fingerprint = digest_of("run", canonical({**decides, **own}))
    if settings.model is not None:
        source = RunRecord.load(settings.model)
        stages = source.group or source.digests.get("weights", source.fingerprint)
        training = [
            {key: value for key, value in stage.items() if key != "init_from"} for stage in training
        ]
    alike = {"training": training, "stages": stages}
    return fingerprint, digest_of("group", canonical({**decides, **alike}))


def _training(experiment: Experiment) -> list[dict[str, Any]]:
    """Return the options of each stage that are not the defaults."""
    return [differing(Stage, vars(stage)) for stage in experiment.stages]


def training_key(
    experiment: Experiment,
    way_shot: tuple[int, int],
    model: FewShotModel,
    splits: Sequence[tuple[ImagePool, Pixels]],
    episodes: Component,
    device: str,
) -> str:
    """Return the digest of everything that decides the trained weights.

    Args:
        way_shot: way and shot of the tasks under test.
        model: untrained; no fingerprint need cover its pretrained weights.
        splits: images and pixels of the splits trained and validated on.
        episodes: the sampler of the training episodes.
        device: its type.
    """
    return digest_of(
        "training",
        fsframework.__version__,
        [pixels.digest for _, pixels in splits],
        [pool.fingerprint for pool, _ in splits],
        [experiment.backbone.fingerprint, experiment.method.fingerprint],
        [model.weights_digest()],
        canonical([_training(experiment), way_shot, experiment.settings.training_seed]),
        [episodes.fingerprint],
        canonical(stage_digests(experiment.stages)),
        device,
    )


def outcomes_key(
    components: tuple[Component, Component],
    model: FewShotModel,
    images: Pixels,
    tasks: TaskSet,
    settings: Settings,
) -> str:
    """Return a file name that is a digest of everything that decides outcomes.

    Args:
        components: backbone and method.
    """
    key = digest_of(
        "outcomes",
        fsframework.__version__,
        [component.fingerprint for component in components],
        model.weights_digest(),
        images.digest,
        tasks.digest,
        f"{settings.query_batch} {settings.precision}",
        model.mean.device.type,
    )
    return f"{key[:24]}.parquet"


def stage_digests(stages: Sequence[Stage]) -> list[list[str]]:
    """Return what decides each stage besides its options: weights read, code of its method."""
    return [
        [
            _digest_of("init_from", stage.init_from),
            stage.method.fingerprint if stage.method else "",
            _digest_of("teacher", stage.teacher),
        ]
        for stage in stages
    ]


def _digest_of(option: str, source: Path | None) -> str:
    """Return the digest of the weights that an option of a stage names."""
    if source is None:
        return ""
    path = source / "weights.safetensors" if source.is_dir() else source
    try:
        check_file(path)
        return digest_of(path.read_bytes())
    except OSError as error:
        raise DataError(f"training.{option} {source}: {error.strerror}") from None
