"""`fsf tasks`: task files."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import (
    CONFIGURATION,
    WORDS,
    check_output,
    experiment_of,
    group,
    shared,
)

if TYPE_CHECKING:
    from fsframework.api.opened import OpenedImages
    from fsframework.values import TaskSet

__all__ = ["tasks"]

_FILE = click.Path(path_type=Path)


@group()
def tasks() -> None:
    """Make, verify, export, import and publish task files.

    \b
    A task file holds indices into the images of a data set, and digests to check
    that they belong together; it needs neither pixels nor a model. The folder of a
    run and the name of a task set, such as cub/fewstab-5w1s-v1, stand for a file too.

    \b
    Examples:
      fsf tasks make tasks.safetensors --sampler fewstab --shot 1 --tasks 3000
      fsf tasks make control.safetensors --sampler fewstab --arm random
      fsf tasks make depleted.safetensors --sampler depleting --tasks all
      fsf tasks verify tasks.safetensors
      fsf tasks export tasks.safetensors tasks.jsonl
      fsf tasks import tasks.jsonl tasks.safetensors
      fsf tasks show cub/fewstab-5w1s-v1
    """


@tasks.command("make")
@click.argument("file", type=_FILE)
@shared(
    "sampler",
    "arm",
    "dataset",
    "method",
    "backbone",
    *WORDS,
    "split",
    "way",
    "shot",
    "queries",
    "tasks",
    "seed",
)
@shared(*CONFIGURATION, "cache-dir", "force", "json")
@click.pass_context
def make(
    context: click.Context,
    /,
    file: Path,
    arm: str | None,
    force: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Draw tasks and write them to FILE.

    The tasks are those that fsf run evaluates with the same options; --method and
    --backbone say whether a model is trained on a part of the images. Only labels and
    words are needed, unless a detector finds the words in the images.
    """
    from fsframework.api.opened import draw_tasks

    check_output(file, force=force)
    arms, images = draw_tasks(*experiment_of(context))
    drawn = arms.of(arm)
    drawn.save(file)
    _print_summary(file, drawn, images, as_json)


def _summary(file: str | Path, tasks: TaskSet, images: OpenedImages) -> dict[str, Any]:
    return {
        "file": str(file),
        "split": images.split,
        "reasons": list(images.reasons),
        "tasks": len(tasks),
        "arm": tasks.arm or None,
        "placebo": tasks.placebo,
        "way": tasks.n_way,
        "shot": tasks.n_shot,
        "query": tasks.n_query,
        "sampler": tasks.sampler,
        "options": dict(tasks.options),
        "seed": tasks.seed,
        "distinct_images": tasks.n_images,
        "images_left_over": len(images.pool) - tasks.n_images,
        "scope": "closed" if tasks.reuses_images else "open",
        "relaxed_share": round(float(tasks.relaxed.mean()), 4) if len(tasks) else 0.0,
        "digest": tasks.digest,
    }


def _print_summary(file: str | Path, tasks: TaskSet, images: OpenedImages, as_json: bool) -> None:
    from fsframework.cli import render

    summary = _summary(file, tasks, images)
    if as_json:
        render.print_json(summary)
        return
    click.echo(
        f"{file}: {tasks.described()}; drawn by {tasks.sampler} with seed {tasks.seed}, "
        f"{summary['images_left_over']:,} of {len(images.pool):,} images left over, intervals "
        f"{summary['scope']}, {100 * summary['relaxed_share']:.1f} % of classes relaxed; "
        f"digest {tasks.digest[:12]}"
    )


@tasks.command("verify")
@click.argument("file")
@shared("dataset", *WORDS, "split")
@shared(*CONFIGURATION, "cache-dir", "json")
@click.pass_context
def verify(
    context: click.Context,
    /,
    file: str,
    as_json: bool,
    **_: Any,
) -> None:
    """Check that FILE is intact and belongs to a data set and its words."""
    from fsframework.api.opened import open_tasks

    tasks, images = open_tasks(*experiment_of(context), file)
    _print_summary(file, tasks, images, as_json)


@tasks.command("export")
@click.argument("file")
@click.argument("output", type=_FILE)
@shared("dataset", *WORDS, "split")
@shared(*CONFIGURATION, "cache-dir", "force")
@click.pass_context
def export(
    context: click.Context,
    /,
    file: str,
    output: Path,
    force: bool,
    **_: Any,
) -> None:
    """Write the tasks of FILE to OUTPUT as JSON lines with image keys and words."""
    from fsf_tools.task_lines import export_jsonl
    from fsframework.api.opened import open_tasks

    check_output(output, force=force)
    tasks, images = open_tasks(*experiment_of(context), file)
    export_jsonl(tasks, images.pool, output)
    click.echo(f"{output}: {tasks.described()}")


