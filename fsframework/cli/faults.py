"""The message for an unexpected error: whose code it is in, and what to do."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from fsframework.components.kinds import kind_of
from fsframework.components.registry import Registry, kebab

__all__ = ["describe"]


def describe(error: BaseException) -> str:
    """Return one sentence; for a bug in a plugin it names the plugin, its method and its file.

    >>> try:
    ...     {}["missing"]
    ... except KeyError as error:
    ...     print(describe(error).partition(":")[0])
    a bug in fsframework
    """
    cause = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        component = _component_in(frame)
        if component is not None:
            kind, name = component
            place = f"{Path(frame.f_code.co_filename).name}, line {line}"
            return (
                f"a bug in the {kind} {name!r}, in its {frame.f_code.co_name} ({place}): {cause}; "
                f"check it with fsf plugins check {name} (--verbose shows where)"
            )
    return f"a bug in fsframework: {cause} (--verbose shows where)"


def _component_in(frame: FrameType) -> tuple[str, str] | None:
    """Return kind and name of the component whose method a frame runs, if any."""
    owner: Any = frame.f_locals.get("self")
    kind = None if owner is None else kind_of(owner)
    if kind is None or _is_ours(frame.f_globals.get("__name__", "")):
        return None
    return kind, _name_of(kind, type(owner))


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("fsframework", "torch")


def _name_of(kind: str, cls: type[Any]) -> str:
    """Return the name that the plugin is installed under, else the one its class gives."""
    for plugin in Registry().plugins(kind):
        module, _, attribute = plugin.target.partition(":")
        if getattr(sys.modules.get(module), attribute, None) is cls:
            return plugin.name
    return cls.name or kebab(cls.__name__)
