"""The session of a call of the public API: its plugins, folders and progress reporter."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fsframework.components.registry import Registry
from fsframework.engine.progress import Advance, Reporter, usual_reporter
from fsframework.engine.session import Session, Workspace
from fsframework.errors import OptionError, argument

__all__ = ["Advance", "Reporter", "Session", "Workspace", "open_session"]


def open_session(
    *,
    runs_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
    progress: bool = True,
) -> Session:
    """Return the session of a call.

    Args:
        runs_dir: where runs are written; by default ``FSF_RUNS``, else ``./runs``.
        cache_dir: where stages are cached; by default ``FSF_CACHE``, else the user's cache folder.
        plugins: Python files whose plugin classes are loaded too.
        progress: whether progress is shown on standard error, as bars on a terminal, else as lines.

    Raises:
        OptionError: an argument is of the wrong type.
    """
    for name, folder in (("runs_dir", runs_dir), ("cache_dir", cache_dir)):
        if not isinstance(folder, str | os.PathLike | None):
            raise OptionError(f"{argument(name)} must be a path, not {folder!r}")
    if not isinstance(progress, bool):
        raise OptionError(f"{argument('progress')} must be true or false, not {progress!r}")
    plugins = [plugins] if isinstance(plugins, str | os.PathLike) else plugins
    reporter = usual_reporter() if progress else Reporter()
    return Session(Registry(plugins), Workspace.default(runs_dir, cache_dir), reporter)
