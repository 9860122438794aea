"""What to run: settings and components, each value with its origin."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsframework._files import parse_toml, read_file
from fsframework.components.objects import named
from fsframework.components.registry import Registry
from fsframework.components.resolution import (
    Component,
    Given,
    add_below,
    parameters,
    resolve_component,
    resolve_settings,
)
from fsframework.errors import FsfError, OptionError, argument, close_matches
from fsframework.pipeline.experiment.recipes import EMBEDDED, Recipe, find_recipe, unknown_recipe
from fsframework.pipeline.experiment.settings import Settings
from fsframework.pipeline.experiment.stages import Stage
from fsframework.records import RunRecord
from fsframework.statistics.measures import DEFAULT_STATISTICS
from fsframework.values import TaskSet

__all__ = [
    "OVERRIDING",
    "ROLES",
    "Experiment",
    "check_keys",
    "plain",
    "read_config",
    "resolve_experiment",
    "resolve_part",
    "with_way",
]

_DEFAULTS = {
    "dataset": EMBEDDED,
    "backbone": "conv64f",
    "method": "protonet",
    "sampler": "fewstab",
}
ROLES = tuple(_DEFAULTS)
"""The components that every experiment has."""
OVERRIDING = ("command line", "call", "environment")
"""Origins of what the user gave for this run, in order of precedence."""
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
        given: what the user gave, as JSON values; ``origins``: where every value came from.
        recipe: of the training, if any.
        planned: sentences on how the number of queries was found, if a pilot run found it.
        name: of the run, given by the user; empty for none.
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
    origins: Mapping[str, Any]
    recipe: Recipe | None = None
    planned: tuple[str, ...] = ()
    name: str = ""

    @property
    def roles(self) -> dict[str, Component]:
        """The components by their roles in the run."""
        found = {kind: getattr(self, kind) for kind in ROLES}
        return {**found, **({"detector": self.detector} if self.detector else {})}

    def to_json(self) -> dict[str, Any]:
        """Return every resolved value as JSON values."""
        return {
            **{k: plain(v) for k, v in vars(self.settings).items()},
            "statistics": [c.to_json() for c in self.statistics.values()],
            **{role: component.to_json() for role, component in self.roles.items()},
            "training": self.training_json(),
        }

    def training_json(self) -> list[dict[str, Any]]:
        """Return every option of each stage of training as JSON values."""
        return [{k: plain(v) for k, v in vars(stage).items()} for stage in self.stages]

    def components(self) -> list[Component]:
        """Return every component of the experiment, nested ones included."""
        tops = [*self.roles.values(), *self.statistics.values()]
        tops += [stage.method for stage in self.stages if stage.method]
        return [found for top in tops for found in top.walk()]

    @property
    def learns(self) -> bool:
        """Whether anything is to be trained, judged by the options."""
        return any(
            s.epochs and (s.method or self.method.cls.learns_from != "nothing") for s in self.stages
        )


def plain(value: Any) -> Any:
    """Return a value as JSON values: components as trees, paths as strings."""
    if isinstance(value, Component):
        return value.to_json()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [plain(v) for v in value]
    return value


def read_config(path: Path) -> dict[str, Any]:
    """Read a TOML experiment file into a tree whose leaves are ``Given``.

    Raises:
        OptionError: the file is missing or not TOML; the message gives line and column.
    """
    try:
        raw = parse_toml(read_file(path))
    except FileNotFoundError:
        raise OptionError(f"{argument('config', str(path))}: no such file") from None
    except ValueError as error:
        raise OptionError(f"{argument('config', str(path))}: not TOML ({error})") from None
    except OSError as error:
        raise OptionError(
            f"{argument('config', str(path))}: cannot be read ({error.strerror})"
        ) from None

    def leaves(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: leaves(v) for k, v in value.items()}
        if isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
            return [leaves(v) for v in value]
        return Given(value, path.name)

    tree: dict[str, Any] = leaves(raw)
    return tree


def resolve_experiment(registry: Registry, tree: Mapping[str, Any]) -> Experiment:
    """Resolve a tree of ``Given`` into an experiment.

    Raises:
        OptionError: an unknown key, a wrong type, a value out of range.
        PluginError: a plugin cannot be loaded.
    """
    tree = _with_names(registry, tree)
    given = _values(tree)
    check_keys(tree)
    name = tree.pop("name", None)
    detector_given = tree.pop("detector", None)
    settings, origins = _settings(tree)
    if settings.model is not None:
        _add_model(tree, settings.model)
    sampler = resolve_component(registry, "sampler", _request(tree.get("sampler"), "sampler"))
    shape = _shape(settings, sampler)
    idle = _nothing_to_train(registry, tree, settings)
    if idle:
        tree["training"] = {"epochs": Given(0, "nothing to train")}
    recipe = None if idle else _recipe(registry, tree, settings, shape[1])
    settings = dataclasses.replace(settings, recipe=_name_of(recipe, settings))
    if recipe is not None:
        _add_recipe(tree, recipe)
    if recipe is not None or settings.model is not None:
        # Either may set the size of the images.
        found, origins = _settings({k: v for k, v in tree.items() if k != "recipe"})
        settings = dataclasses.replace(found, recipe=settings.recipe)
    parts = {
        kind: resolve_component(registry, kind, _request(tree.get(kind), kind))
        for kind in ("dataset", "backbone")
    }
    parts["method"] = _method(registry, _request(tree.get("method"), "method"), shape[0])
    parts["sampler"] = sampler
    settings, detector = _detector(registry, settings, tree.get("attributes"), detector_given)
    statistics = _statistics(registry, tree.get("statistics"))
    stages, stage_origins = _stages(registry, tree.get("training", {}), recipe)
    return Experiment(
        settings=settings,
        dataset=parts["dataset"],
        backbone=parts["backbone"],
        method=parts["method"],
        sampler=sampler,
        detector=detector,
        statistics=statistics,
        stages=stages,
        given=given,
        origins={
            **origins,
            **{kind: part.origins_json() for kind, part in parts.items()},
            **({"detector": detector.origins_json()} if detector else {}),
            "training": stage_origins,
        },
        recipe=recipe,
        name="" if name is None else str(name.value),
    )


def check_keys(tree: Mapping[str, Any]) -> None:
    """Check that every key of a tree is known.

    Raises:
        OptionError: a key is unknown; the message gives the closest matches.
    """
    known = [*parameters(Settings), *ROLES, "detector", "statistics", "training", "name"]
    for key in tree:
        if key not in known:
            raise OptionError(
                f"unknown option {key!r}{close_matches(key, known)}; known: {', '.join(known)}"
            )


def _with_names(registry: Registry, tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree with classes and instances registered and named."""
    found = dict(tree)
    for kind in (*ROLES, "detector"):
        if kind in found:
            found[kind] = named(registry, kind, found[kind])
    training = found.get("training")
    if isinstance(training, Mapping) and "method" in training:
        found["training"] = {**training, "method": named(registry, "method", training["method"])}
    if "statistics" in found:
        found["statistics"] = _named_statistics(registry, found["statistics"])
    return found


