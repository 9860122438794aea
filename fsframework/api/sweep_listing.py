"""What is done of a sweep, what is left, and how long that may take."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsframework.api.experiments import Description, described
from fsframework.api.planned import find_finished
from fsframework.api.running import Run, runs
from fsframework.api.session import Session
from fsframework.api.sweeps import Sweep
from fsframework.errors import FsfError
from fsframework.pipeline.sweeps.items import Manifest
from fsframework.pipeline.sweeps.job import ItemResult, SweepFiles
from fsframework.pipeline.sweeps.view import headline_of
from fsframework.pipeline.work.leases import Holder, Leases, this_machine
from fsframework.records import RunRecord

__all__ = ["STATES", "Listed", "expected_time", "listed_experiments", "listed_sweep"]

STATES = ("finished", "running", "to do", "failed", "cannot run")


@dataclass(frozen=True)
class Listed:
    """An experiment of a sweep.

    Args:
        name: of the experiment.
        state: one of ``STATES``.
        detail: the run, the reason, or what its worker is doing.
        seconds: that it is expected to take on one worker, ``None`` if no earlier run tells.
    """

    name: str
    state: str
    detail: str = ""
    seconds: float | None = None

    @property
    def told(self) -> str:
        """State and detail in one cell of a table."""
        return f"{self.state}: {self.detail}" if self.detail else self.state

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {"experiment": self.name, **{k: v for k, v in vars(self).items() if k != "name"}}


def listed_experiments(sweep: Sweep) -> list[Listed]:
    """Return the experiments of a planned sweep, equal ones once; nothing runs."""
    files, costs = sweep.files, _Costs(runs(sweep.session.workspace.runs))
    leases = _leases(files)
    holders = leases.holders(sweep.keys)
    found: list[Listed] = []
    seen: set[str] = set()
    unknown: list[tuple[int, Description]] = []
    for planned, key in zip(sweep.planned, sweep.keys, strict=True):
        name = planned.experiment.name
        if planned.description is None:
            found.append(Listed(name, "cannot run", planned.reason))
        elif key not in seen:
            seen.add(key)
            one = _listed(name, files.result(key), _told(leases, holders, key), files)
            if one.state in ("to do", "failed"):
                unknown.append((len(found), planned.description))
            found.append(one)
    # Runs that were made without a sweep count as well.
    descriptions = [description for _, description in unknown]
    for (place, description), run in zip(unknown, find_finished(descriptions), strict=True):
        one = found[place]
        if run is not None:
            found[place] = Listed(one.name, "finished", run.name)
        else:
            found[place] = Listed(one.name, one.state, one.detail, costs.seconds(description))
    return found


def listed_sweep(name: str, session: Session) -> list[Listed]:
    """Return the experiments of a sweep that was started before, by its name.

    Raises:
        RecordError: the sweep is unknown, or its file is damaged.
    """
    files, costs = SweepFiles(session.workspace.runs), _Costs(runs(session.workspace.runs))
    manifest = Manifest.load(files.manifest(name))
    leases = _leases(files)
    holders = leases.holders(item.key for item in manifest.items)
    found = []
    for item in manifest.items:
        running = _told(leases, holders, item.key)
        one = _listed(item.name, files.result(item.key), running, files)
        if one.state in ("to do", "running") and item.tree is not None:
            try:
                seconds = costs.seconds(described(item.tree, session))
            except FsfError:
                seconds = None
            one = Listed(one.name, one.state, one.detail, seconds)
        found.append(one)
    return found


def _leases(files: SweepFiles) -> Leases:
    return Leases(files.leases, this_machine())


def _told(leases: Leases, holders: Mapping[str, Holder], key: str) -> str:
    """Return who holds an experiment and what they do; empty if nobody does."""
    if key not in holders:
        return ""
    holder, silence = holders[key], leases.silence(key)
    text = f"{holder.worker}, {holder.note}" if holder.note else holder.worker
    if silence > holder.seconds:
        text += f"; no sign of life for {spoken_time(silence)}"
    return text


def _listed(name: str, result: ItemResult | None, running: str, files: SweepFiles) -> Listed:
    if result is not None and result.status == "failed":
        return Listed(name, "failed", result.reason)
    if result is not None:
        try:
            headline = headline_of(RunRecord.load(files.runs / result.run))
        except FsfError as error:
            headline = str(error)
        return Listed(name, "finished", f"{headline} ({result.run})")
    if running:
        return Listed(name, "running", running)
    return Listed(name, "to do")


class _Costs:
    """How long experiments take, judged by the records of earlier runs.

    Args:
        earlier: runs of the same folder.
    """

    def __init__(self, earlier: Sequence[Run]) -> None:
        self._training: dict[tuple[str, str], list[float]] = {}
        self._rest: dict[tuple[str, str], list[float]] = {}
        for run in earlier:
            if run.record.status == "finished":
                self._learn(run.record)

    def _learn(self, record: RunRecord) -> None:
        method, backbone, tested = record.method, record.backbone, record.tested
        if method is None or backbone is None or tested is None:
            return
        key = method.called, backbone.called
        steps = sum(
            record.stages[epoch.stage].steps
            for epoch in record.training.history
            if epoch.stage < len(record.stages)
        )
        if steps:
            spent = sum(epoch.seconds for epoch in record.training.history)
            self._training.setdefault(key, []).append(spent / steps)
        measured = {k: v for k, v in record.timings.items() if k.startswith("evaluation")}
        if measured and tested.n_tasks:
            spent = sum(measured.values()) / len(measured)
            self._rest.setdefault(key, []).append(spent / tested.n_tasks)

    def seconds(self, description: Description) -> float | None:
        """Return the seconds that training and evaluation may take, ``None`` if nothing tells."""
        experiment = description.experiment
        key = experiment.method.called, experiment.backbone.called
        if key not in self._rest:
            return None
        steps = sum(s.epochs * s.steps for s in experiment.stages) if experiment.learns else 0
        if steps and key not in self._training:
            return None
        per_step = statistics.median(self._training[key]) if steps else 0.0
        n_arms = 1 if experiment.sampler.create().control() is None else 2
        n_tasks = experiment.settings.tasks or 0
        return steps * per_step + n_arms * n_tasks * statistics.median(self._rest[key])


def expected_time(listed: Sequence[Listed]) -> str:
    """Return a sentence on how long what is left may take; empty if nothing is left."""
    left = [one for one in listed if one.state in ("to do", "running")]
    known = [one.seconds for one in left if one.seconds is not None]
    if not left:
        return ""
    if not known:
        return "no earlier run tells how long they take"
    text = f"what is left takes about {spoken_time(sum(known))} on one worker"
    if len(known) < len(left):
        return f"{text}, besides {len(left) - len(known)} of which no earlier run tells"
    return f"{text}, judged by earlier runs"


def spoken_time(seconds: float) -> str:
    """Return a duration in its largest fitting unit.

    >>> spoken_time(50), spoken_time(600), spoken_time(9000)
    ('50 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
