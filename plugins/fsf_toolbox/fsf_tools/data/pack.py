"""`fsf data pack`: decode the images of a data set once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import (
    CONFIGURATION,
    command,
    plugin_names,
    session_of,
    shared,
    tree_of,
)

if TYPE_CHECKING:
    from fsf_tools.data.packing import PackedImages

__all__ = ["pack"]

_MOST_NAMED = 20


@command("pack")
@shared("dataset", "image-size")
@click.option(
    "--backbone",
    shell_complete=plugin_names("backbone"),
    metavar="NAME[:ARG]",
    envvar="FSF_BACKBONE",
    show_envvar=True,
    help="Use the size and interpolation that this backbone expects.",
)
@shared("decoding", "broken", "workers", "launcher", *CONFIGURATION, "cache-dir", "json")
@click.pass_context
def pack(context: click.Context, /, as_json: bool, **_: Any) -> None:
    """Decode and resize all images of a data set once, into one file.

    The file is an ordinary NumPy array of bytes in the cache, one per size. Runs on
    the same data and size read it, and decode what it lacks. An interrupted command
    resumes where it stopped. The workers of --launcher divide the images.
    With --decoding scaled it reports how far the pixels are
    from exact ones. The size is 84 pixels if neither the data set nor the backbone
    sets one.

    \b
    Examples:
      fsf data pack --dataset folder:./images
      fsf data pack --dataset miniimagenet --image-size 84 --decoding scaled
      fsf data pack --dataset birds --backbone timm:vit_small_patch14_dinov2.lvd142m
    """
    from fsf_tools.data.packing import pack_described
    from fsframework.cli import render

    started = time.perf_counter()
    packed = pack_described(tree_of(context), session_of(context), context.params["plugin_files"])
    seconds = time.perf_counter() - started
    if as_json:
        render.print_json({**packed.to_json(), "seconds": round(seconds, 3)})
    else:
        _print(packed, seconds)


def _print(packed: PackedImages, seconds: float) -> None:
    now = packed.decoded_now
    done = "nothing to do: all are decoded already"
    if now:
        done = f"{now:,} decoded now in {seconds:.1f} s, {now / seconds:,.0f} per second"
    click.echo(f"{packed.file}")
    click.echo(
        f"{packed.images:,} images of {packed.size} x {packed.size} pixels, "
        f"{packed.bytes / 1e6:,.1f} MB; {done}"
    )
    if (apart := packed.scaled_decoding_differs_by) is not None:
        click.echo(
            f"scaled decoding: pixels differ from exact ones by {apart.mean:.1f} of 255 levels on "
            f"average, by at most {apart.percentile_99:.0f} in 99 % of them, and by "
            f"{apart.largest} at most"
        )
    for why in list(packed.broken.values())[:_MOST_NAMED]:
        click.echo(f"skipped: {why}")
    if len(packed.broken) > _MOST_NAMED:
        click.echo(f"skipped: {len(packed.broken) - _MOST_NAMED} more")
    if packed.broken:
        click.echo("runs on this data set need --broken skip")
