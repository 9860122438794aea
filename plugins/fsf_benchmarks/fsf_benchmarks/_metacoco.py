"""MetaCoCo's tables and figures: 3,000 tasks of its test classes, with the printed values.

Source: Zhang et al. 2024, "MetaCoCo: A New Few-Shot Classification Benchmark with Spurious
Correlation", sections 5.1 and 5.3, Tables 1-5 and 7, Figures 4 and 5.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from fsf_benchmarks._labels import recipe_for
from fsf_benchmarks._metacoco_counts import COUNTED, counted
from fsf_benchmarks._metacoco_figures import FIGURES, drawn, shapes
from fsf_benchmarks._published import number_in, rows_of
from fsf_benchmarks._sentences import beside_printed
from fsf_benchmarks.interfaces import (
    Answer,
    Benchmark,
    BenchmarkResults,
    Cell,
    ExperimentDescription,
    ExperimentResult,
    PrintedValue,
    Selection,
)
from fsf_reports.values import Entry, FigureDeclaration, Quantity, TableDeclaration
from fsframework.errors import DataError, InfeasibleTask, OptionError
from fsframework.statistics.facts import called
from fsframework.values import Estimate, footnotes

__all__ = [
    "BACKBONES",
    "METHODS",
    "SIMILARITIES",
    "TABLES",
    "MetaCoCo",
    "PrintedRow",
    "printed_rows",
    "printed_similarities",
]

TABLES: Mapping[str, int] = MappingProxyType({"2": 5, "3": 5, "7": 10})
"""Number of ways by table."""

METHODS: Mapping[str, str] = MappingProxyType(
    {
        "baseline": "Baseline",
        "baseline-plus-plus": "Baseline++",
        "rfs": "RFS-simple",
        "maml": "MAML",
        "r2d2": "R2D2",
        "anil": "ANIL",
        "boil": "BOIL",
        "dn4": "DN4",
        "can": "CAN",
        "protonet": "ProtoNet",
        "relationnet": "RelationNet",
        "matchingnet": "MatchingNet",
        "versa": "Versa",
        "mtl": "MTL",
        "sib": "SIB",
        "covamnet": "CovaMNet",
        "deepbdc": "DeepBDC",
        "fgfl": "FGFL",
        "frn": "FRN",
        "gnn": "GNN",
        "tpn": "TPN",
        "putm": "PUTM",
        "deta": "TSA+DETA",
        "cdkt:ml": "CDKT+ML",
        "cdkt:pl": "CDKT+PL",
        "neg-cosine": "Neg-Cosine",
        "skd": "SKD-GEN0",
        "contrastive-centroids": "Yang et al",
        "lp-ft-fb": "LP-FT-FB",
        "moco": "MoCo",
        "simclr": "SimCLR",
        "linear": "Linear",
        "cosine": "Cosine",
        "knn": "k -NN",
        **{
            f"{wrapper}:{base}": f"{spelt} +{wrapper.upper()}"
            for wrapper in ("ft", "ata")
            for base, spelt in {"relationnet": "RelationNet", "gnn": "GNN", "tpn": "TPN"}.items()
        },
        "ifsl:maml": "MAML +IFSL",
        "ifsl:matchingnet": "MatchingNet +IFSL",
        "ifsl:sib": "SIB +IFSL",
        "ifsl:mtl": "MTL +IFSL",
        "ssfsl:protonet": "ProtoNet + rot. + SSFSL",
        "ssfsl-jigsaw:protonet": "ProtoNet + jig. + SSFSL",
        "ssfsl:ssfsl-jigsaw:protonet": "ProtoNet + rot. + jig. + SSFSL",
        "sla:protonet": "ProtoNet + rot. + SLA",
        "bf3s:protonet": "ProtoNet + rot. + BF3S",
        "hts:protonet": "ProtoNet + rot. + HTS",
    }
)
"""The paper's methods that are plugins here: ``NAME`` or ``NAME:ARG``, and the paper's spelling."""

BACKBONES: Mapping[str, str] = MappingProxyType(
    {
        "conv64f": "Conv64F",
        "resnet10": "ResNet10",
        "resnet12": "ResNet12",
        "resnet18": "ResNet18",
        "resnet50": "ResNet50",
        "wrn-28-10": "WRN-28-10",
    }
)
"""The paper's backbones: registry name and the paper's spelling."""

SIMILARITIES: Mapping[str, str] = MappingProxyType(
    {
        "miniimagenet": "miniImageNet",
        "cifar-fs": "CIFAR-FS",
        "stanford-dogs": "Stanford Dogs",
        "stanford-cars": "Stanford Cars",
        "aircraft": "Aircraft",
        "cub": "CUB-200-2011",
        "dtd": "Describable Textures",
        "traffic-signs": "Traffic Signs",
        "omniglot": "Omniglot",
        "fungi": "Fungi",
        "vgg-flower": "VGG Flower",
        "mscoco": "MSCOCO",
        "quickdraw": "Quick Draw",
        "cropdiseases": "CropDiseases",
        "chestx": "ChestX",
        "eurosat": "EuroSAT",
        "isic": "ISIC2018",
        "metacoco": "MetaCoCo",
    }
)
"""The data sets of Table 1: registry name and the paper's spelling."""

