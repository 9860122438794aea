"""Components that are sound but for one of the declarations that all kinds share."""

from __future__ import annotations

import os
from typing import Any

WRONG: dict[str, dict[str, Any]] = {
    "check_name": {"name": "Two Words"},
    "check_argument": {"argument": "nowhere"},
    "check_reads": {"reads": ("nowhere",)},
    "check_usual_components": {"usual_components": {"nowhere": "spacy"}},
}


def hashed() -> int:
    """Return a number below 97 that the hash seed decides, and another in a fresh process.

    Hashes themselves, modulo 97, are equal in two processes once in 97 pairs.
    """
    return int(os.environ.get("PYTHONHASHSEED", "0").replace("random", "0")) % 97


def changed(sound: type, **attributes: Any) -> type:
    """Return a sound class with something changed."""
    told = {
        "__doc__": "Wrong in one place.",
        "__module__": sound.__module__,
        "__qualname__": "changed.<locals>.Changed",
    }
    return type("Changed", (sound,), {**told, **attributes})


def misdeclared(sound: type) -> dict[str, type]:
    """Return for each shared check a class that only this check rejects."""
    return {check: changed(sound, **declared) for check, declared in WRONG.items()}
