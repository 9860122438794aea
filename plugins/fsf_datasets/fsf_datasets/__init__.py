"""Data sets for fsframework: published ones, your own from a folder or a table, rendered ones."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_datasets._declared import Declared, declared
    from fsf_datasets._unpickle import read_pickle
    from fsf_datasets.csv_table import CsvTable
    from fsf_datasets.folder import Folder
    from fsf_datasets.planted import Planted

__all__ = ["CsvTable", "Declared", "Folder", "Planted", "declared", "read_pickle"]

__version__ = "0.1.0"

_HOME = {
    "CsvTable": "csv_table",
    "Declared": "_declared",
    "Folder": "folder",
    "Planted": "planted",
    "declared": "_declared",
    "read_pickle": "_unpickle",
}
"""The module that defines each name; using one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
