"""Text from elsewhere as a terminal may show it; text for elsewhere without formulas and paths."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, TextIO, TypeVar

__all__ = ["NAME", "PathNames", "Printed", "csv_text", "inert_cell", "printable"]

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


_FORMULA = re.compile(
    r"^(?=[\t\r\n])|(?:^|(?<=[;\t]))(?=[\s'\"\u200b-\u200f\ufeff]*[=+\-@＝＋－＠])"
)
"""Where a cell begins that a spreadsheet would run; it may split a text at ``;`` or a tab."""


def inert_cell(text: str) -> str:
    """Return a text that no spreadsheet runs: an apostrophe before what would begin a formula.

    >>> inert_cell("=cmd()"), inert_cell("-3.2"), inert_cell("a-b; @x")
    ("'=cmd()", '-3.2', "a-b;' @x")
    """
    try:
        float(text)
    except ValueError:
        return _FORMULA.sub("'", text)
    return text


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> str:
    r"""Return a table as CSV, each text as an ``inert_cell``; ``None`` is an empty cell.

    Args:
        columns: their heads.
        rows: their cells, in the order of the columns or by their heads.

    >>> csv_text(["key", "gap"], [["=a.png", -3.2], {"gap": 1}])
    "key,gap\n'=a.png,-3.2\n,1\n"
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    for row in (columns, *rows):
        cells = [row.get(name) for name in columns] if isinstance(row, Mapping) else row
        writer.writerow(["" if cell is None else inert_cell(str(cell)) for cell in cells])
    return out.getvalue()


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
