"""`fsf compare`: methods on equal tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsf_statistics.cli._file_options import file_options
from fsframework.cli.options import command, plugin_names, run_names, shared
from fsframework.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fsf_statistics.comparing import MeasureComparison
    from fsframework import Comparison
    from fsframework.api.headlines import Headline
    from fsframework.statistics.measures import Measure
    from fsframework.statistics.results import MethodResult

__all__ = ["compare"]


@command(epilog="Exit code 2 if tasks differ, since their values cannot be paired.")
@click.argument("sources", metavar="SOURCE...", shell_complete=run_names, nargs=-1, required=True)
@click.option(
    "--statistic",
    "statistics",
    multiple=True,
    shell_complete=plugin_names("statistic"),
    metavar="NAME",
    help="What to compare: a statistic in every arm (wacc), in one (wacc-biased), or its gap "
    "(wacc-gap, or gap for short); repeatable.  [default: acc and wacc in every arm, and wacc-gap]",
)
@shared("interval", "level")
@click.option(
    "--resamples",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Number of bootstrap resamples.",
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Bootstrap seed.")
@click.option("--baseline", metavar="LABEL", help="Compare only with this method.")
@click.option(
    "--by-tasks",
    is_flag=True,
    help="Compare within each set of equal tasks instead of refusing different tasks.",
)
@click.option(
    "--beside",
    multiple=True,
    metavar="SOURCE",
    help="The same methods on tasks of the other scope (closed or open); their direct "
    "comparison is added to the matrix; repeatable.",
)
@click.option(
    "--same-tasks",
    is_flag=True,
    help="Row i of every file of accuracies is the same task, sorted by a column task.",
)
@file_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "latex", "csv"]),
    metavar="table|markdown|latex|csv",
    default="table",
    show_default=True,
    help="Output format. LaTeX needs booktabs; CSV contains the pairs, unrounded.",
)
@click.option("--pairs", is_flag=True, help="Also print the difference of every pair.")
@click.option("--matrix", is_flag=True, help="Also print who is higher as a matrix of signs.")
@click.option(
    "--explain",
    is_flag=True,
    help="Print everything: each value with its interval, all pairs, the matrix, corrections.",
)
@shared("runs-dir", "plugin", "json")
def compare(  # noqa: PLR0913 - a parameter per option
    sources: tuple[str, ...],
    statistics: tuple[str, ...],
    baseline: str | None,
    by_tasks: bool,
    beside: tuple[str, ...],
    same_tasks: bool,
    scope: Any,
    layout: str | None,
    unit: Any,
    images: int | None,
    form: str,
    pairs: bool,
    matrix: bool,
    explain: bool,
    runs_dir: Path,
    plugin_files: tuple[Path, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Compare methods on equal tasks: who is best, and who cannot be distinguished.

    SOURCE is a run (folder, name or its beginning, or a selector such as
    method=ncc,shot=5), a folder of runs, a file of accuracies (.pt, CSV, Parquet;
    a column per method) or a folder of such files. LABEL=SOURCE gives it another name.
    Runs that differ only in their training seed are one method, unless they have labels
    of their own.

    \b
    A statistic such as wacc is compared in every arm that the runs share,
    wacc-biased in one arm, wacc-gap (gap for short) in the contrast of two arms.
    The default is acc and wacc in every arm and wacc-gap, if the runs have them.

    It prints the answer in words and one table. The differences of all pairs,
    the matrix of signs and the corrections follow with --pairs, --matrix and
    --explain; with --baseline the pairs are printed at once.

    \b
    Examples:
      fsf compare method=protonet method=renet
      fsf compare method=protonet method=renet --statistic gap --interval bca
      fsf compare runs --by-tasks --baseline protonet --format latex
      fsf compare results.csv --scope open
    """
    import fsframework as fsf
    from fsf_statistics.accuracies import Reading
    from fsf_statistics.cli import _compare_views as views
    from fsf_statistics.cli._comparison_tables import count_pairs
    from fsf_statistics.sources import read_results
    from fsframework.cli import render
    from fsframework.values import footnotes

    reading = Reading(layout=layout, unit=unit, scope=scope, n_images=images or 0)
    how = {name: value for name, value in options.items() if value is not None}
    how |= {"runs_dir": runs_dir, "plugins": plugin_files}
    units: list[str] = []
    same = {"same_tasks": same_tasks, "notes": units}
    results = read_results(sources, runs_dir, reading, by_tasks=by_tasks, **same)
    found = fsf.compare(results, statistics or None, baseline=baseline, by_tasks=by_tasks, **how)
    others: dict[str, MeasureComparison] = {}
    notes, cautions = list(found.notes), dict(found.cautions)
    if beside:
        if by_tasks:
            raise OptionError("--beside needs one set of tasks and cannot be used with --by-tasks")
        more = read_results(beside, runs_dir, reading, **same)
        wanted = _counterparts([part.measure for part in found], more)
        second = fsf.compare(more, list(wanted.values()), baseline=baseline, **how)
        others = {name: second[own] for name, own in wanted.items()}
        _check_beside(found, second)
        notes += second.notes
        cautions |= second.cautions
    notes = list(dict.fromkeys([*units, *notes]))
    if as_json:
        render.print_json(
            {
                **found.to_json(),
                "counts": vars(count_pairs(found)),
                "beside": [part.to_json() for part in others.values()],
                "notes": notes,
                "cautions": {label: list(said) for label, said in cautions.items()},
            }
        )
        return
    if form == "csv":
        click.echo(views.as_csv([*found, *others.values()], cautions))
        return
    shown = _shown(pairs or baseline is not None, matrix, explain or bool(beside))
    if form == "table":
        asked = {part.measure.statistic: None for part in found}
        for name in list(asked) if statistics else list(asked)[-1:]:
            render.print_headline(_headline(results, name, how))
            if shown:
                click.echo()
    else:
        limits = (limit for part in found for limit in part.limits)
        notes = list(dict.fromkeys([*limits, *notes]))
    tables = views.tables_of(found, others, footnotes(cautions), shown or ("values",))
    draw = {"table": views.as_text, "markdown": views.as_markdown, "latex": views.as_latex}[form]
    if shown or form != "table":
        click.echo(draw(tables))
    for note in notes:
        click.echo({"markdown": "- ", "latex": "% "}.get(form, "") + f"note: {note}")


