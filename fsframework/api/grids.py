"""Grids of options: every combination of the values of several options."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fsframework.api.components import Given, plain_tree
from fsframework.errors import OptionError, argument
from fsframework.values import ExperimentDescription

__all__ = [
    "Axes",
    "axes_of_table",
    "experiments_of",
    "read_seeds",
    "shown",
    "split_values",
]

Axes = Mapping[str, Sequence[Any]]
"""Values by option: an argument of ``fsframework.run``, or a dotted key of a configuration."""

_MOST_EXPERIMENTS = 100_000
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,15})?([eE][-+]?\d{1,2})?")


def split_values(text: str) -> list[str]:
    r"""Return values that are separated by commas outside of brackets.

    ``\,`` is a comma within a value.

    Raises:
        OptionError: a value is empty.

    >>> split_values("protonet,renet"), split_values(r"folder:./a\,b"), split_values("[1, 2],[3]")
    (['protonet', 'renet'], ['folder:./a,b'], ['[1, 2]', '[3]'])
    """
    parts = re.split(r"(?<!\\),(?![^\[]*\])", text)
    values = [part.strip().replace("\\,", ",") for part in parts]
    if not all(values):
        raise OptionError(f"{text!r}: a value between commas is empty")
    return values


def read_seeds(given: Any) -> tuple[int, ...]:
    """Return a list of seeds, each once.

    Args:
        given: a number, several, or a text with numbers and ranges.

    Raises:
        OptionError: one is not a number, a range is empty, or a seed appears twice.

    >>> read_seeds("0-2,7"), read_seeds(range(3))
    ((0, 1, 2, 7), (0, 1, 2))
    """
    several = [given] if isinstance(given, int) else given
    parts = split_values(given) if isinstance(given, str) else [str(one) for one in several]
    found: list[int] = []
    for part in parts:
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", part)
        if match is None:
            raise OptionError(
                f"{argument('seeds', given)}: {part!r} is neither a whole number from 0 nor a "
                "range such as 0-9"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if not 0 <= last - first < _MOST_EXPERIMENTS:
            raise OptionError(
                f"{argument('seeds', given)}: the range {part} must have 1 to "
                f"{_MOST_EXPERIMENTS:,} seeds"
            )
        found += range(first, last + 1)
    for seed, times in Counter(found).items():
        if times > 1:
            raise OptionError(f"{argument('seeds', given)}: {seed} appears {times} times")
    return tuple(found)


def axes_of_table(table: Any) -> dict[str, list[Any]]:
    """Return the axes in the table ``grid`` of a configuration file, whose leaves are ``Given``.

    Raises:
        OptionError: it is not a table, or a list is empty.
    """
    if not isinstance(table, Mapping):
        raise OptionError("grid must be a table of lists: [grid], then method = [...]")
    found: dict[str, list[Any]] = {}
    for key, node in _leaves_of(table, ""):
        values = node.value if isinstance(node, Given) else node
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        if not values:
            raise OptionError(f"grid.{key}: the list is empty")
        found[key] = values
    return found


def _leaves_of(table: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for key, node in table.items():
        if isinstance(node, Mapping) and "name" not in node:
            yield from _leaves_of(node, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", node


def experiments_of(axes: Axes) -> list[ExperimentDescription]:
    """Return an experiment for each combination of values; the last axis changes fastest.

    Its tags are the values as tables show them; its name has those of axes with several.

    Raises:
        OptionError: a value appears twice, or there are more than 100,000 combinations.

    >>> [one.name for one in experiments_of({"method": ["ncc", "maml"], "shot": [1], "seed": [0]})]
    ['method ncc', 'method maml']
    """
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > _MOST_EXPERIMENTS:
        raise OptionError(
            f"the grid has {count:,} experiments; at most {_MOST_EXPERIMENTS:,} are allowed"
        )
    varied = [key for key, values in axes.items() if len(values) > 1]
    labels = {key: _labels(key, values) for key, values in axes.items()}
    found = []
    for places in itertools.product(*(range(len(values)) for values in axes.values())):
        cell = {key: axes[key][place] for key, place in zip(axes, places, strict=True)}
        tags = {key: labels[key][place] for key, place in zip(axes, places, strict=True)}
        name = ", ".join(f"{_spoken(key)} {tags[key]}" for key in varied)
        found.append(ExperimentDescription(name or "the only experiment", cell, tags=tags))
    return found


def _labels(key: str, values: Sequence[Any]) -> list[str]:
    """Return the values of an axis as tables show them; classes and objects are numbered if needed.

    Raises:
        OptionError: a value appears twice.
    """
    found: list[str] = []
    for value in values:
        label = shown(value)
        times = sum(one == label or one.startswith(f"{label} (") for one in found)
        if label in found and _is_plain(plain_tree(value)):
            raise OptionError(f"{argument(key)}: {label} appears twice")
        found.append(f"{label} ({times + 1})" if label in found else label)
    return found


def _is_plain(value: Any) -> bool:
    """Return whether a label tells all of a value."""
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, (str, int, float, Path)) or value is None


def shown(value: Any) -> str:
    """Return a value as tables show it: of a component its name and the options given.

    >>> shown("1e-3"), shown(0.001), shown({"name": "r2d2", "initial_alpha": 20.0})
    ('0.001', '0.001', 'r2d2 (initial_alpha=20.0)')
    """
    value = plain_tree(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value))
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value) if set(value) & set(".eE") else int(value)
    if isinstance(value, Mapping):
        options = ", ".join(f"{k}={shown(v)}" for k, v in value.items() if k != "name")
        name = shown(value.get("name", ""))
        return f"{name} ({options})" if options else name
    if isinstance(value, type):
        return value.__name__
    return str(value) if isinstance(value, (str, int, float, Path)) else type(value).__name__


def _spoken(key: str) -> str:
    return key.removeprefix("sampler.n_").replace("_", " ")
