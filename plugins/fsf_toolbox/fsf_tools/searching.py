"""Searches of a sweep: trials on validation tasks, then the best configuration on the tasks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from fsf_tools.experiment_keys import key_of_experiment
from fsf_tools.grids import plain_tree
from fsf_tools.queue import Ended, Item, SweepFolder, run_items
from fsf_tools.searcher import Search, Searcher, Trial
from fsf_tools.spaces import SearchSpace, read_space
from fsf_tools.sweeps import (
    Planned,
    Result,
    check_name,
    listed_item,
    planned_over,
    state_of,
    sweep_of,
)
from fsf_tools.workers import portable
from fsframework.api.components import Component, canonical, resolve_component
from fsframework.api.experiments import Experiment, given_tree, merged, resolved
from fsframework.api.running import Run, run_resolved
from fsframework.api.session import Advance, Reporter, Session, Workspace
from fsframework.errors import DataError, FsfError, OptionError, UnknownPlugin, argument, refusal
from fsframework.interfaces.launcher import Launcher
from fsframework.launchers.calls import text_of
from fsframework.values import atomic_write, digest_of, read_file

if TYPE_CHECKING:
    from fsframework.api.training import Epoch

__all__ = ["SearchOptions", "SearchedSweep", "searched_over", "without_search"]

VALIDATION = "val"
"""The split whose classes no training learns from, and no result is of."""
_KEYS = ("search", "space", "trials", "objective")
_TRIALS = 20
_MOST_TRIALS = 100_000
STUDY = "study.jsonl"
SEARCHES = "search.json"
"""File of a run with what came of the searches that chose its options."""


@dataclass(frozen=True)
class SearchOptions:
    """What is told of a search.

    Args:
        searcher: by name, with options.
        space: that it searches.
        trials: number of configurations to try.
        objective: the estimate to maximise; empty for the accuracy on tasks of the control.
    """

    searcher: Component
    space: SearchSpace
    trials: int
    objective: str


def without_search(
    trees: Sequence[Mapping[str, Any]], session: Session
) -> tuple[SearchOptions | None, list[dict[str, Any]]]:
    """Return what trees of options tell of a search, if anything, and the trees without it.

    Args:
        trees: of ``Given``; earlier ones take precedence.
        session: whose plugins are available.

    Raises:
        PluginError: the searcher is unknown or cannot be loaded.
        OptionError: an option is not allowed, or something is missing.
    """
    asked = merged(*({key: tree[key] for key in _KEYS if key in tree} for tree in trees))
    rest = [{key: node for key, node in tree.items() if key not in _KEYS} for tree in trees]
    if not asked:
        return None, rest
    if "search" not in asked or "space" not in asked:
        has, lacks = ("search", "space") if "search" in asked else (next(iter(asked)), "search")
        raise OptionError(f"{argument(has)} needs {argument(lacks)} beside it")
    searcher = _searcher(session, asked["search"])
    searcher.create()
    given = str(plain_tree(asked.get("trials", _TRIALS)))
    if not given.isdecimal() or not 0 < int(given) <= _MOST_TRIALS:
        raise OptionError(f"{argument('trials')} must be 1 to {_MOST_TRIALS:,}, not {given}")
    objective = str(plain_tree(asked.get("objective", "")))
    return SearchOptions(searcher, read_space(asked["space"]), int(given), objective), rest


def _searcher(session: Session, request: Any) -> Component:
    return resolve_component(session.registry, "searcher", request, where="search")


@dataclass(frozen=True, eq=False)
class _Study:
    """One search: of one combination of the grid.

    Args:
        key: equal for equal searches, whatever the number of their trials.
        searcher: a tree of ``Given``.
        space: that is searched.
        objective: as in ``SearchOptions``.
        tree: options of all trials.
    """

    key: str
    searcher: Mapping[str, Any]
    space: SearchSpace
    objective: str
    tree: Mapping[str, Any]

    def folder(self, runs: Path) -> Path:
        """Return the folder of the study and of the runs of its trials."""
        return runs / "sweeps" / "searches" / self.key

    def open(self, session: Session) -> Search:
        """Open the study, which other processes may have open as well."""
        folder = self.folder(session.workspace.runs)
        folder.mkdir(parents=True, exist_ok=True)
        made: Searcher = _searcher(session, self.searcher).create()
        return made.open(folder / STUDY, self.space.space)

    def score(self, run: Run) -> float:
        """Return what is maximised.

        Raises:
            OptionError: there is no such estimate.
        """
        if not self.objective:
            return float(next(iter(run.outcomes.values())).task_accuracy.mean())
        if self.objective not in run.estimates:
            raise OptionError(
                f"{argument('objective', self.objective)}: the trial has no such estimate; it has "
                f"{', '.join(run.estimates)}"
            )
        found = run.estimates[self.objective]
        return found.value if found.higher_is_better else -found.value


class _StoppedTrial(Exception):
    """A searcher ends a training."""


class _Watching(Reporter):
    """Passes on what a trial reports, and asks the searcher after each epoch."""

    def __init__(self, reporter: Reporter, goes_on: Callable[[int, float], bool]) -> None:
        self._reporter, self._goes_on, self._seen = reporter, goes_on, 0

    @contextmanager
    def stage(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Report a stage."""
        with self._reporter.stage(name, total, done) as advance:
            yield advance

    def say(self, text: str) -> None:
        """Report one line of text."""
        self._reporter.say(text)

    def learned(self, history: Sequence[Epoch]) -> None:
        """Ask whether to go on."""
        new, self._seen = history[self._seen :], len(history)
        for place, epoch in enumerate(new, start=len(history) - len(new) + 1):
            accuracy = epoch.validation_accuracy
            if accuracy is not None and not self._goes_on(place, accuracy):
                raise _StoppedTrial(f"after epoch {place} at {100 * accuracy:.1f} %")


