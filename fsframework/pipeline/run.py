"""The main job: from an experiment to a finished record, redoing nothing that is done."""

from __future__ import annotations

import dataclasses
import functools
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fsframework
from fsframework.components.registry import Registry
from fsframework.components.resolution import canonical, resolve_component
from fsframework.errors import DataError, OptionError, RecordError
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.attributes.sources import pool_with_attributes
from fsframework.pipeline.cache.images import (
    ImageStore,
    Pixels,
    image_size,
    pixels_of,
    store_of,
    without_broken,
)
from fsframework.pipeline.cache.workspace import Workspace, locked, sweep
from fsframework.pipeline.experiment.configuration import Experiment
from fsframework.pipeline.experiment.stages import Precision
from fsframework.pipeline.learning import history as curves
from fsframework.pipeline.learning.evaluation import ImageSource, evaluate
from fsframework.pipeline.learning.memory import keep_freed_memory
from fsframework.pipeline.learning.model import (
    FewShotModel,
    build_model,
    resolve_device,
    save_tensors,
)
from fsframework.pipeline.learning.training import (
    Split,
    Trained,
    check_stages,
    learns,
    start_from,
    train,
)
from fsframework.pipeline.lineage import with_cautions
from fsframework.pipeline.progress import Reporter
from fsframework.pipeline.query_planning import with_planned_queries
from fsframework.pipeline.tasks import check_tasks, draw_tasks, placebo
from fsframework.records import RunRecord
from fsframework.statistics.estimation import estimate, estimator_for, gap, saturation
from fsframework.statistics.intervals import FEWEST_RESAMPLED, Interval
from fsframework.values import Estimate, ImagePool, IntArray, Outcomes, TaskSet, digest_of

__all__ = ["RunResult", "compute_estimates", "load_outcomes", "run_experiment"]

RANDOM, BIASED = "R", "A"
"""Suffixes of FewSTAB: random tasks and attribute-biased tasks."""

_DTYPE_NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def _called(kind: str, tasks: TaskSet) -> str:
    """Return what tasks of a kind are called: by their sampler, where they are not biased."""
    return "attribute-biased tasks" if kind == BIASED else f"{tasks.sampler} tasks"


@dataclass(frozen=True)
class RunResult:
    """A finished run: its folder, its record, and whether everything was already there."""

    folder: Path
    record: RunRecord
    reused: bool


@dataclass(frozen=True)
class _Prepared:
    """All that is decided before anything long begins."""

    dataset: Dataset
    store: ImageStore
    pool_of: Callable[[str], ImagePool]
    """The pool of a split, made once: that of a large data set takes a while."""
    pool: ImagePool
    tasks: Mapping[str, TaskSet]
    device: torch.device
    notes: tuple[str, ...]
    fingerprint: str


class _Timer:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        spent = time.perf_counter() - started
        self.seconds[name] = round(self.seconds.get(name, 0.0) + spent, 3)


def run_experiment(
    experiment: Experiment, registry: Registry, workspace: Workspace, reporter: Reporter
) -> RunResult:
    """Run an experiment, or finish or reuse an earlier run of the same fingerprint.

    Everything that can be wrong with data and tasks is found before a run folder appears.

    Raises:
        FsfError: bad input, in one sentence.
    """
    if experiment.settings.queries == "auto" and not experiment.planned:
        experiment = with_planned_queries(
            experiment,
            registry,
            lambda pilot: run_experiment(pilot, registry, workspace, reporter).folder,
        )
    timer = _Timer()
    with timer("tasks"):
        prepared = _prepare(experiment, workspace, registry, reporter)
    folder = workspace.runs / _folder_name(experiment, prepared)
    with locked(workspace.cache / "running" / prepared.fingerprint[:24]):
        return _run_locked(experiment, prepared, folder, registry, workspace, reporter, timer)


