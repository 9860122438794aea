"""Trees of options that travel from one process to another as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fsframework.components.options import Given
from fsframework.components.resolution import plain
from fsframework.errors import OptionError

__all__ = ["packed", "unpacked"]


def packed(node: Any, name: str) -> Any:
    """Return a tree of ``Given`` as JSON values.

    Args:
        node: the tree.
        name: what it describes, for the message.

    Raises:
        OptionError: an option is a class or an object, which only this process knows.
    """
    if isinstance(node, Mapping):
        return {"table": {str(key): packed(value, name) for key, value in node.items()}}
    if isinstance(node, list):
        return {"list": [packed(value, name) for value in node]}
    given = node if isinstance(node, Given) else Given(node, "")
    value = plain(given.value)
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        raise OptionError(
            f"{name}: {given.value!r} is known to this process only; to run it in others, put the "
            "class into a file, give the file with plugins, and name the class"
        ) from None
    return {"value": value, "origin": given.origin}


def unpacked(node: Any) -> Any:
    """Return the tree that ``packed`` made JSON of."""
    if "table" in node:
        return {key: unpacked(value) for key, value in node["table"].items()}
    if "list" in node:
        return [unpacked(value) for value in node["list"]]
    return Given(node["value"], str(node["origin"]))
