"""MetaCoCo's tables: 3,000 tasks of its test classes, the printed values beside.

Source: Zhang et al. 2024, "MetaCoCo: A New Few-Shot Classification Benchmark with Spurious
Correlation", section 5.1 and Tables 2, 3 and 7.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import numpy as np

from fsframework.benchmarks.cells import Cell, CellResult, cell_footnotes
from fsframework.benchmarks.grids import (
    COMMAND_LINE,
    DEFAULT,
    CellMaker,
    installed,
    name_in,
    names_in,
    shots_in,
)
from fsframework.benchmarks.published import number_in, rows_of
from fsframework.benchmarks.tables import Line, Quantity, Table
from fsframework.components.registry import Registry
from fsframework.components.resolution import Given, resolve_component
from fsframework.errors import OptionError
from fsframework.pipeline.learning.model import resolve_device
from fsframework.pipeline.run import load_outcomes
from fsframework.statistics.estimation import task_values

__all__ = [
    "BACKBONES",
    "METHODS",
    "SIMILARITIES",
    "TABLES",
    "Grid",
    "Printed",
    "Request",
    "Slot",
    "make_grid",
    "make_tables",
    "printed_rows",
    "printed_similarities",
]

TABLES: Mapping[str, int] = MappingProxyType({"2": 5, "3": 5, "7": 10})
"""Each table's number of ways."""

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
    }
)
"""Registry names of the paper's methods that are plugins here, and the paper's spelling."""

BACKBONES: Mapping[str, str] = MappingProxyType(
    {
        "conv64f": "Conv64F",
        "resnet10": "ResNet10",
        "resnet12": "ResNet12",
        "resnet18": "ResNet18",
        "wrn-28-10": "WRN-28-10",
    }
)
"""Registry names of the paper's backbones, and its spelling."""

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
"""Registry names of the data sets of Table 1, and the paper's spelling."""

_DATASET, _SETS, _SET = "metacoco", 5, 600
_SHOTS = (1, 5)
_UNSAID_BACKBONE = "ResNet10"
"""Of Table 3: section 5.1 states it of the cross-domain methods, the table itself none."""

_TITLES = {
    "2": "Acc in percent, 5-way: few-shot and self-supervised methods",
    "3": "Acc in percent, 5-way: cross-domain and spurious-correlation methods",
    "7": "Acc in percent, 10-way: backbones from shallow to deep",
    "Not printed": "Acc in percent, 5-way: methods that the paper has not with this backbone",
}
_FURTHER, _FURTHER_WAYS = "Not printed", 5


@dataclass(frozen=True)
class Printed:
    """A row of one of the tables.

    Args:
        table: a key of ``TABLES``.
        method: in the paper's spelling; ``backbone`` likewise.
        values: by shot.
    """

    table: str
    method: str
    backbone: str
    values: Mapping[int, Quantity]


@functools.cache
def printed_rows() -> tuple[Printed, ...]:
    """Return every row of Tables 2, 3 and 7 in the order of print.

    Table 2 prints no intervals. Table 3 names no backbone.

    Raises:
        DataError: a file lacks a column or holds what it must not.

    >>> row = next(r for r in printed_rows() if (r.table, r.method) == ("3", "RelationNet"))
    >>> row.backbone, row.values[5].text()
    ('ResNet10', '57.73 ± 0.45')
    """
    folder = files("fsframework.benchmarks") / "data"
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
            found.append(Printed(table, row["method"], backbone, MappingProxyType(values)))
    return tuple(found)


@functools.cache
def printed_similarities() -> Mapping[str, float]:
    """Return the mean similarity of images and concepts that Table 1 prints, by data set.

    >>> printed_similarities()["MetaCoCo"], printed_similarities()["CUB-200-2011"]
    (0.142, 0.266)
    """
    path = files("fsframework.benchmarks") / "data" / "metacoco_table_1.csv"
    columns = ("dataset", "concept_image_similarity")
    return MappingProxyType(
        {
            row["dataset"]: number_in(row["concept_image_similarity"], -1, 1, where)
            for where, row in rows_of(path, columns)
        }
    )


@dataclass(frozen=True, kw_only=True)
class Request:
    """What of the tables is asked for; what is left out is all that the paper prints.

    Args:
        dataset: ``NAME[:ARG]``; by default ``metacoco``, as ``fsf data add`` names it.
        tables: of 2, 3 and 7.
        methods: registry names; of those that the paper has the printed rows are measured, the
            others on ``backbones``, or ``resnet12``.
        backbones: registry names; by default those of the rows.
        shots: by default 1 and 5.
    """

    dataset: str | None = None
    tables: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    shots: tuple[int, ...] = ()


@dataclass(frozen=True)
class Slot:
    """A place in the tables: registry names, and the row that is printed for it, if any."""

    table: str
    method: str
    backbone: str
    shot: int


@dataclass(frozen=True)
class Grid:
    """The cells, which of them stands where, and the printed rows that have none.

    Args:
        rows: by table the printed rows that were asked for, each with the registry names of
            method and backbone, or why it is not measured here.
        opened: whether the data set is there.
    """

    dataset: str
    shots: tuple[int, ...]
    cells: tuple[Cell, ...]
    slots: Mapping[Slot, int]
    rows: tuple[tuple[Printed, str, str, str], ...]
    opened: bool = True


