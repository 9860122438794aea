"""Sweeps: many experiments, each run once, by this process or by the workers of a launcher."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fsframework._calls import interrupt
from fsframework._digest import digest_of
from fsframework.api.experiments import Description, described, merged
from fsframework.api.planned import data_fingerprint
from fsframework.api.running import Run, Runs, load_run
from fsframework.api.session import Session, open_session
from fsframework.errors import FsfError, OptionError, argument
from fsframework.interfaces.launcher import Launcher, Work, WorkerState
from fsframework.pipeline.sweeps.items import Item, Manifest, group_of, key_of_experiment
from fsframework.pipeline.sweeps.job import ItemResult, SweepFiles, SweepJob
from fsframework.pipeline.sweeps.view import SweepView
from fsframework.pipeline.work.driver import drive
from fsframework.pipeline.work.leases import Leases, this_machine
from fsframework.pipeline.work.worker import work_off
from fsframework.values import ExperimentDescription, ExperimentResult

__all__ = [
    "Planned",
    "Sweep",
    "joined",
    "planned_over",
    "result_of",
    "run_sweep",
    "sweep_of",
    "work_on",
]


_SECONDS_BETWEEN_LOOKS = 2.0


@dataclass(frozen=True, eq=False)
class Planned:
    """An experiment that is described as far as possible.

    Args:
        experiment: what is to run.
        description: with every option, ``None`` if it cannot be resolved; ``error`` says why.
        tree: its options, a tree of ``Given``.
    """

    experiment: ExperimentDescription
    description: Description | None
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
        return Planned(experiment, described(tree, session), tree)
    except FsfError as error:
        return Planned(experiment, None, tree, error)


@dataclass(frozen=True, eq=False)
class Sweep:
    """Planned experiments with a name, before, while and after they run.

    Args:
        name: of the sweep.
        planned: the experiments; equal ones are run once.
        session: of the runs.
        items: those that can run, each once, in the order in which they are taken.
        keys: key of the item of each planned experiment; empty for those that cannot run.
        plugins: files whose plugin classes are loaded.
    """

    name: str
    planned: tuple[Planned, ...]
    session: Session
    items: tuple[Item, ...]
    keys: tuple[str, ...]
    plugins: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Of its experiments, whatever its name."""
        return digest_of("sweep", [*sorted(item.key for item in self.items), *self.plugins])[:16]

    @property
    def files(self) -> SweepFiles:
        """Where results, leases and logs are kept."""
        return SweepFiles(self.session.workspace.runs)

    def results(
        self, before: Collection[str] = (), known: Mapping[str, ItemResult] | None = None
    ) -> list[ExperimentResult]:
        """Return what is known of each planned experiment.

        An experiment without a result is one whose reason says so.

        Args:
            before: keys of those that were finished before; their runs are reused.
            known: results by key; others are read.
        """
        known = known or {}
        found = {i.key: known.get(i.key) or self.files.result(i.key) for i in self.items}
        return [
            self._result(planned, found.get(key), reused=key in before)
            for planned, key in zip(self.planned, self.keys, strict=True)
        ]

    def _result(
        self, planned: Planned, result: ItemResult | None, *, reused: bool
    ) -> ExperimentResult:
        if planned.description is None:
            return ExperimentResult(description=planned.experiment, reason=planned.reason)
        options = planned.description.options
        reason = "it has not run yet" if result is None else result.reason
        if result is not None and not reason:
            try:
                run = load_run(self.session.workspace.runs / result.run)
                return result_of(planned, replace(run, reused=reused or result.reused))
            except FsfError as error:
                reason = " ".join(str(error).split())
        return ExperimentResult(description=planned.experiment, options=options, reason=reason)


def result_of(planned: Planned, run: Run) -> ExperimentResult:
    """Return the result of a planned experiment whose run is finished."""
    assert planned.description is not None
    record, options = run.record, planned.description.options
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


