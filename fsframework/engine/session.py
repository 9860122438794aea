"""What every part of a run needs: plugins, folders and progress."""

from __future__ import annotations

from dataclasses import dataclass

from fsframework.components.registry import Registry
from fsframework.engine.cache.workspace import Workspace
from fsframework.engine.progress import Reporter

__all__ = ["Session"]


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