_DATASET, _PAPER_NAME = "metacoco", "MetaCoCo"
_SAMPLER = "random"
_SETS, _SET = 5, 600
_SHOTS = (1, 5)
_UNSAID_BACKBONE = "ResNet10"
"""Of Table 3: section 5.1 states it for the cross-domain methods; the table names none."""

_TITLES = {
    "2": "Acc in percent, 5-way: few-shot and self-supervised methods",
    "3": "Acc in percent, 5-way: cross-domain and spurious-correlation methods",
    "7": "Acc in percent, 10-way: backbones from shallow to deep",
    "Not printed": "Acc in percent, 5-way: methods not printed with this backbone",
    "Figure 4": "Acc in percent by backbone",
    "Figure 5": "Acc in percent by ways and by shots of the tasks",
}
_FURTHER, _FURTHER_WAYS = "Not printed", 5


@dataclass(frozen=True)
class PrintedRow:
    """A row of one of the tables.

    Args:
        table: a key of ``TABLES``.
        method: in the paper's spelling, as is ``backbone``.
        values: printed accuracy by shot.
    """

    table: str
    method: str
    backbone: str
    values: Mapping[int, Quantity]


@functools.cache
def printed_rows() -> tuple[PrintedRow, ...]:
    """Return every row of Tables 2, 3 and 7 in the order of print.

    Table 2 prints no intervals. Table 3 names no backbone.

    Raises:
        DataError: a file lacks a column or contains an invalid value.

    >>> row = next(r for r in printed_rows() if (r.table, r.method) == ("3", "RelationNet"))
    >>> row.backbone, row.values[5].text()
    ('ResNet10', '57.73 ± 0.45')
    """
    folder = files("fsf_benchmarks") / "data"
    found = []
    for table in TABLES:
        columns = ["method", *(f"acc_{shot}shot_percent" for shot in _SHOTS)]
        for where, row in rows_of(folder / f"metacoco_table_{table}.csv", columns):
            values = {}
            for shot in _SHOTS:
                value = number_in(row[f"acc_{shot}shot_percent"], 0, 100, where)
                half = row.get(f"ci95_{shot}shot")
                values[shot] = (
                    Quantity(value)
                    if half is None
                    else Quantity.around(value, number_in(half, 0, 100, where))
                )
            backbone = row.get("backbone", _UNSAID_BACKBONE)
            found.append(PrintedRow(table, row["method"], backbone, MappingProxyType(values)))
    return tuple(found)


@functools.cache
def printed_similarities() -> Mapping[str, float]:
    """Return the mean similarity of images and concepts that Table 1 prints, by data set.

    >>> printed_similarities()["MetaCoCo"], printed_similarities()["CUB-200-2011"]
    (0.142, 0.266)
    """
    path = files("fsf_benchmarks") / "data" / "metacoco_table_1.csv"
    columns = ("dataset", "concept_image_similarity")
    return MappingProxyType(
        {
            row["dataset"]: number_in(row["concept_image_similarity"], -1, 1, where)
            for where, row in rows_of(path, columns)
        }
    )


