"""The words in the images of an experiment, detected by this process or by workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fsf_tools.attributes.statistics import images_with_class_words
from fsf_tools.sharing import Do, Sharing
from fsframework.api.data import without_dropped_words, words_in_classes
from fsframework.api.experiments import Description, resolved
from fsframework.api.opened import detection
from fsframework.api.session import Session
from fsframework.values import AttributeTable

__all__ = ["Extracted", "detecting", "extract_words"]


@dataclass(frozen=True)
class Extracted:
    """The result of a detection.

    Args:
        table: of the images that can be read, without the words that were to be dropped.
        failed: key and reason for each image that cannot be read.
        notes: what a user should know about the detector's words.
        reused: number of images that an earlier call had finished.
        class_named: number of images with words that name their class, dropped or not.
        common: words left that most images of nearly every class have, with numbers of classes.
    """

    table: AttributeTable
    failed: list[tuple[str, str]]
    notes: tuple[str, ...]
    reused: int
    class_named: int
    common: Mapping[str, int]


def detecting(tree: Mapping[str, Any], session: Session, options: Mapping[str, Any]) -> Do:
    """Return what a worker does that detects words; ``options`` has the ``batch_size``."""
    return detection(resolved(tree, session), session, batch_size=options["batch_size"]).answer


def extract_words(
    described: Description, *, batch_size: int = 0, sharing: Sharing | None = None
) -> Extracted:
    """Detect the words in a split's images, reusing earlier answers, and drop the unwanted ones.

    Args:
        described: by ``fsframework.describe``, with a detector.
        batch_size: images per call of the detector; by default 16 on a CPU, 64 on a GPU.
        sharing: workers that process the images; by default this process does.

    Raises:
        OptionError: no detector is given.
        FsfError: the detector cannot be prepared, or its answer is malformed.
    """
    experiment = described.experiment
    found = detection(experiment, described.session, batch_size=batch_size)
    todo = found.missing()
    if sharing is not None:
        work = f"{found.identity[:48]}-{found.split}"
        sharing.compute("detection", work, todo, found.batch_size)
    table = found.table()
    words = experiment.settings
    pool = found.dataset.pool(found.split)
    pool = dataclasses.replace(pool, attributes=table.aligned(pool.keys))
    named = int(images_with_class_words(pool).sum())
    header = {**table.provenance, "images_with_class_words": f"{named} of {len(table)}"}
    for name in words.drops:
        value = getattr(words, name)
        header[name] = ", ".join(value) if isinstance(value, tuple) else str(value).lower()
    pool = without_dropped_words(pool, words)
    assert pool.attributes is not None
    table = dataclasses.replace(pool.attributes.aligned(table.keys), provenance=header)
    reused = len(found.keys) - len(todo)
    return Extracted(table, found.failed, found.notes, reused, named, words_in_classes(pool))
