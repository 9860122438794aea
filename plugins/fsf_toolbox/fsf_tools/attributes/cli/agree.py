"""`fsf attributes agree`: two tables evaluated against each other."""

from __future__ import annotations

from pathlib import Path

import click

from fsframework.cli.options import command, shared

__all__ = ["agree"]

_FILE = click.Path(path_type=Path)


@command()
@click.argument("first", metavar="A", type=_FILE)
@click.argument("second", metavar="B", type=_FILE)
@shared("json")
def agree(first: Path, second: Path, as_json: bool) -> None:
    """Compare two tables of the same images: accuracy both ways, vocabularies.

    A and B are .parquet or .csv files. The detection accuracy of A against B is the
    mean share, per image, of the words of B that A has too (FewSTAB, Eq. 9 and
    Table S11).

    \b
    Example:
      fsf attributes agree vit-gpt2.parquet blip.parquet
    """
    from fsf_tools.attributes.agreement import agreement
    from fsf_tools.attributes.cli._views import print_agreement
    from fsframework.api.data import attributes
    from fsframework.cli import render

    found = agreement(attributes(first), attributes(second))
    if as_json:
        render.print_json(found.to_json())
        return
    names = (first.stem, second.stem) if first.stem != second.stem else (str(first), str(second))
    print_agreement(found, *names)
