"""`fsf recipes`: how methods are trained, where the values come from, what to expect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.completion import plugin_names
from fsframework.cli.options import group, json_option

if TYPE_CHECKING:
    from fsframework.pipeline.experiment.recipes import Recipe

__all__ = ["recipes"]


@group()
def recipes() -> None:
    """List and show recipes: named sets of training options for a method.

    \b
    Examples:
      fsf recipes list --method renet
      fsf recipes show renet quick
      fsf run --method renet --recipe fewstab --dataset miniimagenet:./images --shot 1
    """


@recipes.command("list")
@click.option(
    "--method",
    shell_complete=plugin_names("method"),
    metavar="NAME",
    help="Only recipes of this method.",
)
@json_option
def list_(method: str | None, as_json: bool) -> None:
    """List every recipe of the installed methods, importing none of them."""
    from fsframework.cli import render
    from fsframework.components.registry import Registry
    from fsframework.pipeline.experiment.recipes import list_recipes

    registry = Registry()
    if method is not None:
        registry.find("method", method)
    found = sorted(list_recipes(registry, method), key=lambda r: (r.method, r.name))
    if as_json:
        render.print_json([_as_json(recipe) for recipe in found])
        return
    if not found:
        click.echo("no recipes" + (f" of {method}" if method else ""))
        return
    rows = [
        (
            r.method,
            r.name,
            ", ".join(r.datasets) or "any",
            "any" if r.shot is None else str(r.shot),
            "" if r.accuracy is None else f"{r.accuracy:.1f} %",
            "no" if r.verified is None else r.verified.isoformat(),
            r.source,
        )
        for r in found
    ]
    columns = ("method", "recipe", "data set", "shot", "expected", "verified", "source")
    render.print_table(columns, rows)


@recipes.command()
@click.argument("method", shell_complete=plugin_names("method"), metavar="METHOD")
@click.argument("name", metavar="RECIPE")
@json_option
def show(method: str, name: str, as_json: bool) -> None:
    """Show what a recipe sets, for each data set and shot it is for.

    \b
    Example:
      fsf recipes show anil fewstab
    """
    from fsframework.cli import render
    from fsframework.components.registry import Registry
    from fsframework.pipeline.experiment.recipes import list_recipes, unknown_recipe

    registry = Registry()
    registry.find("method", method)
    found = [r for r in list_recipes(registry, method) if r.name == name]
    if not found:
        raise unknown_recipe(registry, method, name)
    if as_json:
        render.print_json([_as_json(recipe) for recipe in found])
        return
    for number, recipe in enumerate(found):
        if number:
            click.echo()
        shot = "any shot" if recipe.shot is None else f"{recipe.shot}-shot"
        click.echo(f"{method}, {', '.join(recipe.datasets) or 'any data set'}, {shot}")
        click.echo(recipe.described())
        render.print_table(("option", "value"), list(_leaves(recipe.options)))


def _as_json(recipe: Recipe) -> dict[str, Any]:
    when = None if recipe.verified is None else recipe.verified.isoformat()
    return {**vars(recipe), "verified": when}


def _leaves(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        elif isinstance(value, list) and any(isinstance(v, Mapping) for v in value):
            for number, inner in enumerate(value, start=1):
                yield from _leaves(inner, f"{prefix}{key}.{number}.")
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield f"{prefix}{key}", shown
