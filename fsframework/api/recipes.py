"""Recipes: named sets of training options for a method."""

from __future__ import annotations

from fsframework.components.registry import Registry
from fsframework.engine.recipes import Recipe, list_recipes, unknown_recipe

__all__ = ["Recipe", "recipes"]


def recipes(method: str | None = None, name: str | None = None) -> list[Recipe]:
    """Return the recipes of installed methods, sorted, importing no method.

    Args:
        method: only recipes of this method.
        name: only its recipes of this name, one for each data set, shot and value it is for.

    Raises:
        PluginError: the method is unknown, or a file of recipes is damaged.
        OptionError: the method has no recipe of this name.
    """
    registry = Registry()
    if method is not None:
        registry.find("method", method)
    found = [r for r in list_recipes(registry, method) if name in (None, r.name)]
    if name is not None and method is not None and not found:
        raise unknown_recipe(registry, method, name)
    return sorted(found, key=lambda recipe: (recipe.spelt_method, recipe.name))
