"""Everything that is decided before a long computation: data, words, tasks, device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsframework
from fsframework.components.resolution import canonical, differing
from fsframework.engine.cache.images import ImageStore, Source, without_broken
from fsframework.engine.configuration import Experiment, with_way
from fsframework.engine.detection import Detection
from fsframework.engine.learning.history import check_tensorboard
from fsframework.engine.names import demand_text, names_note, told_names
from fsframework.engine.options import Settings
from fsframework.engine.session import Session, resolve_device
from fsframework.engine.stages import Stage, changed_options, stage_digests
from fsframework.engine.tasks import (
    FEWEST_WAYS,
    allows,
    check_columns,
    check_images,
    check_tasks,
    draw_arms,
    fitted,
    left_out,
    placebo,
    size_text,
)
from fsframework.engine.words import pool_with_attributes
from fsframework.errors import DataError, InfeasibleTask, OptionError, argument
from fsframework.interfaces.dataset import Dataset
from fsframework.records import RunRecord, read_arms
from fsframework.statistics.further import further
from fsframework.values import Arms, ImagePool, TaskSet, demand_memory, digest_of
from fsframework.values.attributes import AttributeTable

if TYPE_CHECKING:
    import torch

__all__ = [
    "FoundTasks",
    "Prepared",
    "candidate_splits",
    "detection_of",
    "drawn_tasks",
    "open_source",
    "open_store",
    "pixel_notes",
    "pool_of_tasks",
    "prepare",
    "told_tasks",
    "training_words",
    "with_fitted_stages",
    "with_words",
]

_FLOAT_BYTES, _INDEX_BYTES = 4, 8
_DECIDING = ("image_size", "decoding", "precision", "query_batch")
"""The settings that decide outcomes, besides what is made with the others."""


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
        names: what each class of the pool is called, if the method asks for that.
        words: of the training images, if a method that learns asks for them.
    """

    experiment: Experiment
    source: Source
    pool: ImagePool
    arms: Arms
    device: torch.device
    notes: tuple[str, ...]
    names: tuple[str, ...] = ()
    words: AttributeTable | None = None

    @cached_property
    def known(self) -> dict[str, Any]:
        """What methods are told besides images, as values to digest; empty for most methods."""
        found: dict[str, Any] = {"names": list(self.names)} if self.names else {}
        if self.experiment.method.create().needs_words and self.pool.attributes is not None:
            found["words"] = self.pool.attributes.fingerprint
        if self.words is not None:
            found["training words"] = self.words.fingerprint
        return found

    @cached_property
    def identity(self) -> tuple[str, str]:
        """The digest of all that decides the outcomes of the run, and that of its group.

        Runs of equal groups are one method, trained with several seeds and evaluated on the same
        tasks. Where a run takes the model of another, that one's group stands for the weights:
        models that differ only in their training seeds stay a group on other tasks. The seed of the
        tasks decides by their digests. Other words make another run even where the tasks are equal:
        its record says where they come from.
        """
        experiment, settings = self.experiment, self.experiment.settings
        stages, attributes = experiment.working_stages, self.pool.attributes
        words = [] if attributes is None else [attributes.fingerprint]
        if words and experiment.detector is not None:
            words.append(experiment.detector.fingerprint)
        decides: dict[str, Any] = {
            "fsframework": fsframework.__version__,
            "components": [
                c.fingerprint for c in (experiment.dataset, experiment.backbone, experiment.method)
            ],
            "data": self.source.dataset.fingerprint,
            "words": words,
            "tasks": {arm: tasks.digest for arm, tasks in self.arms.items()},
            "settings": differing(Settings, {name: getattr(settings, name) for name in _DECIDING}),
            "device": self.device.type,
            **({"known": self.known} if self.known else {}),
        }
        training: dict[str, Any] = {
            "training": changed_options(stages),
            "stages": stage_digests(stages),
        }
        alike = training
        if (source := experiment.source) is not None:
            alike = {
                "training": [
                    {key: value for key, value in stage.items() if key != "init_from"}
                    for stage in training["training"]
                ],
                "stages": source.group or source.digests.get("weights", source.fingerprint),
            }
        run = {**decides, **training, "seed": settings.training_seed}
        return digest_of("run", canonical(run)), digest_of("group", canonical({**decides, **alike}))


