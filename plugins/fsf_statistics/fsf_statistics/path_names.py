"""File and folder names for what leaves this machine."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import os
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, TypeVar

__all__ = ["PathNames"]

_T = TypeVar("_T")

_USER = (
    r"(?:file:/+|/|[A-Za-z]:[\\/]+)(?:[^\s\\/:'\"]+[\\/]+)*(?:home|Users)[\\/]+"
    r"[^\s\\/:'\"]+(?: [^\s\\/:'\"]+){0,2}[\\/]+"
)
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
_HOME = re.compile(r"(?:(?:[A-Za-z]:)?[\\/]+(?:home|Users)[\\/]+[^\\/]+|/root|.*[\\/]~[^\\/]*)$")
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
        self._names = {_identity(path)[0]: name for path, name in (names or {}).items()}
        self._spellings: dict[str, str] = {}

    def name(self, path: str) -> str:
        """Return the name of a path; ``~`` for the folder of a user."""
        identity, last = _identity(path)
        if identity not in self._names:
            taken = {*self._names.values()} - {"~"}
            numbered = (f"{last} ({number})" for number in itertools.count(2))
            each = itertools.chain([last], numbered)
            self._names[identity] = next(name for name in each if name not in taken)
        if "/" in path or "\\" in path:
            self._spellings[path] = self._names[identity]
        return self._names[identity]

    def in_value(self, value: _T) -> _T:
        """Return the value of an option, whatever is in it included, with names for its paths."""
        shown: _T = _map_texts(value, lambda t: _WHOLE.sub(lambda m: self.name(m[0]), t))
        return shown

    def in_text(self, value: _T) -> _T:
        """Return sentences, whatever they are in included, with names for the paths in them."""
        known = map(re.escape, sorted(self._spellings, key=len, reverse=True))
        spelt = re.compile(rf"(?<![\w/\\.~-])(?:{'|'.join(known) or '(?!)'})(?!\.?[\w-])")

        def shorten(text: str) -> str:
            for pattern in (spelt, _QUOTED, _WITHIN) if re.search(r"[/\\]", text) else ():
                text = pattern.sub(lambda m: self.name(m[0]), text)
            return text

        shown: _T = _map_texts(value, shorten)
        return shown

    def in_record(self, record: _T) -> _T:
        """Return the record of a run with names for its paths, also in its notes."""
        fields: dict[str, Any] = {**vars(record)}
        if (data := fields["components"].get("dataset")) is not None and data.argument:
            folder = data.options.get(data.argument)
            named = {data.argument: self.name(folder)} if isinstance(folder, str) else {}
            data = dataclasses.replace(data, options={**data.options, **named})
            fields["components"] = {**fields["components"], "dataset": data}
        values = {k: self.in_value(v) for k, v in fields.items() if k not in _NO_PATHS}
        sentences = {name: self.in_text(fields[name]) for name in _SENTENCES}
        return type(record)(**{**fields, **values, **sentences})


def _identity(path: str) -> tuple[str, str]:
    """Return what is equal for equal paths, and the last part of the path.

    A relative path starts from the folder of this process, whose name is not that of the path.
    """
    path = re.sub(r"^file:/+", "/", path)
    windows = re.match(r"[A-Za-z]:[\\/]", path) or ("\\" in path and "/" not in path)
    pure = (PureWindowsPath if windows else PurePosixPath)(path)
    identity = str(pure) if windows else os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111
    last = path if pure.name in ("", "..") else pure.name
    return identity, "~" if _HOME.match(identity) else last


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value with its texts changed; what has no such text is the same object."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        parts = [_map_texts(one, change) for one in value]
        return value if all(map(operator.is_, parts, value)) else type(value)(parts)
    if isinstance(value, Mapping):
        changed = {key: _map_texts(one, change) for key, one in value.items()}
        return value if all(changed[key] is one for key, one in value.items()) else changed
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        if (changed := _map_texts(fields, change)) is not fields:
            return dataclasses.replace(value, **changed)
    return value