def _named_statistics(registry: Registry, raw: Any) -> Any:
    """Return a list of requests, one for each statistic."""
    options: Mapping[str, Any] = {}
    if isinstance(raw, Mapping):
        options = {key: value for key, value in raw.items() if key != "name"}
        raw = raw.get("name", Given(list(DEFAULT_STATISTICS), "default"))
    origin = raw.origin if isinstance(raw, Given) else "call"
    values = raw.value if isinstance(raw, Given) else raw
    if isinstance(values, str):
        values = [part.strip() for part in values.split(",") if part.strip()]
    if not isinstance(values, (list, tuple)):
        values = [values]
    found = []
    for value in values:
        one = value if isinstance(value, (Given, Mapping)) else Given(value, origin)
        request = named(registry, "statistic", one)
        called = request.value if isinstance(request, Given) else None
        if str(called) in options:
            request = {"name": request, **options[str(called)]}
        found.append(request)
    unknown = [key for key in options if not any(_name_in(one) == key for one in found)]
    if unknown:
        raise OptionError(
            f"statistics.{unknown[0]}: this statistic is not among those of the run: "
            f"{', '.join(str(_name_in(one)) for one in found)}"
        )
    return found


def _name_in(request: Any) -> Any:
    name = request.get("name") if isinstance(request, Mapping) else request
    return name.value if isinstance(name, Given) else name


def _statistics(registry: Registry, requests: Any) -> dict[str, Component]:
    if requests is None:
        requests = [Given(name, "default") for name in DEFAULT_STATISTICS]
    found: dict[str, Component] = {}
    for request in requests:
        component = resolve_component(registry, "statistic", request)
        if component.name in found:
            raise OptionError(f"the statistic {component.name!r} is given twice")
        found[component.name] = component
    return found