def prepare(experiment: Experiment, session: Session) -> Prepared:
    """Open the data and draw the tasks of an experiment.

    Raises:
        FsfError: the data or the options are wrong, or no such task can be drawn.
    """
    settings, method = experiment.settings, experiment.method.create()
    device = resolve_device(settings.device)
    if settings.class_names != "own" or method.needs_text:
        called = experiment.method.called, experiment.backbone.called
        demand_text(method, experiment.backbone.create(), called, settings.class_names)
    if settings.tensorboard:
        check_tensorboard()
    trains = experiment.learns
    source = open_source(experiment, session, trains=trains)
    dataset = source.dataset
    # A component that refuses its options should do so before anything is drawn.
    for statistic in experiment.statistics.values():
        statistic.create()
    if settings.interval != "student-t":
        further("over_images")  # or its package is missing
    if settings.task_file is None:
        found = drawn_tasks(experiment, dataset, session, trains=trains, words=method.needs_words)
    else:
        found = tasks_of_file(experiment, dataset, settings.task_file, session, trains=trains)
    experiment, pool, arms, notes = found.experiment, found.pool, found.arms, found.fitting
    if settings.placebo:
        permuted = {arm: placebo(t, pool, settings.task_seed) for arm, t in arms.items()}
        arms = Arms(permuted, arms.contrast, arms.symbols)
    table = None
    if trains:
        way_shot = arms.tested.n_way, arms.tested.n_shot
        experiment, note = with_fitted_stages(experiment, way_shot, dataset.pool("train"), session)
        _demand_room_for_training(experiment.stages, arms.tested, source.store.row_bytes)
        table, more = training_words(experiment, dataset, session)
        notes += (*note, *more)
    names: tuple[str, ...] = ()
    if method.needs_class_names:
        names = told_names(pool, settings, dataset.class_names)
        notes += names_note(settings.class_names)
    notes += (
        *found.notes,
        *_task_notes(arms, pool, placebo=settings.placebo),
        *_split_notes(experiment.settings, trains=trains),
        *pixel_notes(source, settings, device),
    )
    return Prepared(experiment, source, pool, arms, device, notes, names, table)


def training_words(
    experiment: Experiment, dataset: Dataset, session: Session
) -> tuple[AttributeTable | None, tuple[str, ...]]:
    """Return the words of the training images, if a method needs them, and notes on them."""
    if not experiment.learns_words:
        return None, ()
    _demand_words(experiment, dataset, "training")
    pool, notes = with_words("train", experiment, dataset, session, needed=True)
    return pool.attributes, tuple(f"training images: {note}" for note in notes)


def _demand_words(experiment: Experiment, dataset: Dataset, which: str) -> None:
    """Check that the images have words for a method that needs them.

    Raises:
        OptionError: they have none.
    """
    given = experiment.detector is not None or experiment.settings.attributes is not None
    if not given and "words" not in dataset.metadata:
        raise OptionError(
            f"{experiment.method.called} needs the words of the {which} images, and these data "
            f"have none: detect them with {argument('detector', 'appearance')}, or give "
            f"{argument('attributes', 'FILE.csv')}"
        )


def with_fitted_stages(
    experiment: Experiment, way_shot: tuple[int, int], pool: ImagePool, session: Session
) -> tuple[Experiment, tuple[str, ...]]:
    """Return an experiment with episodes that the training classes allow, and what was changed.

    Args:
        way_shot: way and shot of the tasks under test.
        pool: of the split ``train``.

    Raises:
        InfeasibleTask: no episode can be drawn with the given options.
    """
    # Drawing tasks needs this module, but no PyTorch.
    from fsframework.engine.learning.episodes import fitted_stages

    stages, note = fitted_stages(experiment, way_shot, pool, session.registry)
    if not note:
        return experiment, ()
    session.reporter.note(note)
    return replace(experiment, stages=stages), (note,)


