"""The files through which a launcher, its driver and its workers tell each other what happens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Job", "read", "write"]


@dataclass(frozen=True)
class Job:
    """What a driver is to do; see ``Work`` and ``RayLauncher``.

    Args:
        directory: in which the command runs.
        grace: seconds that a command has to stop.
    """

    name: str
    command: list[str]
    n_items: int
    logs: str
    environment: dict[str, str]
    directory: str
    address: str | None
    cpus: float
    gpus: float | None
    workers: int | None
    retries: int
    grace: float

    def save(self, path: Path) -> None:
        """Write the job to a file that only its owner may read."""
        write(path, asdict(self))

    @staticmethod
    def load(path: Path) -> Job:
        """Read what ``save`` has written."""
        return Job(**read(path))


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a file at once, so that nobody reads half of it."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.replace(path)


def read(path: Path) -> dict[str, Any]:
    """Return what ``write`` has written; nothing if the file does not exist yet."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found