def _run_locked(
    experiment: Experiment,
    prepared: _Prepared,
    folder: Path,
    registry: Registry,
    workspace: Workspace,
    reporter: Reporter,
    timer: _Timer,
) -> RunResult:
    earlier = _earlier(folder, prepared.fingerprint)
    if earlier is not None and earlier.status == "finished":
        return _with_missing_estimates(experiment, earlier, folder, prepared)
    if prepared.device.type == "cpu":
        keep_freed_memory()
    model = _initial_model(experiment, prepared)
    with timer("images"):
        images, splits = _pixels(experiment, prepared, model, reporter)
    record = earlier or with_cautions(
        _new_record(experiment, prepared),
        experiment,
        prepared.store.dataset,
        model.extractor,
        size=model.size,
        trains=splits is not None,
    )
    record.save(folder)
    sweep(folder)
    trained = None
    if splits is not None:
        with timer("training"):
            trained = _train(
                experiment, prepared, model, images, splits, folder, workspace, registry, reporter
            )
    record = _with_model(experiment, record, model, trained, images, folder)
    outcomes = _outcomes(
        experiment, prepared, model, images[-1], folder, workspace, reporter, timer
    )
    estimates = compute_estimates(
        {name: c.create() for name, c in experiment.statistics.items()},
        prepared.tasks,
        outcomes,
        experiment.settings.level,
        experiment.settings.interval,
        prepared.pool.class_sizes,
    )
    record = dataclasses.replace(
        record,
        status="finished",
        notes=(
            *record.notes,
            *_interval_notes(prepared.tasks, outcomes, experiment.settings.interval),
        ),
        timings={**record.timings, **timer.seconds},
        estimates=estimates,
        statistics={name: c.fingerprint for name, c in experiment.statistics.items()},
    )
    record.save(folder)
    return RunResult(folder, record, False)


def _prepare(
    experiment: Experiment, workspace: Workspace, registry: Registry, reporter: Reporter
) -> _Prepared:
    settings = experiment.settings
    device = resolve_device(settings.device)
    if settings.tensorboard:
        curves.check_tensorboard()
    dataset: Dataset = experiment.dataset.create()
    store = _store(experiment, dataset, workspace)
    broken: dict[int, str] = {}
    if settings.broken == "skip":
        dataset, broken = without_broken(store, _splits_used(experiment, dataset), reporter)
    pool_of = functools.cache(dataset.pool)
    pool = pool_of(settings.split)
    word_notes: tuple[str, ...] = ()
    if experiment.baseline is not None and settings.task_file is None:
        # What the labels alone forbid should be known before a model describes every image.
        draw_tasks(experiment.baseline, pool, settings.tasks, settings.seed, workspace)
    if (
        settings.attributes is not None
        or (experiment.detector is not None and settings.task_file is not None)
        or (experiment.sampler.create().needs_attributes and settings.task_file is None)
    ):
        pool, word_notes = pool_with_attributes(experiment, dataset, pool, workspace, reporter)
    elif unused := _asked_of_words(experiment):
        word_notes = (
            f"not used, since the sampler {experiment.sampler.name} needs no attributes: {unused}",
        )
    if _learns(experiment) and "train" not in dataset.splits:
        raise DataError(
            f"{experiment.method.name} must be trained, but the data set "
            f"{experiment.dataset.name} has no split 'train' (it has {', '.join(dataset.splits)}); "
            "evaluate another run's model with --model RUN"
        )
    # A component that refuses its options should say so before anything is drawn.
    for statistic in experiment.statistics.values():
        statistic.create()
    tasks = _tasks(experiment, pool, workspace)
    if _learns(experiment):
        tested, method = next(iter(tasks.values())), experiment.method.create()
        check_stages(experiment.stages, method, tested, pool_of("train"), registry)
    notes = (
        *word_notes,
        *_notes(experiment, tasks, pool),
        *_pixel_notes(store, broken, settings.precision, device),
    )
    if settings.placebo:
        tasks = {kind: placebo(t, pool, settings.seed) for kind, t in tasks.items()}
    identity = {
        "fsframework": fsframework.__version__,
        "components": [
            c.fingerprint for c in (experiment.dataset, experiment.backbone, experiment.method)
        ],
        "data": dataset.fingerprint,
        "tasks": {kind: t.digest for kind, t in tasks.items()},
        "training": experiment.to_json()["training"],
        "stages": _stage_digests(experiment),
        "seed": settings.seed,
        "image_size": settings.image_size,
        "decoding": settings.decoding,
        "precision": settings.precision,
        "query_batch": settings.query_batch,
        "device": device.type,
    }
    fingerprint = digest_of("run", canonical(identity))
    return _Prepared(dataset, store, pool_of, pool, tasks, device, notes, fingerprint)


