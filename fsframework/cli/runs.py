"""`fsf runs`: list, show and remove runs."""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.completion import run_names
from fsframework.cli.options import group, json_option, runs_dir_option
from fsframework.errors import OptionError, RecordError, close_matches

if TYPE_CHECKING:
    from fsframework.api.running import Run
    from fsframework.records import RunRecord

__all__ = ["print_record", "runs"]

_USUAL = (
    *("run", "status", "method", "backbone", "tasks", "seed", "epochs", "recipe", "date"),
    "estimates",
)
_SPARE = ("recipe", "epochs", "date", "status", "seed", "tasks")
"""Columns left out on a narrow terminal, in this order."""


@group()
def runs() -> None:
    """List and show the runs made so far.

    \b
    Examples:
      fsf runs list --sort wacc-gap --filter dataset=planted
      fsf runs show runs/renet-planted-fewstab-1a2b3c4d
      fsf runs remove renet-planted-fewstab-1a2b3c4d
    """


def _shape(run: Run) -> str:
    tested = run.record.tested
    if tested is None or not tested.n_way:
        return f"{tested.name}, {tested.n_tasks:,}" if tested and tested.name else ""
    return f"{tested.sampler} {tested.shape}, {tested.n_tasks:,}"


def _words(record: RunRecord) -> str:
    """Return where the attributes come from, and what was dropped."""
    detector, settings = record.components.get("detector"), record.settings
    source = settings.get("attributes") or "the data set's own"
    if detector is not None:
        source = f"detected by {detector.called}"
    dropped = [
        f"{name.replace('_', '-')} {settings[name] if settings[name] is not True else ''}".strip()
        for name, usual in (("drop_class_words", False), ("drop_words", []), ("min_count", 1))
        if settings.get(name, usual) != usual
    ]
    return ", ".join([str(source), *dropped])


def _dataset(record: RunRecord) -> str:
    """Return the data set as users name it, with the folder or file it is read from."""
    component = record.components.get("dataset")
    if component is None:
        return record.data.name
    added = component.added_as
    if added is None or added == component.name:
        return component.called
    return f"{added} ({component.called})"


def _intervals(run: Run) -> str:
    """Return level, scope and estimator of a run's intervals; a slash separates different ones."""
    estimates = run.record.estimates.values()
    parts = (
        [f"{100 * e.level:g} %" for e in estimates],
        [e.scope for e in estimates],
        [e.estimator for e in estimates],
    )
    return " ".join("/".join(dict.fromkeys(part)) for part in parts)


_COLUMNS: Mapping[str, Callable[[Run], str]] = {
    "run": lambda run: run.name,
    "status": lambda run: run.record.status,
    "dataset": lambda run: _dataset(run.record),
    "method": lambda run: run.record.method.called if run.record.method else "",
    "backbone": lambda run: run.record.backbone.called if run.record.backbone else "",
    "sampler": lambda run: run.record.tested.sampler if run.record.tested else "",
    "arms": lambda run: ", ".join(run.record.arms),
    "tasks": _shape,
    "seed": lambda run: str(run.record.settings.get("seed", "")),
    "epochs": lambda run: str(len(run.record.training.history) or ""),
    "recipe": lambda run: str(run.record.settings.get("recipe") or ""),
    "words": lambda run: _words(run.record) if len(run.record.arms) > 1 else "",
    "intervals": _intervals,
    "queries-by": lambda run: str(run.record.settings.get("query_batch", "")),
    "device": lambda run: run.record.environment.device,
    "date": lambda run: run.record.created.partition("T")[0],
    "folder": lambda run: str(run.folder),
}
"""Cells of a run by column; besides these, every estimate is a column named after it."""


