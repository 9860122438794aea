"""The fixtures of the core's tests, for those of this package."""

from __future__ import annotations

from tests.conftest import _own_folders, fsf

__all__ = ["_own_folders", "fsf"]
