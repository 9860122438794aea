"""The public arguments of a run, on the command line and in Python, and what each sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsframework.components.resolution import MOST_LEVELS, Given, set_dotted
from fsframework.errors import OptionError, close_matches

__all__ = [
    "ARGUMENTS",
    "COMPONENTS",
    "OVERRIDING",
    "SEEDS",
    "given_tree",
    "key_of",
    "leaves",
    "overlay",
    "set_option",
    "value_of",
]

COMPONENTS = ("method", "sampler", "dataset", "backbone", "detector")
"""Arguments that are components: a name, a table with a name, a class or an instance."""

SEEDS = ("task_seed", "training_seed")
"""Settings that ``seed`` sets, unless they are given beside it or by a stronger source."""

OVERRIDING = ("grid", "command line", "call", "environment")
"""Origins of what the user gave for this run, in order of precedence."""

ARGUMENTS: Mapping[str, str] = {
    **{name: name for name in (*COMPONENTS, "attributes", "split", "tasks", "device")},
    **{name: name for name in ("seed", *SEEDS)},
    "way": "sampler.n_way",
    "shot": "sampler.n_shot",
    "queries": "sampler.n_query",
    "init_from": "training.init_from",
    **{
        name: name
        for name in (
            *("training", "recipe", "model", "tensorboard", "statistics", "level", "interval"),
            *("placebo", "image_size", "precision", "decoding", "broken", "task_file"),
            *("query_batch", "drop_class_words", "drop_words", "min_count", "offline", "name"),
            "launcher",
        )
    },
}
"""Dotted key that an argument sets in a configuration, by the name of the argument."""

_ALL = ("all", "none")
_REPLACED_BY = {
    "attributes": "detector",
    "detector": "attributes",
    **dict.fromkeys(SEEDS, "seed"),
}
"""Arguments by that which replaces them: one of the command line replaces the other of a file."""


def key_of(name: str, value: Any) -> tuple[str, Any]:
    """Return the dotted key that an argument sets, and the value it sets it to.

    Raises:
        OptionError: the argument is unknown; the message gives the closest matches.

    >>> key_of("way", 3), key_of("tasks", "all")
    (('sampler.n_way', 3), ('tasks', None))
    """
    if name == "tasks" and str(value).lower() in _ALL:
        return "tasks", None
    if name not in ARGUMENTS:
        hint = close_matches(name, ARGUMENTS)
        raise OptionError(f"unknown argument {name!r}{hint}; known: {', '.join(ARGUMENTS)}")
    return ARGUMENTS[name], value


def given_tree(
    arguments: Mapping[str, Any], origin: str, below: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return arguments as a tree of ``Given``.

    Args:
        arguments: by name; those that are ``None`` count as not given.
        origin: of every value.
        below: a tree, as of a configuration file; the arguments take precedence over it.

    Raises:
        OptionError: an argument is unknown, or sets an option of a value that has none.
    """
    keyed = [key_of(name, value) for name, value in arguments.items() if value is not None]
    tree: dict[str, Any] = {}
    # Names of components come before their options, so that an option finds its component.
    for key, value in sorted(keyed, key=lambda pair: pair[0].count(".")):
        if key == "training" and isinstance(value, (list, tuple)):
            tree[key] = {"stages": [leaves(stage, origin) for stage in value]}
        elif isinstance(value, Mapping) and "." not in key:
            tree = overlay({key: leaves(value, origin)}, tree)
        else:
            set_dotted(tree, key, Given(value, origin))
    if not below:
        return tree
    return overlay(tree, {k: v for k, v in below.items() if _REPLACED_BY.get(k) not in tree})


def set_option(tree: dict[str, Any], key: str, given: Given) -> None:
    """Set a dotted option in a tree, over all that other sources say of it.

    >>> tree = {"task_seed": Given(1, "exp.toml"), "training_seed": Given(2, "command line")}
    >>> set_option(tree, "seed", Given(5, "command line"))
    >>> list(tree)
    ['training_seed', 'seed']
    """
    for other, replaced_by in _REPLACED_BY.items():
        current = tree.get(other)
        if replaced_by == key and isinstance(current, Given) and current.origin != given.origin:
            del tree[other]
    set_dotted(tree, key, given)


def leaves(value: Any, origin: str, levels: int = MOST_LEVELS) -> Any:
    """Return nested mappings with ``Given`` as leaves; lists of mappings stay lists.

    Raises:
        OptionError: they are nested more than ``levels`` deep.
    """
    if not levels:
        raise OptionError(f"options may be nested at most {MOST_LEVELS} levels deep")
    if isinstance(value, Mapping):
        return {str(key): leaves(one, origin, levels - 1) for key, one in value.items()}
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, Mapping) for v in value):
        return [leaves(one, origin, levels - 1) for one in value]
    return Given(value, origin)


def overlay(tree: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree completed from another, except with options of a different component.

    >>> strong = {"method": Given("r2d2", "call"), "dataset": {"size": Given(32, "call")}}
    >>> weak = {"method": {"name": Given("maml", "a file"), "steps": Given(5, "a file")},
    ...         "dataset": Given("planted", "a file")}
    >>> both = overlay(strong, weak)
    >>> list(both["method"]), both["dataset"]["name"].value
    (['name'], 'planted')
    """
    found = dict(tree)
    for key, value in below.items():
        current = found.get(key)
        if current is None:
            found[key] = value
        elif isinstance(value, Mapping):
            inner = {"name": current} if isinstance(current, Given) else dict(current)
            names = [_name_of(node) for node in (inner, value)]
            if None in names or names[0] == names[1]:
                inner = overlay(inner, value)
            found[key] = inner
        elif isinstance(current, Mapping) and "name" not in current:
            found[key] = {"name": value, **current}
    return found


def value_of(request: Any) -> Any:
    """Return the value of a request for a component, or of an option: a name, without options."""
    request = request.get("name") if isinstance(request, Mapping) else request
    return request.value if isinstance(request, Given) else request


def _name_of(node: Mapping[str, Any]) -> Any:
    name = node.get("name")
    return name.value if isinstance(name, Given) else name
