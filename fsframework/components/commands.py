"""Descriptions of commands in ``commands.toml``, read without importing a plugin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fsframework._calls import top_level
from fsframework._reading import read_toml
from fsframework.components.package_files import package_file
from fsframework.errors import PluginError, close_matches
from fsframework.interfaces.command import Command

__all__ = ["FILE_NAME", "describe_command"]

FILE_NAME = "commands.toml"

_NEEDED = ("summary", "group")
_KEYS = (*_NEEDED, "path", "contract")
_PATH = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*( [a-z0-9]+(-[a-z0-9]+)*)*")


def describe_command(name: str, target: str) -> Command:
    """Return the description of a command in the package of its target.

    Raises:
        PluginError: the file or the table is missing or damaged; the message is only the cause.
    """
    table = _table(name, target)
    for key, value in table.items():
        if key not in _KEYS:
            hint = close_matches(key, _KEYS)
            raise PluginError(
                f"[{name}] in {FILE_NAME} has an unknown key {key!r}{hint}; "
                f"allowed are {', '.join(_KEYS)}"
            )
        if key == "contract":
            continue  # judged when the command is loaded
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise PluginError(
                f"{key} of [{name}] in {FILE_NAME} must be one line of text, not {value!r}"
            )
    if missing := [key for key in _NEEDED if key not in table]:
        raise PluginError(f"[{name}] in {FILE_NAME} lacks {' and '.join(missing)}")
    path = table.get("path", name)
    if not _PATH.fullmatch(path):
        raise PluginError(
            f"path of [{name}] in {FILE_NAME} must be lower-case kebab words with one space "
            f"between them, not {path!r}"
        )
    told = {key: table[key] for key in (*_NEEDED, "contract") if key in table}
    return Command(name=name, target=target, path=tuple(path.split(" ")), **told)


def _table(name: str, target: str) -> Mapping[str, Any]:
    package, path = top_level(target), package_file(target, FILE_NAME)
    if path is None:
        raise PluginError(f"{package} has no file {FILE_NAME}; a single module cannot have one")
    try:
        table = read_toml(path).get(name)
    except (OSError, ValueError) as error:
        raise PluginError(f"{path} cannot be read as TOML ({error})") from None
    if not isinstance(table, dict):
        raise PluginError(f"{FILE_NAME} of {package} has no table [{name}]")
    return table
