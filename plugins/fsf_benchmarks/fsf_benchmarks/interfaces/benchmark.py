"""The contract of benchmarks."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, overload

from fsf_benchmarks.interfaces.experiments import ExperimentDescription, ExperimentResult
from fsf_benchmarks.interfaces.values import Answer, Cell, PrintedValue
from fsf_reports.values import FigureDeclaration, TableDeclaration
from fsframework.errors import OptionError, argument
from fsframework.interfaces import Configurable, Dataset

__all__ = ["AXES", "Benchmark", "BenchmarkResults", "Labelled", "Selection"]

AXES = ("dataset", "method", "backbone", "shot", "detector", "model")
"""What a user may choose several of, by the name of the argument."""


@dataclass(frozen=True)
class Labelled:
    """A data set or a model as a user asked for it.

    Args:
        value: ``NAME`` or ``NAME:ARG`` of a data set, the folder of a run for a model.
        label: what the user calls it; empty for nothing.
    """

    value: str
    label: str = ""

    @property
    def called(self) -> str:
        """The label, else the value."""
        return self.label or self.value


def _opens_nothing(name: str) -> Dataset:
    raise OptionError(f"the data set {name} cannot be opened here")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What a user asks of a benchmark; what is empty is for the benchmark to choose.

    Args:
        datasets: as ``dataset`` of ``fsframework.run``, each with a label or none.
        methods: as ``method`` of ``fsframework.run``; likewise ``backbones`` and ``detectors``.
        shots: support images per class.
        models: folders of runs whose weights are to be taken.
        options: what the user gives for every experiment, in the shape of a configuration file.
            Whoever runs the experiments adds these; a benchmark need not.
        installed: names of the usable plugins by kind.
        open_dataset: opens a data set of this name with the user's options.
    """

    datasets: tuple[Labelled, ...] = ()
    methods: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    shots: tuple[int, ...] = ()
    detectors: tuple[str, ...] = ()
    models: tuple[Labelled, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    installed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    open_dataset: Callable[[str], Dataset] = _opens_nothing

    def chosen(self, axis: str) -> tuple[Any, ...]:
        """Return what the user chose of an axis.

        Args:
            axis: one of ``AXES``.
        """
        found: Mapping[str, tuple[Any, ...]] = {
            "dataset": self.datasets,
            "method": self.methods,
            "backbone": self.backbones,
            "shot": self.shots,
            "detector": self.detectors,
            "model": self.models,
        }
        return found[axis]

    def only(self, axis: str) -> Any:
        """Return the single choice of an axis, ``None`` where the user made none.

        Raises:
            OptionError: there are several.
        """
        found = self.chosen(axis)
        if len(found) > 1:
            raise OptionError(f"{argument(axis)}: this benchmark takes one, not {len(found)}")
        return found[0] if found else None

    def usable(self, kind: str, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names of installed plugins among these, in their order."""
        known = self.installed.get(kind, ())
        return tuple(name for name in names if name in known)


class BenchmarkResults(Sequence[ExperimentResult]):
    """What came of the experiments of a benchmark, in the order of their descriptions.

    Args:
        selection: that the experiments were made for.
        results: one for each description.
    """

    def __init__(self, selection: Selection, results: Iterable[ExperimentResult]) -> None:
        self.selection = selection
        self._results = tuple(results)

    @overload
    def __getitem__(self, index: int) -> ExperimentResult: ...

    @overload
    def __getitem__(self, index: slice) -> BenchmarkResults: ...

    def __getitem__(self, index: int | slice) -> ExperimentResult | BenchmarkResults:
        if isinstance(index, slice):
            return BenchmarkResults(self.selection, self._results[index])
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[ExperimentResult]:
        return iter(self._results)

    @property
    def cautions(self) -> dict[str, tuple[str, ...]]:
        """What must stand under a table of these results, by the name of the experiment."""
        return {result.description.name: result.cautions for result in self}

    def where(self, **tags: Any) -> BenchmarkResults:
        """Return the results that have all of these tags."""
        found = (
            result
            for result in self
            if all(key in result.tags and result.tags[key] == tags[key] for key in tags)
        )
        return BenchmarkResults(self.selection, found)


def _tag(tag: str, result: ExperimentResult) -> str:
    return str(result.tags.get(tag, ""))


def _name(result: ExperimentResult) -> str:
    return result.description.name


class Benchmark(Configurable, ABC, kind="benchmark"):
    """Experiments to run, and the tables and figures made of them; values in, values out.

    It runs nothing itself: whoever runs it makes the experiments, each once, however often it is
    described, and hands over what came of them, failures included.
    """

    axes: ClassVar[tuple[str, ...]] = ()
    """What of ``AXES`` a user may choose; giving any other is an error."""

    reserved: ClassVar[tuple[str, ...]] = ()
    """Keys of options that the benchmark sets itself, such as ``sampler`` or ``tasks``; a user who
    gives one is told so."""

    arms: ClassVar[tuple[str, ...]] = ()
    """Arms that the tasks of every experiment must have, whatever sampler a user names; empty where
    any will do."""

    one_model: bool = False
    """Whether it needs the runs or the answers of single models, so that its experiments cannot be
    joined over several training seeds; an option may set it for an instance."""

    def check(self, selection: Selection) -> None:
        """Find what would fail in every experiment; called once before anything runs.

        Raises:
            FsfError: for one, the data cannot yield the tasks.
        """
        del selection

    @abstractmethod
    def experiments(self, selection: Selection) -> Iterable[ExperimentDescription]:
        """Describe the experiments, in the order in which they run.

        Raises:
            FsfError: the user chose something that is not there or makes no sense.
        """

    def further_experiments(self, results: BenchmarkResults) -> Iterable[ExperimentDescription]:
        """Describe experiments that need the runs of the first ones, such as their weights.

        Args:
            results: of ``experiments``.
        """
        del results
        return ()

    def answer(self, results: BenchmarkResults, tables: Sequence[TableDeclaration]) -> Answer:
        """Return what stands before the tables: results that are compared, and sentences.

        By default all results are compared, and their tags tell them apart. A benchmark whose runs
        say nothing beside each other returns sentences only.

        Args:
            results: of all experiments, the further ones last.
            tables: what ``tables`` declares of them.
        """
        del tables
        tags = dict.fromkeys(tag for result in results for tag in result.tags)
        names: dict[str, Callable[[ExperimentResult], str]] = {
            tag: functools.partial(_tag, tag) for tag in tags
        }
        lines = {tuple(name(one) for name in names.values()) for one in results}
        if len(lines) < len(results) or not names:
            names = {"experiment": _name}
        return Answer.comparing(results, names)

    @abstractmethod
    def tables(self, results: BenchmarkResults) -> Sequence[TableDeclaration]:
        """Declare the tables; a value that an experiment failed to give has its reason.

        Args:
            results: of all experiments, the further ones last.
        """

    def figures(self, results: BenchmarkResults) -> Sequence[FigureDeclaration]:
        """Declare the figures; by default, none."""
        del results
        return ()

    def printed(self, cell: Cell) -> Iterable[PrintedValue]:
        """Return what its publications print for a cell; by default, and for others, nothing.

        It takes a few milliseconds and imports nothing
        heavy.

        Args:
            cell: what a run measures.
        """
        del cell
        return ()
