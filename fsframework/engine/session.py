"""What every part of a run needs: plugins, folders, progress and a device."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fsframework._folders import cache_folder
from fsframework.components.registry import Registry
from fsframework.engine.progress import Reporter
from fsframework.errors import OptionError, argument

if TYPE_CHECKING:
    import torch

__all__ = ["Session", "Workspace", "resolve_device"]


@dataclass(frozen=True)
class Workspace:
    """Two folders: ``runs``, with a folder per run; and ``cache``, which may be deleted."""

    runs: Path
    cache: Path

    @classmethod
    def default(cls, runs: str | Path | None = None, cache: str | Path | None = None) -> Workspace:
        """Return the given folders, else ``FSF_RUNS`` and ``FSF_CACHE``, else the defaults."""
        folder = Path(runs or os.environ.get("FSF_RUNS") or "runs")
        return cls(folder, Path(cache) if cache else cache_folder())

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


def resolve_device(wanted: str) -> torch.device:
    """Return the device of a name; ``auto`` is the first GPU, else the CPU.

    Raises:
        OptionError: the name is not a device, or this machine does not have it.
    """
    import torch  # late, since words are detected without it

    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise OptionError(
            f"{argument('device', wanted)}: unknown device; use auto, cpu, cuda, cuda:N or mps"
        ) from None
    counts = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    count = counts.get(device.type, 1)
    if (device.index or 0) >= count:
        raise OptionError(
            f"{argument('device', wanted)}: this machine has {count} {device.type} devices that "
            f"PyTorch {torch.__version__} can use; use {argument('device', 'cpu')}"
        )
    return device
