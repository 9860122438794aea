"""`fsf data similarity`: similarity of images to the names of their classes and contexts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import fsf_reports
from fsframework.cli.options import (
    CONFIGURATION,
    check_output,
    command,
    session_of,
    shared,
    tree_of,
)
from fsframework.errors import OptionError

if TYPE_CHECKING:
    from fsf_benchmarks._similarity import ImageGroup, Similarities

__all__ = ["similarity"]

_CLIP = "clip-words"


@command(epilog="Options left out come from --config, then from the defaults.")
@shared("dataset", "detector")
@click.option(
    "--clip",
    metavar="MODEL",
    help="CLIP model: name on the Hub or folder; short for --detector clip-words:MODEL.  "
    "[default: openai/clip-vit-base-patch32]",
)
@click.option(
    "--template",
    metavar="TEXT",
    default="a photo of a {}",
    show_default=True,
    help="Text for a class; its name replaces {}.",
)
@click.option(
    "--context-template",
    metavar="TEXT",
    help="Text for a context; its name replaces {}.  [default: as --template]",
)
@click.option(
    "--column",
    metavar="NAME",
    help="Metadata column that contains the contexts.  [default: context, if there is one]",
)
@click.option(
    "--split",
    "splits",
    multiple=True,
    metavar="NAME",
    help="Split to measure; repeatable.  [default: all]",
)
@shared("device", "offline")
@click.option("--batch-size", type=int, metavar="N", help="Images per batch.")
@shared(*CONFIGURATION, "cache-dir")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write one row per image; .csv or .parquet.",
)
@click.option(
    "--figure",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw every image as a point, similarity to its context on the x axis, to its class on "
    "the y axis: .pdf, .svg or .png; needs fsf-reports.",
)
@shared("force", "json")
@click.pass_context
def similarity(  # noqa: PLR0913 - a parameter per option
    context: click.Context,
    /,
    clip: str | None,
    template: str,
    context_template: str | None,
    column: str | None,
    splits: tuple[str, ...],
    batch_size: int | None,
    output: Path | None,
    figure: Path | None,
    force: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Measure how similar images are to the names of their classes and contexts (M_ce, M_te).

    \b
    The cosine similarity of CLIP's features of an image and of a text with the name
    of its class (M_ce) or of its context (M_te), averaged over the data set, its
    splits, classes and contexts, as in Eq. 1 of MetaCoCo (Zhang et al. 2024). If
    images are more similar to their context than to their class, the context is a
    possible shortcut. Without contexts, only M_ce is measured.

    \b
    Examples:
      fsf data similarity --dataset folder:./images --clip openai/clip-vit-base-patch32
      fsf data similarity --dataset metacoco --split test --figure similarity.png
      fsf data similarity --dataset csv:images.csv --column place --context-template "a {} scene"
    """
    from fsf_benchmarks._metacoco import SIMILARITIES, printed_similarities
    from fsf_benchmarks._similarity import (
        SUFFIXES,
        Templates,
        measure_similarities,
        write_similarities,
    )
    from fsf_reports import check_figure
    from fsframework.api.components import Given
    from fsframework.api.experiments import Description, given_tree, merged, resolved
    from fsframework.cli import render

    if output is not None:
        check_output(output, *SUFFIXES, force=force)
    if figure is not None:
        check_output(figure, force=force)
        check_figure(figure)
    templates = Templates(template, context_template)
    tree = tree_of(context)
    if clip is not None and context.params["detector"] is not None:
        raise OptionError("--clip and --detector both name the model; give one of them")
    if clip is not None:
        named = {"detector": Given(f"{_CLIP}:{clip}", "command line")}
        tree = merged(named, tree)
    tree = merged(tree, given_tree({"detector": _CLIP}, "default"))
    session = session_of(context)
    described = Description(resolved(tree, session), session)
    found = measure_similarities(
        described, templates, splits=splits, column=column, batch_size=batch_size
    )
    if output is not None:
        write_similarities(found, output)
    if figure is not None:
        _draw(found, figure)
    dataset = str(described.options["dataset"]["name"])
    groups = list(found.groups())
    name = SIMILARITIES.get(dataset, "")
    printed = printed_similarities().get(name)
    if as_json:
        render.print_json(
            {
                "dataset": dataset,
                "printed_m_ce": printed,
                "provenance": found.provenance,
                "groups": [group.to_json() for group in groups],
            }
        )
        return
    _print(groups, printed, name)
    _print_how(found)


def _draw(found: Similarities, path: Path) -> None:
    import numpy as np

    from fsf_benchmarks._similarity import drawn

    if found.contexts is None or np.isnan(found.m_te).all():
        raise OptionError(
            f"--figure {path}: the images have no contexts, so there is no M_te to draw; name a "
            "metadata column with --column"
        )
    fsf_reports.save_figure(drawn(found), path)


def _print(groups: list[ImageGroup], printed: float | None, name: str) -> None:
    from fsframework.cli import render

    some = any(group.n_contexts for group in groups)
    for by in dict.fromkeys(group.by for group in groups):
        if by == "split":
            continue
        part = [g for g in groups if g.by == by or (by == "all" and g.by == "split")]
        columns = ["split" if by == "all" else by, "images", "M_ce"]
        columns += ["M_te", "M_te above M_ce"] if some else []
        rows = []
        for group in part:
            row = [group.name or "all", f"{group.n_images:,}", f"{group.m_ce:.3f}"]
            if some:
                known = group.n_contexts > 0
                row += [f"{group.m_te:.3f}", f"{group.above:.1%}"] if known else ["–", "–"]
            rows.append(row)
        render.print_table(columns, rows)
        if by == "all" and printed is not None:
            click.echo(
                f"printed for {name}: {printed:.3f} (MetaCoCo's Table 1, which states neither "
                "model nor prompt nor split)"
            )
        click.echo()


def _print_how(found: Similarities) -> None:
    origin = found.provenance
    model = origin.get("model", origin["detector"])
    click.echo(f"cosine similarities by {model}, classes as {origin['template']!r}", nl=False)
    contexts = ""
    if "column" in origin:
        contexts = f", contexts ({origin['column']}) as {origin['context_template']!r}"
    click.echo(contexts)
