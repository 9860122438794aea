"""Attributes: read from a file or a metadata column, or detected in the images."""

from __future__ import annotations

import csv
import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsframework._reading import open_file, text_lines
from fsframework.components.resolution import Component
from fsframework.errors import DataError, OptionError, argument, close_matches
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.attributes.detection import DetectionJob, detect_attributes
from fsframework.pipeline.attributes.filtering import filtered, without_class_words
from fsframework.pipeline.experiment.options import WordChoice
from fsframework.pipeline.session import Session
from fsframework.values import AttributeTable, ImagePool

__all__ = [
    "WordSource",
    "attach_attributes",
    "pool_with_attributes",
    "read_attributes",
    "split_words",
    "without_dropped_words",
]

_COLUMN = "column:"
_SEPARATOR = ";"


def split_words(cell: str) -> frozenset[str]:
    """Return the words of a cell: separated by ``;``, white space around them dropped.

    >>> sorted(split_words("grass; dog;;"))
    ['dog', 'grass']
    """
    return frozenset(word.strip() for word in cell.split(_SEPARATOR)) - {""}


def attach_attributes(pool: ImagePool, source: str | None) -> ImagePool:
    """Return the pool with the attributes of a source.

    Args:
        source: a ``.csv`` or ``.parquet`` file, or ``column:NAME`` for a metadata column;
            ``None`` takes the column ``words`` if the data set has one.

    Raises:
        DataError: no source, no such column, a broken file, or no image with any attribute.
    """
    return _attached(pool, *_found(pool, source))


def _found(pool: ImagePool, source: str | None) -> tuple[AttributeTable, str]:
    """Return the table of a source, and the source."""
    if source is None:
        if "words" not in pool.metadata:
            raise DataError(
                "this data set has no attributes; detect them with "
                f"{argument('detector', 'appearance')} (which downloads nothing) or another "
                f"detector, give a file with {argument('attributes', 'FILE.csv')}, FILE.parquet or "
                f"column:NAME{_columns(pool)}, or do without: {argument('sampler', 'random')}"
            )
        source = "column:words"
    if source.startswith(_COLUMN):
        name = source.removeprefix(_COLUMN)
        if name not in pool.metadata:
            near = close_matches(name, pool.metadata)
            raise DataError(
                f"{argument('attributes', source)}: no such column{near}{_columns(pool)}"
            )
        words = [split_words(cell) for cell in pool.metadata[name]]
        return AttributeTable.from_words(pool.keys, words, {"source": source}), source
    return read_attributes(Path(source)), source


def _attached(pool: ImagePool, table: AttributeTable, source: str) -> ImagePool:
    with_words = pool.with_attributes(table)
    assert with_words.attributes is not None
    if not with_words.attributes.bits.any():
        raise DataError(f"no image has any attribute (source: {source})")
    return with_words


def _columns(pool: ImagePool) -> str:
    names = ", ".join(sorted(pool.metadata))
    return f" (columns of this data set: {names or 'none'})"


def read_attributes(path: str | Path) -> AttributeTable:
    """Read a table of words from CSV (columns ``key`` and ``words``) or Parquet.

    In CSV, the words of a cell are separated by ``;``.

    Raises:
        DataError: the file, a column or a row is wrong; the message names it.
        OptionError: the file's ending is neither ``.csv`` nor ``.parquet``.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return AttributeTable.load(path)
    if suffix != ".csv":
        hint = ""
        if os.path.exists(path):  # noqa: PTH110 - Path.exists raises an error for long names
            captions = argument("detector", f"captions-file:{path}")
            hint = f"; if it holds captions, use {captions}"
        raise OptionError(
            f"{argument('attributes', str(path))}: must end in .csv or .parquet, or be "
            f"column:NAME{hint}"
        )
    keys: dict[str, int] = {}
    words = []
    for row, key, cell in _csv_rows(path):
        if not key:
            raise DataError(f"{path}: row {row} has no key")
        if key in keys:
            raise DataError(f"{path}: rows {keys[key]} and {row} have the same key {key!r}")
        keys[key] = row
        words.append(split_words(cell))
    return AttributeTable.from_words(tuple(keys), words, {"file": path.name})


def _csv_rows(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield row number (the header is row 1), key and words."""
    try:
        reader = csv.DictReader(text_lines(open_file(path)))
        names = reader.fieldnames or ()
        _demand_columns(names, path)
        for row, record in enumerate(reader, start=2):
            if None in record.values() or None in record:
                raise DataError(f"{path}: row {row} does not have as many cells as row 1")
            yield row, record["key"], record["words"]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except csv.Error as error:
        raise DataError(f"{path}: cannot be read ({error})") from None


