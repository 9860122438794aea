"""The launcher that a call or a command asks for, for experiments or for many images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fsframework.api.components import component
from fsframework.api.session import Session
from fsframework.interfaces.launcher import Launcher
from fsframework.pipeline.experiment.options import merged
from fsframework.pipeline.shared_rows import Do, Prepare, Sharing

__all__ = ["Do", "Sharing", "sharing_of", "without_launcher"]


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


def sharing_of(
    prepare: Prepare,
    tree: Mapping[str, Any],
    session: Session,
    plugins: Sequence[str | Path] = (),
    **options: Any,
) -> tuple[Sharing | None, dict[str, Any]]:
    """Return the workers that a tree of ``Given`` asks for, if any, and the tree without them.

    Args:
        prepare: makes, in a worker, the function that computes rows, from the tree, a session and
            the further arguments; one of a module.
        tree: options of a command.
        session: of the command.
        plugins: the files of its plugins.
        **options: further arguments of ``prepare``.

    Raises:
        PluginError: the launcher is unknown or cannot be loaded.
        OptionError: an option of it is not allowed.
    """
    launcher, [rest] = without_launcher([tree], session)
    if launcher is None:
        return None, rest
    files = tuple(str(Path(file).absolute()) for file in plugins)
    return Sharing(launcher, session, prepare, rest, files, options), rest
