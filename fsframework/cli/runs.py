"""`fsf runs`: what was run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.completion import run_names
from fsframework.cli.options import flat_options, group, json_option, runs_dir_option
from fsframework.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fsframework.records import RunRecord
    from fsframework.values import Estimate

__all__ = ["print_record", "runs"]

_CURVES = (("loss", "loss", 1), ("validation_accuracy", "validation", 100))
"""Columns of a training's history, their names, and the factor to what is shown."""


@group()
def runs() -> None:
    """List and show the runs made so far.

    \b
    Examples:
      fsf runs list
      fsf runs show runs/renet-planted-fewstab-1a2b3c4d
    """


@runs.command("list")
@runs_dir_option
@json_option
def list_runs(runs_dir: Path, as_json: bool) -> None:
    """List every run with its status and worst-class accuracies."""
    from fsframework.cli import render
    from fsframework.records import RunRecord, list_records

    found = list_records(runs_dir)
    if as_json:
        render.print_json(
            [
                {
                    "folder": str(folder),
                    "status": record.status
                    if isinstance(record, RunRecord)
                    else f"broken: {record}",
                    "fingerprint": getattr(record, "fingerprint", None),
                    "created": getattr(record, "created", None),
                    "estimates": {
                        n: e.to_json() for n, e in getattr(record, "estimates", {}).items()
                    },
                    "cautions": list(getattr(record, "cautions", ())),
                }
                for folder, record in found
            ]
        )
        return
    rows: list[tuple[str, ...]] = []
    marks: dict[str, int] = {}
    for folder, record in found:
        if not isinstance(record, RunRecord):
            rows.append((folder.name, f"broken: {record}", *[""] * 8))
            continue
        names = ("acc-R", "wacc-R", "wacc-A", "wacc-gap")
        cells = [
            render.shown(record.estimates[name]) if name in record.estimates else ""
            for name in names
        ]
        cells.append(_intervals([record.estimates[n] for n in names if n in record.estimates]))
        if record.status == "imported":
            facts = record.resolved["imported"]
            what = f"{facts['source']}, no tasks yet"
            if facts.get("what") == "accuracies":
                what = f"{facts['task_set']}, {facts['n_tasks']:,}"
            rows.append((folder.name, record.status, what, *cells, "", ""))
            continue
        scored = str(record.resolved.get("query_batch", "task"))
        tested = list(record.tasks.values())[-1]
        shape = f"{tested['way']}-way {tested['shot']}-shot, {tested['count']:,}"
        tasks = f"{_sampler(record)} {shape}"
        numbers = sorted(marks.setdefault(said, len(marks) + 1) for said in record.cautions)
        status = record.status + "".join(f" [{number}]" for number in numbers)
        rows.append((folder.name, status, tasks, *cells, scored, _words(record.resolved)))
    if not rows:
        click.echo(f"no runs in {runs_dir}")
        return
    heads = (
        "run",
        "status",
        "tasks",
        "Acc",
        "wAcc-R",
        "wAcc-A",
        "gap",
        "intervals",
        "queries by",
        "words",
    )
    render.print_table(heads, rows, spare=("words", "intervals", "queries by", "tasks"))
    if marks:
        click.echo()
    for said, number in marks.items():
        click.echo(f"[{number}] {said}")


