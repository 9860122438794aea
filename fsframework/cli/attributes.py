"""`fsf attributes`: the words of images."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import (
    DROPPING,
    WORDS,
    cache_option,
    group,
    json_option,
    registry_with,
    set_options,
    shared,
    tree_of,
)
from fsframework.errors import OptionError

if TYPE_CHECKING:
    from fsframework.interfaces.dataset import Dataset
    from fsframework.pipeline.attributes.detection import Detected
    from fsframework.pipeline.experiment.configuration import Experiment
    from fsframework.values import AttributeTable, ImagePool

__all__ = ["attributes"]

_FILE = click.Path(path_type=Path)


@group()
def attributes() -> None:
    """Detect the words in images; count, compare and show them.

    \b
    Examples:
      fsf attributes extract words.parquet --detector vit-gpt2 --dataset folder:./images
      fsf attributes extract words.parquet --detector captions-file:captions.jsonl
      fsf attributes stats --attributes words.parquet --dataset folder:./images
      fsf attributes agree vit-gpt2.parquet blip.parquet
      fsf attributes show page.html --attributes words.parquet --word grass
      fsf run --attributes words.parquet --dataset folder:./images
    """


@attributes.command("extract")
@click.argument("output", type=_FILE)
@shared("detector", "dataset", "split")
@click.option(
    "--shard",
    metavar="I/N",
    help="Only part I of N, I from 1 to N; other parts may be worked on at the same time. A run "
    "without it afterwards puts all parts together, or see fsf attributes merge.",
)
@click.option(
    "--batch-size",
    type=int,
    metavar="N",
    help="Images shown to the detector at once.  [default: 16, on a GPU 64]",
)
@shared("device", "offline", *DROPPING)
@set_options
@cache_option
@click.option("--force", is_flag=True, help="Replace OUTPUT if it exists.")
@json_option
@click.pass_context
def extract(
    context: click.Context,
    /,
    output: Path,
    shard: str | None,
    batch_size: int | None,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    cache_dir: Path | None,
    force: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Detect the words in a split's images and write them to OUTPUT (.parquet).

    Captions are written down as they are made: killed and started again, it goes on, and no image
    is captioned twice; other words are selected from the same captions. An image that cannot be
    read is named and left out, and the exit code is 1.
    """
    from fsframework.pipeline.attributes.detection import Shard, detect_attributes
    from fsframework.pipeline.cache.workspace import Workspace
    from fsframework.pipeline.experiment.configuration import resolve_experiment

    _check_output(output, force=force)
    part = None if shard is None else Shard.parse(shard)
    registry = registry_with(plugin_files)
    experiment = resolve_experiment(registry, tree_of(context, config, options, {}))
    settings = experiment.settings
    if experiment.detector is None:
        raise OptionError(
            "--detector is missing; name one of "
            + ", ".join(p.name for p in registry.plugins("detector"))
        )
    if part is not None and settings.min_count > 1:
        raise OptionError(
            "--min-count counts the images of the whole split, not of a shard; give it to the run "
            "without --shard, or to the commands that read the merged table"
        )
    dataset = experiment.dataset.create()
    detected = detect_attributes(
        experiment.detector,
        dataset,
        experiment.dataset,
        settings.split,
        Workspace.default(None, cache_dir),
        usual_reporter(),
        device=settings.device,
        offline=settings.offline,
        batch_size=batch_size,
        shard=part,
    )
    table = _finished(experiment, dataset.pool(settings.split), detected.table)
    table.save(output)
    _print_extracted(output, table, detected, as_json)
    if detected.failed:
        context.exit(1)


def _finished(experiment: Experiment, pool: ImagePool, table: AttributeTable) -> AttributeTable:
    """Drop the words that are to be dropped, and say in the header what became of them."""
    from fsframework.pipeline.attributes.sources import without_dropped_words
    from fsframework.pipeline.attributes.statistics import images_with_class_words

    settings = experiment.settings
    whole = dataclasses.replace(pool, attributes=table.aligned(pool.keys))
    naming = int(images_with_class_words(whole).sum())
    header = {**table.provenance, "images_with_class_words": f"{naming} of {len(table)}"}
    if settings.drop_class_words:
        header["drop_class_words"] = "true"
    if settings.drop_words:
        header["drop_words"] = ", ".join(settings.drop_words)
    if settings.min_count > 1:
        header["min_count"] = str(settings.min_count)
    dropped = without_dropped_words(whole, settings).attributes
    assert dropped is not None
    return dataclasses.replace(dropped.aligned(table.keys), provenance=header)


def _print_extracted(
    output: Path, table: AttributeTable, detected: Detected, as_json: bool
) -> None:
    from fsframework.cli import render

    pairs = int(table.csr()[1].size)
    without = int((~table.bits.any(axis=1)).sum()) if table.words else len(table)
    if as_json:
        render.print_json(
            {
                "file": str(output),
                "images": len(table),
                "reused": detected.reused,
                "words": len(table.words),
                "words_an_image": pairs / len(table) if len(table) else None,
                "images_without_words": without,
                "unreadable": [{"key": k, "reason": r} for k, r in detected.failed],
                "notes": list(detected.notes),
                "fingerprint": table.fingerprint,
                "provenance": dict(table.provenance),
            }
        )
        return
    mean = pairs / len(table) if len(table) else 0.0
    click.echo(
        f"{len(table):,} images, {len(table.words):,} words, {mean:.1f} words an image; "
        f"{without:,} images without a word"
    )
    naming = table.provenance.get("images_with_class_words", "0 of")
    if not naming.startswith("0 of"):
        fate = "dropped" if "drop_class_words" in table.provenance else "kept"
        click.echo(f"{naming} images have words that name their class ({fate})")
    if not pairs:
        click.echo("no image has a word: tasks cannot be drawn from this table")
    for key, reason in detected.failed[:10]:
        click.echo(f"cannot be read: {reason if key in reason else f'{key}: {reason}'}")
    if len(detected.failed) > 10:
        click.echo(f"and {len(detected.failed) - 10:,} more that cannot be read")
    click.echo(f"attributes: {output}")


