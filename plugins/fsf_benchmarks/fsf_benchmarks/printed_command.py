"""`fsf runs printed`: what publications print beside what a run measured."""

from __future__ import annotations

from pathlib import Path

import click

from fsframework.cli.options import command, shared

__all__ = ["printed"]


@command("printed")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@shared("runs-dir", "json")
def printed(runs: tuple[str, ...], runs_dir: Path, as_json: bool) -> None:
    """Show what publications print for the same method, data and tasks as runs.

    \b
    RUN is a folder, a name or its beginning, or a selector such as method=ncc,shot=5.
    Training, images and number of tasks of a publication may differ from those of
    the run.

    \b
    Examples:
      fsf runs printed method=protonet
    """
    import fsframework as fsf
    from fsf_benchmarks import beside_printed, printed_values
    from fsframework.cli import render

    opened = {name: fsf.load_run(name, runs_dir) for name in runs}
    found = {name: printed_values(run) for name, run in opened.items()}
    if as_json:
        render.print_json({name: [one.to_json() for one in own] for name, own in found.items()})
        return
    rows = [
        (name, one.measure, one.value.text(), str(opened[name].estimates[one.measure]),
         ", ".join(filter(None, (one.source, one.table, one.apart))))
        for name, own in found.items()
        for one in own
    ]  # fmt: skip
    if not rows:
        click.echo("no installed benchmark has printed values for these runs")
        return
    render.print_table(("run", "measure", "printed", "here", "where"), rows)
    click.echo()
    for name, run in opened.items():
        if told := beside_printed(run):
            click.echo(f"{name}: {told}")
