"""The contract of sections of a report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, overload

from fsf_reports.values import Block
from fsframework.interfaces import Configurable
from fsframework.values import ArmOutcomes, Arms, Estimate, ImagePool, IntArray, UInt8Array

__all__ = ["ReportedData", "ReportedRun", "ReportedRuns", "Section"]


def _reads_nothing(images: IntArray) -> Mapping[int, UInt8Array]:
    del images
    return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportedData:
    """The images that runs were tested on.

    Args:
        name: of the data set, as users name it.
        split: that the tasks were drawn from.
        key_digest: ``ImagePool.key_digest``.
        pool: labels, keys and words; ``None`` where they are not known any more.
        reason: why there is no pool, or why no image can be read; empty where nothing lacks.
        citation: authors, year and title; empty where they are not known.
        read: maps indices of the pool to those of the images that can still be read, RGB uint8
            ``(H, W, 3)``.
    """

    name: str
    split: str
    key_digest: str
    pool: ImagePool | None = None
    reason: str = ""
    citation: str = ""
    read: Callable[[IntArray], Mapping[int, UInt8Array]] = _reads_nothing


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportedRun:
    """A run as a section of a report sees it.

    Args:
        label: unique among the runs of a report.
        short: unique among the runs on equal tasks.
        folder: of the run.
        record: the content of ``run.json``; see the documentation of files.
        reason: why there are no outcomes, in a few words; empty where there are.
        arms: the tasks, the control first; ``None`` without outcomes, and for accuracies of tasks
            that were measured elsewhere.
        outcomes: the answers by name of the arm; ``None`` without.
        estimates: by name: ``wacc-random``, ``wacc-gap``, ...
        measures: what tables print for each estimate, such as ``wAcc-R``.
        data: the images of its tasks; ``None`` without ``arms``.
    """

    label: str
    folder: Path
    record: Mapping[str, Any]
    short: str = ""
    reason: str = ""
    arms: Arms | None = None
    outcomes: ArmOutcomes | None = None
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    measures: Mapping[str, str] = field(default_factory=dict)
    data: ReportedData | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "short", self.short or self.label)

    @property
    def tasks_identity(self) -> tuple[tuple[str, str], ...]:
        """Names and digests of its tasks: equal for runs on equal tasks; empty without tasks."""
        arms = self.arms
        return () if arms is None else tuple((name, arms[name].digest) for name in arms)


class ReportedRuns(Sequence[ReportedRun]):
    """The runs of a report."""

    def __init__(self, runs: Iterable[ReportedRun]) -> None:
        self._runs = tuple(runs)

    @overload
    def __getitem__(self, index: int) -> ReportedRun: ...

    @overload
    def __getitem__(self, index: slice) -> ReportedRuns: ...

    def __getitem__(self, index: int | slice) -> ReportedRun | ReportedRuns:
        if isinstance(index, slice):
            return ReportedRuns(self._runs[index])
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[ReportedRun]:
        return iter(self._runs)

    @property
    def finished(self) -> ReportedRuns:
        """Those that have outcomes."""
        return ReportedRuns(run for run in self if run.outcomes is not None)

    def by_tasks(self) -> list[ReportedRuns]:
        """Return the runs with outcomes, grouped by equal tasks, in the order of the first ones."""
        groups: dict[tuple[tuple[str, str], ...], list[ReportedRun]] = {}
        for run in self.finished:
            groups.setdefault(run.tasks_identity, []).append(run)
        return [ReportedRuns(group) for group in groups.values()]


class Section(Configurable, ABC, kind="section"):
    """A part of the report on runs: runs in, blocks out; what draws a block is elsewhere.

    It is asked once per report. What it raises becomes a notice in its place, and the rest of the
    report is made all the same.
    """

    title: ClassVar[str] = ""
    """The heading."""

    place: ClassVar[int] = 500
    """Sections are shown in the order of their places, equal ones in that of their names. Those of
    ``fsf_reports`` are at 0 (what was found), 100 (leaderboard), 200 (figures), 300 (words that
    hurt), 350 (failing slices), 400 (tasks), 500 (data), 600 (training), 700 (printed values), 900
    (provenance), 920 (how to submit) and 950 (notes)."""

    @abstractmethod
    def blocks(self, runs: ReportedRuns) -> Iterable[Block]:
        """Return what to show, in order; nothing, to leave the section out.

        Args:
            runs: at least one; some or all of them may be unfinished, or have different tasks.

        Raises:
            FsfError: it cannot be shown; the message becomes the notice.
        """
