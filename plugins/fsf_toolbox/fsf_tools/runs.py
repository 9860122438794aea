"""`fsf runs`: list, show, repeat and remove runs."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import flat_options, group, run_names, shared
from fsframework.errors import FsfError, OptionError, close_matches

if TYPE_CHECKING:
    from fsframework.api.running import Run

__all__ = ["runs"]

_USUAL = (
    *("run", "status", "method", "dataset", "way", "shot", "words", "training-seed", "backbone"),
    *("sampler", "tasks", "task-seed", "epochs", "recipe", "date", "estimates"),
)
_SPARE = (
    *("recipe", "epochs", "date", "task-seed", "sampler", "tasks", "backbone", "status"),
    *("training-seed", "way", "shot", "dataset", "words"),
)
"""Columns left out on a narrow terminal, in this order."""


@group()
def runs() -> None:
    """List, show and repeat the runs made so far, and publish their models.

    \b
    Examples:
      fsf runs list dataset=planted --sort wacc-gap
      fsf runs show method=renet
      fsf runs repeat method=renet
      fsf runs remove method=renet
    """


@runs.command("list")
@click.argument("selectors", metavar="[NAME=VALUE,...]...", nargs=-1)
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
@shared("json")
def list_runs(
    selectors: tuple[str, ...],
    runs_dir: Path,
    columns: str | None,
    sort: str | None,
    as_json: bool,
) -> None:
    """List runs with their settings and their estimates.

    By default all; method=ncc,shot=5 lists those of which both are true. The name of a fact is
    that of an option, or status; in a value, * stands for anything.

    \b
    Examples:
      fsf runs list --sort wacc-gap
      fsf runs list dataset=planted,shot=5
      fsf runs list method=ncc 'method=proto*'
    """
    from fsframework.api.running import Runs
    from fsframework.api.running import runs as all_runs
    from fsframework.cli import render

    found = all_runs(runs_dir)
    if selectors:
        found = Runs(_selected(found, selectors, runs_dir))
    heads_of = _heads_of_estimates(found)
    rows = [(run, {**run.settings, **run.estimates, **_apart(run, heads_of)}) for run in found]
    left_out = () if len({row["words"] for _, row in rows}) > 1 else ("words",)
    usual = [name for name in _USUAL if name not in left_out]
    names = [name.strip() for name in (columns or ",".join(usual)).split(",") if name.strip()]
    order = [sort.removeprefix("-")] if sort else []
    _check_columns([*names, *order], found)
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
    asked = [one for name in names for one in (estimates if name == "estimates" else [name])]
    heads = [head for name in asked for head in heads_of.get(name, [name])]
    notes: dict[str, str] = {}
    table = []
    for run, cells in rows:
        marks = [notes.setdefault(one, f"[{len(notes) + 1}]") for one in run.record.cautions]
        told = {**cells, "status": " ".join([run.record.status, *sorted(set(marks))])}
        table.append([str(told.get(head, "")) for head in heads])
    below = [f"{mark} {caution}" for caution, mark in notes.items()]
    for folder, reason in found.broken.items():
        cells = {"run": folder.name, "status": "broken"}
        table.append([cells.get(head, "") for head in heads])
        below.append(f"{folder.name} is broken: {reason}")
    below += _outdated(run for run, _ in rows)
    render.print_table(heads, table, spare=() if columns else _SPARE)
    click.echo("".join(f"\n{line}" for line in below), nl=bool(below))


def _heads_of_estimates(found: Sequence[Run]) -> dict[str, list[str]]:
    """Return the columns of each estimate that runs have with different options."""
    heads: dict[str, list[str]] = {}
    for run in found:
        for name in run.estimates:
            own = heads.setdefault(name, [])
            if (head := _head_of(run, name)) not in own:
                own.append(head)
    return {name: own for name, own in heads.items() if len(own) > 1}


def _apart(run: Run, heads_of: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the estimates that have a column for each value of their options, by column."""
    return {_head_of(run, name): run.estimates[name] for name in heads_of if name in run.estimates}


