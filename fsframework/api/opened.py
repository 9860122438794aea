"""Images, words and tasks of an experiment, without training or evaluating anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fsframework.components.entry_points import packaged
from fsframework.engine.configuration import Experiment
from fsframework.engine.detection import Detection
from fsframework.engine.preparation import (
    candidate_splits,
    detection_of,
    drawn_tasks,
    pool_of_tasks,
    with_words,
)
from fsframework.engine.session import Session
from fsframework.engine.tasks import read_thumbnails
from fsframework.errors import InfeasibleTask, OptionError, argument
from fsframework.interfaces.dataset import Dataset
from fsframework.records import read_arms
from fsframework.values import Arms, ImagePool, TaskSet

__all__ = [
    "Detection", "OpenedImages", "detection", "draw_tasks", "open_images", "open_tasks",
    "read_thumbnails",
]  # fmt: skip


@dataclass(frozen=True)
class OpenedImages:
    """The images of a split.

    Args:
        dataset: open; ``dataset.split_indices(split)`` are the pool's images in it.
        split: name of the split.
        pool: labels and keys of its images, with their words if requested.
        reasons: why split, ways and queries of drawn tasks are not the usual ones.
    """

    dataset: Dataset
    split: str
    pool: ImagePool
    reasons: tuple[str, ...] = ()


def open_images(experiment: Experiment, session: Session) -> OpenedImages:
    """Open the images that a run of an experiment draws its tasks from, with their words.

    Where no such tasks can be drawn, these are the most images that a run considers.

    Raises:
        DataError: the data are missing or broken, or there are no words.
    """
    dataset: Dataset = experiment.dataset.create()
    if (split := experiment.settings.split) is None:
        try:
            split = drawn_tasks(experiment, dataset, session).experiment.settings.split or "test"
        except InfeasibleTask:
            split = candidate_splits(experiment, dataset)[-1]
    pool, _ = with_words(split, experiment, dataset, session, needed=True)
    return OpenedImages(dataset, split, pool)


def draw_tasks(
    experiment: Experiment, session: Session, *, tasks: int | None = None
) -> tuple[Arms, OpenedImages]:
    """Draw the tasks that a run of an experiment would evaluate.

    As in a run, split, ways and queries that are not given follow what the data allow. The tasks
    are cached, so that a run of the same experiment reuses them.

    Args:
        tasks: number of tasks per arm, in place of the experiment's.

    Raises:
        InfeasibleTask: the data cannot yield such tasks; the message says what would work.
        OptionError: the tasks depend on more than labels and words.
    """
    settings = experiment.settings
    if settings.broken == "skip":
        raise OptionError(
            f"{argument('broken', 'skip')}: these tasks are drawn without reading an image; "
            "remove broken images from the data (fsf data check lists them), or let fsf run draw "
            "the tasks"
        )
    if tasks is not None:
        experiment = replace(experiment, settings=replace(settings, tasks=tasks))
    dataset: Dataset = experiment.dataset.create()
    found = drawn_tasks(experiment, dataset, session)
    split = found.experiment.settings.split
    assert split is not None
    return found.arms, OpenedImages(dataset, split, found.pool, found.fitting)


def open_tasks(
    experiment: Experiment, session: Session, file: str | Path, arm: str | None = None
) -> tuple[TaskSet, OpenedImages]:
    """Read tasks from a file, and open the images and words that they belong to.

    Args:
        file: of tasks, folder of a run, or name of a task set of an installed package.
        arm: of a run or a task set; by default the tasks under test.

    Raises:
        DataError: the file is damaged, or belongs to other images, words or contexts.
    """
    place = packaged(file, installed=True)
    arms, dataset = read_arms(place), experiment.dataset.create()
    tasks = arms.of(arm)
    tied = tasks.attributes_fingerprint is not None and not (place / "words.parquet").exists()
    opened = pool_of_tasks(arms, place, str(file), experiment, dataset, session, tied)
    return tasks, OpenedImages(dataset, *opened[:2])


def detection(experiment: Experiment, session: Session, *, batch_size: int = 0) -> Detection:
    """Return the detection of the words in the images of an experiment.

    Without a split it covers all images, since the tasks of a run may be drawn from any of them.

    Args:
        batch_size: images per call of the detector; by default 16 on a CPU, 64 on a GPU.

    Raises:
        OptionError: no detector is given.
        FsfError: the detector cannot be prepared.
    """
    dataset: Dataset = experiment.dataset.create()
    split = experiment.settings.split or "all"
    found = detection_of(experiment, dataset, split, session, batch_size)
    if found is None:
        known = ", ".join(p.name for p in session.registry.plugins("detector"))
        raise OptionError(f"{argument('detector')} is missing; give one of {known}")
    return found
