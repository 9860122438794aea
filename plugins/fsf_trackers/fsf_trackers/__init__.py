"""Finished runs in experiment trackers: MLflow and Weights & Biases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_trackers.exporting import Exported, export_runs

__all__ = ["Exported", "export_runs"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fsf_trackers import exporting

    return getattr(exporting, name)


def __dir__() -> list[str]:
    return sorted(__all__)
