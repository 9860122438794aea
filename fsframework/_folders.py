"""Folders of the user."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Return ``FSF_CACHE``, else the usual folder of the user."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("FSF_CACHE") or Path(home) / "fsframework")
