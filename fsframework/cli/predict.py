"""`fsf predict`: the classes of a user's own images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.completion import plugin_names, run_names
from fsframework.cli.options import (
    command,
    json_option,
    registry_with,
    set_options,
    shared,
    tree_of,
)

if TYPE_CHECKING:
    from fsframework.pipeline.prediction import Predictions

__all__ = ["predict"]

_MOST_COLUMNS = 6
_RUNNERS_UP = 2


@command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option(
    "--support",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder with a sub-folder of images for each class.",
)
@click.option(
    "--query",
    "queries",
    multiple=True,
    metavar="PATH",
    help="Image to be predicted, a folder of them or a pattern; repeatable. FILEs after it are "
    "more of them.",
)
@click.option(
    "--model",
    shell_complete=run_names,
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Take method, backbone, image size and weights of a run, or of an imported one: a folder, "
    "or the beginning of its name in the runs folder.",
)
@shared("method")
@click.option(
    "--backbone",
    shell_complete=plugin_names("backbone"),
    metavar="NAME[:ARG]",
    envvar="FSF_BACKBONE",
    show_envvar=True,
    help="Feature extractor; without --model a pretrained one.  [default: conv64f, untrained]",
)
@shared("image-size")
@shared("broken", "seed", "device", "offline")
@set_options
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write them: .csv (a row a file, a column a class) or .json; a file that is there is "
    "replaced.",
)
@json_option
@click.pass_context
def predict(
    context: click.Context,
    /,
    files: tuple[str, ...],
    support: Path,
    queries: tuple[str, ...],
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    output: Path | None,
    as_json: bool,
    **_: Any,
) -> None:
    """Tell the classes of images of your own from a few labelled ones of each class.

    \b
    The sub-folders of DIR are the classes; ten images each will do, and one may.
    With a trained run (--model) or a pretrained backbone. Nothing is trained, but
    by methods that learn from the support itself (maml, finetune, logistic).

    \b
    Examples:
      fsf predict --support ./few --query new/*.jpg --model runs/protonet-planted-1a2b3c4d
      fsf predict --support ./few --query ./new --method ncc --backbone timm:resnet50
      fsf predict --support ./few --query a.jpg --query b.jpg --json
    """
    from fsframework.cli import render
    from fsframework.pipeline.prediction import find_queries, find_support, predict_files

    if output is not None:
        _check_output(output)
    keys = {
        "model": "model",
        "backbone": "backbone",
    }
    tree = tree_of(context, config, options, keys)
    found = predict_files(
        registry_with(plugin_files),
        tree,
        find_support(support),
        find_queries((*queries, *files)),
        usual_reporter(),
    )
    if output is not None:
        _write(found, output)
    if as_json:
        render.print_json(found.to_json())
    else:
        _print(found)


def _check_output(path: Path) -> None:
    from fsframework.errors import OptionError

    if path.suffix.lower() not in (".csv", ".json"):
        raise OptionError(f"--output {path}: must end in .csv or .json")
    if not path.absolute().parent.is_dir():
        raise OptionError(f"--output {path}: there is no folder {path.parent}")


def _write(found: Predictions, path: Path) -> None:
    import csv
    import io
    import json

    from fsframework._files import atomic_write

    if path.suffix.lower() == ".json":
        atomic_write(path, json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n")
        return
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["file", "class", *found.classes])
    for file, name, row in zip(found.files, found.predicted, found.probabilities, strict=True):
        writer.writerow([file, name, *map(float, row)])
    atomic_write(path, out.getvalue())


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
    number = len(found.classes)
    click.echo(
        f"{found.method} with {found.backbone} on images of {found.image_size} pixels, "
        f"{number} classes of {found.shot} {'image' if found.shot == 1 else 'images'} each"
    )
    click.echo(
        f"scores: softmax of what {found.method} says of the {number} classes; they are not "
        "calibrated, so 0.9 need not mean right nine times in ten, and an image of none of the "
        "classes is given to one all the same"
    )
    for sentence in found.broken:
        click.echo(f"left out: {sentence}")
    for note in found.notes:
        click.echo(f"note: {note}")
