"""The stages of an experiment: what the user gives, over the recipes of the methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from fsframework.components.conversion import parameters
from fsframework.components.entry_points import packaged_among
from fsframework.components.options import Given, layer, over, value_of
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component, resolve_settings
from fsframework.engine.recipes import Recipe, find_recipe, unknown_recipe
from fsframework.engine.stages import Stage
from fsframework.errors import OptionError

__all__ = ["OVERRIDING", "Recipes", "argument_apart", "find_recipes", "resolve_stages"]

OVERRIDING = ("grid", "command line", "call", "environment")
"""Origins of what the user gave for this run, in order of precedence."""


class Recipes(NamedTuple):
    """The recipes of an experiment.

    Args:
        own: of the method under test.
        lent: of the method that trains the backbone instead, if its stages are used.
    """

    own: Recipe | None = None
    lent: Recipe | None = None

    def __bool__(self) -> bool:
        return self != (None, None)

    def options(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return what they set besides the training, for the backbone that is asked for."""
        backbone = value_of(asked.get("backbone"))
        name = None if backbone is None else str(backbone).partition(":")[0]
        found: dict[str, Any] = {}
        if self.own is not None:
            found = layer(dict(self.own.options_on(name)), self.own.origin, trusted=True)
        if self.lent is not None:
            below = layer(dict(self.lent.options_on(name)), self.lent.lent_origin, trusted=True)
            below.pop("method", None)  # belongs to its stages
            found = over(found, below)
        found.pop("training", None)  # belongs to single stages
        return found


def find_recipes(registry: Registry, tree: Mapping[str, Any], name: str, shot: int) -> Recipes:
    """Return the recipes for the methods, data and shot of an experiment.

    The method that trains in all stages lends its recipe, unless that of the method under test
    names it, and so has settings for it.

    Raises:
        OptionError: a recipe that is asked for does not exist, or not for these data.
    """
    dataset = str(value_of(tree["dataset"])).partition(":")[0]

    def recipe_of(request: Any) -> Recipe | None:
        method = str(value_of(request)).partition(":")[0]
        plugin = registry.find("method", method)
        return find_recipe(registry, plugin, name, dataset, shot, _argument_of(registry, request))

    own, lent, trainer = recipe_of(tree["method"]), None, _trainer(tree.get("training"))
    if trainer is not None and not (own and own.names(str(value_of(trainer)).partition(":")[0])):
        lent = recipe_of(trainer)
        if lent is not None and not _lent_stages(lent):
            lent = None
    if own is None and lent is None and "recipe" in tree:
        method = registry.find("method", str(value_of(tree["method"])).partition(":")[0])
        raise unknown_recipe(registry, method.name, name)
    return Recipes(own, lent)


def _trainer(training: Any) -> Any:
    """Return the request for the method that trains in all stages, ``None`` if there is none."""
    if not isinstance(training, Mapping) or "stages" in training:
        return None
    request = training.get("method")
    return None if value_of(request) in (None, "none") else request


def _lent_stages(recipe: Recipe) -> list[Mapping[str, Any]]:
    """Return the stages that can train the backbone of another method.

    A method that is itself trained in no stage lends none.
    """
    if all("method" in stage for stage in recipe.stages):
        return []
    return [
        stage
        for stage in recipe.stages
        if not stage.get("distill") and "backbone" not in stage.get("freeze", ())
    ]


def argument_apart(registry: Registry, request: Any) -> Any:
    """Return the request for a method with the value of ``NAME:VALUE`` as an option."""
    found = dict(request) if isinstance(request, Mapping) else {"name": request}
    given = found.get("name")
    name, colon, value = str(value_of(given) or "").partition(":")
    if not colon or not isinstance(given, Given):
        return request
    argument_of = registry.load("method", name).argument
    if argument_of is None:
        return request  # explained where the method is resolved
    found["name"] = dataclasses.replace(given, value=name)
    found.setdefault(argument_of, dataclasses.replace(given, value=value, instance=None))
    return found


def _argument_of(registry: Registry, request: Any) -> str:
    """Return the value of a method's argument, empty if it has none."""
    name, _, value = str(value_of(request)).partition(":")
    cls = registry.load("method", name)
    if value or cls.argument is None:
        return value
    given = request.get(cls.argument) if isinstance(request, Mapping) else None
    default = parameters(cls)[cls.argument][1]
    found = default if given is None else value_of(given)
    return found if isinstance(found, str) else ""


def resolve_stages(
    registry: Registry, training: Any, recipes: Recipes
) -> tuple[tuple[Stage, ...], tuple[dict[str, Any], ...]]:
    """Return the stages of a training, and the origins of their options.

    Args:
        training: a tree of what the user gives.
        recipes: whose stages lie below, unless the user gives stages.

    Raises:
        OptionError: the tree is malformed, or an option of a stage is wrong.
    """
    if not isinstance(training, Mapping):
        raise OptionError("training is a table of options; write training.epochs=5 or [training]")
    common = {k: v for k, v in training.items() if k != "stages"}
    if (listed := training.get("stages")) is None:
        trees = _stages_below(registry, common, recipes)
    elif isinstance(listed, list) and all(isinstance(own, Mapping) for own in listed):
        # What the user gives for this run holds for every stage, whatever the file sets for one.
        override = {k: v for k, v in common.items() if getattr(v, "origin", "") in OVERRIDING}
        trees = [{**common, **own, **override} for own in listed]
    else:
        raise OptionError("training.stages must be a list of tables: [[training.stages]]")
    for number, tree in enumerate(trees):
        if number and not (listed and "init_from" in listed[number]):
            # Later stages continue with the weights of the stage before them.
            tree.pop("init_from", None)
            tree.pop("init_parts", None)
    made = [_stage(registry, tree) for tree in trees]
    return tuple(stage for stage, _ in made), tuple(origins for _, origins in made)


def _stages_below(
    registry: Registry, common: Mapping[str, Any], recipes: Recipes
) -> list[dict[str, Any]]:
    """Return a tree of options for each stage of the recipes, below what the user gives for all."""
    own, lent = recipes
    if lent is None:
        if own is None:
            return [dict(common)]
        return [{**layer(stage, own.origin, trusted=True), **common} for stage in own.stages]
    settings = layer(dict(lent.options.get("method", {})), lent.lent_origin, trusted=True)
    trainer = over({"method": argument_apart(registry, common["method"])}, {"method": settings})[
        "method"
    ]
    rest = {k: v for k, v in common.items() if k != "method"}
    return [
        {"method": trainer, **layer(stage, lent.lent_origin, trusted=True), **rest}
        for stage in _lent_stages(lent)
    ]


def _stage(registry: Registry, tree: dict[str, Any]) -> tuple[Stage, dict[str, Any]]:
    request = tree.pop("method", None)
    stage, origins = resolve_settings(Stage, tree, "training")
    stage = dataclasses.replace(stage, **packaged_among(stage, tree, "init_from", "teacher"))
    if request is None or str(value_of(request)) == "none":
        return stage, origins
    method = resolve_component(registry, "method", request, where="training.method")
    return dataclasses.replace(stage, method=method), {**origins, "method": method.origins_json()}
