"""Tasks: drawn as the data allow or read from a file, cached, permuted for the placebo."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from fsframework._calls import checked
from fsframework.components.objects import component_of
from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, canonical
from fsframework.engine.cache.sealed import load_sealed, save_sealed
from fsframework.engine.configuration import Experiment, with_way
from fsframework.engine.detection import Detection
from fsframework.engine.progress import Reporter
from fsframework.engine.session import Session
from fsframework.engine.stages import Stage
from fsframework.engine.words import pool_with_attributes
from fsframework.errors import DataError, InfeasibleTask, OptionError, PluginError, argument
from fsframework.interfaces.dataset import Dataset
from fsframework.interfaces.sampler import Control, TaskSampler
from fsframework.values import (
    Arms,
    Contrast,
    ImagePool,
    TaskSet,
    demand_disk,
    demand_memory,
    digest_of,
    task_rng,
    watched_tasks,
)

__all__ = [
    "FoundTasks",
    "candidate_splits",
    "check_tasks",
    "detection_of",
    "draw_arms",
    "drawn_tasks",
    "fitted_training",
    "placebo",
    "pool_of",
    "split_of_tasks",
    "tasks_of_file",
]

_COPIES = 4
"""Copies of the indices of tasks in memory while they are drawn, checked and written."""
_MANY, _REPORTED = 20_000, 1000
"""Tasks from which on progress is reported, and tasks between two reports."""


def draw_tasks(
    component: Component, pool: ImagePool, n_tasks: int | None, seed: int, session: Session | None
) -> TaskSet:
    """Draw tasks with a sampler, or take them from the cache.

    Args:
        component: the sampler.
        session: whose cache is used; ``None`` to draw in any case.

    Raises:
        InfeasibleTask: the pool cannot yield such tasks.
        OptionError: memory or disk cannot hold them.
    """
    sampler: TaskSampler = component.create()
    table = pool.attributes.fingerprint if pool.attributes and sampler.needs_attributes else ""
    key = digest_of(
        "tasks",
        # A control has the name and the options of the sampler that declares it.
        [component.fingerprint, component.cls.__qualname__],
        pool.fingerprint,
        table,
        canonical([n_tasks, seed]),
    )
    path, reporter = None, Reporter()
    if session is not None:
        path, reporter = (
            session.workspace.cache / "tasks" / f"{key[:24]}.safetensors",
            session.reporter,
        )
        kept = load_sealed(path, TaskSet.load, reporter)
        if kept is not None:
            return kept
    if n_tasks is not None:
        _demand_room(sampler, pool, n_tasks, None if path is None else path.parent)
    with _progress(component.name, n_tasks or 0, reporter):
        tasks = checked(sampler, "draw", sampler.draw(pool, n_tasks, seed), TaskSet)
    options = {k: v for k, v in component.to_json().items() if k != "name"}
    tasks = dataclasses.replace(
        tasks, sampler=component.name, options=options, seed=seed, uniform=sampler.uniform
    )
    tasks.verify(pool)
    if path is not None:
        save_sealed(path, tasks.save)
    return tasks


def _demand_room(sampler: TaskSampler, pool: ImagePool, n_tasks: int, cache: Path | None) -> None:
    """Check that memory and disk can hold tasks, whose classes and images the pool limits."""
    way = min(sampler.n_way, len(pool.class_names))
    images = min(sampler.n_shot + sampler.n_query, int(pool.class_sizes.max()))
    held = n_tasks * way * (8 * (images + 2) + 1)
    what = f"{n_tasks:,} tasks of {way} ways and {images} images per class"
    advice = f"draw fewer with {argument('tasks')}"
    demand_memory(_COPIES * held, what, advice)
    if cache is not None:
        demand_disk(held, cache, what, advice)


@contextmanager
def _progress(name: str, n_tasks: int, reporter: Reporter) -> Iterator[None]:
    """Report the progress of a long draw."""
    if n_tasks < _MANY:
        yield
        return
    with reporter.stage(f"drawing {name} tasks", n_tasks) as advance:
        drawn = 0

        def watch() -> None:
            nonlocal drawn
            drawn += 1
            if drawn % _REPORTED == 0 and drawn <= n_tasks:
                advance(_REPORTED)

        with watched_tasks(watch):
            yield


def control_of(registry: Registry, component: Component) -> tuple[Component, Control] | None:
    """Return the control of a sampler, as a component and as declared; ``None`` without one.

    Raises:
        PluginError: what the sampler declares is not a control.
    """
    sampler = component.create()
    control = checked(sampler, "control", sampler.control(), Control, NoneType)
    if control is None:
        return None
    if not isinstance(control, Control) or not isinstance(control.sampler, TaskSampler):
        raise PluginError(
            f"{component.plugin.described()}: control must return a Control with a "
            f"TaskSampler, or None, not {control!r}"
        )
    found = component_of(registry, "sampler", control.sampler)
    if found.plugin.version == "-":
        # Not a plugin itself, but a part of the one that declares it.
        plugin = dataclasses.replace(component.plugin, target=found.plugin.target)
        found = dataclasses.replace(found, plugin=plugin)
    return found, control


def draw_arms(
    registry: Registry,
    component: Component,
    pool: ImagePool,
    n_tasks: int | None,
    seed: int,
    session: Session | None,
) -> Arms:
    """Draw the tasks of a sampler and of its control; the control comes first.

    Raises:
        InfeasibleTask: the pool cannot yield such tasks.
        OptionError: memory or disk cannot hold them.
    """
    declared = control_of(registry, component)
    draw = (pool, n_tasks, seed, session)
    if declared is None:
        tasks = draw_tasks(component, *draw)
        return Arms({component.name: dataclasses.replace(tasks, arm=component.name)})
    other, control = declared
    drawn = {
        control.arms[0]: draw_tasks(other, *draw),
        control.arms[1]: draw_tasks(component, *draw),
    }
    return Arms(
        {arm: dataclasses.replace(tasks, arm=arm) for arm, tasks in drawn.items()},
        Contrast(*control.arms, control.paired),
        {arm: symbol for arm, symbol in zip(control.arms, control.symbols, strict=True) if symbol},
    )


def placebo(tasks: TaskSet, pool: ImagePool, seed: int) -> TaskSet:
    """Return the same tasks with the images of each class permuted at random for each task.

    Classes, ways, shots, queries and the words tied to them stay; the position of each image of a
    class is drawn uniformly, so that the words say nothing about the pixels. An image appears at
    most once in a task, as before.
    """
    support, query = tasks.support.copy(), tasks.query.copy()
    members = [pool.members(label) for label in range(len(pool.class_names))]
    for t in range(len(tasks)):
        rng = task_rng(seed, t, f"placebo {tasks.sampler}")
        for way, label in enumerate(tasks.classes[t]):
            # Permuting all images of the class and reading off the positions in use is the same
            # as drawing that many images without replacement.
            images = rng.choice(members[label], tasks.n_shot + tasks.n_query, replace=False)
            support[t, way], query[t, way] = np.split(images, [tasks.n_shot])
    return dataclasses.replace(tasks, support=support, query=query, placebo=True)


def check_tasks(tasks: TaskSet, pool: ImagePool, called: str | Path) -> None:
    """Check that tasks belong to a pool and, if tied to words, to its attribute table.

    Args:
        called: their file, as messages name it.

    Raises:
        DataError: they do not.
    """
    try:
        tasks.verify(pool)
    except DataError as error:
        raise DataError(f"{called}: {error}") from None
    if tasks.attributes_fingerprint is None or pool.attributes is None:
        return
    if tasks.attributes_fingerprint != pool.attributes.fingerprint:
        raise DataError(
            f"{called}: these tasks were drawn with another attribute table: fingerprint "
            f"{tasks.attributes_fingerprint[:12]}, not {pool.attributes.fingerprint[:12]}"
        )


_FEWEST_WAYS = 2
_WORDS = {
    "n_way": ("way", "ways"),
    "n_shot": ("shot", "shots"),
    "n_query": ("query per class", "queries per class"),
}
_QUERIES = (10, 8, 6, 5, 4, 3, 2, 1)
"""Numbers of queries below the default, in the order tried."""
_MOST_WAYS = 5
"""The most ways below the number of classes that are tried."""
ORIGIN = "what the data allow"


def _fitted(
    sampler: Component, split: str, pool: ImagePool, draw: Callable[[Component], Arms]
) -> tuple[Component, Arms, str]:
    """Return what a sampler draws from a pool, with fewer ways or queries if these are open.

    Args:
        sampler: options whose origin is ``default`` are open.
        split: name of the pool, for messages.
        draw: draws with a sampler, or raises ``InfeasibleTask``.

    Returns:
        The sampler, what was drawn with it, and what was changed and why; empty if nothing was.

    Raises:
        InfeasibleTask: no tasks can be drawn with the given options; the message names the split
            and its size.
    """
    last = ""
    for other in (sampler, *_alternatives(sampler, pool)):
        n_way = other.options.get("n_way", _FEWEST_WAYS)
        if n_way > len(pool.class_names):
            last = f"{n_way}-way tasks need {n_way} classes"
            continue
        try:
            arms = draw(other)
        except InfeasibleTask as error:
            # The error for the smallest tasks says why none can be drawn.
            last = str(error)
            continue
        return other, arms, "" if other is sampler else _note(sampler, other, split, pool)
    raise InfeasibleTask(
        f"no such tasks can be drawn from the split {split!r} ({_size_of(pool)}): {last}"
    )


def _alternatives(sampler: Component, pool: ImagePool) -> Iterator[Component]:
    """Yield the sampler with fewer queries, then ways, as far as these are open.

    Shots are part of what is measured, and stay.
    """
    shape: dict[str, Any] = {n: sampler.options[n] for n in _WORDS if n in sampler.options}
    choices = {name: [value] for name, value in shape.items()}
    if sampler.origins.get("n_way") == "default":
        most = max(min(shape["n_way"], len(pool.class_names)), _FEWEST_WAYS)
        choices["n_way"] = [most, *range(min(most - 1, _MOST_WAYS), _FEWEST_WAYS - 1, -1)]
    if sampler.origins.get("n_query") == "default":
        room = int(pool.class_sizes.max()) - shape.get("n_shot", 1)
        choices["n_query"] += [q for q in _QUERIES if q < shape["n_query"] and q <= room]
    order = [name for name in ("n_way", "n_query") if name in choices]
    for values in itertools.product(*(choices[name] for name in order)):
        tried = zip(order, values, strict=True)
        changed: dict[str, Any] = {name: v for name, v in tried if v != shape[name]}
        if changed:
            yield sampler.with_options(changed, ORIGIN)


def _note(sampler: Component, other: Component, split: str, pool: ImagePool) -> str:
    changed = [k for k in _WORDS if other.options.get(k) != sampler.options.get(k)]
    return (
        f"the split {split} ({_size_of(pool)}) does not allow tasks of "
        f"{_shape_of(sampler.options, changed)}; the tasks have {_shape_of(other.options, changed)}"
    )


def _shape_of(options: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return the numbers of a shape as text.

    >>> _shape_of({"n_way": 5, "n_shot": 1, "n_query": 1}, ["n_way", "n_query"])
    '5 ways and 1 query per class'
    """
    parts = [f"{options[name]} {_WORDS[name][options[name] != 1]}" for name in names]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _size_of(pool: ImagePool) -> str:
    """Return the size of a pool as text: ``3 classes of 5 to 25 images, 6 words``."""
    low, high = int(pool.class_sizes.min()), int(pool.class_sizes.max())
    images = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    count = len(pool.class_names)
    text = (
        f"{count:,} {'class' if count == 1 else 'classes'} of {images} "
        f"{'image' if high == 1 else 'images'}"
    )
    if pool.attributes is None:
        return text
    words = len(set(pool.attributes.csr()[1].tolist()))
    return f"{text}, {words:,} {'word' if words == 1 else 'words'}"