def _settings(tree: Mapping[str, Any]) -> tuple[Settings, dict[str, str]]:
    own = {key: value for key, value in tree.items() if key in parameters(Settings)}
    found: tuple[Settings, dict[str, str]] = resolve_settings(Settings, own, "settings")
    return found


def _detector(
    registry: Registry, settings: Settings, attributes: Any, given: Any
) -> tuple[Settings, Component | None]:
    """Return the detector, or none if attributes are read; the stronger origin decides."""
    if given is None:
        return settings, None
    if settings.attributes is not None:
        stronger = _strength(attributes) - _strength(given)
        if stronger > 0:
            return settings, None
        if stronger == 0:
            raise OptionError(
                f"attributes are either read from {settings.attributes} or detected: leave out "
                f"{argument('attributes')} or {argument('detector')}"
            )
        settings = dataclasses.replace(settings, attributes=None)
    return settings, resolve_component(registry, "detector", given)


def resolve_part(
    registry: Registry, tree: Mapping[str, Any], kind: str
) -> tuple[Settings, Component]:
    """Resolve the settings and one component of a tree, loading no other plugin.

    Raises:
        OptionError: an unknown key, a wrong type, a value out of range.
        PluginError: the plugin cannot be loaded.
    """
    settings, _ = _settings(tree)
    request = named(registry, kind, _request(tree.get(kind), kind))
    return settings, resolve_component(registry, kind, request)


def with_way(experiment: Experiment, sampler: Component) -> Experiment:
    """Return the experiment with another sampler, and its method adapted to the number of ways."""
    method = _following(experiment.method, sampler.options.get("n_way", 5))
    origins = {**experiment.origins, "sampler": sampler.origins_json()}
    return dataclasses.replace(experiment, sampler=sampler, method=method, origins=origins)


def _shape(settings: Settings, sampler: Component) -> tuple[int, int]:
    """Return way and shot of the tasks under test, as far as known before they are drawn."""
    if settings.task_file is not None:
        try:
            tasks = TaskSet.load(settings.task_file)
            return tasks.n_way, tasks.n_shot
        except FsfError:
            pass  # reported when the tasks are read
    return sampler.options.get("n_way", 5), sampler.options.get("n_shot", 5)


def _method(registry: Registry, request: Any, n_way: int) -> Component:
    """Resolve the method; one that needs the number of ways gets that of the tasks."""
    return _following(resolve_component(registry, "method", request), n_way)


def _following(component: Component, n_way: int) -> Component:
    if component.origins.get("n_way") not in ("default", FROM_TASKS):
        return component
    options = {**component.options, "n_way": n_way}
    return dataclasses.replace(
        component, options=options, origins={**component.origins, "n_way": FROM_TASKS}
    )


def _add_model(tree: dict[str, Any], folder: Path) -> None:
    """Take method, backbone, image size and weights from a run."""
    for kind in ("method", "backbone"):
        raw = tree.get(kind)
        if raw is not None and not (isinstance(raw, Mapping) and "name" not in raw):
            raise OptionError(
                f"{argument('model', str(folder))} sets the {kind}; leave out "
                f"{argument(kind)} (options such as {kind}.KEY may be given)"
            )
    record, origin = RunRecord.load(folder), f"run {folder.name}"
    if record.method is None or record.backbone is None:
        raise OptionError(
            f"{argument('model', str(folder))}: holds accuracies measured elsewhere, and no model"
        )
    for kind in ("method", "backbone"):
        add_below(tree, {kind: record.components[kind].to_tree()}, origin)
    if record.seen_size is not None:
        add_below(tree, {"image_size": record.seen_size}, origin)
    training = tree.get("training", {})
    if not isinstance(training, Mapping) or "stages" in training:
        raise OptionError(
            f"{argument('model', str(folder))}: nothing is trained; give no stages of training"
        )
    tree["training"] = {
        **training,
        "epochs": Given(0, origin),
        "init_from": Given(folder, origin),
    }


def _recipe(
    registry: Registry, tree: Mapping[str, Any], settings: Settings, shot: int
) -> Recipe | None:
    if settings.recipe is None or settings.model is not None:
        return None
    names = {}
    for kind in ("method", "dataset"):
        request = _request(tree.get(kind), kind)
        name = request["name"] if isinstance(request, Mapping) else request
        names[kind] = str(name.value if isinstance(name, Given) else name).partition(":")[0]
    plugin = registry.find("method", names["method"])
    recipe = find_recipe(registry, plugin, settings.recipe, names["dataset"], shot)
    if recipe is None and "recipe" in tree:
        raise unknown_recipe(registry, plugin.name, settings.recipe)
    return recipe


