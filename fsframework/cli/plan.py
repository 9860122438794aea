"""`fsf plan`: how many queries, how many tasks."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.completion import run_names
from fsframework.cli.options import (
    command,
    json_option,
    registry_with,
    runs_dir_option,
    set_options,
    shared,
    tree_of,
)
from fsframework.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fsframework.components.registry import Registry
    from fsframework.records import RunRecord
    from fsframework.statistics.planning import Plan, Row
    from fsframework.statistics.query_variance import Pilot
    from fsframework.values import TaskSet

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
    "--kind",
    type=click.Choice(["R", "A"]),
    help="Take RUN's random tasks (R) or its attribute-biased ones (A).  [default: R]",
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
    help="Say how many tasks would show such a difference between two methods.",
)
@click.option(
    "--correlation",
    type=float,
    metavar="R",
    help="Correlation of two methods' accuracies on a task, where there is no OTHER.",
)
@click.option(
    "--task-sd",
    type=float,
    metavar="POINTS",
    help="Standard deviation of a task's accuracy, where there is no RUN.",
)
@click.option(
    "--level", type=float, default=0.95, show_default=True, metavar="P", help="Level of intervals."
)
@click.option(
    "--power",
    type=float,
    default=0.8,
    show_default=True,
    metavar="P",
    help="Probability to find a difference that is called detectable.",
)
@click.option(
    "--least-tasks",
    type=int,
    default=10,
    show_default=True,
    metavar="N",
    help="Advise no number of queries that leaves fewer tasks.",
)
@set_options
@runs_dir_option
@json_option
@click.pass_context
def plan(
    context: click.Context,
    /,
    run: str | None,
    other: str | None,
    class_sizes: str | None,
    kind: str | None,
    choose: Any,
    difference: float | None,
    correlation: float | None,
    task_sd: float | None,
    level: float,
    power: float,
    least_tasks: int,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    runs_dir: Path,
    as_json: bool,
    **_: Any,
) -> None:
    """Tell how many queries a class are best, how many tasks there are, what they will show.

    \b
    For tasks without replacement (sampler depleting), whose intervals speak of
    the data's distribution. More queries a class tell more of a task and leave
    fewer tasks; Q* is where the interval is shortest. RUN is a pilot: any run
    of the method on such data, with the same ways and shots; many queries and
    many tasks make it sharper. With OTHER, a run of another method on the same
    tasks, the difference of the two is planned for. Without a pilot, class
    sizes tell how many tasks there are.

    \b
    Examples:
      fsf plan runs/ncc-planted-random-1a2b3c4d
      fsf plan ncc-planted protonet-planted --difference 1
      fsf plan ncc-planted --class-sizes 600x20 --choose by-what-is-left
      fsf plan --class-sizes 600x20 --shot 1
      fsf plan --dataset folder:./images --task-sd 9 --correlation 0.7
    """
    from fsframework.statistics.planning import Plan, parse_class_sizes
    from fsframework.statistics.query_variance import Spread, paired_pilot

    registry = registry_with(plugin_files)
    tree = tree_of(context, config, options, {})
    given: dict[str, Any] = {
        "choose": choose,
        "level": level,
        "power": power,
        "least_tasks": least_tasks,
        "correlation": correlation,
        "difference": None if difference is None else difference / _POINTS,
        "task_sd": None if task_sd is None else task_sd / _POINTS,
    }
    sizes = parse_class_sizes(class_sizes) if class_sizes is not None else None
    head: list[str] = []
    measured = None
    if run is None:
        sizes = sizes or _sizes(registry, tree, None)
        sampler = tree.get("sampler", {})
        way, shot = (int(_value(sampler, name, 5)) for name in ("n_way", "n_shot"))
        made = Plan(sizes, way, shot, **given)
    else:
        pilot, tasks, record, folder = _pilot(run, runs_dir, kind)
        _check_shape(tree, tasks)
        if not {"dataset", "split"} & set(tree):
            sizes = sizes or _sizes_of(record)
        sizes = sizes or _sizes(registry, tree, record)
        head.append(_described(folder, record, tasks))
        spread = Spread.of(pilot, level)
        second = differences = None
        if task_sd is not None:
            raise OptionError("--task-sd stands for a pilot; leave it out beside RUN")
        if other is not None:
            if correlation is not None:
                raise OptionError("--correlation stands for a second pilot; leave it out")
            beside, tasks_beside, record_beside, folder_beside = _pilot(other, runs_dir, kind)
            head.append(_described(folder_beside, record_beside, tasks_beside))
            differences = Spread.of(paired_pilot(pilot, beside), level)
            second = Spread.of(beside, level)
            measured = _correlation(pilot, beside)
        shape = (tasks.n_way, tasks.n_shot)
        made = Plan(sizes, *shape, spread, second, differences, **given)
    if as_json:
        _print_json(made, measured)
    else:
        _print(made, head, measured)


def _value(sampler: Any, name: str, default: int) -> Any:
    raw = sampler.get(name, default) if hasattr(sampler, "get") else default
    return getattr(raw, "value", raw)


def _pilot(run: str, runs_dir: Path, kind: str | None) -> tuple[Pilot, TaskSet, RunRecord, Path]:
    from fsframework.records import find_run
    from fsframework.statistics.query_variance import load_pilot

    folder = find_run(run, runs_dir)
    return (*load_pilot(folder, kind or ""), folder)


def _check_shape(tree: Mapping[str, Any], tasks: TaskSet) -> None:
    """Refuse to plan tasks of another shape than the pilot's."""
    for name, there in (("n_way", tasks.n_way), ("n_shot", tasks.n_shot)):
        asked = int(_value(tree.get("sampler", {}), name, there))
        if asked != there:
            what = name.removeprefix("n_")
            raise OptionError(
                f"the pilot's tasks are of {what} {there}, and tell nothing of {what} {asked}: "
                f"make a pilot with --{what} {asked}"
            )