def fitted_training(
    experiment: Experiment,
    way_shot: tuple[int, int],
    pool: ImagePool,
    registry: Registry,
) -> tuple[Experiment, str]:
    """Return the experiment with training episodes that the training classes allow, and a note.

    Queries, ways and shots of the episodes are reduced only if neither the user nor a recipe that
    the user named sets them.

    Args:
        way_shot: way and shot of the tasks under test, by default those of the episodes too.
        pool: of the split ``train``.
        registry: that has the sampler of the episodes.

    Raises:
        InfeasibleTask: no episode can be drawn with the given options.
    """
    # Detecting words needs this module, but no PyTorch.
    from fsframework.engine.learning.training import check_stages

    stages, why, method = experiment.stages, "", experiment.method.create()
    for tried in itertools.chain([stages], _smaller_stages(experiment, way_shot, pool)):
        try:
            check_stages(tried, method, way_shot, pool, registry)
        except InfeasibleTask as error:
            why = str(error)
            continue
        changed = [one for one, was in zip(tried, stages, strict=True) if one is not was]
        if not changed:
            return experiment, ""
        shape = _shape_of(changed[0].episode(way_shot), _WORDS)
        note = f"the split train ({_size_of(pool)}) allows training episodes of {shape}"
        return replace(experiment, stages=tried), note
    raise InfeasibleTask(
        f"the split 'train' ({_size_of(pool)}) is too small for {why}; "
        f"{argument('training.epochs', 0)} trains nothing"
    )


