"""Data sets by name: those that are installed, and those that the user has added."""

from __future__ import annotations

import dataclasses
import inspect
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsframework.api.experiments import ORIGIN
from fsframework.components.catalogue import (
    Added,
    change_added,
    declaration_folder,
    read_added,
    replaced_files,
)
from fsframework.components.registry import Plugin, Registry
from fsframework.components.resolution import Component, Given, parameters, resolve_component
from fsframework.errors import DataError, FsfWarning, OptionError, PluginError, close_matches
from fsframework.interfaces.dataset import About, Dataset
from fsframework.pipeline.published_counts import SplitCounts, data_problems, split_counts

__all__ = [
    "Added",
    "AddedDataset",
    "DatasetRow",
    "SplitCounts",
    "add_dataset",
    "datasets",
    "problems_of",
    "remove_dataset",
]

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class AddedDataset:
    """What was found when a data set was added.

    Args:
        name: under which it was added.
        entry: what is stored about it.
        about: what is published about it, if anything.
        splits: classes and images of each split, and as published.
        layout: name of the layout that was found, if the data set reports it.
        replaced: the earlier entry of this name, if any.
    """

    name: str
    entry: Added
    about: About | None
    splits: tuple[SplitCounts, ...]
    layout: str = ""
    replaced: Added | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "name": self.name,
            **self.entry.to_json(),
            "layout": self.layout or None,
            "splits": [vars(split) for split in self.splits],
            "about": _about_json(self.about),
            "replaced": None if self.replaced is None else self.replaced.to_json(),
        }


def add_dataset(
    data: str,
    path: str | Path,
    *,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    declaration: Mapping[str, bytes] | None = None,
    data_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
) -> AddedDataset:
    """Register where a data set is stored, so that every command and call can use its name.

    Nothing is copied or changed. Classes and images are counted, and compared with those published.

    Args:
        data: name of a data set that takes a path (see ``datasets``).
        path: a folder or file.
        name: for your own data, such as those of ``folder``; by default ``data``.
        options: of the data set.
        declaration: for a data set that reads declarations: the declaration, then the files that
            it names, by their paths relative to it. Copies are stored and read from then on.
        data_dir: folder of the list of added data sets; by default ``FSF_DATA``, else the
            user's data folder.
        plugins: Python files whose plugin classes are loaded too.

    Raises:
        OptionError: the data set takes no path, an option is wrong, or the name is taken.
        DataError: what is at ``path`` is not this data set; nothing is stored.

    >>> import fsframework as fsf
    >>> fsf.add_dataset("folder", "images", name="My Birds")
    Traceback (most recent call last):
        ...
    fsframework.errors.OptionError: 'My Birds' cannot be the name of a data set; use lower-case
    letters and digits in words joined by hyphens, such as my-birds
    """
    registry, folder = _registry(plugins), _folder(data_dir)
    # A damaged list, or one of a newer version, should be reported before a long search.
    read_added(folder)
    called = name or data
    _check_name(registry, called, data)
    cls: type[Dataset] = registry.load("dataset", data).cls
    target = _target(cls, data)
    tree = {key: Given(value, ORIGIN) for key, value in (options or {}).items()}
    if target in tree:
        raise OptionError(f"the option {target} is already set by the path; leave it out")
    tree[target] = Given(Path(path).expanduser().absolute(), ORIGIN)
    component = resolve_component(registry, "dataset", {"name": data, **tree})
    dataset: Dataset = component.create()
    splits = split_counts(dataset)
    kept = _kept_options(component, tree)
    copies = declaration_folder(called, folder)
    if declaration and cls.declared_by is not None:
        kept[cls.declared_by] = str(copies / next(iter(declaration)))
    entry = Added(
        plugin=data,
        options=kept,
        counts={s.name: (s.classes, s.images) for s in splits if s.name in dataset.splits},
        problems=tuple(data_problems(dataset)),
        fingerprint=dataset.fingerprint,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        about=_about_json(dataset.about),
        columns=tuple(dataset.metadata),
        place=str(kept[target]),
    )
    before: list[Added] = []

    def put(entries: dict[str, Added]) -> None:
        if called in entries:
            before.append(entries[called])
        entries[called] = entry

    change_added(put, folder, replaced_files(copies, declaration or {}))
    replaced = before[0] if before else None
    return AddedDataset(called, entry, dataset.about, splits, dataset.layout, replaced)


