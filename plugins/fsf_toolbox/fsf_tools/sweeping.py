"""The public call for sweeps: a grid of options, and what came of each combination."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from fsf_statistics import cautions_of
from fsf_tools.grids import (
    Axes,
    axes_of_table,
    axis_tree,
    check_conditions,
    combinations_of,
    plain_tree,
    read_overrides,
    shown,
)
from fsf_tools.searching import SearchedSweep, searched_over, without_search
from fsf_tools.sweeps import Planned, Result, Sweep, check_options, planned_over, sweep_of
from fsf_tools.workers import without_launcher
from fsframework.api.experiments import (
    ALLOWANCES,
    ARGUMENTS,
    LISTS,
    SEEDS,
    check_keys,
    read_seeds,
    tree_of_call,
)
from fsframework.api.headlines import headline_of_run
from fsframework.api.running import Run, Runs
from fsframework.api.session import Session, open_session
from fsframework.errors import OptionError, UnknownPlugin, argument
from fsframework.statistics.facts import facts_of
from fsframework.values import footnotes, html_table, text_table

if TYPE_CHECKING:
    from fsf_tools.searcher import Searcher
    from fsframework.api.arguments import Component, Grid

    class Searched(Grid, total=False):
        """Options of a grid, and of a search."""

        search: Component[Searcher]
        space: Mapping[str, Any]
        trials: int
        objective: str


__all__ = ["Finished", "SweepRow", "plan_sweep", "sweep"]

_SEEDS_AXIS = "training_seed"
_OF_TASKS = {"way": "way", "shot": "shot", "split": "split", "tasks": "count"}
"""What rows of one table may differ in besides their axes: columns, and the facts in them."""
_UNEQUAL = (
    "not all rows have the same tasks: compare those of equal tasks with fsf compare --by-tasks"
)


@dataclass(frozen=True)
class SweepRow:
    """One line of the table of a sweep: runs that differ only in their training seed.

    Args:
        tags: what tells the line from the others, by name of the option.
        group: the runs, with estimates over their seeds; ``None`` if none is finished.
    """

    tags: Mapping[str, Any]
    group: Run | None


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
        lines: dict[tuple[tuple[str, str], ...], list[Run]] = {}
        for one in self.results:
            tags = [(key, tag) for key, tag in one.planned.about.items() if key != _SEEDS_AXIS]
            lines.setdefault(tuple(tags), []).extend([one.run] if one.run else [])
        return tuple(
            SweepRow(dict(tags), group)
            for tags, runs in lines.items()
            for group in Runs(runs).over_seeds() or [None]
        )

    @property
    def _axes(self) -> list[str]:
        """The options that tell rows apart; all of them if there is one row."""
        tags = self.rows[0].tags
        return [axis for axis in tags if len({row.tags[axis] for row in self.rows}) > 1] or [*tags]

    @property
    def warnings(self) -> list[str]:
        """What must stand below the table: that not all rows have the same tasks."""
        digests = {
            tuple(sorted((arm, one.digest) for arm, one in row.group.record.arms.items()))
            for row in self.rows
            if row.group
        }
        return [_UNEQUAL] * (len(digests) > 1)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the estimates must know, each sentence once."""
        of_rows = [note for row in self.rows if row.group for note in row.group.seed_notes]
        cautions = [caution for run in self.runs for caution in run.record.cautions]
        records = {
            ", ".join(str(row.tags[axis]) for axis in self._axes): [
                one.record for one in row.group.runs
            ]
            for row in self.rows
            if row.group
        }
        of_some = {
            label: [one for one in said if one not in cautions]
            for label, said in cautions_of(records).items()
        }
        return tuple(dict.fromkeys([*of_rows, *cautions, *footnotes(of_some)]))

    def to_json(self) -> dict[str, Any]:
        """Return every experiment, and the estimates over seeds, as JSON values."""
        rows = [
            {"tags": row.tags, **(row.group.to_json() if row.group else {})} for row in self.rows
        ]
        experiments = [one.to_json() for one in self.results]
        return {"sweep": self.name, "rows": rows, "experiments": experiments}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return heads and cells of a table: what varies, the number of seeds, and estimates.

        The columns are those of the answer of a single run, after way, shot, split and number of
        tasks where rows differ in them; a line without a finished run has dashes.
        """
        axes = self._axes
        first = next((row.group for row in self.rows if row.group), None)
        estimates = headline_of_run(first).estimates if first else {}
        names = {head: one.name for head, one in estimates.items()}
        facts = [facts_of(row.group.record) if row.group else None for row in self.rows]
        told: dict[str, list[str]] = {}
        for head, fact in _OF_TASKS.items():
            values = [None if one is None else one.get(fact, "") for one in facts]
            if len({*values} - {None}) > 1 and _key_of(head) not in map(_key_of, axes):
                told[head] = [value or "–" for value in values]
        lines = []
        for place, row in enumerate(self.rows):
            own = [column[place] for column in told.values()]
            known = row.group.estimates if row.group else {}
            seeds = str(len(row.group.runs)) if row.group else "–"
            cells = [str(known.get(name, "–")) for name in names.values()]
            lines.append([*(row.tags[axis] for axis in axes), *own, seeds, *cells])
        return [*axes, *told, "seeds", *names], lines

    def __repr__(self) -> str:
        failed = (f"{name} failed: {why}" for name, why in self.failures.items())
        table = text_table(*self.table())
        return "\n".join([f"<Sweep {self.name}>", table, *self.warnings, *failed])

    def _repr_html_(self) -> str:
        below = "".join(f"<p>{one}</p>" for one in self.warnings)
        return html_table(*self.table(), self.name) + below


def sweep(
    *,
    name: str | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    runs_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    progress: bool = True,
    **arguments: Unpack[Searched],
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
            ``search``: a searcher, such as ``"optuna"``; with ``space``, a mapping of options to
            lists of values or to ranges such as ``{"low": 1e-4, "high": 0.1, "log": True}``,
            ``trials`` and ``objective``, as of ``fsf sweep``.

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
    below = tree_of_call({key: single[key] for key in ALLOWANCES if key in single}, config)
    made = plan_sweep(axes, tree_of_call(single), below, session, name=name, plugins=plugins)
    return Finished(made.name, tuple(made.run()))


def _divided(arguments: Mapping[str, Any]) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return the axes among the arguments of a call, and the others."""
    axes: dict[str, list[Any]] = {}
    single: dict[str, Any] = {}
    for key, value in arguments.items():
        several = isinstance(value, (list, tuple, range))
        if key == "space":
            several = False
        elif key in LISTS:  # an axis of one is a list of lists
            several = several and bool(value) and all(isinstance(v, (list, tuple)) for v in value)
        if several or key == "seeds":
            axes[key] = list(value) if several else [value]
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
) -> Sweep | SearchedSweep:
    """Return a sweep whose grid and options are checked; nothing runs.

    Args:
        axes: values by option; they take precedence over those of the same option in ``config``.
        given: options of all experiments, a tree of ``Given``.
        config: those of a file, over which ``given`` takes precedence, with its tables ``grid``,
            ``overrides`` and ``exclude``. Both may describe a search: ``search``, ``space``,
            ``trials`` and ``objective``.
        session: of the runs.
        name: of the sweep.
        plugins: files whose plugin classes are loaded.

    Raises:
        FsfError: an option is unknown or not allowed, or nothing is left to run.
    """
    launcher, trees = without_launcher([given, config], session)
    search, [own, file] = without_search(trees, session)
    searched = [] if search is None else [key for key, _ in search.space.items()]
    table = axes_of_table(file.pop("grid", {}))
    # What is given now takes precedence over the axes of a file.
    now = {_key_of(name) for name in (*axes, *_keys_of(own), *searched)}
    now.update(SEEDS if "seed" in now else ())
    grid = {key: values for key, values in table.items() if _key_of(key) not in now} | dict(axes)
    _check_apart([*grid, *_keys_of(own), *searched])
    for one in (grid, table):
        if "seeds" in one:
            one[_SEEDS_AXIS] = list(read_seeds(plain_tree(one.pop("seeds"))))
    check_keys({name: axis for name, axis in grid.items() if "." not in name})
    overrides = read_overrides(file.pop("overrides", []))
    excluded = read_overrides(file.pop("exclude", []), "exclude")
    if "name" in file and file["name"].origin.endswith(".json"):
        del file["name"]  # that of the run whose record it is
    if "name" in own or "name" in file:
        raise OptionError(
            f"{argument('name')}: the runs of a sweep are named after their components; give a "
            "name to the sweep"
        )
    for override in overrides:
        _check_apart([*grid, *_keys_of(override.options), *searched])
    combinations = combinations_of(grid)
    # Conditions of a file may name values of its own that others have replaced.
    known = {
        key: list(dict.fromkeys(map(shown, (*grid.get(key, ()), *table.get(key, ())))))
        for key in {**grid, **table}
    }
    check_conditions("overrides", overrides, known)
    check_conditions("exclude", excluded, known)
    layered = []
    for values, tags in combinations:
        if not any(condition.holds_for(tags) for condition in excluded):
            holding = [o.options for o in reversed(overrides) if o.holds_for(tags)]
            layers = [axis_tree(values), own, *holding, file]
            told = ", ".join(f"{key} {tags[key]}" for key in grid if len(grid[key]) > 1)
            layered.append((told or "the only experiment", tags, layers))
    if not layered:
        raise OptionError(f"all {len(combinations)} experiments of the grid are excluded")
    rest: Any = {"name": name, "plugins": plugins, "launcher": launcher}
    check = functools.partial(check_options, here=launcher is None)
    if search is not None:
        return searched_over(layered, search, session, check, seeds=_SEEDS_AXIS, **rest)
    planned = [planned_over(told, tags, layers, session) for told, tags, layers in layered]
    _demand_options(planned)
    check(planned)
    return sweep_of(planned, session, **rest)