def _demand_columns(names: Sequence[str], path: Path) -> None:
    for name in ("key", "words"):
        if names.count(name) > 1:
            raise DataError(f"{path}: row 1 names the column {name} twice")
    missing = sorted({"key", "words"}.difference(names))
    if missing:
        hint = ""
        if "caption" in names:
            captions = argument("detector", f"captions-file:{path}")
            hint = f"; for captions use {captions}"
        raise DataError(
            f"{path}: row 1 lacks the column {' and '.join(missing)}; it must name key and "
            f"words{hint}"
        )


@dataclass(frozen=True)
class WordSource:
    """Where the words of a split's images come from.

    Args:
        words: file or column, and which words are dropped.
        detector: that detects the words in the images; ``None`` if they are read.
        dataset: the component that made the data set.
        split: of the images.
        device: where the detector runs; ``offline``: whether it must not use the network.
    """

    words: WordChoice
    detector: Component | None
    dataset: Component
    split: str
    device: str = "auto"
    offline: bool = False


def pool_with_attributes(
    source: WordSource, dataset: Dataset, pool: ImagePool, session: Session
) -> tuple[ImagePool, tuple[str, ...]]:
    """Return a split's pool with its attributes, read or detected, less those to be dropped.

    Args:
        dataset: that ``pool`` is a split of.

    Returns:
        The pool, and what a user should know about its words.

    Raises:
        DataError: there are no attributes; the message says where they can come from.
    """
    words, reporter = source.words, session.reporter
    notes: tuple[str, ...] = ()
    if source.detector is None:
        table, called = _found(pool, words.attributes)
        notes = tuple(_absent(pool, table, called))
        for note in notes:
            reporter.note(note)
        pool = _attached(pool, table, called)
    else:
        detected = detect_attributes(
            DetectionJob(source.detector, dataset, source.dataset, source.split),
            session,
            device=source.device,
            offline=source.offline,
        )
        if detected.failed:
            # Training and evaluation would stop at them; they are not images without words.
            raise DataError(
                f"{detected.complaints()[0]}; repair or remove them (fsf data check lists all)"
            )
        pool = _attached(pool, detected.table, f"detector {source.detector.name}")
        notes = detected.notes
    assert pool.attributes is not None
    for word in sorted(set(words.drop_words) - set(pool.attributes.words)):
        reporter.note(f"no image has the word {word!r} that is to be dropped")
    pool = without_dropped_words(pool, words)
    assert pool.attributes is not None
    if not pool.attributes.bits.any():
        raise DataError("no image has any attribute left; drop fewer words")
    return pool, notes


def _absent(pool: ImagePool, table: AttributeTable, source: str) -> list[str]:
    """Return a sentence on how many images a table lacks: it may be of another split."""
    absent = 0 if table.keys is pool.keys else len(set(pool.keys) - set(table.keys))
    if not absent:
        return []
    held = [f"the {k} {table.provenance[k]}" for k in ("split", "shard") if k in table.provenance]
    of = f", a table of {' and '.join(held)}" if held else ""
    return [f"{absent:,} of the {len(pool):,} images are not in {source}{of}"]


def without_dropped_words(pool: ImagePool, words: WordChoice) -> ImagePool:
    """Return the pool without the words that are to be dropped."""
    if not words.drops:
        return pool
    if words.drop_class_words:
        pool = without_class_words(pool)
    assert pool.attributes is not None
    table = filtered(pool.attributes, min_count=words.min_count, drop=frozenset(words.drop_words))
    return pool if table is pool.attributes else dataclasses.replace(pool, attributes=table)