@dataclass(frozen=True)
class _TrialItem(Item):
    """A trial of a study: what is to be run is known when it begins."""

    study: _Study = dataclasses.field(kw_only=True)
    number: int = dataclasses.field(kw_only=True)

    def attempt(self, session: Session) -> Ended:
        """Run the trial, unless it has ended already."""
        search = self.study.open(session)
        trial = search.begin(self.number)
        if trial.state != "running":
            return _ended(trial)
        where = Workspace(self.study.folder(self.workspace.runs), self.workspace.cache)
        told = _Watching(
            session.reporter, lambda epoch, got: search.goes_on(self.number, epoch, got)
        )
        try:
            options = given_tree(self.study.space.options(trial.values), "search")
            experiment = resolved(merged(options, self.study.tree), session)
            made = run_resolved(experiment, replace(session, workspace=where, reporter=told))
            score = self.study.score(made)
        except _StoppedTrial as stopped:
            search.end(self.number, "stopped")
            return Ended(status="stopped", reason=f"{_shown(trial)}: stopped {stopped}")
        except Exception as error:
            reason = " ".join(str(error).split()) if isinstance(error, FsfError) else ""
            reason = reason or refusal(error) or text_of(error)
            search.end(self.number, "failed", reason=reason)
            return _ended(replace(trial, state="failed", reason=reason))
        search.end(self.number, "finished", score=score)
        return _ended(replace(trial, state="finished", score=score))


def _ended(trial: Trial) -> Ended:
    status = "failed" if trial.state == "running" else trial.state
    came = trial.reason or ("stopped" if trial.score is None else f"{100 * trial.score:.1f} %")
    return Ended(status=status, reason=f"{_shown(trial)}: {came}")


def _shown(trial: Trial) -> str:
    return ", ".join(f"{key} {_short(value)}" for key, value in trial.values.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, eq=False)
class _Combination:
    """A combination of the grid.

    Args:
        name: for messages; ``tags`` its values by axis.
        layers: trees of options; earlier ones take precedence.
        study: that chooses the rest of its options; shared by those with other training seeds.
        error: why it cannot run.
    """

    name: str
    tags: Mapping[str, Any]
    layers: Sequence[Mapping[str, Any]]
    study: _Study | None
    error: FsfError | None = None


