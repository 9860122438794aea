"""The benchmark of open and paired intervals: few queries, tasks that share no image.

Source: Lafargue, Smith, Vermet, Löwe, Reid, Gripon and Chabot 2024, "Oops, I Sampled it Again:
Reinterpreting Confidence Intervals in Few-Shot Learning", section 5 and Table 4: frozen feature
extractors with nearest class centroid (NCC), logistic regression (LR) and fine-tuning (FT), at 1,
5 and 10 shots with 1, 5 and 7 queries a class, on the same tasks without replacement, compared by
pairs.
"""

from __future__ import annotations

import copy
import csv
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fsframework.benchmarks.cells import Cell, CellResult, cell_footnotes, run_cells
from fsframework.benchmarks.tables import Line, Quantity, Table
from fsframework.components.registry import Registry
from fsframework.components.resolution import Given, resolve_component, set_dotted
from fsframework.errors import DataError, OptionError, RecordError, close_matches
from fsframework.pipeline.cache.workspace import Workspace
from fsframework.pipeline.experiment.configuration import resolve_experiment
from fsframework.pipeline.progress import Reporter
from fsframework.pipeline.tasks import draw_tasks, export_jsonl
from fsframework.records import RunRecord
from fsframework.statistics.comparison import Comparison, compare, count, measures_of
from fsframework.statistics.results import find_contestants, same_tasks
from fsframework.values import ImagePool, TaskSet

__all__ = ["METHODS", "QUERIES", "Request", "Results", "printed_differences", "run_benchmark"]

QUERIES: Mapping[int, int] = MappingProxyType({1: 1, 5: 5, 10: 7})
"""Queries a class by shots: where the paper finds its intervals shortest."""

METHODS: Mapping[str, str] = MappingProxyType({"ncc": "NCC", "logistic": "LR", "finetune": "FT"})
"""Registry names and the paper's short ones."""

DATASETS = (
    "Aircraft",
    "CUB",
    "DTD",
    "Fungi",
    "MSCOCO",
    "Omniglot",
    "Quickdraw",
    "Traffic Signs",
    "VGG Flower",
)
"""The paper's data sets, in its spelling."""

