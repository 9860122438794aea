"""For packages of commands: files written whole or not at all, and arrays that are built once."""

from __future__ import annotations

from fsframework._files import atomic_path, atomic_write, locked
from fsframework.pipeline.cache.rows import Rows, records_of
from fsframework.pipeline.learning.history import write_tensorboard
from fsframework.pipeline.learning.model import save_tensors

__all__ = [
    "Rows",
    "atomic_path",
    "atomic_write",
    "locked",
    "records_of",
    "save_tensors",
    "write_tensorboard",
]
