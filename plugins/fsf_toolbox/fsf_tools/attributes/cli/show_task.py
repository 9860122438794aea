"""`fsf tasks show`: a task with its images and words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fsframework.cli.options import (
    CONFIGURATION,
    WORDS,
    check_output,
    command,
    experiment_of,
    shared,
)

if TYPE_CHECKING:
    from fsframework.values import ImagePool, TaskSet

__all__ = ["show_task"]

_FILE = click.Path(path_type=Path)


@command("show")
@click.argument("file", required=False)
@click.option(
    "--task",
    "number",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Number of the task, from 0.",
)
@click.option(
    "--output",
    type=_FILE,
    metavar="FILE.png",
    help="Picture to write.  [default: task-N.png]",
)
@click.option(
    "--shown-queries",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="N",
    help="Query images drawn per class.",
)
@shared("sampler", "arm", "dataset", *WORDS, "split", "way", "shot", "queries", "seed")
@shared(*CONFIGURATION, "cache-dir", "force", "json")
@click.pass_context
def show_task(  # noqa: PLR0913 - a parameter per option
    context: click.Context,
    /,
    file: str | None,
    number: int,
    output: Path | None,
    shown_queries: int,
    arm: str | None,
    force: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Draw a task as a picture: support and queries of each class, with their words.

    A word tied to a class of the task is marked in the colour of that class. Without
    FILE, the task is drawn with --sampler. Where FILE is the name of a task set or the
    folder of a run, its datasheet is printed, unless --task or --output is given. With
    neither FILE nor options, the installed task sets are listed.

    \b
    Examples:
      fsf tasks show tasks.safetensors --task 7 --output task7.png
      fsf tasks show --sampler fewstab --arm random --json
      fsf tasks show cub/fewstab-5w1s-v1
    """
    from fsf_tools.attributes.task_pictures import task_picture
    from fsframework.api.opened import draw_tasks, open_tasks
    from fsframework.cli import render
    from fsframework.errors import OptionError
    from fsframework.values import atomic_write

    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, one in sources.items() if one is ParameterSource.COMMANDLINE}
    if given <= {"as_json"}:
        _print_sets(as_json=as_json)
        return
    asked = context.get_parameter_source("number") is not ParameterSource.DEFAULT
    if file is not None and _is_folder_or_name(file) and not asked and output is None:
        _print_datasheet(file, as_json=as_json)
        return
    path = output or Path(f"task-{number}.png")
    if not as_json:
        check_output(path, ".png", force=force)
    experiment, session = experiment_of(context)
    if file is None:
        # If tasks of a sampler depend on each other, draw as many as a run does.
        count = number + 1 if experiment.sampler.create().independent else None
        arms, images = draw_tasks(experiment, session, tasks=count)
        tasks = arms.of(arm)
    else:
        tasks, images = open_tasks(experiment, session, file, arm)
    if number >= len(tasks):
        raise OptionError(f"--task must be from 0 to {len(tasks) - 1}, not {number}")
    one = tasks[number : number + 1]
    if as_json:
        render.print_json(_as_json(number, one, images.pool))
        return
    picture = task_picture(one, images.dataset, images.pool, images.split, n_query=shown_queries)
    atomic_write(path, picture)
    placebo = ", images permuted (placebo)" if tasks.placebo else ""
    called = f"{tasks.arm} task" if tasks.arm else "task"
    click.echo(f"{path}: {called} {number} of {tasks.sampler}{placebo}")


def _is_folder_or_name(file: str) -> bool:
    """Whether a text is that of a folder, or may be the name of a task set, as in ``cub/NAME``."""
    path = Path(file)
    named = not path.is_absolute() and len(path.parts) == len(("DATA", "NAME"))
    return path.is_dir() or (named and not path.exists())


def _print_sets(*, as_json: bool) -> None:
    from fsf_tools.publishing import installed_sets
    from fsframework.cli import render
    from fsframework.errors import OptionError

    rows = installed_sets()
    if not rows and not as_json:
        raise OptionError(
            "no task set is installed (the package fsf-tasks has some); give the name of one, a "
            "FILE of tasks, or options to draw a task with, such as --sampler"
        )
    if as_json:
        render.print_json(rows)
    else:
        render.print_table(list(rows[0]), [list(row.values()) for row in rows])


def _print_datasheet(file: str, *, as_json: bool) -> None:
    from fsf_tools.publishing import datasheet
    from fsframework.api.running import load_run, packaged
    from fsframework.cli import render

    run = load_run(packaged(file, installed=True))
    if as_json:
        render.print_json(run.record.to_json())
    else:
        render.print_table(("", file), datasheet(run))


def _as_json(number: int, task: TaskSet, pool: ImagePool) -> dict[str, Any]:
    return {
        "task": number,
        "arm": task.arm or None,
        "placebo": task.placebo,
        "ways": [
            {
                "class": pool.class_names[task.classes[0, w]],
                "attribute": task.words[word] if (word := task.attribute[0, w]) >= 0 else None,
                "relaxed": bool(task.relaxed[0, w]),
                "support": [pool.keys[i] for i in task.support[0, w]],
                "query": [pool.keys[i] for i in task.query[0, w]],
            }
            for w in range(task.n_way)
        ],
    }
