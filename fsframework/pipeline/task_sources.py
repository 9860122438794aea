"""Where the tasks of an experiment come from: drawn as the data allow, or read from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fsframework.components.resolution import Component
from fsframework.errors import DataError, InfeasibleTask, OptionError, argument
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.attributes.sources import WordSource, pool_with_attributes
from fsframework.pipeline.experiment.configuration import Experiment, with_way
from fsframework.pipeline.fitting import (
    fitted,
    fitted_training,
    size_of,
)
from fsframework.pipeline.session import Session
from fsframework.pipeline.tasks import check_tasks, control_of, draw_arms, draw_tasks
from fsframework.values import Arms, ImagePool, TaskSet

__all__ = [
    "FoundTasks",
    "OpenedDataset",
    "candidate_splits",
    "checked_tasks",
    "drawn_tasks",
    "pool_of",
    "split_of_tasks",
    "tasks_of_file",
    "word_source",
]


_FEWEST_CLASSES = 2


@dataclass(frozen=True)
class OpenedDataset:
    """An open data set whose pools are made once, since those of a large one take time."""

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
        experiment: with what the data decided: split, shape of tasks, training.
        pool: that the tasks refer to, with its words, if any.
        arms: the tasks.
        fitting: what was changed to fit the data, and why.
        words: what a reader must know about the words.
    """

    experiment: Experiment
    pool: ImagePool
    arms: Arms
    fitting: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers must know."""
        return (*self.fitting, *self.words)

    @property
    def shape(self) -> tuple[int, int]:
        """Ways, and queries per class."""
        return self.arms.tested.n_way, self.arms.tested.n_query


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


def pool_of(
    experiment: Experiment, source: OpenedDataset, session: Session, *, words: bool
) -> tuple[ImagePool, tuple[str, ...]]:
    """Return the images of the experiment's split, and what a reader must know about their words.

    Args:
        words: whether they need words; if not, they have words only if those are given.
    """
    split, asked = experiment.settings.split or "test", experiment.settings.words
    pool = source.pool_of(split)
    if words or asked.attributes is not None:
        return pool_with_attributes(word_source(experiment, split), source.dataset, pool, session)
    unused = {
        "detector": experiment.detector is not None,
        "drop_class_words": asked.drop_class_words,
        "drop_words": bool(asked.drop_words),
        "min_count": asked.min_count > 1,
    }
    names = ", ".join(argument(name) for name, given in unused.items() if given)
    return pool, (f"not used, because these tasks need no attributes: {names}",) if names else ()


def drawn_tasks(
    experiment: Experiment, source: OpenedDataset, session: Session, *, trains: bool = False
) -> FoundTasks:
    """Draw tasks from the split that allows the largest, and report what follows the data.

    Args:
        trains: whether a model will be trained on the data too.

    Raises:
        DataError: the data set lacks a split that is needed.
        InfeasibleTask: no split yields such tasks, or the training classes no episodes.
    """
    found = _drawn(experiment, source, session, trains)
    for note in found.fitting:
        session.reporter.note(note)
    return found


def _drawn(
    experiment: Experiment, source: OpenedDataset, session: Session, trains: bool
) -> FoundTasks:
    """Draw the tasks from the split that allows the largest, and fit the training to its split."""
    settings, splits = experiment.settings, list(source.dataset.splits)
    if source.dataset.unlabelled >= set(splits):
        raise DataError(
            f"no image of {experiment.dataset.name} has a label, so there are no tasks; to train a "
            "backbone on these images use fsf pretrain"
        )
    if len(source.dataset.class_names) < _FEWEST_CLASSES:
        raise InfeasibleTask(
            f"the data set {experiment.dataset.name} has 1 class, and tasks need at least 2"
        )
    if trains:
        _demand_splits(experiment, splits)
    found: FoundTasks | None = None
    first: InfeasibleTask | None = None
    for split in candidate_splits(experiment, source.dataset, trains=trains):
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
        open_split = trains and settings.split is None
        raise InfeasibleTask(f"{first}{_without_training(open_split)}")
    chosen = found.experiment.settings.split
    if chosen != "test" and settings.split is None:
        found = replace(found, fitting=(_why_all(source), *found.fitting))
    return _with_fitted_training(found, source, session) if trains else found


def _without_training(open_split: bool) -> str:
    """Return what a user can do who gave no split, as the end of a sentence."""
    rest = "nothing is trained, and the tasks may use all images"
    return f"; with {argument('training.epochs', 0)} {rest}" if open_split else ""


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


def _why_all(source: OpenedDataset) -> str:
    splits = source.dataset.splits
    if "test" in splits:
        reason = f"nothing is trained and the split test has {size_of(source.pool_of('test'))}"
    else:
        reason = f"the data set has no split test (its splits: {' and '.join(splits)})"
    return f"{reason}: the tasks use all images"


def _with_fitted_training(drawn: FoundTasks, source: OpenedDataset, session: Session) -> FoundTasks:
    way_shot = drawn.arms.tested.n_way, drawn.arms.tested.n_shot
    experiment, note = fitted_training(
        drawn.experiment, way_shot, source.pool_of("train"), session.registry
    )
    return replace(
        drawn, experiment=experiment, fitting=(*drawn.fitting, note) if note else drawn.fitting
    )


def _demand_labels(dataset: Dataset, split: str) -> None:
    """Check that the images of a split have labels.

    Raises:
        DataError: some have none.
    """
    lacking = dataset.unlabelled if split == "all" else dataset.unlabelled & {split}
    if lacking:
        names = " and ".join(sorted(lacking))
        raise DataError(
            f"the images of the split {names} have no labels, so no tasks can be drawn from them"
        )


def _drawn_from(experiment: Experiment, source: OpenedDataset, session: Session) -> FoundTasks:
    """Draw the tasks from one split, with the words of its images if needed."""
    settings, sampler = experiment.settings, experiment.sampler
    assert settings.split is not None
    _demand_labels(source.dataset, settings.split)
    drawn = settings.tasks, settings.task_seed, session
    needs = sampler.create().needs_attributes
    if needs:
        _check_labels(experiment, source.pool_of(settings.split), session)
    pool, words = pool_of(experiment, source, session, words=needs)
    fit = fitted(
        sampler,
        settings.split,
        pool,
        lambda one: draw_arms(session.registry, one, pool, *drawn),
    )
    if fit.sampler is not sampler:
        experiment = with_way(experiment, fit.sampler)
    return FoundTasks(experiment, pool, fit.arms, (fit.note,) if fit.note else (), words)


def _check_labels(experiment: Experiment, pool: ImagePool, session: Session) -> None:
    """Check that the labels allow the tasks, before a detector processes every image.

    Raises:
        InfeasibleTask: even the control, which needs no words, cannot draw its tasks.
    """
    settings = experiment.settings
    declared = control_of(session.registry, experiment.sampler)
    if declared is None or declared[0].create().needs_attributes:
        return

    def draw(sampler: Component) -> Arms:
        other = control_of(session.registry, sampler)
        assert other is not None
        tasks = draw_tasks(other[0], pool, settings.tasks, settings.task_seed, session)
        return Arms({other[1].arms[0]: tasks})

    fitted(experiment.sampler, settings.split or "test", pool, draw)


def tasks_of_file(
    experiment: Experiment, source: OpenedDataset, session: Session, *, trains: bool = False
) -> FoundTasks:
    """Read the tasks of the experiment's file and check that they belong to its data.

    Args:
        trains: whether a model will be trained on the data too.

    Raises:
        OptionError: a sampler or its options are given as well as the file.
        DataError: the tasks belong to other data or other words.
    """
    settings = experiment.settings
    assert settings.task_file is not None
    called = argument("task_file", str(settings.task_file))
    if "sampler" in experiment.given or "tasks" in experiment.given:
        raise OptionError(
            f"{called} holds the tasks to evaluate; leave out sampler, way, shot, queries and "
            "number of tasks"
        )
    if trains:
        _demand_splits(experiment, list(source.dataset.splits))
    tasks = TaskSet.load(settings.task_file)
    split = split_of_tasks(tasks, experiment, source)
    if split != "test":
        experiment = replace(experiment, settings=replace(settings, split=split))
    pool, notes = pool_of(experiment, source, session, words=experiment.detector is not None)
    arms = Arms({tasks.arm or tasks.sampler: checked_tasks(tasks, pool, called)})
    found = FoundTasks(experiment, pool, arms, (), notes)
    return _with_fitted_training(found, source, session) if trains else found


def split_of_tasks(tasks: TaskSet, experiment: Experiment, source: OpenedDataset) -> str:
    """Return the split that tasks were drawn from, among those the experiment may use.

    If they belong to none of them, it is the usual one, and ``checked_tasks`` raises the error.
    """
    splits = candidate_splits(experiment, source.dataset)
    matching = (s for s in splits if source.pool_of(s).key_digest == tasks.key_digest)
    return next(matching, splits[0]) if len(splits) > 1 else splits[0]


def checked_tasks(tasks: TaskSet, pool: ImagePool, called: str | Path) -> TaskSet:
    """Return the tasks after checking that they belong to a pool and its words.

    Args:
        called: the file, as messages name it.

    Raises:
        DataError: they do not.
    """
    try:
        check_tasks(tasks, pool)
    except DataError as error:
        raise DataError(f"{called}: {error}") from None
    return tasks