_EMBEDDED, _BACKBONE, _TRAINED_BY = "planted", "conv64f", "baseline"
_BASELINE_METHOD = "finetune"
_DEFAULT = "default of the benchmark"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for; what is left out comes from the options or the defaults.

    Args:
        datasets: ``[LABEL=]NAME[:ARG]``; a label of the paper's puts its values beside. By default
            the embedded data set.
        models: ``[LABEL=]RUN``, run folders whose backbones are the frozen feature extractors. By
            default one is trained on the data set's training split, by the method ``baseline``.
        methods: by default ``ncc``, ``logistic`` and ``finetune``.
        shots: of 1, 5 and 10, by default all.
        baseline: what the others are compared with, such as ``conv64f FT``; by default the first
            model with fine-tuning, as in the paper, or with the last method asked for.
        tasks_dir: folder of task files, drawn once and then taken as they are.
    """

    datasets: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    shots: tuple[int, ...] = ()
    baseline: str | None = None
    tasks_dir: Path | None = None


@dataclass(frozen=True)
class Results:
    """What came of it: the cells, the tables, the comparisons of each set of tasks."""

    cells: tuple[CellResult, ...]
    tables: tuple[Table, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class _Data:
    label: str
    text: str
    fingerprint: str


@dataclass(frozen=True)
class _Model:
    label: str
    folder: Path
    record: RunRecord


@dataclass(frozen=True)
class _Place:
    """Where a cell stands in the tables."""

    data: _Data
    shot: int
    contestant: str


@functools.cache
def printed_differences() -> Mapping[tuple[str, int, str, str], Quantity]:
    """Return the values of the paper's Table 4 by data set, shot, baseline and method.

    Each is the accuracy of the baseline less that of the other, in points, with the half-width of
    its paired 95 % interval.
    """
    path = files("fsframework.benchmarks") / "data" / "ci_table_4.csv"
    with path.open(encoding="utf-8") as file:
        return MappingProxyType(
            {
                (r["dataset"], int(r["shot"]), r["baseline"], r["compared_with"]): Quantity.around(
                    float(r["difference_percent"]), float(r["ci95_half_width"])
                )
                for r in csv.DictReader(file)
            }
        )


def run_benchmark(
    registry: Registry,
    tree: Mapping[str, Any],
    request: Request,
    workspace: Workspace,
    reporter: Reporter,
) -> Results:
    """Run every cell that is not finished, and make the tables.

    Args:
        tree: options of every cell as for ``resolve_experiment``.

    Raises:
        FsfError: an option is unknown or not allowed, a data set or a model cannot be opened.
    """
    for key in ("task_file", "placebo", "tasks", "method", "model", "sampler"):
        if key in tree:
            raise OptionError(f"{key} has no place in this benchmark, which says it itself")
    for key in ("dataset", "backbone"):
        if isinstance(tree.get(key), Given) or "name" in tree.get(key, {}):
            raise OptionError(f"{key}: name it on the command line; here only its options may be")
    maker = _Maker(registry, tree, request, workspace)
    baseline = maker.baseline()
    trained: list[CellResult] = []
    if not request.models:
        trained = run_cells(maker.training_cells(), registry, workspace, reporter)
    places, cells = maker.cells(maker.models(trained))
    results = run_cells(cells, registry, workspace, reporter)
    by_place = dict(zip(places, results, strict=True))
    found = _comparisons(by_place, baseline, registry, tree)
    tables = (_accuracies(by_place), _differences(by_place, found, baseline))
    return Results((*trained, *results), tables, tuple(found.values()))


class _Maker:
    """Turns what is asked for into cells."""

    def __init__(
        self,
        registry: Registry,
        tree: Mapping[str, Any],
        request: Request,
        workspace: Workspace,
    ) -> None:
        self._registry, self._tree, self._workspace = registry, tree, workspace
        self._request = request
        self._shots = tuple(dict.fromkeys(request.shots)) or tuple(QUERIES)
        for shot in self._shots:
            if shot not in QUERIES:
                known = ", ".join(map(str, QUERIES))
                raise OptionError(f"--shot {shot}: the benchmark has tasks of {known} shots")
        self._methods = tuple(dict.fromkeys(request.methods)) or tuple(METHODS)
        self._data = [self._opened(text) for text in request.datasets or (_EMBEDDED,)]
        if len({d.label for d in self._data}) < len(self._data):
            raise OptionError("--dataset: the same data set is there twice")
        self._given = [self._model(text) for text in request.models]
        if len({m.label for m in self._given}) < len(self._given):
            raise OptionError("--model: two have the same label; give others with LABEL=RUN")

    def _opened(self, text: str) -> _Data:
        label, name = _split_label(text)
        request = {**self._tree.get("dataset", {}), "name": Given(name, _DEFAULT)}
        dataset = resolve_component(self._registry, "dataset", request).create()
        return _Data(label, name, dataset.fingerprint)

    def training_cells(self) -> list[Cell]:
        """Return an experiment a data set that trains a feature extractor on it."""
        found = []
        for data in self._data:
            tree = self._with(
                data,
                {"sampler.name": "random", "method": _TRAINED_BY, "backbone.name": _BACKBONE},
            )
            name = f"training of {_BACKBONE} on {data.label}, by {_TRAINED_BY}"
            found.append(Cell(name, resolve_experiment(self._registry, tree), data.fingerprint))
        return found

    def models(self, trained: Sequence[CellResult]) -> dict[str, list[_Model]]:
        """Return the feature extractors by data set."""
        if not self._request.models:
            for result in trained:
                if result.folder is None or result.record is None:
                    raise DataError(f"{result.cell.name}: {result.reason}; name runs with --model")
            return {
                data.label: [_Model(_BACKBONE, Path(r.folder), r.record)]
                for data, r in zip(self._data, trained, strict=True)
                if r.folder is not None and r.record is not None
            }
        return {data.label: self._given for data in self._data}

    def _model(self, text: str) -> _Model:
        label, equals, rest = text.partition("=")
        folder = Path(rest if equals else text)
        record = RunRecord.load(folder)
        if "backbone" not in record.resolved or not (folder / "weights.safetensors").exists():
            raise RecordError(f"--model {text}: the run has no weights of a backbone")
        return _Model(label if equals else str(record.resolved["backbone"]["name"]), folder, record)

    def baseline(self) -> str:
        """Return the contestant that the others are compared with."""
        labels = [model.label for model in self._given] or [_BACKBONE]
        known = [
            f"{label} {METHODS.get(method, method)}"
            for label, method in itertools.product(labels, self._methods)
        ]
        last = _BASELINE_METHOD if _BASELINE_METHOD in self._methods else self._methods[-1]
        chosen = self._request.baseline or known[self._methods.index(last)]
        if chosen not in known:
            hint = close_matches(chosen, known)
            raise OptionError(f"--baseline {chosen!r}{hint}: must be one of {', '.join(known)}")
        return chosen

    def cells(self, models: Mapping[str, Sequence[_Model]]) -> tuple[list[_Place], list[Cell]]:
        """Return every experiment and where it stands."""
        places, cells = [], []
        for data, shot in itertools.product(self._data, self._shots):
            shape = {"sampler.n_shot": shot, "sampler.n_query": QUERIES[shot]}
            drawn = {"sampler.name": "depleting", **shape, "tasks": None}
            if (path := self._task_file(data, drawn)) is not None:
                drawn = {"task_file": str(path)}
            for model, method in itertools.product(models[data.label], self._methods):
                contestant = f"{model.label} {METHODS.get(method, method)}"
                tree = self._with(data, {**drawn, "method": method})
                tree["backbone"] = {
                    key: Given(value, "model")
                    for key, value in model.record.resolved["backbone"].items()
                }
                for key, value in (
                    ("recipe", None),
                    ("image_size", model.record.resolved.get("image_size")),
                    ("training.epochs", 0),
                    ("training.init_from", str(model.folder)),
                    ("training.init_parts", ["backbone"]),
                ):
                    set_dotted(tree, key, Given(value, _DEFAULT))
                name = f"{contestant}, {data.label}, {shot}-shot, {QUERIES[shot]} queries"
                experiment = resolve_experiment(self._registry, tree)
                cells.append(Cell(name, experiment, data.fingerprint))
                places.append(_Place(data, shot, contestant))
        return places, cells

    def _with(self, data: _Data, options: Mapping[str, Any]) -> dict[str, Any]:
        tree = copy.deepcopy(dict(self._tree))
        set_dotted(tree, "dataset.name", Given(data.text, _DEFAULT))
        for key, value in options.items():
            set_dotted(tree, key, Given(value, _DEFAULT))
        return tree

    def _task_file(self, data: _Data, drawn: Mapping[str, Any]) -> Path | None:
        """Return the file of a set of tasks, ``None`` where none is published and none asked for.

        The folder asked for comes first; what is not there is taken from the published files, or
        drawn, and written there.
        """
        stem = f"{data.label}-{drawn['sampler.n_shot']}-shot".replace(" ", "-").replace("/", "-")
        folder = self._request.tasks_dir
        if folder is not None and (folder / f"{stem}.safetensors").exists():
            return folder / f"{stem}.safetensors"
        experiment = resolve_experiment(
            self._registry, self._with(data, {**drawn, "method": self._methods[0]})
        )
        pool = experiment.dataset.create().pool(experiment.settings.split)
        seed = experiment.settings.seed
        published = _published(stem, pool, seed)
        if folder is None:
            return published
        if published is not None:
            tasks = TaskSet.load(published)
        else:
            tasks = draw_tasks(experiment.sampler, pool, None, seed, self._workspace)
        folder.mkdir(parents=True, exist_ok=True)
        export_jsonl(tasks, pool, folder / f"{stem}.jsonl")
        tasks.save(folder / f"{stem}.safetensors")
        return folder / f"{stem}.safetensors"


def _published(stem: str, pool: ImagePool, seed: int) -> Path | None:
    """Return the file of tasks that comes with this package, if it is of these images and seed."""
    path = Path(str(files("fsframework.benchmarks"))) / "data" / "open_intervals"
    path /= f"{stem}.safetensors"
    if not path.exists():
        return None
    tasks = TaskSet.load(path)
    return path if (tasks.key_digest, tasks.seed) == (pool.key_digest, seed) else None


def _split_label(text: str) -> tuple[str, str]:
    """Return label and data set of ``[LABEL=]NAME[:ARG]``.

    >>> _split_label("cub=folder:birds"), _split_label("mine=folder:a"), _split_label("folder:a=b")
    (('CUB', 'folder:birds'), ('mine', 'folder:a'), ('folder:a=b', 'folder:a=b'))
    """
    label, equals, rest = text.partition("=")
    if not equals or ":" in label:
        return text, text
    known = {name.lower(): name for name in DATASETS}
    return known.get(label.strip().lower(), label.strip()), rest


def _comparisons(
    by_place: Mapping[_Place, CellResult],
    baseline: str,
    registry: Registry,
    tree: Mapping[str, Any],
) -> dict[tuple[str, int], Comparison]:
    """Compare the contestants of each set of tasks with the baseline, by accuracy."""
    given = tree.get("level")
    level = float(given.value) if isinstance(given, Given) else 0.95
    accuracy = resolve_component(registry, "statistic", "acc").create()
    found = {}
    for key, group in itertools.groupby(by_place.items(), lambda i: (i[0].data.label, i[0].shot)):
        sources = [f"{p.contestant}={r.folder}" for p, r in group if r.folder is not None]
        contestants = same_tasks(find_contestants(sources, Path()))
        labels = [c.label for c in contestants]
        if len(labels) < 2 or baseline not in labels:
            continue
        (measure, *_), _ = measures_of(contestants, {"acc": accuracy}, ["acc-R"])
        name = f"{key[0]}, {key[1]}-shot"
        found[key] = compare(labels, measure, task_set=name, level=level, baseline=baseline)
    return found


def _about(place: _Place, result: CellResult) -> dict[str, Any]:
    """Return what tells a row from others, and what must be known to read a value."""
    experiment = result.cell.experiment
    facts = {
        "dataset": place.data.label,
        "method": experiment.method.name,
        "backbone": experiment.backbone.called,
        "shot": place.shot,
    }
    if result.record is None:
        keys = ("run", "kind", "estimator", "level", "n_tasks", "n_images", "cautions")
        return facts | dict.fromkeys(keys)
    e = result.record.estimates["acc-R"]
    return {
        **facts,
        "run": str(result.folder),
        "kind": e.kind,
        "estimator": e.estimator,
        "level": e.level,
        "n_tasks": e.n_tasks,
        "n_images": e.n_images,
        "cautions": "; ".join(result.record.cautions),
    }


def _accuracies(by_place: Mapping[_Place, CellResult]) -> Table:
    lines, tasks = [], _numbers_of_tasks(by_place)
    for place, result in by_place.items():
        key = (place.data.label, place.shot)
        row = (place.data.label, str(place.shot), str(QUERIES[place.shot]), tasks[key])
        measured = None if result.record is None else result.record.estimates["acc-R"]
        quantity = None if measured is None else Quantity.of(measured)
        lines.append(
            Line(row, place.contestant, quantity, result.reason, about=_about(place, result))
        )
    return Table(
        "A",
        "Acc in percent, of tasks that share no image",
        ("data set", "shots", "queries", "tasks"),
        tuple(lines),
        (*_intervals(by_place), *cell_footnotes(by_place.values())),
        differences=False,
    )


def _intervals(by_place: Mapping[_Place, CellResult]) -> Iterator[str]:
    """Yield what the intervals of the accuracies are."""
    records = [result.record for result in by_place.values() if result.record is not None]
    estimates = [record.estimates["acc-R"] for record in records]
    found = dict.fromkeys(f"{100 * e.level:g} % {e.kind}, {e.estimator}" for e in estimates)
    if found:
        yield f"intervals: {'; '.join(found)}"


def _numbers_of_tasks(by_place: Mapping[_Place, CellResult]) -> dict[tuple[str, int], str]:
    """Return the number of tasks of each data set and shot, a dash where nothing was measured."""
    found: dict[tuple[str, int], str] = {}
    for place, result in by_place.items():
        key = (place.data.label, place.shot)
        if result.record is not None:
            found[key] = f"{result.record.tasks['R']['count']:,}"
        found.setdefault(key, "–")
    return found


def _differences(
    by_place: Mapping[_Place, CellResult],
    comparisons: Mapping[tuple[str, int], Comparison],
    baseline: str,
) -> Table:
    lines, tasks = [], _numbers_of_tasks(by_place)
    for place, result in by_place.items():
        if place.contestant == baseline:
            continue
        row = (place.data.label, str(place.shot), tasks[place.data.label, place.shot])
        key = (place.data.label, place.shot, baseline, place.contestant)
        comparison = comparisons.get(key[:2])
        measured, reason = None, result.reason or "its baseline could not be measured"
        if comparison is not None and place.contestant in comparison.values:
            pair, sign = comparison.pair(baseline, place.contestant)
            assert sign == 1
            measured, reason = Quantity.of(pair.difference), pair.note
        lines.append(
            Line(
                row,
                place.contestant,
                measured,
                "" if measured is not None else reason,
                printed_differences().get(key),
                about={"baseline": baseline, **_about(place, result)},
            )
        )
    counts = count(list(comparisons.values()))
    notes = (
        f"{baseline} less each, on equal tasks: positive where {baseline} is better",
        f"conclusive of {counts.pairs} comparisons: {counts.paired} paired, {counts.direct} by "
        f"whether the two open intervals overlap; {counts.holm} paired ones after Holm, within "
        "each set of tasks",
        *cell_footnotes(by_place.values()),
    )
    title = f"Difference of Acc from {baseline}, in points, with paired intervals"
    return Table("4", title, ("data set", "shots", "tasks"), tuple(lines), notes)
