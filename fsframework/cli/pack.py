"""`fsf data pack`: decode the images of a data set once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import (
    cache_option,
    command,
    json_option,
    plugin_names,
    session_of,
    set_options,
    shared,
    tree_of,
    workers_option,
)

if TYPE_CHECKING:
    from fsframework.pipeline.cache.images import Broken, ImageStore
    from fsframework.pipeline.session import Session

__all__ = ["pack"]

_MOST_NAMED = 20
_USUAL_SIZE, _USUAL_INTERPOLATION = 84, "bilinear"


@command("pack")
@shared("dataset")
@shared("image-size")
@click.option(
    "--backbone",
    shell_complete=plugin_names("backbone"),
    metavar="NAME[:ARG]",
    envvar="FSF_BACKBONE",
    show_envvar=True,
    help="Use the size and interpolation that this backbone expects.",
)
@shared("decoding", "broken")
@workers_option
@set_options
@cache_option
@json_option
@click.pass_context
def pack(
    context: click.Context,
    /,
    backbone: str | None,
    config: Path | None,
    options: tuple[str, ...],
    as_json: bool,
    **_: Any,
) -> None:
    """Decode and resize all images of a data set once, into one file.

    The file is an ordinary NumPy array of bytes in the cache, one per size. Runs on
    the same data and size read it, and decode what it lacks. An interrupted command
    resumes where it stopped. With --decoding scaled it reports how far the pixels are
    from exact ones. The size is 84 pixels if neither the data set nor the backbone
    sets one.

    \b
    Examples:
      fsf data pack --dataset folder:./images
      fsf data pack --dataset miniimagenet --image-size 84 --decoding scaled
      fsf data pack --dataset birds --backbone timm:vit_small_patch14_dinov2.lvd142m
    """
    from fsframework.cli import render
    from fsframework.pipeline.cache.images import decoding_difference, pack_images

    session = session_of(context)
    store, broken = _store(tree_of(context, config, options), session, backbone=backbone)
    started = time.perf_counter()
    packed = pack_images(store, broken, session.reporter)
    seconds = time.perf_counter() - started
    apart = decoding_difference(store) if store.decoding == "scaled" else None
    if not as_json:
        _print_packed(store, packed, seconds, apart)
        return
    names = ("mean", "percentile_99", "largest")
    render.print_json(
        {
            "file": str(store.path),
            "images": len(store),
            "decoded_now": packed,
            "seconds": round(seconds, 3),
            "bytes": len(store) * store.row_bytes,
            "digest": store.digest_of_all(),
            "broken": {store.dataset.keys[row]: why for row, why in store.broken().items()},
            "scaled_decoding_differs_by": apart and dict(zip(names, apart, strict=True)),
        }
    )


def _store(
    tree: Mapping[str, Any], session: Session, *, backbone: str | None
) -> tuple[ImageStore, Broken]:
    """Return the store to fill, and what to do with an image that cannot be read."""
    from fsframework.pipeline.cache.images import image_size, store_of
    from fsframework.pipeline.experiment.configuration import resolve_part

    settings, dataset = resolve_part(session.registry, tree, "dataset")
    data = dataset.create()
    size = settings.image_size or data.native_size or _USUAL_SIZE
    interpolation = _USUAL_INTERPOLATION
    if backbone is not None:
        wanted = resolve_part(session.registry, tree, "backbone")[1].create().preprocessing
        size, interpolation = image_size(data, wanted, settings.image_size), wanted.interpolation
    workspace, decoding = session.workspace, settings.decoding
    return store_of(dataset, data, size, interpolation, decoding, workspace), settings.broken


def _print_packed(
    store: ImageStore, packed: int, seconds: float, apart: tuple[float, float, int] | None
) -> None:
    megabytes = len(store) * store.row_bytes / 1e6
    click.echo(f"{store.path}")
    click.echo(
        f"{len(store):,} images of {store.size} x {store.size} pixels, {megabytes:,.1f} MB; "
        + (
            f"{packed:,} decoded now in {seconds:.1f} s, {packed / seconds:,.0f} per second"
            if packed
            else "nothing to do: all are decoded already"
        )
    )
    if apart is not None:
        mean, high, largest = apart
        click.echo(
            f"scaled decoding: pixels differ from exact ones by {mean:.1f} of 255 levels on "
            f"average, by at most {high:.0f} in 99 % of them, and by {largest} at most"
        )
    broken = store.broken()
    for why in list(broken.values())[:_MOST_NAMED]:
        click.echo(f"skipped: {why}")
    if len(broken) > _MOST_NAMED:
        click.echo(f"skipped: {len(broken) - _MOST_NAMED} more")
    if broken:
        click.echo("runs on this data set need --broken skip")