def open_store(experiment: Experiment, session: Session) -> ImageStore:
    """Open the data set of an experiment and return the store of its images.

    They have the data set's own size, unless the settings give another, or the backbone's, if that
    is binding or the data set has none.
    """
    settings, opened = experiment.settings, experiment.dataset.create()
    wanted = experiment.backbone.create().preprocessing
    size = settings.image_size or (not wanted.binding and opened.native_size) or wanted.size
    how = size, wanted.interpolation, settings.decoding
    return ImageStore(opened, experiment.dataset, *how, session.workspace)


def open_source(experiment: Experiment, session: Session, *, trains: bool) -> Source:
    """Open a data set, skipping images that cannot be read if the settings say so.

    Args:
        trains: whether the splits for training are needed too.
    """
    settings = experiment.settings
    store = open_store(experiment, session)
    dataset = store.dataset
    trained_on = [s for s in ("train", "val") if s in dataset.splits and trains]
    usual = "test" if "test" in dataset.splits else "all"
    store.demand_room([*trained_on, settings.split or usual], session.reporter)
    if settings.broken != "skip":
        return Source(store, dataset)
    splits = [*trained_on, settings.split or "all"]
    return without_broken(store, splits, session.reporter)


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
        first, several = next(iter(source.broken.values())), len(source.broken) > 1
        yield (
            f"{len(source.broken)} of {len(source.store):,} images cannot be read and "
            f"{'are' if several else 'is'} skipped: {first}{', ...' if several else ''}"
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
                f"{100 * share:.1f} % of the classes of {arm} tasks are relaxed: too few images "
                "have another class's attribute, so some queries only lack that of their own class"
            )


@dataclass(frozen=True)
class FoundTasks:
    """The tasks of an experiment.

    Args:
        experiment: with what the data decided: split, shape of tasks, training.
        pool: that the tasks refer to, with its words, if any.
        arms: the tasks.
        fitting: what was changed to fit the data, and why.
        notes: what a reader must know about the words.
    """

    experiment: Experiment
    pool: ImagePool
    arms: Arms
    fitting: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def candidate_splits(
    experiment: Experiment, dataset: Dataset, *, trains: bool | None = None
) -> list[str]:
    """Return the splits that the images of an experiment may come from, the usual one first.

    If nothing is trained, the model has seen no image, and tasks may use all of them.
    """
    if experiment.settings.split is not None:
        return [experiment.settings.split]
    if trains is None:
        trains = experiment.learns and "train" in dataset.splits
    usual = ["test"] if "test" in dataset.splits else []
    return usual if usual and (trains or dataset.unlabelled) else [*usual, "all"]


def detection_of(
    experiment: Experiment, dataset: Dataset, split: str, session: Session, batch_size: int = 0
) -> Detection | None:
    """Return the detection of the words of a split's images, ``None`` without a detector."""
    if experiment.detector is None:
        return None
    return Detection(
        experiment.detector,
        dataset,
        experiment.dataset,
        split,
        session,
        experiment.settings.device,
        experiment.settings.offline,
        batch_size,
    )


def with_words(
    split: str, experiment: Experiment, dataset: Dataset, session: Session, *, needed: bool
) -> tuple[ImagePool, tuple[str, ...]]:
    """Return the images of a split with their words, and what a reader must know about these.

    Args:
        needed: whether they need words; if not, they have words only if those are given.
    """
    pool, asked = dataset.pool(split), experiment.settings
    if needed or asked.attributes is not None:
        detection = detection_of(experiment, dataset, split, session)
        return pool_with_attributes(pool, asked, session.reporter, detection)
    unused = [*(["detector"] if experiment.detector is not None else []), *asked.drops]
    names = ", ".join(map(argument, unused))
    return pool, (f"not used, because these tasks need no attributes: {names}",) if names else ()


