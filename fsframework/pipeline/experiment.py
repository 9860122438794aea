"""What to run: settings and components, each value with its origin."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsframework.errors import OptionError, close_matches
from fsframework.pipeline.training import Stage
from fsframework.registry import Registry
from fsframework.spec import (
    Component,
    Given,
    parameters,
    resolve_component,
    resolve_settings,
)
from fsframework.values import QueryBatch

__all__ = ["Experiment", "Settings", "read_config", "resolve_experiment"]

_DEFAULTS = {
    "dataset": "planted",
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
        image_size: height and width in pixels; ``none`` takes the data set's or backbone's.
        statistics: names of statistics.
        split: the split the tasks are drawn from.
        task_file: evaluate these tasks rather than draw some with the sampler.
        query_batch: whether a method is shown all queries of a task together (``task``) or those
            of one class at a time (``class``), as FewSTAB's published evaluation does.
        drop_class_words: take from each image the words that name its own class.
        drop_words: words that are no attributes.
        min_count: take out words that fewer images of the split have.
        offline: let detectors make no network call.
    """

    seed: int = 0
    device: str = "auto"
    tasks: int | None = 600
    attributes: str | None = None
    placebo: bool = False
    level: float = 0.95
    image_size: int | None = None
    statistics: tuple[str, ...] = ("acc", "wacc")
    split: str = "test"
    task_file: Path | None = None
    query_batch: QueryBatch = "task"
    drop_class_words: bool = False
    drop_words: tuple[str, ...] = ()
    min_count: int = 1
    offline: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise OptionError(f"seed must be at least 0 and below 2**63, not {self.seed}")
        if self.tasks is not None and self.tasks < 1:
            raise OptionError(f"tasks must be at least 1, not {self.tasks}")
        if not 0 < self.level < 1:
            raise OptionError(f"level must lie between 0 and 1, not {self.level}")
        if self.image_size is not None and self.image_size < 8:
            raise OptionError(f"image_size must be at least 8 pixels, not {self.image_size}")
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
        given: what the user gave, as JSON values; ``origins``: where every value came from.
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
        return [found for top in tops for found in top.walk()]


def _plain(value: Any) -> Any:
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
    tree = dict(tree)
    given = _values(tree)
    requests = {kind: _request(tree.pop(kind, None), kind) for kind in _DEFAULTS}
    detector_given, training = tree.pop("detector", None), tree.pop("training", {})
    known = [*parameters(Settings), *_DEFAULTS, "detector", "training"]
    for key in tree:
        if key not in known:
            raise OptionError(
                f"unknown option {key!r}{close_matches(key, known)}; known: {', '.join(known)}"
            )
    settings, origins = resolve_settings(Settings, tree, "settings")
    parts = {kind: resolve_component(registry, kind, requests[kind]) for kind in _DEFAULTS}
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
    stages, stage_origins = _stages(training)
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
    )


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


def _stages(training: Any) -> tuple[tuple[Stage, ...], list[dict[str, str]]]:
    if not isinstance(training, Mapping):
        raise OptionError("training has options of its own; write training.epochs=5 or [training]")
    common = {k: v for k, v in training.items() if k != "stages"}
    listed = training.get("stages", [{}])
    if not isinstance(listed, list):
        raise OptionError("training.stages must be a list of tables: [[training.stages]]")
    # What is said on the command line holds for every stage, whatever the file says of one.
    override = {k: v for k, v in common.items() if getattr(v, "origin", "") in _OVERRIDING}
    resolved = [
        resolve_settings(Stage, {**common, **own, **override}, "training") for own in listed
    ]
    return tuple(stage for stage, _ in resolved), [origins for _, origins in resolved]


def _values(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {k: _values(v) for k, v in tree.items()}
    if isinstance(tree, list):
        return [_values(v) for v in tree]
    return _plain(tree.value) if isinstance(tree, Given) else tree
