"""The options of a class, and raw values brought to their types."""

from __future__ import annotations

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Union

from fsframework._reading import parse_number
from fsframework.components.kinds import kind_of
from fsframework.errors import OptionError, PluginError, close_matches

__all__ = ["convert", "describe_type", "nested_kind", "parameters", "sequence_kind"]


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


def nested_kind(annotation: Any) -> str | None:
    """Return the kind of component an annotation asks for, if it asks for one."""
    union = typing.get_origin(annotation) in (Union, types.UnionType)
    options = typing.get_args(annotation) if union else (annotation,)
    for option in options:
        if inspect.isclass(option) and (kind := kind_of(option)):
            return kind
    return None


def sequence_kind(annotation: Any) -> str | None:
    """Return the kind of component that an annotation asks for any number of, if it does."""
    if typing.get_origin(annotation) is not tuple:
        return None
    return nested_kind(typing.get_args(annotation)[0])


def describe_type(annotation: Any) -> str:
    """Return a description of the values that an annotation admits."""
    if (kind := nested_kind(annotation)) is not None:
        return f"a {kind}"
    if (many := sequence_kind(annotation)) is not None:
        return f"{many}s, separated by commas"
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(map(str, args))
    if origin in (Union, types.UnionType):
        return " or ".join("none" if a is type(None) else describe_type(a) for a in args)
    if origin in (tuple, list):
        many = f"{len(args)} comma-separated values, each" if args[1:] else "a list of"
        many = "a list of" if Ellipsis in args else many
        return f"{many} {describe_type(args[0] if args else Any)}"
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
    value = value.tolist() if hasattr(value, "tolist") else value  # an array or a tensor
    value = sorted(value) if isinstance(value, (set, frozenset)) else value
    if not isinstance(value, (list, tuple)):
        raise ValueError
    if origin is tuple and args and args[-1] is not Ellipsis:
        if len(value) != len(args):
            raise ValueError
        return tuple(_convert(v, a) for v, a in zip(value, args, strict=True))
    return origin(_convert(v, args[0] if args else Any) for v in value)


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = ("true", "yes", "on", "1", "false", "no", "off", "0")
    return words.index(value.lower()) < 4


def _int(value: Any) -> int:
    if not _float(value).is_integer():
        raise ValueError
    return int(value)


def _float(value: Any) -> float:
    number = parse_number(value) if isinstance(value, str) else float(value)
    if isinstance(value, bool) or number is None or not math.isfinite(number):
        raise ValueError
    return number


def _text(value: Any) -> str:
    value = str(value) if type(value).__module__ == "torch" else value  # torch.device("cpu")
    if not isinstance(value, (str, Path)) or "\0" in str(value):
        raise ValueError
    return str(value)


def _path(value: Any) -> Path:
    if not (text := _text(value)):  # it would be the current folder
        raise ValueError
    return Path(text)


_PLAIN: Mapping[Any, Callable[[Any], Any]] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: _text,
    Path: _path,
}
"""How a raw value becomes one of a plain type."""