def remove_dataset(name: str, *, data_dir: str | Path | None = None) -> Added:
    """Forget a data set that was added; its files stay as they are.

    Returns:
        The removed entry.

    Raises:
        OptionError: nothing was added under this name.
    """
    gone: list[Added] = []
    folder = _folder(data_dir)

    def drop(entries: dict[str, Added]) -> None:
        if name not in entries:
            known = ", ".join(entries) or "none"
            raise OptionError(
                f"no data set {name!r} was added{close_matches(name, entries)}; added: {known}"
            )
        gone.append(entries.pop(name))

    change_added(drop, folder, replaced_files(declaration_folder(name, folder), {}))
    return gone[0]


def problems_of(dataset: Dataset) -> list[str]:
    """Return what is wrong with data that can be used, one sentence per problem.

    These are the problems that the data set itself reports, else how its counts differ from those
    published.
    """
    return data_problems(dataset)


def _registry(plugins: Sequence[str | Path]) -> Registry:
    registry = Registry()
    for path in plugins:
        registry.load_file(Path(path))
    return registry


def _folder(data_dir: str | Path | None) -> Path | None:
    return None if data_dir is None else Path(data_dir)


def _check_name(registry: Registry, called: str, plugin: str) -> None:
    """Check that a name is well formed, and is not that of another plugin."""
    if called == plugin:
        return
    if not _NAME.fullmatch(called):
        raise OptionError(
            f"{called!r} cannot be the name of a data set; use lower-case letters and digits in "
            "words joined by hyphens, such as my-birds"
        )
    if called in registry.names("dataset"):
        raise OptionError(
            f"{called!r} is the name of a data set that is installed; choose another name, or add "
            f"that one: fsf data add {called} PATH"
        )


def _target(cls: type[Dataset], plugin: str) -> str:
    """Return the option that holds the path of the data."""
    target = cls.location or cls.argument
    if target is None or target not in parameters(cls):
        raise OptionError(f"{plugin} takes no path, so there is nothing to add; use it by its name")
    return target