def drawn_tasks(
    experiment: Experiment,
    dataset: Dataset,
    session: Session,
    *,
    trains: bool | None = None,
    words: bool = False,
) -> FoundTasks:
    """Draw tasks from the split that allows the largest, and report what follows the data.

    Args:
        trains: whether a model will be trained on the data too; ``None`` if that is only supposed.
        words: whether the method needs the words of the support images.

    Raises:
        DataError: the data set lacks a split that is needed.
        InfeasibleTask: no split yields such tasks.
    """
    _demand_classes(experiment, dataset, trains=bool(trains))
    if words:
        _demand_words(experiment, dataset, "support")
    found: dict[str, FoundTasks] = {}
    refused: dict[str, InfeasibleTask] = {}
    splits, shape = candidate_splits(experiment, dataset, trains=trains), experiment.sampler.options
    # Words may take long to detect, and a split whose labels forbid the tasks is rarely used.
    for split in splits if allows(dataset.pool(splits[0]), shape) else reversed(splits):
        try:
            found[split] = _drawn_from(_on_split(experiment, split), dataset, session, words)
        except InfeasibleTask as error:
            refused[split] = error
        if split in found and not found[split].fitting:
            break
    given = experiment.settings.split
    if not found:
        rest = "nothing is trained, and the tasks may use all images"
        train = "train" in dataset.splits and (experiment.learns if trains is None else trains)
        hint = f"; with {argument('training.epochs', 0)} {rest}" if train and not given else ""
        raise InfeasibleTask(f"{refused[splits[-1]]}{hint}")
    usual_first = [found[split] for split in splits if split in found]
    largest = max(usual_first, key=lambda one: (one.arms.tested.n_way, one.arms.tested.n_query))
    if given is None and largest.experiment.settings.split != "test":
        largest = replace(largest, fitting=(_why_all(dataset), *largest.fitting))
    session.reporter.say(told_tasks(largest))
    for note in largest.fitting:
        session.reporter.note(note)
    return largest


def told_tasks(found: FoundTasks | Prepared) -> str:
    """Return the split, classes, ways, shots and queries of tasks."""
    tested, split = found.arms.tested, found.experiment.settings.split or "test"
    return f"tasks from the split {split} ({size_text(found.pool)}): {tested.shape}"


def _on_split(experiment: Experiment, split: str) -> Experiment:
    """Return the experiment with tasks from a split."""
    return replace(experiment, settings=replace(experiment.settings, split=split))


def _demand_classes(experiment: Experiment, dataset: Dataset, *, trains: bool) -> None:
    """Check that a data set has the labels, classes and splits that training and tasks need."""
    if dataset.unlabelled >= set(dataset.splits):
        raise DataError(
            f"no image of {experiment.dataset.name} has a label, so there are no tasks; to train a "
            "backbone on these images use fsf pretrain"
        )
    if len(dataset.class_names) < FEWEST_WAYS:
        raise InfeasibleTask(
            f"the data set {experiment.dataset.name} has 1 class, and tasks need at least 2"
        )
    if trains:
        _demand_splits(experiment, list(dataset.splits))


def _demand_splits(experiment: Experiment, splits: Sequence[str]) -> None:
    """Check that a data set has the splits that training and tasks need.

    Raises:
        DataError: it lacks one.
    """
    name, known = experiment.dataset.name, " and ".join(splits) or "none"
    if "train" not in splits:
        raise DataError(
            f"{experiment.method.name} must be trained, but the data set {name} has no split "
            f"'train' (its splits: {known}); use another run's model with "
            f"{argument('model', 'RUN')}, or a pretrained backbone with a method that needs no "
            "training, such as ncc"
        )
    if experiment.settings.split is None and "test" not in splits:
        raise DataError(
            f"the data set {name} has no split 'test' to draw tasks from (its splits: {known}); "
            f"name one with {argument('split')}"
        )


def _why_all(dataset: Dataset) -> str:
    reason = f"the data set has no split test (its splits: {' and '.join(dataset.splits)})"
    if "test" in dataset.splits:
        reason = f"nothing is trained and the split test has only {size_text(dataset.pool('test'))}"
    return f"{reason}: the tasks use all images"


def _demand_labels(dataset: Dataset, split: str) -> None:
    """Check that the images of a split have labels.

    Raises:
        DataError: some have none.
    """
    if lacking := (dataset.unlabelled if split == "all" else dataset.unlabelled & {split}):
        names = " and ".join(sorted(lacking))
        raise DataError(
            f"the images of the split {names} have no labels, so no tasks can be drawn from them"
        )


