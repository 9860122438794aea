"""The folders of runs and cached stages."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Workspace"]


@dataclass(frozen=True)
class Workspace:
    """Two folders: ``runs``, with a folder per run; and ``cache``, which may be deleted."""

    runs: Path
    cache: Path

    @classmethod
    def default(cls, runs: Path | None = None, cache: Path | None = None) -> Workspace:
        """Return the given folders, else ``FSF_RUNS`` and ``FSF_CACHE``, else the defaults."""
        home = os.environ.get("XDG_CACHE_HOME")
        usual = (Path(home) if home else Path.home() / ".cache") / "fsframework"
        return cls(
            runs or Path(os.environ.get("FSF_RUNS") or "runs"),
            cache or Path(os.environ.get("FSF_CACHE") or usual),
        )

    def absolute(self) -> Workspace:
        """Return the same folders for processes that may run elsewhere."""
        return Workspace(self.runs.absolute(), self.cache.absolute())
