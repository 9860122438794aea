"""Contract numbers: whether a plugin was written for what its kind demands now."""

from __future__ import annotations

import re
import sys
import warnings

from fsframework._calls import top_level
from fsframework.components.installed import Plugin
from fsframework.errors import FsfWarning, PluginError
from fsframework.interfaces.command import Command
from fsframework.interfaces.component import Configurable

__all__ = ["check_contract"]


def check_contract(
    plugin: Plugin, interface: type[Configurable | Command], written: object
) -> None:
    """Check that a plugin can be used with the contract that its kind has now.

    A plugin that lacks only what the present minor version has changed is used, with a warning.

    Args:
        interface: of the kind; its package decides what the contract is.
        written: the number of the contract that the plugin is written for.

    Raises:
        PluginError: it is not a number, newer, or older than that.
    """
    changes = list(interface._changes.items())
    newest = 1 + len(changes)
    if written == newest:
        return
    package = top_level(interface.__module__)
    version = getattr(sys.modules[package], "__version__", "0.0")
    called = f"{plugin.described()} is of contract {written!r}"
    if not isinstance(written, int) or written < 1:
        raise PluginError(f"{called}; a contract is a whole number, at least 1")
    known = f"{package} {version} has contract {newest} for this kind"
    if written > newest:
        raise PluginError(f"{called}; {known} (hint: upgrade {package})")
    missed = changes[written - 1 :]
    told = "; ".join(f"since {since}, {what}" for since, what in missed)
    rest = f"{known}: {told} (hint: upgrade it, or adapt it and declare contract = {newest})"
    if _minor(version) > _minor(missed[0][0]):
        raise PluginError(f"{called}, which is no longer supported; {rest}")
    text = f"{called}, which the next minor version refuses; {rest}"
    warnings.warn(text, FsfWarning, stacklevel=2)


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