@runs.command("list")
@runs_dir_option
@click.option(
    "--columns",
    metavar="NAME,...",
    help=f"Columns, separated by commas: {', '.join(_COLUMNS)}; estimates for all estimates, or "
    "the name of one, such as wacc-gap.",
)
@click.option(
    "--sort",
    metavar="COLUMN",
    help="Sort by a column; estimates from the largest down. -COLUMN reverses the order.",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="COLUMN=PATTERN",
    help="Only runs whose cell matches; * matches anything. Repeatable.",
)
@json_option
def list_runs(
    runs_dir: Path,
    columns: str | None,
    sort: str | None,
    filters: tuple[str, ...],
    as_json: bool,
) -> None:
    """List every run with its settings and its estimates."""
    from fsframework.api.running import runs as all_runs
    from fsframework.cli import render

    found = all_runs(runs_dir)
    chosen = [run for run in found if all(_fits(run, text) for text in filters)]
    if sort is not None:
        chosen = _sorted(chosen, sort)
    if as_json:
        render.print_json([_as_json(run) for run in chosen] + _broken_json(found.broken))
        return
    if not found and not found.broken:
        click.echo(f"no runs in {runs_dir}")
        return
    names = [name.strip() for name in (columns or ",".join(_USUAL)).split(",") if name.strip()]
    heads, rows, notes = _table(chosen, names)
    for folder, reason in found.broken.items() if not filters else ():
        row = dict.fromkeys(heads, "") | {"run": folder.name, "status": "broken"}
        rows.append(tuple(row[head] for head in heads))
        notes.append(f"{folder.name} is broken: {reason}")
    spare = () if columns else tuple(name for name in _SPARE if name in heads)
    render.print_table(heads, rows, spare=spare)
    if notes:
        click.echo()
    for note in notes:
        click.echo(note)


def _table(
    chosen: Sequence[Run], names: Sequence[str]
) -> tuple[list[str], list[tuple[str, ...]], list[str]]:
    """Return heads, rows and the cautions below; ``estimates`` expands to all of them."""
    known = list(dict.fromkeys(name for run in chosen for name in run.record.estimates))
    heads: list[str] = []
    for name in names:
        heads += known if name == "estimates" else [name]
    cautions: dict[str, int] = {}
    rows = []
    for run in chosen:
        marks = sorted({cautions.setdefault(c, len(cautions) + 1) for c in run.record.cautions})
        cells = [_cell(run, head) for head in heads]
        if "status" in heads:
            cells[heads.index("status")] += "".join(f" [{mark}]" for mark in marks)
        rows.append(tuple(cells))
    return heads, rows, [f"[{mark}] {caution}" for caution, mark in cautions.items()]


def _cell(run: Run, column: str) -> str:
    if column in _COLUMNS:
        return _COLUMNS[column](run)
    if column in run.record.estimates:
        return str(run.record.estimates[column])
    known = set(run.record.estimates)
    if column.rpartition("-")[1]:
        return ""  # an estimate that this run does not have
    raise OptionError(
        f"unknown column {column!r}{close_matches(column, {*_COLUMNS, *known})}; known: "
        f"{', '.join(_COLUMNS)}, and the names of estimates"
    )


def _fits(run: Run, text: str) -> bool:
    column, equals, pattern = text.partition("=")
    if not equals:
        raise OptionError(f"--filter {text}: must be COLUMN=PATTERN, such as method=renet")
    return fnmatch.fnmatchcase(_cell(run, column.strip()).lower(), pattern.strip().lower())


def _sorted(chosen: Sequence[Run], column: str) -> list[Run]:
    backwards, name = column.startswith("-"), column.removeprefix("-")
    with_value = [run for run in chosen if name in run.record.estimates]
    if with_value:
        ordered = sorted(
            with_value, key=lambda r: r.record.estimates[name].value, reverse=not backwards
        )
        return [*ordered, *(run for run in chosen if run not in with_value)]
    return sorted(chosen, key=lambda run: _cell(run, name), reverse=backwards)


def _as_json(run: Run) -> dict[str, Any]:
    return {
        "folder": str(run.folder),
        **{name: cell(run) for name, cell in _COLUMNS.items() if name != "folder"},
        "fingerprint": run.record.fingerprint,
        "created": run.record.created,
        "estimates": {name: e.to_json() for name, e in run.record.estimates.items()},
        "cautions": list(run.record.cautions),
    }


def _broken_json(broken: Mapping[Path, str]) -> list[dict[str, Any]]:
    return [
        {"folder": str(folder), "run": folder.name, "status": "broken", "reason": reason}
        for folder, reason in broken.items()
    ]


