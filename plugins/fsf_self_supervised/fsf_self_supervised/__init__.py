"""Learning without labels: methods on views, pretext tasks, makers of views, `fsf pretrain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_self_supervised.pretraining.pretraining import Pretrained, pretrain

__all__ = ["Pretrained", "pretrain"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fsf_self_supervised.pretraining import pretraining

    return getattr(pretraining, name)


def __dir__() -> list[str]:
    return sorted(__all__)