def _kept_options(component: Component, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options given as JSON values, paths absolute."""
    kept = {key: value for key, value in component.to_json().items() if key in given}
    for key in kept:
        if isinstance(component.options.get(key), Path):
            kept[key] = str(component.options[key].expanduser().absolute())
    return kept


@dataclass(frozen=True)
class DatasetRow:
    """A data set as a list shows it.

    Args:
        name: its name, usable once it is added, if it needs to be.
        named: how to name it if it is not added: ``folder:PATH``.
        plugin: ``None`` for a plugin that could not be found.
        summary: what it is, or why it cannot be used.
        state: ``nothing to add``, ``not added``, ``added``, ``gone`` or ``broken``.
        about: what is published about it.
        entry: what was added under this name.
        argument: the option that ``NAME:VALUE`` sets, in capitals as help shows it; ``None`` for
            data that take no value.
        declared_by: the option that takes a declaration, if it reads any.
    """

    name: str
    named: str
    plugin: Plugin | None
    summary: str
    state: str
    about: About | None = None
    entry: Added | None = None
    argument: str | None = None
    declared_by: str | None = None

    @property
    def totals(self) -> tuple[int, int] | None:
        """Classes and images of all splits as they were when it was added, else as published."""
        return self.found or self.published

    @property
    def found(self) -> tuple[int, int] | None:
        """Classes and images of all splits when it was added."""
        return None if self.entry is None else _sums(self.entry.counts)

    @property
    def published(self) -> tuple[int, int] | None:
        """Classes and images of all splits as published."""
        return None if self.about is None else _sums(self.about.counts)

    @property
    def state_text(self) -> str:
        """The state as text, with the path."""
        if self.entry is None:
            return self.state
        return self.short_state.replace("added", f"added: {self.entry.place}", 1)

    @property
    def short_state(self) -> str:
        """The state as text."""
        if self.entry is None:
            return self.state
        if self.state == "gone":
            return "added, but gone"
        number = len(self.entry.problems)
        if number:
            return f"added, {number} problem{'s' if number > 1 else ''}"
        return "added, complete" if self.published is not None else "added"

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {
            "name": self.name,
            "usage": self.named,
            "summary": self.summary,
            "state": self.state,
            "found": _counts_json(self.found),
            "published": _counts_json(self.published),
            "added": None if self.entry is None else self.entry.to_json(),
            "about": _about_json(self.about),
            "distribution": None if self.plugin is None else self.plugin.distribution,
            "version": None if self.plugin is None else self.plugin.version,
        }


def _sums(counts: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    if not counts:
        return None
    return sum(c for c, _ in counts.values()), sum(n for _, n in counts.values())


def _counts_json(totals: tuple[int, int] | None) -> dict[str, int | None] | None:
    if totals is None:
        return None
    return {"classes": totals[0], "images": totals[1] or None}


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

    >>> import fsframework as fsf
    >>> [row.state for row in fsf.datasets() if row.name == "planted"]
    ['nothing to add']
    """
    registry = _registry(plugins)
    rows: list[DatasetRow] = []
    added: dict[str, Added] = {}
    try:
        added = read_added(_folder(data_dir))
    except DataError as error:
        warnings.warn(f"{error}; added data sets are not known", FsfWarning, stacklevel=2)
    found = registry.plugins("dataset")
    for plugin in found:
        entry = added.get(plugin.name)
        own = entry if entry is not None and entry.plugin == plugin.name else None
        rows.append(_plugin_row(registry, plugin, own))
    by_name = {plugin.name: plugin for plugin in found}
    for name, entry in added.items():
        if entry.plugin != name:
            rows.append(_alias_row(registry, name, entry, by_name.get(entry.plugin)))
    return sorted(rows, key=lambda row: row.name)


def _plugin_row(registry: Registry, plugin: Plugin, entry: Added | None) -> DatasetRow:
    name = plugin.name
    try:
        cls = registry.load("dataset", name).cls
    except PluginError as error:
        return DatasetRow(name, name, plugin, str(error), "broken", entry=entry)
    if cls.location is None and cls.argument is None:
        state = "nothing to add"
    else:
        state = "not added" if entry is None else _state(entry)
    about = cls.about
    if about is not None and entry is not None and entry.about is not None:
        # It may have been added with another split than the usual one.
        about = dataclasses.replace(about, counts=_pairs(entry.about["counts"]))
    argument = None if cls.argument is None else _argument(cls)
    named = name if argument is None else f"{name}:{argument}"
    if cls.location is not None:
        named += f" -o dataset.{cls.location}={cls.location.upper()}"
    return DatasetRow(
        name, named, plugin, _summary(cls), state, about, entry, argument, cls.declared_by
    )


def _argument(cls: type[Dataset]) -> str:
    assert cls.argument is not None
    return "FILE.toml" if cls.argument == cls.declared_by else cls.argument.upper()


def _alias_row(registry: Registry, name: str, entry: Added, plugin: Plugin | None) -> DatasetRow:
    if plugin is None:
        why = f"its plugin {entry.plugin!r} is not installed"
        return DatasetRow(name, name, None, why, "broken", entry=entry)
    if name in registry.names("dataset"):
        why = f"a plugin has the same name; fsf data remove {name}"
        return DatasetRow(name, name, plugin, why, "broken", entry=entry)
    about = _about_of(entry)
    summary = f"your own, read as {entry.plugin}" if about is None else about.title
    return DatasetRow(name, name, plugin, summary, _state(entry), about, entry)


def _about_of(entry: Added) -> About | None:
    """Return what was published about a data set when it was added."""
    if entry.about is None:
        return None
    known = {field.name for field in dataclasses.fields(About)}
    raw = {key: value for key, value in entry.about.items() if key in known}
    raw["counts"] = _pairs(raw["counts"])
    raw["splits"] = {name: _pairs(counts) for name, counts in raw.get("splits", {}).items()}
    raw |= {key: tuple(raw.get(key, ())) for key in ("images_from", "notes")}
    return About(**raw)


def _pairs(counts: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    return {split: (c, n) for split, (c, n) in counts.items()}


def _state(entry: Added) -> str:
    return "added" if Path(entry.place).exists() else "gone"


def _summary(cls: type[Any]) -> str:
    if isinstance(cls.about, About):
        return cls.about.title
    return (inspect.getdoc(cls) or "").partition("\n")[0].replace("``", "")


def _about_json(about: About | None) -> dict[str, Any] | None:
    """Return what is published about a data set as JSON values."""
    if about is None:
        return None
    plain = {"counts": dict(about.counts), "layouts": dict(about.layouts)}
    return {**vars(about), **plain, "splits": {k: dict(v) for k, v in about.splits.items()}}
