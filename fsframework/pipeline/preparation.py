"""All that is decided before anything long begins: data, words, tasks, device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from fsframework.components.resolution import Component
from fsframework.errors import DataError, InfeasibleTask, OptionError, argument
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.attributes.sources import WordSource, pool_with_attributes
from fsframework.pipeline.cache.images import ImageStore, image_size, store_of, without_broken
from fsframework.pipeline.experiment.configuration import Experiment, with_way
from fsframework.pipeline.experiment.settings import Settings
from fsframework.pipeline.fitting import fitted, split_candidates
from fsframework.pipeline.learning.history import check_tensorboard
from fsframework.pipeline.learning.model import resolve_device
from fsframework.pipeline.learning.training import check_stages
from fsframework.pipeline.session import Session
from fsframework.pipeline.tasks import check_tasks, control_of, draw_arms, draw_tasks, placebo
from fsframework.values import Arms, ImagePool, TaskSet

__all__ = ["Prepared", "Source", "open_source", "prepare", "word_source"]


@dataclass(frozen=True)
class Source:
    """An opened data set.

    Args:
        dataset: without the images that cannot be read, where those are left out.
        store: of the decoded images of the whole data set.
        pool_of: returns the pool of a split, made once: that of a large data set takes a while.
        broken: rows of images that are left out, with the reasons.
    """

    dataset: Dataset
    store: ImageStore
    pool_of: Callable[[str], ImagePool]
    broken: Mapping[int, str]


@dataclass(frozen=True)
class Prepared:
    """An experiment whose data and tasks are there.

    Args:
        experiment: with what the data decided.
        source: of the images.
        pool: of the tasks, with its attributes.
        arms: the tasks of each arm.
        device: that computes.
        notes: what a reader of the numbers must know.
    """

    experiment: Experiment
    source: Source
    pool: ImagePool
    arms: Arms
    device: torch.device
    notes: tuple[str, ...]


def prepare(experiment: Experiment, session: Session) -> Prepared:
    """Open the data and draw the tasks of an experiment.

    Raises:
        FsfError: something is wrong with the data or the options, or no such task can be drawn.
    """
    settings = experiment.settings
    device = resolve_device(settings.device)
    if settings.tensorboard:
        check_tensorboard()
    trains = experiment.learns
    source = open_source(experiment.dataset, experiment.backbone, settings, session, trains=trains)
    if trains and "train" not in source.dataset.splits:
        raise DataError(
            f"{experiment.method.name} must be trained, but the data set "
            f"{experiment.dataset.name} has no split 'train' (it has "
            f"{', '.join(source.dataset.splits)}); take another run's model with "
            f"{argument('model', 'RUN')}, or a pretrained backbone that keeps its weights with a "
            "method that has none of its own, such as ncc"
        )
    # A component that refuses its options should say so before anything is drawn.
    for statistic in experiment.statistics.values():
        statistic.create()
    if settings.task_file is None:
        experiment, pool, arms, notes = _with_drawn_tasks(experiment, source, session)
    else:
        pool, arms, notes = _with_tasks_of_a_file(experiment, source, session)
    if trains:
        check_stages(
            experiment.stages,
            experiment.method.create(),
            (arms.tested.n_way, arms.tested.n_shot),
            source.pool_of("train"),
            session.registry,
        )
    notes += (
        *experiment.planned,
        *_task_notes(arms, pool, placebo=settings.placebo),
        *_split_notes(experiment.settings, trains=trains),
        *_pixel_notes(source, settings, device),
    )
    if settings.placebo:
        permuted = {arm: placebo(t, pool, settings.seed) for arm, t in arms.items()}
        arms = Arms(permuted, arms.contrast, arms.symbols)
    return Prepared(experiment, source, pool, arms, device, notes)


def open_source(
    component: Component,
    backbone: Component,
    settings: Settings,
    session: Session,
    *,
    trains: bool,
) -> Source:
    """Open a data set, leaving out images that cannot be read where the settings say so.

    Args:
        component: the data set.
        backbone: whose preprocessing says the size of the images, where nothing else does.
        trains: whether the splits of training are needed too.
    """
    dataset: Dataset = component.create()
    prepared = backbone.create().preprocessing
    store = store_of(
        component,
        dataset,
        image_size(dataset, prepared, settings.image_size),
        prepared.interpolation,
        settings.decoding,
        session.workspace,
    )
    broken: dict[int, str] = {}
    if settings.broken == "skip":
        used = [s for s in ("train", "val") if s in dataset.splits and trains]
        dataset, broken = without_broken(
            store, list(dict.fromkeys([*used, settings.split or "all"])), session.reporter
        )
    return Source(dataset, store, functools.cache(dataset.pool), broken)


def _with_drawn_tasks(
    experiment: Experiment, source: Source, session: Session
) -> tuple[Experiment, ImagePool, Arms, tuple[str, ...]]:
    """Draw the tasks from the first split that allows them, changed as far as they are open."""
    settings = experiment.settings
    splits = list(source.dataset.splits)
    candidates = split_candidates(splits, settings.split, trains=experiment.learns)
    first: InfeasibleTask | None = None
    found = None
    for split in candidates:
        tried = replace(experiment, settings=replace(settings, split=split))
        try:
            one = _drawn_from(tried, source, session)
        except InfeasibleTask as error:
            first = first or error
            continue
        if found is None or not one[3]:
            found = one
        if not one[3]:
            break
    if found is None:
        assert first is not None
        raise first
    experiment, pool, arms, fit_notes, word_notes = found
    chosen = experiment.settings.split
    if chosen != "test" and settings.split is None:
        fit_notes = (f"tasks are drawn from the split {chosen}: {_why(splits, chosen)}", *fit_notes)
    for note in fit_notes:
        session.reporter.say(f"note: {note}")
    return experiment, pool, arms, (*fit_notes, *word_notes)


def _why(splits: list[str], split: str | None) -> str:
    if "test" not in splits:
        return f"the data set has no split test (it has {', '.join(splits) or 'none'})"
    return f"nothing is trained, and the split test has too few classes or images ({split} has all)"


def _drawn_from(
    experiment: Experiment, source: Source, session: Session
) -> tuple[Experiment, ImagePool, Arms, tuple[str, ...], tuple[str, ...]]:
    """Return experiment, pool and arms of one split, with the notes of fitting and of words."""
    settings, sampler = experiment.settings, experiment.sampler
    assert settings.split is not None
    pool = source.pool_of(settings.split)
    registry, cache = session.registry, session.workspace.cache
    needs = sampler.create().needs_attributes
    declared = control_of(registry, sampler)
    draw = (settings.tasks, settings.seed, cache)
    if needs and declared is not None and not declared[0].create().needs_attributes:
        # What the labels alone forbid should be known before a model describes every image.
        fitted(
            sampler,
            settings.split,
            pool,
            lambda one: _control_tasks(session, one, pool, settings),
        )
    word_notes: tuple[str, ...] = ()
    if needs or settings.attributes is not None:
        pool, word_notes = pool_with_attributes(
            word_source(experiment), source.dataset, pool, session
        )
    elif unused := _asked_of_words(experiment):
        word_notes = (f"not used, since the sampler {sampler.name} needs no attributes: {unused}",)
    fit = fitted(sampler, settings.split, pool, lambda one: draw_arms(registry, one, pool, *draw))
    if fit.sampler is not sampler:
        experiment = with_way(experiment, fit.sampler)
    return experiment, pool, fit.arms, (fit.note,) if fit.note else (), word_notes


def _control_tasks(
    session: Session, sampler: Component, pool: ImagePool, settings: Settings
) -> TaskSet | None:
    declared = control_of(session.registry, sampler)
    if declared is None:
        return None
    return draw_tasks(declared[0], pool, settings.tasks, settings.seed, session.workspace.cache)


def word_source(experiment: Experiment) -> WordSource:
    """Return where the words of an experiment's images come from."""
    settings = experiment.settings
    return WordSource(
        settings.words,
        experiment.detector,
        experiment.dataset,
        settings.split or "test",
        settings.device,
        settings.offline,
    )


