"""The published data sets that this package declares, one class each, created on first use."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fsf_datasets._declared import Declared, declared

__all__ = ["declaration_files"]

_FOLDER = Path(__file__).parent / "declarations"


@cache
def declaration_files() -> dict[str, Path]:
    """Return the declarations of this package by the name of their class.

    >>> declaration_files()["CifarFs"].name
    'cifar-fs.toml'
    """
    return {
        "".join(part.capitalize() for part in file.stem.split("-")): file
        for file in sorted(_FOLDER.glob("*.toml"))
    }


def __getattr__(name: str) -> type[Declared]:
    if (file := declaration_files().get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = declared(file, module=__name__)
    return found
