"""From names and raw options to resolved, validated components.

A component is a plugin's class with a value for every constructor parameter. Values come from
defaults, a configuration file, the environment or the command line, and each remembers where.
A parameter annotated with an interface takes a component itself, so components nest.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import hashlib
import inspect
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsframework._calls import text_of
from fsframework._digest import digest_of
from fsframework._reading import check_file
from fsframework.components.catalogue import options_added, read_added
from fsframework.components.conversion import (
    convert,
    describe_type,
    nested_kind,
    parameters,
    sequence_kind,
)
from fsframework.components.installed import Plugin
from fsframework.components.options import Given, layer
from fsframework.components.registry import Registry
from fsframework.errors import (
    DataError,
    FsfError,
    FsfWarning,
    OptionError,
    PluginError,
    argument,
    close_matches,
)
from fsframework.interfaces.component import Configurable

if TYPE_CHECKING:
    from fsframework._code import Code
    from fsframework.components.catalogue import Added

__all__ = [
    "Component",
    "canonical",
    "differing",
    "plain",
    "resolve_component",
    "resolve_settings",
]

ADDED_ORIGIN = "fsf data add"
"""Origin of the options of a data set that the user has added under a name."""


@dataclass(frozen=True)
class Component:
    """A plugin and the value of each of its options.

    Args:
        plugin: where it comes from; ``cls`` its class.
        options: converted values, ready for the constructor; a nested component stays one.
        origins: where each value came from; ``default`` for the class's own.
        added_as: the name under which the user has added this data set, if it was requested by
            that name; ``None`` for every other component.
        instance: that the user made, if its state is not what its options make.
    """

    plugin: Plugin
    cls: type[Any]
    options: Mapping[str, Any]
    origins: Mapping[str, str] = field(default_factory=dict)
    added_as: str | None = None
    instance: Any = None

    @property
    def kind(self) -> str:
        """The plugin's kind."""
        return self.plugin.kind

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.plugin.name

    @property
    def called(self) -> str:
        """The component as users name it, such as ``timm:resnet50`` or ``ft:gnn``."""
        name = self.cls.argument
        value = self.options.get(name) if name is not None else None
        if isinstance(value, Component):
            value = value.called
        return self.name if value is None else f"{self.name}:{value}"

    def with_options(self, values: Mapping[str, Any], origin: str) -> Component:
        """Return the component with other values of some options.

        Raises:
            OptionError: it is an instance that was changed after it was made.
        """
        if self.instance is not None and values:
            raise OptionError(
                f"{self.kind} {self.name}: the instance was changed after it was made, so its "
                f"options ({', '.join(values)}) cannot be adapted; give its class with options"
            )
        origins = {**self.origins, **dict.fromkeys(values, origin)}
        return dataclasses.replace(self, options={**self.options, **values}, origins=origins)

    def create(self) -> Any:
        """Construct the component, and those nested in it; of an instance, return a copy.

        Raises:
            FsfError: the constructor refused an option; its message is passed on.
        """
        made = self._constructed() if self.instance is None else self._copied_instance()
        if hasattr(made, "state_dict") and "_modules" not in vars(made):
            raise PluginError(
                f"{self.kind} {self.name}: the constructor of {self.cls.__name__} does not call "
                "super().__init__(), which must come first"
            )
        return made

    def _constructed(self) -> Any:
        options = {key: _created(value) for key, value in self.options.items()}
        try:
            return self.cls(**options)
        except FsfError as error:
            message = f"{self.kind} {self.name}: {error}"
            raise type(error)(message, picture=error.picture) from error
        except (TypeError, ValueError) as error:
            raise OptionError(
                f"{self.kind} {self.name} refuses its options: {text_of(error)}"
            ) from error

    def _copied_instance(self) -> Any:
        if not hasattr(self.instance, "state_dict"):
            return self.instance  # it is only read
        try:
            return copy.deepcopy(self.instance)
        except Exception as error:
            raise OptionError(
                f"{self.kind} {self.name}: the instance cannot be copied ({text_of(error)}); give "
                "its class with options"
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Return name and options as JSON values; nested components likewise."""
        return {"name": self.name, **{k: plain(v) for k, v in self.options.items()}}

    def origins_json(self) -> dict[str, Any]:
        """Return the origin of each value, in the shape of ``to_json``."""
        nested = {k: _nested_origins(v) for k, v in self.options.items() if _components_in(v)}
        return {**self.origins, **nested}

    @functools.cached_property
    def codes(self) -> tuple[Code, ...]:
        """The code of this component and of all nested ones, as it was when first asked for."""
        # Imported late: commands that compute nothing start without it.
        from fsframework._code import code_of

        return tuple(code_of(c.cls, c.instance) for c in self.walk())

    @functools.cached_property
    def fingerprint(self) -> str:
        """Digest of the component: name, version, code, options that are not the defaults.

        The code of a plugin under development changes without its version, and a result of old
        code must not pass for one of new code.
        """
        parts = [code.digest for code in self.codes]
        parts += [_content_digest(value) for c in self.walk() for value in c.read_options()]
        told = [self.kind, self.name, self.plugin.version]
        return digest_of(canonical([told, differing(self.cls, self.options)]), parts)

    def read_options(self) -> list[Any]:
        """Return the values of options that name what a component reads.

        A data set has its own fingerprint; of others, each option that is the path of a file.
        """
        return [
            value
            for option, value in self.options.items()
            if option in self.cls.reads
            or (isinstance(value, Path) and self.kind != "dataset" and value.is_file())
        ]

    def walk(self) -> list[Component]:
        """Return this component and all nested ones."""
        inner = [c for value in self.options.values() for c in _components_in(value)]
        return [self, *(found for c in inner for found in c.walk())]


def differing(cls: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options whose values are not the defaults of a class, nested ones likewise.

    A new option whose default changes nothing thus changes no identity.

    >>> class Toy:
    ...     def __init__(self, *, size: int = 3, depth: int = 1): ...
    >>> differing(Toy, {"size": 4, "depth": 1})
    {'size': 4}
    """
    declared = inspect.signature(cls).parameters
    told = {name: _told(value) for name, value in options.items()}
    return {
        name: value
        for name, value in told.items()
        if (default := declared[name].default) is inspect.Parameter.empty
        or canonical(value) != canonical(default)
    }


def _told(value: Any) -> Any:
    if isinstance(value, Component):
        return {"name": value.name, **differing(value.cls, value.options)}
    if isinstance(value, (tuple, list)):
        return [_told(one) for one in value]
    return value


def _components_in(value: Any) -> list[Component]:
    values = value if isinstance(value, tuple) else (value,)
    return [v for v in values if isinstance(v, Component)]


def _created(value: Any) -> Any:
    if not _components_in(value):
        return value
    return tuple(map(_created, value)) if isinstance(value, tuple) else value.create()


def _nested_origins(value: Any) -> Any:
    if isinstance(value, tuple):
        return [c.origins_json() for c in value]
    return value.origins_json()


def _content_digest(value: Any) -> str:
    """Digest the file, or the files of the folder, that an option names; empty if it names none.

    Another file at the same path makes another component.
    """
    if not isinstance(value, (str, Path)):
        return ""
    # Path refuses unknown users and names that are too long, as other texts may be.
    path = Path(os.path.expanduser(value))  # noqa: PTH111
    files = sorted(path.iterdir()) if os.path.isdir(path) else [path]  # noqa: PTH112
    found = []
    for file in files:
        with contextlib.suppress(OSError):
            stat = check_file(file)
            found += [file.name, _file_digest(file, (stat.st_size, stat.st_ino, stat.st_ctime_ns))]
    return digest_of(found) if found else ""


@functools.lru_cache(maxsize=64)
def _file_digest(path: Path, _state: tuple[int, ...]) -> str:
    """Digest a file; cached until the file changes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values, equal strings.

    >>> canonical({"b": 1, "a": (2, 3)})
    '{"a":[2,3],"b":1}'
    """
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"))


def plain(value: Any) -> Any:
    """Return a value, or what a tree of ``Given`` holds, as JSON values: paths as strings."""
    if isinstance(value, Component):
        return value.to_json()
    if isinstance(value, Given):
        return plain(value.value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if hasattr(value, "dtype") and hasattr(value, "tobytes"):
        return f"array {digest_of(value)}"
    return value


def resolve_component(
    registry: Registry, kind: str, request: Any, *, where: str | None = None
) -> Component:
    """Resolve a name, or a tree of ``Given`` with a ``name``, into a component.

    ``NAME:VALUE`` sets the option that the class names as its ``argument``. The name of a data
    set that the user has added stands for its plugin with the options it was added with; options
    given here take precedence.

    Raises:
        OptionError: an option is unknown, missing or of the wrong type.
        PluginError: the plugin cannot be loaded.
        DataError: an added data set is no longer where it was.
    """
    where = where or kind
    tree = dict(request) if isinstance(request, Mapping) else {"name": request}
    if "name" not in tree:
        known = ", ".join(p.name for p in registry.plugins(kind))
        raise OptionError(
            f"{where} has options but no name; choose a {kind} with {where}.name ({known})"
        )
    given = _as_given(tree.pop("name"))
    name, colon, text = str(given.value).partition(":")
    added = _added_data(registry, name) if kind == "dataset" else {}
    entry, origin = added.get(name), given.origin
    plugin, cls = _load(registry, kind, name, added)
    target = cls.argument
    if colon:
        if target is None:
            raise OptionError(f"{where} {name!r} takes no argument after the colon")
        tree.setdefault(target, dataclasses.replace(given, value=text, instance=None))
    # A plugin's name given with another path does not mean the added data set.
    meant = entry is not None and not (entry.plugin == name and target in tree)
    if entry is not None and meant:
        added_options = options_added(name, entry, tree, target)
        tree = {**layer(added_options, ADDED_ORIGIN, trusted=True), **tree}
        origin = origin if entry.plugin == name else f"{ADDED_ORIGIN}: {name}"
    if kind == "dataset":
        _demand_place(plugin, cls, tree)
    options, origins = _resolve_options(registry, cls, f"{kind} {name!r}", tree, where)
    found = Component(plugin, cls, options, {"name": origin, **origins}, name if meant else None)
    return found if given.instance is None else _with_state(found, given.instance)


def _with_state(component: Component, instance: Any) -> Component:
    """Return the component that an instance is; it keeps what its options do not say."""
    from fsframework._code import state_digest

    same = state_digest(component.create()) == state_digest(instance)
    return component if same else dataclasses.replace(component, instance=instance)


def _added_data(registry: Registry, name: str) -> Mapping[str, Added]:
    """Return the data sets that the user has added, but none where a class has the name.

    Their list concerns only the names in it: for a plugin, a damaged one is only warned of.
    """
    if registry.is_registered("dataset", name):
        return {}
    try:
        return read_added()
    except DataError as error:
        if name not in registry.names("dataset"):
            raise
        warnings.warn(f"{error}; added data sets are not known", FsfWarning, stacklevel=3)
        return {}


def _load(
    registry: Registry, kind: str, name: str, added: Mapping[str, Added]
) -> tuple[Plugin, type[Any]]:
    """Return the plugin that a name stands for, and its class."""
    plugin = added[name].plugin if name in added else name
    if plugin != name and name in registry.names(kind):
        raise PluginError(
            f"{kind} {name!r} is the name of a plugin, and of a data set added as {name!r} "
            f"({plugin}); remove the latter: fsf data remove {name}"
        )
    try:
        found = registry.find(kind, plugin, also=added)
        return found, registry.class_of(found)
    except PluginError as error:
        if plugin != name:
            raise PluginError(f"{kind} {name!r}, added by fsf data add: {error}") from error
        if kind != "backbone" or name in registry.names(kind):
            raise
        raise PluginError(f"{error}{_catalogues(registry)}") from None


def _catalogues(registry: Registry) -> str:
    """Return which backbones take the models of a library by name."""
    found = ""
    for name in registry.names("backbone"):
        with contextlib.suppress(PluginError):
            if catalogue := registry.load("backbone", name).catalogue:
                found += f"; models of {catalogue} are given as {name}:NAME"
    return found


def _demand_place(plugin: Plugin, cls: type[Any], tree: Mapping[str, Any]) -> None:
    """Check that the path of published data is given."""
    name, about, target = plugin.name, cls.about, cls.argument
    if about is None or target is None or target in tree:
        return
    if parameters(cls)[target][1] is inspect.Parameter.empty:
        raise OptionError(
            f"{name}: not added yet; fsf data add {name} {target.upper()}, or "
            f"--dataset {name}:{target.upper()} (where to get it: {about.source})"
        )


def _resolve_options(
    registry: Registry, cls: type[Any], called: str, tree: Mapping[str, Any], where: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the value of each option of a class, and its origin.

    Args:
        cls: whose constructor takes them, a component or a class of settings.
        called: as messages name it.
    """
    known = parameters(cls)
    for key in tree:
        if key not in known:
            allowed = ", ".join(known) or "none"
            raise OptionError(
                f"unknown option {where}.{key}{close_matches(key, known)}; "
                f"options of {called}: {allowed}"
            )
    component = issubclass(cls, Configurable)
    usual = cls.usual_components if component else {}
    options: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key, (annotation, default) in known.items():
        needed = default is inspect.Parameter.empty
        if key in tree or (needed and key in usual):
            raw = tree.get(key, {})
            if isinstance(raw, Mapping) and "name" not in raw and key in usual:
                raw = {"name": Given(usual[key], "default"), **raw}
            options[key], origins[key] = _resolve_option(
                registry, raw, annotation, f"{where}.{key}"
            )
            if component and key in cls.external and options[key] != default:
                _require_trusted(raw, f"{where}.{key}", cls.external[key])
        elif needed:
            hint = f"; write NAME:{key.upper()}" if component and cls.argument == key else ""
            raise OptionError(
                f"{called} needs the option {where}.{key} ({describe_type(annotation)}){hint}"
            )
        else:
            options[key], origins[key] = default, "default"
    return options, origins


def _require_trusted(raw: Any, where: str, effect: str) -> None:
    """Check that the user, and not a file or a record, sets an option that reaches out.

    Raises:
        OptionError: a file or a record does, and the user does not allow it.
    """
    given = _as_given(raw)
    if not given.is_trusted:
        raise OptionError(
            f"{where} is {str(given.value)!r} in {given.origin}, and {effect}; if you want that, "
            f"give {argument(where, str(given.value))} yourself, or allow what files and records "
            f"say with {argument('allow_external', True)}"
        )


def _resolve_option(registry: Registry, raw: Any, annotation: Any, where: str) -> tuple[Any, str]:
    """Return the value of an option that is given, and its origin."""
    kind, many = nested_kind(annotation), sequence_kind(annotation)
    if many is not None:
        return tuple(
            resolve_component(registry, many, one, where=f"{where}.{place}")
            for place, one in enumerate(_listed(raw))
        ), "given"
    if kind is not None:
        return resolve_component(registry, kind, raw, where=where), "given"
    if isinstance(raw, Mapping):
        raise OptionError(f"{where} is a plain option and takes no options itself")
    given = _as_given(raw)
    return convert(given.value, annotation, where), given.origin


def _listed(raw: Any) -> list[Any]:
    """Return the requests for several components: a list of tables, or comma-separated names."""
    if isinstance(raw, list):
        return raw
    given = _as_given(raw)
    names = given.value if isinstance(given.value, list) else str(given.value).split(",")
    parts = (name.strip() if isinstance(name, str) else name for name in names)
    return [layer(part, given.origin, trusted=given.trusted) for part in parts if part]


def resolve_settings(
    cls: type[Any], tree: Mapping[str, Any], where: str
) -> tuple[Any, dict[str, str]]:
    """Construct a settings dataclass from a tree of ``Given``; also return each value's origin.

    Raises:
        OptionError: an unknown key or a value of the wrong type.
    """
    options, origins = _resolve_options(Registry(), cls, where, tree, where)
    return cls(**options), origins


def _as_given(raw: Any) -> Given:
    return raw if isinstance(raw, Given) else Given(raw, "given")
