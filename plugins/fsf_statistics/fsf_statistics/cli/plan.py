"""`fsf plan`: how many queries, how many tasks."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import (
    CONFIGURATION,
    check_output,
    command,
    run_names,
    session_of,
    shared,
    tree_of,
)
from fsframework.errors import OptionError, PluginError, install_hint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fsf_statistics.query_bounds import QueryBounds
    from fsf_statistics.query_variance import PilotAnswers
    from fsf_statistics.study import PlanRow, StudyPlan
    from fsframework import Run, TaskSet

__all__ = ["plan"]

_POINTS = 100


@command(epilog="Accuracies and differences are in points, hundredths of the queries.")
@click.argument("run", metavar="[RUN]", shell_complete=run_names, required=False)
@click.argument("other", metavar="[OTHER]", shell_complete=run_names, required=False)
@click.option(
    "--class-sizes",
    metavar="SIZES",
    help="Images of each class of the data to plan for, as in 600x20 (20 classes of 600) or "
    "45,80,120.  [default: the data of RUN, or of --dataset]",
)
@shared("dataset", "split", "way", "shot")
@click.option(
    "--arm",
    metavar="NAME",
    help="Use RUN's tasks of this arm, such as biased.  [default: the control arm]",
)
@click.option(
    "--choose",
    type=click.Choice(["uniform", "by-what-is-left"]),
    default="uniform",
    show_default=True,
    help="How the sampler depleting picks classes.",
)
@click.option(
    "--difference",
    type=float,
    metavar="POINTS",
    help="Show how many tasks detect this difference between two methods.",
)
@click.option(
    "--correlation",
    type=float,
    metavar="R",
    help="Correlation of two methods' accuracies on a task, without OTHER.",
)
@click.option(
    "--task-sd",
    type=float,
    metavar="POINTS",
    help="Standard deviation of a task's accuracy, without RUN.",
)
@shared("level")
@click.option(
    "--power",
    type=float,
    default=0.8,
    show_default=True,
    metavar="P",
    help="Probability of detecting a difference that is called detectable.",
)
@click.option(
    "--least-tasks",
    type=int,
    default=10,
    show_default=True,
    metavar="N",
    help="Advise no number of queries that leaves fewer tasks.",
)
@shared(*CONFIGURATION, "runs-dir", "json")
@click.option(
    "--figure",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also draw the variance of the mean against the number of queries: .pdf, .svg or .png; "
    "needs fsf-reports.",
)
@shared("force")
@click.pass_context
def plan(  # noqa: PLR0913 - a parameter per option
    context: click.Context,
    /,
    run: str | None,
    other: str | None,
    class_sizes: str | None,
    arm: str | None,
    choose: Any,
    difference: float | None,
    correlation: float | None,
    task_sd: float | None,
    level: float | None,
    power: float,
    least_tasks: int,
    runs_dir: Path,
    figure: Path | None,
    force: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Find the best number of queries and the differences that the tasks can show.

    \b
    For tasks without replacement (sampler depleting), whose intervals are about
    the data's distribution. More queries per class measure a task better but
    leave fewer tasks; Q* gives the shortest interval. RUN is a pilot: any run of
    the method on such data with the same ways and shots; more queries and tasks
    make it more precise. With OTHER, a run of another method on the same tasks,
    the plan is for the difference of the two. Without a pilot, class sizes give
    the number of tasks.

    \b
    Examples:
      fsf plan method=ncc
      fsf plan method=ncc method=protonet --difference 1
      fsf plan method=ncc --class-sizes 600x20 --choose by-what-is-left
      fsf plan --class-sizes 600x20 --shot 1
      fsf plan --dataset folder:./images --task-sd 9 --correlation 0.7
    """
    import fsframework as fsf
    from fsf_statistics import study
    from fsf_statistics.planning import TaskSupply
    from fsf_statistics.queries import QueryPlan, pilot_of_run

    if figure is not None:
        check_output(figure, force=force)
        _reports().check_figure(figure)
    tree = tree_of(context)
    level = 0.95 if level is None else level
    sizes = study.parse_class_sizes(class_sizes) if class_sizes is not None else ()
    head: list[str] = []
    measured = first = second = judged = None
    if run is None:
        if other is not None or arm is not None:
            raise OptionError("--arm needs a pilot RUN")
        sizes = sizes or _sizes(context, tree, None)
        shape = _given(tree, "n_way", 5), _given(tree, "n_shot", 5)
    else:
        if task_sd is not None:
            raise OptionError("--task-sd replaces RUN; give one of them")
        made = fsf.load_run(run, runs_dir)
        pilot, tasks = pilot_of_run(made, arm)
        _check_shape(tree, tasks)
        shape = (tasks.n_way, tasks.n_shot)
        sizes = sizes or _sizes(context, tree, made)
        head.append(_described(made, tasks))
        first = judged = _bounds(pilot, level)
        if other is not None:
            if correlation is not None:
                raise OptionError("--correlation replaces OTHER; give one of them")
            made_beside = fsf.load_run(other, runs_dir)
            beside, tasks_beside = pilot_of_run(made_beside, arm)
            head.append(_described(made_beside, tasks_beside))
            judged = _bounds(study.paired_pilot(pilot, beside), level)
            second = _bounds(beside, level)
            measured = _correlation(pilot, beside)
    planned = study.StudyPlan(
        QueryPlan(TaskSupply(sizes, *shape), judged, choose, level, least_tasks),
        first,
        second,
        correlation,
        None if task_sd is None else task_sd / _POINTS,
        None if difference is None else difference / _POINTS,
        power,
    )
    if figure is not None:
        _reports().save_figure(planned.drawn(), figure)
    if as_json:
        _print_json(planned, measured)
    else:
        _print(planned, head, measured)