def _splits_used(experiment: Experiment, dataset: Dataset) -> list[str]:
    """Return the splits whose images the run needs, that under test last."""
    trained = [s for s in ("train", "val") if s in dataset.splits and _learns(experiment)]
    return list(dict.fromkeys([*trained, experiment.settings.split]))


def _store(experiment: Experiment, dataset: Dataset, workspace: Workspace) -> ImageStore:
    settings, prepared = experiment.settings, experiment.backbone.create().preprocessing
    return store_of(
        experiment.dataset,
        dataset,
        image_size(dataset, prepared, settings.image_size),
        prepared.interpolation,
        settings.decoding,
        workspace,
    )


def _pixel_notes(
    store: ImageStore, broken: Mapping[int, str], precision: Precision, device: torch.device
) -> Iterator[str]:
    """Yield what was done to images that a reader of the numbers should know."""
    if broken:
        first = next(iter(broken.values()))
        yield f"{len(broken)} of {len(store):,} images cannot be read and are left out: {first}" + (
            ", ..." if len(broken) > 1 else ""
        )
    if precision == "fp16" and device.type == "cpu":
        yield "fp16 takes longer than fp32 on a CPU; bf16 is what CPUs are made for"
    if store.decoding == "scaled":
        yield (
            "image files were decoded at a reduced scale (decoding = scaled), which changes "
            "pixels a little; fsf data pack says how far"
        )


def _asked_of_words(experiment: Experiment) -> str:
    """Name the options given that concern words."""
    settings = experiment.settings
    asked = {
        "detector": experiment.detector is not None,
        "drop_class_words": settings.drop_class_words,
        "drop_words": bool(settings.drop_words),
        "min_count": settings.min_count > 1,
    }
    return ", ".join(name for name, given in asked.items() if given)


def _stage_digests(experiment: Experiment) -> list[list[str]]:
    """Return what decides each stage beside its options: weights read, code of its method."""
    return [
        [_init_digest(s.init_from), s.method.fingerprint if s.method else ""]
        for s in experiment.stages
    ]


def _init_digest(source: Path | None) -> str:
    if source is None:
        return ""
    path = source / "weights.safetensors" if source.is_dir() else source
    try:
        return digest_of(path.read_bytes())
    except OSError as error:
        raise DataError(f"training.init_from {source}: {error.strerror}") from None


def _tasks(experiment: Experiment, pool: ImagePool, workspace: Workspace) -> dict[str, TaskSet]:
    settings = experiment.settings
    draw = (settings.tasks, settings.seed, workspace)
    if settings.task_file is not None:
        if "sampler" in experiment.given or "tasks" in experiment.given:
            raise OptionError(
                f"--task-file {settings.task_file} says which tasks to evaluate; "
                "give no sampler, way, shot, query or number of tasks beside it"
            )
        tasks = TaskSet.load(settings.task_file)
        try:
            check_tasks(tasks, pool)
        except DataError as error:
            raise DataError(f"--task-file {settings.task_file}: {error}") from None
        return {RANDOM if tasks.attributes_fingerprint is None else BIASED: tasks}
    if experiment.baseline is None:
        return {RANDOM: draw_tasks(experiment.sampler, pool, *draw)}
    return {
        RANDOM: draw_tasks(experiment.baseline, pool, *draw),
        BIASED: draw_tasks(experiment.sampler, pool, *draw),
    }