class MetaCoCo(Benchmark):
    """Accuracy of methods and backbones on MetaCoCo's test classes (Tables 1-5, 7, Figures 4, 5).

    Each row is measured with its printed backbone on 3,000 random tasks: 5-way in Tables 2 and 3,
    10-way in Table 7. Rows of methods that are not installed show only the printed values. Figure 4
    compares backbones, Figure 5 ways and shots. Tables 1, 4 and 5 count images and run nothing.
    Source: Zhang et al. 2024, sections 5.1 and 5.3, appendix B.

    Args:
        only: what to make, from 1, 2, 3, 4, 5, 7, figure-4 and figure-5; empty for 2, 3 and 7.
        ways: of the tasks of Figure 5, in which the number of ways varies.

    Raises:
        OptionError: ``only`` contains another table, or a number of ways is below 2.
    """

    axes: ClassVar[tuple[str, ...]] = ("dataset", "method", "backbone", "shot")
    reserved: ClassVar[tuple[str, ...]] = ("sampler.n_way",)

    def __init__(
        self, *, only: tuple[str, ...] = (), ways: tuple[int, ...] = (5, 10, 15, 20)
    ) -> None:
        known = (*sorted((*TABLES, *COUNTED)), *FIGURES)
        for part in only:
            if part not in known:
                raise OptionError(f"only: must be among {', '.join(known)}, not {part!r}")
        if not ways or min(ways) < 2:
            raise OptionError(f"ways: must be numbers of at least 2, not {ways}")
        self.only = only
        self.ways = ways
        self._tables = tuple(part for part in only or TABLES if part in TABLES)
        self._figures = tuple(name for part, name in FIGURES.items() if part in only)
        self._counts = tuple(part for part in only if part in COUNTED)

    def check(self, selection: Selection) -> None:
        """Draw a task of every shape, unless the user names another sampler.

        Raises:
            InfeasibleTask: a split is missing, or no such task can be drawn from it.
        """
        from fsframework.api.data import draw

        given = selection.options.get("sampler", {})
        if not isinstance(given, Mapping) or "name" in given:
            return
        name = _dataset(selection)
        data = selection.open_dataset(name)
        split = selection.options.get("split") or ("test" if "test" in data.splits else "all")
        try:
            pool = data.pool(split)
        except DataError as error:
            raise InfeasibleTask(f"{name}: {error}") from None
        slots = self._slots(selection)
        for way, shot in dict.fromkeys((s.tags["way"], s.tags["shot"]) for s in slots):
            sampler = {**given, "name": _SAMPLER, "n_way": way, "n_shot": shot}
            try:
                draw(sampler, pool, tasks=1)
            except InfeasibleTask as error:
                shape = f"{way}-way {shot}-shot"
                raise InfeasibleTask(f"{name}, split {split}, {shape}: {error}") from None

    def experiments(self, selection: Selection) -> list[ExperimentDescription]:
        """Describe the printed rows asked for, and methods and backbones that no table prints."""
        found = list(self._slots(selection))
        if found or (self._counts and not (self._tables or self._figures)):
            return found
        if rows := list(self._rows(selection)):
            reasons = "; ".join(dict.fromkeys(reason for *_, reason in rows if reason))
            raise OptionError(f"none of the rows asked for can be measured here: {reasons}")
        everywhere = _rows(selection, ())
        elsewhere = dict.fromkeys(row.table for row, *_ in everywhere)
        there = f"; such rows are in Table {' and '.join(elsewhere)}" if elsewhere else ""
        raise OptionError(f"no row of the tables asked for has these methods and backbones{there}")

    def _rows(self, selection: Selection) -> Iterator[tuple[PrintedRow, str, str, str]]:
        return _rows(selection, self._tables) if self._tables else iter(())

    def _slots(self, selection: Selection) -> Iterator[ExperimentDescription]:
        shots = selection.shots or _SHOTS
        for row, method, backbone, reason in self._rows(selection):
            for shot in () if reason else shots:
                shape = TABLES[row.table], shot
                yield _described(selection, row.table, method, backbone, shape)
        for name in self._figures:
            for method, backbone, *shape in shapes(name, selection, self.ways):
                yield _described(selection, name, method, backbone, shape)
        printed = {(row.method, row.backbone) for row in printed_rows()}
        for method in selection.methods if self._tables else ():
            usual = () if method in METHODS else ("resnet12",)
            for backbone in selection.backbones or usual:
                if (METHODS.get(method), BACKBONES.get(backbone)) not in printed:
                    for shot in shots:
                        shape = _FURTHER_WAYS, shot
                        yield _described(selection, _FURTHER, method, backbone, shape)

    def answer(self, results: BenchmarkResults, tables: Sequence[TableDeclaration]) -> Answer:
        """Compare the methods on equal tasks by accuracy."""
        names = {
            "method": lambda result: _spelt(result.tags)[0],
            "backbone": lambda result: _spelt(result.tags)[1],
            "way": lambda result: result.tags["way"],
            "shot": lambda result: result.tags["shot"],
        }
        return Answer.comparing(results, names, "acc", beside_printed(tables))

    def tables(self, results: BenchmarkResults) -> list[TableDeclaration]:
        """Declare the tables: each printed row once, measured where possible."""
        selection = results.selection
        entries: dict[str, list[Entry]] = {}
        for row, method, backbone, reason in self._rows(selection):
            for shot in selection.shots or _SHOTS:
                printed = row.values.get(shot)
                facts = _facts(selection, row.table, (row.method, row.backbone), shot)
                if reason:
                    entry = _absent(facts, reason, printed)
                else:
                    tags = {"table": row.table, "method": method, "backbone": backbone}
                    entry = _entry(facts, results.where(**tags, shot=shot)[0], printed)
                entries.setdefault(row.table, []).append(entry)
        for result in results.where(table=_FURTHER):
            facts = _facts(selection, _FURTHER, _spelt(result.tags), result.tags["shot"])
            entries.setdefault(_FURTHER, []).append(_entry(facts, result, None))
        for name in self._figures:
            entries[name] = [_of_figure(selection, one) for one in results.where(table=name)]
        measured = [
            TableDeclaration(
                f"Table {table}" if table in TABLES else table,
                _TITLES[table],
                ("method", "backbone"),
                tuple(found),
                (*_notes(results, table), *footnotes(results.cautions)),
                source="MetaCoCo",
            )
            for table, found in entries.items()
        ]
        return [*self._counted(selection), *measured]

    def _counted(self, selection: Selection) -> Iterator[TableDeclaration]:
        name = _dataset(selection)
        for table in self._counts:
            printed_as = SIMILARITIES.get(name.partition(":")[0], "")
            yield counted(table, selection.open_dataset(name), name, printed_as)

    def figures(self, results: BenchmarkResults) -> list[FigureDeclaration]:
        """Declare Figures 4 and 5, if they were asked for."""

        def measured(result: ExperimentResult) -> Quantity | None:
            estimate = _accuracy(result)
            return None if estimate is None else Quantity.of(estimate)

        return [drawn(name, results.where(table=name), _spelt, measured) for name in self._figures]

    def printed(self, cell: Cell) -> Iterator[PrintedValue]:
        """Yield the accuracies of Tables 2, 3 and 7 for a cell."""
        sampler, head = cell.sampler, (METHODS.get(cell.method), BACKBONES.get(cell.backbone))
        if not cell.is_of({_DATASET: _PAPER_NAME}) or sampler.get("name") != _SAMPLER:
            return
        for row in printed_rows():
            same = (row.method, row.backbone) == head and TABLES[row.table] == sampler["n_way"]
            value = row.values.get(sampler["n_shot"]) if same else None
            if value is not None:
                apart = "no backbone named" if row.table == "3" else ""
                name = f"acc-{_SAMPLER}"
                yield PrintedValue(name, value, _PAPER_NAME, f"Table {row.table}", apart)


