"""What a reader of a table of runs must know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsframework.api.imports import RunRecord

__all__ = ["cautions_of"]


def cautions_of(records: Mapping[str, Sequence[RunRecord]]) -> dict[str, tuple[str, ...]]:
    """Return by label what to print under a table of runs.

    That is their own cautions; that nothing was trained, where others are of trained weights; and
    where they were computed with different numbers of PyTorch threads and anything was trained,
    these numbers: sums of floating-point numbers depend on how they are split among threads, and a
    training amplifies the difference.

    Args:
        records: of the runs of each label.
    """
    every = [record for own in records.values() for record in own]
    threads = {record.environment.threads for record in every} - {0}
    differ = len(threads) > 1 and any(record.training.history for record in every)
    trained = any(record.data.seen for record in every)
    found = {}
    for label, own in records.items():
        said = [caution for record in own for caution in record.cautions]
        if trained and any(record.method and not record.data.seen for record in own):
            said.append("nothing was trained or loaded; other methods here have trained weights")
        said += [
            f"computed with {n} PyTorch thread{'s' if n > 1 else ''}; other numbers of threads "
            "train slightly different weights"
            for n in (record.environment.threads for record in own)
            if n and differ
        ]
        found[label] = tuple(dict.fromkeys(said))
    return found
