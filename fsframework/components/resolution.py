"""From names and raw options to resolved, validated components.

A component is a plugin's class with a value for every constructor parameter. Values come from
defaults, a configuration file, the environment or the command line, and each remembers where.
A parameter annotated with an interface takes a component itself, so components nest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import json
import math
import os
import re
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union

from fsframework._calls import text_of
from fsframework._digest import digest_of
from fsframework._numbers import parse_number
from fsframework._reading import check_file
from fsframework.components.kinds import kind_of
from fsframework.components.options import Given
from fsframework.components.registry import Loaded, Registry
from fsframework.errors import (
    DataError,
    FsfError,
    FsfWarning,
    OptionError,
    PluginError,
    close_matches,
)

if TYPE_CHECKING:
    from fsframework.components.catalogue import Added

__all__ = [
    "ADDED_ORIGIN",
    "Component",
    "canonical",
    "convert",
    "describe_type",
    "differing",
    "parameters",
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
        loaded: the plugin and its class.
        options: converted values, ready for the constructor; a nested component stays one.
        origins: where each value came from; ``default`` for the class's own.
        added_as: the name under which the user has added this data set, if it was requested by
            that name; ``None`` for every other component.
    """

    loaded: Loaded
    options: Mapping[str, Any]
    origins: Mapping[str, str] = field(default_factory=dict)
    added_as: str | None = None

    @property
    def kind(self) -> str:
        """The plugin's kind."""
        return self.loaded.plugin.kind

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.loaded.plugin.name

    @property
    def called(self) -> str:
        """The component as users name it, such as ``timm:resnet50`` or ``ft:gnn``."""
        argument = self.cls.argument
        value = self.options.get(argument) if argument is not None else None
        if isinstance(value, Component):
            value = value.called
        return self.name if value is None else f"{self.name}:{value}"

    @property
    def cls(self) -> type[Any]:
        """The plugin's class."""
        return self.loaded.cls

    def with_options(self, values: Mapping[str, Any], origin: str) -> Component:
        """Return the component with other values of some options."""
        origins = {**self.origins, **dict.fromkeys(values, origin)}
        return dataclasses.replace(self, options={**self.options, **values}, origins=origins)

    def create(self) -> Any:
        """Construct the component, and those nested in it.

        Raises:
            FsfError: the constructor refused an option; its message is passed on.
        """
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

    def to_json(self) -> dict[str, Any]:
        """Return name and options as JSON values; nested components likewise."""
        return {"name": self.name, **{k: plain(v) for k, v in self.options.items()}}

    def origins_json(self) -> dict[str, Any]:
        """Return the origin of each value, in the shape of ``to_json``."""
        nested = {k: _nested_origins(v) for k, v in self.options.items() if _components_in(v)}
        return {**self.origins, **nested}

    @property
    def fingerprint(self) -> str:
        """Digest of the component: name, version, source code, options that are not the defaults.

        The code of a plugin under development changes without its version, and a result of old
        code must not pass for one of new code.
        """
        # Imported late: commands that compute nothing start without it.
        from fsframework.components.code import code_digest

        parts = [code_digest(c.cls) for c in self.walk()]
        parts += [
            _content_digest(c.options.get(option)) for c in self.walk() for option in c.cls.reads
        ]
        told = [self.kind, self.name, self.loaded.plugin.version]
        return digest_of(canonical([told, differing(self.cls, self.options)]), parts)

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


def parameters(cls: type[Any]) -> dict[str, tuple[Any, Any]]:
    """Return each option of a class: its annotation and default (``inspect.Parameter.empty``).

    >>> class Toy:
    ...     def __init__(self, *, size: int = 3): ...
    >>> parameters(Toy)
    {'size': (<class 'int'>, 3)}
    """
    return dict(_parameters(cls))  # type: ignore[arg-type]  # mypy does not take a class as hashable


