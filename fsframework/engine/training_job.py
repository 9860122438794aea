"""The training of an experiment: its images, its untrained model, and weights from the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

import fsframework
from fsframework._files import held
from fsframework.components.resolution import canonical, resolve_component
from fsframework.engine.cache.images import Source
from fsframework.engine.configuration import Experiment
from fsframework.engine.learning.episodes import EPISODES
from fsframework.engine.learning.memory import keep_freed_memory
from fsframework.engine.learning.model import (
    FewShotModel,
    base_classes_of,
    build_model,
)
from fsframework.engine.learning.training import (
    Split,
    Trained,
    Training,
    start_from,
    train,
)
from fsframework.engine.session import Session
from fsframework.engine.stages import changed_options, stage_digests
from fsframework.errors import OptionError
from fsframework.records import Epoch, RunRecord
from fsframework.values import digest_of

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
        return self.model(self.experiment.settings.training_seed)

    def model(self, seed: int) -> FewShotModel:
        """Build an untrained model; fails for images that are too small for the backbone."""
        settings = self.experiment.settings
        model = build_model(
            self.experiment.backbone,
            self.experiment.method,
            self.source.store.size,
            self.n_base_classes,
            seed,
            # The weights of a run replace the pretrained ones, whose file or hub is not needed.
            pretrained=settings.model is None,
            offline=settings.offline,
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
        size, n_base = self.source.store.size, base_classes_of(folder)
        model = build_model(backbone, method, size, n_base, 0, pretrained=False)
        start_from(model, folder, whole=True)
        return model

    def splits(self) -> list[Split]:
        """Return the images trained and validated on."""
        dataset, reporter = self.source.dataset, self.session.reporter
        names = [name for name in ("train", "val") if name in dataset.splits]
        return [Split(dataset.pool(name), self.source.pixels(name, reporter)) for name in names]

    def train(
        self, model: FewShotModel, splits: Sequence[Split], watch: Callable[[Sequence[Epoch]], None]
    ) -> Trained:
        """Train the model in place, or take the weights of an equal training from the cache.

        Args:
            splits: those of ``splits``.
            watch: called with the history so far after each epoch.
        """
        experiment, session = self.experiment, self.session
        seed = experiment.settings.training_seed
        episodes = resolve_component(session.registry, "sampler", EPISODES)
        first, *others = splits
        training = Training(
            experiment.stages,
            self.way_shot,
            (first, others[0] if others else None),
            seed,
            self.device,
            episodes,
            self.model,
            self.model_of,
        )
        # Everything that decides the weights; no fingerprint need cover pretrained ones.
        key = digest_of(
            "training",
            fsframework.__version__,
            [split.digest for split in splits],
            [split.pool.fingerprint for split in splits],
            [experiment.backbone.fingerprint, experiment.method.fingerprint],
            [model.weights_digest()],
            canonical([changed_options(experiment.stages), self.way_shot, seed]),
            [episodes.fingerprint],
            canonical(stage_digests(experiment.stages)),
            self.device.type,
        )
        folder = session.workspace.cache / "training" / key[:24]
        with held(folder, session.reporter.note):
            trained = train(model, training, folder, session.reporter, watch)
        watch(trained.history)
        return trained
