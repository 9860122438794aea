"""The main job: from an experiment to a finished record, reusing what is done already."""

from __future__ import annotations

import dataclasses
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from fsframework._files import sweep
from fsframework.components.resolution import Component, resolve_component
from fsframework.errors import OptionError, RecordError, argument
from fsframework.pipeline.cache.images import Pixels, known_digest, pixels_of
from fsframework.pipeline.cache.sealed import held, load_sealed, save_sealed
from fsframework.pipeline.experiment.configuration import Experiment
from fsframework.pipeline.experiment.settings import Settings
from fsframework.pipeline.identity import outcomes_key, run_fingerprint, training_key
from fsframework.pipeline.learning import history as histories
from fsframework.pipeline.learning.evaluation import ImageSource, evaluate
from fsframework.pipeline.learning.memory import keep_freed_memory
from fsframework.pipeline.learning.model import FewShotModel, build_model, save_tensors
from fsframework.pipeline.learning.training import (
    EPISODES,
    Split,
    Trained,
    Training,
    start_from,
    train,
)
from fsframework.pipeline.preparation import Prepared, prepare
from fsframework.pipeline.query_planning import with_planned_queries
from fsframework.pipeline.recording import (
    interval_notes,
    new_record,
    plugin_records,
    seen_by_model,
)
from fsframework.pipeline.session import Session
from fsframework.records import RECORD_NAME, RunRecord, TrainingRecord, load_outcomes
from fsframework.statistics.estimation import estimates_of, interval_for
from fsframework.values import ArmOutcomes, Estimate, Outcomes

__all__ = ["RunResult", "run_experiment"]

WEIGHTS_NAME = "weights.safetensors"
_IMAGES_OF = "images of "
"""Begins the names of digests in a record: of the splits that a model was trained on."""


@dataclass(frozen=True)
class RunResult:
    """A finished run: its folder, its record, and whether an earlier call had finished it."""

    folder: Path
    record: RunRecord
    reused: bool


def run_experiment(experiment: Experiment, session: Session) -> RunResult:
    """Run an experiment, or finish or reuse an earlier run of the same fingerprint.

    Errors in data and tasks are found before the run folder is created.

    Raises:
        FsfError: bad input, in one sentence.
    """
    if experiment.settings.queries == "auto" and not experiment.planned:
        experiment = with_planned_queries(
            experiment, session.registry, lambda pilot: run_experiment(pilot, session).folder
        )
    timer = _Timer()
    with timer("tasks"):
        prepared = prepare(experiment, session)
    job = _Job(prepared, run_fingerprint(prepared), session, timer)
    with held(session.workspace.cache / "running" / job.fingerprint[:24], session.reporter):
        return job.run()


class _Timer:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        spent = time.perf_counter() - started
        self.seconds[name] = round(self.seconds.get(name, 0.0) + spent, 3)


