"""What every part of a run needs: plugins, folders and progress."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fsframework.components.registry import Registry
from fsframework.engine.progress import Reporter

__all__ = ["Session", "Workspace"]


@dataclass(frozen=True)
class Workspace:
    """Two folders: ``runs``, with a folder per run; and ``cache``, which may be deleted."""

    runs: Path
    cache: Path

    @classmethod
    def default(cls, runs: str | Path | None = None, cache: str | Path | None = None) -> Workspace:
        """Return the given folders, else ``FSF_RUNS`` and ``FSF_CACHE``, else the defaults."""
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        usual = os.environ.get("FSF_CACHE") or Path(home) / "fsframework"
        return cls(Path(runs or os.environ.get("FSF_RUNS") or "runs"), Path(cache or usual))

    def absolute(self) -> Workspace:
        """Return the same folders for processes that may run elsewhere."""
        return Workspace(self.runs.absolute(), self.cache.absolute())


@dataclass(frozen=True)
class Session:
    """The plugins, folders and reporter of a run.

    Args:
        registry: where names of plugins are looked up.
        workspace: where runs and cached stages are stored.
        reporter: of progress.
    """

    registry: Registry
    workspace: Workspace
    reporter: Reporter
