"""Data sets that can be named: those of plugins, and those that the user has added."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from fsframework.api.components import Added, Plugin, parameters, read_added
from fsframework.api.session import Session, open_session
from fsframework.errors import DataError, FsfWarning, PluginError
from fsframework.interfaces import About, Dataset

__all__ = ["DatasetRow", "about_json", "datasets"]


@dataclass(frozen=True)
class DatasetRow:
    """A data set as a list shows it.

    Args:
        name: its name, usable once it is added, if it needs to be.
        plugin: ``None`` for a plugin that could not be found.
        summary: what it is, or why it cannot be used.
        state: ``nothing to add``, ``not added``, ``added``, ``gone`` or ``broken``.
        about: what is published about it.
        entry: what was added under this name.
        cls: of the plugin of this name, if it can be loaded.
    """

    name: str
    plugin: Plugin | None
    summary: str
    state: str
    about: About | None = None
    entry: Added | None = None
    cls: type[Dataset] | None = None

    @property
    def argument(self) -> str | None:
        """The option that ``NAME:VALUE`` sets, in capitals as help shows it, if there is one."""
        if self.cls is None or self.cls.argument is None:
            return None
        return "FILE.toml" if self.cls.argument == self.declared_by else self.cls.argument.upper()

    @property
    def declared_by(self) -> str | None:
        """The option that takes a declaration, if it reads any."""
        return None if self.cls is None else self.cls.declared_by

    @property
    def named(self) -> str:
        """How to name it if it is not added: ``folder:PATH``."""
        named = self.name if self.argument is None else f"{self.name}:{self.argument}"
        location = None if self.cls is None else self.cls.location
        return named if location is None else f"{named} -o dataset.{location}={location.upper()}"

    @property
    def found(self) -> tuple[int, int] | None:
        """Classes and images of all splits when it was added."""
        return None if self.entry is None else _sums(self.entry.counts)

    @property
    def published(self) -> tuple[int, int] | None:
        """Classes and images of all splits as published."""
        return None if self.about is None else _sums(self.about.counts)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Its metadata columns; ``None`` if it must be added, or given options, to know them."""
        if self.entry is not None:
            return tuple(self.entry.columns)
        if self.cls is None or self.state != "nothing to add":
            return None
        if any(default is inspect.Parameter.empty for _, default in parameters(self.cls).values()):
            return None
        return tuple(self.cls().metadata)

    def state_text(self, *, with_place: bool = True) -> str:
        """Return the state as text, with the path or without."""
        if self.entry is None:
            return self.state
        added = f"added: {self.entry.place}" if with_place else "added"
        if self.state == "gone":
            return f"{added}, but gone"
        if number := len(self.entry.problems):
            return f"{added}, {number} problem{'s' if number > 1 else ''}"
        return added if self.published is None else f"{added}, complete"

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {
            "name": self.name,
            "usage": self.named,
            "summary": self.summary,
            "state": self.state,
            "found": _counts_json(self.found),
            "published": _counts_json(self.published),
            "added": None if self.entry is None else msgspec.to_builtins(self.entry),
            "about": about_json(self.about),
            "distribution": None if self.plugin is None else self.plugin.distribution,
            "version": None if self.plugin is None else self.plugin.version,
        }


def _sums(counts: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    if not counts:
        return None
    return sum(c for c, _ in counts.values()), sum(n for _, n in counts.values())


def _counts_json(totals: tuple[int, int] | None) -> dict[str, int | None] | None:
    return None if totals is None else {"classes": totals[0], "images": totals[1] or None}


def about_json(about: About | None) -> dict[str, Any] | None:
    """Return what is published about a data set as JSON values."""
    return None if about is None else dataclasses.asdict(about)


def datasets(
    *, data_dir: str | Path | None = None, plugins: Sequence[str | Path] = ()
) -> list[DatasetRow]:
    """Return every data set that can be named: those of plugins, and those added under a name.

    No data are read; of what was added, only the path is checked.

    Args:
        data_dir: folder of the list of added data sets; by default ``FSF_DATA``, else the
            user's data folder.
        plugins: Python files whose plugin classes are loaded too.

    A damaged list of added data sets is a warning: only the plugins are listed then.

    >>> from fsf_tools import datasets
    >>> [row.state for row in datasets() if row.name == "planted"]
    ['nothing to add']
    """
    session = open_session(plugins=plugins, progress=False)
    added: dict[str, Added] = {}
    try:
        added = read_added(None if data_dir is None else Path(data_dir))
    except DataError as error:
        warnings.warn(f"{error}; added data sets are not known", FsfWarning, stacklevel=2)
    installed = {plugin.name: plugin for plugin in session.registry.plugins("dataset")}
    rows = []
    for plugin in installed.values():
        entry = added.get(plugin.name)
        own = entry if entry is not None and entry.plugin == plugin.name else None
        rows.append(_plugin_row(session, plugin, own))
    for name, entry in added.items():
        if entry.plugin != name:
            rows.append(_alias_row(name, entry, installed))
    return sorted(rows, key=lambda row: row.name)


def _plugin_row(session: Session, plugin: Plugin, entry: Added | None) -> DatasetRow:
    try:
        cls: type[Dataset] = session.registry.load("dataset", plugin.name)
    except PluginError as error:
        return DatasetRow(plugin.name, plugin, str(error), "broken", entry=entry)
    if cls.location is None and cls.argument is None:
        state = "nothing to add"
    else:
        state = "not added" if entry is None else _state(entry)
    if (about := cls.about) is None:
        summary = (inspect.getdoc(cls) or "").partition("\n")[0].replace("``", "")
    else:
        summary = about.title
        if then := None if entry is None else _about_then(entry):
            # It may have been added with another split than the usual one.
            about = dataclasses.replace(about, counts=then.counts)
    return DatasetRow(plugin.name, plugin, summary, state, about, entry, cls)


def _alias_row(name: str, entry: Added, installed: Mapping[str, Plugin]) -> DatasetRow:
    plugin = installed.get(entry.plugin)
    if plugin is None or name in installed:
        why = f"its plugin {entry.plugin!r} is not installed"
        if plugin is not None:
            why = f"a plugin has the same name; fsf data remove {name}"
        return DatasetRow(name, plugin, why, "broken", entry=entry)
    about = _about_then(entry)
    summary = f"your own, read as {entry.plugin}" if about is None else about.title
    return DatasetRow(name, plugin, summary, _state(entry), about, entry)


def _about_then(entry: Added) -> About | None:
    """Return what was published about a data set when it was added."""
    return None if entry.about is None else msgspec.convert(entry.about, About)


def _state(entry: Added) -> str:
    return "added" if Path(entry.place).exists() else "gone"
