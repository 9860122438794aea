"""Open and paired intervals: few queries, tasks that share no image.

Source: Lafargue, Smith, Vermet, Löwe, Reid, Valmadre and Gripon 2024, "Oops, I Sampled it Again:
Reinterpreting Confidence Intervals in Few-Shot Learning", Tables 1-6 and Figures 1-6: frozen
feature extractors with nearest class centroid (NCC), logistic regression (LR) and fine-tuning (FT),
at 1, 5 and 10 shots with 1, 5 and 7 queries per class, compared in pairs on the same tasks without
replacement (section 5); and the experiments before it, with 15 queries and with other numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from fsf_benchmarks._labels import check_distinct, spelt_label
from fsf_benchmarks._models import frozen_backbone, loaded_model
from fsf_benchmarks.interfaces import (
    Answer,
    Benchmark,
    BenchmarkResults,
    ExperimentDescription,
    ExperimentResult,
    Labelled,
    Selection,
)
from fsf_reports.values import FigureDeclaration, TableDeclaration
from fsframework.errors import DataError, OptionError, argument, close_matches
from fsframework.values import TaskSet

if TYPE_CHECKING:
    from fsframework.values import ImagePool

__all__ = [
    "BASELINE_METHOD",
    "CLOSED",
    "DATASETS",
    "METHODS",
    "OPEN",
    "PARTS",
    "QUERIES",
    "OpenIntervals",
    "Setting",
    "called",
    "datasets_of",
    "methods_of",
    "pool_of",
]

QUERIES: Mapping[int, int] = MappingProxyType({1: 1, 5: 5, 10: 7})
"""Queries per class by shots: the numbers at which the paper finds its intervals shortest."""

METHODS: Mapping[str, str] = MappingProxyType({"ncc": "NCC", "logistic": "LR", "finetune": "FT"})
"""Registry names and the paper's abbreviations."""

DATASETS = (
    *("Aircraft", "CUB", "DTD", "Fungi", "MSCOCO", "Omniglot", "Quickdraw", "Traffic Signs"),
    "VGG Flower",
)
"""The paper's data sets, in its spelling."""

PARTS = ("1", "2", "3", "4", "figure-1", "figure-2", "figure-3", "figure-4", "figure-6")
"""What can be made; ``4`` is Table 4, 5 or 6, by its baseline, and ``figure-4`` also Figure 5."""

BASELINE_METHOD = "finetune"
"""The method that the others are compared with."""

_EMBEDDED, _BACKBONE, _TRAINED_BY = "planted", "conv64f", "baseline"
_WAY, _SHOT, _USUAL_QUERIES, _CLOSED_TASKS = 5, 5, 15, 600
_LEAST_TASKS = 3
_CURVE = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 75, 100)


OPEN, CLOSED = "without replacement", "with replacement"
"""How tasks are drawn; intervals over tasks without replacement are open."""


class Setting(NamedTuple):
    """A kind of tasks of a data set.

    Args:
        dataset: its label.
        shot: support images per class; ``queries`` queries per class.
        drawn: ``OPEN`` or ``CLOSED``.
    """

    dataset: str
    shot: int
    queries: int
    drawn: str = OPEN

    @classmethod
    def of(cls, result: ExperimentResult) -> Self:
        """Return the setting of an evaluation."""
        return cls(*(result.tags[field] for field in cls._fields))


