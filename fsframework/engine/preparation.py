"""Everything that is decided before a long computation: data, words, tasks, device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fsframework
from fsframework._reading import check_file
from fsframework.components.resolution import Component, canonical, differing
from fsframework.engine.cache.images import (
    ImageStore,
    Pixels,
    image_size,
    pixels_of,
    store_of,
    without_broken,
)
from fsframework.engine.configuration import Experiment
from fsframework.engine.learning.history import check_tensorboard
from fsframework.engine.learning.model import resolve_device
from fsframework.engine.options import Settings
from fsframework.engine.progress import Reporter
from fsframework.engine.session import Session
from fsframework.engine.stages import Stage
from fsframework.engine.tasks import drawn_tasks, placebo, tasks_of_file
from fsframework.errors import DataError, argument
from fsframework.interfaces.dataset import Dataset
from fsframework.records import RunRecord
from fsframework.values import (
    Arms,
    ImagePool,
    TaskSet,
    demand_memory,
    digest_of,
)

__all__ = [
    "Prepared",
    "Source",
    "changed_options",
    "open_source",
    "open_store",
    "pixel_notes",
    "prepare",
    "stage_digests",
]

_IMAGES_AT_ONCE = 16
"""Images that a backbone embeds together, at least."""
_FLOAT_BYTES, _INDEX_BYTES = 4, 8


@dataclass(frozen=True)
class Source:
    """An opened data set with its decoded images.

    Args:
        dataset: without the images that cannot be read, if those are skipped.
        store: of the decoded images of the whole data set.
        broken: rows of images that are skipped, with the reasons.
    """

    dataset: Dataset
    store: ImageStore
    broken: Mapping[int, str]

    def pixels(self, split: str | None, reporter: Reporter) -> Pixels:
        """Return the decoded images of a split, by default of ``test``."""
        return pixels_of(self.store, self.dataset, split or "test", reporter)


@dataclass(frozen=True)
class Prepared:
    """An experiment with its data and tasks.

    Args:
        experiment: with the options that the data decided.
        source: of the images.
        pool: of the tasks, with its attributes.
        arms: the tasks of each arm.
        device: to compute on.
        notes: what a reader of the numbers must know.
        fingerprint: of the run, and ``group``; see ``run_identity``.
    """

    experiment: Experiment
    source: Source
    pool: ImagePool
    arms: Arms
    device: torch.device
    notes: tuple[str, ...]
    fingerprint: str
    group: str


def prepare(experiment: Experiment, session: Session) -> Prepared:
    """Open the data and draw the tasks of an experiment.

    Raises:
        FsfError: the data or the options are wrong, or no such task can be drawn.
    """
    settings = experiment.settings
    device = resolve_device(settings.device)
    if settings.tensorboard:
        check_tensorboard()
    trains = experiment.learns
    source = open_source(experiment, session, trains=trains)
    # A component that refuses its options should do so before anything is drawn.
    for statistic in experiment.statistics.values():
        statistic.create()
    if settings.task_file is None:
        found = drawn_tasks(experiment, source.dataset, session, trains=trains)
    else:
        found = tasks_of_file(experiment, source.dataset, session, trains=trains)
    experiment, pool, arms = found.experiment, found.pool, found.arms
    notes = (*found.fitting, *found.notes)
    if trains:
        _demand_room_for_training(experiment.stages, arms.tested, source.store.row_bytes)
    notes += (
        *_task_notes(arms, pool, placebo=settings.placebo),
        *_split_notes(experiment.settings, trains=trains),
        *pixel_notes(source, settings, device),
    )
    if settings.placebo:
        permuted = {arm: placebo(t, pool, settings.task_seed) for arm, t in arms.items()}
        arms = Arms(permuted, arms.contrast, arms.symbols)
    identity = run_identity(experiment, source.dataset.fingerprint, arms, device.type)
    return Prepared(experiment, source, pool, arms, device, notes, *identity)


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
    settings, training = experiment.settings, changed_options(experiment)
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


def changed_options(experiment: Experiment) -> list[dict[str, Any]]:
    """Return the options of each stage that are not the defaults."""
    return [differing(Stage, vars(stage)) for stage in experiment.stages]


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


def open_store(
    dataset: Component, backbone: Component, settings: Settings, session: Session
) -> ImageStore:
    """Open a data set and return the store of its images.

    Args:
        dataset: the data set.
        backbone: whose preprocessing gives the size of the images, if nothing else does.
    """
    opened: Dataset = dataset.create()
    wanted = backbone.create().preprocessing
    size = image_size(opened, wanted, settings.image_size)
    how = wanted.interpolation, settings.decoding, session.workspace
    return store_of(dataset, opened, size, *how)


def open_source(experiment: Experiment, session: Session, *, trains: bool) -> Source:
    """Open a data set, skipping images that cannot be read if the settings say so.

    Args:
        trains: whether the splits for training are needed too.
    """
    settings = experiment.settings
    store = open_store(experiment.dataset, experiment.backbone, settings, session)
    dataset = store.dataset
    used = [s for s in ("train", "val") if s in dataset.splits and trains]
    used.append(settings.split or ("test" if "test" in dataset.splits else "all"))
    _demand_room(store, used, session)
    broken: dict[int, str] = {}
    if settings.broken == "skip":
        splits = dict.fromkeys([*used[:-1], settings.split or "all"])
        dataset, broken = without_broken(store, list(splits), session.reporter)
    return Source(dataset=dataset, store=store, broken=broken)


def _demand_room(store: ImageStore, splits: Sequence[str], session: Session) -> None:
    """Check that memory can hold a batch of images, and the disk those not yet decoded."""
    demand_memory(
        _IMAGES_AT_ONCE * _FLOAT_BYTES * store.row_bytes,
        f"{_IMAGES_AT_ONCE} images of {store.size:,} x {store.size:,} pixels",
        f"use a smaller {argument('image_size')}",
    )
    known = [split for split in splits if split in (*store.dataset.splits, "all")]
    rows = np.unique(np.concatenate([np.empty(0, int), *map(store.dataset.split_indices, known)]))
    store.demand_disk(rows, session.reporter)


def _demand_room_for_training(stages: Sequence[Stage], tested: TaskSet, row_bytes: int) -> None:
    """Check that memory can hold the images of a step, and the indices of those of an epoch."""
    for stage in stages:
        per_task = (stage.n_way or tested.n_way) * ((stage.n_shot or tested.n_shot) + stage.n_query)
        per_step = max(stage.tasks_per_step * per_task, stage.batch_size)
        indices = stage.steps * per_step + stage.validation_tasks * per_task
        if stage.epochs:
            demand_memory(
                _INDEX_BYTES * indices + _FLOAT_BYTES * row_bytes * per_step,
                f"training epochs of {stage.steps:,} steps with {per_step:,} images, validated on "
                f"{stage.validation_tasks:,} tasks,",
                "lower training.steps, training.batch_size, training.tasks_per_step, "
                "training.n_query or training.validation_tasks",
            )


def pixel_notes(source: Source, settings: Settings, device: torch.device) -> Iterator[str]:
    """Yield what a reader of the numbers should know about the images."""
    if source.broken:
        first = next(iter(source.broken.values()))
        yield (
            f"{len(source.broken)} of {len(source.store):,} images cannot be read and are "
            f"skipped: {first}" + (", ..." if len(source.broken) > 1 else "")
        )
    if settings.precision == "fp16" and device.type == "cpu":
        yield "fp16 is slower than fp32 on a CPU; use bf16 there"
    if source.store.decoding == "scaled":
        yield (
            f"image files were decoded at a reduced scale ({argument('decoding', 'scaled')}), "
            "which changes pixels a little; fsf data pack reports how much"
        )


def _split_notes(settings: Settings, *, trains: bool) -> Iterator[str]:
    if trains and settings.split in ("train", "val", "all"):
        use = {
            "train": "on which the model was trained",
            "val": "by which the model was selected",
            "all": "on a part of which the model was trained",
        }
        yield f"the tasks are from the split {settings.split}, {use[settings.split]}"


def _task_notes(arms: Arms, pool: ImagePool, *, placebo: bool) -> Iterator[str]:
    if pool.attributes is not None:
        without = int((~pool.attributes.bits.any(axis=1)).sum())
        if without:
            yield f"{without} of {len(pool)} images have no attribute"
    for arm, chosen in arms.items():
        if not chosen.reuses_images:
            yield (
                f"{len(chosen):,} {arm} tasks use {chosen.n_images:,} images, each once; "
                f"{len(pool) - chosen.n_images:,} of the {len(pool):,} are left over"
            )
    if placebo:
        return  # the words say nothing about the permuted images
    for arm, chosen in arms.items():
        share = float(chosen.relaxed.mean())
        if share > 0:
            yield (
                f"in {100 * share:.1f} % of the classes of {arm} tasks too few queries have "
                "another class's attribute; some of theirs only lack their own"
            )
