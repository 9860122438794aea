"""The public call for sweeps: a grid of options, and what came of each combination."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fsframework.api.components import plain_tree
from fsframework.api.experiments import given_tree, tree_of_call
from fsframework.api.grids import (
    Axes,
    axes_of_table,
    check_conditions,
    combinations_of,
    read_overrides,
    read_seeds,
    shown,
)
from fsframework.api.headlines import headline_of_run
from fsframework.api.launchers import without_launcher
from fsframework.api.running import Run, Runs
from fsframework.api.session import Session, open_session
from fsframework.api.sweeps import Result, Sweep, check_options, planned_over, sweep_of
from fsframework.engine.options import ARGUMENTS, LISTS, SEEDS, check_keys
from fsframework.errors import OptionError, argument
from fsframework.values import html_table, text_table

__all__ = ["Finished", "SweepRow", "plan_sweep", "sweep"]

_SEEDS_AXIS = "training_seed"


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
    results: tuple[Result, ...]

    @property
    def runs(self) -> Runs:
        """The finished runs, each once, in the order of the grid."""
        return Runs({one.run.folder: one.run for one in self.results if one.run}.values())

    @property
    def failures(self) -> dict[str, str]:
        """Why experiments failed, by their names."""
        return {one.planned.name: one.reason for one in self.results if one.reason}

    @cached_property
    def rows(self) -> tuple[SweepRow, ...]:
        """One row per combination of values, training seeds aside."""
        lines: dict[str, tuple[Mapping[str, Any], list[Result]]] = {}
        for one in self.results:
            tags = {key: tag for key, tag in one.planned.about.items() if key != _SEEDS_AXIS}
            lines.setdefault(repr(tags), (tags, []))[1].append(one)
        found = []
        for own, results in lines.values():
            reasons = tuple(dict.fromkeys(one.reason for one in results if one.reason))
            groups = Runs(one.run for one in results if one.run).over_seeds()
            found += [SweepRow(own, group, reasons) for group in groups or [None]]
        return tuple(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the estimates must know, each sentence once."""
        of_rows = [note for row in self.rows if row.group for note in row.group.notes]
        cautions = [caution for run in self.runs for caution in run.record.cautions]
        return tuple(dict.fromkeys([*of_rows, *cautions]))

    def to_json(self) -> dict[str, Any]:
        """Return every experiment, and the estimates over seeds, as JSON values."""
        rows = [
            {
                "tags": dict(row.tags),
                **(row.group.to_json() if row.group else {}),
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
        axes = [axis for axis in self.rows[0].tags if len({r.tags[axis] for r in self.rows}) > 1]
        axes = axes or list(self.rows[0].tags)
        first = next((row.group for row in self.rows if row.group), None)
        entries = headline_of_run(first).table.entries if first else ()
        names = {one.column: one.estimate.name for one in entries if one.estimate}
        lines = []
        for row in self.rows:
            known = row.group.estimates if row.group else {}
            seeds = str(len(row.group.runs)) if row.group else "–"
            values = [str(known.get(name, "–")) for name in names.values()]
            lines.append([*(row.tags[axis] for axis in axes), seeds, *values])
        return [*(axis.replace("_", " ") for axis in axes), "seeds", *names], lines

    def __repr__(self) -> str:
        failed = (f"{name} failed: {why}" for name, why in self.failures.items())
        return "\n".join([f"<Sweep {self.name}>", text_table(*self.table()), *failed])

    def _repr_html_(self) -> str:
        return html_table(*self.table(), self.name)


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
    return Finished(made.name, tuple(made.run()))


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
) -> Sweep:
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
        if not any(_overlap(key, other) for other in (*axes, *given_keys))
    }
    grid = _checked({**left_of_file, **axes})
    overrides = read_overrides(file.pop("overrides", []))
    excluded = read_overrides(file.pop("exclude", []), "exclude")
    if "name" in own or "name" in file:
        raise OptionError(
            f"{argument('name')}: the runs of a sweep are named after their components; give a "
            "name to the sweep"
        )
    for number, override in enumerate(overrides, start=1):
        for key in _keys_of(override.options):
            if any(_overlap(key, axis) for axis in grid):
                raise OptionError(
                    f"overrides, number {number}: sets {key}, which is an axis of the grid"
                )
    combinations = combinations_of(grid)
    # Conditions of a file may name values of its own that others have replaced.
    known = {
        key: [shown(value) for value in (*grid.get(key, ()), *table.get(key, ()))]
        for key in {**grid, **table}
    }
    check_conditions("overrides", overrides, known)
    check_conditions("exclude", excluded, known)
    planned = []
    for one in combinations:
        if not any(condition.holds_for(one.tags) for condition in excluded):
            holding = [o.options for o in reversed(overrides) if o.holds_for(one.tags)]
            layers = [given_tree(plain_tree(one.values), "grid"), own, *holding, file]
            planned.append(planned_over(one.name, one.tags, layers, session))
    if not planned:
        raise OptionError(f"all {len(combinations)} experiments of the grid are excluded")
    check_options(planned, here=launcher is None)
    return sweep_of(planned, session, name=name, plugins=plugins, launcher=launcher)


def _keys_of(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys that a tree of ``Given`` sets; the name of a component is its own."""
    for key, node in tree.items():
        if isinstance(node, Mapping):
            yield from _keys_of(node, f"{prefix}{key}.")
        else:
            yield prefix.removesuffix(".") if key == "name" and prefix else f"{prefix}{key}"


def _overlap(first: str, second: str) -> bool:
    """Return whether two arguments or dotted keys set the same option.

    >>> _overlap("training", "training.epochs"), _overlap("method", "method.temperature")
    (True, False)
    >>> _overlap("seed", "task_seed"), _overlap("shot", "sampler.n_shot")
    (True, True)
    """
    keys = [ARGUMENTS[one].key if one in ARGUMENTS else one for one in (first, second)]
    keys = [_SEEDS_AXIS if key == "seeds" else key for key in keys]
    return (
        keys[0] == keys[1]
        or ("seed" in keys and any(key in SEEDS for key in keys))
        or ("training" in keys and all(key.partition(".")[0] == "training" for key in keys))
    )


def _check_apart(keys: Sequence[str]) -> None:
    """Check that no two options of the same source set the same; ``seed`` may be refined.

    Raises:
        OptionError: they do.
    """
    for first, second in itertools.combinations(keys, 2):
        if "seed" not in (first, second) and _overlap(first, second):
            raise OptionError(
                f"{argument(first)} and {argument(second)} set the same option; give one of them"
            )


def _checked(grid: Axes) -> dict[str, Sequence[Any]]:
    """Return the axes with their arguments checked; ``seeds`` are training seeds.

    Raises:
        OptionError: an option is unknown, or two axes set the same.
    """
    found: dict[str, Sequence[Any]] = {}
    for key, values in grid.items():
        if key == "seeds":
            if "seed" in grid or any(seed in grid for seed in SEEDS[1:]):
                raise OptionError(
                    f"{argument('seeds')} are training seeds: leave out "
                    f"{argument('training_seed')} and {argument('seed')}, or give "
                    f"{argument('task_seed')} for the tasks"
                )
            found[_SEEDS_AXIS] = read_seeds(plain_tree(list(values)))
            continue
        if "." not in key:
            check_keys({key: values[0]})
        found[key] = values
    return found
