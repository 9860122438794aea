"""The plugins by kind and name: those of distributions, of files and of scripts.

Listing imports no plugin; loading imports one and reports what is wrong with it in one sentence.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fsframework._calls import remember, text_of, top_level
from fsframework._reading import check_file
from fsframework._text import NAME
from fsframework.components.contracts import check_contract
from fsframework.components.installed import Index, InstalledCommand, Plugin, installed
from fsframework.components.kinds import Kind, interface_of, kind_of
from fsframework.errors import (
    OptionError,
    PluginError,
    UnknownPlugin,
    argument,
    close_matches,
    install_hint,
)
from fsframework.interfaces.command import Command

if TYPE_CHECKING:
    import click

__all__ = ["Registry", "kebab"]


def kebab(name: str) -> str:
    """Return a class name as a plugin name.

    >>> kebab("MyMethod"), kebab("RENet"), kebab("mine")
    ('my-method', 're-net', 'mine')
    """
    parts = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+|[0-9]+", name)
    return "-".join(part.lower() for part in parts)


class Registry:
    """Installed plugins, and those of Python files.

    Args:
        files: whose plugin classes it has too, as those of ``--plugin``.

    >>> registry = Registry()
    >>> {plugin.kind for plugin in registry.plugins()} <= set(registry.kinds)
    True
    """

    def __init__(self, files: Iterable[str | Path] = ()) -> None:
        self._classes: dict[Plugin, type[Any]] = {}
        self._of_files: dict[Plugin, None] = {}
        self._registered: dict[tuple[str, str], Plugin] = {}
        for file in files:
            self.load_file(file)

    @functools.cached_property
    def _index(self) -> Index:
        return installed()

    @functools.cached_property
    def kinds(self) -> Mapping[str, Kind]:
        """Every kind of plugin by name: those of the core, and those that packages declare."""
        return {name: Kind(name, target) for name, target in self._index.kinds.items()}

    @functools.cached_property
    def commands(self) -> Sequence[InstalledCommand]:
        """Every installed command, sorted by path, of which none was imported."""
        found = self._index.commands
        plugins = _with_clashes([(one.plugin, one.command.path) for one in found])
        marked = [replace(one, plugin=plugin) for one, plugin in zip(found, plugins, strict=True)]
        return sorted(marked, key=lambda one: (one.command.path, one.plugin))

    def plugins(self, kind: str | None = None) -> list[Plugin]:
        """Return every plugin, sorted, importing none; clashes and defects are in ``status``."""
        rows = [p for p in (*self._index.plugins, *self._of_files) if kind in (None, p.kind)]
        marked = _with_clashes([(row, ()) for row in rows])
        if kind in (None, "command"):
            marked += [one.plugin for one in self.commands]
        return sorted(marked)

    def names(self, kind: str | None = None) -> list[str]:
        """Return the names of one kind, or of all, sorted."""
        return sorted({plugin.name for plugin in self.plugins(kind)})

    def is_registered(self, kind: str, name: str) -> bool:
        """Whether the name is that of a class of a script."""
        return (kind, name) in self._registered

    def find(self, kind: str, name: str, also: Iterable[str] = ()) -> Plugin:
        """Return the one plugin of this kind and name, importing nothing.

        Args:
            also: other names to suggest in the message.

        Raises:
            UnknownPlugin: there is none.
            OptionError: there is none, and the name is that of a file.
            PluginError: two distributions claim the name.
        """
        if (kind, name) in self._registered:
            return self._registered[kind, name]
        same = [plugin for plugin in self.plugins(kind) if plugin.name == name]
        if not same:
            names = sorted({*self.names(kind), *also})
            hint = close_matches(name, names)
            # A longer list hides the rest of the message.
            names = names if len(names) <= 40 else ["see fsf plugins list"]
            known = ", ".join(names) or f"none installed; {install_hint('fsframework[main]')}"
            if advice := _advise_on_file(kind, name):
                raise OptionError(f"unknown {kind} {name!r}: {advice}")
            raise UnknownPlugin(f"unknown {kind} {name!r}{hint}; known: {known}")
        if len(same) > 1:
            raise _claimed(kind, name, same)
        return same[0]

    def load(self, kind: str, name: str) -> type[Any]:
        """Import and return the class of one plugin.

        Args:
            kind: one of ``kinds``; a command has no class, see ``load_command``.
            name: of the plugin.

        Raises:
            PluginError: it is unknown, ambiguous, cannot be imported, is of the wrong type or
                abstract.
        """
        return self.class_of(self.find(kind, name))

    def class_of(self, plugin: Plugin) -> type[Any]:
        """Import and return the class of a plugin that was found; see ``load``."""
        if plugin not in self._classes:
            self._require_sound(plugin)
            cls = self._import(plugin)
            self._check_class(plugin, cls)
            self._remember(plugin, cls)
        return self._classes[plugin]

    def _remember(self, plugin: Plugin, cls: type[Any]) -> Plugin:
        if not re.fullmatch(NAME, plugin.name):
            raise PluginError(
                f"{plugin.kind} {cls.__name__}: its name must be lower-case kebab, such as "
                f"my-{plugin.kind}, not {plugin.name!r}"
            )
        check_contract(plugin, interface_of(cls), cls.contract)
        self._classes[plugin] = cls
        remember(cls, plugin.kind, plugin.name, plugin.check)
        return plugin

    def register(self, kind: str, cls: type[Any]) -> Plugin:
        """Register a class of a script; it takes precedence over a plugin of the same name.

        Raises:
            PluginError: it is abstract.
        """
        if inspect.isabstract(cls):
            raise PluginError(f"{kind} {cls.__name__} {_abstract(cls)}")
        target = f"{cls.__module__}:{cls.__qualname__}"
        # A class of a script does not hand its name down to those derived from it.
        plugin = Plugin(kind, _name_of(cls, vars(cls).get("name")), target, "a script", "-")
        self._registered[kind, plugin.name] = self._remember(plugin, cls)
        return plugin

    def describe_command(self, name: str) -> Command:
        """Return the description of one command without importing it.

        Raises:
            PluginError: it is unknown, two distributions claim its name or path, or its description
                is damaged.
        """
        plugin = self.find("command", name)
        command = next(one.command for one in self.commands if one.plugin == plugin)
        same = [one.plugin for one in self.commands if one.command.path == command.path]
        if len(same) > 1:
            raise _claimed("command", " ".join(command.path), same)
        self._require_sound(plugin)
        return command

    def load_command(self, name: str) -> click.Command:
        """Import and return one command.

        Args:
            name: of its entry point, which need not be its path.

        Raises:
            PluginError: it is unknown, ambiguous, cannot be imported, or is not a click command.
        """
        import click

        described = self.describe_command(name)
        plugin = self.find("command", name)
        check_contract(plugin, Command, described.contract)
        found = self._import(plugin)
        if not isinstance(found, click.Command):
            cause = f"is of type {type(found).__name__}, not a click command"
            raise _failure(plugin, cause, "make it one with @click.command() or @click.group()")
        return found

    def load_file(self, path: str | Path) -> list[Plugin]:
        """Load the plugin classes of a Python file; each is named after its class in kebab case.

        Args:
            path: a ``.py`` file that defines at least one concrete subclass of an interface. A
                class attribute ``name`` overrides the name.

        Raises:
            PluginError: the file is missing, fails on import or defines no plugin.
        """
        path = Path(path)
        try:
            check_file(path)
        except FileNotFoundError:
            raise PluginError(f"plugin file {path}: no such file") from None
        except OSError as error:
            raise PluginError(f"plugin file {path}: cannot be read ({error.strerror})") from None
        module = _import_file(path)
        classes = [one for one in vars(module).values() if inspect.isclass(one)]
        own: list[type[Any]] = [cls for cls in classes if cls.__module__ == module.__name__]
        found = []
        for cls in own:
            kind = None if inspect.isabstract(cls) else kind_of(cls)
            if kind not in (None, "command"):
                plugin = Plugin(kind, _name_of(cls, cls.name), str(path), "a file", "-")
                found.append(self._remember(plugin, cls))
                self._of_files[plugin] = None
        if not found:
            why = [f"; {cls.__name__} {_abstract(cls)}" for cls in own if inspect.isabstract(cls)]
            modules = [cls.__name__ for cls in own if hasattr(cls, "state_dict")]
            hint = f"; in Python fsf.run(backbone={modules[0]}()) takes a module" if modules else ""
            raise PluginError(
                f"plugin file {path}: defines no class derived from one of fsframework.interfaces, "
                f"such as FewShotMethod or Backbone{''.join(why) or hint}"
            )
        return found

    def _import(self, plugin: Plugin) -> Any:
        """Import a plugin; whatever that raises is one sentence, and must not end ``fsf``."""
        try:
            with redirect_stdout(sys.stderr):  # what a plugin prints is not for ``--json``
                return pkgutil.resolve_name(plugin.target)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            hint = "reinstall the distribution"
            if isinstance(error, ModuleNotFoundError):
                hint = _hint_on_missing(plugin.distribution, top_level(error.name or "")) or hint
            raise _failure(plugin, f"cannot be imported: {text_of(error)}", hint) from error

    def _check_class(self, plugin: Plugin, cls: Any) -> None:
        kind = self.kinds[plugin.kind]
        try:
            interface = kind.load()
        except Exception as error:
            cause = f"is of a kind whose interface {kind.target} cannot be imported"
            raise _failure(plugin, f"{cause}: {text_of(error)}", "reinstall it") from error
        if not inspect.isclass(cls) or not issubclass(cls, interface):
            is_class = inspect.isclass(cls)
            what = f"class {cls.__name__}" if is_class else f"a {type(cls).__name__}"
            cause = f"is {what}, not a subclass of {interface.__name__}"
            raise _failure(plugin, cause, f"derive it from {kind.target.replace(':', '.')}")
        if inspect.isabstract(cls):
            raise _failure(plugin, _abstract(cls), "implement them")

    def _require_sound(self, plugin: Plugin) -> None:
        if plugin.status != "ok":
            raise _failure(plugin, f"is {plugin.status}", "reinstall or repair the distribution")


def _hint_on_missing(distribution: str, module: str) -> str:
    """Return how a module that a distribution of this project needs is installed, else nothing."""
    from importlib.metadata import PackageNotFoundError, requires  # late: few imports fail

    with suppress(PackageNotFoundError):
        for requirement in (distribution.startswith("fsf-") and requires(distribution)) or ():
            needed, _, marker = requirement.partition(";")
            if re.split(r"[^\w-]", needed)[0].replace("-", "_") == module:
                extra = re.search(r"extra == .([\w-]+)", marker)
                return install_hint(distribution + (f"[{extra[1]}]" if extra else ""))
    return ""


def _with_clashes(rows: Sequence[tuple[Plugin, tuple[str, ...]]]) -> list[Plugin]:
    """Return plugins whose status names those of the same kind and name, or the same path.

    Args:
        rows: each with its path, which is empty but for commands.
    """
    same: dict[tuple[str, ...], list[Plugin]] = defaultdict(list)
    for plugin, path in rows:
        same[plugin.kind, plugin.name].append(plugin)
        same[("", *path)].append(plugin)
    found = []
    for plugin, path in rows:
        rivals = [*same[plugin.kind, plugin.name], *(same[("", *path)] if path else ())]
        others = [f"{p.distribution} ({p.name})" for p in dict.fromkeys(rivals) if p is not plugin]
        clash = f"clash: also from {', '.join(others)}"
        found.append(replace(plugin, status=clash) if others else plugin)
    return found


def _claimed(kind: str, name: str, plugins: Sequence[Plugin]) -> PluginError:
    files = [p.target for p in plugins if p.version == "-"]
    others = [p for p in plugins if p.version != "-"]
    claims = " and ".join([*(f"{p.distribution} {p.version} ({p.target})" for p in others), *files])
    remedy = "uninstall one of them"
    if files:
        packages = [p.distribution for p in others]
        remedy = " or uninstall ".join([f"rename the class in {files[-1]}", *packages])
    return PluginError(f"{kind} {name!r} is claimed by {claims}; {remedy}")


_UNREAD = (".h5", ".keras", ".npz", ".onnx", ".tflite")
_WEIGHTS = (".bin", ".ckpt", ".pkl", ".pt", ".pth", ".safetensors", ".tar", *_UNREAD)
_TABLES = (".csv", ".parquet", ".tsv", ".txt", ".xlsx")
_ARCHIVES = (".7z", ".bz2", ".gz", ".rar", ".tar", ".tgz", ".xz", ".zip")
_ENDINGS = {
    "backbone": _WEIGHTS,
    "method": _WEIGHTS,
    "dataset": (*_TABLES, *_ARCHIVES),
    "detector": _TABLES,
    "sampler": (".json", ".jsonl", ".safetensors"),
}
"""Of files that users name in place of a plugin, by its kind."""


def _advise_on_file(kind: str, name: str) -> str:
    """Return how a file or folder is given that is named in place of a plugin, else nothing."""
    suffix = Path(name).suffix.lower()
    if suffix == ".py":
        return (
            f"classes in a file are loaded with {argument('plugins', [name])}, and named like the "
            f"class in lower case, such as my-{kind} for My{kind.capitalize()}"
        )
    is_path = os.path.exists(name) or (kind == "dataset" and Path(name).name != name)  # noqa: PTH110
    if suffix not in _ENDINGS.get(kind, ()) and not is_path:
        return ""
    file = "FILE.pth" if suffix in _UNREAD else name
    weights = (
        f"weights, as PyTorch saves them (not {', '.join(_UNREAD)}), are given with their network, "
        f"{argument('backbone', {'name': 'timm:NAME', 'weights': file})}, or with "
        f"{argument('training.init_from', file)}; in Python, backbone takes any torch.nn.Module"
    )
    place = "csv" if suffix in _TABLES and not os.path.isdir(name) else "folder"  # noqa: PTH112
    words = f"captions in a file are captions-file:{name}, words {argument('attributes', name)}"
    tasks = f"tasks in a file are given with {argument('task_file', name)}"
    advice = {"backbone": weights, "method": weights, "detector": words, "sampler": tasks}
    return {**advice, "dataset": f"did you mean {place}:{name}?"}.get(kind, "")


def _failure(plugin: Plugin, cause: str, hint: str) -> PluginError:
    return PluginError(f"{plugin.described()} {cause} (hint: {hint})")


def _abstract(cls: type[Any]) -> str:
    return f"is abstract: it lacks {', '.join(sorted(cls.__abstractmethods__))}"


def _name_of(cls: type[Any], own: str | None) -> str:
    """Return the name of a class without an entry point: its own, or the class's in kebab case."""
    return own if isinstance(own, str) else kebab(cls.__name__)


def _import_file(path: Path) -> ModuleType:
    """Import a file from its text: bytecode of an earlier text may have its size and time."""
    from fsframework._digest import digest_of  # late: hashlib takes a while

    path = path.absolute()
    # Files of one name in two folders are two modules.
    name = f"fsframework_plugin_{digest_of(str(path))[:12]}"
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with redirect_stdout(sys.stderr):
            exec(loader.source_to_code(path.read_bytes(), str(path)), vars(module))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        raise PluginError(f"plugin file {path}: cannot be imported: {text_of(error)}") from error
    return module
