"""The main job: from an experiment to a finished record, reusing what is done already."""

from __future__ import annotations

import functools
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isnan
from pathlib import Path

import numpy as np
import torch

import fsframework
from fsframework._calls import checked, entered
from fsframework._files import atomic_write, held, load_sealed, save_sealed, sweep
from fsframework.components.resolution import Component, canonical, plain
from fsframework.engine.cache.images import Pixels
from fsframework.engine.configuration import Experiment
from fsframework.engine.learning.batches import Split
from fsframework.engine.learning.evaluation import ImageSource, ModelClassifier, evaluate
from fsframework.engine.learning.history import Curve
from fsframework.engine.learning.knowledge import Knowledge
from fsframework.engine.learning.model import (
    WEIGHTS_NAME,
    FewShotModel,
    save_weights,
    weights_of_run,
)
from fsframework.engine.learning.training import Training, start_stages
from fsframework.engine.lineage import data_name, seen_by, under_test
from fsframework.engine.preparation import Prepared, prepare
from fsframework.engine.session import Session
from fsframework.engine.tasks import ORIGIN
from fsframework.errors import DataError, OptionError, RecordError, argument
from fsframework.records import (
    RECORD_NAME,
    ArmRecord,
    ComponentRecord,
    DataRecord,
    Environment,
    Epoch,
    PluginRecord,
    RecordVersionError,
    RunRecord,
    StageRecord,
    TrainingRecord,
    load_outcomes,
    outcomes_digests,
)
from fsframework.statistics.differences import bootstrap_of_few
from fsframework.statistics.estimation import estimates_of, saturation
from fsframework.statistics.results import MethodResult
from fsframework.values import ArmOutcomes, Arms, Outcomes, TaskSet, digest_of

__all__ = ["RunResult", "component_record", "environment", "plugin_records", "run_experiment"]

_TRAINED_ON = {"images of train": "train", "images of val": "val"}
"""Splits by the name of their images' digest in a record."""


@dataclass(frozen=True)
class RunResult:
    """A finished run: its folder, its record, and whether an earlier call had finished it."""

    folder: Path
    record: RunRecord
    reused: bool


@entered()
def run_experiment(experiment: Experiment, session: Session) -> RunResult:
    """Run an experiment, or finish or reuse an earlier run of the same fingerprint.

    ``prepare`` opens the data, draws the tasks and makes the training fit the data; errors in these
    are found before the run folder is created. ``_Job.run`` then builds the model, decodes the
    images, trains, evaluates the tasks of each arm and estimates the statistics. The record is
    saved after each of these steps, and all that takes long is kept in the cache.

    Raises:
        FsfError: bad input, in one sentence.
    """
    timer = _Timer()
    with timer("tasks"):
        prepared = prepare(experiment, session)
    running = session.workspace.cache / "running" / prepared.identity[0][:24]
    with held(running, session.reporter.note):
        return _Job(prepared, session, timer).run()


class _Timer(dict[str, float]):
    """Wall-clock seconds by stage."""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self[name] = round(self.get(name, 0.0) + time.perf_counter() - started, 3)