def _dataset(selection: Selection) -> str:
    asked = selection.only("dataset")
    return asked.value if asked else _DATASET


def _rows(
    selection: Selection, tables: tuple[str, ...]
) -> Iterator[tuple[PrintedRow, str, str, str]]:
    """Yield the printed rows asked for with their registry names, or why one cannot be measured."""
    installed = selection.installed.get("method", ())
    methods = {
        spelt: name for name, spelt in METHODS.items() if name.partition(":")[0] in installed
    }
    backbones = {BACKBONES[name]: name for name in selection.usable("backbone", BACKBONES)}
    for row in printed_rows():
        method, backbone = methods.get(row.method, ""), backbones.get(row.backbone, "")
        if tables and row.table not in tables:
            continue
        # Without a choice of methods, rows of methods that are not installed are listed as well.
        if selection.methods and method not in selection.methods:
            continue
        if selection.backbones and backbone not in selection.backbones:
            continue
        reason = "" if method else "not here"
        if method and not backbone:
            reason = f"not here: no {row.backbone}"
        yield row, method, backbone, reason


def _described(
    selection: Selection, table: str, method: str, backbone: str, shape: Sequence[int]
) -> ExperimentDescription:
    way, shot = shape
    dataset = _dataset(selection)
    tags = {
        "table": table,
        "dataset": dataset,
        "method": method,
        "backbone": backbone,
        "way": way,
        "shot": shot,
    }
    arguments = {key: value for key, value in tags.items() if key != "table"}
    if dataset.partition(":")[0] != _DATASET:
        arguments |= recipe_for(selection, _PAPER_NAME)
    defaults = {"sampler": _SAMPLER, "tasks": _SETS * _SET, "image_size": 84}
    name = f"{', '.join(_spelt(tags))}, {way}-way {shot}-shot"
    return ExperimentDescription(name, arguments, defaults, tags)


def _spelt(tags: Mapping[str, Any]) -> tuple[str, str]:
    """Return method and backbone, in the paper's spelling if it has them."""
    method, backbone = tags["method"], tags["backbone"]
    return METHODS.get(method, method), BACKBONES.get(backbone, backbone)