def _given(tree: Mapping[str, Any], name: str, default: int) -> int:
    """Return an option of the sampler if it is given, else the default."""
    found = tree.get("sampler", {})
    return int(found[name].value) if isinstance(found, dict) and name in found else default


def _bounds(pilot: PilotAnswers, level: float) -> QueryBounds:
    from fsf_statistics.query_bounds import bounds_of
    from fsf_statistics.query_variance import QueryVariance

    return bounds_of(pilot, QueryVariance.of(pilot), level)


def _check_shape(tree: Mapping[str, Any], tasks: TaskSet) -> None:
    """Check that the planned tasks have the pilot's shape."""
    for what, there in (("way", tasks.n_way), ("shot", tasks.n_shot)):
        asked = _given(tree, f"n_{what}", there)
        if asked != there:
            raise OptionError(
                f"the pilot's tasks have {what} {there} and cannot be used to plan {what} {asked}; "
                f"make a pilot with --{what} {asked}"
            )


def _sizes(context: click.Context, tree: Mapping[str, Any], run: Run | None) -> tuple[int, ...]:
    """Return the class sizes of the given data set, or of the run's."""
    from fsframework.api.data import opened

    request, split = _plain(tree.get("dataset")), _plain(tree.get("split"))
    if run is not None:
        record = run.record
        told = next(iter(record.arms.values())).class_sizes
        if request is None and split is None and told:
            return told
        split = split or record.settings.get("split")
        if request is None and "dataset" in record.components:
            request = record.components["dataset"].to_tree()
    if request is None:
        raise OptionError("name a pilot RUN, --dataset or --class-sizes")
    _, dataset = opened(session_of(context).registry, request)
    return tuple(int(n) for n in dataset.pool(split or "test").class_sizes)


def _plain(given: Any) -> Any:
    """Return given values without their origins."""
    if isinstance(given, dict):
        return {name: _plain(value) for name, value in given.items()}
    return None if given is None else given.value


def _described(run: Run, tasks: TaskSet) -> str:
    record = run.record
    parts = [part.called for part in (record.method, record.backbone) if part is not None]
    text = (
        f"pilot: {' with '.join(parts)}, {len(tasks):,} {tasks.sampler} tasks, {tasks.n_way}-way "
        f"{tasks.n_shot}-shot, {tasks.n_query} queries per class ({run.folder})"
    )
    if not tasks.uniform:
        text += "; unlike the planned tasks, they were not drawn uniformly"
    return "\n".join([text, *(f"note: {said}" for said in record.cautions)])


def _correlation(first: PilotAnswers, second: PilotAnswers) -> float:
    import numpy as np

    both = (first.accuracies, second.accuracies)
    if min(float(np.ptp(values)) for values in both) == 0:
        return math.nan
    return float(np.corrcoef(*both)[0, 1])


