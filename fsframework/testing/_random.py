"""The global generators of Python, NumPy and PyTorch, of which PyTorch's only if it is imported."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

__all__ = ["global_states", "scramble", "seeded"]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators within the block and restore their states afterwards."""
    torch = sys.modules.get("torch")
    python, numpy = random.getstate(), np.random.get_state(legacy=False)  # noqa: NPY002
    tensors = torch and torch.get_rng_state()
    try:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - components may draw from it
        if torch:
            torch.default_generator.manual_seed(seed)
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if torch:
            torch.set_rng_state(tensors)


def scramble() -> None:
    """Bring the generators into states that nobody knows."""
    random.seed()
    np.random.seed()  # noqa: NPY002
    if torch := sys.modules.get("torch"):
        torch.seed()


def global_states() -> dict[str, str]:
    """Return what the generators of Python and NumPy draw next, as texts."""
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002
    return {"random": repr(random.getstate()), "numpy.random": repr(numpy)}
