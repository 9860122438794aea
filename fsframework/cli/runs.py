"""`fsf runs`: list, show and remove runs."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import flat_options, group, run_names, shared
from fsframework.errors import OptionError, close_matches

if TYPE_CHECKING:
    from fsframework.api.running import Run
        from fsframework.records import RunRecord
    from fsframework.values import Estimate

__all__ = ["print_group", "print_record", "runs"]

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
    rows = [_Row.of(run) for run in found]
    names = [name.strip() for name in (columns or ",".join(_USUAL)).split(",") if name.strip()]
    patterns = [_pattern(text) for text in filters]
    order = [sort.removeprefix("-")] if sort else []
    _check_columns([*names, *order, *(column for column, _ in patterns)], rows)
    rows = [row for row in rows if all(row.fits(*pattern) for pattern in patterns)]
    if sort is not None:
        rows = _sorted(rows, order[0], backwards=sort.startswith("-"))
    if as_json:
        broken = [
            {"folder": str(folder), "run": folder.name, "status": "broken", "reason": reason}
            for folder, reason in found.broken.items()
        ]
        render.print_json([row.to_json() for row in rows] + broken)
        return
    if not found and not found.broken:
        click.echo(f"no runs in {runs_dir}")
        return
    heads, table, notes = _table(rows, names, {} if filters else found.broken)
    render.print_table(heads, table, spare=() if columns else _SPARE)
    if notes:
        click.echo()
    for note in notes:
        click.echo(note)


@dataclass(frozen=True)
class _Row:
    """A run in the list.

    Args:
        settings: by name of the column.
        estimates: by name; each is a column too.
        cautions: that a reader of the estimates must know.
    """

    settings: Mapping[str, Any]
    estimates: Mapping[str, Estimate]
    cautions: Sequence[str]

    @classmethod
    def of(cls, run: Run) -> _Row:
        from fsframework.api.run_rows import run_settings

        record = run.record
        return cls(run_settings(run.folder, record), record.estimates, record.cautions)

    def cell(self, column: str) -> str:
        """Return the text in a column; empty where the run has nothing there."""
        return str(self.settings.get(column, self.estimates.get(column, "")))

    def fits(self, column: str, pattern: str) -> bool:
        """Return whether the text in a column matches a pattern in lower case."""
        return fnmatch.fnmatchcase(self.cell(column).lower(), pattern)

    def to_json(self) -> dict[str, Any]:
        """Return settings, estimates and cautions as JSON values."""
        estimates = {name: estimate.to_json() for name, estimate in self.estimates.items()}
        return {**self.settings, "estimates": estimates, "cautions": list(self.cautions)}


def _pattern(text: str) -> tuple[str, str]:
    column, equals, pattern = text.partition("=")
    if not equals:
        raise OptionError(f"--filter {text}: must be COLUMN=PATTERN, such as method=renet")
    return column.strip(), pattern.strip().lower()


def _check_columns(asked: Sequence[str], rows: Sequence[_Row]) -> None:
    settings = [name for row in rows[:1] for name in row.settings]
    known = {"estimates", *settings, *(name for row in rows for name in row.estimates)}
    for column in asked if rows else ():
        if column not in known:
            raise OptionError(
                f"unknown column {column!r}{close_matches(column, known)}; known: "
                f"{', '.join(settings)}, and the names of estimates"
            )


def _sorted(rows: Sequence[_Row], column: str, *, backwards: bool) -> list[_Row]:
    known = [row for row in rows if column in row.estimates]
    if known:
        known.sort(key=lambda row: row.estimates[column].value, reverse=not backwards)
        return known + [row for row in rows if column not in row.estimates]

    def key(row: _Row) -> tuple[bool, Any]:
        value = row.settings.get(column, "")
        return isinstance(value, str), value  # a setting that a run lacks is an empty text

    return sorted(rows, key=key, reverse=backwards)


def _table(
    rows: Sequence[_Row], names: Sequence[str], broken: Mapping[Path, str]
) -> tuple[list[str], list[list[str]], list[str]]:
    """Return heads, cells and the notes below; ``estimates`` stands for all of them."""
    known = list(dict.fromkeys(name for row in rows for name in row.estimates))
    heads: list[str] = []
    for name in names:
        heads += known if name == "estimates" else [name]
    marks: dict[str, int] = {}
    table = []
    for row in rows:
        mine = sorted({marks.setdefault(caution, len(marks) + 1) for caution in row.cautions})
        marked = {"status": row.cell("status") + "".join(f" [{mark}]" for mark in mine)}
        table.append([marked.get(head, row.cell(head)) for head in heads])
    notes = [f"[{mark}] {caution}" for caution, mark in marks.items()]
    for folder, reason in broken.items():
        told = {"run": folder.name, "status": "broken"}
        table.append([told.get(head, "") for head in heads])
        notes.append(f"{folder.name} is broken: {reason}")
    return heads, table, notes


@runs.command("show")
@click.argument("run", metavar="RUN", shell_complete=run_names)
@shared("runs-dir", "json")
def show_run(run: str, runs_dir: Path, as_json: bool) -> None:
    """Show one run: its estimates, options, versions and where it is.

    RUN is a folder, or the name or beginning of the name of one in the runs folder.
    """
    from fsframework.api.run_rows import run_options
    from fsframework.api.running import load_run
    from fsframework.cli import render

    opened = load_run(run, runs_dir)
    record = opened.record
    if as_json:
        render.print_json({"folder": str(opened.folder), **record.to_json()})
        return
    print_record(opened.folder, record)
    options = flat_options(*run_options(record))
    given = [row for row in options if row[2] != "default"]
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
    from fsframework.api.run_folders import remove_run, run_folder

    folders = list(dict.fromkeys(run_folder(run, runs_dir) for run in run_list))
    for folder in folders:
        click.echo(f"{folder}: {sum(f.is_file() for f in folder.rglob('*'))} files")
    if not yes:
        click.confirm(f"Remove {'this run' if len(folders) == 1 else 'these runs'}?", abort=True)
    for folder in folders:
        click.echo(f"removed {remove_run(folder)}")


def print_record(folder: Path, record: RunRecord, *, explain: bool = True) -> None:
    """Print a run: the answer, what ran, and its notes.

    Args:
        folder: of the run.
        record: its record.
        explain: whether to print every estimate with its interval too.
    """
    from fsframework.cli import render

    if record.estimates:
        from fsframework.api.headlines import headline_among_others
        from fsframework.api.running import Run

        render.print_headline(headline_among_others(Run(folder, record)))
        click.echo()
    for line in _intro(record):
        click.echo(line)
    click.echo()
    if record.estimates and (explain or _has_more(record)):
        render.estimates_table(record)
        click.echo()
    elif record.status == "unfinished":
        click.echo("unfinished: run the same command again to resume\n")
    for line in _reading(record):
        click.echo(line)
    for note in record.notes:
        click.echo(f"note: {note}")
    click.echo(f"run: {folder}")


def print_group(group: SeedGroup, *, explain: bool = False) -> None:
    """Print runs of several training seeds: the answer over seeds, what ran, then each run.

    Args:
        group: the runs.
        explain: whether to print every estimate with its interval too.
    """
    from fsframework.api.headlines import headline_among_others
    from fsframework.cli import render

    record, runs = group.record, group.runs
    headline = headline_among_others(group)
    render.print_headline(headline)
    click.echo()
    for line in _what(record):
        click.echo(line)
    click.echo(f"training seeds: {', '.join(map(str, group.seeds))}")
    click.echo()
    if explain or _has_more(record):
        render.estimates_table(record, group.estimates)
        click.echo()
    shown = [column.measure.name for columns in headline.columns for column in columns]
    names = list(group.estimates) if explain else shown
    heads = ("run", "seed", *names)
    rows = [
        (run.name, str(seed), *(str(run.record.estimates.get(name, "")) for name in names))
        for run, seed in zip(runs, group.seeds, strict=True)
    ]
    render.print_table(heads, rows, spare=names[:-1])
    click.echo()
    for line in _reading(record):
        click.echo(line)
    for note in dict.fromkeys([*group.notes, *(note for run in runs for note in run.record.notes)]):
        own = [run for run in runs if note in run.record.notes]
        seeds = ", ".join(str(run.record.training_seed) for run in own)
        click.echo(f"note: {f'seed {seeds}: ' if 0 < len(own) < len(runs) else ''}{note}")
    click.echo(f"runs: {runs[0].folder.parent}")


def _has_more(record: RunRecord) -> bool:
    """Return whether a run has other statistics than the usual ones, which its headline shows."""
    from fsframework.statistics.measures import DEFAULT_STATISTICS

    return not {one.statistic for one in record.estimates.values()} <= set(DEFAULT_STATISTICS)


def _intro(record: RunRecord) -> list[str]:
    """Return what ran and how it was trained, in a few lines."""
    if record.imported is not None:
        return _imported(record)
    return [*_what(record), _training(record), *_curves(record)]


def _what(record: RunRecord) -> list[str]:
    """Return method, data and tasks of a run that was made here, in a few lines."""
    from fsframework.api.run_rows import dataset_of, words_of

    assert record.method is not None
    assert record.backbone is not None
    precision = record.settings.get("precision", "fp32")
    lines = [
        f"{record.method.called} with {record.backbone.called} on {dataset_of(record)}: "
        f"{_tasks(record)}" + (f", {precision}" if precision != "fp32" else "")
    ]
    if "attributes" in record.digests:
        lines.append(f"words: {words_of(record)}")
    return lines


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


def _reading(record: RunRecord) -> list[str]:
    """Return caveats that a reader of the estimates must know."""
    lines = []
    estimates = record.estimates.values()
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
