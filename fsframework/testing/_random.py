"""The global generators of Python, NumPy and PyTorch, of which PyTorch's only if it is imported."""

from __future__ import annotations

import random
import sys

import numpy as np

__all__ = ["global_states", "scramble"]


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
