"""`fsf compare`: methods on equal tasks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.completion import run_names
from fsframework.cli.options import (
    command,
    json_option,
    plugin_option,
    registry_with,
    runs_dir_option,
)
from fsframework.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsframework.components.registry import Registry
    from fsframework.statistics.comparison import Comparison
    from fsframework.statistics.results import Contestant

__all__ = ["compare"]


@command(epilog="Exit code 2 where tasks differ: then no pair of values belongs together.")
@click.argument("sources", metavar="SOURCE...", shell_complete=run_names, nargs=-1, required=True)
@click.option(
    "--statistic",
    "statistics",
    multiple=True,
    metavar="NAME",
    help="acc, wacc or a plugin's, on every kind of tasks there is; with -R or -A on one kind, "
    "with -gap R less A; gap is wacc-gap; repeatable.  [default: acc-R, wacc-R, wacc-A, gap, "
    "as far as they can be had]",
)
@click.option(
    "--interval",
    type=click.Choice(["student-t", "percentile", "bca", "image-level", "class-level"]),
    metavar="NAME",
    default="student-t",
    show_default=True,
    help="How intervals and p are made: student-t; percentile or bca, by a bootstrap of the "
    "tasks; image-level or class-level, open ones for random tasks that share images.",
)
@click.option(
    "--resamples",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Of the bootstrap.",
)
@click.option("--level", type=float, default=0.95, show_default=True, metavar="X", help="Level.")
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="N", help="Of the bootstrap."
)
@click.option("--baseline", metavar="LABEL", help="Compare with this method alone.")
@click.option(
    "--by-tasks",
    is_flag=True,
    help="Compare within each set of equal tasks, instead of refusing different ones.",
)
@click.option(
    "--beside",
    multiple=True,
    metavar="SOURCE",
    help="The same methods on tasks of the other kind, closed beside open: their direct "
    "comparison joins the matrix; repeatable.",
)
@click.option(
    "--same-tasks",
    is_flag=True,
    help="Row i of every file of accuracies is the same task.",
)
@click.option(
    "--tasks-kind",
    type=click.Choice(["open", "closed"]),
    metavar="open|closed",
    default="closed",
    show_default=True,
    help="Of the tasks of files of accuracies; see fsf import accuracies.",
)
@click.option("--layout", metavar="PARTS", help="Of a folder of such files; see there.")
@click.option(
    "--unit",
    type=click.Choice(["auto", "percent", "share"]),
    metavar="auto|percent|share",
    default="auto",
    show_default=True,
    help="Of such files; see there.",
)
@click.option(
    "--images", type=click.IntRange(min=1), metavar="N", help="Distinct images; see there."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "latex", "csv"]),
    metavar="table|markdown|latex|csv",
    default="table",
    show_default=True,
    help="LaTeX needs booktabs; CSV holds the pairs, unrounded.",
)
@runs_dir_option
@plugin_option
@json_option
def compare(
    sources: tuple[str, ...],
    statistics: tuple[str, ...],
    interval: Any,
    resamples: int,
    level: float,
    seed: int,
    baseline: str | None,
    by_tasks: bool,
    beside: tuple[str, ...],
    same_tasks: bool,
    tasks_kind: Any,
    layout: str | None,
    unit: Any,
    images: int | None,
    form: str,
    runs_dir: Path,
    plugin_files: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Compare methods on equal tasks, pair by pair.

    SOURCE is a run (folder, name or its beginning), a folder of runs, a file of
    accuracies (.pt, CSV, Parquet; a column a method) or a folder of such files;
    LABEL=SOURCE calls it otherwise.

    \b
    Examples:
      fsf compare protonet-planted renet-planted
      fsf compare protonet-planted renet-planted --statistic gap --interval bca
      fsf compare runs --by-tasks --baseline protonet --format latex
      fsf compare results.csv --tasks-kind open
    """
    from fsframework.cli import _compare_views as views
    from fsframework.cli import render
    from fsframework.pipeline.lineage import footnotes
    from fsframework.statistics import comparison
    from fsframework.statistics import results as found

    registry = registry_with(plugin_files)
    files = {
        "stated_equal": same_tasks,
        "layout": layout,
        "kind": tasks_kind,
        "n_images": images or 0,
        "unit": unit,
    }
    how = {
        "level": level,
        "interval": interval,
        "n_resamples": resamples,
        "seed": seed,
        "baseline": baseline,
    }
    everyone = found.find_contestants(sources, runs_dir, **files)
    groups = found.by_tasks(everyone) if by_tasks else [everyone]
    alone = [group[0] for group in groups if len(group) < 2]
    if by_tasks and baseline is not None:
        groups = [g for g in groups if any(c.label == baseline for c in g)]
        if not groups:
            labels = ", ".join(dict.fromkeys(c.label for c in everyone))
            raise OptionError(f"--baseline {baseline}: must be one of {labels}")
    made: list[Comparison] = []
    notes: list[str] = []
    cautions: dict[str, list[str]] = {}
    for group in groups:
        if by_tasks and len(group) < 2:
            continue
        made += _compare(group, registry, statistics, how, notes, cautions)
    if by_tasks and alone:
        notes.append(f"{len(alone)} stand alone on their tasks: " + _some([c.label for c in alone]))
    if not made:
        raise OptionError("no two of these methods share their tasks")
    others: list[Comparison] = []
    if beside:
        if by_tasks:
            raise OptionError("--beside goes with one set of tasks, not with --by-tasks")
        other = found.find_contestants(beside, runs_dir, **files)
        others = _compare(other, registry, statistics, how, notes, cautions)
        _check_beside(made, others)
    counts = comparison.count(made)
    notes = list(dict.fromkeys(notes))
    if as_json:
        render.print_json(
            {
                "comparisons": [c.to_json() for c in made],
                "beside": [c.to_json() for c in others],
                "counts": vars(counts),
                "notes": notes,
                "cautions": cautions,
            }
        )
        return
    if form == "csv":
        click.echo(views.as_csv([*made, *others], cautions))
        return
    beside_them = {c.measure: c for c in others}
    tables = views.tables_of(made, counts, beside_them, baseline, footnotes(cautions))
    draw = {"table": views.as_text, "markdown": views.as_markdown, "latex": views.as_latex}[form]
    click.echo(draw(tables))
    for note in notes:
        click.echo({"markdown": "- ", "latex": "% "}.get(form, "") + f"note: {note}")