def _notes(experiment: Experiment, tasks: Mapping[str, TaskSet], pool: ImagePool) -> Iterator[str]:
    yield from experiment.planned
    split = experiment.settings.split
    if _learns(experiment) and split in ("train", "val"):
        use = "trained on" if split == "train" else "chosen by"
        yield f"the tasks are of the split {split}, which the model was {use}"
    if pool.attributes is not None:
        without = int((~pool.attributes.bits.any(axis=1)).sum())
        if without:
            yield f"{without} of {len(pool)} images have no attribute"
    for kind, chosen in tasks.items():
        if not chosen.reuses_images:
            yield (
                f"{len(chosen):,} {_called(kind, chosen)} take {chosen.n_images:,} images, none "
                "twice; "
                f"{len(pool) - chosen.n_images:,} of the {len(pool):,} are left over"
            )
    if experiment.settings.placebo:
        return  # what follows is of words that say nothing of the permuted images
    for kind, chosen in tasks.items():
        share = float(chosen.relaxed.mean())
        if share > 0:
            yield (
                f"in {100 * share:.1f} % of the classes of {_called(kind, chosen)} too few queries "
                "carry another class' attribute; theirs merely lack their own"
            )


def _folder_name(experiment: Experiment, prepared: _Prepared) -> str:
    sampler = list(prepared.tasks.values())[-1].sampler
    plain = sampler.removeprefix("placebo(").removesuffix(")")
    parts = [experiment.method.name, experiment.dataset.name, plain]
    if experiment.settings.placebo:
        parts.append("placebo")
    return "-".join([*parts, prepared.fingerprint[:8]])


def _earlier(folder: Path, fingerprint: str) -> RunRecord | None:
    try:
        record = RunRecord.load(folder)
    except RecordError:
        return None
    return record if record.fingerprint == fingerprint else None


def _interval_notes(
    tasks: Mapping[str, TaskSet], outcomes: Mapping[str, Outcomes], interval: Interval
) -> Iterator[str]:
    """Yield what intervals of these outcomes cannot hold."""
    for kind, answered in outcomes.items():
        if (warning := saturation(answered)) is not None:
            yield f"{_called(kind, tasks[kind])}: {warning}"
        if interval in ("percentile", "bca") and len(answered) < FEWEST_RESAMPLED:
            yield (
                f"{_called(kind, tasks[kind])}: a bootstrap of {len(answered)} tasks gives "
                f"intervals that are too short; from {FEWEST_RESAMPLED} tasks on it is about "
                "right, and student-t allows for few"
            )


def _with_missing_estimates(
    experiment: Experiment, record: RunRecord, folder: Path, prepared: _Prepared
) -> RunResult:
    """Add statistics that an earlier run of the same outcomes did not compute."""
    level, interval = experiment.settings.level, experiment.settings.interval

    def as_asked(key: str, e: Estimate) -> bool:
        kind = key.rpartition("-")[2]
        estimators: tuple[str, ...] = ("welch-t", interval)
        if kind in prepared.tasks:
            estimators = (estimator_for(interval, prepared.tasks[kind]),)
        return e.level == level and e.estimator in estimators

    missing = {
        name: c
        for name, c in experiment.statistics.items()
        if record.statistics.get(name) != c.fingerprint
        or any(
            key.rpartition("-")[0] == name and not as_asked(key, e)
            for key, e in record.estimates.items()
        )
    }
    if not missing:
        return RunResult(folder, record, True)
    tasks, outcomes = load_outcomes(folder)
    if not outcomes:
        raise RecordError(f"{folder}: its outcomes are gone; delete the folder to run it again")
    statistics = {name: c.create() for name, c in missing.items()}
    sizes = prepared.pool.class_sizes
    more = compute_estimates(statistics, tasks, outcomes, level, interval, sizes)
    added = dataclasses.replace(
        record,
        estimates=more,
        statistics={name: c.fingerprint for name, c in missing.items()},
        plugins=tuple(dataclasses.asdict(c.loaded.plugin) for c in missing.values()),
    )
    # Estimates of another level or kind would stand unmarked beside those asked for.
    kept = {key: e for key, e in record.estimates.items() if as_asked(key, e)}
    names = {key.rpartition("-")[0] for key in kept}
    record = dataclasses.replace(
        record,
        estimates=kept,
        statistics={n: f for n, f in record.statistics.items() if n in names},
    ).merged(added, overwrite=True)
    record.save(folder)
    return RunResult(folder, record, True)