@dataclass(frozen=True, eq=False)
class SearchedSweep:
    """A sweep whose experiments each search for some of their options first.

    Args:
        name: of the sweep.
        combinations: of the grid.
        options: of the search.
        session: of the runs; ``launcher`` of its workers.
        plugins: files whose plugin classes are loaded.
    """

    name: str
    combinations: tuple[_Combination, ...]
    options: SearchOptions
    session: Session
    launcher: Launcher | None
    plugins: Sequence[str | Path]

    @property
    def _items(self) -> dict[str, _TrialItem]:
        """The trials by their keys."""
        workspace = self.session.workspace.absolute()
        files = tuple(str(Path(file).absolute()) for file in self.plugins)
        found = {}
        for study, name in self._studies.items():
            if self.launcher is not None:
                study = replace(study, tree=portable(study.tree, name or "the search"))
            for number in range(self.options.trials):
                key = f"{study.key}-{number:05d}"
                label = f"trial {number + 1}" + (f" of {name}" if name else "")
                found[key] = _TrialItem(
                    key, label, {}, study.key, workspace, files, study=study, number=number
                )
        return found

    @property
    def _studies(self) -> dict[_Study, str]:
        """The studies with the names of the first of their combinations."""
        several = len({one.study for one in self.combinations if one.study}) > 1
        found: dict[_Study, str] = {}
        for one in self.combinations:
            if one.study is not None:
                found.setdefault(one.study, one.name if several else "")
        return found

    def run(self) -> list[Result]:
        """Run the trials that are left, then the best configuration of each search.

        Raises:
            FsfError: the workers cannot be started, or no trial of any search finished.
        """
        items, folder = self._items, SweepFolder(self.session.workspace.runs)
        folder.save(self.name, {key: item.name for key, item in items.items()})
        self._try(list(items.values()))
        chosen = {study: _Chosen.of(study, self.session) for study in self._studies}
        planned = [self._planned(one, chosen) for one in self.combinations]
        sweep = sweep_of(
            planned, self.session, name=self.name, plugins=self.plugins, launcher=self.launcher
        )
        before = {key: item.name for key, item in items.items()}
        results = replace(sweep, before=before).run()
        for combination, result in zip(self.combinations, results, strict=True):
            if result.run is not None and combination.study is not None:
                _keep(result.run, chosen[combination.study])
        return [_read_again(result) for result in results]

    def _try(self, items: Sequence[_TrialItem]) -> None:
        """Run the trials that have not ended."""
        reporter, session = self.session.reporter, self.session
        ended = {
            (study.key, trial.number)
            for study in self._studies
            for trial in study.open(session).trials()
            if trial.state != "running"
        }
        left = [item for item in items if (item.study.key, item.number) not in ended]
        if not left:
            return
        done = len(items) - len(left)
        with reporter.stage("trials", len(items), done) as advance:
            found = run_items(left, session, self.launcher, self.name, lambda t: advance(0, t))
            with closing(found):  # type: ignore[type-var]
                for item, end in found:
                    done += 1
                    reporter.say(
                        f"{done} of {len(items)}: {item.name}: {end.reason} ({end.seconds:.1f} s)"
                    )
                    advance(1)

    def _planned(self, one: _Combination, chosen: Mapping[_Study, _Chosen]) -> Planned:
        if one.study is None:
            return Planned(one.name, one.tags, error=one.error)
        found = chosen[one.study]
        if found.best is None:
            return Planned(one.name, one.tags, error=DataError(found.reason))
        options = one.study.space.options(found.best.values)
        values = {key: value for key, value in found.best.values.items() if key not in one.tags}
        tags = {**one.tags, **{key: _short(value) for key, value in values.items()}}
        tree = given_tree(options, f"search among {found.n_configurations}")
        return planned_over(one.name, tags, [tree, *one.layers], self.session)

    def listed(self) -> list[dict[str, str]]:
        """Return name, state and detail of each trial; nothing runs."""
        folder = SweepFolder(self.session.workspace.runs)
        found = [listed_item(folder, key, item.name) for key, item in self._items.items()]
        wrong = [(one.name, str(one.error)) for one in self.combinations if one.error]
        return found + [state_of(name, "cannot run", reason) for name, reason in wrong]


