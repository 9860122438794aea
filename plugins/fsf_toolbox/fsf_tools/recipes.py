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
            r.spelt_method,
            r.name,
            ", ".join(r.datasets) or "any",
            "any" if r.shot is None else str(r.shot),
            _span(r.accuracies),
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
        there = ", ".join(recipe.datasets) or "any data set"
        click.echo(f"{recipe.spelt_method}, {there}, {shot}")
        click.echo(recipe.described())
        rows = [(key, value) for key, value, _ in flat_options(recipe.options)]
        for backbone, own in recipe.backbones.items():
            below = flat_options({"backbone": own})
            rows += [(f"{key} ({backbone})", value) for key, value, _ in below]
        render.print_table(("option", "value"), rows)
        if recipe.expected:
            click.echo()
            accuracies = [
                (one.backbone, str(one.way), str(one.shot), f"{one.accuracy:.2f} %")
                for one in recipe.expected
            ]
            render.print_table(("backbone", "way", "shot", "expected"), accuracies)


def _span(accuracies: tuple[float, ...]) -> str:
    """Return the lowest and the highest accuracy.

    >>> _span((46.78, 60.78)), _span((51.0,)), _span(())
    ('46.8–60.8 %', '51.0 %', '')
    """
    if not accuracies:
        return ""
    ends = dict.fromkeys(f"{value:.1f}" for value in (accuracies[0], accuracies[-1]))
    return f"{'–'.join(ends)} %"


def _as_json(recipe: Recipe) -> dict[str, Any]:
    when = None if recipe.verified is None else recipe.verified.isoformat()
    expected = [vars(one) for one in recipe.expected]
    return {**vars(recipe), "expected": expected, "verified": when}
