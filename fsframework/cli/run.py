"""`fsf run`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.completion import plugin_names, run_names
from fsframework.cli.options import (
    DROPPING,
    command,
    flat_options,
    folder_options,
    json_option,
    registry_with,
    set_options,
    shared,
    tree_of,
    workers_option,
)

if TYPE_CHECKING:
    from fsframework.pipeline.experiment.configuration import Experiment
    from fsframework.pipeline.run import RunResult

__all__ = ["run"]


@command(epilog="Options left out come from --config, then from the defaults.")
@shared("method", "sampler", "dataset")
@click.option(
    "--backbone",
    shell_complete=plugin_names("backbone"),
    metavar="NAME[:ARG]",
    envvar="FSF_BACKBONE",
    show_envvar=True,
    help="Feature extractor.  [default: conv64f]",
)
@shared("attributes", "detector", "split", "way", "shot", "query", "tasks", "seed", "device")
@click.option(
    "--placebo",
    is_flag=True,
    help="Permute the images of each class, anew for every task: a gap that is still "
    "there does not come from the attributes.",
)
@click.option(
    "--statistic",
    "statistics",
    shell_complete=plugin_names("statistic"),
    multiple=True,
    metavar="NAME",
    help="What to measure; repeatable.  [default: acc, wacc]",
)
@click.option(
    "--recipe",
    metavar="NAME",
    help="How the method is trained: quick, fewstab, ... (see fsf recipes list), or none.  "
    "[default: quick, where the method has it]",
)
@click.option(
    "--init-from",
    shell_complete=run_names,
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Start the training from the weights of another run, or of a safetensors file.",
)
@click.option(
    "--model",
    shell_complete=run_names,
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Take method, backbone and weights of another run, or of an imported one; train nothing. "
    "A folder, or the beginning of its name in the runs folder.",
)
@click.option(
    "--tensorboard",
    is_flag=True,
    help="Also write the curve of the training for TensorBoard, into the run's folder.",
)
@click.option("--level", type=float, metavar="P", help="Level of intervals.  [default: 0.95]")
@click.option(
    "--interval",
    type=click.Choice(["student-t", "percentile", "bca", "image-level", "class-level"]),
    help="How intervals are made. The first three take tasks for independent draws; the last two "
    "speak of new images, or new classes, even where tasks share theirs.  [default: student-t]",
)
@shared("image-size")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16", "fp16"]),
    help="Numbers the backbone computes in when images are embedded: bf16 is about twice as fast "
    "on CPUs that have it, fp16 is for GPUs.  [default: fp32]",
)
@shared("decoding", "broken")
@workers_option
@click.option(
    "--task-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Evaluate the tasks of this file (see fsf tasks make).",
)
@click.option(
    "--queries",
    type=click.Choice(["auto"]),
    metavar="auto",
    help="Let a pilot run of random tasks find the number of queries that is best for tasks "
    "without replacement (see fsf plan); with --sampler depleting.",
)
@shared("query-batch", *DROPPING, "offline")
@set_options
@folder_options
@click.option("--dry-run", is_flag=True, help="Print every option with its origin; run nothing.")
@json_option
@click.pass_context
def run(
    context: click.Context,
    /,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    runs_dir: Path | None,
    cache_dir: Path | None,
    dry_run: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Train a method, evaluate it on random and attribute-biased tasks, print the gap.

    \b
    Prints Acc, wAcc-R (worst-class accuracy on random tasks), wAcc-A (on tasks
    whose support ties each class to a spurious attribute and whose queries break
    the tie) and their difference, the gap. What was done before is not done again;
    an interrupted run goes on when the same command is given.

    \b
    Examples:
      fsf run --method renet --sampler fewstab
      fsf run --method protonet --shot 1 --tasks 3000 --placebo
      fsf run --dataset folder:./images --attributes words.csv --backbone resnet12
      fsf run --dataset folder:./images --detector vit-gpt2 --drop-class-words
      fsf run --method ncc --sampler depleting --tasks all --queries auto
      fsf run --plugin ./mine.py --method mine -o method.temperature=0.2
      fsf run --method leo --init-from runs/baseline-planted-fewstab-1a2b3c4d
      fsf run --model runs/renet-planted-fewstab-1a2b3c4d --dataset folder:./images
      fsf run --config exp.toml --dry-run
    """
    from fsframework.pipeline.experiment.configuration import resolve_experiment

    keys = {
        "backbone": "backbone",
        "placebo": "placebo",
        "statistics": "statistics",
        "level": "level",
        "interval": "interval",
        "queries": "queries",
        "precision": "precision",
        "task_file": "task_file",
        "recipe": "recipe",
        "init_from": "training.init_from",
        "model": "model",
        "tensorboard": "tensorboard",
    }
    registry = registry_with(plugin_files)
    experiment = resolve_experiment(registry, tree_of(context, config, options, keys))
    if dry_run:
        _print_resolved(experiment, as_json)
        return
    from fsframework.cli import render
    from fsframework.pipeline.cache.workspace import Workspace
    from fsframework.pipeline.run import run_experiment

    workspace = Workspace.default(runs_dir, cache_dir)
    result = run_experiment(experiment, registry, workspace, usual_reporter())
    if as_json:
        render.print_json(_as_json(result))
    else:
        _print_result(result)


def _print_resolved(experiment: Experiment, as_json: bool) -> None:
    from fsframework.cli import render

    resolved, origins = experiment.to_json(), experiment.origins
    if as_json:
        render.print_json({"resolved": resolved, "origins": origins})
        return
    render.print_table(("option", "value", "origin"), list(flat_options(resolved, origins)))


def _as_json(result: RunResult) -> dict[str, Any]:
    record = result.record
    return {
        "folder": str(result.folder),
        "fingerprint": record.fingerprint,
        "reused": result.reused,
        "estimates": {name: e.to_json() for name, e in record.estimates.items()},
        "notes": list(record.notes),
        "timings": dict(record.timings),
    }


def _print_result(result: RunResult) -> None:
    from fsframework.cli.runs import print_record

    if result.reused:
        click.echo("nothing to do: this run was already finished", err=True)
    print_record(result.folder, result.record)
