"""Recipes: how a method is trained on a data set, where the numbers come from, what to expect.

A package or subpackage with methods may have a file ``recipes.toml`` next to its
``__init__.py``::

    [[recipe]]
    name = "fewstab"                 # given with --recipe
    method = "anil"
    datasets = ["miniImageNet"]      # left out: any
    shot = 1                         # left out: any
    source = "Zheng, Ye & Zhang 2024, Table S2"
    accuracy = 51.75                 # %, expected; left out: not known
    accuracy_on = "5-way 1-shot tasks of the test classes (Table S7)"
    verified = 2026-11-21            # left out: not verified here

    [recipe.set.training]            # options, as in an experiment file
    epochs = 100

A recipe may cover several methods, each as ``NAME`` or ``NAME:VALUE``, several backbones, and the
accuracies of several kinds of tasks::

    [[recipe]]
    name = "metacoco"
    method = ["ft:relationnet", "ft:gnn"]
    source = "Zhang et al. 2024, Table 3"
    accuracy_on = "random tasks of the test classes, as printed"
    expected = [
      {method = "ft:gnn", backbone = "resnet10", way = 5, shot = 1, accuracy = 47.30},
    ]

    [recipe.backbones.conv64f]       # options of a backbone if it is used; also left out
    last_pool = false

Options of training that several recipes of a file share have a name there, which the training of a
recipe, or a stage of it, refers to by ``like``; what stands beside ``like`` takes precedence::

    [training.pretraining]
    epochs = 100

    [[recipe.set.training.stages]]
    like = "pretraining"
    learning_rate = 0.1

Beside every recipe of a name in a file stands another one, with other options in all stages::

    [variants.quick.plateau]
    epochs = 1000
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from fsframework._reading import read_toml
from fsframework.components.installed import Plugin
from fsframework.components.package_files import package_file
from fsframework.components.registry import Registry
from fsframework.engine.options import EMBEDDED, QUICK
from fsframework.errors import OptionError, PluginError, argument, close_matches

__all__ = [
    "FILE_NAME",
    "Expected",
    "Recipe",
    "find_recipe",
    "list_recipes",
    "unknown_recipe",
]

FILE_NAME = "recipes.toml"


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An accuracy that a recipe is expected to reach.

    Args:
        backbone: its name.
        way: of the tasks; ``shot`` likewise.
        accuracy: in percent.
        method: as the recipe spells it; empty for its first.
    """

    backbone: str
    way: int
    shot: int
    accuracy: float
    method: str = ""


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What a file and the framework say of a recipe alike; see ``Recipe``."""

    name: str
    source: str
    datasets: tuple[str, ...] = ()
    shot: int | None = None
    backbones: dict[str, dict[str, Any]] = {}
    accuracy: float | None = None
    accuracy_on: str = ""
    expected: tuple[Expected, ...] = ()
    verified: datetime.date | None = None


class _Table(_Known, frozen=True, forbid_unknown_fields=True):
    """A table ``[[recipe]]`` of a file."""

    method: str | list[str]
    set: dict[str, Any]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """A file of recipes."""

    recipe: list[_Table]
    training: dict[str, dict[str, Any]] = {}
    variants: dict[str, dict[str, dict[str, Any]]] = {}


class Recipe(_Known, frozen=True):
    """How a method is trained.

    Args:
        value: of the method's argument, for ``NAME:VALUE``; empty for any.
        datasets: names of data sets it is for; empty for any. ``shot`` likewise, ``None`` for any.
        source: where its numbers come from.
        options: a tree of options as in an experiment file.
        backbones: options of backbones other than that of ``options``, by their names.
        accuracy: expected, in percent, on the tasks ``accuracy_on``; ``None`` if not known.
        expected: the same for single backbones and kinds of tasks, instead of ``accuracy``.
        verified: when it was last found to reach that accuracy here; ``None`` for never.
    """

    method: str
    options: Mapping[str, Any]
    value: str = ""

    @property
    def spelt_method(self) -> str:
        """The method, as ``NAME`` or ``NAME:VALUE``."""
        return f"{self.method}:{self.value}" if self.value else self.method

    @property
    def origin(self) -> str:
        """Where options come from that it sets for a run of its method."""
        return f"recipe {self.name}"

    @property
    def lent_origin(self) -> str:
        """Where options come from that it sets for a run of another method."""
        return f"recipe {self.name} of {self.spelt_method}"

    @property
    def stages(self) -> tuple[Mapping[str, Any], ...]:
        """The options of each stage of the training."""
        training = self.options.get("training", {})
        common = {key: value for key, value in training.items() if key != "stages"}
        return tuple({**common, **own} for own in training.get("stages", [{}]))

    def varied(self, name: str, own: Mapping[str, Any]) -> Recipe:
        """Return another recipe, with options of training over those of each stage."""
        options = {**self.options, "training": {"stages": [{**one, **own} for one in self.stages]}}
        return replace(self, name=name, options=options, accuracy=None, expected=(), verified=None)

    def names(self, method: str) -> bool:
        """Return whether a stage is trained by another method, of this name."""
        asked = [stage.get("method") for stage in self.stages]
        found = [one.get("name") if isinstance(one, Mapping) else one for one in asked]
        return method in [str(name).partition(":")[0] for name in found]

    @property
    def accuracies(self) -> tuple[float, ...]:
        """The expected accuracies in percent, ascending; empty if none is known."""
        known = [one.accuracy for one in self.expected]
        return tuple(sorted(known if self.accuracy is None else [self.accuracy, *known]))

    def options_on(self, backbone: str | None) -> Mapping[str, Any]:
        """Return its options for a backbone, or for its own if ``None``.

        >>> recipe = Recipe(
        ...     name="a", method="b", source="c", options={},
        ...     backbones={"conv64f": {"last_pool": False}},
        ... )
        >>> recipe.options_on("conv64f"), recipe.options_on("resnet12")
        ({'backbone': {'name': 'conv64f', 'last_pool': False}}, {})
        """
        if backbone is None or backbone not in self.backbones:
            return self.options
        return {**self.options, "backbone": {"name": backbone, **self.backbones[backbone]}}

    def described(
        self, dataset: str | None = None, backbone: str = "", shape: tuple[int, int] | None = None
    ) -> str:
        """Return source and expectation in one sentence.

        Args:
            dataset: what it is used on, if it is; the accuracy of a quick recipe is known for
                the embedded data set only.
            backbone: what it is used with.
            shape: way and shot of the tasks that it is used on.

        >>> Recipe(name="quick", method="mine", source="ours", options={}).described()
        'recipe quick (ours); the expected accuracy is not known'
        """
        text = f"recipe {self.name} ({self.source})"
        elsewhere = self.name == QUICK and dataset not in (None, *(self.datasets or (EMBEDDED,)))
        known = self.accuracies
        on = self.accuracy_on
        if self.expected and shape is not None:
            same = [e for e in self.expected if (e.backbone, e.way, e.shot) == (backbone, *shape)]
            known = tuple(one.accuracy for one in same)
            on = f"{on}, {shape[0]}-way {shape[1]}-shot with {backbone}"
        if not known or elsewhere:
            return f"{text}; the expected accuracy is not known"
        when = f"verified {self.verified}" if self.verified else "not verified"
        span = f"{known[0]:.1f}" + (f" to {known[-1]:.1f}" if known[1:] else "")
        return f"{text}; expected {span} % on {on}, {when}"

    def lent(self, method: str) -> str:
        """Return its source in one sentence, where its stages train the backbone of a method.

        >>> Recipe(name="quick", method="simclr", source="ours", options={}).lent("ncc")
        'recipe quick of simclr (ours); the expected accuracy of ncc is not known'
        """
        return f"{self.lent_origin} ({self.source}); the expected accuracy of {method} is not known"


def find_recipe(
    registry: Registry, method: Plugin, name: str, dataset: str, shot: int, value: str = ""
) -> Recipe | None:
    """Return the recipe of a method by its name for a data set and shot.

    Args:
        name: ``NAME``, or ``NAME:DATASET`` if the data set has another name here.
        value: of the method's argument, such as the method in a method; empty without one.

    Returns:
        ``None`` if the method has no recipe of that name.

    Raises:
        OptionError: it has one, but not for this data set, shot and value; the message says for
            which.
    """
    name, _, said = name.partition(":")
    wanted = said or dataset
    same = [r for r in list_recipes(registry, method.name) if r.name == name]
    if not same:
        return None
    for recipe in same:
        known = {_bare(d) for d in recipe.datasets}
        fits = recipe.shot in (None, shot) and recipe.value in ("", value)
        if fits and (not known or _bare(wanted) in known):
            return recipe
    there = "; ".join(
        (f"{r.spelt_method} on " if r.value else "")
        + f"{', '.join(r.datasets) or 'any data set'}"
        + (f" {r.shot}-shot" if r.shot is not None else "")
        for r in same
    )
    whose = f"{method.name}:{value}" if value and any(r.value for r in same) else method.name
    raise OptionError(
        f"recipe {name} of {whose} is not for {wanted} {shot}-shot, but for: {there}. If "
        f"your data set is one of them by another name, give "
        f"{argument('recipe', f'{name}:DATASET')}"
    )


def list_recipes(registry: Registry, method: str | None = None) -> list[Recipe]:
    """Return the recipes of one installed method, or of all, importing no plugin.

    Raises:
        PluginError: a file of recipes is damaged.
    """
    plugins = [p for p in registry.plugins("method") if method in (None, p.name)]
    files = {path: None for p in plugins if (path := _file_of(p)) is not None}
    names = {p.name for p in plugins}
    return [r for path in files for r in _recipes_of(path) if r.method in names]


def unknown_recipe(registry: Registry, method: str, name: str) -> OptionError:
    """Return the error for a recipe that a method lacks; its message lists those it has."""
    bare = name.partition(":")[0]
    known = sorted({r.name for r in list_recipes(registry, method)})
    return OptionError(
        f"{method} has no recipe {bare!r}{close_matches(bare, known)}; it has "
        f"{', '.join(known) or 'none'}"
    )


def _bare(name: str) -> str:
    """Return a name without case and punctuation.

    >>> _bare("CUB-200"), _bare("mini-imagenet")
    ('cub200', 'miniimagenet')
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _file_of(plugin: Plugin) -> Path | None:
    if ":" not in plugin.target or plugin.status != "ok":
        return None  # a plugin of a file has no package
    return package_file(plugin.target, FILE_NAME)


