"""`fsf rank`: whether two columns of results rank methods in the same order."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import command, shared
from fsframework.errors import DataError, OptionError, close_matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsf_statistics.cli._compare_views import ComparisonTable
    from fsf_statistics.ranking import RankAgreement, RankedColumns

__all__ = ["rank"]


@command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option(
    "--columns",
    nargs=2,
    metavar="A B",
    required=True,
    help="The two columns; for runs, two estimates such as wacc-random wacc-biased.",
)
@click.option(
    "--row",
    default="method",
    show_default=True,
    metavar="COLUMN",
    help="Column of row names.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN",
    help="Rank each group of rows with the same value separately; repeatable.",
)
@click.option("--pivot", metavar="COLUMN", help="A and B are values of this column, not columns.")
@click.option("--value", metavar="COLUMN", help="With --pivot: the column with the numbers.")
@shared("level")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "latex"]),
    metavar="table|markdown|latex",
    default="table",
    show_default=True,
    help="Output format. LaTeX needs booktabs.",
)
@shared("runs-dir", "json")
def rank(  # noqa: PLR0913 - a parameter per option
    sources: tuple[str, ...],
    columns: tuple[str, str],
    row: str,
    by: tuple[str, ...],
    pivot: str | None,
    value: str | None,
    level: float | None,
    form: str,
    runs_dir: Path,
    as_json: bool,
) -> None:
    """Compare how two columns of results rank methods.

    SOURCE is a CSV table with a row per method, or at least three runs. Spearman's rho
    and Kendall's tau-b, each with an interval over the rows. Runs that differ
    only in their training seed are one row, with the means over the seeds.

    \b
    Examples:
      fsf rank results.csv --columns wacc_r wacc_a
      fsf rank table3.csv --columns wAcc-A wAcc-R --pivot metric --value value_percent --by shot
      fsf rank method=ncc method=maml method=renet --columns wacc-random wacc-biased
    """
    from fsf_statistics.cli import _compare_views as views
    from fsf_statistics.ranking import rank, read_columns
    from fsframework.cli import render

    level = 0.95 if level is None else level
    notes: list[str] = []
    if len(sources) == 1 and Path(sources[0]).suffix == ".csv":
        path = Path(sources[0])
        parts = read_columns(path, columns, row=row, by=by, pivot=pivot, value=value)
    else:
        if by or pivot or value:
            raise OptionError("--by, --pivot and --value are for a CSV table, not for runs")
        parts = [_of_runs(sources, columns, runs_dir, notes)]
    found: list[tuple[RankedColumns, RankAgreement]] = []
    for part in parts:
        try:
            made = rank(part.first, part.second, level=level)
        except DataError as error:
            about = " ".join(part.group)
            raise DataError(f"{about + ': ' if about else ''}{error}") from None
        found.append((part, made))
        if part.left_out:
            lacking = ", ".join(part.left_out)
            notes.append(f"{' '.join(part.group)}: left out because a value is missing: {lacking}")
        if math.isnan(made.rho):
            notes.append(
                f"{' '.join(part.group)}: all values of a column are equal, so it gives no ranking"
            )
    if as_json:
        render.print_json(_as_json(columns, by, found, notes))
        return
    table = _table(columns, by, found, notes)
    draw = {"table": views.as_text, "markdown": views.as_markdown, "latex": views.as_latex}[form]
    click.echo(draw([table]))


def _as_json(
    columns: tuple[str, str],
    by: tuple[str, ...],
    found: Sequence[tuple[RankedColumns, RankAgreement]],
    notes: list[str],
) -> dict[str, Any]:
    parts = [
        {
            **dict(zip(by, part.group, strict=True)),
            "rows": list(part.rows),
            "n_seeds": list(part.n_seeds),
            "left_out": list(part.left_out),
            **{k: None if v != v else v for k, v in vars(made).items()},
        }
        for part, made in found
    ]
    return {"columns": list(columns), "parts": parts, "notes": notes}


def _table(
    columns: tuple[str, str],
    by: tuple[str, ...],
    found: Sequence[tuple[RankedColumns, RankAgreement]],
    notes: list[str],
) -> ComparisonTable:
    from fsf_statistics.cli._compare_views import ComparisonTable

    over_seeds = any(n > 1 for part, _ in found for n in part.n_seeds)
    rows = tuple(
        (
            *part.group,
            str(made.n_rows),
            *((_seeds(part.n_seeds),) if over_seeds else ()),
            _shown(made.rho, made.rho_low, made.rho_high),
            _shown(made.tau, made.tau_low, made.tau_high),
            f"{100 * made.level:g} %, over rows",
        )
        for part, made in found
    )
    return ComparisonTable(
        f"{columns[0]} against {columns[1]}",
        (*by, "rows", *(("seeds",) if over_seeds else ()), "Spearman", "Kendall", "interval"),
        rows,
        (
            "intervals are about other methods like these, with values taken as exact",
            *(f"note: {note}" for note in notes),
        ),
    )


def _seeds(n_seeds: tuple[int, ...]) -> str:
    """Return the number of seeds per row, or the least and the greatest."""
    fewest, most = min(n_seeds), max(n_seeds)
    return str(most) if fewest == most else f"{fewest} to {most}"


def _shown(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return "none"
    return f"{value:.2f} [{low:.2f} to {high:.2f}]".replace("-", "−")


def _of_runs(
    sources: tuple[str, ...], columns: tuple[str, str], runs_dir: Path, notes: list[str]
) -> RankedColumns:
    import numpy as np

    import fsframework as fsf
    from fsf_statistics.cautions import cautions_of
    from fsf_statistics.ranking import RankedColumns
    from fsframework.values import footnotes

    runs = [fsf.load_run(source, runs_dir) for source in sources]
    for run in runs:
        for name in columns:
            if name not in run.estimates:
                hint = close_matches(name, run.estimates)
                known = ", ".join(run.estimates) or "none"
                raise DataError(f"{run.name}: has no estimate {name!r}{hint}; it has {known}")
    used = dict.fromkeys(arm for name in columns for arm in runs[0].estimates[name].arms)
    notes += [
        f"not all runs were evaluated on the same tasks of the arm {arm}"
        for arm in used
        if len({run.record.arms[arm].digest for run in runs if arm in run.record.arms}) > 1
    ]
    notes += footnotes(cautions_of({run.name: [run.record] for run in runs}))
    groups = fsf.Runs(runs).over_seeds()
    for group in groups:
        if lacking := [name for name in columns if name not in group.estimates]:
            raise DataError(
                f"{group.name}: {lacking[0]} has no mean over seeds: {group.seed_notes[-1]}"
            )
    first, second = (np.array([one.estimates[name].value for one in groups]) for name in columns)
    n_seeds = tuple(len(group.runs) for group in groups)
    return RankedColumns((), tuple(one.name for one in groups), first, second, (), n_seeds)
