"""`fsf benchmark`: published experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import (
    DROPPING,
    folder_options,
    group,
    json_option,
    registry_with,
    set_options,
    shared,
    tree_of,
)

if TYPE_CHECKING:
    from fsframework.benchmarks.cells import Cell, CellResult
    from fsframework.benchmarks.tables import Table

__all__ = ["benchmark"]

_dry_run_option = click.option(
    "--dry-run", is_flag=True, help="List the cells, and which of them are done; run nothing."
)

_output_option = click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the tables: .md, .csv (a row a value), .json (with all there is) or .tex; a "
    "file that is there is replaced.",
)


@group()
def benchmark() -> None:
    """Measure the tables of a paper on your data, the printed values beside.

    \b
    Examples:
      fsf benchmark fewstab
      fsf benchmark fewstab --dataset miniImageNet=folder:./mini --agreement
      fsf benchmark open-intervals
      fsf benchmark contexts --dataset folder:./images --column place
      fsf benchmark metacoco --table 2 --method protonet
    """


@benchmark.command("fewstab", epilog="Options left out come from --config, then from the defaults.")
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    metavar="[LABEL=]NAME[:ARG]",
    help="Data set; repeatable. LABEL (miniImageNet, tieredImageNet, CUB-200) says which printed "
    "values stand beside, as in CUB-200=folder:./birds.  [default: planted]",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="Few-shot method; repeatable.  [default: those of the paper's ten that are installed]",
)
@click.option(
    "--backbone",
    "backbones",
    multiple=True,
    metavar="NAME[:ARG]",
    help="Feature extractor; repeatable.  [default: resnet12, the paper's; conv64f for planted]",
)
@click.option(
    "--shot",
    "shots",
    multiple=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Support images a class, in training and test; repeatable.  [default: 1 and 5]",
)
@click.option(
    "--detector",
    "detectors",
    multiple=True,
    metavar="NAME[:ARG]",
    help="Where the attributes come from; repeatable, and Tables 3, 4, S5, S6 and S7 show the "
    "first.  [default: the data set's own words, else vit-gpt2]",
)
@click.option(
    "--sampler",
    metavar="NAME",
    help="fewstab, or fewstab-published for tasks as the published code draws them.  "
    "[default: fewstab]",
)
@click.option(
    "--tasks",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tasks of each kind.  [default: 3000, the paper's; 600 for planted]",
)
@shared("seed", "device")
@shared("query-batch", *DROPPING, "offline")
@click.option(
    "--ablation",
    is_flag=True,
    help="Also Tables S5 and S6: the accuracy gap by construction of support and queries, 5-shot "
    "unless --shot is given.",
)
@click.option(
    "--agreement",
    is_flag=True,
    help="Also Tables 4 and 6: rank correlations over the methods, with an interval.",
)
@set_options
@folder_options
@_output_option
@_dry_run_option
@json_option
@click.pass_context
def fewstab(
    context: click.Context,
    /,
    datasets: tuple[str, ...],
    methods: tuple[str, ...],
    backbones: tuple[str, ...],
    shots: tuple[int, ...],
    detectors: tuple[str, ...],
    ablation: bool,
    agreement: bool,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    runs_dir: Path | None,
    cache_dir: Path | None,
    output: Path | None,
    dry_run: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Measure FewSTAB's tables (Zheng et al. 2024), the printed values beside.

    \b
    Trains and evaluates every method on every data set at every number of shots,
    and prints Tables 3 (wAcc-A and wAcc-R), S7 (Acc and wAcc-A) and S8 (wAcc-A by
    detector). Every cell of this grid is a run as fsf run makes it: finished ones
    are taken as they are, and after an interruption the same command goes on. A
    cell that fails gives its reason in its place; then the exit code is 1.

    \b
    Examples:
      fsf benchmark fewstab --tasks 200
      fsf benchmark fewstab --dry-run
      fsf benchmark fewstab --dataset miniImageNet=folder:./mini --output tables.md
      fsf benchmark fewstab --dataset CUB-200=folder:./birds --shot 5 --ablation
      fsf benchmark fewstab --detector vit-gpt2 --detector blip --agreement
    """
    from fsframework.benchmarks.fewstab import Request, make_grid
    from fsframework.pipeline.cache.workspace import Workspace

    registry = registry_with(plugin_files)
    request = Request(
        datasets=datasets,
        methods=methods,
        backbones=backbones,
        shots=shots,
        detectors=detectors,
        ablation=ablation,
        agreement=agreement,
    )
    if output is not None:
        from fsframework.benchmarks.tables import check_suffix

        check_suffix(output)
    grid = make_grid(registry, tree_of(context, config, options, {}), request)
    workspace = Workspace.default(runs_dir, cache_dir)
    if dry_run:
        _print_cells("fewstab", grid.cells, workspace, as_json)
        return
    from fsframework.benchmarks.cells import run_cells
    from fsframework.benchmarks.fewstab_tables import make_tables

    results = run_cells(grid.cells, registry, workspace, usual_reporter())
    tables = make_tables(grid, results)
    _conclude(context, "fewstab", results, tables, output, as_json)


