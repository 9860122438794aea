"""Figure 3 of MetaCoCo as an experiment: queries in the contexts of their support, or in others.

Source: Zhang et al. 2024, "MetaCoCo: A New Few-Shot Classification Benchmark with Spurious
Correlation", sections 4 and 5.3. The figure prints no numbers, so that none stand beside.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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
    of_model,
    shots_in,
)
from fsframework.benchmarks.tables import Line, Quantity, Table
from fsframework.components.registry import Registry
from fsframework.components.resolution import Given, resolve_component
from fsframework.errors import DataError, InfeasibleTask, OptionError
from fsframework.pipeline.charts import Bar, BarGroup, draw_bars
from fsframework.pipeline.learning.model import resolve_device
from fsframework.pipeline.run import load_outcomes
from fsframework.statistics.estimation import paired_by_support
from fsframework.values import Estimate, TaskSet

__all__ = ["KINDS", "Grid", "Request", "Slot", "draw_figure", "make_grid", "make_table"]

KINDS = ("iid", "ood")
"""Queries in the contexts of the support; queries in others."""

_SAMPLER = "context"
_EMBEDDED, _EMBEDDED_COLUMN, _EMBEDDED_QUERIES = "planted", "background", 10
_COLUMN = "context"
_METHODS = ("protonet", "baseline-plus-plus", "r2d2")
_SHOTS = (1, 5)
_DIFFERENCE = "IID − OOD"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for; what is left out comes from the options or the defaults.

    Args:
        dataset: ``NAME[:ARG]``; by default the embedded data set.
        column: metadata column of the contexts; by default ``context``, and ``background`` for
            the embedded data set.
        methods: by default ProtoNet, Baseline++ and R2D2.
        backbone: by default ``conv64f``.
        shots: by default 1 and 5.
        contexts: contexts of a class's support; by default the fewest that the data allow.
        model: a run folder whose backbone and weights are taken, so that nothing is trained.
    """

    dataset: str | None = None
    column: str | None = None
    methods: tuple[str, ...] = ()
    backbone: str | None = None
    shots: tuple[int, ...] = ()
    contexts: int | None = None
    model: Path | None = None


@dataclass(frozen=True)
class Slot:
    """A place in the figure."""

    method: str
    shot: int
    kind: str


@dataclass(frozen=True)
class Grid:
    """The cells, which of them stands where, and what was chosen.

    Args:
        dataset: ``NAME[:ARG]``; ``column`` of the contexts.
        contexts: of a class's support, by shot.
    """

    dataset: str
    column: str
    contexts: Mapping[int, int]
    cells: tuple[Cell, ...]
    slots: Mapping[Slot, int]


