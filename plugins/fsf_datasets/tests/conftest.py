from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SHARED = Path(__file__).resolve().parents[3].parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the reference material is not next to the checkout")
    return SHARED


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def images(root: Path) -> Callable[..., Path]:
    """Write small images of one colour, creating their folders; returns the root."""

    def write(*names: str, colour: tuple[int, int, int] = (10, 20, 30)) -> Path:
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((6, 8, 3), colour, np.uint8)).save(root / name)
        return root

    return write
