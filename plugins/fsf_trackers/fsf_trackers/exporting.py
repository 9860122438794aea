"""Copying finished runs into an experiment tracker."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from fsf_trackers.entries import Entry, State, Tracker, entry_of
from fsframework.errors import FsfError, OptionError, argument

if TYPE_CHECKING:
    from fsframework import Run

__all__ = ["TRACKERS", "Exported", "export_runs"]

TRACKERS = ("mlflow", "wandb")


@dataclass(frozen=True)
class Exported:
    """What became of a run.

    Args:
        run: its name, or as it was given if it cannot be opened.
        state: ``new``, ``updated`` or ``unchanged`` in the tracker, or ``refused``.
        reason: why it is refused, in one sentence.
    """

    run: str
    state: State | Literal["refused"]
    reason: str = ""


def export_runs(
    runs: Sequence[str | Path | Run],
    to: str,
    *,
    uri: str | None = None,
    directory: str | Path | None = None,
    project: str = "fsframework",
    weights: bool = False,
    runs_dir: str | Path | None = None,
) -> Iterator[Exported]:
    """Copy finished runs into a tracker, and yield what became of each.

    A run that the tracker already has, by its fingerprint, is updated. A run that is unfinished or
    damaged is refused, and the others go on.

    Args:
        runs: runs, their folders, or names or beginnings of names.
        to: ``mlflow`` or ``wandb``.
        uri: for MLflow, of its store, such as ``sqlite:///mlflow.db``; by default MLflow's own.
        directory: for wandb, where its offline runs are written; by default the current folder.
        project: name of MLflow's experiment or of wandb's project.
        weights: whether to copy the trained weights too.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        OptionError: the tracker is unknown or not installed, or has no such argument.
        FsfError: the tracker cannot be opened.
    """
    tracker = _tracker(to, uri, directory, project)
    return _exported(tracker, runs, weights, runs_dir)


def _exported(
    tracker: Tracker,
    runs: Sequence[str | Path | Run],
    weights: bool,
    runs_dir: str | Path | None,
) -> Iterator[Exported]:
    from fsframework import Run, load_run

    for given in runs:
        name = given.name if isinstance(given, Run) else str(given)
        try:
            run = given if isinstance(given, Run) else load_run(given, runs_dir)
            name = run.name
            with TemporaryDirectory() as folder:
                state = tracker.put(_entry_to_share(run, Path(folder), weights=weights))
        except FsfError as error:
            yield Exported(name, "refused", str(error))
        else:
            yield Exported(name, state)


def _entry_to_share(run: Run, folder: Path, *, weights: bool) -> Entry:
    """Return what a tracker gets of a run, with names for the paths of this machine.

    Args:
        folder: where a copy of the record is written, if it has such paths.
    """
    from fsf_statistics import PathNames

    shared = dataclasses.replace(run, record=PathNames().in_record(run.record))
    entry = entry_of(shared, weights=weights)
    if shared.record == run.record:
        return entry
    shared.record.save(folder)
    return dataclasses.replace(entry, files={**entry.files, "run.json": folder / "run.json"})


def _tracker(to: str, uri: str | None, directory: str | Path | None, project: str) -> Tracker:
    if to not in TRACKERS:
        raise OptionError(f"{argument('to', to)}: must be {' or '.join(TRACKERS)}")
    if to == "mlflow":
        if directory is not None:
            raise OptionError(f"{argument('to', to)} takes {argument('uri')}, not a folder")
        from fsf_trackers._mlflow import MlflowTracker

        return MlflowTracker(uri, project)
    if uri is not None:
        raise OptionError(f"{argument('uri', uri)} is for {argument('to', 'mlflow')} only")
    from fsf_trackers._wandb import WandbTracker

    return WandbTracker(Path(directory or "."), project)
