"""`fsf attributes stats`: counts of words and the tasks that they allow."""

from __future__ import annotations

from typing import Any

import click

from fsframework.cli.options import CONFIGURATION, WORDS, command, experiment_of, shared

__all__ = ["stats"]


@command()
@shared("dataset", *WORDS, "split", "way", "shot", "queries")
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
    and --queries, with the reason.

    \b
    Example:
      fsf attributes stats --dataset folder:./images --attributes words.parquet
    """
    from fsf_tools.attributes.cli._views import print_statistics
    from fsf_tools.attributes.statistics import attribute_statistics
    from fsframework.api.opened import open_images
    from fsframework.cli import render

    experiment, session = experiment_of(context)
    sampler = experiment.sampler.create()
    found = attribute_statistics(
        open_images(experiment, session).pool,
        n_way=sampler.n_way,
        n_shot=sampler.n_shot,
        n_query=sampler.n_query,
        most=most,
    )
    if as_json:
        render.print_json(found.to_json())
    else:
        print_statistics(found)
