"""What is installed: plugins and kinds of plugins, by the entry points of distributions.

Reading the metadata of all distributions takes longer than everything else that ``fsf --help``
does. The index is therefore cached, with the state of all files that decide what is in it.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from fsframework._folders import cache_folder
from fsframework.errors import FsfError
from fsframework.interfaces.command import Command

__all__ = ["Index", "InstalledCommand", "Plugin", "installed", "searched", "state_of"]

_SETTLED = 2_000_000_000
"""Nanoseconds after which a file that changes again has another time."""


@dataclass(frozen=True, order=True)
class Plugin:
    """What is known about a plugin without importing it.

    Args:
        kind: one of ``Registry.kinds``.
        name: lower-case kebab, unique within its kind.
        target: ``module:attribute``, or the path of the file it was read from.
        distribution: name of the installed distribution; ``version`` its version.
        status: ``ok``, or what is wrong.
    """

    kind: str
    name: str
    target: str
    distribution: str
    version: str
    status: str = "ok"

    @property
    def check(self) -> str:
        """How it is checked: a command, or a call for a class of a script."""
        if self.version != "-":
            return f"fsf plugins check {self.name}"
        if Path(self.target).suffix == ".py":
            return f"fsf plugins check {self.name} --plugin {self.target}"
        return f"fsframework.testing.check_component({self.target.rpartition(':')[2]})"

    def described(self) -> str:
        """Return kind, name, target, distribution and version for a message."""
        if self.version == "-":
            return f"{self.kind} {self.name!r} ({self.target})"
        return f"{self.kind} {self.name!r} ({self.target}, from {self.distribution} {self.version})"


@dataclass(frozen=True)
class InstalledCommand:
    """A command with its description; a broken one has neither summary nor group.

    Args:
        plugin: where it comes from, and whether anything is known to be wrong with it.
        command: its path, summary and group.
    """

    plugin: Plugin
    command: Command


@dataclass(frozen=True)
class Index:
    """What is installed, as it was read.

    Args:
        searched: folders that modules were searched in.
        states: of all files and folders that decide the rest.
        kinds: target by name.
        plugins: all but commands.
    """

    searched: Sequence[str]
    states: Mapping[str, Sequence[int]]
    kinds: Mapping[str, str]
    plugins: Sequence[Plugin]
    commands: Sequence[InstalledCommand]

    @property
    def is_current(self) -> bool:
        """Whether nothing was installed, removed or edited since."""
        return self.searched == searched() and all(
            state_of(path) == state for path, state in self.states.items()
        )

    @property
    def is_settled(self) -> bool:
        """Whether the states would tell of any further change."""
        newest = max(state[0] for state in self.states.values() if state)
        return newest + _SETTLED < time.time_ns()


_of_process: dict[str, Index] = {}
"""The index that was last read or written, by the name of its file."""


def installed() -> Index:
    """Return what is installed now, importing no plugin."""
    file = cache_folder() / "plugins" / f"{zlib.crc32(repr(searched()).encode()):024x}.json"
    index = _of_process.get(file.name) or _load(file)
    if index is None or not index.is_current:
        from fsframework.components.entry_points import read_entry_points

        index = read_entry_points()
        if not index.is_settled:
            return index
        _save(index, file)
    _of_process[file.name] = index
    return index


def searched() -> list[str]:
    """Return the folders that modules are searched in."""
    return [str(Path(folder).absolute()) for folder in sys.path]


def state_of(path: str) -> list[int]:
    """Return what changes with a file or folder; empty if there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return []
    return [found.st_mtime_ns, found.st_ino, found.st_size]


def _load(file: Path) -> Index | None:
    """Return the index in a file, ``None`` if there is none or it is damaged."""
    try:
        checksum, _, text = file.read_text().partition("\n")
        if checksum != str(zlib.crc32(text.encode())):
            return None
        raw = json.loads(text)
        commands = []
        for one in raw.pop("commands"):
            command = Command(**{**one["command"], "path": tuple(one["command"]["path"])})
            commands.append(InstalledCommand(Plugin(**one["plugin"]), command))
        plugins = [Plugin(**one) for one in raw.pop("plugins")]
        return Index(**raw, plugins=plugins, commands=commands)
    except (OSError, ValueError):
        return None


def _save(index: Index, file: Path) -> None:
    from fsframework._files import atomic_write

    text = json.dumps(asdict(index))
    with suppress(FsfError, OSError):  # of a folder that cannot be written to
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, f"{zlib.crc32(text.encode())}\n{text}")
