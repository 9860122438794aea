"""Sweeps: many experiments, each run once, by this process or by the workers of a launcher."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from fsframework._digest import digest_of
from fsframework.api.experiments import merged, resolved
from fsframework.api.planned import data_of, find_finished
from fsframework.api.running import Run, load_run
from fsframework.api.session import Session
from fsframework.errors import FsfError, OptionError, argument
from fsframework.interfaces.launcher import Launcher
from fsframework.pipeline.cache.workspace import Workspace
from fsframework.pipeline.experiment.configuration import Experiment
from fsframework.pipeline.sweep import (
    Ended,
    Item,
    SweepFolder,
    group_of,
    key_of_experiment,
    run_items,
)
from fsframework.records import RunRecord
from fsframework.values import ExperimentDescription, ExperimentResult

__all__ = [
    "STATES",
    "Listed",
    "Planned",
    "Sweep",
    "expected_time",
    "listed_experiments",
    "listed_sweep",
    "planned_over",
    "result_of",
    "run_sweep",
    "sweep_of",
]


@dataclass(frozen=True, eq=False)
class Planned:
    """An experiment that is resolved if it can be.

    Args:
        experiment: what is to run.
        resolved: with every option, ``None`` if it cannot be resolved; ``error`` says why.
        tree: its options, a tree of ``Given``.
    """

    experiment: ExperimentDescription
    resolved: Experiment | None
    tree: Mapping[str, Any] = field(default_factory=dict)
    error: FsfError | None = None

    @property
    def reason(self) -> str:
        """Why it cannot be resolved, in one line; empty if it can."""
        return " ".join(str(self.error).split()) if self.error else ""


def planned_over(
    experiment: ExperimentDescription, layers: Sequence[Mapping[str, Any]], session: Session
) -> Planned:
    """Return a planned experiment from several trees of options; earlier ones take precedence."""
    tree = merged(*layers)
    try:
        return Planned(experiment, resolved(tree, session), tree)
    except FsfError as error:
        return Planned(experiment, None, tree, error)


@dataclass(frozen=True, eq=False)
class Sweep:
    """Planned experiments with a name, before, while and after they run.

    Args:
        name: of the sweep.
        planned: the experiments; equal ones are run once.
        session: of the runs.
        items: those that can run, each once.
        keys: key of the item of each planned experiment; empty for those that cannot run.
    """

    name: str
    planned: tuple[Planned, ...]
    session: Session
    items: tuple[Item, ...]
    keys: tuple[str, ...]

    @property
    def folder(self) -> SweepFolder:
        """Where logs are kept."""
        return SweepFolder(self.session.workspace.runs)


def _result(planned: Planned, ended: Ended | None, runs: Path) -> ExperimentResult:
    if planned.resolved is None:
        return ExperimentResult(description=planned.experiment, reason=planned.reason)
    assert ended is not None, "every experiment that can run has ended"
    reason = ended.reason
    if not reason:
        try:
            return result_of(planned, replace(load_run(runs / ended.run), reused=ended.reused))
        except FsfError as error:
            reason = " ".join(str(error).split())
    options = planned.resolved.options
    return ExperimentResult(description=planned.experiment, options=options, reason=reason)


def result_of(planned: Planned, run: Run) -> ExperimentResult:
    """Return the result of a planned experiment whose run is finished."""
    assert planned.resolved is not None
    record, options = run.record, planned.resolved.options
    return ExperimentResult(
        description=planned.experiment,
        # Options such as statistics are those asked for now, not those of the stored run.
        options={
            **options,
            **run.options[0],
            "level": options["level"],
        },
        folder=run.folder,
        fingerprint=record.fingerprint,
        data_fingerprint=record.digests.get("data", ""),
        reused=run.reused,
        trained=bool(record.training.history),
        n_tasks={arm: one.n_tasks for arm, one in record.arms.items()},
        estimates=run.estimates,
        notes=record.notes,
        cautions=record.cautions,
        load_outcomes=lambda: run.outcomes,
    )


def sweep_of(
    planned: Iterable[Planned],
    session: Session,
    *,
    name: str | None = None,
    plugins: Sequence[str | Path] = (),
) -> Sweep:
    """Return a sweep of planned experiments, ordered so that what they share is computed once.

    Args:
        planned: the experiments.
        session: of the runs.
        name: of the sweep; by default one that equal experiments have in common.
        plugins: files whose plugin classes are loaded.

    Raises:
        OptionError: the name cannot be that of a file, or no experiment can be resolved.
        PluginError: likewise.
    """
    planned = tuple(planned)
    errors = [one.error for one in planned if one.error is not None]
    if errors and len(errors) == len(planned):
        raise errors[0]
    opened: dict[str, tuple[str, str]] = {}
    items: dict[str, Item] = {}
    keys = []
    folders = session.workspace
    workspace = Workspace(folders.runs.absolute(), folders.cache.absolute())
    files = tuple(str(Path(file).absolute()) for file in plugins)
    for one in planned:
        if one.resolved is None:
            keys.append("")
            continue
        key = key_of_experiment(one.resolved, data_of(one.resolved, opened)[0])
        keys.append(key)
        item = Item(key, one.experiment.name, one.tree, group_of(one.resolved), workspace, files)
        items.setdefault(key, item)
    usual = f"sweep-{digest_of('sweep', sorted(items))[:8]}"
    return Sweep(_checked_name(name) or usual, planned, session, tuple(items.values()), tuple(keys))


def _checked_name(name: str | None) -> str:
    if name and not re.fullmatch(r"\w[\w.-]*", name):
        raise OptionError(
            f"{argument('name')} must consist of letters, digits, '-', '_' and '.', not {name!r}"
        )
    return name or ""


def run_sweep(sweep: Sweep, launcher: Launcher | None = None) -> list[ExperimentResult]:
    """Run what is left of a sweep, and return the result of each planned experiment.

    Experiments that failed before, and those whose files are damaged, are run again. Those that
    another process has are left to it; their results count as well.

    Args:
        sweep: the experiments.
        launcher: of workers; without one, this process runs them, one after the other.

    Raises:
        FsfError: the workers cannot be started.
    """
    folder, reporter = sweep.folder, sweep.session.reporter
    known = {item.key: folder.finished(item.key) for item in sweep.items}
    ended = {k: msgspec.structs.replace(e, reused=True) for k, e in known.items() if e is not None}
    folder.save(sweep.name, {item.key: item.name for item in sweep.items})
    left = [item for item in sweep.items if item.key not in ended]
    if left:
        total = len(sweep.items)
        with reporter.stage("experiments", total, len(ended)) as advance:
            found = run_items(
                left, sweep.session, launcher, sweep.name, lambda text: advance(0, text)
            )
            with closing(found):  # type: ignore[type-var]
                for item, end in found:
                    ended[item.key] = end
                    told = f"failed: {end.reason}" if end.reason else _told(folder, end)
                    seconds = f"{end.seconds:.1f} s"
                    reporter.say(f"{len(ended)} of {total}: {item.name}: {told} ({seconds})")
                    advance(1)
    pairs = zip(sweep.planned, sweep.keys, strict=True)
    return [_result(planned, ended.get(key), folder.runs) for planned, key in pairs]


def _told(folder: SweepFolder, ended: Ended) -> str:
    """Return the last gap of a run in a few words, or else its last estimate."""
    try:
        record = RunRecord.load(folder.runs / ended.run)
    except FsfError as error:
        return str(error)
    found = list(record.estimates.values())
    gaps = [estimate for estimate in found if len(estimate.arms) == 2]
    if not found:
        return "finished"
    last = (gaps or found)[-1]
    return f"{record.label(last).partition(' = ')[0]} {last}"


STATES = ("finished", "running", "to do", "failed", "cannot run")


@dataclass(frozen=True)
class Listed:
    """An experiment of a sweep.

    Args:
        name: of the experiment.
        state: one of ``STATES``.
        detail: the run, the reason, or what its worker is doing.
        seconds: that it took, if it is finished.
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