class _Job:
    """One run, from its data and tasks to its record."""

    def __init__(self, prepared: Prepared, session: Session, timer: _Timer) -> None:
        self.prepared = prepared
        self.session, self.timer = session, timer
        self.experiment, self.settings = prepared.experiment, prepared.experiment.settings

    @functools.cached_property
    def folder(self) -> Path:
        """The run's folder, named by the user or after its components.

        Raises:
            OptionError: the name cannot be that of a folder.
        """
        runs, name = self.session.workspace.runs, self.experiment.name
        if not name:
            return runs / _folder_name(self.prepared)
        if not re.fullmatch(r"[\w][\w.-]*", name):
            raise OptionError(
                f"{argument('name')} must consist of letters, digits, '-', '_' and '.', "
                f"not {name!r}"
            )
        return runs / name

    def _earlier(self) -> RunRecord | None:
        """Return the record of an earlier call, ``None`` without one; a damaged one is replaced.

        Raises:
            RecordError: another version of the framework wrote it.
            OptionError: another run has the name.
        """
        if not (self.folder / RECORD_NAME).exists():
            return None
        why = f"{self.folder} holds another run"
        try:
            record = RunRecord.load(self.folder)
            if record.fingerprint == self.prepared.identity[0]:
                return record
        except RecordVersionError:
            raise
        except RecordError as error:
            why = str(error)
        if name := self.experiment.name:
            raise OptionError(
                f"{argument('name', name)}: {why}; choose another name, or remove it with "
                f"fsf runs remove {name}"
            )
        self.session.reporter.note(f"{why}; it is made anew")
        return None

    def _reused(self, record: RunRecord) -> RunRecord | None:
        """Return the record of a finished run with the requested statistics.

        Returns:
            ``None`` if files of the run are missing or damaged; the run is then completed again.
        """
        try:
            weights_of_run(self.folder, record)
            outcomes = load_outcomes(self.folder, record, advice="")
            found = self._with_estimates(record, outcomes)
        except (DataError, RecordError) as error:
            self.session.reporter.note(f"{error}; the run is completed again")
            return None
        if found != record:
            found.save(self.folder)
        return found

    def run(self) -> RunResult:
        """Do what remains of the run."""
        earlier = self._earlier()
        if earlier is not None and earlier.status == "finished":
            if self._has_edited_images(earlier):
                earlier = None
            elif (record := self._reused(earlier)) is not None:
                return RunResult(self.folder, record, True)
            else:
                earlier = replace(earlier, status="unfinished")
        model = self.training.untrained()
        trains = self.experiment.learns and any(p.requires_grad for p in model.parameters())
        if not trains:
            start_stages(model, self.experiment.stages, whole=self.settings.model is not None)
        with self.timer("images"):
            split = self.settings.split or "test"
            tested = self.prepared.source.pixels(split, self.session.reporter)
            splits = self.training.splits if trains else []
        record = earlier or _new_record(self.prepared, model, trains=trains)
        record.save(self.folder)
        sweep(self.folder)
        self._keep_files()
        if splits:
            with self.timer("training"):
                record = self._with_training(record, model)
        record = self._with_weights(record, model, tested, splits)
        outcomes = self._outcomes(model, tested, record)
        earlier_usage = {} if model.method.keeps_answers else record.usage
        record = self._with_estimates(record, outcomes)
        notes = _outcome_notes(outcomes, record, self.experiment.statistics)
        record = replace(
            record,
            status="finished",
            notes=tuple(dict.fromkeys((*record.notes, *notes, *model.method.remarks))),
            timings={**record.timings, **self.timer},
            usage={k: n + earlier_usage.get(k, 0) for k, n in model.method.usage.items()},
        )
        record.save(self.folder)
        return RunResult(self.folder, record, False)

    def _keep_files(self) -> None:
        """Copy the files of a user's own plugins, which no distribution has."""
        for component in self.experiment.components():
            for name, file in _own_files(component).items():
                path = self.folder / "code" / name
                if not path.exists():
                    path.parent.mkdir(exist_ok=True)
                    atomic_write(path, file.read_bytes())

    def _has_edited_images(self, record: RunRecord) -> bool:
        """Return whether images are known to differ from those that a finished run has used."""
        source, reporter = self.prepared.source, self.session.reporter
        for name, split in {"images": self.settings.split or "test", **_TRAINED_ON}.items():
            if (then := record.digests.get(name)) is not None:
                now = source.known_digest(split, reporter)
                if now not in (None, then):
                    reporter.note(f"{self.folder}: images of {split} have changed; it is made anew")
                    return True
        return False

    def _with_estimates(self, record: RunRecord, outcomes: ArmOutcomes) -> RunRecord:
        """Return the record with the requested statistics of outcomes.

        Estimates of other outcomes, or with another kind of interval, are made again.
        """
        how = {"level": self.settings.level, "interval": self.settings.interval}
        settings = {**record.settings, **how}
        digests = {**record.digests, **outcomes_digests(outcomes)}
        if (settings, digests) != (record.settings, record.digests):
            record = replace(
                record, settings=settings, digests=digests, statistics={}, estimates={}
            )
        known = {estimate.statistic for estimate in record.estimates.values()}
        missing = {
            name: component
            for name, component in self.experiment.statistics.items()
            if name not in known or record.statistics[name] != component.fingerprint
        }
        options = {name: component_record(c).options for name, c in missing.items()}
        estimates = estimates_of(
            {name: component.create() for name, component in missing.items()},
            MethodResult(
                self.experiment.method.name,
                dict(outcomes),
                outcomes.arms,
                class_sizes=tuple(int(n) for n in self.prepared.pool.class_sizes),
            ),
            self.settings.intervals,
        )
        labels = {name: c.cls.label for name, c in missing.items() if c.cls.label}
        plugins = plugin_records(missing.values())
        return replace(
            record,
            estimates={**record.estimates, **estimates},
            statistics={**record.statistics, **{n: c.fingerprint for n, c in missing.items()}},
            statistic_options={**record.statistic_options, **options},
            labels={**record.labels, **labels},
            plugins=(*record.plugins, *(p for p in plugins if p not in record.plugins)),
        )

    @functools.cached_property
    def training(self) -> Training:
        """The training of the model, if it is trained."""
        prepared = self.prepared
        tested = prepared.arms.tested
        return Training(
            self.experiment,
            prepared.source,
            (tested.n_way, tested.n_shot),
            prepared.device,
            self.session,
            prepared.words,
        )

    def _with_training(self, record: RunRecord, model: FewShotModel) -> RunRecord:
        """Train the model in place, and record how it went."""
        curve = Curve(self.folder, tensorboard=self.settings.tensorboard)

        def watch(history: Sequence[Epoch]) -> None:
            curve(history)
            self.session.reporter.learned(history)

        trained = self.training.train(model, watch)
        tested = self.prepared.arms.tested
        return replace(
            record,
            training=TrainingRecord(
                trained.history,
                trained.best_accuracy,
                not any(p.requires_grad for p in model.extractor.parameters()),
                self.experiment.recipe_described((tested.n_way, tested.n_shot)),
            ),
            notes=tuple(dict.fromkeys((*record.notes, *trained.notes))),
        )

    def _with_weights(
        self, record: RunRecord, model: FewShotModel, images: Pixels, splits: list[Split]
    ) -> RunRecord:
        """Return the record with the digest of the weights, which are saved with the run."""
        digest, path = model.weights_digest(), self.folder / WEIGHTS_NAME
        if record.digests.get("weights") != digest:
            # Outcomes of other weights, as of a training on another device, must not be mixed in.
            for stale in self.folder.glob("outcomes-*.parquet"):
                stale.unlink()
        trained_on = zip(_TRAINED_ON, (split.digest for split in splits), strict=False)
        found = {"weights": digest, "images": images.digest, **dict(trained_on)}
        record = replace(record, digests={**record.digests, **found})
        try:
            weights_of_run(self.folder, record)
        except DataError:
            save_weights(path, model, self.training.n_base_classes)
        record.save(self.folder)
        return record

    def _outcomes(self, model: FewShotModel, images: Pixels, record: RunRecord) -> ArmOutcomes:
        """Evaluate the tasks of each arm, reusing what an earlier run had written."""
        pool, arms, reporter = self.prepared.pool, self.prepared.arms, self.session.reporter
        arms.save(self.folder)
        pool.save(record.images_file(self.folder))
        if pool.attributes is not None:
            pool.attributes.save(record.words_file(self.folder))

        @functools.cache
        def known() -> Knowledge:
            return Knowledge(model, pool, self.prepared.names)

        @functools.cache
        def source() -> ImageSource:
            used = np.unique(np.concatenate([tasks.images.ravel() for tasks in arms.values()]))
            workspace, precision = self.session.workspace, self.settings.precision
            with self.timer("features"):
                return ImageSource.cached(model, images, workspace, reporter, precision, used)

        found: dict[str, Outcomes] = {}
        again = model.method.keeps_answers
        for arm, tasks in arms.items():
            # Runs with other tasks under test share the outcomes of the control.
            shared = self._shared_outcomes(model, images, tasks)
            answered = None if again else load_sealed(shared, Outcomes.load, reporter.note)
            if answered is None:
                told, features = known(), source()
                with self.timer(f"evaluation-{arm}"):
                    answered = evaluate(
                        ModelClassifier(model, features, told),
                        tasks,
                        label=f"{arm} tasks",
                        partial=None if again else self.folder / f"partial-{arm}.safetensors",
                        identity=shared.stem,
                        reporter=reporter,
                        query_batch=self.settings.query_batch,
                    )
                save_sealed(shared, answered.save)
            answered.save(self.folder / f"outcomes-{arm}.parquet")
            found[arm] = answered
        return ArmOutcomes(found, arms)

    def _shared_outcomes(self, model: FewShotModel, images: Pixels, tasks: TaskSet) -> Path:
        """Return the cached file of outcomes, named by a digest of everything that decides them."""
        key = digest_of(
            "outcomes",
            fsframework.__version__,
            [self.experiment.backbone.fingerprint, self.experiment.method.fingerprint],
            model.weights_digest(),
            images.digest,
            tasks.digest,
            f"{self.settings.query_batch} {self.settings.precision}",
            model.mean.device.type,
            *([canonical(self.prepared.known)] if self.prepared.known else []),
        )
        return self.session.workspace.cache / "outcomes" / f"{key[:24]}.parquet"


