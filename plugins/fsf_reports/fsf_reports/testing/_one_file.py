"""Helpers of the suites of what writes one file in some formats."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fsframework.api.session import open_session
from fsframework.errors import FsfError
from fsframework.testing import require

__all__ = ["require_formats", "written"]


def require_formats(cls: Any, kind: str, example: str) -> None:
    """Require suffixes in lower case without the dot that no other plugin of the kind has.

    Args:
        cls: what declares ``formats``.
        kind: of the component.
        example: of a suffix.
    """
    formats: object = cls.formats
    require(isinstance(formats, tuple), f"formats must be a tuple, not {formats!r}")
    assert isinstance(formats, tuple)
    require(formats, "formats must name at least one suffix")
    for suffix in formats:
        require(
            isinstance(suffix, str) and re.fullmatch(r"[a-z0-9]+", suffix),
            f"formats must hold suffixes such as {example!r}, not {suffix!r}",
        )
    for name, other in _installed(kind).items():
        same = [suffix for suffix in formats if other is not cls and suffix in other.formats]
        require(not same, f"formats has {', '.join(same)}, which the installed {name!r} writes")


def _installed(kind: str) -> dict[str, Any]:
    """Return the classes of the installed plugins of a kind that can be imported."""
    registry, found = open_session(progress=False).registry, {}
    for name in registry.names(kind):
        with suppress(FsfError):
            found[name] = registry.load(kind, name)
    return found


def written(write: Callable[[Path], None], suffix: str, what: str = "") -> bytes:
    """Return the file that is written, which must be the only one.

    Args:
        write: writes the file of a path.
        suffix: of the path.
        what: that the file is for, as messages name it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"toy.{suffix}"
        write(path)
        require(path.is_file(), f"it wrote no .{suffix} file {what}".rstrip())
        extra = sorted(other.name for other in path.parent.iterdir() if other != path)
        require(not extra, f"it must write one file, but it also wrote {', '.join(extra)}")
        return path.read_bytes()