class _Facts(TypedDict):
    """What a run keeps of a search."""

    searcher: dict[str, Any]
    space: dict[str, str]
    objective: str
    split: str
    configurations: int
    trials: int
    stopped: int
    failed: int
    best: float | None


@dataclass(frozen=True)
class _Chosen:
    """What came of a study.

    Args:
        study: that has ended.
        trials: all that were ever made.
        searcher: its name; ``options`` its name and options as JSON values.
    """

    study: _Study
    trials: Sequence[Trial]
    searcher: str
    options: Mapping[str, Any]

    @classmethod
    def of(cls, study: _Study, session: Session) -> _Chosen:
        """Read a study."""
        searcher = _searcher(session, study.searcher)
        trials = [one for one in study.open(session).trials() if one.state != "running"]
        return cls(study, trials, searcher.called, searcher.to_json())

    @property
    def best(self) -> Trial | None:
        """The finished trial with the highest score, of equal ones the first."""
        finished = [one for one in self.trials if one.score is not None]
        return max(finished, key=lambda one: (one.score, -one.number), default=None)

    @property
    def reason(self) -> str:
        """Why there is no best one."""
        why = next((one.reason for one in self.trials if one.reason), "all were stopped")
        return f"no trial of {len(self.trials)} finished; the first: {why}"

    @property
    def n_configurations(self) -> int:
        """Number of different configurations that were tried."""
        return len({canonical(dict(one.values)) for one in self.trials})

    def to_json(self) -> _Facts:
        """Return what a run keeps of it."""
        states = [one.state for one in self.trials]
        return {
            "searcher": dict(self.options),
            "space": self.study.space.given,
            "objective": self.study.objective or "accuracy",
            "split": VALIDATION,
            "configurations": self.n_configurations,
            "trials": len(states),
            "stopped": states.count("stopped"),
            "failed": states.count("failed"),
            "best": None if self.best is None else self.best.score,
        }


def _sentences(kept: _Facts) -> tuple[str, str]:
    """Return what every table says of a search, and what else a reader may want to know."""
    facts: Mapping[str, Any] = kept
    options = {**facts["searcher"]}
    name = options.pop("name")
    ends = {"stopped": "stopped early", "failed": "failed"}
    rest = [f"{facts[state]} {end}" for state, end in ends.items() if facts[state]]
    counted = f" ({', '.join(rest)})" if rest else ""
    several, number = " and ".join(facts["space"]), facts["configurations"]
    verb = "were" if len(facts["space"]) > 1 else "was"
    how = ", ".join(f"{key} {value}" for key, value in options.items())
    space = ", ".join(f"{key}={text}" for key, text in facts["space"].items())
    return (
        f"{several} {verb} chosen among {number} configuration{'s' * (number > 1)} on validation "
        f"tasks{counted}",
        f"search: {name} ({how}) for the highest {facts['objective']} on tasks of the split "
        f"{facts['split']}, {facts['trials']} trials; space {space}",
    )


def _keep(run: Run, chosen: _Chosen) -> None:
    """Write into a run how its options were chosen; a longer search replaces a shorter one."""
    record, key, facts = run.record, chosen.study.key, chosen.to_json()
    file = run.folder / SEARCHES
    known: dict[str, _Facts] = {}
    with suppress(OSError, ValueError):  # none, or damaged, and then it is written again
        known = msgspec.json.decode(read_file(file), type=dict[str, _Facts])
    caution, note = _sentences(facts)
    if known.get(key) == facts and caution in record.cautions:
        return
    old = (caution, note, *(_sentences(known[key]) if key in known else ()))
    atomic_write(file, json.dumps({**known, key: facts}, indent=1))
    notes = [one for one in record.notes if one not in old]
    cautions = [one for one in record.cautions if one not in old]
    replace(record, notes=(*notes, caution, note), cautions=(*cautions, caution)).save(run.folder)


