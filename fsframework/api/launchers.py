"""The launcher that a call or a command asks for, and what its workers need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fsframework.api.components import component
from fsframework.api.session import Session
from fsframework.engine.mapping import MOST_DEATHS, mapped, portable, worker_session
from fsframework.engine.options import merged
from fsframework.interfaces.launcher import Launcher

__all__ = ["MOST_DEATHS", "mapped", "portable", "without_launcher", "worker_session"]


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
    asked = merged(*({"launcher": tree["launcher"]} for tree in trees if "launcher" in tree))
    rest = [{key: node for key, node in tree.items() if key != "launcher"} for tree in trees]
    if not asked:
        return None, rest
    made: Launcher = component(session.registry, "launcher", asked["launcher"]).create()
    return made, rest