def _facts(selection: Selection, table: str, head: tuple[str, str], shot: int) -> dict[str, Any]:
    """Return the facts that identify a row."""
    return {
        "dataset": _dataset(selection),
        "method": head[0],
        "backbone": head[1],
        "way": TABLES.get(table, _FURTHER_WAYS),
        "shot": shot,
    }


def _of_figure(selection: Selection, result: ExperimentResult) -> Entry:
    """Return a value of a figure, beside what a table prints for the same cell."""
    head, way, shot = _spelt(result.tags), result.tags["way"], result.tags["shot"]
    facts = {**_facts(selection, "", head, shot), "way": way}
    rows = (r for r in printed_rows() if (r.method, r.backbone, TABLES[r.table]) == (*head, way))
    printed = next((row.values[shot] for row in rows if shot in row.values), None)
    return replace(_entry(facts, result, printed), column=f"{way}-way {shot}-shot")


_KNOWN_OF_RUNS = ("run", "scope", "estimator", "level", "n_tasks", "n_images", "repeats")


def _absent(facts: Mapping[str, Any], reason: str, printed: Quantity | None) -> Entry:
    row = (facts["method"], facts["backbone"])
    about = {**facts, **dict.fromkeys(_KNOWN_OF_RUNS)}
    return Entry(row, f"{facts['shot']}-shot", None, reason, printed, about=about)


def _entry(facts: Mapping[str, Any], result: ExperimentResult, printed: Quantity | None) -> Entry:
    estimate = _accuracy(result)
    if estimate is None:
        return _absent(facts, f"failed: {result.reason}", printed)
    about = {
        **facts,
        "run": str(result.folder),
        "scope": estimate.scope,
        "estimator": estimate.estimator,
        "level": estimate.level,
        "n_tasks": estimate.n_tasks,
        "n_images": estimate.n_images,
        "repeats": _repeats(result, estimate),
    }
    row = (facts["method"], facts["backbone"])
    return Entry(row, f"{facts['shot']}-shot", Quantity.of(estimate), "", printed, about=about)


def _repeats(result: ExperimentResult, estimate: Estimate) -> list[float] | None:
    """Return the accuracy of each set of tasks of a single model, in percent.

    Each task depends only on the seed and its number, so sets of tasks are repetitions.
    """
    if estimate.n_seeds > 1:
        return None
    values = result.outcomes()[estimate.arms[0]].task_accuracy
    if len(values) < _SETS:
        return None
    return [round(100 * float(np.mean(part)), 4) for part in np.array_split(values, _SETS)]


def _accuracy(result: ExperimentResult) -> Estimate | None:
    """Return the accuracy in the control arm, or in the only arm."""
    return next((e for e in result.estimates.values() if e.statistic == "acc"), None)


def _notes(results: BenchmarkResults, table: str) -> Iterator[str]:
    first = results[0]
    dataset, sampler = first.tags["dataset"], first.options["sampler"]
    tasks = first.options["tasks"]
    yield (
        f"{dataset}: {tasks:,} tasks by the sampler {sampler['name']}, "
        f"{called({'queries': str(sampler['n_query'])})}"
        if tasks
        else f"{dataset}: all tasks of the sampler {sampler['name']}"
    )
    if tasks and tasks >= _SETS:
        yield (
            f"five sets of {tasks // _SETS:,} tasks, like the paper's five times 600; tasks are "
            "drawn independently, so the interval is over all of them; --json has the mean of "
            "each set"
        )
    names = dict.fromkeys(str(result.options["recipe"] or "none") for result in results)
    yield (
        f"recipe: {', '.join(names)}; the paper's section 5 does not state its training, so a "
        "difference from a printed value may come from the training"
    )
    if dataset.partition(":")[0] != _DATASET:
        yield "printed values are for MetaCoCo; this data set has another name"
    if table == "3":
        yield (
            f"Table 3 names no backbone; measured with {_UNSAID_BACKBONE}, which section 5.1 "
            "states for the cross-domain methods"
        )
    if table in FIGURES.values():
        yield (
            "the figure prints no numbers; printed values are those of Tables 2, 3 and 7 for the "
            "same cells. The paper names neither its methods nor, for Figure 5, the ways and shots"
        )
    estimates = [e for result in results if (e := _accuracy(result)) is not None]
    for level, scope in dict.fromkeys((100 * e.level, e.scope) for e in estimates):
        yield f"measured intervals: {level:g} %, {scope}" + (
            "; Table 2 prints none" if table == "2" else ""
        )