def _name_of(recipe: Recipe | None, settings: Settings) -> str | None:
    return None if recipe is None else settings.recipe


def _add_recipe(tree: dict[str, Any], recipe: Recipe) -> None:
    """Add the recipe's options besides those of training, where they are not set otherwise."""
    options = dict(recipe.options)
    options.pop("training", None)
    for kind in ("backbone", "method"):
        given, own = _request(tree.get(kind), kind), options.get(kind)
        name = given["name"] if isinstance(given, Mapping) else given
        named = getattr(name, "origin", "default") != "default"
        if isinstance(own, Mapping) and named and own.get("name", name.value) != name.value:
            del options[kind]  # options of another backbone
    add_below(tree, options, f"recipe {recipe.name}")


def _strength(raw: Any) -> int:
    """Rank the origin of a value; 0 for a file or a default."""
    given = raw.get("name") if isinstance(raw, Mapping) else raw
    origin = getattr(given, "origin", "")
    return len(OVERRIDING) - OVERRIDING.index(origin) if origin in OVERRIDING else 0


def _request(raw: Any, kind: str) -> Any:
    default = Given(_DEFAULTS[kind], "default")
    if raw is None:
        return default
    if isinstance(raw, Mapping):
        return {"name": default, **raw}
    return raw


def _stages(
    registry: Registry, training: Any, recipe: Recipe | None
) -> tuple[tuple[Stage, ...], list[dict[str, Any]]]:
    if not isinstance(training, Mapping):
        raise OptionError("training is a table of options; write training.epochs=5 or [training]")
    common = {k: v for k, v in training.items() if k != "stages"}
    listed = training.get("stages")
    below: list[dict[str, Any]] = [{}]
    if listed is None:
        if recipe is not None:
            below = _stages_of(recipe)
        listed = [{}] * len(below)
    elif not isinstance(listed, list):
        raise OptionError("training.stages must be a list of tables: [[training.stages]]")
    else:
        below = [{}] * len(listed)
    # What the user gives for this run holds for every stage, whatever the file sets for one.
    override = {k: v for k, v in common.items() if getattr(v, "origin", "") in OVERRIDING}
    stages, origins = [], []
    for number, (least, own) in enumerate(zip(below, listed, strict=True)):
        tree = {**least, **common, **own, **override}
        if number and "init_from" not in own:
            # Later stages continue with the weights of the stage before them.
            tree = {k: v for k, v in tree.items() if k not in ("init_from", "init_parts")}
        stage, origin = _stage(registry, tree)
        stages.append(stage)
        origins.append(origin)
    return tuple(stages), origins


def _stage(registry: Registry, tree: dict[str, Any]) -> tuple[Stage, dict[str, Any]]:
    request = tree.pop("method", None)
    stage, origins = resolve_settings(Stage, tree, "training")
    if request is None or (isinstance(request, Given) and str(request.value) == "none"):
        return stage, origins
    method = resolve_component(registry, "method", request, where="training.method")
    return dataclasses.replace(stage, method=method), {**origins, "method": method.origins_json()}


def _stages_of(recipe: Recipe) -> list[dict[str, Any]]:
    """Return a tree of options for each stage of a recipe."""
    origin = f"recipe {recipe.name}"

    def leaves(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {k: leaves(v) for k, v in value.items()}
        return Given(value, origin)

    training = recipe.options.get("training", {})
    common = {k: v for k, v in training.items() if k != "stages"}
    return [leaves({**common, **own}) for own in training.get("stages", [{}])]


def _values(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {k: _values(v) for k, v in tree.items()}
    if isinstance(tree, list):
        return [_values(v) for v in tree]
    return plain(tree.value) if isinstance(tree, Given) else tree


def _nothing_to_train(registry: Registry, tree: Mapping[str, Any], settings: Settings) -> bool:
    """Whether the backbone keeps its weights, the method has none, and no training is requested."""
    asked = "training" in tree or ("recipe" in tree and settings.recipe is not None)
    if asked or settings.model is not None:
        return False
    method = resolve_component(registry, "method", _request(tree.get("method"), "method"))
    if not method.create().weightless:
        return False
    backbone = resolve_component(registry, "backbone", _request(tree.get("backbone"), "backbone"))
    return bool(backbone.create().keeps_weights)
