"""Experiments as values: what is to run, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsframework.errors import DataError
from fsframework.values import ArmOutcomes, Estimate

__all__ = ["ExperimentDescription", "ExperimentResult"]


@dataclass(frozen=True)
class ExperimentDescription:
    """An experiment that is to run.

    Args:
        name: for messages.
        arguments: of ``fsframework.run``; they make the experiment what it is, so that the options
            a user gives for all experiments do not change them.
        defaults: arguments of ``fsframework.run`` that a user's options do change.
        tags: what tells the experiment from the others, such as its method and its shot.

    >>> one = ExperimentDescription("r2d2", {"method": "r2d2"}, {"tasks": 600}, {"method": "r2d2"})
    >>> one.tags["method"]
    'r2d2'
    """

    name: str
    arguments: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class ExperimentResult:
    """What came of an experiment: a finished run, or the reason why there is none.

    Args:
        description: what was to run.
        options: value of every option, in the shape of a configuration file.
        reason: why it failed, in one line; empty where it is finished.
        folder: of the run, ``None`` where it failed.
        fingerprint: of the run.
        data_fingerprint: of the data under test.
        reused: whether an earlier call had finished it.
        trained: whether weights were trained for it.
        n_tasks: number of tasks by name of the arm.
        estimates: by name: ``wacc-random``, ``wacc-gap``, ...
        notes: what a reader must know; ``cautions`` those that belong under every table.
        load_outcomes: reads the answers to the tasks.
        other_seeds: folders of the runs with other training seeds, whose estimates are joined.
    """

    description: ExperimentDescription
    options: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    folder: Path | None = None
    fingerprint: str = ""
    data_fingerprint: str = ""
    reused: bool = False
    trained: bool = False
    n_tasks: Mapping[str, int] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    load_outcomes: Callable[[], ArmOutcomes] | None = None
    other_seeds: tuple[Path, ...] = ()

    @property
    def tags(self) -> Mapping[str, Any]:
        """What tells the experiment from the others."""
        return self.description.tags

    @property
    def finished(self) -> bool:
        """Whether there is a finished run."""
        return not self.reason

    def outcomes(self) -> ArmOutcomes:
        """Return the answers to the tasks, by name of the arm.

        Raises:
            DataError: the experiment failed.
            FsfError: the files of the run are missing or damaged.
        """
        if self.load_outcomes is None:
            raise DataError(f"{self.description.name}: has no outcomes: {self.reason}")
        return self.load_outcomes()

    def to_json(self) -> dict[str, Any]:
        """Return what is known of the run as JSON values."""
        return {
            "experiment": self.description.name,
            "status": "finished" if self.finished else "failed",
            "reason": self.reason,
            "reused": self.reused,
            "folder": None if self.folder is None else str(self.folder),
            "fingerprint": self.fingerprint or None,
            "estimates": {name: e.to_json() for name, e in self.estimates.items()},
            "notes": list(self.notes),
            "cautions": list(self.cautions),
        }