@functools.lru_cache(maxsize=256)
def _parameters(cls: type[Any]) -> Mapping[str, tuple[Any, Any]]:
    """Read the options of a class once; a sweep asks for them again and again."""
    if cls.__init__ is object.__init__:
        return {}
    try:
        hints = typing.get_type_hints(cls.__init__)
    except NameError as error:
        raise PluginError(
            f"{cls.__module__}.{cls.__qualname__}: an option's type cannot be resolved at run "
            f"time ({error}); import it outside TYPE_CHECKING"
        ) from None
    found = {}
    for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        found[name] = (hints.get(name, Any), parameter.default)
    return found


def _nested_kind(annotation: Any) -> str | None:
    """Return the kind of component an annotation asks for, if it asks for one."""
    union = typing.get_origin(annotation) in (Union, types.UnionType)
    options = typing.get_args(annotation) if union else (annotation,)
    for option in options:
        if inspect.isclass(option) and (kind := kind_of(option)):
            return kind
    return None


def _sequence_kind(annotation: Any) -> str | None:
    """Return the kind of component that an annotation asks for any number of, if it does."""
    if typing.get_origin(annotation) is not tuple:
        return None
    return _nested_kind(typing.get_args(annotation)[0])


def describe_type(annotation: Any) -> str:
    """Return a description of the values that an annotation admits."""
    kind = _nested_kind(annotation)
    if kind is not None:
        return f"a {kind}"
    many = _sequence_kind(annotation)
    if many is not None:
        return f"{many}s, separated by commas"
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(map(str, args))
    if origin in (Union, types.UnionType):
        return " or ".join("none" if a is type(None) else describe_type(a) for a in args)
    if origin in (tuple, list):
        return "a list of " + describe_type(args[0] if args else Any)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(annotation, "a path" if annotation is Path else "a value")


