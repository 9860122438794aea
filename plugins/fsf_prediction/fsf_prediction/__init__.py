"""Classifies a user's own images from a few labelled examples per class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_prediction.prediction import Predictions, predict

__all__ = ["Predictions", "predict"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fsf_prediction import prediction

    return getattr(prediction, name)


def __dir__() -> list[str]:
    return sorted(__all__)