def _folder_name(prepared: Prepared) -> str:
    """Return method, data, sampler, shape of tasks, seed of what is trained and a digest."""
    experiment = prepared.experiment
    settings = experiment.settings
    *_, tested = prepared.arms.values()
    parts = [
        experiment.method.called,
        data_name(experiment.dataset),
        experiment.sampler.name if settings.task_file is None else "tasks",
        "placebo" if settings.placebo else "",
        f"{tested.n_way}w{tested.n_shot}s",
        f"seed{settings.training_seed}" if experiment.learns else "",
        prepared.identity[0][:8],
    ]
    plain = (re.sub(r"[^\w.]+", "-", part[:40]).strip("-.") for part in parts)
    return "-".join(filter(None, plain))


_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_SHAPE = ("name", "n_way", "n_shot", "n_query")


def _new_record(prepared: Prepared, model: FewShotModel, *, trains: bool) -> RunRecord:
    """Return the record of a run that is about to start.

    Args:
        prepared: the experiment with its data and tasks.
        model: as built, with its pretrained weights.
        trains: whether the run trains it on the split ``train``.
    """
    experiment, pool = prepared.experiment, prepared.pool
    settings = experiment.settings
    tested = under_test(experiment.dataset, prepared.source.store.dataset, settings.split or "test")
    data, cautions = seen_by(tested, model.extractor, experiment.stages, trains=trains)
    digests = {"data": prepared.source.dataset.fingerprint, "pool": pool.fingerprint}
    if pool.attributes is not None:
        digests["attributes"] = pool.attributes.fingerprint
    return RunRecord(
        fingerprint=prepared.identity[0],
        group=prepared.identity[1],
        status="unfinished",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        name=experiment.name,
        given=experiment.given,
        settings=plain(vars(settings)),
        origins=experiment.settings_origins,
        components={role: component_record(c) for role, c in experiment.roles.items()},
        stages=tuple(
            StageRecord(options, origins)
            for options, origins in zip(
                experiment.options["training"], experiment.stage_origins, strict=True
            )
        ),
        plugins=plugin_records(experiment.components()),
        environment=environment(prepared.device, _DTYPES[settings.precision]),
        digests=digests,
        arms=_arm_records(prepared.arms, experiment.sampler, pool.class_sizes.tolist()),
        contrast=prepared.arms.contrast,
        notes=(
            *prepared.notes,
            *prepared.source.repeated(settings.split or "test", pool),
            *_weight_notes(data),
            *_reuse_notes(experiment),
            *(() if trains else _undeclared(prepared, model)),
            *cautions,
        ),
        cautions=cautions,
        data=replace(data, image_size=model.size),
        class_names=dict(zip(pool.class_names, prepared.names, strict=False)),
    )


