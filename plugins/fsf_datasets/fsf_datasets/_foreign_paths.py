"""Paths in tables that another system or another machine wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from fsf_datasets._messages import first_few
from fsf_datasets._trees import Tree
from fsframework.interfaces import DataError
from fsframework.values import IntArray, Texts

__all__ = ["files_of"]

_FOREIGN = r"\\|^/|^[A-Za-z][A-Za-z0-9+.-]*:"
"""Paths with backslashes, absolute ones, and addresses."""

_ADDRESS = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+://", re.IGNORECASE)
_FILE_ADDRESS = re.compile(r"file:(//(localhost)?(?=/))?", re.IGNORECASE)
_DRIVE = re.compile(r"/?[A-Za-z]:/|//")
_MOST_TRIED = 20


def files_of(paths: Texts, rows: IntArray, table: Path, tree: Tree) -> Texts:
    """Return the file in ``tree`` that each path means.

    Paths that exist, and relative ones without backslashes, mean what they say. Backslashes
    separate folders. Absolute paths that do not exist are cut at the front, all by the same
    folders, so that one of them is in the tree.

    Raises:
        DataError: a path is the address of a server, or an absolute one of another system that is
            not in the tree; the message names the row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    places = np.flatnonzero(np.asarray(pc.match_substring_regex(paths.written, _FOREIGN)))
    written = paths.written.take(pa.array(places)).to_pylist()
    absent = [n for n, state in enumerate(tree.states(written)) if state == "missing"]
    if not absent:
        return paths
    files = dict(zip(absent, _translated([written[n] for n in absent], tree), strict=True))
    wrong = [
        f"row {rows[places[n]]} has {written[n]!r}"
        for n, file in files.items()
        if _ADDRESS.match(file) or _DRIVE.match(file)
    ]
    if wrong:
        raise DataError(
            f"{table}: {first_few(wrong, joint='; ')}; images are read from files of this machine: "
            "write their paths below the folder of the table, or below the option root"
        )
    mask = np.zeros(len(paths), bool)
    mask[places[absent]] = True
    new = pa.array(files.values(), pa.large_string())
    return Texts([pc.replace_with_mask(paths.written, pa.array(mask), new)])


def _translated(paths: Sequence[str], tree: Tree) -> list[str]:
    """Return paths as this system writes them."""
    plain = [
        unquote(_FILE_ADDRESS.sub("", path)) if _FILE_ADDRESS.match(path) else path
        for path in paths
    ]
    plain = [path if _ADDRESS.match(path) else path.replace("\\", "/") for path in plain]
    absent = [n for n, state in enumerate(tree.states(plain)) if state == "missing"]
    moved = [n for n in absent if plain[n].startswith("/") or _DRIVE.match(plain[n])]
    parts = [plain[n].split("/") for n in moved]
    for cut in range(1, _shared(parts) + 1):
        below = ["/".join(part[cut:]) for part in parts]
        if set(tree.states(below[:_MOST_TRIED])) != {"missing"}:
            for n, path in zip(moved, below, strict=True):
                plain[n] = path
            break
    return plain


def _shared(paths: Iterable[Sequence[str]]) -> int:
    """Return the number of leading folders that all paths have."""
    depth = 0
    for parts in zip(*(path[:-1] for path in paths), strict=False):
        if len(set(parts)) > 1:
            break
        depth += 1
    return depth