@runs.command("show")
@click.argument("run", metavar="RUN", shell_complete=run_names)
@runs_dir_option
@json_option
def show_run(run: str, runs_dir: Path, as_json: bool) -> None:
    """Show one run: its estimates, options, versions and where it is.

    RUN is a folder, or the name or beginning of the name of one in the runs folder.
    """
    from fsframework.api.running import load_run
    from fsframework.cli import render

    opened = load_run(run, runs_dir)
    if as_json:
        render.print_json({"folder": str(opened.folder), **opened.record.to_json()})
        return
    print_record(opened.folder, opened.record)
    record = opened.record
    options = [row for row in _options(record) if row[2] != "default"]
    if options:
        click.echo()
        render.print_table(("option", "value", "origin"), options)
    if record.plugins:
        click.echo()
        rows = [(p.kind, p.name, f"{p.distribution} {p.version}") for p in record.plugins]
        render.print_table(("kind", "plugin", "from"), rows)


def _options(record: RunRecord) -> list[tuple[str, str, str]]:
    from fsframework.cli.options import flat_options

    parts = record.components.items()
    resolved = {
        **record.settings,
        **{role: component.to_tree() for role, component in parts},
        "training": [dict(stage.options) for stage in record.stages],
    }
    origins = {
        **record.origins,
        **{role: dict(component.origins) for role, component in parts},
        "training": [dict(stage.origins) for stage in record.stages],
    }
    return flat_options(resolved, origins)


@runs.command("remove")
@click.argument("run_list", metavar="RUN...", nargs=-1, required=True, shell_complete=run_names)
@runs_dir_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(run_list: tuple[str, ...], runs_dir: Path, yes: bool) -> None:
    """Remove runs with their weights and outcomes; cached stages stay.

    RUN is a folder, or the name or beginning of the name of one in the runs folder.
    """
    from fsframework.records import RECORD_NAME, find_run

    folders = list(dict.fromkeys(find_run(run, runs_dir) for run in run_list))
    for folder in folders:
        click.echo(f"{folder}: {sum(f.is_file() for f in folder.rglob('*'))} files")
    if not yes:
        click.confirm(f"Remove {'this run' if len(folders) == 1 else 'these runs'}?", abort=True)
    for folder in folders:
        # The record first: what a killed removal leaves behind is no longer a run.
        (folder / RECORD_NAME).unlink()
        shutil.rmtree(folder)
        click.echo(f"removed {folder}")


@runs.command()
@click.argument("run", metavar="RUN", shell_complete=run_names)
@runs_dir_option
@click.option(
    "--csv", "csv_file", type=click.Path(path_type=Path), metavar="FILE", help="Write it as CSV."
)
@click.option(
    "--tensorboard",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write it for TensorBoard.",
)
@json_option
def curve(
    run: str, runs_dir: Path, csv_file: Path | None, tensorboard: Path | None, as_json: bool
) -> None:
    """Draw the curve of a run's training, epoch by epoch.

    RUN is a folder, or the name or beginning of the name of one in the runs folder.

    \b
    Examples:
      fsf runs curve renet-planted
      fsf runs curve renet-planted --csv curve.csv --tensorboard ./events
    """
    from fsframework.api.running import load_run
    from fsframework.cli import render
    from fsframework.pipeline.learning.history import write_csv, write_tensorboard

    opened = load_run(run, runs_dir)
    history = opened.record.training.history
    if not history:
        raise RecordError(f"{opened.folder}: nothing was trained in this run, or not yet")
    if csv_file is not None:
        write_csv(csv_file, history)
    if tensorboard is not None:
        write_tensorboard(tensorboard, history)
    if as_json:
        render.print_json([vars(row) for row in history])
        return
    click.echo("loss")
    click.echo("\n".join(render.chart([row.loss for row in history])))
    validated = [r.validation_accuracy for r in history if r.validation_accuracy is not None]
    if validated:
        click.echo("validation accuracy, %")
        click.echo("\n".join(render.chart([100 * value for value in validated])))
    click.echo(f"{len(history)} epochs from left to right")


def print_record(folder: Path, record: RunRecord) -> None:
    """Print a run: what ran, its estimates and its notes."""
    from fsframework.cli import render

    for line in _intro(record):
        click.echo(line)
    click.echo()
    if record.estimates:
        render.estimates_table(record)
        click.echo()
    elif record.status == "unfinished":
        click.echo("unfinished: run the same command again to resume\n")
    for line in _reading(record):
        click.echo(line)
    for note in record.notes:
        click.echo(f"note: {note}")
    click.echo(f"run: {folder}")


