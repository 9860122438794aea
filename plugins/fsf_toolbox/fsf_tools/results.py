"""`fsf results`: runs of several people in one folder."""

from __future__ import annotations

from pathlib import Path

import click

from fsframework.cli.options import group, run_names, shared
from fsframework.errors import DataError

__all__ = ["results"]


@group()
def results() -> None:
    """Collect runs of several people in one folder, such as a repository.

    \b
    Examples:
      fsf results add method=protonet method=renet --to results
      fsf report results --output results/index.html
    """


@results.command("add")
@click.argument("run_list", metavar="RUN...", nargs=-1, required=True, shell_complete=run_names)
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Folder of the results; begun if it does not exist.",
)
@shared("runs-dir", "plugin")
def add(
    run_list: tuple[str, ...], folder: Path, runs_dir: Path, plugin_files: tuple[Path, ...]
) -> None:
    """Check runs, and copy their records, tasks and outcomes into FOLDER.

    A run is refused if its tasks, outcomes or estimates do not agree with its record, if a
    statistic had another version, or if its tasks are not those of the task set that it
    names. The others are added all the same; weights and images stay where they are. fsf
    report FOLDER makes a page of all; its section "How to submit" is FOLDER/SUBMIT.md.

    RUN is a folder, a name or its beginning, a selector such as method=ncc,shot=5, or a
    folder of runs.
    """
    from fsf_tools.collecting import add_results

    told = add_results(run_list, folder, runs_dir=runs_dir, plugins=plugin_files)
    refused = {name: why for name, why in told.items() if why}
    for name in told:
        if name not in refused:
            click.echo(f"{folder / Path(name).name}: checked, and in the results")
    for why in refused.values():
        click.echo(f"refused: {why}", err=True)
    if refused:
        raise DataError(f"{len(refused)} of {len(told)} runs were refused")
