"""Open and paired intervals: few queries, tasks that share no image.

Source: Lafargue, Smith, Vermet, Löwe, Reid, Gripon and Chabot 2024, "Oops, I Sampled it Again:
Reinterpreting Confidence Intervals in Few-Shot Learning", section 5 and Table 4: frozen feature
extractors with nearest class centroid (NCC), logistic regression (LR) and fine-tuning (FT), at 1,
5 and 10 shots with 1, 5 and 7 queries per class, compared in pairs on the same tasks without
replacement.
"""

from __future__ import annotations

import csv
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

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
from fsf_reports.values import Entry, Quantity, TableDeclaration
from fsframework.errors import DataError, OptionError, argument, close_matches
from fsframework.values import Estimate, TaskSet, footnotes

if TYPE_CHECKING:
    from fsframework.statistics.comparison import MeasureComparison
    from fsframework.values import ImagePool

__all__ = ["METHODS", "QUERIES", "OpenIntervals", "printed_differences"]

QUERIES: Mapping[int, int] = MappingProxyType({1: 1, 5: 5, 10: 7})
"""Queries per class by shots: the numbers at which the paper finds its intervals shortest."""

METHODS: Mapping[str, str] = MappingProxyType({"ncc": "NCC", "logistic": "LR", "finetune": "FT"})
"""Registry names and the paper's abbreviations."""

DATASETS = (
    *("Aircraft", "CUB", "DTD", "Fungi", "MSCOCO", "Omniglot", "Quickdraw", "Traffic Signs"),
    "VGG Flower",
)
"""The paper's data sets, in its spelling."""

_EMBEDDED, _BACKBONE, _TRAINED_BY = "planted", "conv64f", "baseline"
_BASELINE_METHOD = "finetune"
_SETTING = tuple[str, int]
"""Label of a data set and number of shots."""


@functools.cache
def printed_differences() -> Mapping[tuple[str, int, str, str], Quantity]:
    """Return the values of the paper's Table 4 by data set, shot, baseline and method.

    Each is the baseline's accuracy minus the method's, in points, with the half-width of its
    paired 95 % interval.
    """
    path = files("fsf_benchmarks") / "data" / "ci_table_4.csv"
    with path.open(encoding="utf-8") as file:
        return MappingProxyType(
            {
                (r["dataset"], int(r["shot"]), r["baseline"], r["compared_with"]): Quantity.around(
                    float(r["difference_percent"]), float(r["ci95_half_width"])
                )
                for r in csv.DictReader(file)
            }
        )