def _read_again(result: Result) -> Result:
    run = result.run
    if run is None:
        return result
    record = type(run.record).load(run.folder)
    return replace(result, run=replace(run, record=record))


def searched_over(
    combinations: Iterable[tuple[str, Mapping[str, Any], Sequence[Mapping[str, Any]]]],
    options: SearchOptions,
    session: Session,
    check: Callable[[Sequence[Planned]], None],
    *,
    name: str | None,
    seeds: str,
    **rest: Any,
) -> SearchedSweep:
    """Return the sweep that searches for some options of each combination; nothing runs.

    Args:
        combinations: name, tags and layers of options of each.
        check: raises for experiments whose components refuse their options.
        name: of the sweep; by default one that equal searches have in common.
        seeds: the axis whose values share a search.
        rest: further parts of the sweep.

    Raises:
        OptionError: an option of the space is unknown or out of its bounds, or the tasks of the
            experiments leave no classes for validation.
    """
    check_name(name)
    studies: dict[str, _Study] = {}
    made, corners = [], list[Planned]()
    for told, tags, layers in combinations:
        own = [
            planned_over(told, tags, [given_tree(values, "space"), *layers], session)
            for values in options.space.corners
        ]
        corners += own
        wrong = next((one.error for one in own if one.error is not None), None)
        if isinstance(wrong, (OptionError, UnknownPlugin)):
            raise wrong
        study, first = None, own[0].resolved
        learns = any(one.resolved is not None and one.resolved.learns for one in own)
        if wrong is None and first is not None:
            layers = [_split_of(first), *layers]
            group = canonical({key: tag for key, tag in tags.items() if key != seeds})
            if group not in studies:
                studies[group] = _study_of(first, options, layers, learns=learns)
            study = studies[group]
        made.append(_Combination(told, tags, layers, study, wrong))
    check(corners)
    keys = sorted({one.key for one in studies.values()})
    usual = f"search-{digest_of('search', keys)[:8]}"
    return SearchedSweep(name or usual, tuple(made), options, session, **rest)


def _split_of(experiment: Experiment) -> dict[str, Any]:
    """Return the split of the result, as a tree of ``Given``.

    Raises:
        OptionError: the images that a search validates on are among it, or not there.
    """
    settings = experiment.settings
    if settings.task_file is not None:
        raise OptionError(
            f"{argument('task_file')} does not go with {argument('search')}, which draws tasks of "
            "the classes for validation too"
        )
    split = settings.split or "test"
    if split in (VALIDATION, "all"):
        raise OptionError(
            f"{argument('split', split)} has the classes that {argument('search')} validates on; "
            "a result must be of others, such as test"
        )
    splits = experiment.dataset.create().splits
    if missing := [one for one in (VALIDATION, split) if one not in splits]:
        raise OptionError(
            f"{argument('search')} needs the splits {VALIDATION} and {split}; the data set "
            f"{experiment.dataset.called} lacks {' and '.join(missing)}"
        )
    return given_tree({"split": split}, "search")


def _study_of(
    experiment: Experiment,
    options: SearchOptions,
    layers: Sequence[Mapping[str, Any]],
    *,
    learns: bool,
) -> _Study:
    """Return the study of a combination."""
    statistics = experiment.statistics
    if options.objective and options.objective.rpartition("-")[0] not in statistics:
        raise OptionError(
            f"{argument('objective', options.objective)} must be an estimate of "
            f"{', '.join(statistics)}, such as {next(iter(statistics))}-ARM"
        )
    space = options.space.typed(experiment.options, learns=learns)
    data = experiment.dataset.create().fingerprint
    told = [options.searcher.to_json(), space.given, options.objective]
    key = digest_of("search", canonical(told), key_of_experiment(experiment, data))[:24]
    tree = merged(given_tree({"split": VALIDATION}, "search"), *layers)
    # Its options were checked when it was asked for.
    searcher = given_tree({"search": options.searcher.to_json()}, "search", trusted=True)["search"]
    return _Study(key, searcher, space, options.objective, tree)