def _undeclared(prepared: Prepared, model: FewShotModel) -> Iterator[str]:
    """Yield what to declare, if tasks were made smaller for a training with nothing to train."""
    experiment = prepared.experiment
    fitted = ORIGIN in experiment.sampler.origins.values()
    if not experiment.learns or not fitted or "split" in experiment.given:
        return
    missing = [] if model.method.weightless else [f"weightless = True in {experiment.method.name}"]
    missing += [] if model.extractor.keeps_weights else ["keeps_weights = True in the backbone"]
    if missing:
        yield f"nothing is trained; declare {' and '.join(missing)} to let the tasks use all images"


def _weight_notes(data: DataRecord) -> Iterator[str]:
    """Yield where pretrained weights came from: the first two facts; the record has all."""
    if data.weights_from:
        told = [f"{k} {v}" for k, v in data.weights_from.items() if not v.startswith("sha256:")]
        yield f"the backbone's pretrained weights: {', '.join(told[:2])}"


def _reuse_notes(experiment: Experiment) -> Iterator[str]:
    """Yield why nothing computed with a component is reused, if that is so."""
    for component in experiment.components():
        for what in dict.fromkeys(w for code in component.codes for w in code.undigested):
            yield (
                f"{component.kind} {component.name} uses an object of type {what}, which cannot be "
                "digested, so the same call computes everything with it again"
            )


