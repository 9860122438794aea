"""Reading files without waiting for them, and what they contain without overflowing."""

from __future__ import annotations

import errno
import functools
import io
import itertools
import json
import math
import os
import re
import reprlib
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    "VersionError",
    "check_file",
    "check_version",
    "open_file",
    "parse_json",
    "parse_number",
    "parse_toml",
    "read_file",
    "read_toml",
    "text_lines",
]

_MOST_BYTES = 1 << 28
"""Size up to which a file is read whole."""

_MOST_CHARACTERS = 1 << 20
"""Length of a line of text."""

_MOST_LEVELS = 64
"""How deep JSON and TOML may be nested."""
_TOO_DEEP = f"values are nested more than {_MOST_LEVELS} levels deep"

# tomllib takes quadratic time for keys of many parts. The groups are atomic: no backtracking.
_KEY = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![\w-])(?>{_KEY}[ \t]*+\.[ \t]*+){{{_MOST_LEVELS}}}")

_DECIMAL = re.compile(r"[ \t\r\n]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t\r\n]*")
_KINDS = {
    stat.S_IFDIR: "a folder, not a file",
    stat.S_IFIFO: "a named pipe, not a regular file",
    stat.S_IFSOCK: "a socket, not a regular file",
}


def check_file(path: str | Path | int) -> os.stat_result:
    """Return the state of a regular file, which can be read without waiting.

    Args:
        path: the file; links are followed. A number is the descriptor of an open file.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: it is a folder, a pipe, a socket or a device, or its name is not allowed;
            ``strerror`` says which.
    """
    try:
        state = os.stat(path)  # noqa: PTH116 - a Path would not take a descriptor
    except ValueError:
        why = "contains a NUL byte" if "\0" in str(path) else "is not valid Unicode"
        raise OSError(errno.EINVAL, f"its name {why}", repr(str(path))) from None
    if not stat.S_ISREG(state.st_mode):
        kind = _KINDS.get(stat.S_IFMT(state.st_mode), "a device, not a regular file")
        raise OSError(errno.EINVAL, f"it is {kind}", str(path))
    return state


def open_file(path: str | Path) -> BinaryIO:
    """Open a regular file for reading bytes; anything else is refused without waiting for it.

    Raises:
        OSError: as for ``check_file``, or the file may not be read.
    """
    check_file(path)
    # Without O_NONBLOCK, a pipe that has taken the file's place since would be waited for.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        check_file(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_file(path: str | Path, most: int = _MOST_BYTES) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes.

    Raises:
        OSError: as for ``open_file``, or the file is larger.
    """
    with open_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", str(path))
    return content


class VersionError(ValueError):
    """A file is of another version."""


def check_version(found: Any, current: int) -> None:
    """Check the ``schema_version`` of a file.

    Raises:
        VersionError: it is of another version; the message says which are read.
        ValueError: it is not a number.
    """
    if type(found) is not int or found < 1:
        raise ValueError(
            f"its schema_version must be a number of at least 1, not {reprlib.repr(found)}"
        )
    if found != current:
        age = "a newer" if found > current else "an older"
        raise VersionError(
            f"schema_version {found} was written by {age} fsframework; this one reads version "
            f"{current}"
        )


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text in UTF-8.

    Raises:
        ValueError: it is not JSON, an object has a key twice, or it is nested more than 64 levels
            deep.
    """
    return _shallow(lambda: json.loads(_decoded(text), object_pairs_hook=_unique))


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """Return the table of a TOML text in UTF-8.

    Raises:
        ValueError: it is not TOML, or it is nested more than 64 levels deep.
    """
    decoded = _decoded(text)
    if _LONG_KEY.search(decoded):
        raise ValueError(_TOO_DEEP)
    import tomllib  # late: it takes a while, and few commands read TOML

    found: dict[str, Any] = _shallow(lambda: tomllib.loads(decoded))
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """Return the table of a TOML file, which is read once, and again when it has changed.

    Raises:
        OSError: the file cannot be read.
        ValueError: as for ``parse_toml``.
    """
    state = path.stat()
    return _parsed(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=256)
def _parsed(path: Path, *_state: int) -> dict[str, Any]:
    return parse_toml(path.read_text(encoding="utf-8"))


def parse_number(text: str) -> float | None:
    """Return the finite number that a text writes in decimals, or ``None``.

    Python alone also reads ``1_0`` as 10, digits of other scripts, ``nan`` and ``inf``; in a table
    these are misprints or missing values.

    >>> parse_number(" 2.5e-1 "), parse_number("1_0"), parse_number("nan"), parse_number("1e400")
    (0.25, None, None, None)
    """
    number = float(text) if _DECIMAL.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None


def _decoded(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = sorted(key for key, _ in pairs)
        double = next(key for key, later in itertools.pairwise(keys) if key == later)
        raise ValueError(f"an object has the key {double!r} twice")
    return found


def _shallow(parse: Callable[[], Any]) -> Any:
    """Return what is parsed, unless its values are nested too deep."""
    try:
        found = parse()
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [found] if isinstance(found, (dict, list)) else []
    for _ in range(_MOST_LEVELS):
        level = [inner for one in level for inner in _parts(one)]
    if level:
        raise ValueError(_TOO_DEEP)
    return found


def _parts(value: dict[str, Any] | list[Any]) -> Iterator[Any]:
    """Yield the objects and arrays in an object or array."""
    parts = value.values() if isinstance(value, dict) else value
    return (part for part in parts if isinstance(part, (dict, list)))


def text_lines(stream: BinaryIO, errors: str = "strict") -> Iterator[str]:
    """Yield the lines of UTF-8 text with their ends, and close the stream.

    Args:
        stream: the text, with or without a byte-order mark.
        errors: how bytes that are not UTF-8 are handled, as for ``bytes.decode``.

    Raises:
        OSError: the text is not UTF-8, or a line has more than a million characters, as in files
            that are not text.
    """
    number = 0
    with io.TextIOWrapper(stream, "utf-8-sig", errors, newline="") as text:
        while line := _line(text):
            number += 1
            if len(line) == _MOST_CHARACTERS and line[-1] not in "\r\n":
                why = f"line {number:,} has more than {_MOST_CHARACTERS:,} characters"
                raise OSError(errno.EFBIG, why)
            yield line


def _line(text: io.TextIOWrapper) -> str:
    try:
        return text.readline(_MOST_CHARACTERS)
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "it is not UTF-8 text") from None