@runs.command("show")
@click.argument("run", metavar="RUN", shell_complete=run_names)
@runs_dir_option
@json_option
def show_run(run: str, runs_dir: Path, as_json: bool) -> None:
    """Show one run: its estimates, options, versions and where it lies.

    RUN is a folder, or the name or beginning of the name of one in the runs folder.
    """
    from fsframework.cli import render
    from fsframework.records import RunRecord, find_run

    folder = find_run(run, runs_dir)
    record = RunRecord.load(folder)
    if as_json:
        raw = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
        raw["estimates"] = {n: e.to_json() for n, e in record.estimates.items()}
        render.print_json({"folder": str(folder), **raw})
        return
    print_record(folder, record)
    click.echo()
    if "training" not in record.resolved:
        return  # accuracies made elsewhere: no options of ours made them
    options = [row for row in flat_options(record.resolved, record.origins) if row[2] != "default"]
    if options:
        render.print_table(("option", "value", "origin"), options)
        click.echo()
    rows = [(p["kind"], p["name"], f"{p['distribution']} {p['version']}") for p in record.plugins]
    render.print_table(("kind", "plugin", "from"), rows)


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
    from fsframework.cli import render
    from fsframework.pipeline.learning.history import write_csv, write_tensorboard
    from fsframework.records import RunRecord, find_run

    folder = find_run(run, runs_dir)
    history = RunRecord.load(folder).training.get("history", [])
    if not history:
        raise RecordError(f"{folder}: nothing was trained in this run, or not yet")
    if csv_file is not None:
        write_csv(csv_file, history)
    if tensorboard is not None:
        write_tensorboard(tensorboard, history)
    if as_json:
        render.print_json(history)
        return
    click.echo("loss")
    click.echo("\n".join(render.chart([row["loss"] for row in history])))
    validated = [r["validation_accuracy"] for r in history if r["validation_accuracy"] is not None]
    if validated:
        click.echo("validation accuracy, %")
        click.echo("\n".join(render.chart([100 * value for value in validated])))
    click.echo(f"{len(history)} epochs from left to right")


def print_record(folder: Path, record: RunRecord) -> None:
    """Print a run as a researcher reads it."""
    from fsframework.cli import render

    if record.status == "imported":
        from fsframework.cli.import_ import print_imported

        print_imported(folder, record)
        return
    resolved = record.resolved
    stage, tested = resolved["training"][0], list(record.tasks.values())[-1]
    shape = f"{tested['way']}-way {tested['shot']}-shot, {tested['query']} queries a class"
    click.echo(
        f"{resolved['method']['name']} with {_backbone(resolved)} on "
        f"{_dataset(record)}: {_sampler(record)} tasks, {shape}, seed {tested['seed']}"
        + (f", {precision}" if (precision := resolved.get("precision", "fp32")) != "fp32" else "")
    )
    if "A" in record.tasks:
        click.echo(f"words: {_words(resolved)}")
    click.echo(_training_line(record, stage["steps"]))
    for line in _curve_lines(record):
        click.echo(line)
    click.echo()
    if record.status == "finished":
        render.estimates_table(record.estimates)
    else:
        click.echo("unfinished: give the same command again and it goes on")
    click.echo()
    if any(e.kind == "closed" for e in record.estimates.values()):
        open_ones = "; --interval image-level makes those of random tasks speak of new images too"
        uniform = any(tasks["sampler"] == "random" for tasks in record.tasks.values())
        click.echo(
            "closed: images recur between tasks, so the interval speaks of this data set only"
            + (open_ones if uniform else "")
        )
    if any(e.query_batch == "class" for e in record.estimates.values()):
        click.echo(
            "queries by class: the method saw the queries of one class at a time, as in FewSTAB's "
            "published evaluation; where a score depends on the queries beside it, this changes it"
        )
    for note in record.notes:
        click.echo(f"note: {note}")
    click.echo(f"run: {folder}")


def _intervals(estimates: Sequence[Estimate]) -> str:
    """Say what the intervals of a row are; what differs between them stands side by side."""

    def each(values: Iterable[str]) -> str:
        return "/".join(dict.fromkeys(values))

    if not estimates:
        return ""
    images = each(f"{e.n_images:,}" if e.n_images else "?" for e in estimates)
    return (
        f"{each(f'{100 * e.level:g}' for e in estimates)} % {each(e.kind for e in estimates)}, "
        f"{each(e.estimator for e in estimates)}, {images} images"
    )