def _intro(record: RunRecord) -> list[str]:
    """Return what ran, in a few lines."""
    if record.imported is not None:
        return _imported(record)
    assert record.method is not None
    assert record.backbone is not None
    precision = record.settings.get("precision", "fp32")
    lines = [
        f"{record.method.called} with {record.backbone.called} on {_dataset(record)}: "
        f"{_tasks(record)}" + (f", {precision}" if precision != "fp32" else "")
    ]
    if "attributes" in record.digests:
        lines.append(f"words: {_words(record)}")
    return [*lines, _training(record), *_curves(record)]


def _tasks(record: RunRecord) -> str:
    """Return sampler with the options that were given, shape and seed."""
    tested = record.tested
    if tested is None:
        return "no tasks yet"
    given = [f"{name}={tested.options[name]}" for name in tested.given_options]
    sampler = tested.sampler + (f" ({', '.join(given)})" if given else "")
    return (
        f"{sampler} tasks, {tested.shape}, {tested.n_query} queries per class, seed {tested.seed}"
    )


def _imported(record: RunRecord) -> list[str]:
    imported = record.imported
    assert imported is not None
    if record.method is None or record.backbone is None:
        tasks = next(iter(record.arms.values()), None)
        about = f": {tasks.n_tasks:,} tasks, {tasks.name}" if tasks is not None else ""
        return [
            f"{imported.method}, accuracies measured elsewhere{about}",
            f"from {imported.source}",
        ]
    return [
        f"{record.method.called} with {record.backbone.called}, imported: {imported.source}",
        f"from {imported.folder}; made for {imported.n_way}-way {imported.n_shot}-shot tasks of "
        f"{record.seen_size} x {record.seen_size} pixels",
        "evaluate it: fsf run --model RUN --dataset ...",
    ]


def _reading(record: RunRecord) -> list[str]:
    """Return caveats that a reader of the estimates must know."""
    lines = []
    estimates = record.estimates.values()
    if any(e.scope == "closed" for e in estimates):
        lines.append(
            "closed: images recur between tasks, so the interval holds for this data set only"
        )
    if any(e.query_batch == "class" for e in estimates):
        lines.append(
            "queries by class: the method saw the queries of one class at a time, as in FewSTAB's "
            "published evaluation; this changes scores that depend on the other queries"
        )
    return lines


def _curves(record: RunRecord) -> list[str]:
    """Return loss and validation accuracy of each stage as lines of blocks."""
    from fsframework.cli import render

    history = record.training.history
    lines = []
    stages = sorted({row.stage for row in history})
    for stage in stages:
        rows = [row for row in history if row.stage == stage]
        of = f" of stage {stage + 1}" if len(stages) > 1 else ""
        validated = [r.validation_accuracy for r in rows if r.validation_accuracy is not None]
        for name, values, unit in (
            ("loss", [row.loss for row in rows], ""),
            ("validation", [100 * accuracy for accuracy in validated], " %"),
        ):
            if len(values) > 1:
                ends = f"{values[0]:.3g}{unit} to {values[-1]:.3g}{unit}"
                lines.append(f"{name + of:<22} {render.sparkline(values)}  {ends}")
    if record.training.recipe:
        lines.append(record.training.recipe)
    return lines


def _training(record: RunRecord) -> str:
    history, stages = record.training.history, record.stages
    if not history:
        sources = [stage.init_from for stage in stages if stage.init_from]
        pretrained = " and ".join(record.data.pretrained_on)
        if not sources and pretrained:
            return f"nothing was trained; weights pretrained on {pretrained}"
        return f"nothing was trained{'; weights from ' + sources[-1] if sources else ''}"
    start = stages[0].init_from
    if start is None:
        data = record.data.pretrained_on
        start = f"weights pretrained on {' and '.join(data)}" if data else "random weights"
    what = f"backbone and method from {start}"
    if record.training.backbone_is_frozen:
        what = f"method only; the backbone keeps its {start}"
    seconds = sum(row.seconds for row in history)
    best = record.training.best_validation_accuracy
    validation = "" if best is None else f", best validation accuracy {100 * best:.1f} %"
    return (
        f"trained: {what}, {len(history)} {'epoch' if len(history) == 1 else 'epochs'} of "
        f"{stages[0].steps} steps on {record.environment.device} in {seconds:.0f} s{validation}"
    )
