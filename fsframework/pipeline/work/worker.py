"""A worker: it takes items that nobody holds until none is left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from fsframework.pipeline.work.leases import Lease, Leases

__all__ = ["MOST_DEATHS", "Job", "work_off"]

MOST_DEATHS = 3
"""An item whose holders died so often, as for lack of memory, is given up."""
_SECONDS_BETWEEN_LOOKS = 0.5


class Job(Protocol):
    """Items that are independent of each other, and where their results are kept.

    A result is a file on the common disk: what one worker has done, the others see.
    """

    def left(self) -> Sequence[str]:
        """Return the keys of the items without a result, in the order to take them."""

    def group(self, key: str) -> str:
        """Return what tells items that compute the same thing first, so better not at once."""

    def do(self, key: str, lease: Lease) -> None:
        """Do an item and keep its result; what is wrong with the item is its result too."""

    def give_up(self, key: str, deaths: int) -> None:
        """Keep, as the result of an item, that its workers died."""


def work_off(job: Job, leases: Leases, *, wait: bool = True) -> None:
    """Do items until each has a result.

    Args:
        job: the items.
        leases: of this worker.
        wait: whether to wait for items that others hold, and to do those whose holders die;
            otherwise return when nothing is free.
    """
    while left := job.left():
        if not _do_one(job, leases, left):
            if not wait:
                return
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def _do_one(job: Job, leases: Leases, left: Sequence[str]) -> bool:
    """Do the first free item, if possible one of which no other worker computes a part now."""
    busy: set[str] = set()
    deferred: list[str] = []
    for key in left:
        if job.group(key) in busy:
            deferred.append(key)
        elif (lease := leases.take(key)) is not None:
            return _do(job, leases, lease)
        else:
            busy.add(job.group(key))
    for key in deferred:
        if (lease := leases.take(key)) is not None:
            return _do(job, leases, lease)
    return False


def _do(job: Job, leases: Leases, lease: Lease) -> bool:
    """Do an item that is held, unless another worker has just finished it."""
    key = lease.key
    with lease:
        if key not in job.left():
            return True
        if lease.deaths >= MOST_DEATHS:
            job.give_up(key, lease.deaths)
        else:
            job.do(key, lease)
        if lease.is_held:
            leases.clear(key)
    return True