def _dataset(record: RunRecord) -> str:
    """Return the data set as one would name it, with the folder or file it is read from."""
    resolved, origins = record.resolved["dataset"], record.origins.get("dataset", {})
    path = resolved.get("path")
    spelt = str(resolved["name"]) + (f":{path}" if path else "")
    # The origin of the name of a data set added under a name of its own holds that name.
    called = str(origins.get("name", "")).partition("fsf data add: ")[2]
    return f"{called} ({spelt})" if called else spelt


def _backbone(resolved: Mapping[str, Any]) -> str:
    """Return the backbone as one would name it, such as ``timm:resnet50``."""
    model = resolved["backbone"].get("model")
    return str(resolved["backbone"]["name"]) + (f":{model}" if model else "")


def _words(resolved: Mapping[str, Any]) -> str:
    """Say where the attributes come from, and what was dropped."""
    detector = resolved.get("detector")
    if detector is not None:
        source = f"detected by {detector['name']}"
        which = detector.get("model") or detector.get("path")
        source += f" ({which})" if which else ""
    else:
        source = resolved["attributes"] or "the data set's own"
    dropped = [
        f"{name.replace('_', '-')} {resolved[name] if resolved[name] is not True else ''}".strip()
        for name, usual in (("drop_class_words", False), ("drop_words", []), ("min_count", 1))
        if resolved.get(name, usual) != usual
    ]
    return ", ".join([str(source), *dropped])


def _sampler(record: RunRecord) -> str:
    """Return the sampler with those of its options that were given."""
    tested = list(record.tasks.values())[-1]
    origins, shape = record.origins.get("sampler", {}), ("name", "n_way", "n_shot", "n_query")
    given = [
        f"{name}={tested['options'][name]}"
        for name, origin in origins.items()
        if name not in shape and origin != "default" and name in tested["options"]
    ]
    return str(tested["sampler"]) + (f" ({', '.join(given)})" if given else "")


def _curve_lines(record: RunRecord) -> list[str]:
    """Return loss and validation accuracy of each stage as lines of blocks."""
    from fsframework.cli import render

    history = record.training.get("history", [])
    lines = []
    stages = sorted({row["stage"] for row in history})
    for stage in stages:
        rows = [row for row in history if row["stage"] == stage]
        of = f" of stage {stage + 1}" if len(stages) > 1 else ""
        for column, name, factor in (
            ("loss", "loss", 1),
            ("validation_accuracy", "validation", 100),
        ):
            values = [factor * row[column] for row in rows if row[column] is not None]
            if len(values) > 1:
                unit = " %" if factor == 100 else ""
                ends = f"{values[0]:.3g}{unit} to {values[-1]:.3g}{unit}"
                lines.append(f"{name + of:<22} {render.sparkline(values)}  {ends}")
    if "recipe" in record.training:
        lines.append(str(record.training["recipe"]))
    return lines


def _training_line(record: RunRecord, steps: int) -> str:
    history = record.training.get("history", [])
    if not history:
        sources = [s["init_from"] for s in record.resolved["training"] if s["init_from"]]
        return f"nothing was trained{'; weights from ' + sources[-1] if sources else ''}"
    epochs = "epoch" if len(history) == 1 else "epochs"
    start = record.resolved["training"][0]["init_from"]
    if start is None:
        data = record.data.get("pretrained_on", [])
        start = f"weights pretrained on {' and '.join(data)}" if data else "random weights"
    what = f"backbone and method from {start}"
    if record.training.get("backbone_is_frozen"):
        what = f"method, the backbone staying with its {start}"
    seconds = sum(row["seconds"] for row in history)
    best = record.training.get("best_validation_accuracy")
    validation = "" if best is None else f", best validation accuracy {100 * best:.1f} %"
    return (
        f"trained: {what}, {len(history)} {epochs} of {steps} "
        f"steps on {record.environment['device']} in {seconds:.0f} s{validation}"
    )
