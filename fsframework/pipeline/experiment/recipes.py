"""Recipes: how a method is trained on a data set, where the numbers come from, what to expect.

A package with methods may have a file ``recipes.toml`` next to its ``__init__.py``::

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
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsframework._reading import parse_toml
from fsframework.components.package_files import package_file
from fsframework.components.registry import Plugin, Registry
from fsframework.errors import OptionError, PluginError, argument, close_matches

__all__ = [
    "EMBEDDED",
    "FILE_NAME",
    "QUICK",
    "Recipe",
    "find_recipe",
    "list_recipes",
    "unknown_recipe",
]

FILE_NAME = "recipes.toml"
EMBEDDED = "planted"
"""The data set that needs no file, for which quick recipes are made."""

QUICK = "quick"
"""The recipe that is used unless another is given."""

_KEYS = {
    "name": str, "method": str, "datasets": list, "shot": int, "source": str,
    "accuracy": (int, float), "accuracy_on": str, "verified": datetime.date, "set": dict,
}  # fmt: skip
_NEEDED = ("name", "method", "source", "set")


@dataclass(frozen=True)
class Recipe:
    """How a method is trained.

    Args:
        datasets: names of data sets it is for; empty for any. ``shot`` likewise, ``None`` for any.
        source: where its numbers come from.
        options: a tree of options as in an experiment file.
        accuracy: expected, in percent, on the tasks ``accuracy_on``; ``None`` if not known.
        verified: when it was last found to reach that accuracy here; ``None`` for never.
    """

    name: str
    method: str
    source: str
    options: Mapping[str, Any]
    datasets: tuple[str, ...] = ()
    shot: int | None = None
    accuracy: float | None = None
    accuracy_on: str = ""
    verified: datetime.date | None = field(default=None)

    def described(self, dataset: str | None = None) -> str:
        """Return source and expectation in one sentence.

        Args:
            dataset: what it is used on, if it is; the accuracy of a quick recipe is known for
                the embedded data set only.

        >>> Recipe("quick", "mine", "ours", {}).described()
        'recipe quick (ours); the expected accuracy is not known'
        """
        text = f"recipe {self.name} ({self.source})"
        elsewhere = self.name == QUICK and dataset not in (None, *(self.datasets or (EMBEDDED,)))
        if self.accuracy is None or elsewhere:
            return f"{text}; the expected accuracy is not known"
        when = f"verified {self.verified}" if self.verified else "not verified"
        return f"{text}; expected {self.accuracy:.1f} % on {self.accuracy_on}, {when}"


def find_recipe(
    registry: Registry, method: Plugin, name: str, dataset: str, shot: int
) -> Recipe | None:
    """Return the recipe of a method by its name for a data set and shot.

    Args:
        name: ``NAME``, or ``NAME:DATASET`` if the data set has another name here.

    Returns:
        ``None`` if the method has no recipe of that name.

    Raises:
        OptionError: it has one, but not for this data set and shot; the message says for which.
    """
    name, _, said = name.partition(":")
    wanted = said or dataset
    same = [r for r in list_recipes(registry, method.name) if r.name == name]
    if not same:
        return None
    for recipe in same:
        known = {_bare(d) for d in recipe.datasets}
        if recipe.shot in (None, shot) and (not known or _bare(wanted) in known):
            return recipe
    there = "; ".join(
        f"{', '.join(r.datasets) or 'any data set'}"
        + (f" {r.shot}-shot" if r.shot is not None else "")
        for r in same
    )
    raise OptionError(
        f"recipe {name} of {method.name} is not for {wanted} {shot}-shot, but for: {there}. If "
        f"yours is one of them by another name, give {argument('recipe', f'{name}:DATASET')}"
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


def _recipes_of(path: Path) -> tuple[Recipe, ...]:
    try:
        stat = path.stat()
    except OSError as error:
        raise PluginError(f"{path}: cannot be read as recipes ({error})") from None
    return _read_once(path, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=64)
def _read_once(path: Path, changed: int, size: int) -> tuple[Recipe, ...]:
    """Read a file once, and again when it has changed."""
    del changed, size
    return tuple(_read(path))


def _read(path: Path) -> Iterator[Recipe]:
    try:
        raw = parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PluginError(f"{path}: cannot be read as recipes ({error})") from None
    for number, table in enumerate(_tables(raw, path), start=1):
        where = f"{path}: recipe {number}"
        for key, value in table.items():
            if key not in _KEYS or not isinstance(value, _KEYS[key]):  # type: ignore[arg-type]
                raise PluginError(f"{where}: {key} = {value!r} does not belong there")
        if missing := [key for key in _NEEDED if key not in table]:
            raise PluginError(f"{where}: lacks {', '.join(missing)}")
        rest = {k: v for k, v in table.items() if k not in ("set", "datasets")}
        yield Recipe(options=table["set"], datasets=tuple(table.get("datasets", ())), **rest)


def _tables(raw: Mapping[str, Any], path: Path) -> Sequence[dict[str, Any]]:
    tables = raw.get("recipe")
    if not isinstance(tables, list) or list(raw) != ["recipe"]:
        raise PluginError(f"{path}: must be a list of tables [[recipe]] and nothing else")
    return tables
