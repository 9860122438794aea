"""The words to look for: those of the package, or of a file."""

from __future__ import annotations

import hashlib
import importlib.resources
import os
from collections.abc import Sequence
from pathlib import Path

from fsframework.interfaces import DataError
from fsframework.values import read_file

__all__ = ["describe_words", "read_vocabulary"]


def read_vocabulary(path: Path | None) -> tuple[str, ...]:
    """Return the words of a file, or those of the package.

    Raises:
        DataError: the file cannot be read, contains no words, or contains a word twice.
    """
    if path is None:
        home = importlib.resources.files("fsf_detectors") / "data" / "attributes.txt"
        text = home.read_text("utf-8")
    else:
        try:
            place = os.path.expanduser(path)  # noqa: PTH111 - Path refuses unknown users
            text = read_file(place).decode("utf-8-sig")
        except OSError as error:
            raise DataError(f"vocabulary {path}: cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise DataError(f"vocabulary {path}: is not UTF-8 text") from None
    rows: dict[str, int] = {}
    for row, line in enumerate(text.splitlines(), start=1):
        word = line.strip()
        if not word or word.startswith("#"):
            continue
        if word in rows:
            raise DataError(
                f"vocabulary {path}: rows {rows[word]} and {row} have the same word {word!r}"
            )
        rows[word] = row
    if not rows:
        raise DataError(f"vocabulary {path}: must contain at least one word, one per line")
    return tuple(rows)


def describe_words(words: Sequence[str]) -> str:
    """Return number and digest of words, for the provenance of a table."""
    digest = hashlib.sha256("\n".join(words).encode()).hexdigest()
    return f"{len(words)} words, sha256:{digest}"
