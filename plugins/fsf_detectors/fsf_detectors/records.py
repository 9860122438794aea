"""Words and captions that are already known: from a metadata column or a file."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from fsf_detectors._caption_files import Row, find_format, read_rows
from fsframework.interfaces import (
    AttributeDetector,
    Captioner,
    DataError,
    OptionError,
    WordSelector,
)
from fsframework.values import ImageRecord, WordReader, normalize, open_file

__all__ = ["CaptionsFile", "Metadata", "Skipped"]

_EXAMPLES = 3


class Metadata(AttributeDetector):
    """Words from a metadata column of the data set, read as in a table; no image is opened.

    Args:
        column: name of the column.
        separator: separates two words.

    Raises:
        OptionError: the separator is empty.
    """

    argument: ClassVar[str] = "column"
    consumes = "records"

    def __init__(self, *, column: str = "words", separator: str = ";") -> None:
        if not separator:
            raise OptionError("separator must have at least one character")
        self.column = normalize(column)
        self.separator = separator
        self._reader = WordReader(separator)

    def detect(self, images: Sequence[ImageRecord]) -> list[frozenset[str]]:
        """Return the words of each record.

        Raises:
            DataError: the data set does not have the column.
        """
        return [self._words(record) for record in images]

    def _words(self, record: ImageRecord) -> frozenset[str]:
        try:
            cell = record.metadata[self.column]
        except KeyError:
            columns = ", ".join(sorted(record.metadata)) or "none"
            raise DataError(
                f"image {record.key!r} has no metadata column {self.column!r}; "
                f"columns of this data set: {columns}"
            ) from None
        return frozenset(self._reader.words(cell))

    def provenance(self) -> Mapping[str, str]:
        """Return column and separator."""
        return {"column": self.column, "separator": self.separator}


class Skipped(NamedTuple):
    """Skipped rows: their number, and the faults of the first three."""

    rows: int
    examples: tuple[str, ...]


class CaptionsFile(Captioner):
    """Captions read from a file; no image is opened.

    The file is UTF-8 text, optionally compressed (``.gz``): JSON objects with ``key`` and
    ``caption``, one per line (``.jsonl``); CSV with the columns ``key`` and ``caption``, in any
    order, and any others (``.csv``); or lines ``IMAGE#NUMBER<TAB>CAPTION`` with several captions
    per image, as in Flickr8k; or FewSTAB's lines ``FILE,CAPTION,CLASS`` without a header, which
    are matched by ``name``. For other suffixes, the first line decides the format.

    An image without a caption has no words.

    Args:
        path: path of the file.
        captions: for an image with several captions, ``all``, joined by increasing number, or the
            ``first``, the one with the lowest number.
        match: match captions with images by the whole ``key``, or by the file ``name``, the part of
            the key after the last ``/``.
        on_error: at a row that is broken or repeats a key, ``stop``, or ``skip`` the row.
        selector: selects words from captions; by default ``SpacySelector()``.
    """

    argument: ClassVar[str] = "path"
    usual_components: ClassVar[Mapping[str, str]] = {"selector": "spacy"}
    consumes = "records"

    def __init__(
        self,
        *,
        path: Path,
        captions: Literal["all", "first"] = "all",
        match: Literal["key", "name"] = "key",
        on_error: Literal["stop", "skip"] = "stop",
        selector: WordSelector | None = None,
    ) -> None:
        for name, value, allowed in (
            ("captions", captions, ("all", "first")),
            ("match", match, ("key", "name")),
            ("on_error", on_error, ("stop", "skip")),
        ):
            if value not in allowed:
                raise OptionError(f"{name} must be {' or '.join(allowed)}, not {value!r}")
        self.path = path
        self.captions = captions
        self.match = match
        self.on_error = on_error
        self.selector = selector if selector is not None else _default_selector()
        self._by_key = match == "key"
        self._captions: dict[str, str] | None = None
        self._digest = ""
        self._skipped = Skipped(0, ())

    def prepare(self, *, device: str = "cpu", offline: bool = False) -> None:
        """Read the file, once.

        Raises:
            DataError: the file is missing, has an unknown format, or has a row that is broken or
                repeats a key; the message names file, row and fault.
        """
        del device, offline
        if self._captions is None:
            self._captions = self._read()

    @property
    def skipped(self) -> Skipped:
        """The rows skipped with ``on_error = "skip"``."""
        self._known()
        return self._skipped

    def describe(self, images: Sequence[ImageRecord]) -> list[str]:
        """Return the caption of each record; empty if the file has none."""
        known = self._known()
        return [known.get(self._id(record.key), "") for record in images]

    def unmatched(self, keys: Sequence[str]) -> list[str]:
        """Return the keys of the file, in its order, that belong to none of these images.

        With ``match = "name"`` they are file names.
        """
        known = self._known()
        images = {self._id(key) for key in keys}
        return [key for key in known if key not in images]

    def notes(self, keys: Sequence[str], others: Sequence[str] = ()) -> list[str]:
        """Return the problems of the file and of how it fits these images.

        Raises:
            DataError: the file has no caption for any image, or two images have the same name with
                ``match = "name"``.
        """
        known = self._known()
        images = self._ids(keys)
        elsewhere = {self._id(key) for key in others}
        unmatched = [key for key in known if key not in images and key not in elsewhere]
        if keys and not any(key in images for key in known):
            raise DataError(self._nothing_matches(keys))
        found = []
        if count := self._skipped.rows:
            found.append(
                f"{self.path}: {_counted(count, 'row')} skipped because of on_error=skip; "
                f"{self._skipped.examples[0]}"
            )
        if unmatched:
            found.append(
                f"{self.path}: {_counted(len(unmatched), 'caption')} "
                f"{'matches' if len(unmatched) == 1 else 'match'} no image: {_named(unmatched)}"
            )
        lacking = [key for one, key in images.items() if one not in known]
        if lacking:
            found.append(
                f"{self.path}: {_counted(len(lacking), 'image')} "
                f"{'has' if len(lacking) == 1 else 'have'} no caption: {_named(lacking)}"
            )
        mine = [key for key in known if key in images]
        empty = [key for key in mine if not known[key].strip()]
        if empty:
            found.append(
                f"{self.path}: {_counted(len(empty), 'caption')} "
                f"{'is' if len(empty) == 1 else 'are'} empty or missing: {_named(empty)}"
            )
        return found + self._foreign([known[key] for key in mine])

    def provenance(self) -> Mapping[str, str]:
        """Return name and SHA-256 of the file, the options, and the provenance of the selector."""
        self._known()
        return {
            "file": self.path.name,
            "file_digest": f"sha256:{self._digest}",
            "captions": self.captions,
            "match": self.match,
            "on_error": self.on_error,
            **{f"selector.{name}": text for name, text in self.selector.provenance().items()},
        }

    def _known(self) -> dict[str, str]:
        self.prepare()
        assert self._captions is not None
        return self._captions

    def _id(self, key: str) -> str:
        """Return the part of a key by which images and captions are matched."""
        key = normalize(key)
        return key if self._by_key else key.replace("\\", "/").rpartition("/")[2]

    def _ids(self, keys: Sequence[str]) -> dict[str, str]:
        images: dict[str, str] = {}
        for key in keys:
            other = images.setdefault(self._id(key), key)
            if other != key:
                raise DataError(
                    f"match=name: the images {other!r} and {key!r} have the same file name; "
                    "use match=key"
                )
        return images

    def _read(self) -> dict[str, str]:
        path = Path(os.path.expanduser(self.path))  # noqa: PTH111 - Path refuses unknown users
        kind = find_format(path)
        self._by_key = self._by_key and kind != "fewstab"
        faults: list[str] = []
        skipped = 0
        # The captions of an image by number, or its only one: a dict per image would double the
        # memory for a file with one caption per image.
        several = kind == "token"
        numbered: dict[str, dict[int, str]] = {}
        captions: dict[str, str] = {}
        for row in read_rows(path, kind):
            key = self._id(row.key)
            places = numbered.setdefault(key, {}) if several and not row.fault else {}
            if not row.fault and (row.place in places if several else key in captions):
                fault = (
                    self._repeated(row, read_rows(path, kind)) if len(faults) < _EXAMPLES else ""
                )
            elif row.fault:
                fault = f"row {row.number} {row.fault}"
            else:
                caption = "" if WordReader.is_missing(row.caption) else row.caption
                if several:
                    places[row.place] = caption
                else:
                    captions[key] = caption
                continue
            if self.on_error == "stop":
                raise DataError(f"{self.path}: {fault}; on_error=skip leaves out such rows")
            skipped += 1
            faults = faults if len(faults) == _EXAMPLES else [*faults, fault]
        self._skipped = Skipped(skipped, tuple(faults))
        for key in list(numbered):  # emptied as the joined captions grow
            captions[key] = self._joined(numbered.pop(key))
        if not captions:
            raise DataError("; ".join([f"{self.path}: contains no captions", *faults[:1]]))
        try:
            with open_file(path) as file:
                self._digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror})") from None
        return captions

    def _joined(self, numbered: Mapping[int, str]) -> str:
        texts = [numbered[number].strip() for number in sorted(numbered)]
        if self.captions == "first":
            return texts[0]
        # End each sentence, or a tagger joins the end of one with the beginning of the next.
        ended = [t if t.endswith((".", "!", "?")) else f"{t}." for t in texts[:-1] if t]
        return " ".join([*ended, texts[-1]]).strip()

    def _repeated(self, row: Row, rows: Iterator[Row]) -> str:
        """Return which row a row repeats; the rows are read again because none is stored."""
        key = self._id(row.key)
        first = next(
            r for r in rows if not r.fault and self._id(r.key) == key and r.place == row.place
        )
        if first.key != row.key and self.match == "key":
            what = f"key in two Unicode forms, {first.key!a} and {row.key!a}"
        elif first.key == row.key:
            what = f"key {row.key!r}" + (f" and number {row.place}" if row.place else "")
        else:
            what = f"file name {key!r}"
        return f"rows {first.number} and {row.number} have the same {what}"

    def _nothing_matches(self, keys: Sequence[str]) -> str:
        known = self._known()
        names = {key.rpartition("/")[2] for key in keys}
        hint = ""
        if self.match == "key" and any(key.rpartition("/")[2] in names for key in known):
            hint = "; file names match: use match=name"
        return (
            f"{self.path}: its {len(known):,} captions match none of the {len(keys):,} images; its "
            f"keys are {_named(list(known))}, those of the images "
            f"{_named([self._id(key) for key in keys[:_EXAMPLES]])}{hint}"
        )

    def _foreign(self, captions: Sequence[str]) -> list[str]:
        """Return a note if many captions do not seem to be English; samples at most 10,000."""
        sample = captions[:: len(captions) // _SAMPLE + 1]
        foreign = [text for text in sample if _seems_foreign(text)]
        if len(foreign) <= _FOREIGN_SHARE * len(sample):
            return []
        share = len(foreign) / len(sample)
        return [
            f"{self.path}: about {share:.0%} of the captions do not seem to be English sentences, "
            f"such as {foreign[0][:60]!r}; words are selected with English rules"
        ]


_SAMPLE = 10_000
_FOREIGN_SHARE = 0.1
_COMMON = re.compile(
    r"\b(a|an|and|are|as|at|by|for|from|has|her|his|in|into|is|it|its|near|next|of|off|on|onto|or"
    r"|out|over|some|that|the|their|there|they|this|through|to|two|under|up|while|with)\b",
    re.IGNORECASE,
)
_ENOUGH_WORDS = 5


def _seems_foreign(text: str) -> bool:
    """Return whether most letters are not Latin, or five or more words include no common one.

    >>> _seems_foreign("Ein Hund springt auf einer Wiese herum"), _seems_foreign("black dog")
    (True, False)
    """
    if not text.isascii():
        letters = [c for c in text if c.isalpha()]
        latin = sum(c <= "\u024f" or "\u1e00" <= c <= "\u1eff" for c in letters)
        if 2 * latin < len(letters):
            return True
    return len(text.split()) >= _ENOUGH_WORDS and _COMMON.search(text) is None


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _named(keys: Sequence[str]) -> str:
    return ", ".join(map(repr, keys[:_EXAMPLES])) + (", ..." if len(keys) > _EXAMPLES else "")


def _default_selector() -> WordSelector:
    from fsf_detectors.selection import SpacySelector

    return SpacySelector()