def _smaller_stages(
    experiment: Experiment, way_shot: tuple[int, int], pool: ImagePool
) -> Iterator[tuple[Stage, ...]]:
    """Yield the stages with ever smaller episodes, as far as these are open."""
    (way, shot), ways = way_shot, [way_shot[0]]
    if experiment.method.create().n_way is None:
        ways += range(min(way - 1, len(pool.class_names)), _FEWEST_WAYS - 1, -1)
    most = max(stage.n_query for stage in experiment.stages)
    open_origins = ["default"]
    if "recipe" not in experiment.given:
        open_origins += [experiment.recipe.origin] if experiment.recipe else []
        open_origins += [experiment.lent_recipe.lent_origin] if experiment.lent_recipe else []
    last = experiment.stages
    for n_shot, n_way, n_query in itertools.product(range(shot, 0, -1), ways, (most, *_QUERIES)):
        limits = {"n_way": n_way, "n_shot": n_shot, "n_query": n_query}
        stages = []
        for stage, origins in zip(experiment.stages, experiment.stage_origins, strict=True):
            smaller: dict[str, Any] = {
                name: limits[name]
                for name, value in stage.episode(way_shot).items()
                if limits[name] < value and origins.get(name, "default") in open_origins
            }
            stages.append(replace(stage, **smaller) if smaller else stage)
        if tuple(stages) != last:
            last = tuple(stages)
            yield last


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


