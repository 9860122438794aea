"""What to run: settings and components, each value with its origin."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import Any

import msgspec

from fsframework.components.conversion import convert, parameters
from fsframework.components.entry_points import packaged_among
from fsframework.components.objects import is_known, named
from fsframework.components.options import (
    TRUSTED_ORIGINS,
    Given,
    layer,
    over,
    value_of,
    with_trust,
)
from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, plain, resolve_component, resolve_settings
from fsframework.engine.lineage import size_of
from fsframework.engine.names import check_choice
from fsframework.engine.options import ARGUMENTS, GROUPED, SEEDS, Settings, check_keys, written_out
from fsframework.engine.recipes import Recipe
from fsframework.engine.stages import Stage
from fsframework.engine.staging import Recipes, argument_apart, find_recipes, resolve_stages
from fsframework.errors import OptionError, PluginError, argument
from fsframework.records import RunRecord, read_arms
from fsframework.statistics.measures import DEFAULT_STATISTICS

__all__ = ["ROLES", "Experiment", "resolve_experiment", "with_way"]

ROLES = ("dataset", "backbone", "method", "sampler")
"""The components that every experiment has."""
_DEFAULTS: dict[str, Any] = {
    **{role: Given(ARGUMENTS[role].default, "default") for role in ROLES},
    "statistics": [Given(name, "default") for name in DEFAULT_STATISTICS],
}
FROM_TASKS = "the tasks"
"""Origin of a method's number of ways that follows the tasks."""


@dataclass(frozen=True)
class Experiment:
    """A resolved experiment.

    Args:
        settings: options of the run as a whole.
        dataset: of the images; ``backbone``, ``method`` and ``sampler`` (of the tasks under test)
            likewise.
        detector: of the attributes, ``None`` if they are read.
        statistics: by name.
        stages: of the training.
        given: what the user gave, as JSON values.
        settings_origins: where the value of every setting came from.
        stage_origins: where every option of each stage came from.
        recipe: of the method, if any.
        lent_recipe: of the method that trains the backbone instead, if its stages are used.
        name: of the run, given by the user; empty for none.
        source: the run whose model is used, if any.
    """

    settings: Settings
    dataset: Component
    backbone: Component
    method: Component
    sampler: Component
    detector: Component | None
    statistics: Mapping[str, Component]
    stages: tuple[Stage, ...]
    given: Mapping[str, Any]
    settings_origins: Mapping[str, str]
    stage_origins: tuple[Mapping[str, Any], ...]
    recipe: Recipe | None = None
    lent_recipe: Recipe | None = None
    name: str = ""
    source: RunRecord | None = None

    @property
    def roles(self) -> dict[str, Component]:
        """The components by their roles in the run."""
        found = {kind: getattr(self, kind) for kind in ROLES}
        return {**found, **({"detector": self.detector} if self.detector else {})}

    @functools.cached_property
    def options(self) -> Mapping[str, Any]:
        """Every resolved value as JSON values, in the shape of a configuration file."""
        return {
            **plain(vars(self.settings)),
            "statistics": [c.to_json() for c in self.statistics.values()],
            **{role: component.to_json() for role, component in self.roles.items()},
            "training": [plain(vars(stage)) for stage in self.stages],
        }

    @property
    def origins(self) -> Mapping[str, Any]:
        """Where every value of ``options`` came from, in the same shape."""
        parts = {role: part.origins_json() for role, part in self.roles.items()}
        return {**self.settings_origins, **parts, "training": list(self.stage_origins)}

    def components(self) -> list[Component]:
        """Return every component of the experiment, nested ones included."""
        tops = [*self.roles.values(), *self.statistics.values()]
        tops += [stage.method for stage in self.stages if stage.method]
        return [found for top in tops for found in top.walk()]

    def recipe_described(self, shape: tuple[int, int]) -> str:
        """Return the recipe of the training and what to expect in one sentence, if there is one.

        Args:
            shape: way and shot of the tasks under test.
        """
        if self.lent_recipe is not None:
            return self.lent_recipe.lent(self.method.called)
        if (recipe := self.recipe) is None:
            return ""
        sets = [*self.stage_origins, *([] if recipe.datasets else [self.dataset.origins])]
        kept = ("default", recipe.origin)
        changed = any(
            origin not in kept
            for origins in sets
            for option, origin in origins.items()
            if option != "method"
        )
        others = [stage.method.name for stage in self.stages if stage.method]
        if changed or not all(map(recipe.names, others)):
            recipe = msgspec.structs.replace(recipe, accuracy=None, expected=())
        return recipe.described(self.dataset.name, self.backbone.name, shape)

    @property
    def reducible(self) -> list[set[str]]:
        """For each stage, the options that neither the user nor a recipe the user named sets."""
        open_origins = ["default"]
        if "recipe" not in self.given:
            open_origins += [self.recipe.origin] if self.recipe else []
            open_origins += [self.lent_recipe.lent_origin] if self.lent_recipe else []
        return [
            {name for name, origin in origins.items() if origin in open_origins}
            for origins in self.stage_origins
        ]

    @functools.cached_property
    def learns(self) -> bool:
        """Whether anything is to be trained, judged by the options."""
        return any(stage.epochs for stage in self.working_stages)

    @functools.cached_property
    def learns_words(self) -> bool:
        """Whether a method that is trained needs the words of the training images."""
        training = (stage for stage in self.working_stages if stage.epochs)
        return any((stage.method or self.method).create().needs_words for stage in training)

    @functools.cached_property
    def working_stages(self) -> tuple[Stage, ...]:
        """The stages that train something or load weights; the others change no result."""
        own = self.method.create().learns_from != "nothing"
        return tuple(s for s in self.stages if s.init_from or (s.epochs and (s.method or own)))


