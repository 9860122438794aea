"""`fsf slices`: which images fail together, without words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsframework.cli.options import check_output, command, run_names, shared

if TYPE_CHECKING:
    from fsf_statistics import Slices

__all__ = ["slices"]


@command()
@click.argument("run", metavar="RUN", shell_complete=run_names)
@click.option(
    "--arm", metavar="NAME", help="Arm whose answers are used.  [default: the first, the control]"
)
@click.option(
    "--count",
    type=int,
    metavar="INTEGER",
    help="Slices to look for.  [default: three per class]",
)
@click.option(
    "--weight",
    type=float,
    default=10.0,
    show_default=True,
    metavar="NUMBER",
    help="Weight of class and wrong answers against the embedding: gamma of Domino.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the slices: .json, or .csv with a row per image of each reported slice.",
)
@shared("seed", "level", "device", "runs-dir", "force", "json")
def slices(  # noqa: PLR0913 - a parameter per option
    run: str,
    arm: str | None,
    count: int | None,
    weight: float,
    output: Path | None,
    seed: int | None,
    level: float | None,
    device: str | None,
    runs_dir: Path,
    force: bool,
    as_json: bool,
) -> None:
    """Find images that fail together, without words.

    RUN is a folder, a name or its beginning, or a selector such as method=ncc,shot=5.
    Slices are found in half of the tasks and images, by the features of the run's own
    model, and judged in the other half. If the images have words, those that describe
    a slice best are shown.

    \b
    Examples:
      fsf slices method=renet
      fsf slices method=renet --count 40 --output slices.csv
    """
    import fsf_statistics
    from fsframework.cli import render
    from fsframework.values import atomic_write

    if output is not None:
        check_output(output, ".csv", ".json", force=force)
    found = fsf_statistics.slices(
        run,
        arm,
        count=count,
        weight=weight,
        seed=0 if seed is None else seed,
        level=0.95 if level is None else level,
        runs_dir=runs_dir,
        device=device or "auto",
    )
    if output is not None:
        atomic_write(output, _document(found, output.suffix.lower()))
    if as_json:
        render.print_json(found.to_json())
    else:
        click.echo(repr(found))


def _document(found: Slices, ending: str) -> str:
    from fsframework.values import csv_text

    if ending == ".json":
        return json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n"
    rows = [
        (number, row.estimate.value, key)
        for number, row in enumerate(found.rows, start=1)
        for key in row.images
    ]
    return csv_text(("slice", "excess", "key"), rows)
