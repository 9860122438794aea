"""`fsf attributes stats`: counts of words and the tasks that they allow."""

from __future__ import annotations

from typing import Any

import click

from fsframework.cli.options import CONFIGURATION, WORDS, command, experiment_of, shared

__all__ = ["stats"]


@command()
@shared("dataset", "method", "backbone", *WORDS, "split", "way", "shot", "queries")
@click.option(
    "--most",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="Number of spurious pairs to list.",
)
@shared(*CONFIGURATION, "cache-dir", "json")
@click.pass_context
def stats(
    context: click.Context,
    /,
    most: int,
    as_json: bool,
    **_: Any,
) -> None:
    """Count the words of a split and show which classes can form tasks.

    Prints the counts of FewSTAB's Table 2, the most common spurious pairs of class
    and word, and the classes that cannot form attribute-biased tasks of --shot
    and --queries, with the reason. Split, ways and queries that are not given are
    those of the tasks that fsf run draws with the same options.

    \b
    Example:
      fsf attributes stats --dataset folder:./images --attributes words.parquet
    """
    from fsf_tools.attributes.cli._views import print_statistics
    from fsf_tools.attributes.statistics import attribute_statistics
    from fsframework.api.opened import OpenedImages, draw_tasks, open_images
    from fsframework.cli import render
    from fsframework.errors import InfeasibleTask

    experiment, session = experiment_of(context)
    try:
        arms, drawn = draw_tasks(experiment, session)
        shape: Any = arms.tested
        images: OpenedImages | None = drawn
        reasons = drawn.reasons
    except InfeasibleTask as error:
        shape, images, reasons = experiment.sampler.create(), None, (str(error),)
        session.reporter.note(str(error))
    if images is None or images.pool.attributes is None:
        images = open_images(experiment, session)
    found = attribute_statistics(
        images.pool,
        n_way=shape.n_way,
        n_shot=shape.n_shot,
        n_query=shape.n_query,
        most=most,
    )
    if as_json:
        render.print_json({"split": images.split, "reasons": list(reasons), **found.to_json()})
    else:
        print(f"split {images.split}: ", end="")
        print_statistics(found)