def resolve_experiment(registry: Registry, tree: Mapping[str, Any]) -> Experiment:
    """Resolve a tree of ``Given`` into an experiment.

    The tree lies over the model of another run, if one is given; below are the recipe of the
    method, that of a method that trains the backbone instead, and the defaults.

    Raises:
        OptionError: an unknown key, a wrong type, a value out of range.
        PluginError: a plugin cannot be loaded.
    """
    asked = _with_names(registry, tree)
    allowed = asked.get("allow_external")
    trusted = False
    # A file that allows itself is told that it has no such option.
    if isinstance(allowed, Given) and allowed.origin in TRUSTED_ORIGINS:
        trusted = convert(asked.pop("allow_external").value, bool, argument("allow_external"))
        asked = with_trust(asked) if trusted else asked
    given = plain(asked)
    check_keys(asked)
    settings, _ = _settings(asked)
    source = None
    if settings.model is not None:
        source = RunRecord.load(settings.model)
        asked = _with_model(registry, asked, settings.model, source, trusted=trusted)
    whole = over(asked, _DEFAULTS)
    sampler = resolve_component(registry, "sampler", whole["sampler"])
    n_way, n_shot = _shape(settings, sampler)
    recipes = Recipes()
    if settings.recipe is not None and settings.model is None:
        recipes = find_recipes(registry, whole, settings.recipe, n_shot)
    apart = asked
    if recipes and "method" in asked:
        # A recipe may give an option that the method needs; what NAME:VALUE sets takes precedence.
        apart = {**asked, "method": argument_apart(registry, asked["method"])}
    with_recipe = functools.reduce(over, (apart, recipes.options(asked), _DEFAULTS))
    stages, stage_origins = resolve_stages(registry, whole.get("training", {}), recipes)
    loads = any(stage.init_from for stage in stages)
    if not loads and _nothing_to_train(registry, with_recipe):
        whole = {**whole, "backbone": with_recipe["backbone"]}
        recipes = recipes if "recipe" in asked else Recipes()
        untrained = {"epochs": Given(0, "nothing to train")}
        stages, stage_origins = resolve_stages(registry, untrained, Recipes())
    if recipes:
        whole = with_recipe
    settings, origins = _settings(whole)
    followed = recipes and any(stage.epochs for stage in stages)
    settings = dataclasses.replace(settings, recipe=settings.recipe if followed else None)
    start = stages[0].init_from if stages else None
    if settings.image_size is None and start is not None and (size := size_of(start)) is not None:
        settings = dataclasses.replace(settings, image_size=size)
        origins["image_size"] = start.name
    return Experiment(
        settings=settings,
        dataset=resolve_component(registry, "dataset", whole["dataset"]),
        backbone=resolve_component(registry, "backbone", whole["backbone"]),
        method=_following(resolve_component(registry, "method", whole["method"]), n_way),
        sampler=sampler,
        detector=_detector(registry, settings, whole),
        statistics=_statistics(registry, whole["statistics"]),
        stages=stages,
        given=given,
        settings_origins=origins,
        stage_origins=stage_origins,
        recipe=recipes.own,
        lent_recipe=recipes.lent,
        name=str(whole["name"].value) if "name" in whole else "",
        source=source,
    )


