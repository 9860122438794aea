"""`fsf predict`: classify a user's own images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import (
    CONFIGURATION,
    check_output,
    command,
    plugin_names,
    session_of,
    shared,
    tree_of,
)

if TYPE_CHECKING:
    from fsf_prediction.prediction import Predictions

__all__ = ["predict"]

_MOST_COLUMNS = 6
_RUNNERS_UP = 2


@command()
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option(
    "--support",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder (or .zip) with one sub-folder of images per class.",
)
@shared("model", "method")
@click.option(
    "--backbone",
    shell_complete=plugin_names("backbone"),
    metavar="NAME[:ARG]",
    envvar="FSF_BACKBONE",
    show_envvar=True,
    help="Feature extractor; use a pretrained one without --model.  [default: conv64f, untrained]",
)
@shared("image-size", "broken", "seed", "device", "offline", *CONFIGURATION)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the predictions: .csv (a row per file, a column per class) or .json.",
)
@shared("force", "json")
@click.pass_context
def predict(
    context: click.Context,
    /,
    files: tuple[str, ...],
    support: Path,
    output: Path | None,
    force: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Classify your own images from a few examples per class.

    FILE is an image, a folder of images or a pattern. The sub-folders of DIR are
    the classes; one image of each is enough, ten are better. Use a trained run
    (--model) or a pretrained backbone (--backbone). Nothing is trained beforehand;
    methods such as maml, finetune and logistic adapt to the examples.

    \b
    Examples:
      fsf predict new/*.jpg --support ./few --model method=protonet
      fsf predict ./new --support ./few --method ncc --backbone timm:resnet50
      fsf predict a.jpg b.jpg --support ./few --json
    """
    from fsf_prediction.files import find_queries, find_support
    from fsf_prediction.prediction import predict_files
    from fsframework.cli import render
    from fsframework.values import atomic_write

    if output is not None:
        check_output(output, ".csv", ".json", force=force)
    tree, session = tree_of(context), session_of(context)
    found = predict_files(tree, session, find_support(support), find_queries(files))
    if output is not None:
        atomic_write(output, _document(found, output.suffix.lower()))
    if as_json:
        render.print_json(found.to_json())
    else:
        _print(found)


def _document(found: Predictions, ending: str) -> str:
    from fsframework.values import csv_text

    if ending == ".json":
        return json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n"
    each = zip(found.files, found.predicted, found.probabilities, strict=True)
    rows = [[file, name, *map(float, shares)] for file, name, shares in each]
    return csv_text(["file", "class", *found.classes], rows)


def _print(found: Predictions) -> None:
    from fsframework.cli import render

    few = len(found.classes) <= _MOST_COLUMNS
    columns = ["file", "class", *(found.classes if few else ("score", "next"))]
    rows = []
    for file, name, row in zip(found.files, found.predicted, found.probabilities, strict=True):
        cells = [f"{p:.2f}" for p in row]
        if not few:
            order = sorted(range(len(row)), key=lambda i: -row[i])
            after = (f"{found.classes[i]} {cells[i]}" for i in order[1 : 1 + _RUNNERS_UP])
            cells = [cells[order[0]], ", ".join(after)]
        rows.append((str(file), name, *cells))
    render.print_table(columns, rows)
    click.echo()
    model, number = found.model, len(found.classes)
    click.echo(
        f"{model.name} with {model.backbone}, images of {model.image_size} x {model.image_size} "
        f"pixels, {number} classes with {found.shot} {'image' if found.shot == 1 else 'images'} "
        "each"
    )
    click.echo(
        f"scores are the softmax of the output of {model.name} and are not calibrated: 0.9 need "
        "not mean correct nine times in ten, and an image of none of the classes is "
        "still assigned to one of them"
    )
    for sentence in found.broken:
        click.echo(f"left out: {sentence}")
    for note in found.notes:
        click.echo(f"note: {note}")