def make_grid(registry: Registry, tree: Mapping[str, Any], request: Request) -> Grid:
    """Enumerate the experiments and check every option; nothing is run but drawing a task.

    Raises:
        FsfError: an option is unknown or not allowed, the data set cannot be opened, or no such
            tasks can be drawn from it.
    """
    if request.model is not None and (request.backbone or name_in(tree, "backbone")):
        raise OptionError(f"--model {request.model} says which backbone to use; name no other")
    if name_in(tree, "sampler") not in (None, _SAMPLER):
        raise OptionError("sampler: this benchmark draws its tasks with the sampler context")
    text = request.dataset or name_in(tree, "dataset") or _EMBEDDED
    embedded = text.partition(":")[0] == _EMBEDDED
    maker = CellMaker(registry, tree, Given(text, COMMAND_LINE if request.dataset else DEFAULT))
    methods = names_in(tree, "method", request.methods) or installed(registry, _METHODS)
    if not methods:
        raise OptionError(f"none of {', '.join(_METHODS)} is installed; name others with --method")
    given = tree.get("sampler")
    given = given if isinstance(given, Mapping) else {}
    usual = {"column": _EMBEDDED_COLUMN, "n_query": _EMBEDDED_QUERIES} if embedded else {}
    shape = {key: Given(value, DEFAULT) for key, value in usual.items() if key not in given}
    if request.column is not None:
        shape["column"] = Given(request.column, COMMAND_LINE)
    asked: dict[str, Any] = {k: v for k, v in given.items() if k != "name"} | shape
    contexts, keys = {}, {}
    for shot in shots_in(tree, request.shots, _SHOTS):
        contexts[shot] = (
            _fewest_contexts(registry, maker, asked, shot)
            if request.contexts is None
            else request.contexts
        )
    for shot, method, kind in itertools.product(contexts, methods, KINDS):
        values = {
            "method": Given(method, COMMAND_LINE if request.methods else DEFAULT),
            "sampler": Given(_SAMPLER, DEFAULT),
            "sampler.n_shot": Given(shot, COMMAND_LINE if request.shots else DEFAULT),
            "sampler.kind": Given(kind, DEFAULT),
            "sampler.n_contexts": Given(
                contexts[shot], DEFAULT if request.contexts is None else COMMAND_LINE
            ),
            **{f"sampler.{key}": value for key, value in shape.items()},
        }
        if request.model is not None:
            values |= of_model(request.model, method)
        elif request.backbone is not None:
            values["backbone"] = Given(request.backbone, COMMAND_LINE)
        name = f"{method}, {text}, {shot}-shot, {kind.upper()}"
        keys[Slot(method, shot, kind)] = maker.add(name, values, method=method, shot=shot)
    number = {key: i for i, key in enumerate(maker.cells)}
    cells = tuple(maker.cells.values())
    resolve_device(cells[0].experiment.settings.device)  # a wrong name would fail in every cell
    return Grid(
        text,
        str(cells[0].experiment.sampler.options["column"]),
        contexts,
        cells,
        {slot: number[key] for slot, key in keys.items()},
    )


def _fewest_contexts(
    registry: Registry, maker: CellMaker, options: Mapping[str, Any], shot: int
) -> int:
    """Return the least number of contexts a class with which a task can be drawn.

    Raises:
        InfeasibleTask: there is none; the reason is that of one context.
    """
    if "n_contexts" in options:
        given = options["n_contexts"]
        value = str(given.value if isinstance(given, Given) else given)
        if not value.isdecimal():
            raise OptionError(f"sampler.n_contexts must be a whole number, not {value!r}")
        return int(value)
    split = maker.split
    pool = maker.dataset.pool(split)
    first: InfeasibleTask | None = None
    for number in range(1, shot + 1):
        tree = {**options, "name": _SAMPLER, "n_shot": shot, "n_contexts": number}
        sampler = resolve_component(registry, "sampler", tree).create()
        try:
            sampler.draw(pool, 1, 0)
        except InfeasibleTask as error:
            first = first or error
        else:
            return number
    assert first is not None
    raise InfeasibleTask(f"{shot}-shot, split {split}: {first}")


def make_table(
    registry: Registry, grid: Grid, results: Sequence[CellResult]
) -> tuple[Table, dict[tuple[str, int], Estimate]]:
    """Return accuracies with both kinds of queries and their paired difference.

    Args:
        results: of ``grid.cells``, in their order.

    Returns:
        The table, and the difference by method and shot where it could be had.
    """
    statistic = resolve_component(registry, "statistic", "acc").create()
    lines: list[Line] = []
    differences: dict[tuple[str, int], Estimate] = {}
    tasks: TaskSet | None = None
    for method, shot in dict.fromkeys((slot.method, slot.shot) for slot in grid.slots):
        row = (str(shot), method)
        both = [results[grid.slots[Slot(method, shot, kind)]] for kind in KINDS]
        for kind, result in zip(KINDS, both, strict=True):
            found = None if result.record is None else result.record.estimates["acc-R"]
            measured = None if found is None else Quantity.of(found)
            reason = f"failed: {result.reason}" if result.reason else ""
            about = _about(grid, result, shot, found)
            lines.append(Line(row, f"Acc {kind.upper()}", measured, reason, about=about))
        reason = next((r.reason for r in both if r.reason), "")
        difference = None
        if not reason:
            loaded = [_outcomes(result) for result in both]
            tasks = loaded[0][0]
            level = both[0].cell.experiment.settings.level
            try:
                difference = paired_by_support(
                    "acc IID - OOD", statistic, loaded[0], loaded[1], level
                )
                differences[method, shot] = difference
            except DataError as error:
                reason = str(error)
        measured = None if difference is None else Quantity.of(difference)
        about = _about(grid, both[0], shot, difference, both[1])
        lines.append(Line(row, _DIFFERENCE, measured, reason, about=about))
    table = Table(
        "Figure 3",
        "Acc in percent, queries in the contexts of their support (IID) or in others (OOD)",
        ("shot", "method"),
        tuple(lines),
        (*_notes(grid, differences, tasks), *cell_footnotes(results)),
        differences=False,
        paper="MetaCoCo",
    )
    return table, differences