def _with_names(
    registry: Registry, tree: Mapping[str, Any], groups: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the tree with classes and instances registered and named, and groups written out.

    Raises:
        OptionError: a group has the name of a plugin, or is like itself.
    """
    found = dict(tree)
    if groups is None:
        groups = found.pop("like", {})
        for kind, own in groups.items():
            for name in {*own} & {*registry.names(kind)}:
                raise OptionError(f"[{kind}.{name}]: {name!r} is a plugin; rename this group")
    for kind in GROUPED:
        if kind in found:
            request = written_out(found[kind], groups.get(kind, {}))
            found[kind] = named(registry, kind, request)
    if isinstance(training := found.get("training"), Mapping):
        found["training"] = _with_names(registry, training, groups)
    if isinstance(stages := found.get("stages"), list):  # of a training
        found["stages"] = [_with_names(registry, stage, groups) for stage in stages]
    if "statistics" in found:
        found["statistics"] = _named_statistics(registry, found["statistics"])
    return found


def _named_statistics(registry: Registry, raw: Any) -> list[Any]:
    """Return a list of requests, one for each statistic."""
    options = dict(raw) if isinstance(raw, Mapping) else {"name": raw}
    given = options.pop("name", Given(DEFAULT_STATISTICS, "default"))
    given = given if isinstance(given, Given) else Given(given, "call")
    values = given.value
    found = []
    for value in values if isinstance(values, (list, tuple)) else [values]:
        own_value = value if isinstance(value, Given) else dataclasses.replace(given, value=value)
        request = named(registry, "statistic", own_value)
        name = value_of(request)
        own = options.pop(name, {}) if isinstance(request, Given) else {}
        if not isinstance(own, Mapping):
            raise OptionError(
                f"statistics.{name} is a statistic, not an option; give an option of it as "
                f"statistics.{name}.OPTION, or choose statistics with {argument('statistics')}"
            )
        found.append({"name": request, **own} if own else request)
    if options:
        raise OptionError(
            f"statistics.{next(iter(options))}: this statistic is not among those of the run: "
            f"{', '.join(str(value_of(one)) for one in found)}"
        )
    return found


def _statistics(registry: Registry, requests: Sequence[Any]) -> dict[str, Component]:
    found: dict[str, Component] = {}
    for request in requests:
        component = resolve_component(registry, "statistic", request)
        if component.name in found:
            raise OptionError(f"the statistic {component.name!r} is given twice")
        found[component.name] = component
    return found


def _settings(tree: Mapping[str, Any]) -> tuple[Settings, dict[str, str]]:
    own = {key: value for key, value in tree.items() if key in parameters(Settings)}
    if "seed" in tree:
        own = {**dict.fromkeys(SEEDS, tree["seed"]), **own}
    found, origins = resolve_settings(Settings, own, "settings")
    check_choice(found.class_names)
    return dataclasses.replace(found, **packaged_among(found, own, "model", "task_file")), origins


def _detector(registry: Registry, settings: Settings, tree: Mapping[str, Any]) -> Component | None:
    """Return the detector, ``None`` if attributes are read."""
    if "detector" not in tree:
        return None
    if settings.attributes is not None:
        raise OptionError(
            f"attributes are either read from {settings.attributes} or detected: leave out "
            f"{argument('attributes')} or {argument('detector')}"
        )
    return resolve_component(registry, "detector", tree["detector"])


def with_way(experiment: Experiment, sampler: Component) -> Experiment:
    """Return the experiment with another sampler, and its method adapted to the number of ways."""
    method = _following(experiment.method, sampler.options.get("n_way", 5))
    return dataclasses.replace(experiment, sampler=sampler, method=method)


def _following(component: Component, n_way: int) -> Component:
    """Return a method that needs the number of ways with that of the tasks, unless it is given.

    The same holds for the methods nested in it.
    """
    nested = {
        key: _following(value, n_way)
        for key, value in component.options.items()
        if isinstance(value, Component) and value.kind == "method"
    }
    component = dataclasses.replace(component, options={**component.options, **nested})
    if component.origins.get("n_way") not in ("default", FROM_TASKS):
        return component
    return component.with_options({"n_way": n_way}, FROM_TASKS)


def _shape(settings: Settings, sampler: Component) -> tuple[int, int]:
    """Return way and shot of the tasks under test, as far as known before they are drawn."""
    if settings.task_file is not None:
        tasks = read_arms(settings.task_file).tested
        return tasks.n_way, tasks.n_shot
    return sampler.options.get("n_way", 5), sampler.options.get("n_shot", 5)


def _with_model(
    registry: Registry, tree: Mapping[str, Any], folder: Path, record: RunRecord, *, trusted: bool
) -> dict[str, Any]:
    """Return the tree with method, backbone, image size and weights of a run.

    Args:
        trusted: whether the record may set options that reach out of the machine.
    """
    called = argument("model", str(folder))
    for kind in ("method", "backbone"):
        if value_of(tree.get(kind)) is not None:
            raise OptionError(
                f"{called} sets the {kind}; leave out {argument(kind)} (options such as "
                f"{kind}.KEY may be given)"
            )
    origin = f"run {folder.name}"
    below = record.model_tree(called)
    for kind, part in below.items():
        if not is_known(registry, kind, part["name"]):
            code = " ".join(map(str, sorted((folder / "code").glob("*.py"))))
            raise PluginError(
                f"{called}: its {kind} {part['name']!r} is not installed; "
                + (
                    f"give the file of its class ({code}) with --plugin, or plugins= in Python"
                    if code
                    else "a module of PyTorch is given again in Python: "
                    "fsframework.model(..., backbone=module)"
                )
            )
    training = tree.get("training", {})
    if not isinstance(training, Mapping) or "stages" in training:
        raise OptionError(f"{called}: nothing is trained; give no stages of training")
    if record.seen_size is not None:
        below["image_size"] = record.seen_size
    tree = dict(tree)
    if (seed := record.training_seed) is not None:
        own = tree.pop("training_seed", None)
        if own is not None and str(own.value) != str(seed):
            raise OptionError(
                f"{called}: nothing is trained, and the model was trained with the seed {seed}; "
                f"leave out {argument('training_seed')}"
            )
        below["training_seed"] = seed
    weights = {"epochs": Given(0, origin), "init_from": Given(folder, origin)}
    below = layer(below, origin, trusted=trusted)
    return over({**tree, "training": {**training, **weights}}, below)


def _nothing_to_train(registry: Registry, whole: Mapping[str, Any]) -> bool:
    """Whether the method has no weights of its own, and the backbone keeps those it has.

    A method that still lacks options that it needs, which a recipe may give, is taken to have some.
    """
    request = whole["method"]
    cls = registry.load("method", str(value_of(request)).partition(":")[0])
    given = {cls.argument, *(request if isinstance(request, Mapping) else ())}
    needed = {name for name, (_, default) in parameters(cls).items() if default is Parameter.empty}
    if needed - given:
        return False
    if not resolve_component(registry, "method", whole["method"]).create().weightless:
        return False
    return bool(resolve_component(registry, "backbone", whole["backbone"]).create().keeps_weights)
