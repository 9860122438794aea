"""Making, opening and listing runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from fsframework._text import printable
from fsframework.api.experiments import resolved, tree_of_call
from fsframework.api.run_rows import dataset_of, intervals_of, words_of
from fsframework.api.session import Session, open_session
from fsframework.components.entry_points import packaged, packaged_runs
from fsframework.engine.configuration import Experiment
from fsframework.engine.session import Workspace
from fsframework.engine.staging import OVERRIDING
from fsframework.errors import DataError, OptionError, RecordError, argument
from fsframework.records import (
    RunRecord,
    find_run,
    list_records,
    load_arms,
    load_outcomes,
    read_outcomes,
)
from fsframework.statistics.facts import matching_runs, select_run
from fsframework.statistics.further import further
from fsframework.values import (
    ArmOutcomes,
    Arms,
    AttributeTable,
    Estimates,
    ImagePool,
    IntArray,
    UInt8Array,
    data_frame,
    first_rows,
    html_table,
    text_table,
)

if TYPE_CHECKING:
    from fsframework.api.arguments import Arguments
    from fsframework.api.models import Model
    from fsframework.interfaces.statistic import Statistic

__all__ = [
    "Run", "Runs", "load_run", "packaged", "packaged_runs", "read_outcomes", "run", "run_folder",
    "run_resolved", "runs",
]  # fmt: skip

_SHOWN = ("acc-random", "wacc-random", "wacc-biased", "wacc-gap")
"""Estimates in a list of runs; of a run without any, the first ones."""


@dataclass(frozen=True, repr=False)
class Run:
    """A method on its tasks, finished or imported; trained once, or with each of several seeds.

    Args:
        folder: of its files; of several seeds, that of the first.
        record: what ran, with which options; of several seeds, that of the first.
        reused: whether an earlier call had finished it.
        estimates: by name: ``wacc-random``, ``wacc-biased``, ``wacc-gap``, ...; of several seeds,
            over seeds and tasks.
        seed_notes: what a reader of estimates over seeds must know, besides the notes of each run.
        of_seeds: the run of each seed, in their order, all on the same tasks; empty for one run.
    """

    folder: Path
    record: RunRecord
    reused: bool = False
    estimates: Estimates = dataclasses.field(default_factory=lambda: Estimates({}))
    seed_notes: tuple[str, ...] = ()
    of_seeds: tuple[Run, ...] = ()

    def __post_init__(self) -> None:
        if not self.of_seeds:
            object.__setattr__(self, "estimates", Estimates(self.record.estimates))

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.name

    @property
    def runs(self) -> tuple[Run, ...]:
        """The run of each seed."""
        return self.of_seeds or (self,)

    @property
    def seeds(self) -> tuple[int | None, ...]:
        """Training seed of each run, ``None`` where it is not known."""
        return tuple(run.record.training_seed for run in self.runs)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know, each sentence once; those on some of the seeds name them."""
        from fsframework.api.headlines import headline_of_run

        limits = headline_of_run(self).limits if self.estimates else ()
        found = dict.fromkeys((*self.seed_notes, *limits))
        for note in dict.fromkeys(note for run in self.runs for note in run.record.notes):
            own = [str(run.record.training_seed) for run in self.runs if note in run.record.notes]
            where = f"seed {', '.join(own)}: " if len(own) < len(self.runs) else ""
            found[where + note] = None
        return tuple(found)

    @property
    def settings(self) -> dict[str, Any]:
        """What tells it from other runs, by name; its estimates are not among it."""
        record = self.record
        tested, settings = record.tested, record.settings
        return {
            "run": self.name,
            "folder": str(self.folder),
            "status": record.status,
            "created": record.created,
            "date": record.created.partition("T")[0],
            "dataset": dataset_of(record),
            "method": record.method.called if record.method else "",
            "backbone": record.backbone.called if record.backbone else "",
            "sampler": (tested.sampler or tested.name) if tested else "",
            "arms": ", ".join(record.arms),
            "tasks": tested.n_tasks if tested else 0,
            "way": tested.n_way if tested else 0,
            "shot": tested.n_shot if tested else 0,
            "queries": tested.n_query if tested else 0,
            "queries-by": settings.get("query_batch", ""),
            "task-seed": settings.get("task_seed", ""),
            "training-seed": settings.get("training_seed", ""),
            "epochs": len(record.training.history),
            "recipe": settings.get("recipe") or "",
            "words": words_of(record) if len(record.arms) > 1 else "",
            "intervals": intervals_of(record),
            "device": record.environment.device,
            "fingerprint": record.fingerprint,
        }

    @property
    def options(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Its options as a tree, and in the same shape where each value came from."""
        values: dict[str, Any] = dict(self.record.settings)
        origins: dict[str, Any] = dict(self.record.origins)
        for role, component in self.record.components.items():
            values[role], origins[role] = component.to_tree(), dict(component.origins)
        if self.record.stages:
            values["training"] = [dict(stage.options) for stage in self.record.stages]
            origins["training"] = [dict(stage.origins) for stage in self.record.stages]
        return values, origins

    @cached_property
    def tasks(self) -> Arms:
        """The tasks by name of the arm, read on first use."""
        return load_arms(self.folder, self.record)

    @cached_property
    def outcomes(self) -> ArmOutcomes:
        """The method's answers by name of the arm, read on first use.

        Raises:
            DataError: it was trained with several seeds: each of its ``runs`` has its own.
        """
        return load_outcomes(self._single().folder, self.record)

    @cached_property
    def pool(self) -> ImagePool:
        """The images that its tasks were drawn from, with their words if it used any.

        Raises:
            RecordError: the run was imported.
            DataError: the images or their words are not those of the tasks, or are not there.
        """
        record, folder = self.record, self.folder
        if record.imported is not None or not record.arms:
            raise RecordError(f"{folder}: was imported, and has no images")
        pool = ImagePool.load(record.images_file(folder))
        if any(tasks.key_digest != pool.key_digest for tasks in self.tasks.values()):
            raise DataError(f"{folder}: its tasks were not drawn from its images")
        if record.words_file(folder).exists():
            pool = pool.with_attributes(AttributeTable.load(record.words_file(folder)))
        words = None if pool.attributes is None else pool.attributes.fingerprint
        if any(tasks.attributes_fingerprint not in (None, words) for tasks in self.tasks.values()):
            raise DataError(f"{folder}: its tasks were not drawn with its words")
        return pool

    def images(
        self, indices: Sequence[int] | IntArray, *, plugins: Sequence[str | Path] = ()
    ) -> Mapping[int, UInt8Array]:
        """Return those images of its tasks that can still be read, RGB uint8 ``(H, W, 3)``.

        They are read from the data set, at the size that the model saw.

        Args:
            indices: into ``pool``, as in its tasks.
            plugins: Python files whose plugin classes are loaded too.

        Returns:
            Images by index; without those that are no longer there.

        Raises:
            RecordError: the run holds accuracies measured elsewhere.
            FsfError: the data set cannot be opened.

        >>> import fsframework as fsf
        >>> run = fsf.run(
        ...     method="ncc", sampler="random", tasks=20, way=2, shot=1, queries=2, progress=False,
        ...     dataset={"name": "planted", "n_per_class": 8, "size": 16}, training={"epochs": 0},
        ... )
        >>> image = int(run.tasks["random"].support[0, 0, 0])
        >>> run.images([image])[image].shape
        (16, 16, 3)
        """
        from fsframework.api.run_pixels import RunImages

        return RunImages(self, plugins).read(indices)

    def model(
        self,
        *,
        device: str = "auto",
        plugins: Sequence[str | Path] = (),
        allow_external: bool = False,
    ) -> Model:
        """Return its trained method and backbone, ready for ``fsframework.evaluate``.

        Args:
            plugins: Python files whose plugin classes are loaded too.
            allow_external: whether its record may set options that reach out of the machine, such
                as the ``url`` of an endpoint.

        Raises:
            DataError: it was trained with several seeds: each of its ``runs`` has a model.
            RecordError: the run holds accuracies measured elsewhere, and no model.
        """
        from fsframework.api.models import model_of

        given = {"model": self._single().folder, "device": device}
        tree = tree_of_call({**given, "allow_external": allow_external})
        return model_of(resolved(tree, open_session(plugins=plugins, progress=False)))

    def to_json(self) -> dict[str, Any]:
        """Return seeds, estimates, notes and folders of the runs as JSON values."""
        return {
            "seeds": list(self.seeds),
            "estimates": {name: one.to_json() for name, one in self.estimates.items()},
            "notes": list(self.notes),
            "folders": [str(run.folder) for run in self.runs],
        }

    def to_pandas(self) -> Any:
        """Return its estimates as a pandas ``DataFrame``: a row per estimate."""
        return self.estimates.to_pandas()

    def _single(self) -> Run:
        if len(self.runs) > 1:
            raise DataError(
                f"{self.name}: was trained with the seeds {self._seeds()}; choose one of its runs, "
                "such as run.runs[0]"
            )
        return self.runs[0]

    def _seeds(self) -> str:
        return ", ".join("unknown" if seed is None else str(seed) for seed in self.seeds)

    def _described(self) -> str:
        record = self.record
        parts: list[str] = [record.status]
        if record.method is not None and record.backbone is not None:
            parts.append(f"{record.method.called} with {record.backbone.called}")
        if (tested := record.tested) is not None and tested.n_way:
            parts.append(f"{tested.sampler} tasks, {tested.shape}")
        return ", ".join([*parts, *([f"seeds {self._seeds()}"] if self.of_seeds else [])])

    def __repr__(self) -> str:
        lines = [f"<Run {self.name}: {self._described()}>", repr(self.estimates)]
        return printable("\n".join([*lines, *(f"note: {note}" for note in self.notes)]))

    def _repr_html_(self) -> str:
        from html import escape

        title = f"<p><b>{escape(self.name)}</b>: {escape(self._described())}</p>"
        notes = "".join(f"<p>note: {escape(note)}</p>" for note in self.notes)
        return title + self.estimates._repr_html_() + notes


def run(
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    runs_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    progress: bool = True,
    seeds: Iterable[int] | int | str | None = None,
    **arguments: Unpack[Arguments],
) -> Run:
    """Train a method, evaluate it on the tasks of every arm, and return the run.

    Finished work is reused; an interrupted run resumes when it is called again.
    The arguments are those of ``fsf run``: each component (``method``, ``sampler``, ``dataset``,
    ``backbone``, ``detector``) is a name, a name with options as a mapping, a class or an instance.

    Args:
        config: a TOML file, or a mapping of the same shape; other arguments take precedence.
        plugins: Python files whose plugin classes are loaded too.
        runs_dir: where runs are written; by default ``FSF_RUNS``, else ``./runs``.
        cache_dir: where images, features and weights are cached; by default ``FSF_CACHE``, else
            the user's cache folder.
        progress: whether progress is shown on standard error.
        seeds: training seeds, such as ``range(3)`` or ``"0-2"``: trains one model per seed, each a
            run of its own, evaluates all on the same tasks, and returns a run of these ``runs``
            with estimates over seeds and tasks.
        **arguments: ``way``, ``shot``, ``queries``, ``tasks``, ``seed`` (or ``task_seed`` and
            ``training_seed``), ``attributes``, ``split``, ``placebo``, ``device``, ``training`` (a
            mapping, or a list of stages), ``statistics``, ``level``, ``interval``, ``model``,
            ``name`` and the others of ``fsf run``.

    Raises:
        FsfError: an argument or the data are wrong; the message is one sentence.

    >>> import fsframework as fsf
    >>> run = fsf.run(
    ...     method="ncc", sampler="random", tasks=20, way=2, shot=1, queries=2, progress=False,
    ...     dataset={"name": "planted", "n_per_class": 8, "size": 16}, training={"epochs": 0},
    ... )
    >>> list(run.estimates)
    ['acc-random', 'wacc-random']
    """
    session = open_session(
        runs_dir=runs_dir, cache_dir=cache_dir, plugins=plugins, progress=progress
    )
    experiment = resolved(tree_of_call(arguments, config), session)
    if seeds is None:
        return run_resolved(experiment, session)
    from fsframework.api.experiments import read_seeds

    return run_resolved(experiment, session, read_seeds(seeds))


def run_resolved(
    experiment: Experiment, session: Session, seeds: Sequence[int] | None = None
) -> Run:
    """Run an experiment, once or once for each training seed, all on the same tasks.

    Each seed is the run that the same experiment with this ``training_seed`` makes, so that
    finished ones are reused.

    Raises:
        OptionError: there are no seeds, or the experiment cannot have several; the message says
            why.
    """
    from fsframework.engine.run import run_experiment

    if seeds is None:
        result = run_experiment(experiment, session)
        return Run(result.folder, result.record, result.reused)
    _check_several(experiment, seeds)
    further("joined")  # or its package is missing
    # Every seed is checked before the first run.
    for seed in seeds:
        _trained_with(experiment, seed)
    made = []
    for place, seed in enumerate(seeds, start=1):
        session.reporter.say(f"training seed {seed}, {place} of {len(seeds)}")
        made.append(run_resolved(_trained_with(experiment, seed), session))
    statistics = {name: one.create() for name, one in experiment.statistics.items()}
    [found] = Runs(made).over_seeds(level=experiment.settings.level, statistics=statistics)
    return found


def _trained_with(experiment: Experiment, seed: int) -> Experiment:
    return dataclasses.replace(
        experiment,
        settings=dataclasses.replace(experiment.settings, training_seed=seed),
        given={**experiment.given, "training_seed": seed},
        settings_origins={**experiment.settings_origins, "training_seed": argument("seeds")},
    )


def _check_several(experiment: Experiment, given: Sequence[int]) -> None:
    """Check that an experiment can be run with several training seeds."""
    settings, seeds = experiment.settings, argument("seeds")
    if not given:
        raise OptionError(f"{seeds} must have at least one seed")
    if "training_seed" in experiment.given and experiment.origins["training_seed"] in OVERRIDING:
        raise OptionError(f"{seeds} sets the training seeds; leave out {argument('training_seed')}")
    if settings.model is not None:
        raise OptionError(
            f"{argument('model', str(settings.model))}: nothing is trained, so there are no "
            f"training seeds; leave out {seeds}, and evaluate the run of each seed"
        )
    if experiment.name:
        name = argument("name", experiment.name)
        raise OptionError(f"{name} names one run, and {seeds} makes several; leave one out")
    if settings.interval != "student-t":
        interval, usual = (argument("interval", one) for one in (settings.interval, "student-t"))
        raise OptionError(f"{interval} is for one model; intervals over seeds are {usual}")


def load_run(run: str | Path, runs_dir: str | Path | None = None) -> Run:
    """Open a run by its folder, its name or the beginning of it, or by what it is.

    ``method=ncc,shot=5`` selects the run whose record says so: any option or setting by its name.

    Raises:
        OptionError: no run has such a fact.
        RecordError: no run or several runs match, or its record is damaged.
    """
    folder = run_folder(run, runs_dir)
    return Run(folder, RunRecord.load(folder))


def run_folder(run: str | Path, runs_dir: str | Path | None = None) -> Path:
    """Return the folder of a run; see ``load_run``.

    Args:
        run: folder, name, selector, or name of a model of an installed package.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.
    """
    place = Workspace.default(runs_dir).runs
    if "=" not in str(run) or Path(run).exists():
        return find_run(str(packaged(run)), place)
    return place / select_run(str(run), _records_in(place), str(place))


def load_runs(run: str | Path, runs_dir: str | Path | None = None) -> Runs:
    """Open all runs that a selector describes, or the one run of a name; see ``load_run``."""
    if "=" not in str(run) or Path(run).exists():
        return Runs([load_run(run, runs_dir)])
    place = Workspace.default(runs_dir).runs
    records = _records_in(place)
    return Runs(Run(place / n, records[n]) for n in matching_runs(str(run), records, str(place)))


def _records_in(place: Path) -> dict[str, RunRecord]:
    return {path.name: one for path, one in list_records(place) if isinstance(one, RunRecord)}


class Runs(Sequence[Run]):
    """Runs of a folder, in the order of their names.

    Args:
        runs: that can be read.
        broken: folders whose records cannot be read, with the reasons.
    """

    def __init__(self, runs: Iterable[Run], broken: Mapping[Path, str] | None = None) -> None:
        self._runs = tuple(runs)
        self.broken = dict(broken or {})

    @overload
    def __getitem__(self, index: int) -> Run: ...

    @overload
    def __getitem__(self, index: slice) -> Runs: ...

    def __getitem__(self, index: int | slice) -> Run | Runs:
        if isinstance(index, slice):
            return Runs(self._runs[index], self.broken)
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per run: its settings, and every estimate with its bounds."""
        found = []
        for run in self:
            row = run.settings
            for name, one in run.estimates.items():
                row |= {name: one.value, f"{name} low": one.low, f"{name} high": one.high}
            found.append(row)
        return found

    def over_seeds(
        self, *, level: float | None = None, statistics: Mapping[str, Statistic] | None = None
    ) -> Runs:
        """Join those that differ only in their training seed, with estimates over seeds and tasks.

        Seeds and tasks are crossed random effects: the interval adds the variance between seeds to
        that between tasks. It speaks of the method trained again with another seed, on other tasks
        of the same kind; as any interval over tasks that share images, of this data set only.

        Runs are in the order of the first of each. Two belong together if their records say so
        (``RunRecord.group``: all that decides the outcomes but the training seed is equal). A run
        of another seed only and an imported one stay as they are. The same run given twice counts
        once; another run with a seed that is there already begins another one.

        Caveats: two seeds say little of the variance between them, so the interval is wide. It
        says nothing of other hyperparameters or training data. Its coverage in simulations is in
        ``docs/concepts/intervals.md``.

        Args:
            level: confidence level; by default that of the runs.
            statistics: by name, for those whose options or classes a record does not hold.

        Raises:
            RecordError: a run is not finished.
            OptionError: runs to be joined have different levels and none is given.
            DataError: files of a run are damaged.

        >>> import fsframework as fsf
        >>> both = fsf.run(
        ...     method="ncc", sampler="random", tasks=20, way=2, shot=1, queries=2, progress=False,
        ...     dataset={"name": "planted", "n_per_class": 8, "size": 16}, training={"epochs": 0},
        ...     seeds=range(2),
        ... )
        >>> [again] = Runs(both.runs).over_seeds()
        >>> again.seeds, again.estimates["acc-random"].n_seeds
        ((0, 1), 2)
        """
        return Runs(further("joined")(self, level, statistics or {}), self.broken)

    def to_pandas(self) -> Any:
        """Return the rows as a pandas ``DataFrame``."""
        return data_frame(self.rows())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        heads = ["run", "status", "method", "dataset", "way", "shot", "tasks", "training-seed"]
        told = [run.settings for run in self]
        if len({one["backbone"] for one in told}) > 1:
            heads.insert(3, "backbone")
        rows = []
        for run, one in zip(self, told, strict=True):
            known = run.estimates
            shown = [name for name in _SHOWN if name in known] or list(known)[: len(_SHOWN)]
            estimates = ", ".join(f"{name} {known[name]}" for name in shown)
            rows.append([*(str(one[head]) for head in heads), estimates])
        return [*heads, "estimates"], rows

    def __repr__(self) -> str:
        heads, rows = self._cells()
        return text_table(heads, first_rows(rows))

    def _repr_html_(self) -> str:
        return html_table(*self._cells())


def runs(folder: str | Path | None = None) -> Runs:
    """Return the runs of a folder; by default those of ``FSF_RUNS``, else of ``./runs``."""
    listed = list_records(Workspace.default(folder).runs)
    broken = {path: str(one) for path, one in listed if isinstance(one, RecordError)}
    return Runs((Run(path, one) for path, one in listed if isinstance(one, RunRecord)), broken)