def _with_tasks_of_a_file(
    experiment: Experiment, source: Source, session: Session
) -> tuple[ImagePool, Arms, tuple[str, ...]]:
    settings = experiment.settings
    assert settings.task_file is not None
    called = argument("task_file", str(settings.task_file))
    if "sampler" in experiment.given or "tasks" in experiment.given:
        raise OptionError(
            f"{called} says which tasks to evaluate; give no sampler, way, shot, queries or number "
            "of tasks beside it"
        )
    pool = source.pool_of(settings.split or "test")
    notes: tuple[str, ...] = ()
    if settings.attributes is not None or experiment.detector is not None:
        pool, notes = pool_with_attributes(word_source(experiment), source.dataset, pool, session)
    elif unused := _asked_of_words(experiment):
        notes = (f"not used, since the tasks are those of a file: {unused}",)
    tasks = TaskSet.load(settings.task_file)
    try:
        check_tasks(tasks, pool)
    except DataError as error:
        raise DataError(f"{called}: {error}") from None
    return pool, Arms({tasks.arm or tasks.sampler: tasks}), notes


def _asked_of_words(experiment: Experiment) -> str:
    """Name the options given that concern words."""
    words = experiment.settings.words
    asked = {
        "detector": experiment.detector is not None,
        "drop_class_words": words.drop_class_words,
        "drop_words": bool(words.drop_words),
        "min_count": words.min_count > 1,
    }
    return ", ".join(argument(name) for name, given in asked.items() if given)


def _pixel_notes(source: Source, settings: Settings, device: torch.device) -> Iterator[str]:
    """Yield what was done to images that a reader of the numbers should know."""
    if source.broken:
        first = next(iter(source.broken.values()))
        yield (
            f"{len(source.broken)} of {len(source.store):,} images cannot be read and are left "
            f"out: {first}" + (", ..." if len(source.broken) > 1 else "")
        )
    if settings.precision == "fp16" and device.type == "cpu":
        yield "fp16 takes longer than fp32 on a CPU; bf16 is what CPUs are made for"
    if source.store.decoding == "scaled":
        yield (
            f"image files were decoded at a reduced scale ({argument('decoding', 'scaled')}), "
            "which changes pixels a little; fsf data pack says how far"
        )


def _split_notes(settings: Settings, *, trains: bool) -> Iterator[str]:
    if trains and settings.split in ("train", "val", "all"):
        use = {"train": "trained on", "val": "chosen by", "all": "also trained on a part of"}
        yield (
            f"the tasks are of the split {settings.split}, which the model was "
            f"{use[settings.split]}"
        )


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
        return  # what follows is of words that say nothing about the permuted images
    for arm, chosen in arms.items():
        share = float(chosen.relaxed.mean())
        if share > 0:
            yield (
                f"in {100 * share:.1f} % of the classes of {arm} tasks too few queries carry "
                "another class's attribute; theirs only lack their own"
            )
