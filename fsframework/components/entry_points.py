"""The only file that knows entry points: reads those of all installed distributions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import Distribution, distributions, entry_points
from pathlib import Path
from typing import Any

from fsframework._calls import top_level
from fsframework.components.commands import FILE_NAME, describe_command
from fsframework.components.installed import Index, InstalledCommand, Plugin, searched, state_of
from fsframework.components.kinds import GROUP_OF_KINDS, KINDS, Kind
from fsframework.components.options import value_of
from fsframework.components.package_files import package_file, package_folders
from fsframework.errors import DataError, PluginError
from fsframework.interfaces.command import Command

__all__ = ["packaged", "packaged_among", "packaged_runs", "read_entry_points"]

_GROUP_OF_FILES = "fsframework.files"
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_VERSION = re.compile(r"-v[1-9][0-9]*$")
"""Ends the name of a task set."""


def read_entry_points() -> Index:
    """Return what is installed, read from the metadata of distributions."""
    found = list(distributions())
    entries = [entry for one in found for entry in one.entry_points]
    declared = sorted(Kind(e.name, e.value) for e in entries if e.group == GROUP_OF_KINDS)
    # Of two declarations of a kind, the first one by target holds.
    kinds = {**{kind.name: kind for kind in reversed(declared)}, **KINDS}
    groups = {kind.group: kind.name for kind in kinds.values()}
    # An editable install can be on the path twice; equal name and target are one plugin.
    unique: dict[tuple[str, str, str], Plugin] = {}
    folders: dict[str, list[Path] | None] = {}
    files = [*searched(), __file__]
    for one in found:
        rows = list(_plugins_of(one, groups, folders))
        unique = {**{(row.kind, row.name, row.target): row for row in rows}, **unique}
        if rows:
            place = str(getattr(one, "_path", ""))
            files += [f"{place}/entry_points.txt", f"{place}/METADATA"]
    plugins = [row for row in unique.values() if row.kind != "command"]
    commands = [_described(row) for row in unique.values() if row.kind == "command"]
    described = [package_file(one.plugin.target, FILE_NAME) for one in commands]
    places = (*(path for some in folders.values() for path in some or ()), *described)
    files += [str(path) for path in places if path is not None]
    targets = {name: kind.target for name, kind in kinds.items()}
    return Index(searched(), {file: state_of(file) for file in files}, targets, plugins, commands)


def _plugins_of(
    distribution: Distribution, kinds: Mapping[str, str], folders: dict[str, list[Path] | None]
) -> Iterator[Plugin]:
    """Yield the plugins of a distribution; damage to its metadata is in their status.

    Args:
        kinds: by entry-point group.
        folders: of the top-level packages looked for so far; others are added.
    """
    entries = [entry for entry in distribution.entry_points if entry.group in kinds]
    if not entries:
        return
    try:
        metadata = distribution.metadata
        name, version = metadata["Name"], metadata["Version"]
    except Exception:  # which error depends on the Python version
        name, version = None, None
    damage = "" if name and version else "broken: its METADATA has no name and version"
    if not name:
        # The folder is called NAME-VERSION.dist-info.
        name = Path(str(getattr(distribution, "_path", "unknown"))).name.partition("-")[0]
    for entry in entries:
        top = top_level(entry.value)
        if top not in folders:
            folders[top] = package_folders(top)
        status = damage or _status(entry.name, entry.value, exists=folders[top] is not None)
        yield Plugin(
            kinds[entry.group], entry.name, entry.value, name, version or "unknown", status
        )


def _status(name: str, target: str, *, exists: bool) -> str:
    """Return the status of an entry point, as far as it is known without importing it."""
    if not _NAME.fullmatch(name):
        return "broken: the name is not lower-case kebab"
    if not re.fullmatch(r"[\w.]+:[\w.]+", target):
        return f"broken: the target {target!r} is not module:attribute"
    return "ok" if exists else f"broken: no module named {top_level(target)!r}"


def _described(plugin: Plugin) -> InstalledCommand:
    """Return a command with its description; if that is damaged, the status says so."""
    nothing = Command(
        name=plugin.name, target=plugin.target, path=(plugin.name,), summary="", group=""
    )
    if plugin.status != "ok":
        return InstalledCommand(plugin, nothing)
    try:
        return InstalledCommand(plugin, describe_command(plugin.name, plugin.target))
    except PluginError as error:
        return InstalledCommand(replace(plugin, status=f"broken: {error}"), nothing)


def packaged_runs(name: str = "*/*") -> list[Path]:
    """Return the folders of runs in installed packages; ``*`` in the name stands for anything."""
    packages = {top_level(entry.value) for entry in entry_points(group=_GROUP_OF_FILES)}
    folders = [folder for one in sorted(packages) for folder in package_folders(one) or ()]
    return sorted(place for one in folders for place in one.glob(f"{name}/"))


def packaged(place: str | Path, *, installed: bool = False) -> Path:
    """Return the folder that an installed package has under a name such as ``cifar-fs/protonet``.

    A package lists itself in the entry-point group ``fsframework.files``. Its folders are those of
    runs: of a task set, or of a model with its weights. A name means what is installed, whatever a
    folder here of the same name holds; such a folder is given as ``./cifar-fs/protonet``.

    Args:
        place: a name, or the path of a file or a folder.
        installed: whether the name of a task set never means a folder here.

    Returns:
        The path itself where it is not such a name.

    Raises:
        DataError: two packages have the name, or none has it and only a folder here does; or it is
            a ``Path`` that is both.
    """
    path = Path(place)
    if not re.fullmatch(rf"{_NAME.pattern}/{_NAME.pattern}", str(path)):
        return path
    if isinstance(place, str) and place != str(path):  # ./DATA/NAME
        return path.absolute()
    beside = [one for one in packaged_runs() if one.parent.name == str(path.parent)]
    found = [one for one in beside if one.name == path.name]
    here = f"; the folder here is ./{path}" if path.exists() else ""
    if len(found) > 1:
        raise DataError(f"{path} is in two packages: {found[0]} and {found[1]}; uninstall one")
    if found and here and isinstance(place, Path):
        raise DataError(
            f"{path}: is a folder here and in {found[0]}; give the absolute path of one"
        )
    if found:
        return found[0]
    versioned = installed and _VERSION.search(path.name)
    if here and (isinstance(place, Path) or not (beside or versioned)):
        return path
    if beside or here:
        known = ", ".join(str(path.parent / one.name) for one in beside) or "none of these data"
        raise DataError(f"{path}: no such task set or model; installed packages have {known}{here}")
    return path


def packaged_among(options: object, tree: Mapping[str, Any], *names: str) -> dict[str, Path]:
    """Return the folders of options of these names, where one is given; see `packaged`.

    Args:
        tree: of `Given`, with the options as they were given.
    """
    given = {name: value_of(tree.get(name)) for name in names}
    return {
        name: packaged(place, installed=name == "task_file")
        for name, place in given.items()
        if place is not None and getattr(options, name) is not None
    }