class OpenIntervals(Benchmark):
    """Paired differences of methods on tasks that share no image (Lafargue et al. 2024).

    The intervals are about the data's distribution. All methods answer the same tasks, so the
    intervals of their differences are narrow. Without models, one is first trained on the training
    split of each data set. Tables 4, 5 and 6 differ in their baseline.

    Args:
        only: what to make, from 1, 2, 3, 4, figure-1, figure-2, figure-3, figure-4 and figure-6;
            empty for 4. Figures 2 and 3 are simulated and run nothing.
        baseline: what the others are compared with, such as ``conv64f FT``; ``None`` for the first
            model with fine-tuning, as in the paper, or with the last method asked for.
        tasks_dir: folder of task files to publish with results: existing files are evaluated,
            missing ones are drawn and written, with the image keys in a JSONL file.
        trials: draws of the tasks over which Figure 4 averages.

    Raises:
        OptionError: ``only`` has another name, or there is no trial.
    """

    axes: ClassVar[tuple[str, ...]] = ("dataset", "model", "method", "shot")
    reserved: ClassVar[tuple[str, ...]] = ("tasks", "sampler", "backbone")
    external: ClassVar[Mapping[str, str]] = {"tasks_dir": "task files are written there"}
    one_model = True

    def __init__(
        self,
        *,
        only: tuple[str, ...] = (),
        baseline: str | None = None,
        tasks_dir: Path | None = None,
        trials: int = 3,
    ) -> None:
        for part in only:
            if part not in PARTS:
                raise OptionError(f"only: must be among {', '.join(PARTS)}, not {part!r}")
        if trials < 1:
            raise OptionError(f"trials must be at least 1, not {trials}")
        self.only = only
        self.parts = only or ("4",)
        self.baseline = baseline
        self.tasks_dir = tasks_dir
        self.trials = trials

    def experiments(self, selection: Selection) -> Iterator[ExperimentDescription]:
        """Describe the training of one feature extractor per data set, or all evaluations."""
        check_distinct(selection)
        self._compared_with(selection)
        self._shots(selection)
        if set(self.parts) <= {"figure-2", "figure-3"}:
            return
        if selection.models:
            extractors = {}
            for model in selection.models:
                run = loaded_model(Path(model.value))
                assert run.record.backbone is not None
                tree = run.record.backbone.to_tree()
                label = model.label or str(tree["name"])
                if label in extractors:
                    raise OptionError(
                        f"{argument('model')}: two models are called {label}; name one LABEL=RUN"
                    )
                extractors[label] = frozen_backbone(tree, run.record.seen_size, run.folder)
            for data in datasets_of(selection):
                yield from self._evaluations(selection, data, extractors)
            return
        for data in datasets_of(selection):
            yield ExperimentDescription(
                f"training of {_BACKBONE} on {called(data)} with {_TRAINED_BY}",
                {
                    "dataset": data.value,
                    "sampler": "random",
                    "method": _TRAINED_BY,
                    "backbone": _BACKBONE,
                },
                tags={"role": "training", "dataset": called(data), "method": _TRAINED_BY},
            )

    def further_experiments(self, results: BenchmarkResults) -> Iterator[ExperimentDescription]:
        """Describe the evaluations with the feature extractors that were trained."""
        selection = results.selection
        for data in datasets_of(selection):
            for result in results.where(role="training", dataset=called(data)):
                if result.folder is None:
                    raise DataError(
                        f"{result.description.name}: {result.reason}; name a run with "
                        f"{argument('model')}"
                    )
                options = result.options
                frozen = frozen_backbone(options["backbone"], options["image_size"], result.folder)
                yield from self._evaluations(selection, data, {_BACKBONE: frozen})

    def _evaluations(
        self,
        selection: Selection,
        data: Labelled,
        extractors: Mapping[str, Mapping[str, Any]],
    ) -> Iterator[ExperimentDescription]:
        for setting in self._settings(selection, called(data)):
            tasks = self._tasks(selection, data, setting)
            for label, method in itertools.product(extractors, methods_of(selection)):
                arguments = {**extractors[label], **tasks, "dataset": data.value, "method": method}
                yield _described("evaluation", setting, label, arguments)
        if "figure-4" in self.parts:
            yield from self._curve(selection, data, extractors)

    def _settings(self, selection: Selection, called: str) -> Iterator[Setting]:
        """Yield the kinds of tasks that the tables and figures compare methods on, each once."""
        found = []
        shots = self._shots(selection)
        if {"4", "figure-6"} & set(self.parts):
            found += [Setting(called, shot, QUERIES[shot]) for shot in shots]
        if "figure-6" in self.parts:
            found += [Setting(called, shot, _USUAL_QUERIES) for shot in shots]
        usual = [Setting(called, shot, _USUAL_QUERIES) for shot in selection.shots or (_SHOT,)]
        if {"1", "2", "3", "figure-1"} & set(self.parts):
            found += usual
        if {"1", "2"} & set(self.parts):
            found += [one._replace(drawn=CLOSED) for one in usual]
        yield from dict.fromkeys(found)

    def _curve(
        self,
        selection: Selection,
        data: Labelled,
        extractors: Mapping[str, Mapping[str, Any]],
    ) -> Iterator[ExperimentDescription]:
        """Describe the evaluations with ever more queries, as far as the data allow."""
        from fsf_statistics import TaskSupply

        sizes = tuple(map(int, pool_of(selection, data).class_sizes))
        n_way = int(selection.options.get("sampler", {}).get("n_way", _WAY))
        seed = int(selection.options.get("task_seed", 0))
        methods = selection.methods or methods_of(selection)[:1]
        for shot in self._shots(selection):
            supply = TaskSupply(sizes, n_way, shot)
            feasible = [q for q in _CURVE if supply.most_tasks(q) >= _LEAST_TASKS]
            for queries, label, method, trial in itertools.product(
                feasible, extractors, methods, range(self.trials)
            ):
                sampler = {"name": "depleting", "n_shot": shot, "n_query": queries}
                tasks = {"sampler": sampler, "tasks": "all", "task_seed": seed + trial}
                arguments = {**extractors[label], **tasks, "dataset": data.value, "method": method}
                setting = Setting(called(data), shot, queries)
                yield _described("curve", setting, label, arguments, trial=trial)

    def _shots(self, selection: Selection) -> tuple[int, ...]:
        for shot in selection.shots:
            if shot not in QUERIES:
                known = ", ".join(map(str, QUERIES))
                raise OptionError(f"{argument('shot', shot)}: the benchmark has only {known} shots")
        return selection.shots or tuple(QUERIES)

    def _compared_with(self, selection: Selection) -> str:
        """Return the contestant that the others are compared with."""
        labels = [m.label or _backbone_of(m) for m in selection.models] or [_BACKBONE]
        methods = methods_of(selection)
        known = [f"{lab} {METHODS.get(m, m)}" for lab, m in itertools.product(labels, methods)]
        last = BASELINE_METHOD if BASELINE_METHOD in methods else methods[-1]
        chosen = self.baseline or known[methods.index(last)]
        if chosen not in known:
            hint = close_matches(chosen, known)
            raise OptionError(f"baseline {chosen!r}{hint}: must be one of {', '.join(known)}")
        return chosen

    def _tasks(self, selection: Selection, data: Labelled, setting: Setting) -> dict[str, Any]:
        """Return arguments that select the tasks to evaluate.

        A task file in ``tasks_dir`` takes precedence; a missing one is taken from the published
        files, or drawn, and written there. Tasks with replacement are drawn in each run.
        """
        from fsf_tools import export_jsonl
        from fsframework.api.data import draw

        shape = {"n_shot": setting.shot, "n_query": setting.queries}
        if setting.drawn == CLOSED:
            return {"sampler": {"name": "random", **shape}, "tasks": _CLOSED_TASKS}
        shape = {"name": "depleting", **shape}
        stem = f"{setting.dataset}-{setting.shot}-shot".replace(" ", "-").replace("/", "-")
        if setting.queries != QUERIES.get(setting.shot):
            stem += f"-{setting.queries}-queries"
        folder = self.tasks_dir
        if folder is not None and (folder / f"{stem}.safetensors").exists():
            return {"task_file": str(folder / f"{stem}.safetensors")}
        pool, seed = pool_of(selection, data), int(selection.options.get("task_seed", 0))
        published = _published(stem, pool, seed)
        if folder is None:
            if published is not None:
                return {"task_file": str(published)}
            return {"sampler": shape, "tasks": "all"}
        if published is not None:
            tasks = TaskSet.load(published)
        else:
            given = selection.options.get("sampler", {})
            tasks = draw({**given, **shape}, pool, tasks="all", seed=seed).tested
        folder.mkdir(parents=True, exist_ok=True)
        export_jsonl(tasks, pool, folder / f"{stem}.jsonl")
        tasks.save(folder / f"{stem}.safetensors")
        return {"task_file": str(folder / f"{stem}.safetensors")}

    def answer(self, results: BenchmarkResults, tables: Sequence[TableDeclaration]) -> Answer:
        """Compare the methods on each set of tasks, and count what pairing concludes."""
        from fsf_benchmarks._interval_tables import compared, conclusions

        del tables
        found = results.where(role="evaluation")
        baseline = self._compared_with(results.selection)
        names = {
            "method": lambda result: result.tags["contestant"],
            "data set": lambda result: result.tags["dataset"],
            "shot": lambda result: result.tags["shot"],
            "queries": lambda result: result.tags["queries"],
            "tasks": lambda result: result.tags["drawn"],
        }
        best = found.where(drawn=OPEN) if "4" in self.parts else ()
        said = conclusions(compared(best, baseline))
        return Answer.comparing(found, names, "acc", said)

    def tables(self, results: BenchmarkResults) -> list[TableDeclaration]:
        """Declare the accuracies and the differences from the baseline, or what was asked for."""
        from fsf_benchmarks._interval_gaussians import gaussian_tables
        from fsf_benchmarks._interval_tables import TABLES

        baseline = self._compared_with(results.selection)
        found = []
        for part in self.parts:
            if part in TABLES:
                found += TABLES[part](results, baseline)
            elif part in ("figure-2", "figure-3"):
                found.append(gaussian_tables(part))
        return found

    def figures(self, results: BenchmarkResults) -> list[FigureDeclaration]:
        """Declare the figures that were asked for."""
        from fsf_benchmarks._interval_figures import FIGURES
        from fsf_benchmarks._interval_gaussians import gaussian_figures

        baseline = self._compared_with(results.selection)
        found: list[FigureDeclaration] = []
        for part in self.parts:
            if part in FIGURES:
                found += FIGURES[part](results, baseline)
            elif part in ("figure-2", "figure-3"):
                found += gaussian_figures(part)
        return found