def load_outcomes(folder: Path) -> tuple[dict[str, TaskSet], dict[str, Outcomes]]:
    """Return the tasks and outcomes of a finished run by kind, ``R`` and perhaps ``A``."""
    kinds = [k for k in (RANDOM, BIASED) if (folder / f"outcomes-{k}.parquet").exists()]
    tasks = {k: TaskSet.load(folder / f"tasks-{k}.safetensors") for k in kinds}
    outcomes = {k: Outcomes.load(folder / f"outcomes-{k}.parquet") for k in kinds}
    for kind in kinds:
        if tasks[kind].digest != outcomes[kind].task_digest:
            raise RecordError(f"{folder}: the outcomes of {kind} tasks belong to other tasks")
    return tasks, outcomes


def compute_estimates(
    statistics: Mapping[str, Any],
    tasks: Mapping[str, TaskSet],
    outcomes: Mapping[str, Outcomes],
    level: float,
    interval: Interval = "student-t",
    class_sizes: IntArray | None = None,
) -> dict[str, Estimate]:
    """Estimate every statistic on every kind of tasks, and its gap where there are both.

    Args:
        interval: how intervals are made, where the tasks allow it; see ``estimator_for``.
        class_sizes: images of each class of the data, for ``image-level`` and ``class-level``.
    """
    found = {}
    for name, statistic in statistics.items():
        for kind, answered in outcomes.items():
            key, own = f"{name}-{kind}", estimator_for(interval, tasks[kind])
            drawn = None if class_sizes is None else (tasks[kind], class_sizes)
            found[key] = estimate(key, statistic, answered, level, own, drawn)
        if outcomes.keys() == {RANDOM, BIASED}:
            random, biased = ((tasks[kind], outcomes[kind]) for kind in (RANDOM, BIASED))
            found[f"{name}-gap"] = gap(f"{name}-gap", statistic, random, biased, level, interval)
    return found


def _initial_model(experiment: Experiment, prepared: _Prepared) -> FewShotModel:
    """Build the untrained model; images too small for the backbone end here."""
    settings = experiment.settings
    n_base = len(prepared.pool_of("train").class_names) if _learns(experiment) else 0
    model = build_model(
        experiment.backbone,
        experiment.method,
        prepared.store.size,
        n_base,
        settings.seed,
        # The weights of a run replace them all, and need neither their file nor the hub.
        pretrained=settings.model is None,
        offline=settings.offline,
    )
    if not _trains(experiment, model):
        for stage in experiment.stages:
            if stage.init_from is not None:
                start_from(
                    model, stage.init_from, stage.init_parts, whole=settings.model is not None
                )
    return model.to(prepared.device)


def _learns(experiment: Experiment) -> bool:
    """Whether anything is to be trained, so far as the options tell."""
    return learns(experiment.stages, experiment.method.cls)


def _trains(experiment: Experiment, model: FewShotModel) -> bool:
    return _learns(experiment) and any(p.requires_grad for p in model.parameters())