def listed_sweep(name: str, session: Session) -> list[Listed]:
    """Return the experiments of a sweep that was started before, by its name.

    Raises:
        RecordError: the sweep is unknown, or its file is damaged.
    """
    folder = SweepFolder(session.workspace.runs)
    return [_listed(folder, key, name) for key, name in folder.experiments(name).items()]


def listed_experiments(sweep: Sweep) -> list[Listed]:
    """Return the experiments of a planned sweep, equal ones once; nothing runs."""
    folder, found = sweep.folder, dict[str, Listed]()
    unknown: dict[str, Experiment] = {}
    for number, (planned, key) in enumerate(zip(sweep.planned, sweep.keys, strict=True)):
        name = planned.experiment.name
        if planned.resolved is None:
            found[str(number)] = Listed(name, "cannot run", planned.reason)
        elif key not in found:
            found[key] = _listed(folder, key, name)
            if found[key].state in ("to do", "failed"):
                unknown[key] = planned.resolved
    # Runs that were made without a sweep count as well.
    for key, run in zip(unknown, find_finished(list(unknown.values()), folder.runs), strict=True):
        if run is not None:
            found[key] = Listed(found[key].name, "finished", run.name)
    return list(found.values())


def _listed(folder: SweepFolder, key: str, name: str) -> Listed:
    ended = folder.ended(key)
    if ended is not None and ended.status == "failed":
        return Listed(name, "failed", ended.reason)
    if ended is not None:
        return Listed(name, "finished", f"{_told(folder, ended)} ({ended.run})", ended.seconds)
    if folder.is_running(key):
        return Listed(name, "running", folder.doing(key))
    return Listed(name, "to do")


def expected_time(listed: Sequence[Listed]) -> str:
    """Return a sentence on how long what is left may take; empty if nothing is left."""
    left = sum(one.state in ("to do", "running") for one in listed)
    known = [one.seconds for one in listed if one.seconds is not None]
    if not left:
        return ""
    if not known:
        return "none is finished yet that tells how long they take"
    seconds = statistics.mean(known) * left
    told = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    told = told if seconds < 7200 else f"{seconds / 3600:.1f} h"
    return f"what is left takes about {told} on one worker, judged by what is finished"
