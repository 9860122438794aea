"""Grids of options: every combination of the values of several options."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fsframework.api.components import Given
from fsframework.api.experiments import given_tree, overlay
from fsframework.components.resolution import set_dotted
from fsframework.errors import OptionError, argument
from fsframework.pipeline.experiment.arguments import ARGUMENTS, leaves
from fsframework.values import ExperimentDescription

__all__ = [
    "Axes",
    "axes_of_table",
    "experiments_of",
    "read_seeds",
    "shown",
    "split_values",
    "tree_of_cell",
]

Axes = Mapping[str, Sequence[Any]]
"""Values by option: an argument of ``fsframework.run``, or a dotted key of a configuration."""

_MOST_EXPERIMENTS = 100_000


def split_values(text: str) -> list[str]:
    r"""Return values that are separated by commas; ``\,`` is a comma within a value.

    Raises:
        OptionError: a value is empty.

    >>> split_values("protonet,renet"), split_values(r"folder:./a\,b")
    (['protonet', 'renet'], ['folder:./a,b'])
    """
    values = [part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", text)]
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
        OptionError: there are more than 100,000 combinations.

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
    found = []
    for combination in itertools.product(*axes.values()):
        cell = dict(zip(axes, combination, strict=True))
        tags = {key: shown(value) for key, value in cell.items()}
        name = ", ".join(f"{_spoken(key)} {tags[key]}" for key in varied)
        found.append(ExperimentDescription(name or "the only experiment", cell, tags=tags))
    return found


def tree_of_cell(cell: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return the values of an experiment's axes as a tree of ``Given``.

    Raises:
        OptionError: an option is unknown.
    """
    plain = {key: value for key, value in cell.items() if key in ARGUMENTS or "." not in key}
    tree = given_tree({key: _bare(value) for key, value in plain.items()}, origin)
    dotted: dict[str, Any] = {}
    for key, value in cell.items():
        if key not in plain:
            bare = _bare(value)
            node = leaves(bare, origin) if isinstance(bare, Mapping) else Given(bare, origin)
            set_dotted(dotted, key, node)
    return overlay(dotted, tree)


def _bare(value: Any) -> Any:
    if isinstance(value, Given):
        return value.value
    if isinstance(value, Mapping):
        return {key: _bare(one) for key, one in value.items()}
    return value


def shown(value: Any) -> str:
    """Return a value as tables show it: of a component its name and the options given."""
    value = _bare(value)
    if isinstance(value, Mapping):
        options = ", ".join(f"{k}={shown(v)}" for k, v in value.items() if k != "name")
        name = shown(value.get("name", ""))
        return f"{name} ({options})" if options else name
    if isinstance(value, type):
        return value.__name__
    return str(value) if isinstance(value, (str, int, float, bool)) else type(value).__name__


def _spoken(key: str) -> str:
    return key.removeprefix("sampler.n_").replace("_", " ")