def _pixels(
    experiment: Experiment,
    prepared: _Prepared,
    model: FewShotModel,
    reporter: Reporter,
) -> tuple[list[Pixels], tuple[Split, Split | None] | None]:
    """Return the arrays used, those under test last, and the splits to train on, if any."""
    dataset, store = prepared.dataset, prepared.store

    def load(split: str) -> Pixels:
        return pixels_of(store, dataset, split, reporter)

    if not _trains(experiment, model):
        return [load(experiment.settings.split)], None
    names = ["train", *(["val"] if "val" in dataset.splits else []), experiment.settings.split]
    arrays = [load(name) for name in names]
    parts = [
        Split(prepared.pool_of(name), pixels)
        for name, pixels in zip(names[:-1], arrays, strict=False)
    ]
    return arrays, (parts[0], parts[1] if len(parts) > 1 else None)


def _new_record(experiment: Experiment, prepared: _Prepared) -> RunRecord:
    plugins = {dataclasses.astuple(c.loaded.plugin): c for c in experiment.components()}
    return RunRecord(
        fingerprint=prepared.fingerprint,
        status="unfinished",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        given=experiment.given,
        resolved=experiment.to_json(),
        origins=experiment.origins,
        plugins=tuple(dataclasses.asdict(c.loaded.plugin) for _, c in sorted(plugins.items())),
        environment={
            "fsframework": fsframework.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "threads": str(torch.get_num_threads()),
            "device": str(prepared.device),
            "device_name": _device_name(prepared.device),
            "dtype": _DTYPE_NAMES[experiment.settings.precision],
        },
        digests={
            "data": prepared.dataset.fingerprint,
            "pool": prepared.pool.fingerprint,
            **(
                {"attributes": prepared.pool.attributes.fingerprint}
                if prepared.pool.attributes is not None
                else {}
            ),
            **{f"tasks-{kind}": t.digest for kind, t in prepared.tasks.items()},
        },
        notes=prepared.notes,
        tasks={
            kind: {
                "sampler": t.sampler,
                "options": dict(t.options),
                "seed": t.seed,
                "way": t.n_way,
                "shot": t.n_shot,
                "query": t.n_query,
                "count": len(t),
                "class_sizes": prepared.pool.class_sizes.tolist(),
            }
            for kind, t in prepared.tasks.items()
        },
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def _train(
    experiment: Experiment,
    prepared: _Prepared,
    model: FewShotModel,
    images: list[Pixels],
    splits: tuple[Split, Split | None],
    run_folder: Path,
    workspace: Workspace,
    registry: Registry,
    reporter: Reporter,
) -> Trained:
    """Train the model in place, or take the weights of an equal training from the cache."""
    settings, tasks = experiment.settings, next(iter(prepared.tasks.values()))
    way_shot = (tasks.n_way, tasks.n_shot)
    key = digest_of(
        "training",
        fsframework.__version__,
        [a.digest for a in images[:-1]],
        [s.pool.fingerprint for s in splits if s is not None],
        [experiment.backbone.fingerprint, experiment.method.fingerprint],
        # Pretrained weights may come from where no fingerprint knows them.
        [model.weights_digest()],
        canonical([experiment.to_json()["training"], way_shot, settings.seed]),
        [resolve_component(registry, "sampler", "random").fingerprint],
        canonical(_stage_digests(experiment)),
        prepared.device.type,
    )
    folder = workspace.cache / "training" / key[:24]
    watch = _Watch(run_folder, settings.tensorboard)

    def fresh(seed: int) -> FewShotModel:
        n_base = len(splits[0].pool.class_names)
        made = build_model(
            experiment.backbone,
            experiment.method,
            model.size,
            n_base,
            seed,
            offline=settings.offline,
        )
        return made.to(prepared.device)

    with locked(folder):
        trained = train(
            model,
            experiment.stages,
            way_shot,
            splits,
            seed=settings.seed,
            device=prepared.device,
            folder=folder,
            registry=registry,
            reporter=reporter,
            fresh=fresh,
            watch=watch,
        )
    watch(trained.history)
    return trained


class _Watch:
    """Writes the curve of a training into the run's folder, epoch by epoch."""

    def __init__(self, folder: Path, tensorboard: bool) -> None:
        self._folder = folder
        self._tensorboard = tensorboard
        # Written anew by each call, so that a resumed run has no epoch twice.
        if tensorboard:
            shutil.rmtree(folder / curves.TENSORBOARD_NAME, ignore_errors=True)
        self._written = 0

    def __call__(self, history: curves.History) -> None:
        """Bring the files up to date."""
        curves.write_csv(self._folder / curves.CSV_NAME, history)
        if self._tensorboard and len(history) > self._written:
            folder = self._folder / curves.TENSORBOARD_NAME
            curves.write_tensorboard(folder, history, self._written)
            self._written = len(history)


def _with_model(
    experiment: Experiment,
    record: RunRecord,
    model: FewShotModel,
    trained: Trained | None,
    images: list[Pixels],
    folder: Path,
) -> RunRecord:
    digest = model.weights_digest()
    weights = folder / "weights.safetensors"
    if record.digests.get("weights") != digest or not weights.exists():
        # Outcomes of other weights, as of a training on another device, must not be mixed in.
        for stale in folder.glob("outcomes-*.parquet"):
            stale.unlink()
        save_tensors(weights, model.state_dict(), {"what": "weights"})
    digests = {**record.digests, "weights": digest, "images": images[-1].digest}
    training: dict[str, Any] = {}
    notes = record.notes
    if trained is not None:
        training = {
            "history": list(trained.history),
            "best_validation_accuracy": trained.best_accuracy,
            "backbone_is_frozen": not any(p.requires_grad for p in model.extractor.parameters()),
            **(
                {"recipe": experiment.recipe.described(experiment.dataset.name)}
                if experiment.recipe
                else {}
            ),
        }
        notes = (*(n for n in notes if n not in trained.notes), *trained.notes)
    record = dataclasses.replace(record, digests=digests, training=training, notes=notes)
    record.save(folder)
    return record


def _outcomes(
    experiment: Experiment,
    prepared: _Prepared,
    model: FewShotModel,
    images: Pixels,
    folder: Path,
    workspace: Workspace,
    reporter: Reporter,
    timer: _Timer,
) -> dict[str, Outcomes]:
    """Evaluate each kind of tasks, or take what an interrupted run had already written."""
    found: dict[str, Outcomes] = {}
    source: ImageSource | None = None
    for kind, tasks in prepared.tasks.items():
        path = folder / f"outcomes-{kind}.parquet"
        tasks.save(folder / f"tasks-{kind}.safetensors")
        if path.exists():
            found[kind] = Outcomes.load(path)
            if found[kind].task_digest == tasks.digest:
                continue
        # Runs with other attribute-biased tasks share the random ones.
        shared = workspace.cache / "outcomes" / _outcomes_key(experiment, model, images, tasks)
        if (kept := _kept_outcomes(shared)) is not None:
            found[kind] = kept
            kept.save(path)
            continue
        if source is None:
            with timer("features"):
                source = ImageSource.cached(
                    model, images, workspace, reporter, experiment.settings.precision
                )
        with timer(f"evaluation-{kind}"):
            found[kind] = evaluate(
                model,
                tasks,
                source,
                label=_called(kind, tasks),
                partial=folder / f"partial-{kind}.safetensors",
                reporter=reporter,
                query_batch=experiment.settings.query_batch,
            )
        found[kind].save(shared)
        found[kind].save(path)
    return found


def _kept_outcomes(path: Path) -> Outcomes | None:
    if not path.exists():
        return None
    try:
        return Outcomes.load(path)
    except DataError:  # damaged: made anew
        return None


def _outcomes_key(
    experiment: Experiment, model: FewShotModel, images: Pixels, tasks: TaskSet
) -> str:
    """Return what outcomes depend on, as a file name."""
    key = digest_of(
        "outcomes",
        fsframework.__version__,
        [c.fingerprint for c in (experiment.backbone, experiment.method)],
        model.weights_digest(),
        images.digest,
        tasks.digest,
        f"{experiment.settings.query_batch} {experiment.settings.precision}",
        model.mean.device.type,
    )
    return f"{key[:24]}.parquet"
