"""What to run: settings and components, each value with its origin."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fsframework.components.registry import Registry
from fsframework.components.resolution import (
    Component,
    Given,
    parameters,
    resolve_component,
    resolve_settings,
)
from fsframework.errors import FsfError, OptionError, close_matches
from fsframework.interfaces.dataset import Decoding
from fsframework.pipeline.cache.images import Broken
from fsframework.pipeline.experiment.recipes import (
    EMBEDDED,
    QUICK,
    Recipe,
    find_recipe,
    unknown_recipe,
)
from fsframework.pipeline.experiment.stages import Precision, Stage
from fsframework.records import RunRecord
from fsframework.statistics.estimators import Interval
from fsframework.values import QueryBatch, TaskSet

__all__ = ["Experiment", "Settings", "read_config", "resolve_experiment", "resolve_part"]

_DEFAULTS = {
    "dataset": EMBEDDED,
    "backbone": "conv64f",
    "method": "protonet",
    "sampler": "fewstab",
}
_BASELINE = "random"
_OVERRIDING = ("command line", "environment")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What concerns a run as a whole.

    Args:
        seed: of tasks, initial weights, training and the placebo.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        tasks: tasks of each kind; ``none`` as many as there are, for samplers that end.
        attributes: ``FILE.csv``, ``FILE.parquet`` or ``column:NAME``; ``none`` takes the data
            set's own words.
        placebo: permute the images of each class, anew for every task.
        level: of the intervals.
        interval: how intervals are made: ``student-t``; ``percentile`` or ``bca``, bootstraps over
            tasks; ``image-level`` or ``class-level``, which speak of new images, or new classes,
            even where tasks share theirs. See ``pipeline.intervals``.
        image_size: height and width in pixels; ``none`` takes the data set's or backbone's.
        precision: of the backbone when images are embedded, and of all that a method computes that
            adapts its backbone: ``fp32``, or products and convolutions in ``bf16`` or ``fp16``.
            That of training is an option of its stages.
        decoding: of image files: ``exact``, or ``scaled`` to skip detail that the size cannot
            show, which is faster and changes pixels a little.
        broken: what an image is that cannot be decoded: ``fatal``, or ``skip`` to leave it out.
        statistics: names of statistics.
        split: the split the tasks are drawn from.
        task_file: evaluate these tasks rather than draw some with the sampler.
        query_batch: whether a method is shown all queries of a task together (``task``) or those
            of one class at a time (``class``), as FewSTAB's published evaluation does.
        drop_class_words: take from each image the words that name its own class.
        drop_words: words that are no attributes.
        min_count: take out words that fewer images of the split have.
        offline: let detectors make no network call.
        recipe: name of the recipe that says how the method is trained, ``NAME`` or
            ``NAME:DATASET``; ``none`` for the defaults of training. What is given elsewhere is
            stronger.
        model: a run folder: take its method and backbone with their options, its image size and
            its weights, and train nothing.
        tensorboard: also write the curve of the training for TensorBoard, into the run folder.
        queries: ``given``, or ``auto``: the number that a pilot run finds best for tasks without
            replacement. See ``pipeline.pilot``.
        pilot_tasks: tasks of that pilot.
    """

    seed: int = 0
    device: str = "auto"
    tasks: int | None = 600
    attributes: str | None = None
    placebo: bool = False
    level: float = 0.95
    interval: Interval = "student-t"
    image_size: int | None = None
    precision: Precision = "fp32"
    decoding: Decoding = "exact"
    broken: Broken = "fatal"
    statistics: tuple[str, ...] = ("acc", "wacc")
    split: str = "test"
    task_file: Path | None = None
    query_batch: QueryBatch = "task"
    drop_class_words: bool = False
    drop_words: tuple[str, ...] = ()
    min_count: int = 1
    offline: bool = False
    recipe: str | None = QUICK
    model: Path | None = None
    tensorboard: bool = False
    queries: Literal["given", "auto"] = "given"
    pilot_tasks: int = 200

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise OptionError(f"seed must be at least 0 and below 2**63, not {self.seed}")
        if self.tasks is not None and self.tasks < 1:
            raise OptionError(f"tasks must be at least 1, not {self.tasks}")
        if not 0 < self.level < 1:
            raise OptionError(f"level must lie between 0 and 1, not {self.level}")
        if self.image_size is not None and self.image_size < 8:
            raise OptionError(f"image_size must be at least 8 pixels, not {self.image_size}")
        if self.pilot_tasks < 3:
            raise OptionError(f"pilot_tasks must be at least 3, not {self.pilot_tasks}")
        if self.min_count < 1:
            raise OptionError(f"min_count must be at least 1, not {self.min_count}")


