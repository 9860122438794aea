"""Making, opening and listing runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from fsframework.api.experiments import Description, described, tree_of_call
from fsframework.api.run_rows import run_row
from fsframework.api.session import open_session
from fsframework.errors import RecordError
from fsframework.pipeline.cache.workspace import Workspace
from fsframework.pipeline.run import run_experiment
from fsframework.records import RunRecord, find_run, list_records, load_arms, load_outcomes
from fsframework.values import ArmOutcomes, Arms, Estimates, ImagePool

if TYPE_CHECKING:
    from fsframework.api.models import Model
    from fsframework.api.seeds import SeedGroup

__all__ = ["Run", "Runs", "load_run", "run", "run_described", "runs"]


@dataclass(frozen=True, repr=False)
class Run:
    """A run that is finished, or was imported.

    Args:
        folder: of its files.
        record: what ran, with which options, and its estimates.
        reused: whether an earlier call had finished it.
    """

    folder: Path
    record: RunRecord
    reused: bool = False

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.name

    @property
    def estimates(self) -> Estimates:
        """Estimates by name: ``wacc-random``, ``wacc-biased``, ``wacc-gap``, ..."""
        return Estimates(self.record.estimates)

    @cached_property
    def tasks(self) -> Arms:
        """The tasks by name of the arm, read on first use."""
        return load_arms(self.folder, self.record)

    @cached_property
    def outcomes(self) -> ArmOutcomes:
        """The method's answers by name of the arm, read on first use."""
        return load_outcomes(self.folder, self.record)

    @cached_property
    def pool(self) -> ImagePool:
        """The images that its tasks were drawn from, with their words if it used any.

        They are read from the run's folder on first use.

        Raises:
            RecordError: the run was imported.
            DataError: the images or their words are not those of the tasks, or are not there.
        """
        from fsframework.api.run_images import pool_of_run

        return pool_of_run(self.folder, self.record)

    def model(self, *, device: str = "auto") -> Model:
        """Return its trained method and backbone, ready for ``fsframework.evaluate``.

        Raises:
            RecordError: the run holds accuracies measured elsewhere, and no model.
        """
        from fsframework.api.models import model_described

        tree = tree_of_call({"model": self.folder, "device": device})
        return model_described(described(tree, open_session(progress=False)))

    def __repr__(self) -> str:
        return f"<Run {self.name}: {self._described()}>\n{self.estimates!r}"

    def _described(self) -> str:
        record = self.record
        parts: list[str] = [record.status]
        if record.method is not None and record.backbone is not None:
            parts.append(f"{record.method.called} with {record.backbone.called}")
        if (tested := record.tested) is not None and tested.n_way:
            parts.append(f"{tested.sampler} tasks, {tested.shape}")
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        from html import escape

        title = f"<p><b>{escape(self.name)}</b>: {escape(self._described())}</p>"
        return title + self.estimates._repr_html_()


@overload
def run(
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    runs_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    progress: bool = True,
    seeds: None = None,
    **arguments: Any,
) -> Run: ...


@overload
def run(
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    runs_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    progress: bool = True,
    seeds: Iterable[int] | int | str,
    **arguments: Any,
) -> SeedGroup: ...


def run(
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    runs_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    progress: bool = True,
    seeds: Iterable[int] | int | str | None = None,
    **arguments: Any,
) -> Run | SeedGroup:
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
            run of its own, evaluates all on the same tasks, and returns them as a ``SeedGroup``
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
    description = described(tree_of_call(arguments, config), session)
    if seeds is None:
        return run_described(description)
    from fsframework.api.grids import read_seeds
    from fsframework.api.seeds import run_over_seeds

    return run_over_seeds(description, read_seeds(seeds))


def run_described(description: Description) -> Run:
    """Run a described experiment."""
    result = run_experiment(description.experiment, description.session)
    return Run(result.folder, result.record, result.reused)


def load_run(run: str | Path, runs_dir: str | Path | None = None) -> Run:
    """Open a run by its folder, its name, or the beginning of its name.

    Raises:
        RecordError: no run or several runs match, or its record is damaged.
    """
    runs_folder = Workspace.default(None if runs_dir is None else Path(runs_dir)).runs
    folder = find_run(str(run), runs_folder)
    return Run(folder, RunRecord.load(folder))


class Runs(Sequence[Run]):
    """Runs of a folder, in the order of their names.

    Args:
        runs: that can be read.
        broken: folders whose records cannot be read, with the reasons.
    """

    def __init__(self, runs: Sequence[Run], broken: Mapping[Path, str]) -> None:
        self._runs = tuple(runs)
        self.broken = dict(broken)

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

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per run: its settings, and every estimate with its bounds."""
        return [run_row(run.folder, run.record) for run in self]

    def to_pandas(self) -> Any:
        """Return the rows as a pandas ``DataFrame``.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]

        return pd.DataFrame(self.rows())

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        columns = (
            "run",
            "status",
            "method",
            "backbone",
            "tasks",
            "task-seed",
            "training-seed",
            "estimates",
        )
        rows = []
        for row, one in zip(self.rows(), self, strict=True):
            estimates = ", ".join(f"{name} {e}" for name, e in one.estimates.items())
            rows.append((*(str(row[column]) for column in columns[:-1]), estimates))
        return columns, rows

    def __repr__(self) -> str:
        from fsframework.values import text_table

        return text_table(*self._cells())

    def _repr_html_(self) -> str:
        from fsframework.values import html_table

        return html_table(*self._cells())


def runs(folder: str | Path | None = None) -> Runs:
    """Return the runs of a folder; by default those of ``FSF_RUNS``, else of ``./runs``."""
    place = Workspace.default(None if folder is None else Path(folder)).runs
    found, broken = [], {}
    for path, record in list_records(place):
        if isinstance(record, RecordError):
            broken[path] = str(record)
        else:
            found.append(Run(path, record))
    return Runs(found, broken)