def _own_files(component: Component) -> dict[str, Path]:
    """Return the files of a component of no distribution, by the names of their copies."""
    if component.plugin.version != "-":
        return {}
    files = {file for code in component.codes for file in code.files}
    return {f"{f.stem}-{digest_of(f.read_bytes())[:8]}.py": f for f in sorted(files)}


def component_record(component: Component) -> ComponentRecord:
    """Return the entry of a component in a record."""
    options = component.to_json()
    del options["name"]
    argument, origins = component.cls.argument, component.origins_json()
    return ComponentRecord(component.name, options, origins, argument, component.added_as)


def plugin_records(components: Iterable[Component]) -> tuple[PluginRecord, ...]:
    """Return the plugins of components, each once, sorted."""
    found = {}
    for component in components:
        plugin = component.plugin
        files = {name: digest_of(file.read_bytes()) for name, file in _own_files(component).items()}
        found[plugin] = PluginRecord(
            *(plugin.kind, plugin.name, plugin.target, plugin.distribution, plugin.version), files
        )
    return tuple(found[plugin] for plugin in sorted(found))


def environment(device: torch.device, dtype: str = "float32") -> Environment:
    """Return the versions, threads and device that this process computes with."""
    processor = platform.processor() or platform.machine()
    return Environment(
        fsframework=fsframework.__version__,
        python=platform.python_version(),
        torch=torch.__version__,
        numpy=np.__version__,
        threads=torch.get_num_threads(),
        device=str(device),
        device_name=torch.cuda.get_device_name(device) if device.type == "cuda" else processor,
        dtype=dtype,
    )


def _arm_records(arms: Arms, sampler: Component, class_sizes: list[int]) -> dict[str, ArmRecord]:
    origins = {name: of for name, of in sampler.origins.items() if of != "default"}
    given = [name for name in origins if name not in _SHAPE]
    return {
        arm: ArmRecord.of(tasks, class_sizes, arms.symbols.get(arm, ""), given)
        for arm, tasks in arms.items()
    }


def _outcome_notes(
    outcomes: ArmOutcomes, record: RunRecord, statistics: Mapping[str, Component]
) -> Iterator[str]:
    """Yield what is noted of outcomes, and warnings about intervals that they cannot support."""
    interval = record.settings["interval"]
    if unknown := [e for e in record.estimates.values() if isnan(e.low)]:
        named = ", ".join(record.label(one).partition(" = ")[0] for one in unknown)
        yield f"no interval of {named}: the value is the same in every task"
    for arm, answered in outcomes.items():
        few = bootstrap_of_few(interval, len(answered))
        for told in filter(None, (*answered.notes, saturation(answered), few)):
            yield f"{arm} tasks: {told}"
    for estimate in record.estimates.values():
        is_gap = len(estimate.arms) > 1 and not estimate.relative
        if is_gap and estimate.statistic in statistics:
            statistic = statistics[estimate.statistic].create()
            yield from checked(statistic, "notes", statistic.notes(outcomes, estimate), list)
