"""`fsf table`: tables of runs for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import fsf_reports
from fsf_reports._options import (
    outputs_option,
    question_option,
    runs_argument,
    statistic_option,
)
from fsframework.cli.options import check_output, command, shared

if TYPE_CHECKING:
    from fsf_reports.values import TableDeclaration

__all__ = ["table"]

_SUFFIXES = (".tex", ".md", ".csv", ".html")


@command("table")
@runs_argument()
@click.option(
    "--of",
    default="headline",
    show_default=True,
    metavar="NAME",
    help="headline, shots, datasets or differences; of one run classes, attributes, pairs, "
    "contexts, worst-groups or harm.",
)
@outputs_option(
    "File to write: .tex, .md, .html, .csv (unrounded, one row per value), or what another "
    "table writer writes; repeatable.  [default: print it]"
)
@click.option(
    "--columns",
    metavar="NAMES",
    help="Measures to show, separated by commas, such as wacc-biased,gap.  [default: all]",
)
@click.option(
    "--group-by",
    metavar="NAME",
    default="",
    help="Group rows by method, data, way, shot, backbone, words, seeds, or an option in which "
    "the tasks differ, such as strength.",
)
@statistic_option
@question_option
@click.option(
    "--digits", type=click.IntRange(0, 6), default=1, show_default=True, metavar="N",
    help="Decimals of percentages.",
)  # fmt: skip
@shared("level", "force", "runs-dir", "plugin", "json")
def table(  # noqa: PLR0913 - a parameter per option
    run_list: tuple[str, ...],
    of: str,
    outputs: tuple[Path, ...],
    columns: str | None,
    group_by: str,
    statistic: str,
    question: str | None,
    digits: int,
    level: float | None,
    force: bool,
    runs_dir: Path,
    plugin_files: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Make a table of runs for a paper: LaTeX, Markdown, HTML or CSV.

    \b
    RUN is a folder, a name or its beginning, a selector such as method=ncc,shot=5, or
    a folder of runs; LABEL=RUN gives it another name. Rows are methods, columns the
    measures of both arms and the gap. The best value on equal tasks is bold; values
    that cannot be distinguished from it are marked. The caption says data, tasks and
    level of the intervals; what else must be known of the runs is printed. The LaTeX
    needs \\usepackage{booktabs}.

    \b
    Examples:
      fsf table runs --output table.tex
      fsf table runs --columns wacc-biased,gap --group-by data --output table.md
      fsf table runs --of shots --output shots.tex --output shots.csv
      fsf table method=protonet --of classes
    """
    from fsf_reports._table_files import PlainTables
    from fsf_reports._tables import table as declared
    from fsf_statistics import labelled_results
    from fsframework.cli import render

    for path in outputs:
        check_output(path, force=force)
        if path.suffix.lower() not in _SUFFIXES:
            fsf_reports.check_tables(path, plugin_files)
    made = declared(
        labelled_results(run_list, runs_dir),
        of,
        statistic=statistic,
        columns=[name.strip() for name in (columns or "").split(",") if name.strip()],
        group_by=group_by,
        question=question,
        level=0.95 if level is None else level,
        runs_dir=runs_dir,
        plugins=plugin_files,
    )
    for path in outputs:
        plain = PlainTables(digits=digits, grouped=bool(group_by))
        writer = plain if path.suffix.lower() in _SUFFIXES else None
        fsf_reports.save_tables(made, path, writer=writer, plugins=plugin_files)
    if as_json:
        render.print_json(made.to_json())
        return
    for path in outputs:
        click.echo(str(path))
    if not outputs:
        _print(made, digits)
    for remark in made.remarks:
        click.echo(f"note: {remark}")


def _print(made: TableDeclaration, digits: int) -> None:
    from fsf_reports._table_files import as_text, caption, notes
    from fsframework.cli import render

    heads, cells = as_text(made, digits)
    render.print_table(heads, cells)
    click.echo()
    for text in filter(None, (caption(made), notes(made, "*"))):
        click.echo(text)