def _outcomes(result: CellResult) -> tuple[TaskSet, Any]:
    assert result.folder is not None
    tasks, outcomes = load_outcomes(result.folder)
    return tasks["R"], outcomes["R"]


def _about(
    grid: Grid,
    result: CellResult,
    shot: int,
    estimate: Estimate | None,
    less: CellResult | None = None,
) -> dict[str, Any]:
    """Return what tells a row from others, and what must be known to read it.

    Args:
        less: what is subtracted, of a difference.
    """
    facts = ("kind", "estimator", "level", "n_tasks", "n_images", "paired")
    experiment = result.cell.experiment
    return {
        "dataset": grid.dataset,
        "column": grid.column,
        "method": experiment.method.name,
        "backbone": experiment.backbone.called,
        "shot": shot,
        "contexts": grid.contexts[shot],
        "run": _folder(result),
        "minus_run": _folder(less),
        **{fact: None if estimate is None else getattr(estimate, fact) for fact in facts},
    }


def _folder(result: CellResult | None) -> str | None:
    return None if result is None or result.folder is None else str(result.folder)


def _notes(
    grid: Grid, differences: Mapping[tuple[str, int], Estimate], tasks: TaskSet | None
) -> list[str]:
    notes = [
        f"contexts: the column {grid.column} of {grid.dataset}; support and queries of a class: "
        + ", ".join(
            f"each of {number} {'context' if number == 1 else 'contexts'} at {shot}-shot"
            for shot, number in grid.contexts.items()
        )
    ]
    if tasks is not None:
        notes.append(
            f"{len(tasks):,} pairs of {tasks.n_way}-way tasks with {tasks.n_query} queries a "
            "class; both tasks of a pair have the same classes and the same support"
        )
    kinds = dict.fromkeys((100 * e.level, e.kind) for e in differences.values())
    speaks = {"closed": "they speak of this data set", "open": "they speak of its distribution"}
    notes += [
        f"intervals of the differences: {level:g} %, Student's t over the pairs, {kind} "
        f"({speaks[kind]})"
        for level, kind in kinds
    ]
    above = sum(e.low > 0 for e in differences.values())
    below = sum(e.high < 0 for e in differences.values())
    if differences:
        notes.append(
            f"IID above OOD with the whole interval in {above} of {len(differences)} cases, below "
            f"in {below}"
        )
    return notes


def draw_figure(table: Table, path: Path) -> None:
    """Draw the table as bars with intervals, a panel a number of shots, into a PNG file.

    Raises:
        OptionError: the file's name does not end in .png, or its folder is not there.
    """
    groups: dict[str, list[BarGroup]] = {}
    for (shot, method), lines in itertools.groupby(table.lines, lambda line: line.row):
        found = {line.column: line.measured for line in lines}
        bars = [
            Bar(
                kind.upper(),
                np.nan if quantity is None else quantity.value,
                np.nan if quantity is None else quantity.low,
                np.nan if quantity is None else quantity.high,
            )
            for kind in KINDS
            for quantity in [found[f"Acc {kind.upper()}"]]
        ]
        difference = found[_DIFFERENCE]
        below = "" if difference is None else difference.text(signed=True)
        groups.setdefault(f"{shot}-shot", []).append(BarGroup(method, tuple(bars), below))
    draw_bars(groups, path, axis="Acc in %", below="below the names: IID less OOD, in points")