@tasks.command("import")
@click.argument("file", type=_FILE)
@click.argument("output", type=_FILE)
@click.option(
    "--images",
    type=_FILE,
    metavar="LIST.csv",
    help="Images that the indices of a .pt file refer to, by file name in the first column.",
)
@shared("dataset", "split", "shot", "queries")
@shared(*CONFIGURATION, "cache-dir", "force", "json")
@click.pass_context
def import_(
    context: click.Context,
    /,
    file: Path,
    output: Path,
    images: Path | None,
    force: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Read tasks made elsewhere from FILE and write them to OUTPUT, a task file.

    FILE is what fsf tasks export wrote (JSON lines), or a spurious_test_*.pt of the
    FewSTAB code, from which nothing is executed. Images are found by key or file name.

    \b
    Examples:
      fsf tasks import tasks.jsonl tasks.safetensors --dataset folder:./images
      fsf tasks import spurious_test_3000E_5w1s.pt t.safetensors --images test.csv \\
          --shot 1 --queries 15
    """
    from fsf_tools.fewstab import fewstab_tasks
    from fsf_tools.task_lines import import_tasks, read_jsonl
    from fsframework.api.opened import OpenedImages
    from fsframework.errors import DataError

    check_output(output, force=force)
    experiment, _session = experiment_of(context)
    dataset = experiment.dataset.create()
    if file.suffix in (".pt", ".pth"):
        lines = list(fewstab_tasks(file, images, context.params["shot"], context.params["queries"]))
    else:
        lines = list(read_jsonl(file))
    split = experiment.settings.split
    splits = [split] if split else [*(["test"] if "test" in dataset.splits else []), "all"]
    for name in splits:
        pool = dataset.pool(name)
        try:
            drawn = import_tasks(lines, pool, file, images)
        except DataError:
            if name == splits[-1]:
                raise
            continue
        break
    drawn.save(output)
    _print_summary(output, drawn, OpenedImages(dataset, name, pool), as_json)


@tasks.command("publish")
@click.argument("name", metavar="DATA/NAME-vN")
@click.option(
    "--to",
    "package",
    type=_FILE,
    required=True,
    metavar="PACKAGE",
    help="Folder of the package, such as ./fsf-tasks-birds; begun if it does not exist.",
)
@click.option("--licence", required=True, metavar="TEXT", help="Licence of the keys and words.")
@click.option(
    "--about", multiple=True, metavar="TEXT", help="Where the words are from, ...; repeatable."
)
@shared("sampler", "dataset", "method", "backbone", *WORDS, "split", "way", "shot", "queries")
@shared("tasks", "seed", *CONFIGURATION, "cache-dir")
@click.pass_context
def publish(
    context: click.Context,
    /,
    name: str,
    package: Path,
    licence: str,
    about: tuple[str, ...],
    **_: Any,
) -> None:
    """Draw the tasks of every arm into a package, under a name that papers can give.

    The package carries the tasks, the keys and words of their images, and a datasheet
    (fsf tasks show NAME); no pixels. Once it is installed, fsf run --task-file NAME
    evaluates the tasks. What has a name never changes: other tasks are -v2.

    \b
    Example:
      fsf tasks publish birds/fewstab-5w1s-v1 --to fsf-tasks-birds --shot 1 \\
          --dataset folder:./images --attributes words.csv --licence CC0
      pip install ./fsf-tasks-birds
      fsf run --method ncc --dataset folder:./images --task-file birds/fewstab-5w1s-v1
    """
    from fsf_tools.publishing import installed_from, publish_tasks
    from fsframework import Description

    told = [f"drawn by: {_command_line('--licence', '--about')}", *about]
    described = Description(*experiment_of(context))
    made = publish_tasks(name, package, described, licence=licence, about=told)
    for tasks in made.tasks.values():
        click.echo(f"{name}: {tasks.described()}; digest {tasks.digest[:12]}")
    click.echo(f"written to {made.folder}; install it with pip install {installed_from(package)}")


def _command_line(*left_out: str) -> str:
    """Return the command as it was given, without what says nothing of the tasks."""
    from fsf_statistics import PathNames

    words = iter(sys.argv[1:])
    kept = ["fsf"]
    for word in words:
        if word in left_out:
            next(words)
        elif word.partition("=")[0] not in left_out:
            kept.append(word)
    return shlex.join(PathNames().in_value(kept))