class _Job:
    """One run, from its data and tasks to its record."""

    def __init__(
        self, prepared: Prepared, fingerprint: str, session: Session, timer: _Timer
    ) -> None:
        self.prepared, self.fingerprint = prepared, fingerprint
        self.session, self.timer = session, timer
        self.experiment = prepared.experiment
        self.settings: Settings = prepared.experiment.settings

    @cached_property
    def folder(self) -> Path:
        """The run's folder, named by the user or after its components.

        Raises:
            OptionError: another run has the name.
        """
        runs, name = self.session.workspace.runs, self.experiment.name
        if not name:
            return runs / _folder_name(self.experiment, self.fingerprint)
        if not re.fullmatch(r"[\w][\w.-]*", name):
            raise OptionError(
                f"{argument('name')} must consist of letters, digits, '-', '_' and '.', "
                f"not {name!r}"
            )
        folder = runs / name
        if (folder / RECORD_NAME).exists() and _earlier(folder, self.fingerprint) is None:
            raise OptionError(
                f"{argument('name', name)}: {folder} holds another run; choose another name, or "
                f"remove it with fsf runs remove {name}"
            )
        return folder

    def run(self) -> RunResult:
        """Do what remains of the run."""
        earlier = _earlier(self.folder, self.fingerprint)
        if earlier is not None and earlier.status == "finished":
            if not self._edited_splits(earlier):
                return self._with_missing_estimates(earlier)
            earlier = None
        if self.prepared.device.type == "cpu":
            keep_freed_memory()
        model = self._initial_model()
        trains = self.experiment.learns and any(p.requires_grad for p in model.parameters())
        with self.timer("images"):
            images, splits = self._pixels(trains=trains)
        record = earlier or new_record(
            self.prepared,
            self.fingerprint,
            seen_by_model(self.prepared, model.extractor, model.size, trains=trains),
        )
        record.save(self.folder)
        sweep(self.folder)
        trained = None
        if splits is not None:
            with self.timer("training"):
                trained = self._train(model, images[:-1], splits)
        record = self._with_model(record, model, trained, images)
        outcomes = self._outcomes(model, images[-1])
        record = dataclasses.replace(
            record,
            status="finished",
            notes=(*record.notes, *interval_notes(outcomes, self.settings.interval)),
            timings={**record.timings, **self.timer.seconds},
            estimates=self._estimates(outcomes, self.experiment.statistics),
            statistics={name: c.fingerprint for name, c in self.experiment.statistics.items()},
            labels=_labels(self.experiment.statistics),
        )
        record.save(self.folder)
        return RunResult(self.folder, record, False)

    def _edited_splits(self, record: RunRecord) -> list[str]:
        """Return the splits whose images are known to differ from those that a run has used."""
        source, reporter = self.prepared.source, self.session.reporter
        edited = []
        for split, digest in self._image_digests(record).items():
            now = known_digest(source.store, source.dataset, split, reporter)
            if now not in (None, digest):
                edited.append(split)
                reporter.note(f"images of {split} have changed since this run; it is made again")
        return edited

    def _image_digests(self, record: RunRecord) -> dict[str, str]:
        """Return the digest of the images of each split that a run has used."""
        tested = self.settings.split or "test"
        return {
            (tested if name == "images" else name.removeprefix(_IMAGES_OF)): digest
            for name, digest in record.digests.items()
            if name == "images" or name.startswith(_IMAGES_OF)
        }

    def _estimates(
        self, outcomes: ArmOutcomes, statistics: Mapping[str, Component]
    ) -> dict[str, Estimate]:
        return estimates_of(
            {name: component.create() for name, component in statistics.items()},
            outcomes,
            self.settings.intervals,
            self.prepared.pool.class_sizes,
        )

    def _initial_model(self) -> FewShotModel:
        """Build the untrained model; fails for images that are too small for the backbone."""
        settings, learns = self.settings, self.experiment.learns
        model = build_model(
            self.experiment.backbone,
            self.experiment.method,
            self.prepared.source.store.size,
            len(self.prepared.source.pool_of("train").class_names) if learns else 0,
            settings.seed,
            # The weights of a run replace the pretrained ones, whose file or hub is not needed.
            pretrained=settings.model is None,
            offline=settings.offline,
        )
        if not (learns and any(p.requires_grad for p in model.parameters())):
            for stage in self.experiment.stages:
                if stage.init_from is not None:
                    whole = settings.model is not None
                    start_from(model, stage.init_from, stage.init_parts, whole=whole)
        return model.to(self.prepared.device)

    def _pixels(self, *, trains: bool) -> tuple[list[Pixels], tuple[Split, Split | None] | None]:
        """Return the arrays used, those under test last, and the splits to train on, if any."""
        source, reporter = self.prepared.source, self.session.reporter
        tested = self.settings.split or "test"
        names = ["train", *(["val"] if "val" in source.dataset.splits else [])] if trains else []
        arrays = [
            pixels_of(source.store, source.dataset, name, reporter) for name in (*names, tested)
        ]
        if not trains:
            return arrays, None
        parts = [
            Split(source.pool_of(name), pixels)
            for name, pixels in zip(names, arrays[:-1], strict=True)
        ]
        return arrays, (parts[0], parts[1] if len(parts) > 1 else None)

    def _train(
        self, model: FewShotModel, images: list[Pixels], splits: tuple[Split, Split | None]
    ) -> Trained:
        """Train the model in place, or take the weights of an equal training from the cache."""
        tested = self.prepared.arms.tested
        episodes = resolve_component(self.session.registry, "sampler", EPISODES)
        pools = [s.pool.fingerprint for s in splits if s is not None]
        key = training_key(self.prepared, model, images, pools, episodes)
        folder = self.session.workspace.cache / "training" / key[:24]
        watch = _Watch(self.folder, tensorboard=self.settings.tensorboard)

        def fresh(seed: int) -> FewShotModel:
            made = build_model(
                self.experiment.backbone,
                self.experiment.method,
                model.size,
                len(splits[0].pool.class_names),
                seed,
                offline=self.settings.offline,
            )
            return made.to(self.prepared.device)

        training = Training(
            self.experiment.stages,
            (tested.n_way, tested.n_shot),
            splits,
            self.settings.seed,
            self.prepared.device,
            episodes,
            fresh,
        )
        with held(folder, self.session.reporter):
            trained = train(model, training, folder, self.session.reporter, watch)
        watch(trained.history)
        return trained

    def _with_model(
        self, record: RunRecord, model: FewShotModel, trained: Trained | None, images: list[Pixels]
    ) -> RunRecord:
        digest = model.weights_digest()
        weights = self.folder / WEIGHTS_NAME
        learns = self.experiment.learns
        classes = len(self.prepared.source.pool_of("train").class_names) if learns else 0
        header: dict[str, object] = {"what": "weights", "n_base_classes": classes}
        save_tensors(weights, model.state_dict(), header)
        training, notes = TrainingRecord(), record.notes
        if trained is not None:
            recipe = self.experiment.recipe
            training = TrainingRecord(
                trained.history,
                trained.best_accuracy,
                not any(p.requires_grad for p in model.extractor.parameters()),
                recipe.described(self.experiment.dataset.name) if recipe else "",
            )
            notes = (*(n for n in notes if n not in trained.notes), *trained.notes)
        splits = zip(("train", "val"), images[:-1], strict=False)
        digests = {
            **record.digests,
            "weights": digest,
            "images": images[-1].digest,
            **{f"{_IMAGES_OF}{split}": pixels.digest for split, pixels in splits},
        }
        record = dataclasses.replace(record, digests=digests, training=training, notes=notes)
        record.save(self.folder)
        return record

    def _outcomes(self, model: FewShotModel, images: Pixels) -> ArmOutcomes:
        """Evaluate the tasks of each arm, reusing what an earlier run has cached."""
        found: dict[str, Outcomes] = {}
        source: ImageSource | None = None
        parts = self.experiment.backbone, self.experiment.method
        used = np.unique(np.concatenate([t.images.ravel() for t in self.prepared.arms.values()]))
        reporter = self.session.reporter
        for arm, tasks in self.prepared.arms.items():
            path = self.folder / f"outcomes-{arm}.parquet"
            tasks.save(self.folder / f"tasks-{arm}.safetensors")
            # Runs with other tasks under test share the outcomes of the control.
            key = outcomes_key(parts, model, images, tasks, self.settings)
            shared = self.session.workspace.cache / "outcomes" / key
            kept = load_sealed(shared, Outcomes.load, reporter)
            if kept is not None and kept.task_digest == tasks.digest:
                found[arm] = kept
                kept.save(path)
                continue
            if source is None:
                with self.timer("features"):
                    source = ImageSource.cached(
                        model,
                        images,
                        self.session.workspace,
                        reporter,
                        self.settings.precision,
                        used,
                    )
            with self.timer(f"evaluation-{arm}"):
                found[arm] = evaluate(
                    model,
                    tasks,
                    source,
                    label=f"{arm} tasks",
                    partial=self.folder / f"partial-{arm}.safetensors",
                    reporter=reporter,
                    query_batch=self.settings.query_batch,
                )
            save_sealed(shared, found[arm].save)
            found[arm].save(path)
        return ArmOutcomes(found, self.prepared.arms)

    def _with_missing_estimates(self, record: RunRecord) -> RunResult:
        """Add statistics that an earlier run of the same outcomes did not compute."""
        fitting = {name: e for name, e in record.estimates.items() if self._is_as_asked(e)}
        missing = {
            name: c
            for name, c in self.experiment.statistics.items()
            if record.statistics.get(name) != c.fingerprint
            or any(e.statistic == name and n not in fitting for n, e in record.estimates.items())
        }
        if not missing:
            return RunResult(self.folder, record, True)
        outcomes = load_outcomes(self.folder, record)
        added = dataclasses.replace(
            record,
            estimates=self._estimates(outcomes, missing),
            statistics={name: c.fingerprint for name, c in missing.items()},
            labels=_labels(missing),
            plugins=plugin_records(missing.values()),
        )
        # Estimates of another level or kind would be mixed with those requested.
        names = {e.statistic for e in fitting.values()}
        record = dataclasses.replace(
            record,
            estimates=fitting,
            statistics={n: f for n, f in record.statistics.items() if n in names},
        ).merged(added, overwrite=True)
        record.save(self.folder)
        return RunResult(self.folder, record, True)

    def _is_as_asked(self, estimate: Estimate) -> bool:
        """Whether an estimate has the requested level and kind of interval."""
        choice = self.settings.intervals
        estimators: tuple[str, ...] = ("welch-t", "student-t", choice.method)
        if len(estimate.arms) == 1:
            estimators = (interval_for(self.prepared.arms[estimate.arms[0]], choice).method,)
        elif choice.method in ("percentile", "bca"):
            estimators = (choice.method,)
        return estimate.level == choice.level and estimate.estimator in estimators


