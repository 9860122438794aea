"""`fsf data similarity`: images beside the names of their classes and contexts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import (
    cache_option,
    command,
    json_option,
    registry_with,
    set_options,
    shared,
    tree_of,
)
from fsframework.errors import OptionError

if TYPE_CHECKING:
    from fsframework.pipeline.similarity import Group, Similarities

__all__ = ["similarity"]

_CLIP = "clip-words"


@command(epilog="Options left out come from --config, then from the defaults.")
@shared("dataset", "detector")
@click.option(
    "--clip",
    metavar="MODEL",
    help="CLIP model, name on the hub or path of a folder: short for --detector clip-words:MODEL.  "
    "[default: openai/clip-vit-base-patch32]",
)
@click.option(
    "--template",
    metavar="TEXT",
    default="a photo of a {}",
    show_default=True,
    help="What stands around the name of a class; {} is its place.",
)
@click.option(
    "--context-template",
    metavar="TEXT",
    help="What stands around a context.  [default: as --template]",
)
@click.option(
    "--column",
    metavar="NAME",
    help="The metadata column that holds the contexts.  [default: context, where there is one]",
)
@click.option(
    "--split",
    "splits",
    multiple=True,
    metavar="NAME",
    help="Split whose images count; repeatable.  [default: all]",
)
@shared("device", "offline")
@click.option("--batch-size", type=int, metavar="N", help="Images shown to the model at once.")
@set_options
@cache_option
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a row an image, .csv or .parquet; a file that is there is replaced.",
)
@click.option(
    "--figure",
    type=click.Path(path_type=Path),
    metavar="FILE.png",
    help="Draw every image as a point, similarity to its context to the right and to its class "
    "upwards.",
)
@json_option
@click.pass_context
def similarity(
    context: click.Context,
    /,
    clip: str | None,
    template: str,
    context_template: str | None,
    column: str | None,
    splits: tuple[str, ...],
    batch_size: int | None,
    config: Path | None,
    options: tuple[str, ...],
    plugin_files: tuple[Path, ...],
    cache_dir: Path | None,
    output: Path | None,
    figure: Path | None,
    as_json: bool,
    **_: Any,
) -> None:
    """Measure how much images resemble the names of their classes and contexts (M_ce, M_te).

    \b
    The cosine similarity of CLIP's features of an image and of a text with the name
    of its class (M_ce) or of its context (M_te), averaged over the data set, its
    splits, classes and contexts, as in Eq. 1 of MetaCoCo (Zhang et al. 2024). Where
    images resemble their context more than their class, contexts make for a
    shortcut. Without contexts M_ce stands alone.

    \b
    Examples:
      fsf data similarity --dataset folder:./images --clip openai/clip-vit-base-patch32
      fsf data similarity --dataset metacoco --split test --figure similarity.png
      fsf data similarity --dataset csv:images.csv --column place --context-template "a {} scene"
    """
    from fsframework.benchmarks.metacoco import SIMILARITIES, printed_similarities
    from fsframework.cli import render
    from fsframework.components.resolution import Given, set_dotted
    from fsframework.pipeline.cache.workspace import Workspace
    from fsframework.pipeline.charts import check_picture
    from fsframework.pipeline.experiment.configuration import resolve_experiment
    from fsframework.pipeline.similarity import (
        check_table,
        measure_similarities,
        write_similarities,
    )

    if output is not None:
        check_table(output)
    if figure is not None:
        check_picture(figure)
    tree = tree_of(context, config, options, {})
    if clip is not None and context.params["detector"] is not None:
        raise OptionError("--clip and --detector both name the model; give one of them")
    detector = tree.get("detector")
    if clip is not None:
        set_dotted(tree, "detector", Given(f"{_CLIP}:{clip}", "command line"))
    elif detector is None or (isinstance(detector, dict) and "name" not in detector):
        set_dotted(tree, "detector", Given(_CLIP, "default"))
    experiment = resolve_experiment(registry_with(plugin_files), tree)
    assert experiment.detector is not None
    dataset = experiment.dataset.create()
    found = measure_similarities(
        experiment.detector,
        dataset,
        experiment.dataset,
        Workspace.default(None, cache_dir),
        usual_reporter(),
        splits=splits,
        column=column,
        template=template,
        context_template=context_template,
        device=experiment.settings.device,
        offline=experiment.settings.offline,
        batch_size=batch_size,
    )
    if output is not None:
        write_similarities(found, output)
    if figure is not None:
        _draw(found, figure)
    groups = list(found.groups())
    name = SIMILARITIES.get(experiment.dataset.name, "")
    printed = printed_similarities().get(name)
    if as_json:
        render.print_json(
            {
                "dataset": experiment.dataset.name,
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

    from fsframework.pipeline.charts import draw_scatter

    if found.contexts is None or np.isnan(found.m_te).all():
        raise OptionError(
            f"--figure {path}: the images have no contexts, so that there is nothing to draw M_ce "
            "against; name a metadata column with --column"
        )
    known = ~np.isnan(found.m_te)
    draw_scatter(
        found.m_te[known],
        found.m_ce[known],
        [label for label, has in zip(found.classes, known, strict=True) if has],
        path,
        x_axis="M_te: similarity to the context",
        y_axis="M_ce: similarity to the class",
        title=f"{int(known.sum()):,} images; on the line both are equal",
    )


def _print(groups: list[Group], printed: float | None, name: str) -> None:
    from fsframework.cli import render

    some = any(group.n_contexts for group in groups)
    for kind in dict.fromkeys(group.kind for group in groups):
        if kind == "split":
            continue
        part = [g for g in groups if g.kind == kind or (kind == "all" and g.kind == "split")]
        columns = ["split" if kind == "all" else kind, "images", "M_ce"]
        columns += ["M_te", "M_te above M_ce"] if some else []
        rows = []
        for group in part:
            row = [group.name or "all", f"{group.n_images:,}", f"{group.m_ce:.3f}"]
            if some:
                known = group.n_contexts > 0
                row += [f"{group.m_te:.3f}", f"{group.above:.1%}"] if known else ["–", "–"]
            rows.append(row)
        render.print_table(columns, rows)
        if kind == "all" and printed is not None:
            click.echo(
                f"printed for {name}: {printed:.3f} (MetaCoCo's Table 1, which states neither "
                "model nor prompt nor split)"
            )
        click.echo()


def _print_how(found: Similarities) -> None:
    told = found.provenance
    model = told.get("model", told["detector"])
    click.echo(f"cosine similarities by {model}, classes as {told['template']!r}", nl=False)
    contexts = ""
    if "column" in told:
        contexts = f", contexts ({told['column']}) as {told['context_template']!r}"
    click.echo(contexts)
