"""`fsf cite`: what to cite for runs."""

from __future__ import annotations

from pathlib import Path

import click

from fsf_reports._options import runs_argument
from fsframework.cli.options import command, shared

__all__ = ["cite"]


@command()
@runs_argument()
@shared("runs-dir")
def cite(run_list: tuple[str, ...], runs_dir: Path) -> None:
    """Print BibTeX of what runs used.

    RUN is a folder, a name or its beginning, a selector such as method=ncc,shot=5, or a folder
    of runs; LABEL=RUN is taken as by the other commands. The entries are those of the methods,
    backbones, data sets, samplers, detectors and intervals, and of this software. A comment above
    each says what it is for.

    \b
    Examples:
      fsf cite method=renet
      fsf cite runs > software.bib
    """
    from fsf_reports._citing import cite as citations
    from fsf_reports._report import opened_runs
    from fsf_statistics import labelled_results

    found = list(opened_runs(labelled_results(run_list, runs_dir), runs_dir))
    done = [run for run in found if run.record.status != "unfinished"]
    text = citations(found)
    if left := [run.name for run in found if run not in done]:
        click.echo(f"note: left out, not finished: {', '.join(left)}", err=True)
    click.echo(text)
