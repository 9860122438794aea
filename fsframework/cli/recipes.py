"""`fsf recipes`: how methods are trained, where the values come from, what to expect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import flat_options, group, plugin_names, shared

if TYPE_CHECKING:
    from fsframework.api.recipes import Recipe

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
@shared("json")
def list_(method: str | None, as_json: bool) -> None:
    """List every recipe of the installed methods, importing none of them."""
    from fsframework.api.recipes import recipes as api_recipes
    from fsframework.cli import render

    found = api_recipes(method)
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
@shared("json")
def show(method: str, name: str, as_json: bool) -> None:
    """Show what a recipe sets, for each data set and shot it is for.

    \b
    Example:
      fsf recipes show anil fewstab
    """
    from fsframework.api.recipes import recipes as api_recipes
    from fsframework.cli import render

    found = api_recipes(method, name)
    if as_json:
        render.print_json([_as_json(recipe) for recipe in found])
        return
    for number, recipe in enumerate(found):
        if number:
            click.echo()
        shot = "any shot" if recipe.shot is None else f"{recipe.shot}-shot"
        click.echo(f"{method}, {', '.join(recipe.datasets) or 'any data set'}, {shot}")
        click.echo(recipe.described())
        rows = [(key, value) for key, value, _ in flat_options(recipe.options)]
        render.print_table(("option", "value"), rows)


def _as_json(recipe: Recipe) -> dict[str, Any]:
    when = None if recipe.verified is None else recipe.verified.isoformat()
    return {**vars(recipe), "verified": when}
