"""Few-shot methods that train on all base classes at once and fit a classifier a task."""

from __future__ import annotations

__all__: list[str] = []

__version__ = "0.1.0"
