"""The public call for sweeps: a grid of options, and what came of each combination."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fsframework.api.components import Given, plain_tree
from fsframework.api.experiments import tree_of_call
from fsframework.api.grids import (
    Axes,
    axes_of_table,
    experiments_of,
    read_seeds,
    shown,
)
from fsframework.api.headlines import headline_of_run
from fsframework.api.launchers import without_launcher
from fsframework.api.overrides import Override, check_conditions, read_excluded, read_overrides
from fsframework.api.planned import check_options
from fsframework.api.running import Run, Runs, load_run
from fsframework.api.session import Session, open_session
from fsframework.api.sweeps import (
    Planned,
    Sweep,
    planned_over,
    run_sweep,
    sweep_of,
)
from fsframework.errors import OptionError, argument
from fsframework.interfaces.launcher import Launcher
from fsframework.pipeline.experiment.options import ARGUMENTS, LISTS, SEEDS, check_keys, given_tree
from fsframework.values import (
    ExperimentDescription,
    ExperimentResult,
    html_table,
    text_table,
)

__all__ = ["Finished", "PlannedSweep", "SweepRow", "plan_sweep", "sweep"]

_SEEDS_AXIS = "training_seed"
_TABLES = ("grid", "overrides", "exclude")
"""What the file of a sweep may have besides options."""


@dataclass(frozen=True)
class SweepRow:
    """One line of the table of a sweep: runs that differ only in their training seed.

    Args:
        tags: what tells the line from the others, by name of the option.
        group: the runs, with estimates over their seeds; ``None`` if none is finished.
        reasons: why experiments of the line failed, each once.
    """

    tags: Mapping[str, Any]
    group: Run | None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False, eq=False)
class Finished:
    """The results of a sweep.

    Args:
        name: of the sweep.
        results: of each experiment, in the order of the grid.
    """

    name: str
    results: tuple[ExperimentResult, ...]

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The finished runs, each once, in the order of the grid."""
        folders = dict.fromkeys(one.folder for one in self.results if one.folder is not None)
        return tuple(load_run(folder) for folder in folders)

    @property
    def failures(self) -> dict[str, str]:
        """Why experiments failed, by their names."""
        return {one.description.name: one.reason for one in self.results if one.reason}

    @cached_property
    def rows(self) -> tuple[SweepRow, ...]:
        """One row per combination of values, training seeds aside."""
        by_folder = {run.folder: run for run in self.runs}
        lines: dict[str, tuple[Mapping[str, Any], list[Run], list[str]]] = {}
        for one in self.results:
            tags = {key: value for key, value in one.tags.items() if key != _SEEDS_AXIS}
            line = lines.setdefault(repr(sorted(tags.items())), (tags, [], []))
            if one.folder is not None:
                line[1].append(by_folder[one.folder])
            else:
                line[2].append(one.reason)
        found = []
        for told, runs, reasons in lines.values():
            why = tuple(dict.fromkeys(reasons))
            if not runs:
                found.append(SweepRow(told, None, why))
            found += [SweepRow(told, group, why) for group in Runs(runs).over_seeds()]
        return tuple(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the estimates must know, each sentence once."""
        groups = [row.group for row in self.rows if row.group is not None]
        cautions = [caution for run in self.runs for caution in run.record.cautions]
        return tuple(dict.fromkeys([*(n for group in groups for n in group.notes), *cautions]))

    def to_json(self) -> dict[str, Any]:
        """Return every experiment, and the estimates over seeds, as JSON values."""
        rows = [
            {
                "tags": dict(row.tags),
                **({} if row.group is None else row.group.to_json()),
                "reasons": list(row.reasons),
            }
            for row in self.rows
        ]
        experiments = [one.to_json() for one in self.results]
        return {"sweep": self.name, "rows": rows, "experiments": experiments}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return heads and cells of a table: what varies, the number of seeds, and estimates.

        The columns are those of the answer of a single run; a line without a finished run has
        dashes.
        """
        finished = [row.group for row in self.rows if row.group is not None]
        axes = _varied([row.tags for row in self.rows])
        shown = {
            entry.column: entry.estimate.name
            for group in finished[:1]
            for entry in headline_of_run(group).table.entries
            if entry.estimate is not None
        }
        lines = []
        for row in self.rows:
            known = {} if row.group is None else row.group.estimates
            seeds = "–" if row.group is None else str(len(row.group.runs))
            values = [str(known.get(name, "–")) for name in shown.values()]
            lines.append([*(str(row.tags.get(axis, "")) for axis in axes), seeds, *values])
        return [*(axis.replace("_", " ") for axis in axes), "seeds", *shown], lines

    def __repr__(self) -> str:
        failed = (f"{name} failed: {why}" for name, why in self.failures.items())
        return "\n".join([f"<Sweep {self.name}>", text_table(*self.table()), *failed])

    def _repr_html_(self) -> str:
        return html_table(*self.table(), self.name)


@dataclass(frozen=True, eq=False)
class PlannedSweep:
    """A sweep that is checked, before it runs.

    Args:
        sweep: its experiments.
        launcher: of the workers; without one, this process runs them.
    """

    sweep: Sweep
    launcher: Launcher | None = None

    def run(self) -> Finished:
        """Run what is left, and return all results; a failed experiment is one with a reason.

        Raises:
            FsfError: workers cannot be started, or end again and again without a result.
        """
        return Finished(self.sweep.name, tuple(run_sweep(self.sweep, self.launcher)))


def sweep(
    *,
    name: str | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    runs_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    progress: bool = True,
    **arguments: Any,
) -> Finished:
    """Run every combination of several values of options, and return the results.

    Each experiment is a run, as ``fsframework.run`` makes it; finished ones are reused, and after
    an interruption the same call goes on. A failing experiment keeps its reason and hinders no
    other. The same sweep started elsewhere at the same time, with the same folder of runs, shares
    the work.

    Args:
        name: of the sweep, by default one that calls with the same grid have in common.
        config: a TOML file, or a mapping of the same shape: options of all experiments, ``grid``
            with lists of values, ``overrides`` and ``exclude``.
        plugins: Python files whose plugin classes are loaded too.
        runs_dir: where runs are written; by default ``FSF_RUNS``, else ``./runs``.
        cache_dir: where stages are cached; see ``fsframework.run``.
        progress: whether progress is shown on standard error.
        **arguments: those of ``fsframework.run``. A list or a range of values is an axis of the
            grid (for ``statistics``, ``drop_words`` and ``training``: a list of lists); an option
            of a component is an axis in a list of components, such as
            ``method=[{"name": "r2d2", "initial_alpha": a} for a in (1.0, 20.0)]``. ``seeds``:
            training seeds. ``launcher``: a name, a mapping of name and options, or a launcher.

    Raises:
        FsfError: an argument is wrong, or no experiment can be resolved.

    >>> import fsframework as fsf
    >>> found = fsf.sweep(
    ...     method=["ncc", "logistic"], shot=[1, 2], sampler="random", tasks=20, way=2, queries=2,
    ...     dataset={"name": "planted", "n_per_class": 8, "size": 16}, training={"epochs": 0},
    ...     progress=False,
    ... )
    >>> len(found.runs), found.rows[0].tags
    (4, {'method': 'ncc', 'shot': '1'})
    """
    session = open_session(
        runs_dir=runs_dir, cache_dir=cache_dir, plugins=plugins, progress=progress
    )
    axes, single = _divided(arguments)
    below = tree_of_call({}, config)
    made = plan_sweep(axes, tree_of_call(single), below, session, name=name, plugins=plugins)
    return made.run()


def _varied(tags: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the axes with several values; of a single line, all."""
    axes = list(dict.fromkeys(key for one in tags for key in one))
    return [a for a in axes if len(tags) == 1 or len({str(one.get(a)) for one in tags}) > 1]


def _divided(arguments: Mapping[str, Any]) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return the axes among the arguments of a call, and the others."""
    axes: dict[str, list[Any]] = {}
    single: dict[str, Any] = {}
    for key, value in arguments.items():
        several = isinstance(value, (list, tuple, range))
        if key in LISTS:  # an axis of one is a list of lists
            several = several and bool(value) and all(isinstance(v, (list, tuple)) for v in value)
        if key == "seeds":
            axes[key] = list(value) if several else [value]
        elif several:
            if not value:
                raise OptionError(f"{argument(key)}: the list is empty")
            axes[key] = list(value)
        else:
            single[key] = value
    return axes, single


def plan_sweep(
    axes: Axes,
    given: Mapping[str, Any],
    config: Mapping[str, Any],
    session: Session,
    *,
    name: str | None = None,
    plugins: Sequence[str | Path] = (),
) -> PlannedSweep:
    """Return a sweep whose grid and options are checked; nothing runs.

    Args:
        axes: values by option; they take precedence over those of the same option in ``config``.
        given: options of all experiments, a tree of ``Given``.
        config: those of a file, over which ``given`` takes precedence, with its tables ``grid``,
            ``overrides`` and ``exclude``.
        session: of the runs.
        name: of the sweep.
        plugins: files whose plugin classes are loaded.

    Raises:
        FsfError: an option is unknown or not allowed, or nothing is left to run.
    """
    launcher, [own, file] = without_launcher([given, config], session)
    given_keys = list(_keys_of(own))
    _check_apart([*axes, *given_keys])
    table = axes_of_table(file.pop("grid", {}))
    _check_apart(list(table))
    # What is given now takes precedence over the axes of a file.
    left_of_file = {
        key: values
        for key, values in table.items()
        if not any(_overlap(_set_by(key), _set_by(other)) for other in (*axes, *given_keys))
    }
    grid = {**left_of_file, **axes}
    overrides = read_overrides(file.pop("overrides", []))
    excluded = read_excluded(file.pop("exclude", []))
    for tree in (own, file):
        if "name" in tree:
            raise OptionError(
                f"{argument('name')}: the runs of a sweep are named after their components; give "
                "a name to the sweep"
            )
    axes = _axes(grid)
    experiments = experiments_of(axes)
    _check_conditions(overrides, excluded, axes, table)
    left = [one for one in experiments if not any(e.holds_for(one) for e in excluded)]
    if not left:
        raise OptionError(f"all {len(experiments)} experiments of the grid are excluded")
    planned = [_planned(one, overrides, own, file, session) for one in left]
    known = (one.resolved for one in planned if one.resolved is not None)
    check_options(known, here=launcher is None)
    made = sweep_of(planned, session, name=name, plugins=plugins)
    return PlannedSweep(made, launcher)


def _check_conditions(
    overrides: Sequence[Override], excluded: Sequence[Override], axes: Axes, table: Axes
) -> None:
    """Check conditions against the axes, and those of the file before anything replaced them."""
    values: dict[str, list[str]] = {}
    for source in (axes, table):
        for key, own in source.items():
            values.setdefault(key, []).extend(map(shown, own))
    check_conditions(overrides, excluded, values)
    for number, one in enumerate(overrides, start=1):
        for key in _keys_of(one.options):
            if any(_overlap(_set_by(key), _set_by(axis)) for axis in axes):
                raise OptionError(
                    f"overrides, number {number}: sets {key}, which is an axis of the grid"
                )


def _set_by(key: str) -> str:
    """Return the dotted key of a configuration that an option sets."""
    return _SEEDS_AXIS if key == "seeds" else ARGUMENTS[key].key if key in ARGUMENTS else key


def _keys_of(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys that a tree of ``Given`` sets; the name of a component is its own."""
    for key, node in tree.items():
        if isinstance(node, Mapping):
            yield from _keys_of(node, f"{prefix}{key}.")
        else:
            yield prefix.removesuffix(".") if key == "name" and prefix else f"{prefix}{key}"


def _overlap(first: str, second: str) -> bool:
    """Return whether two dotted keys set the same option.

    >>> _overlap("training", "training.epochs"), _overlap("method", "method.temperature")
    (True, False)
    >>> _overlap("seed", "task_seed")
    True
    """
    pair = {first, second}
    if len(pair) == 1 or ("seed" in pair and pair & set(SEEDS)):
        return True
    return "training" in pair and all(key.partition(".")[0] == "training" for key in pair)


def _check_apart(keys: Sequence[str]) -> None:
    """Check that no two options of the same source set the same; ``seed`` may be refined.

    Raises:
        OptionError: they do.
    """
    for place, key in enumerate(keys):
        for other in keys[:place]:
            if "seed" not in (key, other) and _overlap(_set_by(key), _set_by(other)):
                raise OptionError(
                    f"{argument(other)} and {argument(key)} set the same option; give one of them"
                )


def _axes(grid: Axes) -> dict[str, list[Any]]:
    """Return the axes with their arguments checked; ``seeds`` are training seeds.

    Raises:
        OptionError: an option is unknown, or two axes set the same.
    """
    found: dict[str, list[Any]] = {}
    for key, values in grid.items():
        own = list(values)
        if key == "seeds":
            if any(seed in grid for seed in (*SEEDS[1:], "seed")):
                raise OptionError(
                    f"{argument('seeds')} are training seeds: leave out "
                    f"{argument('training_seed')} and {argument('seed')}, or give "
                    f"{argument('task_seed')} for the tasks"
                )
            key, own = _SEEDS_AXIS, list(read_seeds(_flat(own)))
        elif "." not in key and key not in ARGUMENTS:
            check_keys({key: own[0]})
        found[key] = own
    return found


def _flat(values: Sequence[Any]) -> Any:
    """Return what was given for seeds: one text, or numbers."""
    bare = [value.value if isinstance(value, Given) else value for value in values]
    return bare[0] if len(bare) == 1 and isinstance(bare[0], str) else bare


def _planned(
    experiment: ExperimentDescription,
    overrides: Sequence[Override],
    given: Mapping[str, Any],
    config: Mapping[str, Any],
    session: Session,
) -> Planned:
    holding = [one.options for one in overrides if one.holds_for(experiment)]
    layers = [
        given_tree(plain_tree(experiment.arguments), "grid"),
        given,
        *reversed(holding),
        config,
    ]
    return planned_over(experiment, layers, session)