def _sizes(
    registry: Registry, tree: Mapping[str, Any], record: RunRecord | None
) -> tuple[int, ...]:
    """Return the class sizes of the data set given, or of that of a run."""
    from fsframework.components.resolution import resolve_component

    request, split = tree.get("dataset"), getattr(tree.get("split"), "value", None)
    if record is not None:
        split = split or record.resolved.get("split", "test")
        request = request or record.resolved.get("dataset")
    if request is None:
        raise OptionError("name a pilot RUN, --dataset or --class-sizes")
    dataset = resolve_component(registry, "dataset", request).create()
    return tuple(int(n) for n in dataset.pool(split or "test").class_sizes)


def _sizes_of(record: RunRecord) -> tuple[int, ...]:
    """Return the class sizes that a record tells; none of an older one."""
    told = [tasks.get("class_sizes", ()) for tasks in record.tasks.values()]
    return tuple(int(n) for n in told[0]) if told else ()


def _described(folder: Path, record: RunRecord, tasks: TaskSet) -> str:
    resolved = record.resolved
    text = (
        f"pilot: {resolved['method']['name']} with {resolved['backbone']['name']}, {len(tasks):,} "
        f"{tasks.sampler} tasks, {tasks.n_way}-way {tasks.n_shot}-shot, {tasks.n_query} queries a "
        f"class ({folder})"
    )
    if tasks.attributes_fingerprint is not None:
        text += "; its queries were chosen by their attributes, those planned will not be"
    return "\n".join([text, *(f"note: {said}" for said in record.cautions)])


def _correlation(first: Pilot, second: Pilot) -> float:
    import numpy as np

    both = (first.accuracies, second.accuracies)
    if min(float(np.ptp(values)) for values in both) == 0:
        return math.nan
    return float(np.corrcoef(*both)[0, 1])


def _print(made: Plan, head: list[str], measured: float | None) -> None:
    from fsframework.cli import render

    for line in head:
        click.echo(line)
    sizes = made.class_sizes
    span = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    click.echo(f"data: {len(sizes):,} classes of {span} images, {sum(sizes):,} in all")
    if measured is not None and not math.isnan(measured):
        click.echo(
            f"correlation of the two methods' accuracies on the pilot's tasks: {measured:.2f}"
        )
    click.echo()
    for advice in made.advice():
        click.echo(advice.sentence)
    click.echo()
    rows = made.rows()
    known = made.spread is not None or made.task_sd is not None
    columns = ["queries a class", "tasks", "left over"]
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
            f"in points; < is advised; ± of {100 * made.level:g} %; a true difference of the size "
            f"given is found with {100 * made.power:g} % power"
        )
    curve = made.curve()
    if len(curve) > 2:
        click.echo()
        what = "difference" if made.differences is not None else "accuracy"
        click.echo(f"standard error of the mean {what}, points, against queries a class")
        values = [_POINTS * math.sqrt(variance) for _, variance in curve]
        click.echo("\n".join(render.chart(values)))
        ends = f"{curve[0][0]}", f"{curve[-1][0]} queries a class"
        width = min(72, len(values))
        click.echo(" " * 9 + ends[0] + ends[1].rjust(max(width - len(ends[0]), len(ends[1]) + 1)))


def _cells(row: Row, made: Plan, columns: list[str]) -> list[str]:
    marked = f"{row.n_query:,}" + (" <" if row.n_query == made.n_query else "")
    cells = [marked, f"{row.n_tasks:,}", f"{row.left_over:,}"]
    points = [row.half_width, row.unpaired, row.paired]
    for name, value in zip(("mean", "unpaired", "paired"), points, strict=True):
        if any(column.startswith(name) for column in columns):
            cells.append("" if math.isnan(value) else f"{_POINTS * value:.2f}")
    for name, needed in (("unpaired", row.needed_unpaired), ("paired", row.needed_paired)):
        if needed and any(column.endswith(f" {name}") for column in columns):
            cells.append(f"{needed:,}" + ("" if needed <= row.n_tasks else " (too many)"))
    return cells


def _print_json(made: Plan, measured: float | None) -> None:
    from fsframework.cli import render

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    def spread(found: Any) -> Any:
        if found is None:
            return None
        names = ("best", "best_low", "best_high", "cautious", "beta", "m2", "m3")
        return {**dataclasses.asdict(found), **{name: getattr(found, name) for name in names}}

    render.print_json(
        plain(
            {
                "class_sizes": list(made.class_sizes),
                "n_way": made.n_way,
                "n_shot": made.n_shot,
                "n_query": made.n_query,
                "choose": made.choose,
                "level": made.level,
                "power": made.power,
                "difference": made.difference,
                "correlation": made.correlation if measured is None else measured,
                "pilot": spread(made.spread),
                "other": spread(made.other),
                "differences": spread(made.differences),
                "advice": [advice.sentence for advice in made.advice()],
                "rows": [dataclasses.asdict(row) for row in made.rows()],
                "curve": [{"n_query": q, "variance": v} for q, v in made.curve()],
            }
        )
    )