@dataclass(frozen=True)
class Experiment:
    """A resolved experiment.

    Args:
        sampler: of the tasks under test; ``baseline`` draws random tasks of the same shape,
            ``None`` where the sampler ties no attribute to a class.
        detector: of the attributes, ``None`` where they are read.
        stages: of the training.
        recipe: that said how to train, if any.
        given: what the user gave, as JSON values; ``origins``: where every value came from.
        planned: how the number of queries was found, where a pilot run found it.
    """

    settings: Settings
    dataset: Component
    backbone: Component
    method: Component
    sampler: Component
    baseline: Component | None
    detector: Component | None
    statistics: Mapping[str, Component]
    stages: tuple[Stage, ...]
    given: Mapping[str, Any]
    origins: Mapping[str, Any]
    recipe: Recipe | None = None
    planned: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return every resolved value as JSON values."""
        return {
            **{k: _plain(v) for k, v in vars(self.settings).items()},
            "dataset": self.dataset.to_json(),
            "backbone": self.backbone.to_json(),
            "method": self.method.to_json(),
            "sampler": self.sampler.to_json(),
            **({"detector": self.detector.to_json()} if self.detector else {}),
            "training": [{k: _plain(v) for k, v in vars(s).items()} for s in self.stages],
        }

    def components(self) -> list[Component]:
        """Return every component of the experiment, nested ones included."""
        tops = [self.dataset, self.backbone, self.method, self.sampler]
        tops += [c for c in (self.baseline, self.detector) if c]
        tops += list(self.statistics.values())
        tops += [stage.method for stage in self.stages if stage.method]
        return [found for top in tops for found in top.walk()]


def _plain(value: Any) -> Any:
    if isinstance(value, Component):
        return value.to_json()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value


def read_config(path: Path) -> dict[str, Any]:
    """Read a TOML experiment file into a tree whose leaves are ``Given``.

    Raises:
        OptionError: the file is missing or not TOML; the message gives line and column.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OptionError(f"--config {path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"--config {path}: not TOML ({error})") from None
    except OSError as error:
        raise OptionError(f"--config {path}: {error.strerror}") from None

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
    given, tree = _values(tree), dict(tree)
    known = [*parameters(Settings), *_DEFAULTS, "detector", "training"]
    for key in tree:
        if key not in known:
            raise OptionError(
                f"unknown option {key!r}{close_matches(key, known)}; known: {', '.join(known)}"
            )
    detector_given = tree.pop("detector", None)
    settings, origins = resolve_settings(
        Settings, {k: v for k, v in tree.items() if k in parameters(Settings)}, "settings"
    )
    if settings.model is not None:
        _add_model(tree, settings.model)
    sampler = resolve_component(registry, "sampler", _request(tree.get("sampler"), "sampler"))
    shape = _shape(settings, sampler)
    recipe = _recipe(registry, tree, settings, shape[1])
    settings = dataclasses.replace(settings, recipe=_name_of(recipe, settings))
    if recipe is not None:
        _add_recipe(tree, recipe)
    if recipe is not None or settings.model is not None:
        # Either may say the size of the images.
        sized = {k: v for k, v in tree.items() if k in parameters(Settings) and k != "recipe"}
        found, origins = resolve_settings(Settings, sized, "settings")
        settings = dataclasses.replace(found, recipe=settings.recipe)
    parts = {
        kind: resolve_component(registry, kind, _request(tree.get(kind), kind))
        for kind in ("dataset", "backbone")
    }
    parts["method"] = _method(registry, _request(tree.get("method"), "method"), shape[0])
    parts["sampler"] = sampler
    detector = None
    if detector_given is not None:
        stronger = _strength(tree.get("attributes")) - _strength(detector_given)
        if settings.attributes is not None and stronger > 0:
            detector_given = None
        elif settings.attributes is not None and stronger < 0:
            settings = dataclasses.replace(settings, attributes=None)
        elif settings.attributes is not None:
            raise OptionError(
                f"attributes are read from {settings.attributes} or detected, not both: leave out "
                "--attributes or --detector"
            )
    if detector_given is not None:
        detector = resolve_component(registry, "detector", detector_given)
    statistics = {
        name: resolve_component(registry, "statistic", name) for name in settings.statistics
    }
    stages, stage_origins = _stages(registry, tree.get("training", {}), recipe)
    origins_all = {
        **origins,
        **{kind: part.origins_json() for kind, part in parts.items()},
        **({"detector": detector.origins_json()} if detector else {}),
        "training": stage_origins,
    }
    return Experiment(
        settings,
        parts["dataset"],
        parts["backbone"],
        parts["method"],
        parts["sampler"],
        _baseline(registry, parts["sampler"]),
        detector,
        statistics,
        stages,
        given,
        origins_all,
        recipe,
    )


def resolve_part(
    registry: Registry, tree: Mapping[str, Any], kind: str
) -> tuple[Settings, Component]:
    """Resolve the settings and one component of a tree, loading no other plugin.

    Raises:
        OptionError: an unknown key, a wrong type, a value out of range.
        PluginError: the plugin cannot be loaded.
    """
    own = {key: value for key, value in tree.items() if key in parameters(Settings)}
    settings, _ = resolve_settings(Settings, own, "settings")
    return settings, resolve_component(registry, kind, _request(tree.get(kind), kind))


def _shape(settings: Settings, sampler: Component) -> tuple[int, int]:
    """Return way and shot of the tasks under test, as far as can be told before they are there."""
    if settings.task_file is not None:
        try:
            tasks = TaskSet.load(settings.task_file)
            return tasks.n_way, tasks.n_shot
        except FsfError:
            pass  # told when the tasks are read
    return sampler.options.get("n_way", 5), sampler.options.get("n_shot", 5)


def _method(registry: Registry, request: Any, n_way: int) -> Component:
    """Resolve the method; one made for a number of ways is made for that of the tasks."""
    component = resolve_component(registry, "method", request)
    if component.origins.get("n_way") != "default":
        return component
    options = {**component.options, "n_way": n_way}
    return dataclasses.replace(
        component, options=options, origins={**component.origins, "n_way": "the tasks"}
    )


def _add_model(tree: dict[str, Any], folder: Path) -> None:
    """Let a run say method, backbone, image size and weights."""
    for kind in ("method", "backbone"):
        raw = tree.get(kind)
        if raw is not None and not (isinstance(raw, Mapping) and "name" not in raw):
            raise OptionError(
                f"--model {folder} says which {kind} to use; leave out --{kind} (options of it may "
                f"be given, as in -o {kind}.KEY=VALUE)"
            )
    record, origin = RunRecord.load(folder), f"run {folder.name}"
    if "method" not in record.resolved:
        raise OptionError(f"--model {folder}: holds accuracies made elsewhere, and no model")
    for kind in ("method", "backbone"):
        _add_below(tree, {kind: record.resolved[kind]}, origin)
    if record.seen_size is not None:
        _add_below(tree, {"image_size": record.seen_size}, origin)
    training = tree.get("training", {})
    if not isinstance(training, Mapping) or "stages" in training:
        raise OptionError(f"--model {folder}: trains nothing; give no stages of training beside it")
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
    """Add what the recipe says beside the training, where nothing else says it."""
    options = dict(recipe.options)
    options.pop("training", None)
    for kind in ("backbone", "method"):
        given, own = _request(tree.get(kind), kind), options.get(kind)
        name = given["name"] if isinstance(given, Mapping) else given
        named = getattr(name, "origin", "default") != "default"
        if isinstance(own, Mapping) and named and own.get("name", name.value) != name.value:
            del options[kind]  # options of another backbone
    _add_below(tree, options, f"recipe {recipe.name}")


def _add_below(tree: dict[str, Any], options: Mapping[str, Any], origin: str) -> None:
    """Add options to a tree, those that are there being the stronger."""
    for key, value in options.items():
        current = tree.get(key)
        if isinstance(value, Mapping):
            inner = {"name": current} if isinstance(current, Given) else dict(current or {})
            _add_below(inner, value, origin)
            tree[key] = inner
        elif current is None:
            tree[key] = Given(value, origin)


def _strength(raw: Any) -> int:
    """Rank where a value comes from: command line, environment, file."""
    given = raw.get("name") if isinstance(raw, Mapping) else raw
    origin = getattr(given, "origin", "")
    return len(_OVERRIDING) - _OVERRIDING.index(origin) if origin in _OVERRIDING else 0


def _request(raw: Any, kind: str) -> Any:
    default = Given(_DEFAULTS[kind], "default")
    if raw is None:
        return default
    if isinstance(raw, Mapping):
        return {"name": default, **raw}
    return raw


def _baseline(registry: Registry, sampler: Component) -> Component | None:
    drawing = sampler.create()
    if not drawing.needs_attributes:
        return None
    shape = {name: getattr(drawing, name) for name in ("n_way", "n_shot", "n_query")}
    return resolve_component(registry, "sampler", {"name": _BASELINE, **shape})


def _stages(
    registry: Registry, training: Any, recipe: Recipe | None
) -> tuple[tuple[Stage, ...], list[dict[str, Any]]]:
    if not isinstance(training, Mapping):
        raise OptionError("training has options of its own; write training.epochs=5 or [training]")
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
    # What is said on the command line holds for every stage, whatever the file says of one.
    override = {k: v for k, v in common.items() if getattr(v, "origin", "") in _OVERRIDING}
    stages, origins = [], []
    for number, (least, own) in enumerate(zip(below, listed, strict=True)):
        tree = {**least, **common, **own, **override}
        if number and "init_from" not in own:
            # Later stages go on with what the one before them left.
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
    return _plain(tree.value) if isinstance(tree, Given) else tree
