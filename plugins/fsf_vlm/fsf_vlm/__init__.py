"""Vision-language models that see and answer, on this machine or behind an endpoint."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_vlm._chat import Chat
    from fsf_vlm._client import Answer, Client, Message, Request
    from fsf_vlm._endpoint import Endpoint
    from fsf_vlm._in_context import InContext
    from fsf_vlm._in_context_endpoint import InContextEndpoint
    from fsf_vlm._kept import kept_answers, remove_answers
    from fsf_vlm._pixels import Pixels
    from fsf_vlm._store import AnswerStore

__all__ = [
    "Answer",
    "AnswerStore",
    "Chat",
    "Client",
    "Endpoint",
    "InContext",
    "InContextEndpoint",
    "Message",
    "Pixels",
    "Request",
    "kept_answers",
    "remove_answers",
]

__version__ = "0.1.0"

_HOME = {
    "Answer": "_store",
    "AnswerStore": "_store",
    "Chat": "_chat",
    "Client": "_client",
    "Endpoint": "_endpoint",
    "InContext": "_in_context",
    "InContextEndpoint": "_in_context_endpoint",
    "Pixels": "_pixels",
    "Message": "_client",
    "Request": "_client",
    "kept_answers": "_kept",
    "remove_answers": "_kept",
}
"""The module that defines each name; using one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
