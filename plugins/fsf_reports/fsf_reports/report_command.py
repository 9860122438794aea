"""`fsf report`: runs as one page."""

from __future__ import annotations

from pathlib import Path

import click

import fsf_reports
from fsf_reports._options import runs_argument
from fsframework.cli.options import check_output, command, plugin_names, shared

__all__ = ["report"]


@command()
@runs_argument()
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE.html",
    help="File to write.",
)
@click.option("--title", default="", metavar="TEXT", help="Title; by default methods and data.")
@click.option(
    "--section",
    "sections",
    multiple=True,
    metavar="NAME",
    shell_complete=plugin_names("section"),
    help="Show only this section; repeatable. fsf plugins list --kind section lists them.",
)
@click.option(
    "--writer",
    default="html",
    show_default=True,
    metavar="NAME",
    shell_complete=plugin_names("page"),
    help="Plugin that writes the page.",
)
@shared("force", "runs-dir", "cache-dir", "plugin")
def report(  # noqa: PLR0913 - a parameter per option
    run_list: tuple[str, ...],
    output: Path,
    title: str,
    sections: tuple[str, ...],
    writer: str,
    force: bool,
    runs_dir: Path,
    cache_dir: Path,
    plugin_files: tuple[Path, ...],
) -> None:
    """Write one page on runs: what was found, figures, tasks, words that hurt, data.

    RUN is a folder, a name or its beginning, a selector such as method=ncc,shot=5, or a folder
    of runs; LABEL=RUN gives it another name. The page is one file that needs no other and makes
    no request. It reads the folders of the runs and the image cache, and computes nothing again
    but statistics.

    \b
    Examples:
      fsf report method=protonet
      fsf report runs --output report.html
      fsf report ours=method=protonet method=renet --section leaderboard --section tasks
    """
    from fsf_statistics import labelled_results

    check_output(output, ".html", force=force)
    made = fsf_reports.report(
        labelled_results(run_list, runs_dir),
        output,
        title=title,
        sections=sections or None,
        writer=writer,
        runs_dir=runs_dir,
        cache_dir=cache_dir,
        plugins=plugin_files,
    )
    for name, problem in made.problems.items():
        click.echo(f"note: the section {name} shows a notice: {problem}", err=True)
    click.echo(f"{output}: {output.stat().st_size / 1e6:.1f} MB")