def _head_of(run: Run, name: str) -> str:
    from fsframework.statistics.facts import options_told

    told = options_told(run.record, run.estimates[name].statistic)
    return f"{name} ({told})" if told else name


def _outdated(found: Iterable[Run]) -> list[str]:
    """Return which estimates are those of code of a statistic that was edited since.

    Another version of a plugin is another matter, which ``fsf runs repeat`` tells.
    """
    from fsframework.api.components import component
    from fsframework.api.session import open_session

    registry = open_session(progress=False).registry
    edited: dict[str, list[str]] = {}
    for run in found:
        versions = {p.name: p.version for p in run.record.plugins if p.kind == "statistic"}
        for name, made_with in run.record.statistics.items():
            with contextlib.suppress(FsfError):  # it is not installed, or has other options now
                now = component(registry, "statistic", run.record.statistic_tree(name))
                if now.plugin.version == versions.get(name) and now.fingerprint != made_with:
                    edited.setdefault(name, []).append(run.name)
    return [
        f"the code of {name} has changed since its estimates of {names[0]}"
        + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        + " were made; the same fsf run makes them anew"
        for name, names in edited.items()
    ]


def _as_json(run: Run) -> dict[str, Any]:
    estimates = {name: estimate.to_json() for name, estimate in run.estimates.items()}
    return {**run.settings, "estimates": estimates, "cautions": list(run.record.cautions)}


def _selected(found: Sequence[Run], selectors: Sequence[str], place: Path) -> list[Run]:
    """Return the runs that at least one of the selectors describes."""
    from fsframework.statistics.facts import matching_runs

    records = {run.name: run.record for run in found}
    names = {name for one in selectors for name in matching_runs(one, records, str(place))}
    return [run for run in found if run.name in names]


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
    """Show one run: its estimates, options, digests, versions and where it is.

    RUN is a folder, a name or its beginning, or a selector such as method=ncc,shot=5.
    """
    from fsframework.api.running import load_run
    from fsframework.cli import render

    opened = load_run(run, runs_dir)
    record = opened.record
    if as_json:
        render.print_json({"folder": str(opened.folder), **record.to_json()})
        return
    render.print_run(opened, explain=True)
    for line in _outdated([opened]):
        click.echo(f"note: {line}")
    values, origins = opened.options
    values["statistics"] = dict(record.statistic_options)
    given = [row for row in flat_options(values, origins) if row[2] != "default"]
    if given:
        click.echo()
        render.print_table(("option", "value", "origin"), given)
    if record.usage:
        click.echo()
        rows = [(name, f"{number:,.10g}") for name, number in record.usage.items()]
        render.print_table(("used", "amount"), rows)
    if record.digests:
        click.echo()
        render.print_table(("of", "digest"), list(record.digests.items()))
    if record.plugins:
        click.echo()
        rows = [(p.kind, p.name, f"{p.distribution} {p.version}") for p in record.plugins]
        render.print_table(("kind", "plugin", "from"), rows)


