"""The launcher that a call or a command asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fsframework.api.components import component
from fsframework.api.session import Session
from fsframework.interfaces.launcher import Launcher
from fsframework.pipeline.experiment.options import merged

__all__ = ["without_launcher"]


def without_launcher(
    trees: Sequence[Mapping[str, Any]], session: Session
) -> tuple[Launcher | None, list[dict[str, Any]]]:
    """Return the launcher that trees of options ask for, if any, and the trees without it.

    Args:
        trees: of ``Given``; earlier ones take precedence.
        session: whose plugins are available.

    Raises:
        PluginError: the launcher is unknown or cannot be loaded.
        OptionError: an option of it is not allowed.
    """
    asked: list[Mapping[str, Any]] = [
        {"launcher": tree["launcher"]} for tree in trees if "launcher" in tree
    ]
    rest = [{key: node for key, node in tree.items() if key != "launcher"} for tree in trees]
    if not asked:
        return None, rest
    request = merged(*asked)["launcher"]
    made: Launcher = component(session.registry, "launcher", request).create()
    return made, rest
