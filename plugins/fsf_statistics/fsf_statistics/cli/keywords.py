"""`fsf keywords`: what the wrongly answered images of a class have in common, in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsframework.cli.options import check_output, command, run_names, shared

if TYPE_CHECKING:
    from fsf_statistics import Keywords

__all__ = ["keywords"]


@command()
@click.argument("run", metavar="RUN", shell_complete=run_names)
@click.option(
    "--arm", metavar="NAME", help="Arm whose answers are used.  [default: the first, the control]"
)
@click.option(
    "--of",
    type=click.Choice(["words", "captions"]),
    metavar="words|captions",
    default="words",
    show_default=True,
    help="Where keywords come from: the words of the images, or one and two words of captions.",
)
@click.option(
    "--similarity",
    metavar="DETECTOR[:ARG]",
    help="Model that compares images with keywords, such as clip-words:MODEL.  [default: the "
    "backbone of the run if it reads text, else the share of images that have the keyword]",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write all pairs that were looked at: .json or .csv.",
)
@shared("level", "device", "runs-dir", "force", "json")
def keywords(  # noqa: PLR0913 - a parameter per option
    run: str,
    arm: str | None,
    of: str,
    similarity: str | None,
    output: Path | None,
    level: float | None,
    device: str | None,
    runs_dir: Path,
    force: bool,
    as_json: bool,
) -> None:
    """Find keywords of the images of each class that are answered wrongly.

    RUN is a folder, a name or its beginning, or a selector such as method=ncc,shot=5.
    The score of a keyword is its mean similarity to the wrongly answered images minus
    that to the others (B2T). Without a model that reads text, it is the difference
    between the shares of images that have the keyword.

    \b
    Examples:
      fsf keywords method=renet
      fsf keywords method=renet --of captions --similarity clip-words:./clip
    """
    import fsf_statistics
    from fsframework.cli import render
    from fsframework.values import atomic_write

    if output is not None:
        check_output(output, ".csv", ".json", force=force)
    found = fsf_statistics.keywords(
        run,
        arm,
        of="captions" if of == "captions" else "words",
        similarity=similarity,
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


def _document(found: Keywords, ending: str) -> str:
    from fsframework.values import csv_text

    if ending == ".json":
        return json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n"
    columns = ["class", "keyword", "score", "low", "high", "p", "share_wrong", "reported"]
    rows = []
    for row in found.tested:
        one = row.estimate
        numbers = one.value, one.low, one.high, row.p, row.share_wrong
        rows.append([*row.names, *numbers, str(row.reported).lower()])
    return csv_text(columns, rows)
