"""The JavaScript that draws figures, bundled once for each version and kept in the cache."""

from __future__ import annotations

import functools
import gzip
import os
from pathlib import Path

__all__ = ["figure_library"]


@functools.cache
def figure_library() -> bytes:
    """Return Vega, Vega-Lite and Vega-Embed as one script, compressed with gzip.

    Bundling takes seconds, so the result is kept in the cache folder.
    """
    import vl_convert

    from fsframework.api.session import open_session

    version = "-".join(
        (vl_convert.get_vega_version(), vl_convert.get_vegalite_versions()[-1], "embed")
    )
    folder = open_session(progress=False).workspace.cache / "reports"
    file = folder / f"vega-{version}.js.gz"
    try:
        packed = file.read_bytes()
        gzip.decompress(packed)
    except (OSError, EOFError, ValueError):
        pass  # not there yet, or damaged
    else:
        return packed
    script = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;")
    return _kept(gzip.compress(script.encode(), mtime=0), file)


def _kept(packed: bytes, file: Path) -> bytes:
    """Write a script for the next time, if the file system allows it, and return it."""
    temporary = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(packed)
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)
    return packed
