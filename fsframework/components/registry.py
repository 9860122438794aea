"""The only file that knows entry points and stevedore.

Listing reads the metadata of installed distributions and imports no plugin; loading imports the
one that was asked for and says what is wrong with it in one sentence.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from types import ModuleType
from typing import Any

from fsframework.errors import PluginError, close_matches

__all__ = ["GROUPS", "KINDS", "Loaded", "Plugin", "Registry", "kebab", "kind_of"]

KINDS: dict[str, tuple[str, str]] = {
    "backbone": ("fsframework.backbones", "Backbone"),
    "dataset": ("fsframework.datasets", "Dataset"),
    "detector": ("fsframework.detectors", "AttributeDetector"),
    "importer": ("fsframework.importers", "CheckpointImporter"),
    "method": ("fsframework.methods", "FewShotMethod"),
    "sampler": ("fsframework.samplers", "TaskSampler"),
    "selector": ("fsframework.selectors", "WordSelector"),
    "statistic": ("fsframework.statistics", "Statistic"),
}
"""Each kind's entry-point group and the name of its interface."""

GROUPS: dict[str, str] = {group: kind for kind, (group, _) in KINDS.items()}

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def kebab(name: str) -> str:
    """Return a class name as a plugin name.

    >>> kebab("MyMethod"), kebab("RENet"), kebab("mine")
    ('my-method', 're-net', 'mine')
    """
    parts = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+|[0-9]+", name)
    return "-".join(part.lower() for part in parts)