def pool_of(
    experiment: Experiment, dataset: Dataset, session: Session, *, words: bool
) -> tuple[ImagePool, tuple[str, ...]]:
    """Return the images of the experiment's split, and what a reader must know about their words.

    Args:
        words: whether they need words; if not, they have words only if those are given.
    """
    split, asked = experiment.settings.split or "test", experiment.settings.words
    pool = dataset.pool(split)
    if words or asked.attributes is not None:
        detection = detection_of(experiment, dataset, split, session)
        return pool_with_attributes(pool, asked, session.reporter, detection)
    unused = {
        "detector": experiment.detector is not None,
        "drop_class_words": asked.drop_class_words,
        "drop_words": bool(asked.drop_words),
        "min_count": asked.min_count > 1,
    }
    names = ", ".join(argument(name) for name, given in unused.items() if given)
    return pool, (f"not used, because these tasks need no attributes: {names}",) if names else ()


def drawn_tasks(
    experiment: Experiment, dataset: Dataset, session: Session, *, trains: bool = False
) -> FoundTasks:
    """Draw tasks from the split that allows the largest, and report what follows the data.

    Args:
        trains: whether a model will be trained on the data too.

    Raises:
        DataError: the data set lacks a split that is needed.
        InfeasibleTask: no split yields such tasks, or the training classes no episodes.
    """
    _demand_classes(experiment, dataset, trains=trains)
    found = _drawn_from_splits(
        experiment, dataset, session, candidate_splits(experiment, dataset, trains=trains)
    )
    if isinstance(found, InfeasibleTask):
        open_split = trains and experiment.settings.split is None
        rest = "nothing is trained, and the tasks may use all images"
        hint = f"; with {argument('training.epochs', 0)} {rest}" if open_split else ""
        raise InfeasibleTask(f"{found}{hint}")
    if experiment.settings.split is None and found.experiment.settings.split != "test":
        found = replace(found, fitting=(_why_all(dataset), *found.fitting))
    if trains:
        found = _with_fitted_training(found, dataset, session)
    for note in found.fitting:
        session.reporter.note(note)
    return found


