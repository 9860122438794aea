"""`fsf tasks`: task files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import (
    WORDS,
    cache_option,
    group,
    json_option,
    registry_with,
    set_options,
    shared,
    tree_of,
)
from fsframework.errors import OptionError

if TYPE_CHECKING:
    from fsframework.components.registry import Registry
    from fsframework.pipeline.experiment.configuration import Experiment
    from fsframework.values import ImagePool, TaskSet

__all__ = ["tasks"]

_FILE = click.Path(path_type=Path)


@group()
def tasks() -> None:
    """Make, show, verify and export task files.

    \b
    A task file holds indices into the images of a data set, and what they must be
    checked against; it needs neither pixels nor a model.

    \b
    Examples:
      fsf tasks make tasks.safetensors --sampler fewstab --shot 1 --tasks 3000
      fsf tasks make depleted.safetensors --sampler depleting --tasks all
      fsf tasks show tasks.safetensors --task 7 --output task7.png
      fsf tasks verify tasks.safetensors
      fsf tasks export tasks.safetensors tasks.jsonl
    """


def _experiment(
    context: click.Context,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
) -> tuple[Registry, Experiment]:
    from fsframework.pipeline.experiment.configuration import resolve_experiment

    registry = registry_with(plugin_files)
    return registry, resolve_experiment(registry, tree_of(context, config, options, {}))


def _pool(experiment: Experiment, *, attributes: bool) -> ImagePool:
    from fsframework.pipeline.attributes.sources import pool_with_attributes
    from fsframework.pipeline.cache.workspace import Workspace

    if experiment.settings.broken == "skip":
        raise OptionError(
            "broken=skip: tasks are drawn here without looking at an image; take broken ones out "
            "of the data (fsf data check names them), or let fsf run --broken skip draw the tasks"
        )
    dataset = experiment.dataset.create()
    pool: ImagePool = dataset.pool(experiment.settings.split)
    if attributes or experiment.settings.attributes is not None or experiment.detector is not None:
        cache = click.get_current_context().params.get("cache_dir")
        workspace, reporter = Workspace.default(None, cache), usual_reporter()
        pool, _ = pool_with_attributes(experiment, dataset, pool, workspace, reporter)
    return pool


def _checked(file: Path, experiment: Experiment) -> tuple[TaskSet, ImagePool]:
    """Load tasks and the pool they must belong to."""
    from fsframework.errors import DataError
    from fsframework.pipeline.tasks import check_tasks
    from fsframework.values import TaskSet

    tasks = TaskSet.load(file)
    pool = _with_words_if_any(experiment, tasks)
    try:
        check_tasks(tasks, pool)
    except DataError as error:
        raise DataError(f"{file}: {error}") from None
    return tasks, pool


def _with_words_if_any(experiment: Experiment, tasks: TaskSet) -> ImagePool:
    return _pool(experiment, attributes=tasks.attributes_fingerprint is not None)


@tasks.command("make")
@click.argument("file", type=_FILE)
@shared("sampler", "dataset", *WORDS, "split", "way", "shot", "query", "tasks", "seed")
@set_options
@cache_option
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@json_option
@click.pass_context
def make(
    context: click.Context,
    /,
    file: Path,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    force: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Draw tasks and write them to FILE.

    Needs labels and words only: the images need not be there.
    """
    import dataclasses

    if file.exists() and not force:
        raise OptionError(f"{file} exists; give --force to replace it")
    _registry, experiment = _experiment(context, config, options, plugin_files)
    sampler = experiment.sampler
    pool = _pool(experiment, attributes=sampler.cls.needs_attributes)
    drawn: TaskSet = sampler.create().draw(
        pool, experiment.settings.tasks, experiment.settings.seed
    )
    resolved = {k: v for k, v in sampler.to_json().items() if k != "name"}
    drawn = dataclasses.replace(drawn, sampler=sampler.name, options=resolved)
    drawn.verify(pool)
    drawn.save(file)
    _print_summary(file, drawn, pool, as_json)


def _summary(file: Path, tasks: TaskSet, pool: ImagePool) -> dict[str, Any]:
    return {
        "file": str(file),
        "tasks": len(tasks),
        "way": tasks.n_way,
        "shot": tasks.n_shot,
        "query": tasks.n_query,
        "sampler": tasks.sampler,
        "options": dict(tasks.options),
        "seed": tasks.seed,
        "distinct_images": tasks.n_images,
        "images_left_over": len(pool) - tasks.n_images,
        "interval_kind": "closed" if tasks.reuses_images else "open",
        "relaxed_share": round(float(tasks.relaxed.mean()), 4) if len(tasks) else 0.0,
        "digest": tasks.digest,
    }