def _described(
    context: click.Context,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    cache_dir: Path | None = None,
) -> tuple[Experiment, Dataset, ImagePool]:
    """Return what the shared options name, and its pool with its words."""
    from fsframework.pipeline.attributes.sources import pool_with_attributes
    from fsframework.pipeline.cache.workspace import Workspace
    from fsframework.pipeline.experiment.configuration import resolve_experiment

    registry = registry_with(plugin_files)
    experiment = resolve_experiment(registry, tree_of(context, config, options, {}))
    dataset = experiment.dataset.create()
    pool, _ = pool_with_attributes(
        experiment,
        dataset,
        dataset.pool(experiment.settings.split),
        Workspace.default(None, cache_dir),
        usual_reporter(),
    )
    return experiment, dataset, pool


@attributes.command("stats")
@shared("dataset", *WORDS, "split", "way", "shot", "query")
@click.option(
    "--most",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="Spurious pairs listed.",
)
@set_options
@cache_option
@json_option
@click.pass_context
def stats(
    context: click.Context,
    /,
    most: int,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    cache_dir: Path | None,
    as_json: bool,
    **_: Any,
) -> None:
    """Count the words of a split: FewSTAB's Table 2, and which classes can form tasks.

    Lists the commonest spurious pairs of class and word, and the classes that cannot stand in
    attribute-biased tasks of --shot and --query, with the reason.
    """
    from fsframework.cli import render
    from fsframework.cli._attribute_views import print_statistics
    from fsframework.pipeline.attributes.statistics import attribute_statistics

    experiment, _dataset, pool = _described(context, config, options, plugin_files, cache_dir)
    sampler = experiment.sampler.create()
    found = attribute_statistics(
        pool, n_way=sampler.n_way, n_shot=sampler.n_shot, n_query=sampler.n_query, most=most
    )
    if as_json:
        render.print_json(found.to_json())
    else:
        print_statistics(found)


@attributes.command("agree")
@click.argument("first", metavar="A", type=_FILE)
@click.argument("second", metavar="B", type=_FILE)
@json_option
def agree(first: Path, second: Path, as_json: bool) -> None:
    """Compare two tables of the same images: detection accuracy both ways, vocabularies.

    A and B are .parquet or .csv files. The detection accuracy of A by B is the mean share of the
    words of B that A has too (FewSTAB, Eq. 9 and Table S11).
    """
    from fsframework.cli import render
    from fsframework.cli._attribute_views import print_agreement
    from fsframework.pipeline.attributes.sources import read_attributes
    from fsframework.pipeline.attributes.statistics import agreement

    found = agreement(read_attributes(first), read_attributes(second))
    if as_json:
        render.print_json(found.to_json())
    else:
        names = (
            (first.stem, second.stem) if first.stem != second.stem else map(str, (first, second))
        )
        print_agreement(found, *names)


@attributes.command("merge")
@click.argument("output", type=_FILE)
@click.argument("parts", metavar="PART...", nargs=-1, required=True, type=_FILE)
@click.option("--force", is_flag=True, help="Replace OUTPUT if it exists.")
def merge(output: Path, parts: tuple[Path, ...], force: bool) -> None:
    """Put tables of different images together, such as those of shards.

    All must have been made the same way; an image may stand in two of them only with the same
    words.
    """
    from fsframework.pipeline.attributes.sources import read_attributes
    from fsframework.pipeline.attributes.statistics import merged

    _check_output(output, force=force)
    table = merged([(str(part), read_attributes(part)) for part in parts])
    table.save(output)
    click.echo(f"{output}: {len(table):,} images, {len(table.words):,} words")
    if "shard" in table.provenance:
        click.echo(f"note: some shards are missing; these are in it: {table.provenance['shard']}")


@attributes.command("show")
@click.argument("output", type=_FILE)
@shared("dataset", *WORDS, "split", "seed")
@click.option(
    "--images", "n", type=int, default=24, show_default=True, metavar="N", help="How many."
)
@click.option("--class", "class_name", metavar="NAME", help="Only images of this class.")
@click.option("--word", metavar="WORD", help="Only images that have this word.")
@set_options
@cache_option
@click.option("--force", is_flag=True, help="Replace OUTPUT if it exists.")
@click.pass_context
def show(
    context: click.Context,
    /,
    output: Path,
    n: int,
    class_name: str | None,
    word: str | None,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    cache_dir: Path | None,
    force: bool,
    **_: Any,
) -> None:
    """Make a page of images with their words: OUTPUT is .html or .png.

    The images are drawn at random by --seed. Words that name an image's own class are marked.
    """
    from fsframework.pipeline.attribute_pages import attribute_page

    if output.exists() and not force:
        raise OptionError(f"{output} exists; give --force to replace it")
    experiment, dataset, pool = _described(context, config, options, plugin_files, cache_dir)
    assert pool.attributes is not None
    page = attribute_page(
        dataset,
        experiment.settings.split,
        pool.attributes,
        n=n,
        class_name=class_name,
        word=word,
        seed=experiment.settings.seed,
        output=output,
    )
    click.echo(f"{output}: {page.shown:,} of {page.matching:,} images")


def _check_output(output: Path, *, force: bool) -> None:
    if output.suffix.lower() != ".parquet":
        raise OptionError(f"{output}: must end in .parquet")
    if output.exists() and not force:
        raise OptionError(f"{output} exists; give --force to replace it")