class _Watch:
    """Writes the training curve into the run's folder, epoch by epoch."""

    def __init__(self, folder: Path, *, tensorboard: bool) -> None:
        self._folder = folder
        self._tensorboard = tensorboard
        # Each call rewrites it, so that a resumed run has no epoch twice.
        if tensorboard:
            shutil.rmtree(folder / histories.TENSORBOARD_NAME, ignore_errors=True)
        self._written = 0

    def __call__(self, history: histories.History) -> None:
        """Update the files."""
        histories.write_csv(self._folder / histories.CSV_NAME, history)
        if self._tensorboard and len(history) > self._written:
            folder = self._folder / histories.TENSORBOARD_NAME
            histories.write_tensorboard(folder, history, self._written)
            self._written = len(history)


def _labels(statistics: Mapping[str, Component]) -> dict[str, str]:
    return {name: c.cls.label for name, c in statistics.items() if c.cls.label}


def _folder_name(experiment: Experiment, fingerprint: str) -> str:
    parts = [experiment.method.name, experiment.dataset.name]
    parts.append(experiment.sampler.name if experiment.settings.task_file is None else "tasks")
    if experiment.settings.placebo:
        parts.append("placebo")
    return "-".join([*parts, fingerprint[:8]])


def _earlier(folder: Path, fingerprint: str) -> RunRecord | None:
    try:
        record = RunRecord.load(folder)
    except RecordError:
        return None
    return record if record.fingerprint == fingerprint else None
