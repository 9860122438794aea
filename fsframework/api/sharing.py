"""Commands whose work on many images the workers of a launcher divide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fsframework.api.launchers import without_launcher
from fsframework.api.session import Session
from fsframework.pipeline.shared_rows import Do, Sharing, Task

__all__ = ["Do", "Sharing", "sharing_of"]


def sharing_of(
    prepare: Callable[[Mapping[str, Any], Session, Mapping[str, Any]], Do],
    tree: Mapping[str, Any],
    session: Session,
    plugins: Sequence[str | Path] = (),
    **options: Any,
) -> tuple[Sharing | None, dict[str, Any]]:
    """Return the workers that a tree of ``Given`` asks for, if any, and the tree without them.

    Args:
        prepare: makes, in a worker, the function that computes rows, from the tree, a session and
            the further arguments; one of a module.
        tree: options of a command.
        session: of the command.
        plugins: the files of its plugins.
        **options: further arguments of ``prepare``.

    Raises:
        PluginError: the launcher is unknown or cannot be loaded.
        OptionError: an option of it is not allowed.
    """
    launcher, [rest] = without_launcher([tree], session)
    if launcher is None:
        return None, rest
    files = tuple(str(Path(file).absolute()) for file in plugins)
    task = Task(prepare, rest, session.workspace, files, options)
    return Sharing(launcher, task, session), rest
