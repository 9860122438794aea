"""`fsf figure`: figures of runs for a paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
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
from fsframework.errors import OptionError

if TYPE_CHECKING:
    from typing import Literal

    from fsf_reports.values import FigureDeclaration

__all__ = ["figure"]

_SUFFIXES = (".pdf", ".svg", ".png", ".csv")


@command("figure")
@click.argument("name", metavar="[NAME]", required=False)
@runs_argument(required=False)
@outputs_option(
    "File to write: .pdf, .svg, .png, .csv with the values, or what another renderer writes; "
    "repeatable.  [default: NAME.pdf]"
)
@click.option(
    "--columns",
    type=click.IntRange(1, 2),
    default=1,
    show_default=True,
    help="Width: one column of a paper (84 mm) or two (174 mm).",
)
@click.option(
    "--title/--no-title",
    "titled",
    default=False,
    help="Draw title and notes above the figure.  [default: no; both are printed, for a caption]",
)
@statistic_option
@click.option(
    "--by",
    type=click.Choice(["class", "attribute", "pair", "context"]),
    default="class",
    show_default=True,
    help="What breakdown shows.",
)
@question_option
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=25,
    show_default=True,
    metavar="N",
    help="Rows of breakdown and harm.",
)
@click.option("--list", "as_list", is_flag=True, help="List the main figures and what each needs.")
@click.option("--all", "list_all", is_flag=True, help="With --list: all figures.")
@click.option("--spec", is_flag=True, help="Print the Vega-Lite specification as JSON.")
@shared("level", "force", "runs-dir", "plugin", "json")
def figure(  # noqa: PLR0913 - a parameter per option
    name: str | None,
    run_list: tuple[str, ...],
    outputs: tuple[Path, ...],
    columns: Literal[1, 2],
    titled: bool,
    statistic: str,
    by: str,
    question: str | None,
    most: int,
    as_list: bool,
    list_all: bool,
    spec: bool,
    level: float | None,
    force: bool,
    runs_dir: Path,
    plugin_files: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Draw a figure of runs for a paper: PDF, SVG or PNG.

    \b
    NAME is one of those that fsf figure --list --all shows. RUN is a folder, a name or
    its beginning, a selector such as method=ncc,shot=5, or a folder of runs; LABEL=RUN
    gives it another name. The text for a caption is printed: what is shown, data,
    tasks, level of the intervals.
    With --json the declared values are printed, with --spec the Vega-Lite
    specification; then a file is written only where --output names one.

    \b
    Examples:
      fsf figure arms runs --output arms.pdf
      fsf figure intervals runs --columns 2 --title --output gaps.png
      fsf figure breakdown method=protonet --by attribute
      fsf figure training method=renet --output training.svg --output training.csv
    """
    from fsf_reports._figures import figure as declared
    from fsf_statistics import labelled_results
    from fsframework.cli import render

    if as_list or list_all or name is None:
        _list(as_json, list_all=list_all)
        return
    if not run_list:
        raise OptionError(f"the figure {name} needs at least one RUN; see fsf figure --list")
    if not outputs and not (as_json or spec):
        outputs = (Path(f"{name}.pdf"),)
    for path in outputs:
        check_output(path, force=force)
        if path.suffix.lower() not in _SUFFIXES:
            fsf_reports.check_figure(path, plugin_files, besides="csv")
    made = declared(
        name,
        labelled_results(run_list, runs_dir),
        statistic=statistic,
        by=by,
        question=question,
        most=most,
        level=0.95 if level is None else level,
        runs_dir=runs_dir,
        plugins=plugin_files,
    )
    shown = made if titled else dataclasses.replace(made, title="")
    for path in outputs:
        _write(shown, path, columns, plugin_files)
    if as_json:
        render.print_json(made.to_json())
    elif spec:
        from fsf_reports._altair import vega_lite

        render.print_json(vega_lite(shown, columns))
    else:
        from fsf_reports._altair import on_a_page

        for path in outputs:
            click.echo(str(path))
        click.echo(" ".join((made.title, *on_a_page(shown, columns).notes)))


def _write(
    made: FigureDeclaration, path: Path, columns: Literal[1, 2], plugins: Sequence[Path]
) -> None:
    from fsf_reports._data import figure_csv
    from fsframework.values import atomic_write

    suffix = path.suffix.lower()
    if suffix == ".csv":
        atomic_write(path, figure_csv(made))
    else:
        renderer = "altair" if suffix in _SUFFIXES else None
        fsf_reports.save_figure(made, path, columns, renderer=renderer, plugins=plugins)


def _list(as_json: bool, *, list_all: bool) -> None:
    from fsf_reports._figures import FIGURES
    from fsframework.cli import render

    if as_json:
        render.print_json(
            [{"figure": n, "shows": f.summary, "needs": f.needs, "main": f.main}
             for n, f in FIGURES.items()]
        )  # fmt: skip
        return
    shown = {name: one for name, one in FIGURES.items() if one.main or list_all}
    rows = [(name, one.summary, one.needs) for name, one in shown.items()]
    render.print_table(("figure", "shows", "needs"), rows)
    click.echo()
    if not list_all:
        click.echo(f"{len(FIGURES) - len(shown)} more: fsf figure --list --all")
        return
    click.echo(
        "Others are drawn where their numbers are: fsf benchmark NAME --figure, fsf plan --figure, "
        "fsf data similarity --figure (MetaCoCo Fig. 2b)"
    )
