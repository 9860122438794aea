"""`fsf attributes show`: images with their words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fsframework.cli.options import (
    CONFIGURATION,
    WORDS,
    check_output,
    command,
    experiment_of,
    shared,
)

__all__ = ["show"]


@command()
@click.argument("output", type=click.Path(path_type=Path))
@shared("dataset", "method", "backbone", *WORDS, "split", "way", "shot", "queries", "seed")
@click.option(
    "--images",
    "n",
    type=int,
    default=24,
    show_default=True,
    metavar="N",
    help="Number of images shown.",
)
@click.option("--class", "class_name", metavar="NAME", help="Only images of this class.")
@click.option("--word", metavar="WORD", help="Only images that have this word.")
@shared(*CONFIGURATION, "cache-dir", "force")
@click.pass_context
def show(
    context: click.Context,
    /,
    output: Path,
    n: int,
    class_name: str | None,
    word: str | None,
    force: bool,
    **_: Any,
) -> None:
    """Make a page of images with their words: OUTPUT is .html or .png.

    The images are drawn at random by --seed, from those that fsf run draws tasks from
    with the same options. Words that name an image's own class are marked.

    \b
    Example:
      fsf attributes show page.html --attributes words.parquet --word grass
    """
    from fsf_tools.attributes.pages import PageChoice, attribute_page
    from fsframework.api.opened import open_images

    check_output(output, ".html", ".png", force=force)
    experiment, session = experiment_of(context)
    choice = PageChoice(n, class_name, word, experiment.options["task_seed"])
    images = open_images(experiment, session)
    assert images.pool.attributes is not None
    page = attribute_page(images.dataset, images.split, images.pool.attributes, output, choice)
    click.echo(f"{output}: {page.shown:,} of {page.matching:,} images")
