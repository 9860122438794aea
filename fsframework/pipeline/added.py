"""Adding a data set: its layout found, its counts compared, its name usable from then on."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fsframework._files import atomic_write, explain_os_error
from fsframework.components.catalogue import (
    DECLARATIONS,
    Added,
    added_folder,
    change_added,
    read_added,
)
from fsframework.components.registry import Plugin, Registry
from fsframework.components.resolution import Component, parameters, resolve_component
from fsframework.errors import DataError, OptionError, PluginError, close_matches
from fsframework.interfaces.dataset import About, Dataset

__all__ = [
    "AddedReport",
    "DataRow",
    "SplitCounts",
    "about_json",
    "add_dataset",
    "data_problems",
    "data_rows",
    "remove_dataset",
    "split_counts",
    "usage",
]

_DETECTOR = "appearance"
"""The detector that needs nothing but the images."""
_WHOLE = "all"
"""Under which counts of a whole data set are published, where those of its splits are not."""
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class SplitCounts:
    """Classes and images of a split, and as published; ``None`` where nothing is.

    Where 0 images are published, only the number of classes is.
    """

    name: str
    classes: int
    images: int
    published: tuple[int, int] | None = None

    @property
    def as_published(self) -> bool:
        """Whether the counts are those published, or none are."""
        if self.published is None:
            return True
        classes, images = self.published
        return classes == self.classes and images in (0, self.images)


@dataclass(frozen=True)
class AddedReport:
    """What was found when a data set was added.

    Args:
        replaced: where the name pointed before, if it did.
        layout: name of the layout that was found, where the data set tells.
        usage: the command that measures on it.
    """

    name: str
    entry: Added
    about: About | None
    splits: tuple[SplitCounts, ...]
    layout: str = ""
    replaced: Added | None = None
    usage: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "name": self.name,
            **self.entry.to_json(),
            "layout": self.layout or None,
            "usage": self.usage,
            "splits": [vars(split) for split in self.splits],
            "about": about_json(self.about),
            "replaced": None if self.replaced is None else self.replaced.to_json(),
        }


def about_json(about: About | None) -> dict[str, Any] | None:
    """Return what is published of a data set as JSON values."""
    if about is None:
        return None
    plain = {"counts": dict(about.counts), "layouts": dict(about.layouts)}
    return {**vars(about), **plain, "splits": {k: dict(v) for k, v in about.splits.items()}}


def usage(registry: Registry, name: str, *, words: bool) -> str:
    """Return the command that measures on a data set, which works without any download.

    Args:
        words: whether the images have attribute words; without, they are to be detected.
    """
    command = f"fsf run --dataset {name}"
    if words:
        return command
    detects = _DETECTOR in registry.names("detector")
    return f"{command} --detector {_DETECTOR}" if detects else f"{command} --sampler random"


def split_counts(dataset: Dataset) -> tuple[SplitCounts, ...]:
    """Count every split of a data set, those published but absent included.

    Classes without an image do not count.
    """
    sizes = np.bincount(dataset.labels, minlength=len(dataset.class_names))
    by_name = dict(zip(dataset.class_names, sizes.tolist(), strict=True))
    published = {} if dataset.about is None else dataset.about.counts
    found = []
    for split in dict.fromkeys([*dataset.splits, *published]):
        whole = split == _WHOLE and split not in dataset.splits
        names = dataset.class_names if whole else dataset.splits.get(split, ())
        held = [by_name.get(name, 0) for name in names]
        classes, images = sum(size > 0 for size in held), sum(held)
        found.append(SplitCounts(split, classes, images, _pair(published.get(split))))
    return tuple(found)


def _pair(counts: tuple[int, int] | None) -> tuple[int, int] | None:
    return None if counts is None else (counts[0], counts[1])


def data_problems(dataset: Dataset) -> list[str]:
    """Return what is wrong with data that can be used, a sentence each.

    A data set speaks for itself; of one that finds nothing wrong the counts are compared with those
    published.
    """
    own = dataset.problems()
    if own or dataset.about is None:
        return own
    return [
        f"split {split.name}: {split.classes:,} classes and {split.images:,} images, published are "
        f"{split.published[0]:,}"
        + (f" and {split.published[1]:,}" if split.published[1] else " classes")
        for split in split_counts(dataset)
        if not split.as_published and split.published is not None
    ]


def add_dataset(
    registry: Registry,
    name: str,
    path: Path,
    *,
    alias: str | None = None,
    options: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> AddedReport:
    """Find a data set where the user says it lies, and keep it under its name.

    Args:
        name: of a data set that takes a path, or the TOML file of a declaration.
        path: where the images lie.
        alias: the name it is to have; by default its own.
        options: further options of the data set, as ``Given`` or plain values.
        folder: where what was added is kept; see ``added_folder``.

    Raises:
        OptionError: the name is none that can be added, or an alias that is taken.
        DataError: what lies at ``path`` is not this data set; nothing is kept.
    """
    # What another version wrote, or a damaged list, should be told before a long search.
    read_added(folder)
    tree = dict(options or {})
    declaration = Path(name) if name.endswith(".toml") else None
    if declaration is not None:
        called = alias or _declared_name(declaration)
        plugin, declared_by = _reader_of_declarations(registry, declaration)
        tree[declared_by] = declaration.absolute()
    else:
        plugin, called, declared_by = name, alias or name, ""
    _check_name(registry, called, plugin, own=alias is None and declaration is None)
    target = _target(registry, plugin)
    if target in tree:
        raise OptionError(f"-o {target}: is what PATH says already; leave it out")
    tree[target] = path.expanduser().absolute()
    component = resolve_component(registry, "dataset", {"name": plugin, **tree})
    dataset: Dataset = component.create()
    splits = split_counts(dataset)
    kept = {key: value for key, value in component.to_json().items() if key in tree}
    kept |= {key: _absolute(component, key) for key in kept if _is_path(component, key)}
    copies, content = _copies(called, folder), {}
    if declaration is not None:
        content = _content(declaration, called)
        kept[declared_by] = str(copies / f"{called}.toml")
    entry = Added(
        plugin,
        kept,
        {s.name: (s.classes, s.images) for s in splits if s.name in dataset.splits},
        tuple(data_problems(dataset)),
        dataset.fingerprint,
        datetime.now(UTC).isoformat(timespec="seconds"),
        about_json(dataset.about),
        tuple(dataset.metadata),
    )
    before: list[Added] = []

    def put(entries: dict[str, Added]) -> None:
        if called in entries:
            before.append(entries[called])
        entries[called] = entry

    change_added(put, folder, _replaced(copies, content))
    return AddedReport(
        called,
        entry,
        dataset.about,
        splits,
        dataset.layout,
        before[0] if before else None,
        usage(registry, called, words="words" in dataset.metadata),
    )


def remove_dataset(name: str, folder: Path | None = None) -> Added:
    """Forget a data set that was added; its files stay as they are.

    Raises:
        OptionError: nothing was added under this name.
    """
    gone: list[Added] = []

    def drop(entries: dict[str, Added]) -> None:
        if name not in entries:
            known = ", ".join(entries) or "nothing"
            raise OptionError(
                f"{name}: not added{close_matches(name, entries)}; added are: {known}"
            )
        gone.append(entries.pop(name))

    change_added(drop, folder, _replaced(_copies(name, folder), {}))
    return gone[0]


def _check_name(registry: Registry, called: str, plugin: str, *, own: bool) -> None:
    """See to it that a name can be used, and is no plugin's unless the plugin is meant."""
    if own:
        return
    if not _NAME.fullmatch(called):
        raise OptionError(
            f"{called!r} cannot be the name of a data set; it takes lower-case letters and digits "
            "in words joined by hyphens, such as my-birds"
        )
    if called in registry.names("dataset"):
        hint = f"; to add it: fsf data add {called} PATH" if called != plugin else ""
        raise OptionError(f"{called!r} is the name of a data set that is installed{hint}")


