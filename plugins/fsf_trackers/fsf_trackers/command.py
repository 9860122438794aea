"""`fsf runs export`: finished runs in experiment trackers, and the files that make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from fsframework.cli.options import check_output, command, run_names, shared
from fsframework.errors import FsfError, OptionError
from fsframework.values import atomic_write

__all__ = ["export"]


@command("export")
@click.argument("run_list", metavar="RUN...", nargs=-1, required=True, shell_complete=run_names)
@click.option("--to", type=click.Choice(("mlflow", "wandb")), help="The tracker.")
@click.option(
    "--config",
    is_flag=False,
    flag_value="-",
    metavar="[FILE.toml]",
    help="Write the configuration file that makes the run, which must be one; without FILE.toml "
    "it is printed.",
)
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
@shared("runs-dir", "json", "force")
def export(  # noqa: PLR0913 - the options of the command
    run_list: tuple[str, ...],
    to: str | None,
    config: str | None,
    uri: str | None,
    directory: Path | None,
    project: str,
    weights: bool,
    runs_dir: Path,
    as_json: bool,
    force: bool,
) -> None:
    """Copy finished runs into MLflow or Weights & Biases, or write the file that makes one.

    RUN is a folder, a name or its beginning, or a selector such as method=ncc,shot=5.

    --config writes the options that were given as TOML: with the same data and code, fsf
    run --config FILE.toml finds the run as finished.

    A tracker gets the options, estimates, training curve, notes and versions of a run,
    and its run.json and curve.csv. It has each experiment once: exporting again updates
    it. A run that is unfinished or damaged is named; the others go on, and the exit
    code is 2.

    \b
    Examples:
      fsf runs export runs/* --to mlflow --uri sqlite:///mlflow.db
      fsf runs export method=renet --to wandb --dir ./tracking --weights
      fsf runs export method=renet --config renet.toml
    """
    if (to is None) == (config is None):
        raise OptionError("give --to TRACKER, or --config for the file that makes a run")
    if config is not None:
        _write_configuration(run_list, config, runs_dir, force=force)
        return
    assert to is not None
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


def _write_configuration(runs: Sequence[str], file: str, runs_dir: Path, *, force: bool) -> None:
    """Write the configuration file of a run, or print it if the file is ``-``."""
    from fsf_trackers.configuration import configuration_of

    if len(runs) > 1:
        raise OptionError(f"--config is for one run, not {len(runs)}")
    if file != "-":
        check_output(Path(file), ".toml", force=force)
    text = configuration_of(runs[0], runs_dir=runs_dir)
    if file == "-":
        click.echo(text, nl=False)
    else:
        atomic_write(Path(file), text)


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
