"""`fsf runs curve`: the course of a training."""

from __future__ import annotations

from pathlib import Path

import click

from fsframework.cli.options import command, run_names, shared
from fsframework.errors import RecordError

__all__ = ["curve"]


@command("curve")
@click.argument("run", metavar="RUN", shell_complete=run_names)
@click.option(
    "--tensorboard-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write the curve into this folder for TensorBoard.",
)
@shared("runs-dir", "json")
def curve(run: str, tensorboard_dir: Path | None, runs_dir: Path, as_json: bool) -> None:
    """Show the curve of a run's training, epoch by epoch.

    RUN is a folder, a name or its beginning, or a selector such as method=ncc,shot=5.
    The file curve.csv in its folder has the numbers; fsf figure training draws them.

    \b
    Examples:
      fsf runs curve method=renet
      fsf runs curve method=renet --tensorboard-dir ./events
    """
    import fsframework as fsf
    from fsframework.cli import render

    opened = fsf.load_run(run, runs_dir)
    history = opened.record.training.history
    if not history:
        raise RecordError(f"{opened.folder}: nothing was trained in this run, or not yet")
    if tensorboard_dir is not None:
        from fsframework.api.training import write_tensorboard

        write_tensorboard(tensorboard_dir, history)
    if as_json:
        render.print_json([vars(row) for row in history])
        return
    validated = [r.validation_accuracy for r in history if r.validation_accuracy is not None]
    curves = {"loss": [row.loss for row in history], "validation accuracy, %": [
        100 * value for value in validated
    ]}  # fmt: skip
    rows = [
        (name, f"{values[0]:.3f}", render.sparkline(values), f"{values[-1]:.3f}",
         f"{min(values):.3f}", f"{max(values):.3f}")
        for name, values in curves.items()
        if values
    ]  # fmt: skip
    render.print_table(("", "first", "curve", "last", "least", "most"), rows)
    click.echo(f"{len(history)} epochs from left to right")
