"""For packages of commands: files written whole or not at all, and arrays that are built once."""

from __future__ import annotations

from fsframework._files import atomic_path, atomic_write, locked
from fsframework.pipeline.cache.rows import stored_array
from fsframework.pipeline.learning.history import write_tensorboard
from fsframework.pipeline.learning.model import save_tensors

__all__ = [
    "atomic_path",
    "atomic_write",
    "locked",
    "save_tensors",
    "stored_array",
    "write_tensorboard",
]
