"""Where the tasks of an experiment come from: drawn as the data allow, or read from a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fsframework.components.resolution import Component
from fsframework.errors import DataError, InfeasibleTask, OptionError, argument
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.attributes.sources import WordSource, pool_with_attributes
from fsframework.pipeline.experiment.configuration import Experiment, with_way
from fsframework.pipeline.experiment.settings import Settings
from fsframework.pipeline.fitting import fitted, split_candidates
from fsframework.pipeline.session import Session
from fsframework.pipeline.tasks import check_tasks, control_of, draw_arms, draw_tasks
from fsframework.values import Arms, ImagePool, TaskSet

__all__ = [
    "FoundTasks",
    "OpenedDataset",
    "candidate_splits",
    "checked_tasks",
    "drawn_tasks",
    "split_of_tasks",
    "tasks_of_file",
    "word_source",
]


@dataclass(frozen=True)
class OpenedDataset:
    """An open data set whose pools are made once: the pool of a large one takes a while."""

    dataset: Dataset

    @cached_property
    def _pools(self) -> dict[str, ImagePool]:
        return {}

    def pool_of(self, split: str) -> ImagePool:
        """Return the images of a split, without words."""
        if split not in self._pools:
            self._pools[split] = self.dataset.pool(split)
        return self._pools[split]


@dataclass(frozen=True)
class FoundTasks:
    """The tasks of an experiment.

    Args:
        experiment: with what the data decided: split, ways, queries.
        pool: that the tasks refer to, with its words where there are any.
        arms: the tasks.
        notes: what a reader of the numbers must know.
    """

    experiment: Experiment
    pool: ImagePool
    arms: Arms
    notes: tuple[str, ...]


def candidate_splits(experiment: Experiment, dataset: Dataset) -> list[str]:
    """Return the splits that the images of an experiment may come from, the usual one first."""
    splits = list(dataset.splits)
    trains = experiment.learns and "train" in splits
    return split_candidates(splits, experiment.settings.split, trains=trains)


def word_source(experiment: Experiment, split: str) -> WordSource:
    """Return where the words of the images of a split come from."""
    settings = experiment.settings
    return WordSource(
        settings.words,
        experiment.detector,
        experiment.dataset,
        split,
        settings.device,
        settings.offline,
    )


def drawn_tasks(experiment: Experiment, source: OpenedDataset, session: Session) -> FoundTasks:
    """Draw tasks from the first split that allows them, changed as far as options are open.

    Raises:
        InfeasibleTask: no split allows such tasks; the message names arguments that would do.
    """
    settings = experiment.settings
    first: InfeasibleTask | None = None
    found: tuple[FoundTasks, tuple[str, ...]] | None = None
    for split in candidate_splits(experiment, source.dataset):
        try:
            one = _drawn_from(split, experiment, source, session)
        except InfeasibleTask as error:
            first = first or error
            continue
        _, fit_notes = one
        if found is None or not fit_notes:
            found = one
        if not fit_notes:
            break
    if found is None:
        assert first is not None
        raise first
    tasks, fit_notes = found
    chosen = tasks.experiment.settings.split
    if chosen != "test" and settings.split is None:
        why = _why(list(source.dataset.splits), chosen)
        fit_notes = (f"tasks are drawn from the split {chosen}: {why}", *fit_notes)
    for note in fit_notes:
        session.reporter.note(note)
    return replace(tasks, notes=(*fit_notes, *tasks.notes))


def _why(splits: list[str], split: str | None) -> str:
    if "test" not in splits:
        return f"the data set has no split test (it has {', '.join(splits) or 'none'})"
    return f"nothing is trained, and the split test has too few classes or images ({split} has all)"


def _drawn_from(
    split: str, experiment: Experiment, source: OpenedDataset, session: Session
) -> tuple[FoundTasks, tuple[str, ...]]:
    """Return the tasks of one split, with the notes of words, and the notes of fitting."""
    settings, sampler = replace(experiment.settings, split=split), experiment.sampler
    experiment = replace(experiment, settings=settings)
    pool = source.pool_of(split)
    registry, cache = session.registry, session.workspace.cache
    needs = sampler.create().needs_attributes
    declared = control_of(registry, sampler)
    draw = (settings.tasks, settings.seed, cache)
    if needs and declared is not None and not declared[0].create().needs_attributes:
        # What the labels alone forbid should be known before a model describes every image.
        fitted(sampler, split, pool, lambda one: _control_tasks(session, one, pool, settings))
    word_notes: tuple[str, ...] = ()
    if needs or settings.attributes is not None:
        words = word_source(experiment, split)
        pool, word_notes = pool_with_attributes(words, source.dataset, pool, session)
    elif unused := _asked_of_words(experiment):
        word_notes = (f"not used, since the sampler {sampler.name} needs no attributes: {unused}",)
    fit = fitted(sampler, split, pool, lambda one: draw_arms(registry, one, pool, *draw))
    if fit.sampler is not sampler:
        experiment = with_way(experiment, fit.sampler)
    return FoundTasks(experiment, pool, fit.arms, word_notes), (fit.note,) if fit.note else ()


def _control_tasks(
    session: Session, sampler: Component, pool: ImagePool, settings: Settings
) -> TaskSet | None:
    declared = control_of(session.registry, sampler)
    if declared is None:
        return None
    return draw_tasks(declared[0], pool, settings.tasks, settings.seed, session.workspace.cache)


def tasks_of_file(experiment: Experiment, source: OpenedDataset, session: Session) -> FoundTasks:
    """Read the tasks of the experiment's file and check that they belong to its data.

    Raises:
        OptionError: a sampler or its options are given beside the file.
        DataError: the tasks belong to other data or other words.
    """
    settings = experiment.settings
    assert settings.task_file is not None
    called = argument("task_file", str(settings.task_file))
    if "sampler" in experiment.given or "tasks" in experiment.given:
        raise OptionError(
            f"{called} says which tasks to evaluate; give no sampler, way, shot, queries or number "
            "of tasks beside it"
        )
    tasks = TaskSet.load(settings.task_file)
    split = split_of_tasks(tasks, experiment, source)
    if split != "test":
        experiment = replace(experiment, settings=replace(settings, split=split))
    pool = source.pool_of(split)
    notes: tuple[str, ...] = ()
    if settings.attributes is not None or experiment.detector is not None:
        words = word_source(experiment, split)
        pool, notes = pool_with_attributes(words, source.dataset, pool, session)
    elif unused := _asked_of_words(experiment):
        notes = (f"not used, since the tasks are those of a file: {unused}",)
    arms = Arms({tasks.arm or tasks.sampler: checked_tasks(tasks, pool, called)})
    return FoundTasks(experiment, pool, arms, notes)


def split_of_tasks(tasks: TaskSet, experiment: Experiment, source: OpenedDataset) -> str:
    """Return the split that tasks were drawn from, among those the experiment may use.

    Where they belong to none of them, it is the usual one, and ``checked_tasks`` says so.
    """
    splits = candidate_splits(experiment, source.dataset)
    matching = (s for s in splits if source.pool_of(s).key_digest == tasks.key_digest)
    return next(matching, splits[0]) if len(splits) > 1 else splits[0]


def checked_tasks(tasks: TaskSet, pool: ImagePool, called: str | Path) -> TaskSet:
    """Return tasks that belong to a pool and its words.

    Args:
        called: the file, as messages name it.

    Raises:
        DataError: they do not belong to them.
    """
    try:
        check_tasks(tasks, pool)
    except DataError as error:
        raise DataError(f"{called}: {error}") from None
    return tasks


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
