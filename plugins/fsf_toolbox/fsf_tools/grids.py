"""Grids of options: combinations of the values of several options, and conditions on them."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fsframework.api.components import Given, kind_of
from fsframework.api.experiments import given_tree
from fsframework.errors import OptionError, argument, close_matches

__all__ = [
    "Axes",
    "Override",
    "axes_of_table",
    "axis_tree",
    "check_conditions",
    "combinations_of",
    "plain_tree",
    "read_overrides",
    "shown",
    "split_values",
]

Axes = Mapping[str, Sequence[Any]]
"""Values by option: an argument of ``fsframework.run``, or a dotted key of a configuration."""

_MOST_EXPERIMENTS = 100_000
_GRID = "grid"
"""Origin of the values of axes."""


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


def plain_tree(tree: Any) -> Any:
    """Return a tree of ``Given`` with the bare values as leaves."""
    if isinstance(tree, Mapping):
        return {key: plain_tree(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [plain_tree(value) for value in tree]
    return tree.value if isinstance(tree, Given) else tree


def axes_of_table(table: Any) -> dict[str, list[Any]]:
    """Return the axes in the table ``grid`` of a configuration file, whose leaves are ``Given``.

    Raises:
        OptionError: it is not a table.
    """
    if not isinstance(table, Mapping):
        raise OptionError("grid must be a table of lists: [grid], then method = [...]")
    return {key.replace("-", "_"): _values_of(node) for key, node in _leaves_of(table, "")}


def _values_of(node: Any) -> list[Any]:
    """Return the values of an axis, each with the trust of the file that it is from."""
    if isinstance(node, Given) and isinstance(node.value, (list, tuple)):
        return [replace(node, value=value) for value in node.value]
    return node if isinstance(node, list) else [node]


def axis_tree(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value of each axis as a tree of ``Given`` with the origin ``grid``.

    What a file gives keeps the trust of the file; what is given now is trusted.
    """
    return given_tree({key: _of_grid(value) for key, value in values.items()}, _GRID)


def _of_grid(node: Any) -> Any:
    if isinstance(node, Given):
        return replace(node, origin=_GRID, trusted=node.is_trusted)
    if isinstance(node, Mapping):
        return {key: _of_grid(value) for key, value in node.items()}
    if isinstance(node, list) and node and all(isinstance(value, Mapping) for value in node):
        return [_of_grid(value) for value in node]
    return Given(node, _GRID, trusted=True)


def _leaves_of(table: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for key, node in table.items():
        if isinstance(node, Mapping) and "name" not in node:
            yield from _leaves_of(node, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", node


def combinations_of(axes: Axes) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """Return every combination of values, with its tags: the values as tables show them.

    The last axis changes fastest.

    Raises:
        OptionError: an axis is empty or has a value twice, or there are more than 100,000
            combinations.

    >>> [tags for _, tags in combinations_of({"method": ["ncc", "maml"], "shot": [1]})]
    [{'method': 'ncc', 'shot': '1'}, {'method': 'maml', 'shot': '1'}]
    """
    count = math.prod(map(len, axes.values()))
    if count > _MOST_EXPERIMENTS:
        raise OptionError(
            f"the grid has {count:,} experiments; at most {_MOST_EXPERIMENTS:,} are allowed"
        )
    labelled = [zip(values, _tags(key, values), strict=True) for key, values in axes.items()]
    chosen = [tuple(zip(*one, strict=True)) or ((), ()) for one in itertools.product(*labelled)]
    return [
        (dict(zip(axes, values, strict=True)), dict(zip(axes, tags, strict=True)))
        for values, tags in chosen
    ]


def _tags(key: str, values: Sequence[Any]) -> list[str]:
    """Return the values of an axis as tables show them; instances of one class are numbered."""
    if not values:
        raise OptionError(f"{argument(key)}: the list is empty")
    bare, labels = [plain_tree(value) for value in values], [*map(shown, values)]
    for place, label in enumerate(labels):
        same = [bare[i] for i in range(place) if labels[i] == label]
        if same and (not _is_instance(bare[place]) or any(bare[place] is one for one in same)):
            raise OptionError(f"{argument(key)}: {label} appears twice")
    before = [labels[:place].count(label) for place, label in enumerate(labels)]
    return [f"{x} {n + 1}" if n else x for x, n in zip(labels, before, strict=True)]


def _is_instance(value: Any) -> bool:
    return not isinstance(value, type) and kind_of(value) is not None


def shown(value: Any) -> str:
    """Return a value as tables show it: of a component its name and the options given.

    >>> shown("1e-3"), shown(0.001), shown({"name": "r2d2", "initial_alpha": 20.0})
    ('0.001', '0.001', 'r2d2 (initial_alpha=20.0)')
    """
    value = plain_tree(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value))
    if isinstance(value, Mapping):
        options = ", ".join(f"{k}={shown(v)}" for k, v in value.items() if k != "name")
        name = str(value.get("name", ""))
        return f"{name} ({options})" if options else name
    if _is_instance(value):
        return type(value).__name__
    with suppress(ValueError, TypeError):
        value = json.loads(value)  # "1e-3" on a command line is 0.001 in a file
    return str(getattr(value, "__name__", value))


@dataclass(frozen=True)
class Override:
    """Options of the experiments that have certain tags, or experiments that are left out.

    Args:
        conditions: values by name of a tag; one of each must hold.
        options: a tree of options.
    """

    conditions: Mapping[str, tuple[str, ...]]
    options: Mapping[str, Any]

    def holds_for(self, tags: Mapping[str, Any]) -> bool:
        """Whether an experiment has the tags."""
        return all(
            key in tags and str(tags[key]) in values for key, values in self.conditions.items()
        )


def read_overrides(raw: Any, what: str = "overrides") -> tuple[Override, ...]:
    """Read a list of a configuration file.

    Args:
        raw: the list.
        what: ``overrides``, each with options below ``set``; or ``exclude``, with conditions only.

    Raises:
        OptionError: it is not such a list; the message gives the number of what is wrong.
    """
    if not isinstance(raw, list):
        raise OptionError(f"{what} must be a list of tables: [[{what}]]")
    found = []
    for number, table in enumerate(raw, start=1):
        options = table.get("set", {})
        wrong = options or not table if what == "exclude" else not options
        if wrong or not isinstance(options, Mapping):
            raise OptionError(
                f"{what}, number {number}: [[overrides]] must have options below set, as in "
                "[overrides.set.training], and [[exclude]] conditions only"
            )
        where = axes_of_table({key: node for key, node in table.items() if key != "set"})
        conditions = {key: tuple(map(shown, values)) for key, values in where.items()}
        found.append(Override(conditions, given_tree(options, what)))
    return tuple(found)


def check_conditions(
    what: str, conditioned: Sequence[Override], axes: Mapping[str, Sequence[str]]
) -> None:
    """Check that conditions refer to axes of a grid and to values of theirs.

    Args:
        what: the list that they are from.
        conditioned: what it holds.
        axes: values of each axis, as tables show them.

    Raises:
        OptionError: a condition names another axis or value.
    """
    for number, one in enumerate(conditioned, start=1):
        for key, values in one.conditions.items():
            if key not in axes:
                raise OptionError(
                    f"{what}, number {number}: {key!r} is not an axis of the grid"
                    f"{close_matches(key, axes)}; its axes are {', '.join(axes)}"
                )
            for value in [value for value in values if value not in axes[key]]:
                raise OptionError(
                    f"{what}, number {number}: {value!r} is not a value of {key} in the grid"
                    f"{close_matches(value, axes[key])}; its values are {', '.join(axes[key])}"
                )