def _drawn_from_splits(
    experiment: Experiment, dataset: Dataset, session: Session, splits: Sequence[str]
) -> FoundTasks | InfeasibleTask:
    """Return the largest tasks that a split allows, or why the first allows none."""
    found: list[FoundTasks] = []
    refused: list[InfeasibleTask] = []
    for split in splits:
        tried = replace(experiment, settings=replace(experiment.settings, split=split))
        try:
            found.append(_drawn_from(tried, dataset, session))
        except InfeasibleTask as error:
            refused.append(error)
        else:
            if not found[-1].fitting:
                break
    if not found:
        return refused[0]
    return max(found, key=lambda one: (one.arms.tested.n_way, one.arms.tested.n_query))


def _demand_classes(experiment: Experiment, dataset: Dataset, *, trains: bool) -> None:
    """Check that a data set has the labels, classes and splits that training and tasks need."""
    if dataset.unlabelled >= set(dataset.splits):
        raise DataError(
            f"no image of {experiment.dataset.name} has a label, so there are no tasks; to train a "
            "backbone on these images use fsf pretrain"
        )
    if len(dataset.class_names) < _FEWEST_WAYS:
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
    splits = dataset.splits
    if "test" in splits:
        reason = f"nothing is trained and the split test has {_size_of(dataset.pool('test'))}"
    else:
        reason = f"the data set has no split test (its splits: {' and '.join(splits)})"
    return f"{reason}: the tasks use all images"


def _with_fitted_training(drawn: FoundTasks, dataset: Dataset, session: Session) -> FoundTasks:
    way_shot = drawn.arms.tested.n_way, drawn.arms.tested.n_shot
    experiment, note = fitted_training(
        drawn.experiment, way_shot, dataset.pool("train"), session.registry
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


def _drawn_from(experiment: Experiment, dataset: Dataset, session: Session) -> FoundTasks:
    """Draw the tasks from one split, with the words of its images if needed."""
    settings, sampler = experiment.settings, experiment.sampler
    assert settings.split is not None
    _demand_labels(dataset, settings.split)
    drawn = settings.tasks, settings.task_seed, session
    needs = sampler.create().needs_attributes
    if needs:
        _check_labels(experiment, dataset.pool(settings.split), session)
    pool, words = pool_of(experiment, dataset, session, words=needs)
    fitting, arms, note = _fitted(
        sampler, settings.split, pool, lambda one: draw_arms(session.registry, one, pool, *drawn)
    )
    if fitting is not sampler:
        experiment = with_way(experiment, fitting)
    return FoundTasks(experiment, pool, arms, (note,) if note else (), words)


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

    _fitted(experiment.sampler, settings.split or "test", pool, draw)


def tasks_of_file(
    experiment: Experiment, dataset: Dataset, session: Session, *, trains: bool = False
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
        _demand_splits(experiment, list(dataset.splits))
    tasks = TaskSet.load(settings.task_file)
    split = split_of_tasks(tasks, experiment, dataset)
    if split != "test":
        experiment = replace(experiment, settings=replace(settings, split=split))
    pool, notes = pool_of(experiment, dataset, session, words=experiment.detector is not None)
    check_tasks(tasks, pool, called)
    arms = Arms({tasks.arm or tasks.sampler: tasks})
    found = FoundTasks(experiment, pool, arms, (), notes)
    return _with_fitted_training(found, dataset, session) if trains else found


def split_of_tasks(tasks: TaskSet, experiment: Experiment, dataset: Dataset) -> str:
    """Return the split that tasks were drawn from, among those the experiment may use.

    If they belong to none of them, it is the usual one, and ``check_tasks`` raises the error.
    """
    splits = candidate_splits(experiment, dataset)
    matching = (s for s in splits if dataset.pool(s).key_digest == tasks.key_digest)
    return next(matching, splits[0]) if len(splits) > 1 else splits[0]
