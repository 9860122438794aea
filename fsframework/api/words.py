"""Words of images: tables of them, and words that name a class."""

from __future__ import annotations

from pathlib import Path

from fsframework.pipeline.attributes.words import (
    images_with_class_words,
    names_class,
    read_attributes,
    without_dropped_words,
)
from fsframework.values import AttributeTable

__all__ = ["attributes", "images_with_class_words", "names_class", "without_dropped_words"]


def attributes(file: str | Path) -> AttributeTable:
    """Read a table of words from a file.

    To detect the words of images that have no table yet, use ``fsframework.pool(data,
    detector=...)``, whose ``attributes`` is a table.

    Args:
        file: ``.parquet``, or ``.csv`` with the columns ``key`` and ``words``, separated by ``;``.

    Raises:
        DataError: the file is missing or damaged; the message names the row.
        OptionError: the file has another ending.
    """
    return read_attributes(Path(file))