def joined(planned: Planned, results: Sequence[ExperimentResult]) -> ExperimentResult:
    """Return one result for an experiment that was run with several training seeds.

    Its estimates are over seeds and tasks, its folder is that of the first run. It has no answers
    to tasks, which are those of single models.

    Args:
        planned: the experiment.
        results: of each seed; if one failed, so has the whole.
    """
    if len(results) == 1:
        return replace(results[0], description=planned.experiment)
    for result in results:
        if result.reason:
            return replace(result, description=planned.experiment)
    first = results[0]
    [group] = Runs(load_run(one.folder) for one in results if one.folder is not None).over_seeds()
    told = (note for one in results for note in one.notes)
    return replace(
        first,
        description=planned.experiment,
        reused=all(one.reused for one in results),
        estimates=group.estimates,
        notes=tuple(dict.fromkeys((*told, *group.notes))),
        load_outcomes=None,
        other_seeds=tuple(one.folder for one in results[1:] if one.folder is not None),
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
    opened: dict[str, str] = {}
    items: dict[str, Item] = {}
    keys = []
    for one in planned:
        if one.description is None:
            keys.append("")
            continue
        made = one.description.experiment
        key = key_of_experiment(made, data_fingerprint(one.description, opened))
        keys.append(key)
        told = one.experiment
        items.setdefault(key, Item(key, told.name, told.tags, one.tree, group_of(made)))
    ordered = _by_group(items.values())
    digest = digest_of("sweep", sorted(items))[:8]
    return Sweep(
        _checked_name(name) or f"sweep-{digest}",
        planned,
        session,
        ordered,
        tuple(keys),
        tuple(str(Path(file).absolute()) for file in plugins),
    )


def _by_group(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return items with those of a group together, groups in the order of their first items."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.group, []).append(item)
    return tuple(item for group in groups.values() for item in group)


def _checked_name(name: str | None) -> str:
    if name and not re.fullmatch(r"\w[\w.-]*", name):
        raise OptionError(
            f"{argument('name')} must consist of letters, digits, '-', '_' and '.', not {name!r}"
        )
    return name or ""


def run_sweep(sweep: Sweep, launcher: Launcher | None = None) -> list[ExperimentResult]:
    """Run what is left of a sweep, and return the result of each planned experiment.

    Experiments that failed before, and those whose files are damaged, are run again. Those that
    another process holds are left to it; their results count as well.

    Args:
        sweep: the experiments.
        launcher: of workers; without one, this process runs them, one after the other.

    Raises:
        FsfError: the workers cannot be started, or end again and again without a result.
    """
    files, session = sweep.files, sweep.session
    before = set()
    for item in sweep.items:
        if files.result(item.key) is None:
            continue
        if files.is_sound(item.key):
            before.add(item.key)
        else:
            files.forget(item.key)
    _save_manifests(sweep, for_workers=launcher is not None)
    with SweepView(sweep.items, session) as view:
        job = SweepJob(sweep.items, session, told=view.told, ended=view.ended)
        leases = Leases(files.leases, f"{this_machine()}, {sweep.name}")
        if job.left():
            view.begin()
        if launcher is None:
            work_off(job, leases)
        else:
            files.worker_logs(sweep.name).mkdir(parents=True, exist_ok=True)

            def watch(states: Sequence[WorkerState]) -> None:
                view.watch(states, leases.holders(job.items))

            drive(job, leases, launcher, _work(sweep), watch)
    return sweep.results(before, job.results)


def _save_manifests(sweep: Sweep, *, for_workers: bool) -> None:
    """Describe a sweep to workers, and to whoever asks for it by its name."""
    manifest = Manifest(sweep.name, sweep.items, sweep.plugins)
    manifest.save(sweep.files.grid(sweep.digest), for_workers=for_workers)
    manifest.save(sweep.files.manifest(sweep.name), for_workers=False)


def _work(sweep: Sweep) -> Work:
    """Return what the workers of a sweep run."""
    workspace = sweep.session.workspace
    own = {name: value for name, value in os.environ.items() if name.startswith("FSF_")}
    folders = {"FSF_RUNS": workspace.runs, "FSF_CACHE": workspace.cache}
    return Work(
        name=sweep.name,
        command=(sys.executable, "-m", "fsframework", "sweep", "work", sweep.digest),
        n_items=max(1, len(sweep.items)),
        logs=sweep.files.worker_logs(sweep.name).absolute(),
        environment=own | {name: str(path.absolute()) for name, path in folders.items()},
    )


def work_on(digest: str, runs_dir: Path | None = None, cache_dir: Path | None = None) -> None:
    """Do experiments that nobody holds until none is left: the job of one worker.

    Args:
        digest: of the experiments.
        runs_dir: folder of the runs.
        cache_dir: folder of cached stages.

    Raises:
        RecordError: no such experiments are described.
    """
    workspace = open_session(runs_dir=runs_dir, cache_dir=cache_dir, progress=False).workspace
    manifest = Manifest.load(SweepFiles(workspace.runs).grid(digest))
    session = open_session(
        runs_dir=runs_dir, cache_dir=cache_dir, plugins=manifest.plugins, progress=False
    )
    items = [item for item in manifest.items if item.tree is not None]
    job = SweepJob(items, session, alone=True)
    worker = f"{this_machine()}, process {os.getpid()}"
    signal.signal(signal.SIGTERM, interrupt)  # gives back what is held
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    work_off(job, Leases(job.files.leases, worker), wait=False)


def _end_with(parent: int) -> None:
    """End this process, as SIGTERM does, when the one that started it has ended."""
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os.kill(os.getpid(), signal.SIGTERM)