def _backbone_of(model: Labelled) -> str:
    record = loaded_model(Path(model.value)).record
    assert record.backbone is not None
    return record.backbone.name


def methods_of(selection: Selection) -> tuple[str, ...]:
    """Return the methods that are compared."""
    return selection.methods or tuple(METHODS)


def datasets_of(selection: Selection) -> tuple[Labelled, ...]:
    """Return the data sets asked for, by default the embedded one."""
    return selection.datasets or (Labelled(_EMBEDDED),)


def called(data: Labelled) -> str:
    """Return the label, in the paper's spelling if it has it, or the name without a label."""
    return spelt_label(data, DATASETS) or data.called


def pool_of(selection: Selection, data: Labelled) -> ImagePool:
    """Return the images that the tasks of a data set are drawn from."""
    dataset = selection.open_dataset(data.value)
    split = selection.options.get("split") or ("test" if "test" in dataset.splits else "all")
    return dataset.pool(split)


def _described(
    role: str, setting: Setting, label: str, arguments: Mapping[str, Any], **tags: Any
) -> ExperimentDescription:
    """Describe the evaluation of a method on the feature extractor of a label."""
    method = arguments["method"]
    contestant = f"{label} {METHODS.get(method, method)}"
    told = f"{setting.dataset}, {setting.shot}-shot, {setting.queries} queries"
    told += f", {CLOSED}" if setting.drawn == CLOSED else ""
    told += "".join(f", {name} {value + 1}" for name, value in tags.items())
    own = {"role": role, **setting._asdict(), "method": method, "contestant": contestant}
    return ExperimentDescription(f"{contestant}, {told}", arguments, tags={**own, **tags})


def _published(stem: str, pool: ImagePool, seed: int) -> Path | None:
    """Return this package's task file if it is for these images and this seed."""
    path = Path(str(files("fsf_benchmarks"))) / "data" / "open_intervals" / f"{stem}.safetensors"
    if not path.exists():
        return None
    tasks = TaskSet.load(path)
    return path if (tasks.key_digest, tasks.seed) == (pool.key_digest, seed) else None
