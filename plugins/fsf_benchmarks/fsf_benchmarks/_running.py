"""Describe the experiments of a benchmark, run each once and collect the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from fsf_benchmarks._asked import Tree, check_reserved, selection_of, without_choices
from fsf_benchmarks._finished import arms_of, find_finished, identity_of
from fsf_benchmarks._planned import check_overrides, joined, result_of
from fsf_benchmarks.interfaces import (
    AXES,
    Answer,
    Benchmark,
    BenchmarkResults,
    ExperimentDescription,
    ExperimentResult,
    Selection,
)
from fsf_reports.values import FigureDeclaration, TableDeclaration
from fsf_statistics import ComparedHeadline, HeadlineRow, headline_of_runs, method_result
from fsf_tools.grids import Override, read_overrides
from fsf_tools.sweeps import Planned, Result, check_options, planned_over, sweep_of
from fsf_tools.workers import without_launcher
from fsframework.api.components import Given, component
from fsframework.api.experiments import (
    ALLOWANCES,
    Experiment,
    given_tree,
    read_seeds,
    tree_of_call,
)
from fsframework.api.running import Run, load_run
from fsframework.api.session import Session, open_session
from fsframework.errors import FsfError, OptionError, argument
from fsframework.interfaces import Launcher

if TYPE_CHECKING:
    from fsframework.api.arguments import Grid

__all__ = ["FinishedBenchmark", "Job", "Listed", "make_job", "run_benchmark"]


@dataclass(frozen=True)
class Listed:
    """An experiment that is listed, not run.

    Args:
        experiment: as the benchmark describes it.
        resolved: with every option, ``None`` if it cannot be resolved; ``reason`` gives
            the cause.
        run: the run if it was finished before.
    """

    experiment: ExperimentDescription
    resolved: Experiment | None
    run: Run | None
    reason: str = ""


@dataclass(frozen=True, eq=False)
class FinishedBenchmark:
    """The results of a benchmark.

    Args:
        name: name of the benchmark.
        results: one per experiment; equal experiments appear once.
        tables: tables of the results.
        figures: figures of the results.
        answer: what stands before them.
    """

    name: str
    results: tuple[ExperimentResult, ...]
    tables: tuple[TableDeclaration, ...]
    figures: tuple[FigureDeclaration, ...]
    answer: Answer = field(default_factory=Answer)

    @cached_property
    def headline(self) -> ComparedHeadline:
        """The answer: sentences, and a table of what is compared."""
        return _headline(self.answer)

    def to_json(self) -> dict[str, Any]:
        """Return every experiment, table and figure as JSON values."""
        return {
            "benchmark": self.name,
            "headline": self.headline.to_json(),
            "experiments": [result.to_json() for result in self.results],
            "tables": [table.to_json() for table in self.tables],
            "figures": [figure.to_json() for figure in self.figures],
        }


def _headline(answer: Answer) -> ComparedHeadline:
    """Return what many experiments say together: sentences, and a table of what is compared.

    Runs that are equal, as are those of experiments that several tables share, are one row. What
    cannot be compared is said in a sentence.
    """
    nothing = ComparedHeadline(answer.sentences)
    if not answer.rows:
        return nothing
    rows: dict[tuple[str, ...] | Path, HeadlineRow] = {}
    runs: list[Run] = []
    for names, result in answer.rows:
        key = names if result.folder is None else result.folder
        if key in rows:
            continue
        if result.folder is None:
            rows[key] = HeadlineRow(names, None, result.reason)
            continue
        own = tuple(load_run(folder) for folder in (result.folder, *result.other_seeds))
        runs.append(dataclasses.replace(own[0], of_seeds=own))
        rows[key] = HeadlineRow(names, method_result(runs[-1]))
    if not runs:
        reasons = "; ".join(dict.fromkeys(row.reason for row in rows.values()))
        told = f"No experiment finished: {reasons}."
        return dataclasses.replace(nothing, sentences=(told, *answer.sentences))
    try:
        found = headline_of_runs(
            list(rows.values()), answer.row_names, runs[0], answer.statistic, ranked=True
        )
    except FsfError as error:
        told = f"The runs are not compared: {error}."
        return dataclasses.replace(nothing, sentences=(told,))
    return dataclasses.replace(found, sentences=(*found.sentences, *answer.sentences))


@dataclass(frozen=True, eq=False)
class Job:
    """A benchmark with everything that is needed to run it.

    Args:
        name: name of the benchmark.
        benchmark: the benchmark with its options.
        selection: what the user asks of it.
        session: session of the runs.
        given: options of every experiment.
        config: options from a file; ``given`` takes precedence over them.
        overrides: options of some experiments; they take precedence over those of the file.
        launcher: of the workers that run the experiments; without one, this process does.
        plugins: files whose plugin classes are loaded.
        seeds: training seeds; every experiment is run with each, and its estimates are over them.
        trusted: whether neither a file nor a record gave any of this, so that arguments of the
            experiments may reach out of the machine.
    """

    name: str
    benchmark: Benchmark
    selection: Selection
    session: Session
    given: Tree
    config: Tree
    overrides: tuple[Override, ...] = ()
    launcher: Launcher | None = None
    plugins: Sequence[str | Path] = ()
    seeds: tuple[int, ...] = ()
    trusted: bool = False

    def listed(self) -> list[Listed]:
        """Return the experiments that are known so far, each once, without running them.

        Further experiments are included once the first ones are finished.
        """
        first = tuple(self.benchmark.experiments(self.selection))
        check_overrides(self.overrides, first, self.selection.installed.get("method", ()))
        found = self._listed(first)
        if not self.seeds and all(one.run is not None for one in found):
            of = {identity_of(o.resolved): o.run for o in found if o.resolved and o.run}
            results = [
                result_of(one, Result(one, of[identity_of(one.resolved)]))
                for one in self.planned(first)
                if one.resolved is not None
            ]
            done = BenchmarkResults(self.selection, results)
            found += self._listed(tuple(self.benchmark.further_experiments(done)))
        return found

    def hindrance(self) -> str:
        """Return what the benchmark finds that would stop it before anything runs, or nothing."""
        try:
            self.benchmark.check(self.selection)
        except FsfError as error:
            return str(error)
        return ""

    def _listed(self, experiments: Sequence[ExperimentDescription]) -> list[Listed]:
        known: dict[str, tuple[ExperimentDescription, Experiment]] = {}
        failed = []
        for experiment in experiments:
            for planned in self._over_seeds(self._planned(experiment)):
                named = dataclasses.replace(experiment, name=planned.name)
                if planned.resolved is None:
                    failed.append(Listed(named, None, None, planned.reason))
                else:
                    key = identity_of(planned.resolved)
                    known.setdefault(key, (named, planned.resolved))
        runs = find_finished([one for _, one in known.values()], self.session.workspace.runs)
        listed = [Listed(*pair, run) for pair, run in zip(known.values(), runs, strict=True)]
        return listed + failed

    def run(self) -> FinishedBenchmark:
        """Run every unfinished experiment; a failed one does not stop the others.

        A finished experiment is reused; an interrupted one resumes where it stopped.

        Raises:
            FsfError: an option is not allowed, or nothing could be run.
        """
        first = tuple(self.benchmark.experiments(self.selection))
        check_overrides(self.overrides, first, self.selection.installed.get("method", ()))
        planned = self.planned(first)
        self._check_arms(planned)
        self.benchmark.check(self.selection)
        done: dict[str, ExperimentResult] = {}
        results = self._run(planned, done)
        further = self.benchmark.further_experiments(BenchmarkResults(self.selection, results))
        results += self._run(self.planned(tuple(further)), done)
        found = BenchmarkResults(self.selection, results)
        tables = tuple(self.benchmark.tables(found))
        return FinishedBenchmark(
            self.name,
            tuple(done.values()),
            tables,
            tuple(self.benchmark.figures(found)),
            self.benchmark.answer(found, tables),
        )

    def _check_arms(self, planned: Sequence[Planned]) -> None:
        """Check that every sampler has the arms that the benchmark needs."""
        resolved = [one.resolved for one in planned if one.resolved is not None]
        for one in resolved if self.benchmark.arms else ():
            if arms_of(one) != self.benchmark.arms:
                raise OptionError(
                    f"{argument('sampler', one.options['sampler']['name'])}: its arms are "
                    f"{' and '.join(arms_of(one))}, but the benchmark {self.name} needs "
                    f"{' and '.join(self.benchmark.arms)}"
                )

    def _layers(self, experiment: ExperimentDescription) -> list[Tree]:
        """Return the options of an experiment, those that take precedence first."""
        origin = f"benchmark {self.name}"
        tags = experiment.tags  # a data set also matches by its label
        both = (tags, {**tags, "dataset": tags.get("label", tags.get("dataset"))})
        holding = [o.options for o in self.overrides if any(map(o.holds_for, both))]
        return [
            given_tree(experiment.arguments, origin, trusted=self.trusted),
            self.given,
            *reversed(holding),
            self.config,
            given_tree(experiment.defaults, origin),
        ]

    def planned(self, experiments: Sequence[ExperimentDescription]) -> list[Planned]:
        """Return planned experiments whose options are checked.

        Raises:
            FsfError: an option is unknown or not allowed.
        """
        planned = [self._planned(one) for one in experiments]
        for one in planned:
            if one.error is not None:
                raise one.error
        check_options(planned)
        return planned

    def _planned(self, one: ExperimentDescription) -> Planned:
        return planned_over(one.name, one, self._layers(one), self.session)

    def _run(
        self, planned: Sequence[Planned], done: dict[str, ExperimentResult]
    ) -> list[ExperimentResult]:
        """Run experiments, equal ones once, and add their results to ``done``, by key."""
        if not planned:
            return []
        several = [one for each in planned for one in self._over_seeds(each)]
        sweep = sweep_of(several, self.session, plugins=self.plugins, launcher=self.launcher)
        found = sweep.run()
        n_seeds = max(1, len(self.seeds))
        results = []
        for number, one in enumerate(planned):
            part = slice(number * n_seeds, (number + 1) * n_seeds)
            result = joined(one, found[part])
            first = done.setdefault(" ".join(sweep.keys[part]), result)
            # The name of the experiment that ran, with the tags of the one that was planned.
            named = dataclasses.replace(result.description, name=first.description.name)
            results.append(dataclasses.replace(result, description=named))
        return results

    def _over_seeds(self, planned: Planned) -> list[Planned]:
        """Return a planned experiment once for each training seed."""
        if not self.seeds:
            return [planned]
        found = []
        for seed in self.seeds:
            name = f"{planned.name}, training seed {seed}"
            layers = [given_tree({"training_seed": seed}, "grid"), *self._layers(planned.about)]
            found.append(planned_over(name, planned.about, layers, self.session))
        return found


def make_job(
    name: str,
    session: Session,
    given: Tree,
    config: Tree,
    chosen: Mapping[str, Sequence[Any]],
    plugins: Sequence[str | Path] = (),
    seeds: Any = None,
) -> Job:
    """Return a benchmark by name with everything that is needed to run it.

    Args:
        name: name of the benchmark.
        session: the session, which has the plugins.
        given: options; those of the benchmark itself are below the key ``benchmark``.
        config: options from a file, with ``overrides``; ``given`` takes precedence over them.
        chosen: values by axis; see ``fsf_benchmarks.interfaces.AXES``.
        plugins: files whose plugin classes are loaded, for workers.
        seeds: training seeds, as numbers or a text such as ``0-2``; ``None`` for that of the
            options.

    Raises:
        FsfError: the benchmark does not exist, or an option is unknown or not allowed.
    """
    launcher, [given, config] = without_launcher([given, config], session)
    own: dict[str, Any] = {}
    for tree in (config, given):
        part = tree.get("benchmark", {})
        own |= part if isinstance(part, Mapping) else {"name": part}
    benchmark: Benchmark = component(session.registry, "benchmark", {**own, "name": name}).create()
    overrides = read_overrides(config.get("overrides", []))
    trees = [
        {key: value for key, value in tree.items() if key not in ("benchmark", "overrides")}
        for tree in (given, config)
    ]
    check_reserved(benchmark, name, trees)
    if seeds is not None and benchmark.one_model:
        raise OptionError(
            f"{argument('seeds')}: the benchmark {name} with these options needs the answers of "
            f"single models; give one {argument('training_seed')}"
        )
    selection = selection_of(benchmark, name, chosen, trees, session)
    return Job(
        name,
        benchmark,
        selection,
        session,
        without_choices(trees[0]),
        without_choices(trees[1]),
        overrides,
        launcher,
        plugins,
        () if seeds is None else read_seeds(seeds),
        # The arguments of an experiment may be from a file, or from the record of a model.
        trusted=not selection.models
        and all(_are_trusted(tree[kind]) for tree in (given, config) for kind in {*tree} & _KINDS),
    )


def run_benchmark(
    benchmark: str,
    *,
    benchmark_options: Mapping[str, Any] | None = None,
    config: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
    runs_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    progress: bool = True,
    **arguments: Unpack[Grid],
) -> FinishedBenchmark:
    """Run a benchmark and return its tables and figures.

    Args:
        benchmark: its name.
        benchmark_options: the benchmark's own.
        config: a TOML file of options; other arguments take precedence.
        plugins: Python files whose plugin classes are available too.
        runs_dir: where runs are written.
        cache_dir: where stages are cached; see ``fsframework.run``.
        progress: whether progress is shown on standard error.
        **arguments: those of ``fsframework.run``, of which ``dataset``, ``method``, ``backbone``,
            ``shot``, ``detector`` and ``model`` may be lists, or mappings of options;
            ``launcher``, of the workers that run the experiments; and ``seeds``, training seeds.

    Raises:
        FsfError: an argument is wrong; a failed experiment becomes a result with its reason.
    """
    session = open_session(
        runs_dir=runs_dir, cache_dir=cache_dir, plugins=plugins, progress=progress
    )
    given: dict[str, Any] = {**arguments}
    chosen = {
        axis: _several(given.pop(axis))
        for axis in AXES
        if axis in given and not isinstance(given[axis], Mapping)
    }
    seeds = given.pop("seeds", None)
    own = {key: Given(value, "call") for key, value in (benchmark_options or {}).items()}
    tree = {**given_tree(given, "call"), "benchmark": own}
    below = tree_of_call({name: given.get(name) for name in ALLOWANCES}, config)
    return make_job(benchmark, session, tree, below, chosen, plugins, seeds).run()


def _several(values: Any) -> Sequence[Any]:
    return tuple(values) if isinstance(values, (list, tuple)) else (values,)


_KINDS = {*AXES, "sampler", "like"}
"""Options whose values become arguments of experiments."""


def _are_trusted(node: Any) -> bool:
    """Return whether all leaves of a tree may set options that reach out of the machine."""
    if isinstance(node, Mapping):
        return all(map(_are_trusted, node.values()))
    if isinstance(node, list):
        return all(map(_are_trusted, node))
    return isinstance(node, Given) and node.is_trusted
