"""The errors that a user can meet, and how their messages name what the user had given.

On the command line each becomes one line and exit code 2.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = [
    "DataError",
    "FsfError",
    "InfeasibleTask",
    "OptionError",
    "PluginError",
    "RecordError",
    "argument",
    "close_matches",
    "speaking",
]

Voice = Callable[[str, Any], str]
"""How a message names an argument, and the value to give it; ``None`` names it only."""


class FsfError(Exception):
    r"""Base of every error whose message is meant for the user as it stands.

    Args:
        message: one sentence: what is wrong, where, and what is allowed.
        picture: lines to be shown below it as they are, such as the tree of files that is
            expected; a traceback shows them too.
        remedy: arguments, by name, with which it would work; empty where none are known.

    >>> error = DataError("images: nothing is found here", picture="images/\n└── CLASS/")
    >>> print(error)
    images: nothing is found here
    >>> print(error.picture)
    images/
    └── CLASS/
    """

    def __init__(
        self, message: str = "", *, picture: str = "", remedy: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.picture = picture
        self.remedy = dict(remedy or {})
        if picture:
            self.add_note(f"\n{picture}")


class OptionError(FsfError):
    """An option, a configuration key or a component's parameter is unknown or not allowed."""


class PluginError(FsfError):
    """A plugin is unknown, ambiguous, broken or not what its group demands."""


class DataError(FsfError):
    """Images, labels, attributes or a file of ours do not fit what they claim to be.

    Args:
        message: as of ``FsfError``.
        picture: likewise.
        reason: of an image that cannot be read: what is wrong with it, without its place, for
            those who know the image by another name; empty where only the message says.

    >>> DataError("table.csv, row 3: a.png: no such file", reason="no such file").reason
    'no such file'
    """

    def __init__(self, message: str = "", *, picture: str = "", reason: str = "") -> None:
        super().__init__(message, picture=picture)
        self.reason = reason


class InfeasibleTask(FsfError):
    """The data cannot yield the task that was asked for."""


class RecordError(FsfError):
    """A run record cannot be read, written or merged."""


def close_matches(name: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x' or 'y'?)"`` for the known names near ``name``, or ``""``.

    >>> close_matches("protonets", ["protonet", "renet"])
    " (did you mean 'protonet'?)"
    >>> close_matches("zzz", ["protonet"])
    ''
    """
    near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    if not near:
        return ""
    return " (did you mean " + " or ".join(repr(n) for n in near) + "?)"


def _in_python(name: str, value: Any) -> str:
    if value is None:
        return name
    first, *below = name.split(".")
    for key in reversed(below):
        value = {key: value}
    return f"{first}={value!r}"


_VOICE: ContextVar[Voice] = ContextVar("voice", default=_in_python)


def argument(name: str, value: Any = None) -> str:
    """Return how the user gives an argument: ``way=4`` in Python, ``--way 4`` on a command line.

    Messages name arguments through this function, so that none speaks of options to a caller who
    has none.

    Args:
        name: of a public argument (``way``), or a dotted option (``training.epochs``), which in
            Python is a mapping.
        value: one that would do; ``None`` names the argument only.

    >>> argument("way", 4), argument("attributes"), argument("training.epochs", 0)
    ('way=4', 'attributes', "training={'epochs': 0}")
    """
    return _VOICE.get()(name, value)


@contextmanager
def speaking(voice: Voice) -> Iterator[None]:
    """Let ``argument`` speak in another way within a block, as the command line does."""
    token = _VOICE.set(voice)
    try:
        yield
    finally:
        _VOICE.reset(token)
