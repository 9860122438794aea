"""Text from elsewhere as a terminal may show it, and text for elsewhere without paths."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, TextIO, TypeVar

__all__ = ["NAME", "PathNames", "Printed", "printable"]

NAME = r"\w[\w-]{0,127}"
"""Pattern of the names of components, statistics and arms, which files are named after too."""
_T = TypeVar("_T")

_STEERING = re.compile(
    r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""Control characters but tab and line end, and the marks that turn the direction of a text."""


def printable(text: str) -> str:
    r"""Return text with what would steer a terminal as an escape sequence of JSON.

    >>> printable("a\x1b[2Jb\u202ec, and \t ü stay")
    'a\\u001b[2Jb\\u202ec, and \t ü stay'
    """
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Printed:
    """A stream on which only printable text arrives.

    A carriage return that begins a text stays: progress bars of other libraries begin with it.

    Args:
        stream: where the text goes; everything but writing is its own.
    """

    buffer = None
    """There is no way around: click would write to the buffer of a stream in ASCII."""

    def __init__(self, stream: TextIO) -> None:
        self.steered = stream

    def write(self, text: str | bytes) -> int:
        """Write text, printable; click writes bytes too where there is no other way."""
        if isinstance(text, bytes):
            text = text.decode()
        start = text.startswith("\r")
        self.steered.write(text[:start] + printable(text[start:]))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write texts, printable."""
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.steered, name)


_USER = r"(?:/|[A-Za-z]:[\\/]+)(?:home|Users)[\\/]+[^\s\\/:'\"]+(?: [^\s\\/:'\"]+){0,2}[\\/]+"
_START = rf"(?:{_USER}|file:/+|[A-Za-z]:[\\/]|\\\\|(?:~[\w.-]*|\.\.)[\\/]|/(?![/\s]))"
"""What only a path begins with; the folder of a user may have spaces in its name."""
_WHOLE = re.compile(rf"(?:^|(?<=[:=]))(?:{_START}|\./).+$", re.DOTALL)
"""A file or folder, alone or after ``NAME:`` or ``OPTION=``; no address of the web."""
_QUOTED = re.compile(rf"(?<=(['\"`]))(?!/[mg]/\d){_START}(?:(?!\1)[^\n])+(?=\1)")
_WITHIN = re.compile(
    rf"(?:^|(?<=[\s'\"`(\[{{<=:,;|]))(?!/[mg]/\d|/[^/\\\s]*(?:\s|$))"
    rf"{_START}[^\s'\"`<>|:;,)\]}}]*[^\s'\"`<>|:;,)\]}}.]"
)
"""A path within a sentence; ``/m/01g317`` is the name of a class in Open Images."""
_HOME = re.compile(r"(?:(?:[A-Za-z]:)?[\\/]+(?:home|Users)[\\/]+[^\\/]+|/root|~[^\\/]*)[\\/]*")
_SENTENCES = ("notes", "cautions")
_NO_PATHS = ("class_names", "estimates", "training", *_SENTENCES)


class PathNames:
    r"""The names of files and folders, for what leaves this machine: the last part of each path.

    Another path with the same last part gets a number, so that what differs is still told apart.
    An instance gives the same path the same name; what is shown together shares one.

    Args:
        names: names that some paths have already, by path.

    >>> names = PathNames()
    >>> names.in_value(("folder:/home/me/birds", "/data/birds", "https://host/a/b", "C:\\x\\y"))
    ('folder:birds', 'birds (2)', 'https://host/a/b', 'y')
    >>> names.in_text("read from '/home/John Smith/a b.csv' and /data/birds/1.png (wAcc-R/wAcc-A)")
    "read from 'a b.csv' and birds (2)/1.png (wAcc-R/wAcc-A)"
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = {_identity(path): name for path, name in (names or {}).items()}
        self._spellings: dict[str, str] = {}

    def name(self, path: str) -> str:
        """Return the name of a path."""
        identity = _identity(path)
        if identity not in self._names:
            plain = "~" if _HOME.fullmatch(identity) else _pure(path).name or "~"
            taken, number, name = set(self._names.values()), 1, plain
            while name in taken and plain != "~":
                number += 1
                name = f"{plain} ({number})"
            self._names[identity] = name
        if "/" in path or "\\" in path:
            self._spellings[path] = self._names[identity]
        return self._names[identity]

    def in_value(self, value: _T) -> _T:
        """Return the value of an option, whatever is in it included, with names for its paths."""
        return _mapped(value, lambda text: _WHOLE.sub(lambda m: self.name(m[0]), text))

    def in_text(self, value: _T) -> _T:
        """Return sentences, whatever they are in included, with names for the paths in them."""
        known = sorted(self._spellings, key=len, reverse=True)
        paths = re.compile(
            rf"(?<![\w/\\.~-])(?:{'|'.join(map(re.escape, known)) or '(?!)'})(?!\.?[\w-])"
        )

        def shorten(text: str) -> str:
            if "/" not in text and "\\" not in text:
                return text
            text = paths.sub(lambda m: self._spellings[m[0]], text)
            for pattern in (_QUOTED, _WITHIN):
                text = pattern.sub(lambda m: self.name(m[0]), text)
            return text

        return _mapped(value, shorten)

    def in_record(self, record: _T) -> _T:
        """Return the record of a run with names for its paths, also in its notes."""
        fields: dict[str, Any] = {**vars(record)}
        if (data := fields["components"].get("dataset")) is not None and data.argument:
            options = {**data.options}
            if isinstance(folder := options.get(data.argument), str):
                options[data.argument] = self.name(folder)
            data = dataclasses.replace(data, options=options)
            fields["components"] = {**fields["components"], "dataset": data}
        values = {k: self.in_value(v) for k, v in fields.items() if k not in _NO_PATHS}
        sentences = {name: self.in_text(fields[name]) for name in _SENTENCES}
        return type(record)(**{**fields, **values, **sentences})


def _pure(path: str) -> PurePosixPath | PureWindowsPath:
    path = re.sub(r"^file:/+", "/", path)
    windows = re.match(r"[A-Za-z]:[\\/]", path) or ("\\" in path and "/" not in path)
    return PureWindowsPath(path) if windows else PurePosixPath(path)


def _identity(path: str) -> str:
    """Return one spelling of a path; a relative one starts from the folder of this process."""
    pure = _pure(path)
    if isinstance(pure, PureWindowsPath):
        return str(pure)
    return os.path.abspath(os.path.expanduser(pure))  # noqa: PTH100, PTH111 - unknown users


def _mapped(value: Any, change: Any) -> Any:
    """Return a value, what is in it included, with its texts changed; the same where none is."""
    if isinstance(value, str):
        return change(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        new = {name: _mapped(one, change) for name, one in fields.items()}
        same = all(new[name] is fields[name] for name in new)
        return value if same else dataclasses.replace(value, **new)
    if isinstance(value, Mapping):
        return {key: _mapped(one, change) for key, one in value.items()}
    if isinstance(value, list | tuple):
        parts = [_mapped(one, change) for one in value]
        same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if same else type(value)(parts)
    return value
