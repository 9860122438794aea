"""`fsf runs`: list, show and remove runs."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import flat_options, group, run_names, shared
from fsframework.errors import OptionError, close_matches

if TYPE_CHECKING:
    from fsframework.api.running import Run
    from fsframework.records import RunRecord

__all__ = ["print_run", "runs"]

_USUAL = (
    *("run", "status", "method", "backbone", "sampler", "way", "shot", "tasks"),
    *("task-seed", "training-seed", "epochs", "recipe", "date", "estimates"),
)
_SPARE = (
    *("recipe", "epochs", "date", "status", "task-seed", "training-seed", "way", "shot", "tasks"),
    "sampler",
)
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


@runs.command("list")
@shared("runs-dir")
@click.option(
    "--columns",
    metavar="NAME,...",
    help="Columns, separated by commas: run, method, way, words and other settings (--json shows "
    "all); estimates for all estimates, or the name of one, such as wacc-gap.",
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
@shared("json")
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
    rows = [(run, {**run.settings, **run.estimates}) for run in found]
    names = [name.strip() for name in (columns or ",".join(_USUAL)).split(",") if name.strip()]
    patterns = [_pattern(text) for text in filters]
    order = [sort.removeprefix("-")] if sort else []
    _check_columns([*names, *order, *(column for column, _ in patterns)], found)
    for column, pattern in patterns:
        rows = [
            row for row in rows if fnmatch.fnmatchcase(str(row[1].get(column, "")).lower(), pattern)
        ]
    if sort is not None:
        rows = _sorted(rows, order[0], backwards=sort.startswith("-"))
    if as_json:
        broken = [
            {"folder": str(folder), "run": folder.name, "status": "broken", "reason": reason}
            for folder, reason in found.broken.items()
        ]
        render.print_json([_as_json(run) for run, _ in rows] + broken)
        return
    if not found and not found.broken:
        click.echo(f"no runs in {runs_dir}")
        return
    estimates = dict.fromkeys(name for run, _ in rows for name in run.estimates)
    heads = [head for name in names for head in (estimates if name == "estimates" else [name])]
    notes: dict[str, str] = {}
    table = []
    for run, cells in rows:
        marks = [notes.setdefault(one, f"[{len(notes) + 1}]") for one in run.record.cautions]
        told = {**cells, "status": " ".join([run.record.status, *sorted(set(marks))])}
        table.append([str(told.get(head, "")) for head in heads])
    below = [f"{mark} {caution}" for caution, mark in notes.items()]
    for folder, reason in ({} if filters else found.broken).items():
        cells = {"run": folder.name, "status": "broken"}
        table.append([cells.get(head, "") for head in heads])
        below.append(f"{folder.name} is broken: {reason}")
    render.print_table(heads, table, spare=() if columns else _SPARE)
    click.echo("".join(f"\n{line}" for line in below), nl=bool(below))


def _as_json(run: Run) -> dict[str, Any]:
    estimates = {name: estimate.to_json() for name, estimate in run.estimates.items()}
    return {**run.settings, "estimates": estimates, "cautions": list(run.record.cautions)}


def _pattern(text: str) -> tuple[str, str]:
    column, equals, pattern = text.partition("=")
    if not equals:
        raise OptionError(f"--filter {text}: must be COLUMN=PATTERN, such as method=renet")
    return column.strip(), pattern.strip().lower()


def _check_columns(asked: Sequence[str], found: Sequence[Run]) -> None:
    settings = list(found[0].settings) if found else []
    known = {"estimates", *settings, *(name for run in found for name in run.estimates)}
    for column in asked if found else ():
        if column not in known:
            raise OptionError(
                f"unknown column {column!r}{close_matches(column, known)}; known: "
                f"{', '.join(settings)}, and the names of estimates"
            )


_Rows = list[tuple["Run", dict[str, Any]]]


def _sorted(rows: _Rows, column: str, *, backwards: bool) -> _Rows:
    """Return rows in the order of a column; estimates from the largest down."""
    known = [row for row in rows if column in row[0].estimates]
    if known:
        known.sort(key=lambda row: row[0].estimates[column].value, reverse=not backwards)
        return known + [row for row in rows if column not in row[0].estimates]

    def key(row: tuple[Run, dict[str, Any]]) -> tuple[bool, Any]:
        value = row[1].get(column, "")
        return isinstance(value, str), value  # a setting that a run lacks is an empty text

    return sorted(rows, key=key, reverse=backwards)


@runs.command("show")
@click.argument("run", metavar="RUN", shell_complete=run_names)
@shared("runs-dir", "json")
def show_run(run: str, runs_dir: Path, as_json: bool) -> None:
    """Show one run: its estimates, options, versions and where it is.

    RUN is a folder, or the name or beginning of the name of one in the runs folder.
    """
    from fsframework.api.running import load_run
    from fsframework.cli import render

    opened = load_run(run, runs_dir)
    record = opened.record
    if as_json:
        render.print_json({"folder": str(opened.folder), **record.to_json()})
        return
    print_run(opened, explain=True)
    given = [row for row in flat_options(*opened.options) if row[2] != "default"]
    if given:
        click.echo()
        render.print_table(("option", "value", "origin"), given)
    if record.plugins:
        click.echo()
        rows = [(p.kind, p.name, f"{p.distribution} {p.version}") for p in record.plugins]
        render.print_table(("kind", "plugin", "from"), rows)


@runs.command("remove")
@click.argument("run_list", metavar="RUN...", nargs=-1, required=True, shell_complete=run_names)
@shared("runs-dir")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(run_list: tuple[str, ...], runs_dir: Path, yes: bool) -> None:
    """Remove runs with their weights and outcomes; cached stages stay.

    RUN is a folder, or the name or beginning of the name of one in the runs folder.
    """
    from fsframework.api.running import remove_run, run_folder

    folders = list(dict.fromkeys(run_folder(run, runs_dir) for run in run_list))
    for folder in folders:
        click.echo(f"{folder}: {sum(f.is_file() for f in folder.rglob('*'))} files")
    if not yes:
        click.confirm(f"Remove {'this run' if len(folders) == 1 else 'these runs'}?", abort=True)
    for folder in folders:
        remove_run(folder)
        click.echo(f"removed {folder}")


def print_run(run: Run, *, explain: bool) -> None:
    """Print a run: the answer, what ran, of several seeds each run, and its notes.

    Args:
        run: of one model, or of those of several training seeds.
        explain: whether to print every estimate with its interval too.
    """
    from fsframework.api.headlines import headline_of_run
    from fsframework.cli import render
    from fsframework.statistics.measures import DEFAULT_STATISTICS

    record, several = run.record, bool(run.of_seeds)
    shown: list[str] = []
    if run.estimates:
        headline = headline_of_run(run)
        render.print_headline(headline)
        click.echo()
        shown = [column.measure.name for columns in headline.columns for column in columns]
    for line in _what(run):
        click.echo(line)
    click.echo()
    statistics = {one.statistic for one in record.estimates.values()}
    if run.estimates and (explain or not statistics <= set(DEFAULT_STATISTICS)):
        render.estimates_table(record, run.estimates)
        click.echo()
    elif record.status == "unfinished":
        click.echo("unfinished: run the same command again to resume\n")
    if several:
        names = list(run.estimates) if explain else shown
        rows = [
            (one.name, str(seed), *(str(one.estimates.get(name, "")) for name in names))
            for one, seed in zip(run.runs, run.seeds, strict=True)
        ]
        render.print_table(("run", "seed", *names), rows, spare=names[:-1])
        click.echo()
    if any(e.query_batch == "class" for e in record.estimates.values()):
        click.echo(
            "queries by class: the method saw the queries of one class at a time, as in FewSTAB's "
            "published evaluation; this changes scores that depend on the other queries"
        )
    for note in _notes(run):
        click.echo(f"note: {note}")
    click.echo(f"runs: {run.folder.parent}" if several else f"run: {run.folder}")


def _notes(run: Run) -> dict[str, None]:
    """Return the notes, each once; those of some seeds only say of which."""
    found = dict.fromkeys(run.notes)
    for note in dict.fromkeys(note for one in run.runs for note in one.record.notes):
        own = [str(one.record.training_seed) for one in run.runs if note in one.record.notes]
        where = f"seed {', '.join(own)}: " if len(own) < len(run.runs) else ""
        found[where + note] = None
    return found


def _what(run: Run) -> Iterator[str]:
    """Yield what ran and how it was trained, in a few lines."""
    from fsframework.api.run_rows import dataset_of, words_of

    record = run.record
    if record.imported is not None:
        yield from _imported(record)
        return
    assert record.method is not None
    assert record.backbone is not None
    precision = record.settings.get("precision", "fp32")
    yield (
        f"{record.method.called} with {record.backbone.called} on {dataset_of(record)}: "
        f"{_tasks(record)}" + (f", {precision}" if precision != "fp32" else "")
    )
    if "attributes" in record.digests:
        yield f"words: {words_of(record)}"
    if run.of_seeds:
        yield f"training seeds: {', '.join(map(str, run.seeds))}"
    else:
        yield _training(record)
        yield from _curves(record)


def _tasks(record: RunRecord) -> str:
    """Return sampler with the options that were given, shape and seeds."""
    tested = record.tested
    if tested is None:
        return "no tasks yet"
    given = [f"{name}={tested.options[name]}" for name in tested.given_options]
    sampler = tested.sampler + (f" ({', '.join(given)})" if given else "")
    seeds = f"seed {tested.seed}"
    if record.training_seed not in (None, tested.seed):
        seeds = f"task seed {tested.seed}, training seed {record.training_seed}"
    return f"{sampler} tasks, {tested.shape}, {tested.n_query} queries per class, {seeds}"


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
