"""Data sets under names of the user's choice: added to a list, and removed from it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from fsf_tools.data._copies import changed_list, copies_folder, replaced_files
from fsf_tools.data.catalogue import about_json, datasets
from fsf_tools.data.declarations import content_of, declared_name, reader_of
from fsframework.api.components import Added, Component, component, read_added
from fsframework.api.data import SplitCounts, data_problems, split_counts
from fsframework.api.session import Session, open_session
from fsframework.errors import OptionError, close_matches
from fsframework.interfaces import About, Dataset

__all__ = ["AddedDataset", "add_dataset", "remove_dataset"]

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
            **msgspec.to_builtins(self.entry),
            "layout": self.layout or None,
            "splits": [vars(split) for split in self.splits],
            "about": about_json(self.about),
            "replaced": None if self.replaced is None else msgspec.to_builtins(self.replaced),
        }


def add_dataset(
    data: str | Path,
    path: str | Path,
    *,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    data_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
) -> AddedDataset:
    """Register where a data set is stored, so that every command and call can use its name.

    Nothing is copied or changed. Classes and images are counted, and compared with those published.

    Args:
        data: name of a data set that takes a path (see ``datasets``); or a declaration,
            a file whose name ends in ``.toml``, of which a copy is stored.
        path: a folder or file.
        name: for your own data, such as those of ``folder``; by default that of the data set.
        options: of the data set.
        data_dir: folder of the list of added data sets; by default ``FSF_DATA``, else the
            user's data folder.
        plugins: Python files whose plugin classes are loaded too.

    Raises:
        OptionError: the data set takes no path, an option is wrong, or the name is taken.
        DataError: what is at ``path`` is not this data set, or the declaration is wrong; nothing
            is stored.

    >>> from fsf_tools.data.adding import add_dataset
    >>> add_dataset("folder", "images", name="My Birds")
    Traceback (most recent call last):
        ...
    fsframework.errors.OptionError: 'My Birds' cannot be the name of a data set; use lower-case
    letters and digits in words joined by hyphens, such as my-birds
    """
    session, folder = open_session(plugins=plugins, progress=False), _folder(data_dir)
    # A damaged list, or one of a newer version, should be reported before a long search.
    read_added(folder)
    tree, files = dict(options or {}), dict[str, bytes]()
    plugin, declared_by = str(data), None
    if plugin.endswith(".toml"):
        declaration = Path(data)
        name = name or declared_name(declaration)
        plugin, declared_by = reader_of(declaration, datasets(data_dir=folder, plugins=plugins))
        tree[declared_by] = declaration.absolute()
        files = content_of(declaration, name)
    called = name or plugin
    _check_name(session, called, plugin)
    target = _target(session, plugin)
    if target in tree:
        raise OptionError(f"the option {target} is already set by the path; leave it out")
    tree[target] = Path(path).expanduser().absolute()
    chosen = component(session.registry, "dataset", plugin, tree)
    copies = copies_folder(called, folder)
    kept = _kept_options(chosen, tree)
    if declared_by is not None:
        kept[declared_by] = str(copies / next(iter(files)))
    dataset: Dataset = chosen.create()
    splits = split_counts(dataset)
    entry = Added(
        plugin=plugin,
        options=kept,
        counts={s.name: (s.classes, s.images) for s in splits if s.name in dataset.splits},
        problems=tuple(data_problems(dataset)),
        fingerprint=dataset.fingerprint,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        about=about_json(dataset.about),
        columns=tuple(dataset.metadata),
        place=str(kept[target]),
    )
    with changed_list(folder) as (entries, write):
        replaced = entries.get(called)
        entries[called] = entry
        with replaced_files(copies, files):
            write()
    return AddedDataset(called, entry, dataset.about, splits, dataset.layout, replaced)


def remove_dataset(name: str, *, data_dir: str | Path | None = None) -> Added:
    """Forget a data set that was added; its files stay as they are.

    Returns:
        The removed entry.

    Raises:
        OptionError: nothing was added under this name.
    """
    folder = _folder(data_dir)
    with changed_list(folder) as (entries, write):
        if name not in entries:
            known = ", ".join(entries) or "none"
            raise OptionError(
                f"no data set {name!r} was added{close_matches(name, entries)}; added: {known}"
            )
        gone = entries.pop(name)
        with replaced_files(copies_folder(name, folder), {}):
            write()
    return gone


def _folder(data_dir: str | Path | None) -> Path | None:
    return None if data_dir is None else Path(data_dir)


def _check_name(session: Session, called: str, plugin: str) -> None:
    """Check that a name is well formed, and is not that of another plugin."""
    if called == plugin:
        return
    if not _NAME.fullmatch(called):
        raise OptionError(
            f"{called!r} cannot be the name of a data set; use lower-case letters and digits in "
            "words joined by hyphens, such as my-birds"
        )
    if called in session.registry.names("dataset"):
        raise OptionError(
            f"{called!r} is the name of a data set that is installed; choose another name, or add "
            f"that one: fsf data add {called} PATH"
        )


def _target(session: Session, plugin: str) -> str:
    """Return the option that holds the path of the data."""
    cls: type[Dataset] = session.registry.load("dataset", plugin)
    if (target := cls.location or cls.argument) is None:
        raise OptionError(f"{plugin} takes no path, so there is nothing to add; use it by its name")
    return target


def _kept_options(chosen: Component, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options given as JSON values, paths absolute."""
    kept = {key: value for key, value in chosen.to_json().items() if key in given}
    for key in kept:
        if isinstance(chosen.options.get(key), Path):
            kept[key] = str(chosen.options[key].expanduser().absolute())
    return kept
