"""The training of an experiment: its images, its untrained model, and weights from the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

import fsframework
from fsframework.components.resolution import Component, canonical, resolve_component
from fsframework.engine.cache.images import Pixels
from fsframework.engine.cache.sealed import held
from fsframework.engine.configuration import Experiment
from fsframework.engine.learning.history import History
from fsframework.engine.learning.memory import keep_freed_memory
from fsframework.engine.learning.model import (
    WEIGHTS_NAME,
    FewShotModel,
    build_model,
    load_header,
)
from fsframework.engine.learning.training import (
    EPISODES,
    Split,
    Trained,
    Training,
    start_from,
    train,
)
from fsframework.engine.preparation import Source, changed_options, stage_digests
from fsframework.engine.session import Session
from fsframework.errors import OptionError
from fsframework.records import RunRecord
from fsframework.values import ImagePool, digest_of

__all__ = ["TrainingJob"]


@dataclass(frozen=True)
class TrainingJob:
    """Trains the model of an experiment.

    Args:
        experiment: with the options that the data decided.
        source: of the images.
        way_shot: way and shot of the tasks under test.
        device: to compute on.
        session: where it runs.
    """

    experiment: Experiment
    source: Source
    way_shot: tuple[int, int]
    device: torch.device
    session: Session

    @cached_property
    def n_base_classes(self) -> int:
        """Classes of the split ``train``; 0 if nothing learns from them, or it has no labels."""
        return self.source.dataset.pool("train").n_classes if self.experiment.learns else 0

    def untrained(self) -> FewShotModel:
        """Build the model, which has its pretrained weights if it has any."""
        if self.device.type == "cpu":
            keep_freed_memory()
        settings = self.experiment.settings
        return self.model(settings.training_seed, pretrained=settings.model is None)

    def model(self, seed: int, *, pretrained: bool = True) -> FewShotModel:
        """Build an untrained model; fails for images that are too small for the backbone.

        Args:
            pretrained: ``False`` where a run's weights replace the pretrained ones, whose file or
                hub is then not needed.
        """
        model = build_model(
            self.experiment.backbone,
            self.experiment.method,
            self.source.store.size,
            self.n_base_classes,
            seed,
            pretrained=pretrained,
            offline=self.experiment.settings.offline,
        )
        return model.to(self.device)

    def model_of(self, folder: Path) -> FewShotModel:
        """Load the model of a run, for images of the size of this experiment's.

        Raises:
            DataError: its weights are missing, damaged or not those of its model.
            OptionError: it holds no model.
            RecordError: it is no run.
        """
        record = RunRecord.load(folder)
        if record.method is None or record.backbone is None:
            raise OptionError(f"{folder}: holds accuracies measured elsewhere, and no model")
        backbone, method = (
            resolve_component(self.session.registry, kind, record.components[kind].to_tree())
            for kind in ("backbone", "method")
        )
        header = load_header(folder / WEIGHTS_NAME)
        n_base = int(header.get("n_base_classes", 0))
        size = self.source.store.size
        model = build_model(backbone, method, size, n_base, 0, pretrained=False)
        start_from(model, folder, whole=True)
        return model

    def images(self) -> list[tuple[ImagePool, Pixels]]:
        """Return the images trained and validated on."""
        dataset, reporter = self.source.dataset, self.session.reporter
        names = [name for name in ("train", "val") if name in dataset.splits]
        return [(dataset.pool(name), self.source.pixels(name, reporter)) for name in names]

    def train(
        self,
        model: FewShotModel,
        images: Sequence[tuple[ImagePool, Pixels]],
        watch: Callable[[History], None],
    ) -> Trained:
        """Train the model in place, or take the weights of an equal training from the cache.

        Args:
            images: those of ``images``.
            watch: called with the history so far after each epoch.
        """
        training, key = self._training(model, images)
        folder = self.session.workspace.cache / "training" / key[:24]
        with held(folder, self.session.reporter):
            trained = train(model, training, folder, self.session.reporter, watch)
        watch(trained.history)
        return trained

    def _training(
        self, model: FewShotModel, images: Sequence[tuple[ImagePool, Pixels]]
    ) -> tuple[Training, str]:
        """Return the training of an untrained model, and its key."""
        episodes = resolve_component(self.session.registry, "sampler", EPISODES)
        first, *others = (Split(pool, pixels) for pool, pixels in images)
        training = Training(
            self.experiment.stages,
            self.way_shot,
            (first, others[0] if others else None),
            self.experiment.settings.training_seed,
            self.device,
            episodes,
            self.model,
            self.model_of,
        )
        key = _key(self.experiment, self.way_shot, model, images, episodes, self.device.type)
        return training, key


def _key(
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
        canonical([changed_options(experiment), way_shot, experiment.settings.training_seed]),
        [episodes.fingerprint],
        canonical(stage_digests(experiment.stages)),
        device,
    )