def _compare(
    group: Sequence[Contestant],
    registry: Registry,
    statistics: Sequence[str],
    how: dict[str, Any],
    notes: list[str],
    cautions: dict[str, list[str]],
) -> list[Comparison]:
    """Compare contestants of equal tasks in every measure; also collect what to say of them."""
    from fsframework.components.resolution import resolve_component
    from fsframework.errors import DataError
    from fsframework.statistics import comparison
    from fsframework.statistics.results import same_tasks

    if len(group) < 2:
        raise DataError(f"a comparison needs two methods at least; there is {group[0].label} alone")
    chosen = same_tasks(group)
    for one in chosen:
        known = cautions.setdefault(one.label, [])
        known += [sentence for sentence in one.cautions if sentence not in known]
    stems = {comparison.statistic_of(name) for name in statistics or ("acc", "wacc")}
    by_stem = {stem: resolve_component(registry, "statistic", stem).create() for stem in stems}
    measures, left_out = comparison.measures_of(chosen, by_stem, statistics)
    notes += left_out
    labels = [c.label for c in chosen]
    made = [comparison.compare(labels, measure, **how) for measure in measures]
    return [
        dataclasses.replace(c, other_kind=c.other_kind or comparison.images_intervals(chosen, c))
        for c in made
    ]


def _check_beside(made: Sequence[Comparison], others: Sequence[Comparison]) -> None:
    """See to it that both are of the same methods, once on closed tasks and once on open ones."""
    labels, other = (set(c[0].values) for c in (made, others))
    if labels != other:
        raise OptionError(
            f"--beside must name the same methods: {', '.join(sorted(labels))}, not "
            f"{', '.join(sorted(other))}"
        )
    kinds = [next(iter(c[0].values.values())).kind for c in (made, others)]
    if kinds[0] == kinds[1]:
        raise OptionError(
            f"--beside: both are {kinds[0]}; one must be closed (images recur) and one open"
        )


def _some(labels: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(labels[:most])
    return shown + (f" and {len(labels) - most} more" if len(labels) > most else "")