def _shown(pairs: bool, matrix: bool, explain: bool) -> tuple[str, ...]:
    """Return which long forms follow the headline."""
    if explain:
        from fsf_statistics.cli._compare_views import PARTS

        return PARTS
    return tuple(name for name, asked in (("pairs", pairs), ("matrix", matrix)) if asked)


def _headline(results: Sequence[MethodResult], statistic: str, how: Mapping[str, Any]) -> Headline:
    """Return the answer for one statistic."""
    import fsf_statistics

    known = ("interval", "level", "runs_dir", "plugins")
    own = {name: value for name, value in how.items() if name in known}
    return fsf_statistics.headline(results, statistic, **own)


def _counterparts(measures: Sequence[Measure], others: Sequence[MethodResult]) -> dict[str, str]:
    """Return the name of the same statistic on the other tasks, by name of measure.

    The counterpart of a gap is a gap; that of an arm is the arm of the same name, or the only arm
    if both sides have only one.
    """
    from fsf_statistics.equal_tasks import comparable
    from fsframework.values import measure_name

    first = comparable(others)[0]
    arms = list(first.outcomes)
    own = {arm for measure in measures for arm in measure.arms}
    found = {}
    for measure in measures:
        there: tuple[str, ...]
        if measure.is_gap:
            there = first.contrast.arms if first.contrast is not None else ()
        elif measure.arms[0] in arms:
            there = measure.arms
        else:
            there = tuple(arms) if len(arms) == len(own) == 1 else ()
        if there:
            found[measure.name] = measure_name(measure.statistic, there)
    if not found:
        raise OptionError(
            f"--beside: its tasks have the arms {', '.join(arms)}, so none of "
            f"{', '.join(measure.name for measure in measures)} is available there"
        )
    return found


def _check_beside(found: Comparison, second: Comparison) -> None:
    """Check that both have the same methods, one on closed tasks and one on open tasks."""
    labels, other = (set(one[0].values) for one in (found, second))
    if labels != other:
        raise OptionError(
            f"--beside must name the same methods: {', '.join(sorted(labels))}, not "
            f"{', '.join(sorted(other))}"
        )
    if found[0].scope == second[0].scope:
        raise OptionError(
            f"--beside: both sets of tasks are {found[0].scope}; one must be closed (images recur) "
            "and one open"
        )