def _target(registry: Registry, plugin: str) -> str:
    """Return the option that says where the data lie."""
    cls: type[Dataset] = registry.load("dataset", plugin).cls
    target = cls.location or cls.argument
    if target is None or target not in parameters(cls):
        raise OptionError(f"{plugin}: there is nothing to add, it takes no path; name it as it is")
    return target


def _reader_of_declarations(registry: Registry, declaration: Path) -> tuple[str, str]:
    """Return the plugin that reads declarations, and its option that takes the file.

    Raises:
        PluginError: no plugin reads declarations, or several do.
    """
    found = {}
    for plugin in registry.plugins("dataset"):
        try:
            cls: type[Dataset] = registry.load("dataset", plugin.name).cls
        except PluginError:
            continue  # a broken plugin must not stand in the way of the others
        if cls.declared_by is not None:
            found[plugin.name] = cls.declared_by
    if not found:
        raise PluginError(f"{declaration}: no plugin is installed that reads declarations")
    if len(found) > 1:
        raise PluginError(
            f"{declaration}: the plugins {' and '.join(found)} all read declarations; uninstall "
            "all but one of them"
        )
    [(name, option)] = found.items()
    return name, option


def _declared_name(declaration: Path) -> str:
    """Return the name that a declaration gives itself.

    Raises:
        DataError: the file is missing, not TOML, or gives no name.
    """
    try:
        raw = tomllib.loads(declaration.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{declaration}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{declaration}: not TOML ({error})") from None
    except OSError as error:
        raise DataError(f"{declaration}: {error.strerror}") from None
    name = raw.get("name")
    if not isinstance(name, str):
        raise DataError(f"{declaration}: must give the data set a name, such as name = 'my-birds'")
    return name


def _copies(called: str, folder: Path | None) -> Path:
    return (added_folder(folder) / DECLARATIONS / called).absolute()


def _content(declaration: Path, called: str) -> dict[str, bytes]:
    """Return a declaration and the files it names, to be copied beside the list.

    They are to outlive the originals.

    Raises:
        DataError: it names a file that does not lie beside or below it.
    """
    home, text = declaration.absolute().parent, declaration.read_bytes()
    named = _files_named(tomllib.loads(text.decode("utf-8")), home)
    for name in named:
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise DataError(f"{declaration}: names {name}, which must lie beside it or below")
    return {name: (home / name).read_bytes() for name in named} | {f"{called}.toml": text}


@contextmanager
def _replaced(folder: Path, content: Mapping[str, bytes]) -> Iterator[None]:
    """Let a folder hold these files and no others, or be gone; as before if the block fails.

    For one process at a time. What another left behind when it was killed is removed.
    """
    fresh, former = (folder.with_name(f".{folder.name}.{which}") for which in ("new", "old"))
    placed = False
    try:
        if former.exists() and not folder.exists():
            former.rename(folder)
        for left in (fresh, former):
            shutil.rmtree(left, ignore_errors=True)
        for name, data in content.items():
            atomic_write(fresh / name, data)
        if folder.exists():
            folder.rename(former)
        if content:
            fresh.rename(folder)
            placed = True
        yield
    except BaseException as error:
        if placed:
            shutil.rmtree(folder, ignore_errors=True)
        if former.exists():
            former.rename(folder)
        if isinstance(error, OSError):
            raise explain_os_error(error, folder) from error
        raise
    finally:
        for left in (fresh, former):
            shutil.rmtree(left, ignore_errors=True)


def _files_named(value: Any, home: Path) -> list[str]:
    """Return the files that a declaration names by ``file``, relative to where it lies."""
    if isinstance(value, list):
        return [name for inner in value for name in _files_named(inner, home)]
    if not isinstance(value, Mapping):
        return []
    found = [name for inner in value.values() for name in _files_named(inner, home)]
    name = value.get("file")
    return [*found, name] if isinstance(name, str) and (home / name).is_file() else found


def _is_path(component: Component, key: str) -> bool:
    return isinstance(component.options.get(key), Path)


def _absolute(component: Component, key: str) -> str:
    return str(Path(component.options[key]).expanduser().absolute())


@dataclass(frozen=True)
class DataRow:
    """A data set as a list shows it.

    Args:
        name: by which it is given to ``--dataset``, after it was added where it must be.
        usage: how to name it where it was not added: ``folder:PATH``.
        plugin: ``None`` for a plugin that could not be found.
        summary: what it is, or why it cannot be used.
        state: ``nothing to add``, ``not added``, ``added``, ``gone`` or ``broken``.
        entry: what was added under this name.
    """

    name: str
    usage: str
    plugin: Plugin | None
    summary: str
    state: str
    about: About | None = None
    entry: Added | None = None

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
        """The state as a person reads it, with the place."""
        if self.entry is None:
            return self.state
        return self.short_state.replace("added", f"added: {self.entry.place}", 1)

    @property
    def short_state(self) -> str:
        """The state as a person reads it."""
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
            "usage": self.usage,
            "summary": self.summary,
            "state": self.state,
            "found": _counts_json(self.found),
            "published": _counts_json(self.published),
            "added": None if self.entry is None else self.entry.to_json(),
            "about": about_json(self.about),
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


def data_rows(registry: Registry, folder: Path | None = None) -> list[DataRow]:
    """Return every data set that can be named: those of plugins, and those added under a name.

    Looks at no data, but for whether what was added is still there.
    """
    added, rows = read_added(folder), []
    plugins = registry.plugins("dataset")
    for plugin in plugins:
        entry = added.get(plugin.name)
        own = entry if entry is not None and entry.plugin == plugin.name else None
        rows.append(_plugin_row(registry, plugin, own))
    by_name = {plugin.name: plugin for plugin in plugins}
    for name, entry in added.items():
        if entry.plugin != name:
            rows.append(_alias_row(registry, name, entry, by_name.get(entry.plugin)))
    return sorted(rows, key=lambda row: row.name)


def _plugin_row(registry: Registry, plugin: Plugin, entry: Added | None) -> DataRow:
    name = plugin.name
    try:
        cls = registry.load("dataset", name).cls
    except PluginError as error:
        return DataRow(name, name, plugin, str(error), "broken", entry=entry)
    if cls.location is None and cls.argument is None:
        state = "nothing to add"
    else:
        state = "not added" if entry is None else _state(entry)
    about = cls.about
    if about is not None and entry is not None and entry.about is not None:
        # It may have been added with another split than the usual one.
        about = dataclasses.replace(about, counts=_pairs(entry.about["counts"]))
    return DataRow(name, _named_in_full(name, cls), plugin, _summary(cls), state, about, entry)


def _named_in_full(name: str, cls: type[Dataset]) -> str:
    """Return how a data set that was not added is named: ``folder:PATH``."""
    usage = name
    if cls.argument is not None:
        usage += ":FILE.toml" if cls.argument == cls.declared_by else f":{cls.argument.upper()}"
    if cls.location is not None:
        usage += f" -o dataset.{cls.location}={cls.location.upper()}"
    return usage


def _alias_row(registry: Registry, name: str, entry: Added, plugin: Plugin | None) -> DataRow:
    if plugin is None:
        why = f"its plugin {entry.plugin!r} is not installed"
        return DataRow(name, name, None, why, "broken", entry=entry)
    if name in registry.names("dataset"):
        why = f"a plugin has the same name; fsf data remove {name}"
        return DataRow(name, name, plugin, why, "broken", entry=entry)
    about = _about_of(entry)
    summary = f"your own, read as {entry.plugin}" if about is None else about.title
    return DataRow(name, name, plugin, summary, _state(entry), about, entry)


def _about_of(entry: Added) -> About | None:
    """Return what was published of a data set when it was added."""
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