def make_grid(
    registry: Registry, tree: Mapping[str, Any], request: Request, *, listed: bool = False
) -> Grid:
    """Enumerate the rows and check every option; nothing is run but drawing tasks.

    Args:
        listed: whether the cells are only to be listed: MetaCoCo need not be there then.

    Raises:
        FsfError: an option is unknown or not allowed, the data set cannot be opened, or no such
            tasks can be drawn from it.
    """
    for table in request.tables:
        if table not in TABLES:
            raise OptionError(f"--table {table}: must be one of {', '.join(TABLES)}")
    text = request.dataset or name_in(tree, "dataset") or _DATASET
    maker = _maker(registry, tree, text, request, listed=listed)
    methods = names_in(tree, "method", request.methods)
    backbones = names_in(tree, "backbone", request.backbones)
    for kind, names in (("method", methods), ("backbone", backbones)):
        for name in names:
            registry.find(kind, name.partition(":")[0])
    shots = shots_in(tree, request.shots, _SHOTS)
    rows = list(_rows(registry, request.tables, methods, backbones))
    slots = [
        (Slot(row.table, method, backbone, shot), TABLES[row.table])
        for row, method, backbone, reason in rows
        if not reason
        for shot in shots
    ]
    printed = {(row.method, row.backbone) for row in printed_rows()}
    slots += [
        (Slot(_FURTHER, method, backbone, shot), _FURTHER_WAYS)
        for method in methods
        for backbone in backbones or (["resnet12"] if method not in METHODS else [])
        if (METHODS.get(method), BACKBONES.get(backbone)) not in printed
        for shot in shots
    ]
    if not slots:
        if rows:
            reasons = "; ".join(dict.fromkeys(reason for *_, reason in rows if reason))
            raise OptionError(f"none of the rows asked for can be measured here: {reasons}")
        elsewhere = dict.fromkeys(row.table for row, *_ in _rows(registry, (), methods, backbones))
        there = f"; such rows are in Table {' and '.join(elsewhere)}" if elsewhere else ""
        raise OptionError(f"no row of the tables asked for has these methods and backbones{there}")
    keys = {slot: _add(maker, slot, n_way, request, tree) for slot, n_way in slots}
    number = {key: i for i, key in enumerate(maker.cells)}
    cells = tuple(maker.cells.values())
    resolve_device(cells[0].experiment.settings.device)  # a wrong name would fail in every cell
    opened = maker.opened is not None
    if opened:
        maker.check_tasks()
    places = {slot: number[key] for slot, key in keys.items()}
    return Grid(text, shots, cells, places, tuple(rows), opened)


def _maker(
    registry: Registry, tree: Mapping[str, Any], text: str, request: Request, *, listed: bool
) -> CellMaker:
    given = Given(text, COMMAND_LINE if request.dataset else DEFAULT)
    try:
        return CellMaker(registry, tree, given, methods=METHODS)
    except OptionError:
        # Not added yet; any other reason is found again.
        if not listed or text != _DATASET:
            raise
        named = {"name": given, "path": Given("PATH", DEFAULT)}
        return CellMaker(registry, {**tree, "dataset": named}, given, methods=METHODS, opens=False)


def _rows(
    registry: Registry, tables: Sequence[str], methods: Sequence[str], backbones: Sequence[str]
) -> Iterator[tuple[Printed, str, str, str]]:
    """Yield the printed rows asked for with the names here, or why a row cannot be measured."""
    named = {
        "method": {METHODS[name]: name for name in installed(registry, METHODS)},
        "backbone": {BACKBONES[name]: name for name in installed(registry, BACKBONES, "backbone")},
    }
    for row in printed_rows():
        method = named["method"].get(row.method, "")
        backbone = named["backbone"].get(row.backbone, "")
        if tables and row.table not in tables:
            continue
        # Without a choice of methods, the rows of those that are not here are listed as well.
        if methods and method not in methods:
            continue
        if backbones and backbone not in backbones:
            continue
        reason = "" if method else "not here"
        if method and not backbone:
            reason = f"not here: no {row.backbone}"
        yield row, method, backbone, reason


def _add(
    maker: CellMaker, slot: Slot, n_way: int, request: Request, tree: Mapping[str, Any]
) -> str:
    values = {
        "method": Given(slot.method, COMMAND_LINE if request.methods else DEFAULT),
        "backbone": Given(slot.backbone, COMMAND_LINE if request.backbones else DEFAULT),
        "sampler.n_shot": Given(slot.shot, COMMAND_LINE if request.shots else DEFAULT),
        "sampler.n_way": Given(n_way, DEFAULT),
    }
    if name_in(tree, "sampler") is None:
        values["sampler"] = Given("random", DEFAULT)
    if "tasks" not in tree:
        values["tasks"] = Given(_SETS * _SET, DEFAULT)
    if "image_size" not in tree:
        values["image_size"] = Given(84, DEFAULT)
    name = f"{_spelt(slot)}, {n_way}-way {slot.shot}-shot"
    return maker.add(name, values, method=slot.method, shot=slot.shot)


