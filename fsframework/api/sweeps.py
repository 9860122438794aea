"""What a sweep needs to run many experiments, here or by a launcher's workers."""

from __future__ import annotations

from fsframework._digest import digest_of
from fsframework.engine.sweep import (
    Ended,
    Item,
    SweepFolder,
    group_of,
    key_of_experiment,
    run_items,
)

__all__ = [
    "Ended",
    "Item",
    "SweepFolder",
    "digest_of",
    "group_of",
    "key_of_experiment",
    "run_items",
]