@benchmark.command(
    "open-intervals", epilog="Options left out come from --config, then from the defaults."
)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    metavar="[LABEL=]NAME[:ARG]",
    help="Data set; repeatable. A LABEL of the paper's (Aircraft, CUB, DTD, Fungi, MSCOCO, "
    "Omniglot, Quickdraw, 'Traffic Signs', 'VGG Flower') puts the printed values beside.  "
    "[default: planted]",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="[LABEL=]RUN",
    help="Run folder whose backbone is the frozen feature extractor; repeatable.  [default: a "
    "conv64f is trained on the data set's training split first]",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="Method on the features; repeatable.  [default: ncc, logistic and finetune]",
)
@click.option(
    "--shot",
    "shots",
    multiple=True,
    type=int,
    metavar="N",
    help="1, 5 or 10, with 1, 5 and 7 queries a class; repeatable.  [default: all]",
)
@click.option(
    "--baseline",
    metavar="'LABEL METHOD'",
    help="What the others are compared with, e.g. 'conv64f FT'.  [default: the first model with "
    "FT]",
)
@click.option(
    "--tasks-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of task files to publish with results: those that are there are evaluated, those "
    "that are not are drawn and written, with image keys beside as JSONL.",
)
@shared("seed", "device")
@set_options
@folder_options
@_output_option
@json_option
@click.pass_context
def open_intervals(
    context: click.Context,
    /,
    datasets: tuple[str, ...],
    models: tuple[str, ...],
    methods: tuple[str, ...],
    shots: tuple[int, ...],
    baseline: str | None,
    tasks_dir: Path | None,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    runs_dir: Path | None,
    cache_dir: Path | None,
    output: Path | None,
    as_json: bool,
    **_: Any,
) -> None:
    """Compare methods on tasks without replacement, by pairs (Lafargue et al. 2024).

    \b
    Tasks share no image, so that intervals speak of the data's distribution, and
    all methods answer the same tasks, so that their differences have narrow ones.
    Queries are few, which leaves more tasks: 1, 5 and 7 a class at 1, 5 and 10
    shots. Every cell is a run as fsf run makes it; after an interruption the same
    command goes on.

    \b
    Examples:
      fsf benchmark open-intervals --tasks-dir ./tasks --output table.md
      fsf benchmark open-intervals --dataset CUB=folder:./birds --model DINO=runs/dino
      fsf benchmark open-intervals --method ncc --method logistic --shot 5
    """
    from fsframework.benchmarks.open_intervals import Request, run_benchmark
    from fsframework.benchmarks.tables import check_suffix
    from fsframework.pipeline.cache.workspace import Workspace

    if output is not None:
        check_suffix(output)
    request = Request(
        datasets=datasets,
        models=models,
        methods=methods,
        shots=shots,
        baseline=baseline,
        tasks_dir=tasks_dir,
    )
    found = run_benchmark(
        registry_with(plugin_files),
        tree_of(context, config, options, {}),
        request,
        Workspace.default(runs_dir, cache_dir),
        usual_reporter(),
    )
    _conclude(
        context,
        "open-intervals",
        found.cells,
        found.tables,
        output,
        as_json,
        comparisons=[one.to_json() for one in found.comparisons],
    )


