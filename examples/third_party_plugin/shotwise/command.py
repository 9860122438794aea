"""`fsf uneven`: the runs whose classes differ most."""

from __future__ import annotations

from pathlib import Path

import click

from fsframework.cli.options import command, shared

__all__ = ["uneven"]


@command()
@shared("runs-dir", "json")
def uneven(runs_dir: Path, as_json: bool) -> None:
    """Rank the runs by how unevenly they serve the classes of a task."""
    import fsframework as fsf
    from fsframework.cli import render
    from shotwise.statistic import Spread

    found = [
        (run.name, arm, estimate)
        for run in fsf.runs(runs_dir)
        if run.record.status == "finished"
        for arm, estimate in fsf.estimate(run, Spread).items()
        if len(estimate.arms) == 1
    ]
    found.sort(key=lambda row: -row[2].value)
    if as_json:
        render.print_json([{"run": n, "measure": m, **e.to_json()} for n, m, e in found])
        return
    if not found:
        click.echo(f"no finished runs in {runs_dir}")
        return
    render.print_table(("run", "measure", "value"), [(n, m, str(e)) for n, m, e in found])
