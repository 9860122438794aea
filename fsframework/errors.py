"""The errors a user can meet; each becomes one line on the terminal and exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "DataError",
    "FsfError",
    "InfeasibleTask",
    "OptionError",
    "PluginError",
    "RecordError",
    "close_matches",
]


class FsfError(Exception):
    r"""Base of every error whose message is meant for the user as it stands.

    Args:
        message: one sentence: what is wrong, where, and what is allowed.
        picture: lines to be shown below it as they are, such as the tree of files that is
            expected; a traceback shows them too.

    >>> error = DataError("images: nothing is found here", picture="images/\n└── CLASS/")
    >>> print(error)
    images: nothing is found here
    >>> print(error.picture)
    images/
    └── CLASS/
    """

    def __init__(self, message: str = "", *, picture: str = "") -> None:
        super().__init__(message)
        self.picture = picture
        if picture:
            self.add_note(f"\n{picture}")


class OptionError(FsfError):
    """An option, a configuration key or a component's parameter is unknown or not allowed."""


class PluginError(FsfError):
    """A plugin is unknown, ambiguous, broken or not what its group demands."""


class DataError(FsfError):
    """Images, labels, attributes or a file of ours do not fit what they claim to be."""


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
