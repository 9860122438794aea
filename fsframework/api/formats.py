"""Plugins that write files, found by the suffix of the file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsframework._files import atomic_path
from fsframework.api.components import component
from fsframework.components.registry import Registry
from fsframework.errors import OptionError, PluginError, close_matches

__all__ = ["writer_of", "written"]


def writer_of(kind: str, path: Path, asked: Any, called: str) -> Any:
    """Return the component of a kind that writes files with the suffix of a path.

    Args:
        kind: whose classes declare ``formats``: ``renderer`` or ``table``.
        path: of the file.
        asked: a name, a mapping of a name and options, a class or an instance; ``None`` for the
            first installed one, by name, that writes the format.
        called: what is written, for messages.

    Raises:
        OptionError: none of them writes the format.
        PluginError: none is installed, or it cannot be loaded.
    """
    registry = Registry()
    wanted = path.suffix.lower().removeprefix(".")
    names = registry.names(kind) if asked is None else [asked]
    if not names:
        raise PluginError(f"nothing is installed that writes a {called}: pip install fsf-reports")
    formats: list[str] = []
    for one in names:
        made = component(registry, kind, one).create()
        if wanted in made.formats:
            return made
        formats += made.formats
    hint = close_matches(wanted, formats)
    allowed = ", ".join(f".{name}" for name in dict.fromkeys(formats))
    raise OptionError(f"{path}: the name of a {called} must end in one of {allowed}{hint}")


def written(path: Path, write: Callable[[Path], None]) -> Path:
    """Write a file whole or not at all, and return its path.

    Args:
        path: of the file, which is replaced if it exists.
        write: takes the path of a file with the same suffix, in an empty folder.

    Raises:
        FsfError: the file cannot be written.
    """
    with atomic_path(path) as temporary, tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / f"made{path.suffix.lower()}"
        write(made)
        temporary.write_bytes(made.read_bytes())
    return path