@benchmark.command(
    "contexts", epilog="Options left out come from --config, then from the defaults."
)
@click.option(
    "--dataset",
    metavar="NAME[:ARG]",
    envvar="FSF_DATASET",
    show_envvar=True,
    help="Data set with a metadata column of contexts.  [default: planted]",
)
@click.option(
    "--column",
    metavar="NAME",
    help="The metadata column that holds the contexts.  [default: context; background for planted]",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="Few-shot method; repeatable.  [default: protonet, baseline-plus-plus and r2d2]",
)
@click.option("--backbone", metavar="NAME[:ARG]", help="Feature extractor.  [default: conv64f]")
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Run folder whose backbone and weights are taken; nothing is trained.  [default: each "
    "method is trained on the data set's training split]",
)
@click.option(
    "--shot",
    "shots",
    multiple=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Support images a class; repeatable.  [default: 1 and 5]",
)
@click.option(
    "--contexts",
    type=click.IntRange(min=1),
    metavar="N",
    help="Contexts of a class's support, and of its queries.  [default: the fewest that the data "
    "allow]",
)
@shared("way", "query", "tasks", "split", "seed", "device")
@set_options
@folder_options
@_output_option
@click.option(
    "--figure",
    type=click.Path(path_type=Path),
    metavar="FILE.png",
    help="Also draw the accuracies as bars; a file that is there is replaced.",
)
@_dry_run_option
@json_option
@click.pass_context
def contexts(
    context: click.Context,
    /,
    dataset: str | None,
    column: str | None,
    methods: tuple[str, ...],
    backbone: str | None,
    model: Path | None,
    shots: tuple[int, ...],
    contexts: int | None,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    runs_dir: Path | None,
    cache_dir: Path | None,
    output: Path | None,
    figure: Path | None,
    dry_run: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Compare queries in the contexts of their support with queries in others (MetaCoCo).

    \b
    Evaluates each method on tasks whose queries stand in the contexts of their
    class's support (IID) and on tasks whose queries stand in others (OOD), as in
    Figure 3 of Zhang et al. 2024. Both tasks of a pair have the same classes and
    the same support, so that the difference has a narrow, paired interval. Every
    cell is a run as fsf run makes it; after an interruption the same command goes
    on.

    \b
    Examples:
      fsf benchmark contexts --figure contexts.png
      fsf benchmark contexts --dataset folder:./images --column place --query 5
      fsf benchmark contexts --method renet --method dn4 --shot 5 --output table.md
    """
    from fsframework.benchmarks.contexts import Request, draw_figure, make_grid, make_table
    from fsframework.benchmarks.tables import check_suffix
    from fsframework.pipeline.cache.workspace import Workspace

    if output is not None:
        check_suffix(output)
    if figure is not None:
        from fsframework.pipeline.charts import check_picture

        check_picture(figure)
    registry = registry_with(plugin_files)
    request = Request(
        dataset=dataset,
        column=column,
        methods=methods,
        backbone=backbone,
        shots=shots,
        contexts=contexts,
        model=model,
    )
    grid = make_grid(registry, tree_of(context, config, options, {}), request)
    workspace = Workspace.default(runs_dir, cache_dir)
    if dry_run:
        _print_cells("contexts", grid.cells, workspace, as_json)
        return
    from fsframework.benchmarks.cells import run_cells

    results = run_cells(grid.cells, registry, workspace, usual_reporter())
    table, differences = make_table(registry, grid, results)
    if figure is not None:
        draw_figure(table, figure)
    listed = [
        {"method": method, "shot": shot, **estimate.to_json()}
        for (method, shot), estimate in differences.items()
    ]
    _conclude(context, "contexts", results, [table], output, as_json, differences=listed)


@benchmark.command(
    "metacoco", epilog="Options left out come from --config, then from the defaults."
)
@click.option(
    "--dataset",
    metavar="NAME[:ARG]",
    envvar="FSF_DATASET",
    show_envvar=True,
    help="Data set.  [default: metacoco, which fsf data add makes known]",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    type=click.Choice(["2", "3", "7"]),
    metavar="2|3|7",
    help="Table of the paper; repeatable.  [default: all]",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="Few-shot method; repeatable.  [default: all rows of the tables, with those that are "
    "not here]",
)
@click.option(
    "--backbone",
    "backbones",
    multiple=True,
    metavar="NAME[:ARG]",
    help="Feature extractor; repeatable.  [default: those of the printed rows]",
)
@click.option(
    "--shot",
    "shots",
    multiple=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Support images a class, in training and test; repeatable.  [default: 1 and 5]",
)
@click.option(
    "--tasks",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tasks a cell.  [default: 3000, the paper's 5 times 600]",
)
@shared("sampler", "query", "seed", "device")
@set_options
@folder_options
@_output_option
@_dry_run_option
@json_option
@click.pass_context
def metacoco(
    context: click.Context,
    /,
    dataset: str | None,
    tables: tuple[str, ...],
    methods: tuple[str, ...],
    backbones: tuple[str, ...],
    shots: tuple[int, ...],
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    runs_dir: Path | None,
    cache_dir: Path | None,
    output: Path | None,
    dry_run: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Measure MetaCoCo's Tables 2, 3 and 7 (Zhang et al. 2024), the printed values beside.

    \b
    Trains and evaluates every method of the tables that is installed, with the
    backbone of its row, on 3,000 random tasks: 5-way in Tables 2 and 3, 10-way in
    Table 7, each 1- and 5-shot. Rows of methods that are not here are listed with
    what is printed. Every cell is a run as fsf run makes it; after an interruption
    the same command goes on.

    \b
    Examples:
      fsf benchmark metacoco --dry-run
      fsf benchmark metacoco --table 7 --backbone conv64f --output table.md
      fsf benchmark metacoco --table 2 --method protonet --method r2d2 --shot 5
    """
    from fsframework.benchmarks.metacoco import Request, make_grid, make_tables
    from fsframework.benchmarks.tables import check_suffix
    from fsframework.pipeline.cache.workspace import Workspace

    if output is not None:
        check_suffix(output)
    registry = registry_with(plugin_files)
    request = Request(
        dataset=dataset, tables=tables, methods=methods, backbones=backbones, shots=shots
    )
    grid = make_grid(registry, tree_of(context, config, options, {}), request, listed=dry_run)
    workspace = Workspace.default(runs_dir, cache_dir)
    if dry_run:
        absent = f"{grid.dataset} is not added yet: fsf data add {grid.dataset} PATH"
        _print_cells("metacoco", grid.cells, workspace, as_json, "" if grid.opened else absent)
        return
    from fsframework.benchmarks.cells import run_cells

    results = run_cells(grid.cells, registry, workspace, usual_reporter())
    made = make_tables(registry, grid, results)
    _conclude(context, "metacoco", results, made, output, as_json)


def _conclude(
    context: click.Context,
    name: str,
    results: Sequence[CellResult],
    tables: Sequence[Table],
    output: Path | None,
    as_json: bool,
    **more: Any,
) -> None:
    """Write and print what a benchmark came to; exit code 1 where a cell failed.

    Args:
        more: what the JSON holds beside cells and tables.
    """
    from fsframework.benchmarks.tables import write_tables
    from fsframework.cli import render

    document = {
        "benchmark": name,
        "cells": [_as_json(result) for result in results],
        "tables": [table.to_json() for table in tables],
        **more,
    }
    if output is not None:
        write_tables(tables, document, output)
    if as_json:
        render.print_json(document)
    else:
        _print_tables(tables)
        _print_summary(results)
    if any(result.reason for result in results):
        context.exit(1)


def _print_tables(tables: Sequence[Table]) -> None:
    from fsframework.cli import render

    for table in tables:
        click.echo(f"{table.name}. {table.title}")
        click.echo()
        render.print_table(table.columns(), table.rows())
        click.echo()
        for note in table.notes:
            click.echo(f"  {note}")
        click.echo()


def _print_cells(
    name: str, cells: Sequence[Cell], workspace: Any, as_json: bool, note: str = ""
) -> None:
    from fsframework.benchmarks.cells import finished_runs
    from fsframework.cli import render
    from fsframework.pipeline.learning.model import resolve_device

    device = resolve_device(cells[0].experiment.settings.device).type
    done = finished_runs(cells, workspace, device)
    if as_json:
        listed = [
            {"cell": cell.name, "run": None if folder is None else str(folder)}
            for cell, folder in zip(cells, done, strict=True)
        ]
        told = {"note": note} if note else {}
        render.print_json({"benchmark": name, "cells": listed, **told})
        return
    rows = [
        (
            str(number),
            cell.name,
            f"{cell.experiment.settings.tasks:,}" if cell.experiment.settings.tasks else "all",
            cell.experiment.settings.query_batch,
            "to do" if folder is None else f"done: {folder}",
        )
        for number, (cell, folder) in enumerate(zip(cells, done, strict=True), start=1)
    ]
    render.print_table(("", "cell", "tasks", "queries by", "state"), rows)
    click.echo()
    click.echo(f"{_counted(len(cells))}, {sum(folder is not None for folder in done)} of them done")
    if note:
        click.echo(f"note: {note}")


def _counted(number: int) -> str:
    return f"{number} {'cell' if number == 1 else 'cells'}"


def _as_json(result: CellResult) -> dict[str, Any]:
    record = result.record
    return {
        "cell": result.cell.name,
        "status": "failed" if result.reason else "finished",
        "reason": result.reason,
        "reused": result.reused,
        "folder": None if result.folder is None else str(result.folder),
        "fingerprint": None if record is None else record.fingerprint,
        "estimates": {}
        if record is None
        else {name: e.to_json() for name, e in record.estimates.items()},
        "notes": [] if record is None else list(record.notes),
        "cautions": [] if record is None else list(record.cautions),
    }


def _print_summary(results: Sequence[CellResult]) -> None:
    """Print the notes of the runs, each once, and how many cells there are of each state."""
    told: dict[str, list[str]] = {}
    for result in results:
        record = result.record
        for note in () if record is None else record.notes:
            if record is not None and note in record.cautions:
                continue  # stands under the tables
            told.setdefault(note, []).append(result.cell.name)
    for note, (first, *others) in told.items():
        more = f" and {len(others)} more" if others else ""
        click.echo(f"note ({first}{more}): {note}")
    failed = sum(bool(result.reason) for result in results)
    before = sum(result.reused for result in results)
    now = len(results) - failed - before
    click.echo(
        f"{_counted(len(results))}: {now} run now, {before} finished before, {failed} failed"
    )
