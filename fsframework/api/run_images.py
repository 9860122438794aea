"""The images that the tasks of a run were drawn from, with their words."""

from __future__ import annotations

from pathlib import Path

from fsframework.errors import DataError, RecordError
from fsframework.records import RunRecord, load_arms
from fsframework.values import Arms, AttributeTable, ImagePool

__all__ = ["pool_of_run"]


def pool_of_run(folder: Path, record: RunRecord) -> ImagePool:
    """Return the images of a run's tasks from its folder.

    Raises:
        RecordError: the run was imported.
        DataError: the images or their words are not those of the tasks, or are not there.
    """
    if record.imported is not None or not record.arms:
        raise RecordError(f"{folder}: was imported, and has no images")
    arms = load_arms(folder, record)
    pool = ImagePool.load(record.images_file(folder))
    _check_images(pool, arms, f"{folder}: its images")
    if record.words_file(folder).exists():
        pool = pool.with_attributes(AttributeTable.load(record.words_file(folder)))
    _check(pool, arms, f"{folder}: its images")
    return pool


def _check(pool: ImagePool, arms: Arms, called: str) -> None:
    """Check that tasks were drawn from a pool, and from its words.

    Raises:
        DataError: they were not.
    """
    _check_images(pool, arms, called)
    for tasks in arms.values():
        table, drawn = pool.attributes, tasks.attributes_fingerprint
        if drawn is not None and (table is None or table.fingerprint != drawn):
            raise DataError(f"{called} do not have the words that its tasks were drawn with")


def _check_images(pool: ImagePool, arms: Arms, called: str) -> None:
    for tasks in arms.values():
        if tasks.key_digest != pool.key_digest:
            raise DataError(f"{called} are not those that its tasks were drawn from")