class OpenIntervals(Benchmark):
    """Paired differences of methods on tasks that share no image (Lafargue et al. 2024, Table 4).

    The intervals are about the data's distribution. All methods answer the same tasks, so the
    intervals of their differences are narrow. Without models, one is first trained on the training
    split of each data set.

    Args:
        baseline: what the others are compared with, such as ``conv64f FT``; ``None`` for the first
            model with fine-tuning, as in the paper, or with the last method asked for.
        tasks_dir: folder of task files to publish with results: existing files are evaluated,
            missing ones are drawn and written, with the image keys in a JSONL file.
    """

    axes: ClassVar[tuple[str, ...]] = ("dataset", "model", "method", "shot")
    reserved: ClassVar[tuple[str, ...]] = ("tasks", "sampler", "backbone")
    one_model = True

    def __init__(self, *, baseline: str | None = None, tasks_dir: Path | None = None) -> None:
        self.baseline = baseline
        self.tasks_dir = tasks_dir

    def experiments(self, selection: Selection) -> Iterator[ExperimentDescription]:
        """Describe the training of one feature extractor per data set, or all evaluations."""
        check_distinct(selection)
        self._compared_with(selection)
        self._shots(selection)
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
            for data in _datasets(selection):
                yield from self._evaluations(selection, data, extractors)
            return
        for data in _datasets(selection):
            yield ExperimentDescription(
                f"training of {_BACKBONE} on {_called(data)} with {_TRAINED_BY}",
                {
                    "dataset": data.value,
                    "sampler": "random",
                    "method": _TRAINED_BY,
                    "backbone": _BACKBONE,
                },
                tags={"role": "training", "dataset": _called(data), "method": _TRAINED_BY},
            )

    def further_experiments(self, results: BenchmarkResults) -> Iterator[ExperimentDescription]:
        """Describe the evaluations with the feature extractors that were trained."""
        selection = results.selection
        for data in _datasets(selection):
            for result in results.where(role="training", dataset=_called(data)):
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
        for shot in self._shots(selection):
            tasks = self._tasks(selection, data, shot)
            for (label, arguments), method in itertools.product(
                extractors.items(), _methods(selection)
            ):
                contestant = f"{label} {METHODS.get(method, method)}"
                queries = QUERIES[shot]
                yield ExperimentDescription(
                    f"{contestant}, {_called(data)}, {shot}-shot, {queries} queries",
                    {**arguments, **tasks, "dataset": data.value, "method": method},
                    tags={
                        "role": "evaluation",
                        "dataset": _called(data),
                        "method": method,
                        "shot": shot,
                        "contestant": contestant,
                    },
                )

    def _shots(self, selection: Selection) -> tuple[int, ...]:
        for shot in selection.shots:
            if shot not in QUERIES:
                known = ", ".join(map(str, QUERIES))
                raise OptionError(f"{argument('shot', shot)}: the benchmark has only {known} shots")
        return selection.shots or tuple(QUERIES)

    def _compared_with(self, selection: Selection) -> str:
        """Return the contestant that the others are compared with."""
        labels = [m.label or _backbone_of(m) for m in selection.models] or [_BACKBONE]
        methods = _methods(selection)
        known = [f"{lab} {METHODS.get(m, m)}" for lab, m in itertools.product(labels, methods)]
        last = _BASELINE_METHOD if _BASELINE_METHOD in methods else methods[-1]
        chosen = self.baseline or known[methods.index(last)]
        if chosen not in known:
            hint = close_matches(chosen, known)
            raise OptionError(f"baseline {chosen!r}{hint}: must be one of {', '.join(known)}")
        return chosen

    def _tasks(self, selection: Selection, data: Labelled, shot: int) -> dict[str, Any]:
        """Return arguments that select the tasks to evaluate.

        A task file in ``tasks_dir`` takes precedence; a missing one is taken from the published
        files, or drawn, and written there.
        """
        from fsf_tools import export_jsonl
        from fsframework.api.data import draw

        shape = {"name": "depleting", "n_shot": shot, "n_query": QUERIES[shot]}
        stem = f"{_called(data)}-{shot}-shot".replace(" ", "-").replace("/", "-")
        folder = self.tasks_dir
        if folder is not None and (folder / f"{stem}.safetensors").exists():
            return {"task_file": str(folder / f"{stem}.safetensors")}
        dataset = selection.open_dataset(data.value)
        split = selection.options.get("split") or ("test" if "test" in dataset.splits else "all")
        pool, seed = dataset.pool(split), int(selection.options.get("task_seed", 0))
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
        del tables
        found = results.where(role="evaluation")
        compared = _compared(found, self._compared_with(results.selection))
        names = {
            "method": lambda result: result.tags["contestant"],
            "data set": lambda result: result.tags["dataset"],
            "shot": lambda result: result.tags["shot"],
        }
        return Answer.comparing(found, names, "acc", _conclusions(compared))

    def tables(self, results: BenchmarkResults) -> list[TableDeclaration]:
        """Declare the accuracies, and the differences from the baseline."""
        found = results.where(role="evaluation")
        baseline = self._compared_with(results.selection)
        return [_accuracies(found), _differences(found, _compared(found, baseline), baseline)]


def _backbone_of(model: Labelled) -> str:
    record = loaded_model(Path(model.value)).record
    assert record.backbone is not None
    return record.backbone.name


def _methods(selection: Selection) -> tuple[str, ...]:
    return selection.methods or tuple(METHODS)


def _datasets(selection: Selection) -> tuple[Labelled, ...]:
    return selection.datasets or (Labelled(_EMBEDDED),)


def _called(data: Labelled) -> str:
    """Return the label, in the paper's spelling if it has it, or the name without a label."""
    return spelt_label(data, DATASETS) or data.called


def _published(stem: str, pool: ImagePool, seed: int) -> Path | None:
    """Return this package's task file if it is for these images and this seed."""
    path = Path(str(files("fsf_benchmarks"))) / "data" / "open_intervals" / f"{stem}.safetensors"
    if not path.exists():
        return None
    tasks = TaskSet.load(path)
    return path if (tasks.key_digest, tasks.seed) == (pool.key_digest, seed) else None


def _setting(result: ExperimentResult) -> _SETTING:
    return result.tags["dataset"], result.tags["shot"]


def _accuracy(result: ExperimentResult) -> Estimate | None:
    """Return the accuracy in the only arm there is."""
    return next((e for e in result.estimates.values() if e.statistic == "acc"), None)