def _drawn_from(
    experiment: Experiment, dataset: Dataset, session: Session, words: bool
) -> FoundTasks:
    """Draw the tasks from one split, with the words of its images if needed."""
    settings, sampler, registry = experiment.settings, experiment.sampler, session.registry
    split, needs = settings.split or "test", words or sampler.cls.needs_attributes
    _demand_labels(dataset, split)
    drawn = settings.tasks, settings.task_seed, session
    bare = dataset.pool(split)
    if needs:
        # Before a detector processes every image: the labels must allow what needs no words.
        fitted(sampler, split, bare, lambda s: draw_arms(registry, s, bare, *drawn, words=False))
    pool, notes = with_words(split, experiment, dataset, session, needed=needs)
    other, arms, note = fitted(sampler, split, pool, lambda s: draw_arms(registry, s, pool, *drawn))
    if other is not sampler:
        experiment = with_way(experiment, other)
    fitting = tuple(filter(None, (note, left_out(pool, other.options))))
    return FoundTasks(experiment, pool, arms, fitting, notes)


def tasks_of_file(
    experiment: Experiment, dataset: Dataset, file: Path, session: Session, *, trains: bool
) -> FoundTasks:
    """Read tasks from a file and check that they belong to the data of an experiment.

    Where the file is the folder of a run, its tasks are those of every arm, and come with the words
    they were drawn with, unless others are given.

    Args:
        trains: whether a model will be trained on the data too.

    Raises:
        OptionError: a sampler or its options are given as well as the file.
        DataError: the tasks belong to other data or other words, or were drawn by other contexts.
    """
    called = argument("task_file", str(experiment.given.get("task_file", file)))
    if "sampler" in experiment.given or "tasks" in experiment.given:
        raise OptionError(
            f"{called} holds the tasks to evaluate; leave out sampler, way, shot, queries and "
            "number of tasks"
        )
    arms = read_arms(file)
    needs = experiment.method.create().needs_words and not (file / "words.parquet").exists()
    if needs:
        _demand_words(experiment, dataset, "support")
    split, pool, notes = pool_of_tasks(arms, file, called, experiment, dataset, session, needs)
    if trains:
        _demand_splits(experiment, list(dataset.splits))
    if split != "test":
        experiment = _on_split(experiment, split)
    return FoundTasks(experiment, pool, arms, (), notes)


def pool_of_tasks(
    arms: Arms,
    file: Path,
    called: str,
    experiment: Experiment,
    dataset: Dataset,
    session: Session,
    needed: bool,
) -> tuple[str, ImagePool, tuple[str, ...]]:
    """Return split and images of tasks that were read, and what must be known of their words.

    Args:
        file: of the tasks; ``called`` as messages name it.
        needed: whether words must be read or detected, as they are if a detector is given; if not,
            they may be in a run's folder.

    Raises:
        DataError: the tasks belong to other data or other words, or were drawn by other contexts.
    """
    splits, digest = candidate_splits(experiment, dataset), arms.tested.key_digest
    # Tasks of none of these splits are refused below.
    matching = (one for one in splits if dataset.pool(one).key_digest == digest)
    split = next(matching, splits[0]) if len(splits) > 1 else splits[0]
    needed = needed or experiment.detector is not None
    pool, notes = with_words(split, experiment, dataset, session, needed=needed)
    check_tasks(arms, pool, called)
    if not file.is_dir():
        return split, pool, notes
    record = RunRecord.load(file)
    check_images(dataset, split, record, called)
    if (images := record.images_file(file)).exists():
        check_columns(arms.tested, pool, ImagePool.load(images), called)
    if pool.attributes is None and (own := record.words_file(file)).exists():
        table = AttributeTable.load(own)
        if table.fingerprint != record.digests.get("attributes"):
            raise DataError(f"{own}: its words are not those of the record")
        pool = pool.with_attributes(table)
        check_tasks(arms, pool, own)
    return split, pool, notes
