"""The errors that a user can see, and how their messages name arguments.

On the command line each becomes one line and exit code 2.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from fsframework._text import printable

__all__ = [
    "DataError",
    "FsfError",
    "FsfWarning",
    "InfeasibleTask",
    "OptionError",
    "PluginError",
    "RecordError",
    "UnknownPlugin",
    "argument",
    "close_matches",
    "install_hint",
    "naming",
    "refusal",
    "speaking",
    "voice",
]

Voice = Callable[[str, Any], str]
"""Names an argument and its value in a message; ``None`` names only the argument."""


class FsfError(Exception):
    r"""Base of every error whose message is for the user.

    Args:
        message: one sentence: what is wrong, where, and what is allowed.
        picture: lines shown verbatim below the message, such as the expected tree of files; a
            traceback shows them too.

    >>> error = DataError("images: nothing is found here", picture="images/\n└── CLASS/")
    >>> print(error)
    images: nothing is found here
    >>> print(error.picture)
    images/
    └── CLASS/
    """

    def __init__(self, message: str = "", *, picture: str = "") -> None:
        super().__init__(printable(message))
        self.picture = picture
        if picture:
            self.add_note(f"\n{picture}")


class FsfWarning(UserWarning):
    """Something that a user should know and that stops nothing; a note on the command line."""


class OptionError(FsfError):
    """An option, a configuration key or a component's parameter is unknown or not allowed."""


class PluginError(FsfError):
    """A plugin is unknown, ambiguous, broken or not what its group requires."""


class UnknownPlugin(PluginError):
    """No plugin of a kind has this name."""


class DataError(FsfError):
    """Images, labels, attributes or a file of the framework are invalid.

    Args:
        message: as in ``FsfError``.
        picture: as in ``FsfError``.
        reason: what is wrong with an unreadable image, without its location, for callers that
            name the image differently; empty where only the message states it.

    >>> DataError("table.csv, row 3: a.png: no such file", reason="no such file").reason
    'no such file'
    """

    def __init__(self, message: str = "", *, picture: str = "", reason: str = "") -> None:
        super().__init__(message, picture=picture)
        self.reason = reason


class InfeasibleTask(FsfError):
    """The data cannot yield the requested tasks."""


class RecordError(FsfError):
    """A run record cannot be read or written."""


def close_matches(name: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x' or 'y'?)"`` for the known names near ``name``, or ``""``.

    >>> close_matches("protonets", ["protonet", "renet"])
    " (did you mean 'protonet'?)"
    >>> close_matches("zzz", ["protonet"])
    ''
    """
    if not (near := difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)):
        return ""
    return " (did you mean " + " or ".join(repr(n) for n in near) + "?)"


def install_hint(requirement: str) -> str:
    """Return how a package is installed, for the end of a message.

    A package of this project comes from where fsframework does: the folder of a checkout, or the
    index. Nobody may have registered its name on an index that fsframework does not come from.

    Args:
        requirement: a name, with an extra in brackets where one is needed, or several names of
            other projects.

    >>> install_hint("pandas")
    'pip install pandas'
    """
    # Imported late: they take a while, and few messages end so.
    import json
    import shlex
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote

    quoted = f'"{requirement}"' if "[" in requirement else requirement
    source = ""
    with suppress(PackageNotFoundError, ValueError):
        text = distribution("fsframework").read_text("direct_url.json")
        source = str(json.loads(text or "{}").get("url", ""))
    place = Path(unquote(source.removeprefix("file://")))
    roots = [Path(__file__).parents[1], *([place] if source.startswith("file://") else [])]
    root = next((one for one in roots if (one / "plugins").is_dir()), None)
    if not requirement.startswith(("fsframework", "fsf-")) or not (root or source):
        return f"pip install {quoted}"
    if root and requirement.startswith("fsframework"):
        return f"cd {shlex.quote(str(root))} && pip install -r requirements.txt"
    if root and (folders := _folders_of(requirement, root / "plugins")):
        return f"pip install {' '.join(f'-e {shlex.quote(folder)}' for folder in folders)}"
    if place.suffix == ".whl" and source.startswith("file://"):
        return f"pip install --find-links {shlex.quote(str(place.parent))} {quoted}"
    return f"install {requirement} from where fsframework came from, {source or root}"


def _folders_of(requirement: str, plugins: Path) -> list[str]:
    """Return the folders of a checkout that a package and its dependencies are in."""
    import tomllib

    name, bracket, extra = requirement.partition("[")
    folder = plugins / name.replace("-", "_")
    if not (folder / "pyproject.toml").is_file():
        return []
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [one.partition(">")[0] for one in project["dependencies"]]
    needed = [path for one in names for path in _folders_of(one, plugins)]
    return list(dict.fromkeys([f"{folder}{bracket}{extra}", *needed]))


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

    Messages name arguments through this function, so that they fit the caller's interface.

    Args:
        name: name of a public argument (``way``) or of a dotted option (``training.epochs``), which
            is a mapping in Python.
        value: a value for it; ``None`` names only the argument.

    >>> argument("way", 4), argument("attributes"), argument("training.epochs", 0)
    ('way=4', 'attributes', "training={'epochs': 0}")
    """
    return _VOICE.get()(name, value)


def voice() -> Voice:
    """Return how ``argument`` names arguments now, for ``speaking`` in another process."""
    return _VOICE.get()


@contextmanager
def speaking(voice: Voice) -> Iterator[None]:
    """Change how ``argument`` names arguments within a block, as the command line does."""
    token = _VOICE.set(voice)
    try:
        yield
    finally:
        _VOICE.reset(token)


@contextmanager
def naming(place: object) -> Iterator[None]:
    """Begin the message of a ``DataError`` raised in a block with a file, or another place."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{place}: {error}") from None


def refusal(error: BaseException) -> str | None:
    """Return what the system refuses, in one sentence, if that is the fault; else ``None``."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "no space left on the device; free some and run the same command again"
    if isinstance(error, OSError) and error.errno == errno.ENOLCK:
        return "a file system has no locks; set FSF_RUNS and FSF_CACHE to folders on a local disk"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{str(error.filename)[:200]}: {error.strerror}"
    if isinstance(error, UnicodeEncodeError):
        return f"{ascii(error.object)[:200]}: this name is not valid UTF-8; rename it"
    if isinstance(error, MemoryError):
        reason = f" ({error})" if str(error) else ""
        return f"not enough memory{reason}; ask for less: fewer or smaller images, fewer tasks"
    return None