def _recipes_of(path: Path) -> Iterator[Recipe]:
    try:
        file = msgspec.convert(read_toml(path), _File)
    except (OSError, ValueError) as error:
        raise PluginError(f"{path}: cannot be read as recipes ({error})") from None
    for number, table in enumerate(file.recipe, start=1):
        for recipe in _recipes_in(table, file.training, f"{path}: recipe {number}"):
            yield recipe
            for name, own in file.variants.get(table.name, {}).items():
                yield recipe.varied(name, own)


def _recipes_in(table: _Table, named: Mapping[str, Any], where: str) -> Iterator[Recipe]:
    """Yield the recipe in a table once for each of its methods."""
    options = dict(table.set)
    if "training" in options:
        training = _whole(options["training"], named, where)
        if "stages" in training:
            training["stages"] = [_whole(one, named, where) for one in training["stages"]]
        options["training"] = training
    methods = table.method if isinstance(table.method, list) else [table.method]
    if unknown := [e.method for e in table.expected if e.method not in (*methods, "")]:
        raise PluginError(f"{where}, expected: {unknown[0]!r} is not among its methods")
    known = {field: getattr(table, field) for field in _Known.__struct_fields__}
    for spelt in methods:
        name, _, value = spelt.partition(":")
        own = tuple(e for e in table.expected if (e.method or methods[0]) == spelt)
        yield Recipe(**{**known, "expected": own}, method=name, value=value, options=options)


def _whole(training: Mapping[str, Any], named: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return options of training over those that they refer to."""
    found = dict(training)
    if (like := found.pop("like", None)) is None:
        return found
    if like not in named:
        known = ", ".join(named) or "none"
        raise PluginError(f"{where}: like = {like!r} is not among [training.NAME]: {known}")
    return {**named[like], **found}
