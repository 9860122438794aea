"""A table of detected words without the unwanted ones, as its header records."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from fsframework.errors import OptionError, argument
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.attributes.detection import (
    Detected,
    DetectionJob,
    detect_attributes,
)
from fsframework.pipeline.attributes.filtering import images_with_class_words
from fsframework.pipeline.attributes.sources import WordSource, without_dropped_words
from fsframework.pipeline.session import Session
from fsframework.pipeline.shared_rows import Sharing

__all__ = ["Extracted", "detection_job", "extract_attributes"]


@dataclass(frozen=True)
class Extracted(Detected):
    """The result of a detection, and how many images have words that name their own class.

    Args:
        table: without the words that were to be dropped.
        class_named: number of images with words that name their class, dropped or not.
    """

    class_named: int


def detection_job(source: WordSource, dataset: Dataset, session: Session) -> DetectionJob:
    """Return which detector processes which images.

    Raises:
        OptionError: there is no detector.
    """
    if source.detector is None:
        known = ", ".join(p.name for p in session.registry.plugins("detector"))
        raise OptionError(f"{argument('detector')} is missing; give one of {known}")
    return DetectionJob(source.detector, dataset, source.dataset, source.split)


def extract_attributes(
    source: WordSource,
    dataset: Dataset,
    session: Session,
    *,
    batch_size: int | None = None,
    sharing: Sharing | None = None,
) -> Extracted:
    """Detect the words in a split's images, and drop the unwanted ones.

    Args:
        source: names the detector.
        batch_size: images per call of the detector.
        sharing: workers that process the images; by default this process does.

    Raises:
        OptionError: there is no detector.
        FsfError: as of ``detect_attributes``.
    """
    words = source.words
    detected = detect_attributes(
        detection_job(source, dataset, session),
        session,
        device=source.device,
        offline=source.offline,
        batch_size=batch_size,
        sharing=sharing,
    )
    table = detected.table
    pool = dataset.pool(source.split)
    pool = dataclasses.replace(pool, attributes=table.aligned(pool.keys))
    named = int(images_with_class_words(pool).sum())
    header = {**table.provenance, "images_with_class_words": f"{named} of {len(table)}"}
    if words.drop_class_words:
        header["drop_class_words"] = "true"
    if words.drop_words:
        header["drop_words"] = ", ".join(words.drop_words)
    if words.min_count > 1:
        header["min_count"] = str(words.min_count)
    dropped = without_dropped_words(pool, words).attributes
    assert dropped is not None
    table = dataclasses.replace(dropped.aligned(table.keys), provenance=header)
    return Extracted(table, detected.failed, detected.notes, detected.reused, named)