@runs.command("repeat")
@click.argument("run", metavar="RUN", shell_complete=run_names)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for the repeated run and its cache; an interrupted repetition goes on there.  "
    "[default: both are temporary]",
)
@click.option("--device", metavar="NAME", help="Device to compute on.  [default: the record's]")
@shared("allow-code", "allow-external", "plugin", "runs-dir", "json")
@click.pass_context
def repeat(context: click.Context, /, run: str, keep: Path | None, **given: Any) -> None:
    """Compute a run again in a fresh cache, and compare every digest and estimate.

    Data, words, tasks, training, evaluation and estimates are computed again, on the
    device and with the number of threads of the record where this machine has them. The
    table says what is the same to the last digit and what differs, by how much; below
    the results stand versions, hardware and options that are not those of the record.
    The exit code is 1 if a result differs.

    A plugin file is loaded from the copy in the folder of the run with --allow-code, or
    from FILE.py with --plugin.

    RUN is a folder, a name or its beginning, or a selector such as method=ncc,shot=5.

    \b
    Examples:
      fsf runs repeat method=renet
      fsf runs repeat runs/renet-planted-fewstab-5w5s-seed0-1a2b3c4d --keep ./again
    """
    from fsf_tools.repeating import repeat_run
    from fsframework.cli import render

    found = repeat_run(
        run,
        keep=keep,
        device=given["device"],
        allow_code=given["allow_code"],
        allow_external=given["allow_external"],
        plugins=given["plugin_files"],
        runs_dir=given["runs_dir"],
    )
    if given["as_json"]:
        render.print_json(found.to_json())
    else:
        render.print_table(*found.table())
        click.echo(f"\n{found.answer}")
    if not found.same:
        context.exit(1)


@runs.command("remove")
@click.argument("run_list", metavar="RUN...", nargs=-1, required=True, shell_complete=run_names)
@shared("runs-dir")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(run_list: tuple[str, ...], runs_dir: Path, yes: bool) -> None:
    """Remove runs with their weights and outcomes; cached stages stay.

    RUN is a folder, a name or its beginning, or a selector such as method=ncc,shot=5.
    """
    from fsframework.api.running import run_folder

    folders = list(dict.fromkeys(run_folder(run, runs_dir) for run in run_list))
    for folder in folders:
        held = f"{sum(f.is_file() for f in folder.rglob('*'))} files"
        click.echo(f"{folder}: {'a link' if folder.is_symlink() else held}")
    if not yes:
        click.confirm(f"Remove {'this run' if len(folders) == 1 else 'these runs'}?", abort=True)
    for folder in folders:
        _remove(folder)
        click.echo(f"removed {folder}")


def remove_run(run: str | Path, runs_dir: str | Path | None = None) -> None:
    """Remove a run with its weights and outcomes; cached stages stay.

    Args:
        run: what ``fsframework.load_run`` takes.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.
    """
    from fsframework.api.running import run_folder

    _remove(run_folder(run, runs_dir))


def _remove(folder: Path) -> None:
    """Remove a run, even a damaged one; of a folder that is a link only the link is removed."""
    try:
        if folder.is_symlink():
            folder.unlink()
            return
        # The record first: what a killed removal leaves behind is no longer a run.
        (folder / "run.json").unlink()
        shutil.rmtree(folder)
    except OSError as error:
        raise FsfError(f"cannot remove {folder}: {error.strerror or error}") from error


@runs.command("publish")
@click.argument("run", metavar="RUN", shell_complete=run_names)
@click.argument("name", metavar="DATA/NAME")
@click.option(
    "--to",
    "package",
    type=click.Path(path_type=Path),
    required=True,
    metavar="PACKAGE",
    help="Folder of the package, such as ./fsf-weights-birds; begun if it does not exist.",
)
@click.option("--licence", required=True, metavar="TEXT", help="Licence of the weights.")
@shared("runs-dir")
def publish(run: str, name: str, package: Path, licence: str, runs_dir: Path) -> None:
    """Put the trained model of a run into a package, under a name that others can give.

    The package carries the weights and the record, which has the recipe, the versions and
    the digest of the weights. Once it is installed, --model NAME takes the model.

    \b
    Example:
      fsf runs publish method=protonet birds/protonet --to fsf-weights-birds --licence MIT
      pip install ./fsf-weights-birds
      fsf run --model birds/protonet --dataset folder:./other-images
    """
    from fsf_tools.publishing import installed_from, publish_model
    from fsframework.api.running import load_run

    made = publish_model(name, package, load_run(run, runs_dir), licence=licence)
    click.echo(f"{name}: digest of its weights {made.record.digests['weights'][:12]}")
    click.echo(f"written to {made.folder}; install it with pip install {installed_from(package)}")