def _print(made: StudyPlan, head: list[str], measured: float | None) -> None:
    from fsframework.cli import render

    for line in head:
        click.echo(line)
    sizes = made.queries.supply.class_sizes
    span = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    click.echo(f"data: {len(sizes):,} classes of {span} images, {sum(sizes):,} in all")
    if measured is not None and not math.isnan(measured):
        click.echo(
            f"correlation of the two methods' accuracies on the pilot's tasks: {measured:.2f}"
        )
    click.echo()
    for advice in made.queries.advice():
        click.echo(advice.sentence)
    click.echo(f"options of fsf run for these tasks: {made.queries.command}")
    click.echo()
    rows = made.rows()
    known = made.pilot is not None or made.task_sd is not None
    columns = ["queries per class", "tasks", "left over"]
    if known:
        columns += ["mean ±", "unpaired difference"]
        columns += ["paired difference"] if not math.isnan(rows[0].paired) else []
    if made.difference is not None and known:
        wanted = f"{_POINTS * made.difference:g}"
        columns += [f"tasks to show {wanted} unpaired"]
        columns += [f"{wanted} paired"] if rows[0].needed_paired else []
    cells = [_cells(row, made, columns) for row in rows]
    render.print_table(columns, cells)
    if known:
        click.echo()
        click.echo(
            f"in points; < marks the advised number; ± is the half-width of the "
            f"{100 * made.queries.level:g} % interval; a true difference of the given size is "
            f"detected with {100 * made.power:g} % power"
        )
    curve = made.curve()
    if len(curve) > 2:
        click.echo()
        values = [_POINTS * math.sqrt(variance) for _, variance in curve]
        click.echo(
            f"standard error of the mean {made.what}, points, with {curve[0][0]} to "
            f"{curve[-1][0]} queries per class:"
        )
        click.echo(f"{values[0]:.3f} {render.sparkline(values)} {values[-1]:.3f}")


def _cells(row: PlanRow, made: StudyPlan, columns: list[str]) -> list[str]:
    marked = f"{row.n_query:,}" + (" <" if row.n_query == made.queries.n_query else "")
    cells = [marked, f"{row.n_tasks:,}", f"{row.left_over:,}"]
    points = [row.half_width, row.unpaired, row.paired]
    for name, value in zip(("mean", "unpaired", "paired"), points, strict=True):
        if any(column.startswith(name) for column in columns):
            cells.append("" if math.isnan(value) else f"{_POINTS * value:.2f}")
    for name, needed in (("unpaired", row.needed_unpaired), ("paired", row.needed_paired)):
        if needed and any(column.endswith(f" {name}") for column in columns):
            cells.append(f"{needed:,}" + ("" if needed <= row.n_tasks else " (too many)"))
    return cells


def _print_json(made: StudyPlan, measured: float | None) -> None:
    from fsframework.cli import render

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    supply = made.queries.supply
    render.print_json(
        plain(
            {
                "class_sizes": list(supply.class_sizes),
                "n_way": supply.n_way,
                "n_shot": supply.n_shot,
                "n_query": made.queries.n_query,
                "choose": made.queries.choose,
                "arguments": made.queries.arguments,
                "level": made.queries.level,
                "power": made.power,
                "difference": made.difference,
                "correlation": made.correlation if measured is None else measured,
                "pilot": _moments(made.pilot),
                "other": _moments(made.other),
                "differences": _moments(made.differences),
                "advice": [advice.sentence for advice in made.queries.advice()],
                "rows": [dataclasses.asdict(row) for row in made.rows()],
                "curve": [{"n_query": q, "variance": v} for q, v in made.curve()],
            }
        )
    )


def _moments(measured: QueryBounds | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    found = measured.found
    m2 = found.mean - found.n_way * found.within
    return {
        **dataclasses.asdict(found),
        "unseen": found.unseen,
        "alpha_low": measured.alpha_low,
        "alpha_high": measured.alpha_high,
        "level": measured.level,
        "best": found.best,
        "best_low": measured.low,
        "best_high": measured.high,
        "cautious": found.cautious,
        "beta": found.beta,
        "m2": m2,
        "m3": found.alpha + found.mean**2 - m2 / found.n_way,
    }


def _reports() -> Any:
    """Return the package that draws figures.

    Raises:
        PluginError: it is not installed.
    """
    try:
        import fsf_reports
    except ImportError as error:
        raise PluginError(
            f"--figure needs what draws figures: {install_hint('fsf-reports')}"
        ) from error
    return fsf_reports
