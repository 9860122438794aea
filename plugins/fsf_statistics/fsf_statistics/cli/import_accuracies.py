"""`fsf import accuracies`: make runs from results measured elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsf_statistics.cli._file_options import file_options
from fsframework.cli.options import command, shared

if TYPE_CHECKING:
    from fsf_statistics.accuracies import TaskAccuracies
    from fsframework import Run

__all__ = ["accuracies"]


@command()
@click.argument(
    "paths", metavar="PATH...", type=click.Path(path_type=Path), nargs=-1, required=True
)
@click.option(
    "--task-set",
    metavar="NAME",
    help="Name of the tasks of files given themselves: equal names, the same tasks in the same "
    "order.",
)
@click.option(
    "--label", metavar="NAME", help="Name of the method.  [default: name of the file or column]"
)
@file_options
@shared("runs-dir", "json")
def accuracies(  # noqa: PLR0913 - a parameter per option
    paths: tuple[Path, ...],
    task_set: str | None,
    label: str | None,
    layout: str | None,
    scope: Any,
    images: int | None,
    unit: Any,
    runs_dir: Path,
    as_json: bool,
) -> None:
    """Make runs from accuracies of tasks, for fsf compare.

    PATH is a file or a folder of files: .pt with a tensor or a list, .npy with an array,
    CSV or Parquet with a column per method and a row per task. Accuracies contain no
    tasks, so state which files have the same tasks and whether images recur in them.

    \b
    Examples:
      fsf import accuracies results.csv --task-set cub-5-shot
      fsf import accuracies mine.pt --label mine --task-set cub-5-shot --unit percent
      fsf import accuracies ./accuracies --layout tasks/method/method/tasks --scope open
    """
    from fsf_statistics.accuracies import Reading, read_accuracies, unit_text
    from fsf_statistics.imported_runs import import_accuracies
    from fsframework.cli import render

    reading = Reading(layout, label, task_set, unit, scope, images or 0)
    given = {name: value for name, value in vars(reading).items() if value}
    read = read_accuracies(paths, reading)
    runs, notes = import_accuracies(
        read, runs_dir, {**given, "paths": [str(path) for path in paths]}
    )
    if as_json:
        told = [_as_json(run, one) for run, one in zip(runs, read, strict=True)]
        render.print_json({"runs": told, "notes": notes})
        return
    rows = []
    for run, one in zip(runs, read, strict=True):
        (found,) = run.estimates.values()
        interval = f"{100 * found.level:g} % {found.scope}, {found.estimator}"
        rows.append(
            (one.task_set, one.method, f"{found.n_tasks:,}", str(found), interval, run.name)
        )
    render.print_table(("tasks", "method", "number", "Acc", "interval", "run"), rows)
    click.echo()
    click.echo(f"the accuracies were read as {unit_text(read[0].unit)}")
    for note in notes:
        click.echo(f"note: {note}")
    click.echo(f"{len(runs)} runs in {runs_dir}; compare them: fsf compare RUN RUN ...")


def _as_json(run: Run, read: TaskAccuracies) -> dict[str, Any]:
    return {
        "folder": str(run.folder),
        "method": read.method,
        "task_set": read.task_set,
        "source": str(read.source.resolve()),
        "scope": read.scope,
        "n_tasks": len(read.values),
        "unit": read.unit,
        "n_images": read.n_images,
        "estimates": {name: found.to_json() for name, found in run.estimates.items()},
    }
