"""Runs made from models that other libraries trained; the checkpoints of LibFewShot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_importing.checkpoints import Checkpoint, read_checkpoint

__all__ = ["Checkpoint", "read_checkpoint"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fsf_importing import checkpoints

    return getattr(checkpoints, name)


def __dir__() -> list[str]:
    return sorted(__all__)