def _demand_options(planned: Sequence[Planned]) -> None:
    """Check that all experiments know their names and options; others fail on their own.

    Raises:
        OptionError: an experiment does not know an option, or not this value.
        UnknownPlugin: it names what is not there.
    """
    wrong = [one for one in planned if isinstance(one.error, (OptionError, UnknownPlugin))]
    if not wrong:
        return
    first = wrong[0]
    if isinstance(first.error, OptionError) and len(wrong) < len(planned):
        raise OptionError(
            f"{first.name}: {first.error}; options of some experiments only go to [[overrides]] of "
            "a configuration file"
        )
    assert first.error is not None
    raise first.error


def _keys_of(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys that a tree of ``Given`` sets; the name of a component is its own."""
    for key, node in tree.items():
        if isinstance(node, Mapping):
            yield from _keys_of(node, f"{prefix}{key}.")
        else:
            yield prefix.removesuffix(".") if key == "name" and prefix else f"{prefix}{key}"


def _key_of(name: str) -> str:
    """Return the key that an axis sets; ``seeds`` are training seeds."""
    if name == "seeds":
        return _SEEDS_AXIS
    return ARGUMENTS[name].key if name in ARGUMENTS else name


def _check_apart(names: Iterable[str]) -> None:
    """Check that no two options set the same.

    Raises:
        OptionError: they do.
    """
    known: dict[str, str] = {}
    for name in names:
        if (key := _key_of(name)) in known:
            raise OptionError(
                f"{argument(known[key])} and {argument(name)} set the same option; give it once"
            )
        known[key] = name
