"""`fsf runs export`: finished runs in experiment trackers."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click

from fsframework.cli.options import command, run_names, shared
from fsframework.errors import FsfError

__all__ = ["export"]


@command("export")
@click.argument("run_list", metavar="RUN...", nargs=-1, required=True, shell_complete=run_names)
@click.option("--to", required=True, type=click.Choice(("mlflow", "wandb")), help="The tracker.")
@click.option(
    "--uri",
    metavar="URI",
    help="MLflow's store, such as sqlite:///mlflow.db or http://localhost:5000.  [default: "
    "MLflow's own: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db]",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where wandb writes its offline runs, in a folder wandb.  [default: .]",
)
@click.option(
    "--project",
    default="fsframework",
    metavar="NAME",
    show_default=True,
    help="MLflow's experiment, or wandb's project.",
)
@click.option("--weights", is_flag=True, help="Copy the trained weights too.")
@shared("runs-dir", "json")
def export(  # noqa: PLR0913 - the options of the command
    run_list: tuple[str, ...],
    to: str,
    uri: str | None,
    directory: Path | None,
    project: str,
    weights: bool,
    runs_dir: Path,
    as_json: bool,
) -> None:
    """Copy finished runs into MLflow, or into offline runs of Weights & Biases.

    RUN is a folder, a name or its beginning, or a selector such as method=ncc,shot=5.
    A tracker gets the options, estimates, training curve, notes and versions of a run,
    and its run.json and curve.csv. It has each experiment once: exporting again updates
    it. A run that is unfinished or damaged is named; the others go on, and the exit
    code is 2.

    \b
    Examples:
      fsf runs export runs/* --to mlflow --uri sqlite:///mlflow.db
      fsf runs export method=renet --to wandb --dir ./tracking --weights
    """
    from fsf_trackers.exporting import export_runs
    from fsframework.cli import render

    found = []
    for one in export_runs(
        list(dict.fromkeys(run_list)), to, uri=uri, directory=directory,
        project=project, weights=weights, runs_dir=runs_dir,
    ):  # fmt: skip
        found.append(one)
        if one.state == "refused":
            click.echo(f"{one.run}: not exported: {one.reason}", err=True)
        elif not as_json:
            click.echo(f"{one.run}: {one.state}")
    if as_json:
        render.print_json([asdict(one) for one in found])
    refused = Counter(one.state for one in found)["refused"]
    if refused:
        raise FsfError(f"{refused} of {len(found)} runs {_were(refused)} not exported")


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