def _compared(
    results: Sequence[ExperimentResult], baseline: str
) -> dict[_SETTING, MeasureComparison]:
    """Compare the contestants of each set of tasks with the baseline, by accuracy."""
    from fsframework.api.results import compare

    found = {}
    for setting, group in itertools.groupby(results, _setting):
        runs = {r.tags["contestant"]: r for r in group if r.folder is not None}
        if len(runs) < 2 or baseline not in runs:
            continue
        accuracy = _accuracy(runs[baseline])
        assert accuracy is not None
        outcomes = {contestant: result.outcomes() for contestant, result in runs.items()}
        (found[setting],) = compare(
            outcomes, accuracy.name, baseline=baseline, level=accuracy.level
        )
    return found


def _about(result: ExperimentResult) -> dict[str, Any]:
    """Return the facts that identify a value and that a reader needs."""
    estimate = _accuracy(result)
    known = {} if estimate is None else estimate.to_json()
    facts = ("scope", "estimator", "level", "n_tasks", "n_images")
    return {
        "dataset": result.tags["dataset"],
        "method": result.tags["method"],
        "backbone": result.options["backbone"]["name"],
        "shot": result.tags["shot"],
        "run": None if result.folder is None else str(result.folder),
        **{fact: known.get(fact) for fact in facts},
        "cautions": "; ".join(result.cautions),
    }


def _numbers_of_tasks(results: Sequence[ExperimentResult]) -> dict[_SETTING, str]:
    """Return the number of tasks per setting, a dash if nothing was measured."""
    found = {_setting(result): "–" for result in results}
    found |= {
        _setting(result): f"{sum(result.n_tasks.values()):,}" for result in results if result.folder
    }
    return found


def _accuracies(results: BenchmarkResults) -> TableDeclaration:
    entries, tasks = [], _numbers_of_tasks(results)
    for result in results:
        dataset, shot = _setting(result)
        row = (dataset, str(shot), str(QUERIES[shot]), tasks[dataset, shot])
        estimate = _accuracy(result)
        measured = None if estimate is None else Quantity.of(estimate)
        column = result.tags["contestant"]
        entries.append(Entry(row, column, measured, result.reason, about=_about(result)))
    estimates = [e for result in results if (e := _accuracy(result)) is not None]
    kinds = dict.fromkeys(f"{100 * e.level:g} % {e.scope}, {e.estimator}" for e in estimates)
    return TableDeclaration(
        "Table A",
        "Acc in percent on tasks that share no image",
        ("data set", "shots", "queries", "tasks"),
        tuple(entries),
        (*([f"intervals: {'; '.join(kinds)}"] if kinds else []), *footnotes(results.cautions)),
        differences=False,
    )


def _differences(
    results: BenchmarkResults,
    comparisons: Mapping[_SETTING, MeasureComparison],
    baseline: str,
) -> TableDeclaration:
    entries, tasks = [], _numbers_of_tasks(results)
    for result in results:
        contestant, setting = result.tags["contestant"], _setting(result)
        if contestant == baseline:
            continue
        comparison = comparisons.get(setting)
        measured, reason = None, result.reason or "its baseline could not be measured"
        if comparison is not None and contestant in comparison.values:
            pair, _ = comparison.pair(baseline, contestant)
            measured, reason = Quantity.of(pair.difference), ""
        entries.append(
            Entry(
                (setting[0], str(setting[1]), tasks[setting]),
                contestant,
                measured,
                reason,
                printed_differences().get((*setting, baseline, contestant)),
                about={"baseline": baseline, **_about(result)},
            )
        )
    notes = (
        f"accuracy of {baseline} minus that of the method, on equal tasks: positive where "
        f"{baseline} is better",
        *_conclusions(comparisons),
        *footnotes(results.cautions),
    )
    title = f"Difference in Acc from {baseline}, in points, with paired intervals"
    return TableDeclaration(
        "Table 4",
        title,
        ("data set", "shots", "tasks"),
        tuple(entries),
        notes,
        source="Lafargue et al. 2024",
    )


def _conclusions(comparisons: Mapping[_SETTING, MeasureComparison]) -> Iterator[str]:
    """Yield how many comparisons with the baseline each kind of interval decides."""
    pairs = [(pair, 1 - part.level) for part in comparisons.values() for pair in part.pairs]
    paired = sum(pair.paired != "0" for pair, _ in pairs)
    direct = sum(pair.direct != "0" for pair, _ in pairs)
    by_holm = sum(pair.p_holm is not None and pair.p_holm <= alpha for pair, alpha in pairs)
    if pairs:
        yield (
            f"Of {len(pairs)} comparisons with the baseline, {paired} are decided by the paired "
            f"interval, {direct} because the two open intervals do not overlap, and {by_holm} by "
            "the paired interval after Holm's correction within each set of tasks."
        )
