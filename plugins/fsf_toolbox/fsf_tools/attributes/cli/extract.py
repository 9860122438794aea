"""`fsf attributes`: the words of images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import (
    CONFIGURATION,
    DROPPING,
    check_output,
    group,
    session_of,
    shared,
    tree_of,
)

if TYPE_CHECKING:
    from fsf_tools.attributes.extraction import Extracted

__all__ = ["attributes"]

_MOST_UNREADABLE = 10


@group()
def attributes() -> None:
    """Detect the words in images, and inspect tables of words.

    \b
    Examples:
      fsf attributes extract words.parquet --detector vit-gpt2 --dataset folder:./images
      fsf attributes extract words.parquet --detector captions-file:captions.jsonl
      fsf run --attributes words.parquet --dataset folder:./images
    """


@attributes.command("extract")
@click.argument("output", type=click.Path(path_type=Path))
@shared("detector", "dataset", "split")
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Images per call of the detector.  [default: 16, on a GPU 64]",
)
@shared("device", "offline", "launcher", *DROPPING, *CONFIGURATION, "cache-dir", "force", "json")
@click.pass_context
def extract(
    context: click.Context,
    /,
    output: Path,
    batch_size: int | None,
    force: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Detect the words in images and write them to OUTPUT (.parquet).

    Without --split, all images are processed, since the tasks of fsf run may be drawn
    from any of them. Captions are stored as they are made. If the command is killed
    and run again, it resumes where it stopped: no image is captioned twice, and other
    words are selected from the same captions. An image that cannot be read is named
    and skipped, and the exit code is 1. The workers of --launcher divide the images.
    """
    from fsf_tools.attributes.extraction import detecting, extract_words
    from fsf_tools.sharing import sharing_of
    from fsframework.api.experiments import Description, resolved

    check_output(output, ".parquet", force=force)
    session, plugins = session_of(context), context.params["plugin_files"]
    sharing, tree = sharing_of(
        detecting, tree_of(context), session, plugins, batch_size=batch_size or 0
    )
    described = Description(resolved(tree, session), session)
    extracted = extract_words(described, batch_size=batch_size or 0, sharing=sharing)
    extracted.table.save(output)
    if as_json:
        _print_json(output, extracted)
    else:
        _print_extracted(output, extracted, dropped=described.options["drop_class_words"])
    if extracted.failed:
        context.exit(1)


@attributes.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@shared("dataset", *CONFIGURATION, "force")
@click.pass_context
def import_(context: click.Context, /, file: Path, output: Path, force: bool, **_: Any) -> None:
    """Read a pickle of FewSTAB's attributes and write it to OUTPUT (.parquet).

    FILE is a *_attribute_embeds.pickle of the FewSTAB code, from which nothing is
    executed. The images of the data set are found by their file names.

    \b
    Example:
      fsf attributes import test_vit-gpt2_attribute_embeds.pickle words.parquet \\
          --dataset folder:./images
    """
    from fsf_tools.fewstab import fewstab_attributes
    from fsframework.cli.options import experiment_of

    check_output(output, ".parquet", force=force)
    experiment, _session = experiment_of(context)
    table = fewstab_attributes(file, experiment.dataset.create())
    table.save(output)
    click.echo(f"{output}: {len(table):,} images, {len(table.words):,} words")


def _print_json(output: Path, extracted: Extracted) -> None:
    from fsframework.cli import render

    table = extracted.table
    counts = table.words_per_image()
    render.print_json(
        {
            "file": str(output),
            "images": len(table),
            "reused": extracted.reused,
            "words": len(table.words),
            "words_per_image": float(counts.mean()) if len(table) else None,
            "images_without_words": int((counts == 0).sum()),
            "images_with_class_words": extracted.class_named,
            "words_in_most_classes": dict(extracted.common),
            "unreadable": [{"key": k, "reason": r} for k, r in extracted.failed],
            "notes": list(extracted.notes),
            "fingerprint": table.fingerprint,
            "provenance": dict(table.provenance),
        }
    )


def _print_extracted(output: Path, extracted: Extracted, *, dropped: bool) -> None:
    table = extracted.table
    counts = table.words_per_image()
    mean = counts.mean() if len(table) else 0.0
    click.echo(
        f"{len(table):,} images, {len(table.words):,} words, {mean:.1f} words per image; "
        f"{int((counts == 0).sum()):,} images without a word"
    )
    if extracted.class_named:
        click.echo(
            f"{extracted.class_named:,} of {len(table):,} images have words that name their class "
            f"({'dropped' if dropped else 'kept'})"
        )
    if extracted.common:
        words = ", ".join(f"{word} ({n:,})" for word, n in extracted.common.items())
        click.echo(
            f"words of most images of nearly every class, with numbers of classes: {words} "
            "(--drop-words-in-classes removes such words)"
        )
    if not counts.any():
        click.echo("no image has a word: no tasks can be drawn with this table")
    for key, reason in extracted.failed[:_MOST_UNREADABLE]:
        click.echo(f"cannot be read: {reason if key in reason else f'{key}: {reason}'}")
    if len(extracted.failed) > _MOST_UNREADABLE:
        click.echo(f"and {len(extracted.failed) - _MOST_UNREADABLE:,} more that cannot be read")
    click.echo(f"attributes: {output}")
