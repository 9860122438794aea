"""What an option is: raw values with their origins, trees of them, and fields that declare options.

The fields of a dataclass declare options: name, type and default. ``Option`` says more of one, and
what the docstring says of a field below ``Args:`` is its help::

    tasks: Annotated[int, Option("Tasks", least=1)] = 600

Everything else is read from such classes: the command line, configuration files, the arguments of
``fsframework.run``, validation and the reference of options.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

from fsframework.errors import OptionError, argument

__all__ = [
    "IMAGES",
    "MAIN_OPTIONS",
    "MEASURING",
    "MOST_LEVELS",
    "RUNNING",
    "SECTIONS",
    "TASKS",
    "TRAINING",
    "WORDS",
    "Given",
    "Option",
    "check_values",
    "layer",
    "options_of",
    "over",
    "value_of",
    "with_trust",
]

MAIN_OPTIONS = "Main options"
TASKS = "Tasks"
WORDS = "Words"
TRAINING = "Model and training"
MEASURING = "Measuring"
IMAGES = "Images"
RUNNING = "Running"
SECTIONS = (MAIN_OPTIONS, TASKS, WORDS, TRAINING, MEASURING, IMAGES, RUNNING)
"""Sections of the help and of the reference, in this order."""

MOST_LEVELS = 32
"""How deep an option may be nested; real ones reach three."""

TRUSTED_ORIGINS = frozenset({"command line", "call", "environment", "default"})
"""Origins of values that the user gives, and no file or record."""


@dataclass(frozen=True)
class Given:
    """A raw value and where it came from (``command line``, ``exp.toml``, ``environment``).

    Args:
        value: as given; the name of a component, even where an instance was given.
        origin: where it came from.
        instance: the component itself, if one was given.
        trusted: whether the user allows the origin to set what reaches out of the machine; the
            ``TRUSTED_ORIGINS`` may always.
    """

    value: Any
    origin: str
    instance: Any = None
    trusted: bool = False

    @property
    def is_trusted(self) -> bool:
        """Whether the value may set an option that reaches out; see ``Configurable.external``."""
        return self.trusted or self.origin in TRUSTED_ORIGINS


@dataclass(frozen=True, eq=False)
class Option:
    """What the annotation of a field says of an option.

    Args:
        section: of a command's help that it is in; without one, it has no flag.
        metavar: of its value in the help; by default that of its type.
        without: what happens without it, for the help; by default that is its default.
        flag: its name on the command line without dashes; by default that of the field.
        key: dotted key that it sets; by default the name of the field.
        names: what its value names, a kind of plugin or ``run``; by default nothing.
        env: environment variable that sets it too.
        of_run: whether a single run has it.
        word: that stands for ``None``, such as ``all``.
        least: smallest value allowed. ``above`` and ``below`` are bounds that are not allowed.
        unit: of its values.
        imports: whether its value may be ``module:Class``, code that is then imported.
        name: of the field, like ``help``, ``type`` and ``default``.
    """

    section: str = ""
    metavar: str = ""
    without: str | None = None
    _: KW_ONLY
    flag: str = ""
    key: str = ""
    names: str = ""
    env: str = ""
    of_run: bool = True
    word: str = ""
    least: float | None = None
    above: float | None = None
    below: float | None = None
    unit: str = ""
    imports: bool = False
    help: str = ""
    name: str = ""
    type: Any = None
    default: Any = None

    @property
    def rule(self) -> str:
        """What its values must be, as in ``at least 8 pixels``; empty if anything goes."""
        if self.above is not None and self.below is not None:
            return f"between {self.above:g} and {self.below:g}"
        bounds = {"at least": self.least, "above": self.above, "below": self.below}
        told = [f"{text} {bound}" for text, bound in bounds.items() if bound is not None]
        return " and ".join(told) + (f" {self.unit}" if told and self.unit else "")

    @property
    def usual(self) -> str:
        """What happens without it, in words; empty if there is nothing to say."""
        if self.without is not None:
            return self.without
        plain = str(self.default)
        return plain.lower() if self.type is bool else "" if plain in ("None", "()") else plain

    def allows(self, value: Any) -> bool:
        """Whether a value lies within the bounds; ``None`` does."""
        if value is None:
            return True
        least = self.least is None or value >= self.least
        above = self.above is None or value > self.above
        return least and above and (self.below is None or value < self.below)


@functools.cache
def options_of(cls: type[Any]) -> Mapping[str, Option]:
    """Return the options that the fields of a dataclass declare, by name."""
    hints = typing.get_type_hints(cls, include_extras=True)
    told = _told_of(cls)
    found = {}
    for field in dataclasses.fields(cls):
        kind, note = hints[field.name], Option()
        if typing.get_origin(kind) is Annotated:
            kind, note = typing.get_args(kind)
        found[field.name] = dataclasses.replace(
            note,
            help=told.get(field.name, ""),
            name=field.name,
            type=kind,
            default=field.default,
            key=note.key or field.name,
            flag=note.flag or field.name.replace("_", "-"),
        )
    return found


def _told_of(cls: type[Any]) -> dict[str, str]:
    """Return what the docstring of a class says of its fields, as sentences without marks."""
    _, _, listed = inspect.cleandoc(cls.__doc__ or "").partition("\nArgs:\n")
    found = {}
    for match in re.finditer(r"^    (\w+): ((?:.|\n(?!    \w))+)", listed, re.MULTILINE):
        text = " ".join(match[2].split()).replace("``", "")
        found[match[1]] = text[0].upper() + text[1:]
    return found


def check_values(values: Any, where: str = "") -> None:
    """Check the options of a dataclass against their bounds.

    Args:
        values: an instance.
        where: what comes before the name of an option in messages, such as ``training.``.

    Raises:
        OptionError: a value is out of bounds.
    """
    cls = type(values)
    # mypy does not take a class as hashable
    for name, option in options_of(cls).items():  # type: ignore[arg-type]
        value = getattr(values, name)
        if not option.allows(value):
            lies = "lie" if option.rule.startswith("between") else "be"
            raise OptionError(f"{argument(where + name)} must {lies} {option.rule}, not {value}")


def layer(values: Any, origin: str, levels: int = MOST_LEVELS, *, trusted: bool = False) -> Any:
    """Return nested mappings with ``Given`` as leaves; lists of mappings stay lists.

    Args:
        values: leaves that are ``Given`` stay as they are.
        origin: of the other leaves; ``trusted`` as in ``Given``.
        levels: how deep they may be nested.

    Raises:
        OptionError: they are nested more than ``levels`` deep.
    """
    if not levels:
        raise OptionError(f"options may be nested at most {MOST_LEVELS} levels deep")
    if isinstance(values, Mapping):
        return {
            str(key): layer(value, origin, levels - 1, trusted=trusted)
            for key, value in values.items()
        }
    if isinstance(values, (list, tuple)) and values and all(isinstance(v, Mapping) for v in values):
        return [layer(value, origin, levels - 1, trusted=trusted) for value in values]
    return values if isinstance(values, Given) else Given(values, origin, trusted=trusted)


def with_trust(node: Any) -> Any:
    """Return a tree whose leaves may all set options that reach out of the machine."""
    if isinstance(node, Mapping):
        return {key: with_trust(value) for key, value in node.items()}
    if isinstance(node, list):
        return [with_trust(value) for value in node]
    return dataclasses.replace(node, trusted=True) if isinstance(node, Given) else node


def over(tree: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree completed from another, except with options of a different component.

    Raises:
        OptionError: an option is given for a list of tables.

    >>> strong = {"method": Given("r2d2", "call"), "dataset": {"size": Given(32, "call")}}
    >>> weak = {"method": {"name": Given("maml", "a file"), "steps": Given(5, "a file")},
    ...         "dataset": Given("planted", "a file")}
    >>> both = over(strong, weak)
    >>> list(both["method"]), both["dataset"]["name"].value
    (['name'], 'planted')
    """
    found = dict(tree)
    for key, value in below.items():
        if (current := found.get(key)) is None:
            found[key] = value
        elif isinstance(value, Mapping) and not isinstance(current, list):
            inner = {"name": current} if isinstance(current, Given) else dict(current)
            names = [value_of(node) for node in (inner, value)]
            if None in names or names[0] == names[1]:
                inner = over(inner, value)
            found[key] = inner
        elif isinstance(current, Mapping) and "name" not in current:
            if isinstance(value, list):
                raise OptionError(
                    f"{key}.{next(iter(current), '')}: {key} is a list of tables; give it in the "
                    "--config file"
                )
            found[key] = {"name": value, **current}
    return found


def value_of(request: Any) -> Any:
    """Return the value of a request for a component, or of an option: a name, without options."""
    request = request.get("name") if isinstance(request, Mapping) else request
    return request.value if isinstance(request, Given) else request