_UNFIT = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""What a conversion raises for a value that does not fit."""


def convert(value: Any, annotation: Any, where: str) -> Any:
    """Convert a raw value (from TOML, or text from the command line) to an annotated type.

    Raises:
        OptionError: it does not fit; the message names ``where``, the type and the value.

    >>> convert("0.2", float, "method.temperature")
    0.2
    >>> convert("a,b", tuple[str, ...], "x")
    ('a', 'b')
    """
    try:
        return _convert(value, annotation)
    except (*_UNFIT, RecursionError):
        words = typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()
        hint = close_matches(str(value), map(str, words))
        message = f"{where} must be {describe_type(annotation)}, not {value!r}{hint}"
        raise OptionError(message) from None


def _convert(value: Any, annotation: Any) -> Any:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return value
    if origin is Literal:
        return {str(allowed): allowed for allowed in args}[str(value)]
    if origin in (Union, types.UnionType):
        return _convert_union(value, args)
    if origin in (tuple, list):
        return _convert_sequence(value, origin, args)
    if annotation in _PLAIN:
        return _PLAIN[annotation](value)
    if inspect.isclass(annotation) and isinstance(value, annotation):
        return value
    raise ValueError


def _convert_union(value: Any, args: tuple[Any, ...]) -> Any:
    if type(None) in args and (value is None or str(value).lower() == "none"):
        return None
    for option in args:
        if option is type(None):
            continue
        try:
            return _convert(value, option)
        except _UNFIT:
            continue
    raise ValueError


def _convert_sequence(value: Any, origin: Any, args: tuple[Any, ...]) -> Any:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, (list, tuple)):
        raise ValueError
    if origin is tuple and args and args[-1] is not Ellipsis:
        if len(value) != len(args):
            raise ValueError
        return tuple(_convert(v, a) for v, a in zip(value, args, strict=True))
    return origin(_convert(v, args[0] if args else Any) for v in value)


def _bool(value: Any) -> bool:
    known = {"true": True, "yes": True, "on": True, "1": True}
    known |= {"false": False, "no": False, "off": False, "0": False}
    return value if isinstance(value, bool) else known[value.lower()]


def _int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, str) and not _INTEGER.fullmatch(value)):
        raise ValueError
    if isinstance(value, float) and not value.is_integer():
        raise ValueError
    return int(value)


def _float(value: Any) -> float:
    number = parse_number(value) if isinstance(value, str) else float(value)
    if isinstance(value, bool) or number is None or not math.isfinite(number):
        raise ValueError
    return number


def _text(value: Any) -> str:
    if not isinstance(value, (str, Path)) or "\0" in str(value):
        raise ValueError
    return str(value)


_INTEGER = re.compile(r"[ \t\r\n]*[+-]?[0-9]+[ \t\r\n]*")
_PLAIN: Mapping[Any, Callable[[Any], Any]] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: _text,
    Path: lambda value: Path(_text(value)),
}
"""How a raw value becomes one of a plain type."""


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
    name_given = _as_given(tree.pop("name"))
    name, colon, argument = str(name_given.value).partition(":")
    added, fault = _added_if_readable() if kind == "dataset" else ({}, None)
    if fault is not None and name not in registry.names(kind):
        raise fault
    entry = added.get(name)
    loaded = _load(registry, kind, name, entry, added)
    origin = name_given.origin
    target = loaded.cls.argument
    if colon:
        if target is None:
            raise OptionError(f"{where} {name!r} takes no argument after the colon")
        tree.setdefault(target, Given(argument, origin))
    added_as = None
    if entry is not None and not (entry.plugin == name and target in tree):
        # A plugin's name given with another path does not mean the added data set.
        added_as = name
        _add_added(tree, name, entry, target)
        if entry.plugin != name:
            origin = f"{ADDED_ORIGIN}: {name}"
    if kind == "dataset" and target is not None and target not in tree:
        _demand_place(loaded, target, fault)
    if fault is not None:
        warnings.warn(f"{fault}; added data sets are not known", FsfWarning, stacklevel=2)
    cls = loaded.cls
    taker = _Known(cls, f"{kind} {name!r}", cls.argument, cls.usual_components)
    options, origins = _resolve_options(registry, taker, tree, where)
    return Component(loaded, options, {"name": origin, **origins}, added_as)


def _added_if_readable() -> tuple[dict[str, Added], DataError | None]:
    """Return the added data sets; none, and the reason, if their list cannot be read."""
    # Imported late: it takes as long as the rest of this module, and most calls need no data set.
    from fsframework.components.catalogue import read_added

    try:
        return read_added(), None
    except DataError as error:
        return {}, error


def _load(
    registry: Registry, kind: str, name: str, entry: Added | None, added: Mapping[str, Added]
) -> Loaded:
    """Load the plugin that a name stands for."""
    if entry is None:
        if kind == "backbone" and name not in registry.names(kind):
            _explain_unknown(registry, kind, name)
        return registry.load(kind, name, also=added)
    if entry.plugin != name and name in registry.names(kind):
        raise PluginError(
            f"{kind} {name!r} is the name of a plugin, and of a data set added as {name!r} "
            f"({entry.plugin}); remove the latter: fsf data remove {name}"
        )
    try:
        return registry.load(kind, entry.plugin)
    except PluginError as error:
        raise PluginError(f"{kind} {name!r}, added by fsf data add: {error}") from error


def _explain_unknown(registry: Registry, kind: str, name: str) -> None:
    """Raise the error for an unknown backbone, naming the plugins that take models by name."""
    holders = []
    for plugin in registry.plugins(kind):
        try:
            catalogue = registry.load(kind, plugin.name).cls.catalogue
        except PluginError:
            continue
        if catalogue:
            holders.append(f"; models of {catalogue} are given as {plugin.name}:NAME")
    try:
        registry.find(kind, name)
    except PluginError as error:
        raise PluginError(f"{error}{''.join(holders)}") from None


def _add_added(tree: dict[str, Any], name: str, entry: Added, target: str | None) -> None:
    """Add the options that a data set was added with, unless they are given otherwise."""
    unsaid = {key: value for key, value in entry.options.items() if key not in tree}
    tree |= {key: Given(value, ADDED_ORIGIN) for key, value in unsaid.items()}
    if target in unsaid:
        place = Path(str(unsaid[target]))
        if not place.exists():
            raise DataError(
                f"{name} was added from {place}, which no longer exists; add it again from its "
                f"new place, or remove it: fsf data remove {name}"
            )


def _demand_place(loaded: Loaded, target: str, fault: DataError | None) -> None:
    """Check that the path of published data is given.

    Args:
        fault: why it is not known whether the data set was added.
    """
    about = loaded.cls.about
    if about is None or parameters(loaded.cls)[target][1] is not inspect.Parameter.empty:
        return
    if fault is not None:
        raise fault
    name = loaded.plugin.name
    raise OptionError(
        f"{name}: not added yet; fsf data add {name} {target.upper()}, or "
        f"--dataset {name}:{target.upper()} (where to get it: {about.source})"
    )


@dataclass(frozen=True)
class _Known:
    """What is known about the options of a class before any has a value.

    Args:
        cls: whose constructor takes them.
        called: as messages name it.
        argument: the option that ``NAME:VALUE`` sets.
        usual: name of the component of an option whose tree has no name, and of an option that is
            not given and has no default.
    """

    cls: type[Any]
    called: str
    argument: str | None = None
    usual: Mapping[str, str] = field(default_factory=dict)


def _resolve_options(
    registry: Registry, of: _Known, tree: dict[str, Any], where: str
) -> tuple[dict[str, Any], dict[str, str]]:
    known = parameters(of.cls)
    for key in tree:
        if key not in known:
            allowed = ", ".join(known) or "none"
            raise OptionError(
                f"unknown option {where}.{key}{close_matches(key, known)}; "
                f"options of {of.called}: {allowed}"
            )
    tree = dict(tree)
    for key, (_, default) in known.items():
        if default is inspect.Parameter.empty and key in of.usual:
            tree.setdefault(key, {})
    options: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key, (annotation, default) in known.items():
        if key in tree:
            value = _resolve_option(
                registry, tree[key], annotation, of.usual.get(key), f"{where}.{key}"
            )
            options[key], origins[key] = value
        elif default is inspect.Parameter.empty:
            hint = f"; write NAME:{key.upper()}" if of.argument == key else ""
            raise OptionError(
                f"{of.called} needs the option {where}.{key} ({describe_type(annotation)}){hint}"
            )
        else:
            options[key], origins[key] = default, "default"
    return options, origins


def _resolve_option(
    registry: Registry, raw: Any, annotation: Any, usual: str | None, where: str
) -> tuple[Any, str]:
    """Return the value of an option that is given, and its origin.

    Args:
        usual: the component that options without a name are for.
        where: the option's name in messages.
    """
    kind, many = _nested_kind(annotation), _sequence_kind(annotation)
    if many is not None:
        return tuple(
            resolve_component(registry, many, one, where=f"{where}.{place}")
            for place, one in enumerate(_listed(raw))
        ), "given"
    if kind is not None:
        if isinstance(raw, Mapping) and "name" not in raw and usual is not None:
            raw = {"name": Given(usual, "default"), **raw}
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
    return [Given(name.strip(), given.origin) for name in names if name.strip()]


def resolve_settings(
    cls: type[Any], tree: Mapping[str, Any], where: str
) -> tuple[Any, dict[str, str]]:
    """Construct a settings dataclass from a tree of ``Given``; also return each value's origin.

    Raises:
        OptionError: an unknown key or a value of the wrong type.
    """
    options, origins = _resolve_options(Registry(), _Known(cls, where), dict(tree), where)
    return cls(**options), origins


def _as_given(raw: Any) -> Given:
    return raw if isinstance(raw, Given) else Given(raw, "given")
