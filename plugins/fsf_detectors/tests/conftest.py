from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_models import tiny_model

SHARED = Path(__file__).resolve().parents[3].parent / "shared"


@pytest.fixture(scope="session")
def flickr8k() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the reference material is not beside the checkout")
    return SHARED / "data/captions/flickr8k.token.txt.gz"


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Limit threads, because sharing tiny tensors costs more than computing with them."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model_copy(tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of a tiny model that a test may change."""

    def copy(kind: str) -> Path:
        return Path(shutil.copytree(tiny_model(kind), tmp_path / kind))

    return copy


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Fail every attempt to reach another machine, and list them."""
    attempts: list[Any] = []

    def refuse(*arguments: Any, **_: Any) -> Any:
        attempts.append(arguments)
        raise OSError("there is no network in this test")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("create_connection", "getaddrinfo", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)
    return attempts


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache of the hub."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"
