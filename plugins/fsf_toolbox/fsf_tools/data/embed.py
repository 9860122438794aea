"""`fsf data embed`: compute the features of the images of a data set once."""

from __future__ import annotations

import time
from typing import Any

import click

from fsframework.cli.options import CONFIGURATION, command, session_of, shared, tree_of

__all__ = ["embed"]


@command("embed")
@shared("model", "method", "backbone", "dataset", "split", "image-size", "precision", "decoding")
@shared("broken", "workers", "device", "offline", "launcher", *CONFIGURATION, "cache-dir", "json")
@click.pass_context
def embed(context: click.Context, /, as_json: bool, **_: Any) -> None:
    """Embed all images of a split once, with a model that needs no training.

    Runs with the same model, images and precision read these features from the
    cache. The model is that of a run (--model), or a method with a pretrained
    backbone that is not trained (-o training.epochs=0). The workers of --launcher
    divide the images. An interrupted command resumes where it stopped.

    \b
    Examples:
      fsf data embed --model method=renet --dataset folder:./images
      fsf data embed --method ncc --backbone timm:tf_efficientnet_lite0 \\
                     -o training.epochs=0 --dataset folder:./images --launcher local
    """
    from fsf_tools.data.embedding import embed_described
    from fsframework.cli import render

    started = time.perf_counter()
    found = embed_described(tree_of(context), session_of(context), context.params["plugin_files"])
    seconds = time.perf_counter() - started
    if as_json:
        render.print_json({**found.to_json(), "seconds": round(seconds, 3)})
        return
    now = found.embedded_now
    done = "nothing to do: all are embedded already"
    if now:
        done = f"{now:,} embedded now in {seconds:.1f} s"
    click.echo(f"{found.file}")
    shape = " x ".join(map(str, found.shape[1:]))
    click.echo(
        f"features of {found.shape[0]:,} images, {shape} numbers each, "
        f"{found.bytes / 1e6:,.1f} MB; {done}"
    )