@dataclass(frozen=True, order=True)
class Plugin:
    """What is known of a plugin without importing it.

    Args:
        kind: one of ``KINDS``.
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

    def described(self) -> str:
        """Return kind, name, target, distribution and version for a message."""
        if self.version == "-":
            return f"{self.kind} {self.name!r} ({self.target})"
        return f"{self.kind} {self.name!r} ({self.target}, from {self.distribution} {self.version})"


@dataclass(frozen=True)
class Loaded:
    """A plugin with its class."""

    plugin: Plugin
    cls: type[Any]


@functools.lru_cache(maxsize=1024)
def _module_exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def _status(entry: EntryPoint) -> str:
    """Say what can be told about an entry point without importing it."""
    if not _NAME.fullmatch(entry.name):
        return "broken: the name is not lower-case kebab"
    if not re.fullmatch(r"[\w.]+:[\w.]+", entry.value):
        return f"broken: the target {entry.value!r} is not module:attribute"
    top = entry.value.partition(":")[0].partition(".")[0]
    return "ok" if _module_exists(top) else f"broken: no module named {top!r}"


def _entries(found: Iterable[Distribution]) -> list[tuple[str, EntryPoint, Distribution]]:
    return [
        (GROUPS[entry.group], entry, distribution)
        for distribution in found
        for entry in distribution.entry_points
        if entry.group in GROUPS
    ]


class Registry:
    """Installed plugins, and those of files given with ``--plugin``.

    >>> registry = Registry()
    >>> {plugin.kind for plugin in registry.plugins()} <= set(KINDS)
    True
    """

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], Loaded] = {}
        self._registered: dict[tuple[str, str], Loaded] = {}

    @functools.cached_property
    def _installed(self) -> tuple[Plugin, ...]:
        # An editable install can stand on the path twice; equal name and target are one plugin.
        unique: dict[tuple[str, str, str], Plugin] = {}
        for kind, entry, distribution in _entries(distributions()):
            row = Plugin(
                kind,
                entry.name,
                entry.value,
                distribution.metadata["Name"] or "unknown",
                distribution.version,
                _status(entry),
            )
            unique.setdefault((kind, entry.name, entry.value), row)
        return tuple(sorted(unique.values()))

    def plugins(self, kind: str | None = None) -> list[Plugin]:
        """Return every plugin, sorted, importing none; clashes and defects are in ``status``."""
        rows = [*self._installed, *(loaded.plugin for loaded in self._files.values())]
        by_name: dict[tuple[str, str], list[Plugin]] = defaultdict(list)
        for row in rows:
            by_name[row.kind, row.name].append(row)
        marked = []
        for same in by_name.values():
            for row in same:
                others = [o.distribution for o in same if o is not row]
                status = f"clash: also from {', '.join(others)}" if others else row.status
                marked.append(
                    Plugin(row.kind, row.name, row.target, row.distribution, row.version, status)
                )
        return sorted(p for p in marked if kind in (None, p.kind))

    def names(self, kind: str) -> list[str]:
        """Return the names of one kind, sorted."""
        return sorted({plugin.name for plugin in self.plugins(kind)})

    def find(self, kind: str, name: str, also: Iterable[str] = ()) -> Plugin:
        """Return the one plugin of this kind and name, importing nothing.

        Args:
            also: what else could have been meant, for the message.

        Raises:
            PluginError: there is none, or two distributions claim the name.
        """
        if (kind, name) in self._registered:
            return self._registered[kind, name].plugin
        same = [plugin for plugin in self.plugins(kind) if plugin.name == name]
        if not same:
            names = sorted({*self.names(kind), *also})
            hint = close_matches(name, names)
            known = ", ".join(names) or "none is installed"
            if kind == "dataset" and Path(name).exists():
                hint = f" (did you mean {'folder' if Path(name).is_dir() else 'csv'}:{name}?)"
            raise PluginError(f"unknown {kind} {name!r}{hint}; known: {known}")
        if len(same) > 1:
            claims = " and ".join(f"{p.distribution} {p.version} ({p.target})" for p in same)
            raise PluginError(f"{kind} {name!r} is claimed by {claims}; uninstall one of them")
        return same[0]

    def load(self, kind: str, name: str, also: Iterable[str] = ()) -> Loaded:
        """Import and return the class of one plugin.

        Args:
            also: see ``find``.

        Raises:
            PluginError: it is unknown, ambiguous, cannot be imported, is of the wrong type or
                abstract.
        """
        plugin = self.find(kind, name, also)
        if (kind, name) in self._registered:
            return self._registered[kind, name]
        if (kind, name) in self._files:
            return self._files[kind, name]
        if plugin.status != "ok":
            raise self._failure(plugin, plugin.status, "reinstall or repair the distribution")
        cls = self._import(plugin)
        self._check_class(plugin, cls)
        return Loaded(plugin, cls)

    def register(self, loaded: Loaded) -> Plugin:
        """Take a class of a script; its name goes before any plugin's of the same name."""
        self._registered[loaded.plugin.kind, loaded.plugin.name] = loaded
        return loaded.plugin

    def load_file(self, path: str | Path) -> list[Loaded]:
        """Take the plugin classes of a Python file; each is named by its class in kebab case.

        Args:
            path: a ``.py`` file that defines at least one concrete subclass of an interface. A
                class attribute ``name`` overrides the name.

        Raises:
            PluginError: the file is missing, fails on import or defines no plugin.
        """
        path = Path(path)
        if not path.is_file():
            raise PluginError(f"--plugin {path}: no such file")
        module = _import_file(path)
        found = []
        for cls in vars(module).values():
            if not inspect.isclass(cls) or cls.__module__ != module.__name__:
                continue
            kind = kind_of(cls)
            if kind is None or inspect.isabstract(cls):
                continue
            name = getattr(cls, "name", None)
            name = name if isinstance(name, str) else kebab(cls.__name__)
            loaded = Loaded(Plugin(kind, name, str(path), "a file", "-"), cls)
            self._files[kind, name] = loaded
            found.append(loaded)
        if not found:
            interfaces = ", ".join(sorted(name for _, name in KINDS.values()))
            raise PluginError(f"--plugin {path}: defines no concrete subclass of {interfaces}")
        return found

    def _import(self, plugin: Plugin) -> Any:
        from stevedore.named import NamedExtensionManager

        group = KINDS[plugin.kind][0]
        failures: list[BaseException] = []
        try:
            manager: Any = NamedExtensionManager(
                group,
                [plugin.name],
                invoke_on_load=False,
                on_load_failure_callback=lambda _m, _e, error: failures.append(error),
                on_missing_entrypoints_callback=lambda _missing: None,
            )
            classes = [extension.plugin for extension in manager.extensions]
            if not classes and not failures:
                # stevedore remembers a group for the life of the process; pip may have added to it.
                classes = [EntryPoint(plugin.name, plugin.target, group).load()]
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # stevedore lets AssertionError and SystemExit through; a plugin must not end us.
            failures.append(error)
            classes = []
        if classes:
            return classes[0]
        cause = failures[0]
        text = f"{type(cause).__name__}: {cause}"
        hint = "reinstall the distribution"
        if isinstance(cause, ModuleNotFoundError):
            hint = f"is a dependency missing? try: pip install {cause.name}"
        raise self._failure(plugin, f"cannot be imported: {text}", hint) from cause

    def _check_class(self, plugin: Plugin, cls: Any) -> None:
        interface_name = KINDS[plugin.kind][1]
        interface = _interface(plugin.kind)
        if not inspect.isclass(cls) or not issubclass(cls, interface):
            what = (
                f"a {type(cls).__name__}" if not inspect.isclass(cls) else f"class {cls.__name__}"
            )
            raise self._failure(
                plugin,
                f"is {what}, not a subclass of {interface_name}",
                f"derive it from fsframework.interfaces.{interface_name}",
            )
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            raise self._failure(plugin, f"is abstract: it lacks {missing}", "implement them")

    @staticmethod
    def _failure(plugin: Plugin, cause: str, hint: str) -> PluginError:
        return PluginError(f"{plugin.described()} {cause} (hint: {hint})")


def _interface(kind: str) -> type[Any]:
    interfaces = importlib.import_module("fsframework.interfaces")
    cls: type[Any] = getattr(interfaces, KINDS[kind][1])
    return cls


def kind_of(cls: type[Any]) -> str | None:
    """Return the kind of a plugin's class, ``None`` for any other class."""
    interfaces = {
        base.__name__
        for base in cls.__mro__
        if base.__module__.startswith("fsframework.interfaces")
    }
    return next((kind for kind, (_, name) in KINDS.items() if name in interfaces), None)


def _import_file(path: Path) -> ModuleType:
    name = f"fsframework_plugin_{path.stem}"
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        raise PluginError(
            f"--plugin {path}: cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return module