def _spelt(slot: Slot) -> str:
    method = METHODS.get(slot.method, slot.method)
    return f"{method}, {BACKBONES.get(slot.backbone, slot.backbone)}"


def make_tables(registry: Registry, grid: Grid, results: Sequence[CellResult]) -> list[Table]:
    """Return the tables, each printed row once, measured where it can be.

    Args:
        results: of ``grid.cells``, in their order.
    """
    statistic = resolve_component(registry, "statistic", "acc").create()
    lines: dict[str, list[Line]] = {}
    for row, method, backbone, reason in grid.rows:
        for shot in grid.shots:
            head = (row.method, row.backbone)
            printed = row.values.get(shot)
            facts = _facts(grid, head, row.table, shot)
            if reason:
                about = facts | _nothing()
                line = Line(head, f"{shot}-shot", None, reason, printed, about=about)
            else:
                result = results[grid.slots[Slot(row.table, method, backbone, shot)]]
                line = _line(head, facts, result, statistic, printed)
            lines.setdefault(row.table, []).append(line)
    for slot, number in grid.slots.items():
        if slot.table == _FURTHER:
            spelt = METHODS.get(slot.method, slot.method)
            head = (spelt, BACKBONES.get(slot.backbone, slot.backbone))
            facts = _facts(grid, head, slot.table, slot.shot)
            lines.setdefault(_FURTHER, []).append(
                _line(head, facts, results[number], statistic, None)
            )
    return [
        Table(
            table,
            _TITLES[table],
            ("method", "backbone"),
            tuple(found),
            (*_notes(grid, results, table), *cell_footnotes(results)),
            paper="MetaCoCo",
        )
        for table, found in lines.items()
    ]


def _facts(grid: Grid, head: tuple[str, str], table: str, shot: int) -> dict[str, Any]:
    """Return what tells a row from others."""
    method, backbone = head
    return {
        "dataset": grid.dataset,
        "method": method,
        "backbone": backbone,
        "way": TABLES.get(table, _FURTHER_WAYS),
        "shot": shot,
    }


def _nothing() -> dict[str, Any]:
    return dict.fromkeys(("run", "kind", "estimator", "level", "n_tasks", "n_images", "repeats"))


def _line(
    head: tuple[str, str],
    facts: Mapping[str, Any],
    result: CellResult,
    statistic: Any,
    printed: Quantity | None,
) -> Line:
    column = f"{facts['shot']}-shot"
    if result.record is None or result.folder is None:
        reason = f"failed: {result.reason}"
        return Line(head, column, None, reason, printed, about={**facts, **_nothing()})
    estimate = result.record.estimates["acc-R"]
    _, outcomes = load_outcomes(result.folder)
    values = task_values("acc-R", statistic, outcomes["R"])
    about = {
        **facts,
        "run": str(result.folder),
        "kind": estimate.kind,
        "estimator": estimate.estimator,
        "level": estimate.level,
        "n_tasks": estimate.n_tasks,
        "n_images": estimate.n_images,
        # Tasks are drawn one by one from the seed and their number: sets of them are repetitions.
        "repeats": [round(100 * float(np.mean(part)), 4) for part in np.array_split(values, _SETS)]
        if len(values) >= _SETS
        else None,
    }
    return Line(head, column, Quantity.of(estimate), "", printed, about=about)


def _notes(grid: Grid, results: Sequence[CellResult], table: str) -> Iterator[str]:
    experiment = grid.cells[0].experiment
    options, tasks = experiment.sampler.options, experiment.settings.tasks
    yield (
        f"{grid.dataset}: {tasks:,} tasks by the sampler {experiment.sampler.name}, "
        f"{options['n_query']} queries a class"
        if tasks
        else f"{grid.dataset}: all tasks of the sampler {experiment.sampler.name}"
    )
    if tasks and tasks >= _SETS:
        yield (
            f"five sets of {tasks // _SETS:,} tasks, as the paper's five times 600; tasks are "
            "drawn independently, so the interval is that of all of them; --json has the mean of "
            "each set"
        )
    names = dict.fromkeys(
        str(cell.experiment.recipe.name) if cell.experiment.recipe else "none"
        for cell in grid.cells
    )
    yield (
        f"trained by the recipe {', '.join(names)}; the paper's section 5 does not state its "
        "training, so that a difference to a printed value may be one of training"
    )
    if grid.dataset.partition(":")[0] != _DATASET:
        yield "printed values are of MetaCoCo, and these data go by another name"
    if table == "3":
        yield (
            f"Table 3 names no backbone; measured with {_UNSAID_BACKBONE}, which section 5.1 "
            "states of the cross-domain methods"
        )
    kinds = dict.fromkeys(
        (100 * e.level, e.kind) for r in results if r.record for e in [r.record.estimates["acc-R"]]
    )
    for level, kind in kinds:
        yield f"intervals of what is measured: {level:g} %, {kind}" + (
            "; Table 2 prints none" if table == "2" else ""
        )
