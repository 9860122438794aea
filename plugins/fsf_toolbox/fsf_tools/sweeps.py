"""Sweeps: many experiments, each run once, by this process or by the workers of a launcher."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fsf_tools.experiment_keys import key_of_experiment
from fsf_tools.queue import Ended, Item, SweepFolder, run_items
from fsframework.api.components import Component, canonical
from fsframework.api.experiments import Experiment, merged, resolved
from fsframework.api.models import resolve_device
from fsframework.api.running import Run, load_run
from fsframework.api.session import Session, Workspace
from fsframework.errors import FsfError, OptionError, argument
from fsframework.interfaces.launcher import Launcher
from fsframework.values import digest_of

__all__ = [
    "Planned",
    "Result",
    "Sweep",
    "check_name",
    "check_options",
    "listed_item",
    "planned_over",
    "state_of",
    "sweep_of",
    "sweep_status",
]


@dataclass(frozen=True, eq=False)
class Planned:
    """An experiment that is resolved if it can be.

    Args:
        name: for messages.
        about: what the caller knows of it besides.
        tree: its options, a tree of ``Given``.
        resolved: with every option, ``None`` if it cannot be resolved; ``error`` says why.
    """

    name: str
    about: Any
    tree: Mapping[str, Any] = field(default_factory=dict)
    resolved: Experiment | None = None
    error: FsfError | None = None

    @property
    def reason(self) -> str:
        """Why it cannot be resolved, in one line; empty if it can."""
        return _in_a_line(self.error) if self.error else ""


def _in_a_line(error: FsfError) -> str:
    return " ".join(str(error).split())


def planned_over(
    name: str, about: Any, layers: Sequence[Mapping[str, Any]], session: Session
) -> Planned:
    """Return a planned experiment from several trees of options; earlier ones take precedence."""
    tree = merged(*layers)
    try:
        return Planned(name, about, tree, resolved(tree, session))
    except FsfError as error:
        return Planned(name, about, tree, error=error)


def check_options(planned: Iterable[Planned], *, here: bool = True) -> None:
    """Check that components accept their options and that the device exists; run nothing.

    Equal components are made once. A component that cannot be made for another reason, such as a
    missing file, is left for its run to report.

    Args:
        planned: the experiments.
        here: whether this machine runs them, and must have their device.

    Raises:
        OptionError: a component refuses its options, or this machine lacks the device.
    """
    tried: set[str] = set()
    for experiment in (one.resolved for one in planned if one.resolved):
        if here:
            resolve_device(experiment.settings.device)
        for component in experiment.components():
            key = canonical([component.kind, component.to_json()])
            if key in tried or component.kind == "dataset":
                continue
            tried.add(key)
            try:
                component.create()
            except OptionError:
                raise
            except (FsfError, OSError, ImportError):
                continue


@dataclass(frozen=True, eq=False)
class Result:
    """What came of an experiment: a finished run, or the reason why there is none.

    Args:
        planned: the experiment.
        run: finished.
        reason: in one line; empty where there is a run.
    """

    planned: Planned
    run: Run | None = None
    reason: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the classes and networks of the user, which another process may not have.
        told = replace(self.planned, tree={}, resolved=None)
        return Result, (told, self.run, self.reason)

    def to_json(self) -> dict[str, Any]:
        """Return what is known of the run as JSON values."""
        run = self.run
        return {
            "experiment": self.planned.name,
            "status": "failed" if run is None else "finished",
            "reason": self.reason,
            "reused": run is not None and run.reused,
            "folder": run and str(run.folder),
            "fingerprint": run and run.record.fingerprint,
            "estimates": {n: e.to_json() for n, e in run.estimates.items()} if run else {},
            "notes": list(run.record.notes) if run else [],
            "cautions": list(run.record.cautions) if run else [],
        }


@dataclass(frozen=True, eq=False)
class Sweep:
    """Planned experiments with a name, before, while and after they run.

    Args:
        name: of the sweep.
        planned: the experiments; equal ones are run once.
        session: of the runs.
        items: those that can run, each once, by their keys.
        keys: of the planned experiments; empty for those that cannot run.
        launcher: of the workers; without one, this process runs one after the other.
        before: names of what was run for the sweep before, by key.
    """

    name: str
    planned: tuple[Planned, ...]
    session: Session
    items: Mapping[str, Item]
    keys: tuple[str, ...]
    launcher: Launcher | None = None
    before: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> list[Result]:
        """Run what is left, and return the result of each planned experiment.

        Experiments that failed before, and those whose files are damaged, are run again. Those that
        another process has are left to it; their results count as well.

        Raises:
            FsfError: the workers cannot be started.
        """
        folder, reporter = SweepFolder(self.session.workspace.runs), self.session.reporter
        ended = {key: end for key in self.items if (end := folder.finished(key)) is not None}
        before = set(ended)
        names = {key: item.name for key, item in self.items.items()}
        folder.save(self.name, {**self.before, **names})
        left, total = [self.items[key] for key in self.items if key not in ended], len(self.items)
        if left:
            with reporter.stage("experiments", total, len(ended)) as advance:
                found = run_items(
                    left, self.session, self.launcher, self.name, lambda text: advance(0, text)
                )
                with closing(found):  # type: ignore[type-var]
                    for item, end in found:
                        ended[item.key] = end
                        told = f"failed: {end.reason}" if end.reason else "finished"
                        reporter.say(
                            f"{len(ended)} of {total}: {item.name}: {told} ({end.seconds:.1f} s)"
                        )
                        advance(1)
        pairs = zip(self.planned, self.keys, strict=True)
        return [_result(one, ended.get(key), folder.runs, key in before) for one, key in pairs]

    def listed(self) -> list[dict[str, str]]:
        """Return name, state and detail of each experiment, equal ones once; nothing runs.

        Details are the run, the reason of a failure, or what a worker is doing.
        """
        folder = SweepFolder(self.session.workspace.runs)
        found = [listed_item(folder, key, item.name) for key, item in self.items.items()]
        errors = {one.name: one.reason for one in self.planned if one.error is not None}
        return found + [state_of(name, "cannot run", reason) for name, reason in errors.items()]


def _result(planned: Planned, ended: Ended | None, runs: Path, before: bool) -> Result:
    if ended is None or ended.reason:
        return Result(planned, reason=planned.reason if ended is None else ended.reason)
    try:
        run = load_run(runs / ended.run)
    except FsfError as error:
        return Result(planned, reason=_in_a_line(error))
    return Result(planned, replace(run, reused=before or ended.reused))


def check_name(name: str | None) -> None:
    """Check the name of a sweep, if it has one.

    Raises:
        OptionError: it cannot be that of a file.
    """
    if name and not re.fullmatch(r"\w[\w.-]*", name):
        raise OptionError(
            f"{argument('name')} must consist of letters, digits, '-', '_' and '.', not {name!r}"
        )


def sweep_of(
    planned: Iterable[Planned],
    session: Session,
    *,
    name: str | None = None,
    plugins: Sequence[str | Path] = (),
    launcher: Launcher | None = None,
) -> Sweep:
    """Return a sweep of planned experiments, ordered so that what they share is computed once.

    Args:
        planned: the experiments.
        session: of the runs.
        name: of the sweep; by default one that equal experiments have in common.
        plugins: files whose plugin classes are loaded.
        launcher: of the workers, if any.

    Raises:
        OptionError: the name cannot be that of a file, or no experiment can be resolved.
        PluginError: likewise.
    """
    planned = tuple(planned)
    check_name(name)
    errors = [one.error for one in planned if one.error is not None]
    if errors and len(errors) == len(planned):
        raise errors[0]
    opened: dict[str, str] = {}
    known: dict[Any, Component] = {}
    values: dict[tuple[str, str], str] = {}
    items: dict[str, Item] = {}
    keys = []
    workspace = session.workspace.absolute()
    files = tuple(str(Path(file).absolute()) for file in plugins)
    for one in planned:
        key = ""
        if one.resolved is not None:
            experiment = _of_known(one.resolved, known)
            data = _data_fingerprint(experiment, opened)
            key = key_of_experiment(experiment, data)
            of_run = key_of_experiment(replace(experiment, statistics={}), data)
            for name_of, statistic in experiment.statistics.items():
                told = statistic.fingerprint
                if values.setdefault((of_run, name_of), told) != told:
                    raise OptionError(
                        f"{argument('statistics')}: two experiments are one run, which holds one "
                        f"{name_of!r}, but they give it other options"
                    )
            group = _group_of(one.resolved)
            items.setdefault(key, Item(key, one.name, one.tree, group, workspace, files))
        keys.append(key)
    usual = f"sweep-{digest_of('sweep', sorted(items))[:8]}"
    return Sweep(name or usual, planned, session, items, tuple(keys), launcher)


def _of_known(experiment: Experiment, known: dict[Any, Component]) -> Experiment:
    """Return an experiment with known components for equal ones, whose code is digested once."""

    def known_one(component: Component) -> Component:
        parts = component.walk()
        if any(part.instance is not None for part in parts):
            return component
        told = canonical([component.kind, component.to_json()])
        return known.setdefault((told, *(part.cls for part in parts)), component)

    def known_ones(components: Mapping[str, Component]) -> dict[str, Any]:
        return {name: known_one(component) for name, component in components.items()}

    statistics = known_ones(experiment.statistics)
    return replace(experiment, **known_ones(experiment.roles), statistics=statistics)


def _group_of(experiment: Experiment) -> str:
    """Return what an experiment trains, or else what computes its features.

    Of two with an equal text that start at once, the second waits for the weights of the first.
    """
    parts = [experiment.dataset, experiment.backbone]
    told: list[Any] = [experiment.settings.image_size]
    if experiment.learns:
        parts.append(experiment.method)
        shape = [experiment.sampler.options.get(name) for name in ("n_way", "n_shot")]
        told += [experiment.options["training"], experiment.settings.training_seed, shape]
    return canonical([*told, *(part.to_json() for part in parts)])


def _data_fingerprint(experiment: Experiment, opened: dict[str, str]) -> str:
    """Return the fingerprint of an experiment's data, which are opened once; else an empty text."""
    key = canonical(experiment.dataset.to_json())
    if key not in opened:
        try:
            opened[key] = experiment.dataset.create().fingerprint
        except (FsfError, OSError):
            opened[key] = ""
    return opened[key]


def sweep_status(name: str, runs_dir: str | Path | None = None) -> list[dict[str, str]]:
    """Return name, state and detail of each experiment of a sweep that was started before.

    Args:
        runs_dir: where its runs are; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        RecordError: the sweep is unknown, or its file is damaged.
    """
    folder = SweepFolder(Workspace.default(runs_dir).runs)
    return [listed_item(folder, key, name) for key, name in folder.experiments(name).items()]


def listed_item(folder: SweepFolder, key: str, name: str) -> dict[str, str]:
    """Return name, state and detail of what a sweep runs."""
    ended = folder.ended(key)
    if ended is not None:
        return state_of(name, ended.status, ended.reason or ended.run)
    if folder.is_running(key):
        return state_of(name, "running", folder.doing(key))
    return state_of(name, "to do")


def state_of(name: str, state: str, detail: str = "") -> dict[str, str]:
    """Return a line of the list of a sweep."""
    return {"experiment": name, "state": state, "detail": detail}