def _print_summary(file: Path, tasks: TaskSet, pool: ImagePool, as_json: bool) -> None:
    from fsframework.cli import render

    summary = _summary(file, tasks, pool)
    if as_json:
        render.print_json(summary)
        return
    s = summary
    click.echo(
        f"{file}: {s['tasks']:,} {s['sampler']} tasks, {s['way']}-way {s['shot']}-shot, "
        f"{s['query']} queries a class, seed {s['seed']}; {s['distinct_images']:,} distinct "
        f"images, {s['images_left_over']:,} of {len(pool):,} left over, "
        f"intervals {s['interval_kind']}, {100 * s['relaxed_share']:.1f} % of classes "
        f"relaxed; digest {s['digest'][:12]}"
    )


@tasks.command("verify")
@click.argument("file", type=_FILE)
@shared("dataset", *WORDS, "split")
@set_options
@cache_option
@json_option
@click.pass_context
def verify(
    context: click.Context,
    /,
    file: Path,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    as_json: bool,
    **_: Any,
) -> None:
    """Check that FILE is whole and belongs to a data set and its words."""
    _registry, experiment = _experiment(context, config, options, plugin_files)
    tasks, pool = _checked(file, experiment)
    _print_summary(file, tasks, pool, as_json)


@tasks.command("export")
@click.argument("file", type=_FILE)
@click.argument("output", type=_FILE)
@shared("dataset", *WORDS, "split")
@set_options
@cache_option
@click.option("--force", is_flag=True, help="Replace OUTPUT if it exists.")
@click.pass_context
def export(
    context: click.Context,
    /,
    file: Path,
    output: Path,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    force: bool,
    **_: Any,
) -> None:
    """Write the tasks of FILE to OUTPUT as JSON lines with image keys and words."""
    from fsframework.pipeline.tasks import export_jsonl

    if output.exists() and not force:
        raise OptionError(f"{output} exists; give --force to replace it")
    _registry, experiment = _experiment(context, config, options, plugin_files)
    tasks, pool = _checked(file, experiment)
    export_jsonl(tasks, pool, output)
    click.echo(f"{output}: {len(tasks):,} tasks")


@tasks.command("show")
@click.argument("file", type=_FILE, required=False)
@click.option(
    "--task",
    "number",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Which task, from 0.",
)
@click.option(
    "--output",
    type=_FILE,
    metavar="FILE.png",
    help="Draw the task into this picture.  [default: task-N.png]",
)
@click.option(
    "--queries",
    type=int,
    default=5,
    show_default=True,
    metavar="N",
    help="Query images drawn a class.",
)
@shared("sampler", "dataset", *WORDS, "split", "way", "shot", "query", "seed")
@set_options
@cache_option
@json_option
@click.pass_context
def show(
    context: click.Context,
    /,
    file: Path | None,
    number: int,
    output: Path | None,
    queries: int,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    as_json: bool,
    **_: Any,
) -> None:
    """Draw a task as a picture: support and queries a class, with their words.

    A word tied to a class of the task is marked in that class' colour. Without
    FILE the task is drawn anew with --sampler.
    """
    from fsframework.cli import render
    from fsframework.pipeline.pictures import draw_task

    _registry, experiment = _experiment(context, config, options, plugin_files)
    if number < 0:
        raise OptionError(f"--task must be at least 0, not {number}")
    if file is not None:
        tasks, pool = _checked(file, experiment)
    else:
        pool = _pool(experiment, attributes=experiment.sampler.cls.needs_attributes)
        tasks = experiment.sampler.create().draw(pool, number + 1, experiment.settings.seed)
    if number >= len(tasks):
        raise OptionError(
            f"--task {number}: {file} holds {len(tasks)} tasks, 0 to {len(tasks) - 1}"
        )
    one = tasks[number : number + 1]
    if as_json:
        keys = pool.keys
        render.print_json(
            {
                "task": number,
                "ways": [
                    {
                        "class": pool.class_names[one.classes[0, w]],
                        "attribute": one.words[one.attribute[0, w]]
                        if one.attribute[0, w] >= 0
                        else None,
                        "relaxed": bool(one.relaxed[0, w]),
                        "support": [keys[i] for i in one.support[0, w]],
                        "query": [keys[i] for i in one.query[0, w]],
                    }
                    for w in range(one.n_way)
                ],
            }
        )
        return
    path = output or Path(f"task-{number}.png")
    dataset = experiment.dataset.create()
    draw_task(one, pool, dataset, experiment.settings.split, path, n_query=queries)
    click.echo(f"{path}: task {number} of {tasks.sampler or experiment.sampler.name}")
