"""`fsf pretrain`: train a backbone for other methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fsframework.cli.options import (
    CONFIGURATION,
    check_output,
    command,
    experiment_of,
    shared,
)

__all__ = ["pretrain"]


@command()
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("backbone.safetensors"),
    show_default=True,
    metavar="FILE.safetensors",
    help="File to write.",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@shared("method", "dataset", "backbone", "device", "training-seed", "recipe", "init-from")
@shared("image-size", "decoding", "broken", "workers", "offline")
@shared(*CONFIGURATION, "cache-dir", "dry-run", "json")
@click.pass_context
def pretrain(
    context: click.Context, /, output: Path, force: bool, dry_run: bool, as_json: bool, **_: Any
) -> None:
    """Train a backbone with a method and write its weights.

    No tasks are drawn: the data set needs only training images, and no labels if
    the method learns without, as simclr, moco, unisiam, psco and beclr do. With
    -o dataset.labels=none every image of a folder is a training image, wherever it
    is. An interrupted command resumes when it is run again. With --dry-run it prints
    every option with its origin.

    The file is given to --init-from; the backbone must then be the same. With
    --recipe none and -o training.epochs=0 its weights stay as they are; otherwise
    the method trains them further.

    \b
    Examples:
      fsf pretrain --method simclr --dataset folder:./photos -o dataset.labels=none
      fsf run --method ncc --init-from backbone.safetensors --recipe none \
        -o training.epochs=0 --dataset folder:./labelled
    """
    from fsf_self_supervised.pretraining.pretraining import pretrain_experiment
    from fsframework.cli import render

    check_output(output, ".safetensors", force=force)
    experiment, session = experiment_of(context)
    if dry_run:
        render.print_options(experiment.options, experiment.origins, as_json=as_json)
        return
    made = pretrain_experiment(experiment, session, output)
    losses = [row.loss for row in made.history]
    if as_json:
        render.print_json(
            {
                "file": str(made.file),
                "n_images": made.n_images,
                "epochs": len(losses),
                "losses": losses,
                "best_accuracy": made.best_accuracy,
                "notes": list(made.notes),
                "reused": made.reused,
            }
        )
        return
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
    how = "an equal training was in the cache" if made.reused else "trained now"
    click.echo(
        f"{made.file}: {made.file.stat().st_size / 1e6:.1f} MB, {made.n_images:,} images, "
        f"{len(losses)} {'epoch' if len(losses) == 1 else 'epochs'}, loss {losses[0]:.3f} to "
        f"{losses[-1]:.3f}; {how}"
    )
