"""What a user sees of a sweep while it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from fsframework.errors import FsfError
from fsframework.interfaces.launcher import WorkerState
from fsframework.pipeline.progress import Advance
from fsframework.pipeline.session import Session
from fsframework.pipeline.sweeps.items import Item
from fsframework.pipeline.sweeps.job import ItemResult
from fsframework.pipeline.work.leases import Holder, this_machine
from fsframework.records import RunRecord

__all__ = ["SweepView", "headline_of"]

_SECONDS_BETWEEN_REMARKS = 0.3
_MOST_RUNNING = 3
"""Experiments that the remark names; of more, it tells the number."""


class SweepView:
    """One bar for all experiments, and a line for each that ends.

    Args:
        items: the experiments.
        session: of the runs, which has the reporter.
    """

    def __init__(self, items: Sequence[Item], session: Session) -> None:
        self._names = {item.key: item.name for item in items}
        self._total, self._done = len(items), 0
        self._session, self._reporter = session, session.reporter
        self._stack = ExitStack()
        self._advance: Advance | None = None
        self._last = 0.0
        self._failed: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._advance is not None:
            self._advance(0, " ")  # what was done last no longer matters
        self._stack.close()

    def begin(self) -> None:
        """Open the bar, after the results of earlier calls were counted."""
        stage = self._reporter.stage("experiments", self._total, self._done)
        self._advance = self._stack.enter_context(stage)

    def told(self, item: Item, text: str) -> None:
        """Show what an experiment of this process is doing."""
        self._remark(f"{item.name}: {text}")

    def watch(self, states: Sequence[WorkerState], holders: Mapping[str, Holder]) -> None:
        """Show what the workers of a launcher are doing, or why one failed."""
        for state in states:
            told = f"{state.name} {state.log} {state.reason}"  # names begin anew with new workers
            if state.status == "failed" and told not in self._failed:
                self._failed.add(told)
                log = f" (its output: {state.log})" if state.log else ""
                self._reporter.say(f"worker {state.name} failed: {state.reason}{log}")
        running = [self._running(key, holder) for key, holder in holders.items()]
        waiting = sum(state.status == "waiting" for state in states)
        parts = running[:_MOST_RUNNING]
        if len(running) > _MOST_RUNNING:
            parts.append(f"{len(running) - _MOST_RUNNING} more")
        if waiting:
            parts.append(f"{waiting} {'worker waits' if waiting == 1 else 'workers wait'}")
        self._remark("; ".join(parts))

    def _running(self, key: str, holder: Holder) -> str:
        doing = f": {holder.note}" if holder.note else ""
        where = "" if holder.machine == this_machine() else f" ({holder.machine})"
        return f"{self._names[key]}{doing}{where}"

    def _remark(self, text: str) -> None:
        now = time.monotonic()
        if self._advance is not None and now - self._last >= _SECONDS_BETWEEN_REMARKS:
            self._last = now
            self._advance(0, text)

    def ended(self, item: Item, result: ItemResult) -> None:
        """Show a result; those of earlier calls only count."""
        self._done += 1
        if self._advance is None:
            return
        elsewhere = result.machine not in ("", this_machine())
        took = f"{result.seconds:.1f} s" + (f" on {result.machine}" if elsewhere else "")
        text = f"failed: {result.reason}" if result.reason else self._headline(result)
        self._reporter.say(f"{self._done} of {self._total}: {item.name}: {text} ({took})")
        self._advance(1)

    def _headline(self, result: ItemResult) -> str:
        try:
            return headline_of(RunRecord.load(self._session.workspace.runs / result.run))
        except FsfError as error:
            return str(error)


def headline_of(record: RunRecord) -> str:
    """Return the last gap of a run in a few words, or else its last estimate."""
    found = list(record.estimates.values())
    gaps = [estimate for estimate in found if len(estimate.arms) == 2]
    if not found:
        return "finished"
    last = (gaps or found)[-1]
    return f"{record.label(last).partition(' = ')[0]} {last}"
