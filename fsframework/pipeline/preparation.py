"""All that is decided before anything long begins: data, words, tasks, device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fsframework.components.resolution import Component
from fsframework.errors import DataError, InfeasibleTask, OptionError, argument
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.attributes.sources import WordSource, pool_with_attributes
from fsframework.pipeline.cache.images import ImageStore, image_size, store_of, without_broken
from fsframework.pipeline.experiment.configuration import Experiment, with_way
from fsframework.pipeline.experiment.settings import Settings
from fsframework.pipeline.fitting import (
    fitted,
    fitted_training,
    remedy,
    size_of,
    split_candidates,
)
from fsframework.pipeline.learning.history import check_tensorboard
from fsframework.pipeline.learning.model import resolve_device
from fsframework.pipeline.learning.training import check_stages
from fsframework.pipeline.progress import Reporter
from fsframework.pipeline.session import Session
from fsframework.pipeline.tasks import check_tasks, control_of, draw_arms, draw_tasks, placebo
from fsframework.values import Arms, ImagePool, TaskSet

__all__ = ["Prepared", "Source", "open_source", "prepare", "word_source"]


_FEWEST_CLASSES = 2


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
    # A component that refuses its options should say so before anything is drawn.
    for statistic in experiment.statistics.values():
        statistic.create()
    if settings.task_file is None:
        drawn = _with_drawn_tasks(experiment, source, session)
    else:
        drawn = _with_tasks_of_a_file(experiment, source, session)
    for note in drawn.fitting:
        session.reporter.say(f"note: {note}")
    experiment, pool, arms = drawn.experiment, drawn.pool, drawn.arms
    notes = drawn.fitting + drawn.words
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


@dataclass(frozen=True)
class _Drawn:
    """Tasks, and the experiment that they belong to.

    Args:
        experiment: with the split, the shape of tasks and the training that the data allow.
        fitting: what was changed for the data, and why; ``words``: what is to be known of those.
        shape: ways, and queries per class.
    """

    experiment: Experiment
    pool: ImagePool
    arms: Arms
    fitting: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        return self.arms.tested.n_way, self.arms.tested.n_query


def _with_drawn_tasks(experiment: Experiment, source: Source, session: Session) -> _Drawn:
    """Draw tasks, and say what would work where they cannot be drawn.

    Raises:
        DataError: the data set lacks a split that is needed.
        InfeasibleTask: no split yields such tasks, or the training classes no episodes.
    """
    try:
        return _drawn(experiment, source, session)
    except (_MissingSplit, InfeasibleTask) as error:
        silent = replace(session, reporter=Reporter())
        changes = remedy(
            experiment,
            list(source.dataset.splits),
            len(source.dataset.class_names),
            session.registry,
            lambda changed: _drawn(changed, source, silent),
        )
        kind = DataError if isinstance(error, _MissingSplit) else InfeasibleTask
        works = " ".join(argument(name, value) for name, value in changes.items())
        raise kind(f"{error}{'; this works: ' if works else ''}{works}", remedy=changes) from None


class _MissingSplit(DataError):
    """The data set lacks a split that is needed."""


def _drawn(experiment: Experiment, source: Source, session: Session) -> _Drawn:
    """Draw the tasks from the split that allows the largest, and fit the training to its own."""
    settings, splits = experiment.settings, list(source.dataset.splits)
    if len(source.dataset.class_names) < _FEWEST_CLASSES:
        raise InfeasibleTask(
            f"the data set {experiment.dataset.name} has 1 class, and tasks need at least 2"
        )
    _demand_splits(experiment, splits)
    found: _Drawn | None = None
    first: InfeasibleTask | None = None
    for split in split_candidates(splits, settings.split, trains=experiment.learns):
        tried = replace(experiment, settings=replace(settings, split=split))
        try:
            one = _drawn_from(tried, source, session)
        except InfeasibleTask as error:
            first = first or error
            continue
        if found is None or one.shape > found.shape:
            found = one
        if not one.fitting:
            break
    if found is None:
        assert first is not None
        raise first
    chosen = found.experiment.settings.split
    if chosen != "test" and settings.split is None:
        found = replace(found, fitting=(_why_all(source), *found.fitting))
    return _with_fitted_training(found, source, session) if experiment.learns else found


def _demand_splits(experiment: Experiment, splits: Sequence[str]) -> None:
    """Check that a data set has the splits that training and tasks need.

    Raises:
        _MissingSplit: it lacks one.
    """
    name, known = experiment.dataset.name, " and ".join(splits) or "none"
    if not experiment.learns:
        return
    if "train" not in splits:
        raise _MissingSplit(
            f"{experiment.method.name} must be trained, but the data set {name} has no split "
            f"'train' (its splits: {known}); take another run's model with "
            f"{argument('model', 'RUN')}, or a pretrained backbone with a method that needs no "
            "training, such as ncc"
        )
    if experiment.settings.split is None and "test" not in splits:
        raise _MissingSplit(
            f"the data set {name} has no split 'test' that tasks could come from (its splits: "
            f"{known})"
        )


def _why_all(source: Source) -> str:
    splits = source.dataset.splits
    if "test" in splits:
        reason = f"nothing is trained and the split test has {size_of(source.pool_of('test'))}"
    else:
        reason = f"the data set has no split test (its splits: {' and '.join(splits)})"
    return f"{reason}: the tasks use all images"


def _with_fitted_training(drawn: _Drawn, source: Source, session: Session) -> _Drawn:
    tested = drawn.arms.tested
    way_shot, pool = (tested.n_way, tested.n_shot), source.pool_of("train")
    method = drawn.experiment.method.create()
    experiment, note = fitted_training(
        drawn.experiment,
        way_shot,
        pool,
        lambda stages: check_stages(stages, method, way_shot, pool, session.registry),
    )
    return replace(
        drawn, experiment=experiment, fitting=(*drawn.fitting, note) if note else drawn.fitting
    )


def _drawn_from(experiment: Experiment, source: Source, session: Session) -> _Drawn:
    """Draw the tasks from one split, with the words of its images where they are needed."""
    settings, sampler = experiment.settings, experiment.sampler
    assert settings.split is not None
    pool = source.pool_of(settings.split)
    registry, cache = session.registry, session.workspace.cache
    needs = sampler.create().needs_attributes
    if needs:
        _check_labels(experiment, pool, session)
    words: tuple[str, ...] = ()
    if needs or settings.attributes is not None:
        source_of_words = word_source(experiment)
        pool, words = pool_with_attributes(source_of_words, source.dataset, pool, session)
    elif unused := _asked_of_words(experiment):
        words = (f"not used, since the sampler {sampler.name} needs no attributes: {unused}",)
    fit = fitted(
        sampler,
        settings.split,
        pool,
        lambda one: draw_arms(registry, one, pool, settings.tasks, settings.seed, cache),
    )
    if fit.sampler is not sampler:
        experiment = with_way(experiment, fit.sampler)
    return _Drawn(experiment, pool, fit.arms, (fit.note,) if fit.note else (), words)


def _check_labels(experiment: Experiment, pool: ImagePool, session: Session) -> None:
    """Find what the labels alone forbid, before a model describes every image.

    Raises:
        InfeasibleTask: not even the control can draw its tasks, whatever the words are.
    """
    settings, cache = experiment.settings, session.workspace.cache
    declared = control_of(session.registry, experiment.sampler)
    if declared is None or declared[0].create().needs_attributes:
        return

    def draw(sampler: Component) -> Arms:
        other = control_of(session.registry, sampler)
        assert other is not None
        tasks = draw_tasks(other[0], pool, settings.tasks, settings.seed, cache)
        return Arms({other[1].arms[0]: tasks})

    fitted(experiment.sampler, settings.split or "test", pool, draw)


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


def _with_tasks_of_a_file(experiment: Experiment, source: Source, session: Session) -> _Drawn:
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
    arms = Arms({tasks.arm or tasks.sampler: tasks})
    drawn = _Drawn(experiment, pool, arms, words=notes)
    if not experiment.learns:
        return drawn
    if "train" not in source.dataset.splits:
        _demand_splits(experiment, list(source.dataset.splits))
    return _with_fitted_training(drawn, source, session)


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
