"""Options that several commands share, and the tree of values that they form."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin
from weakref import WeakKeyDictionary

import click
from click.core import ParameterSource

from fsframework.cli.completion import added_names, plugin_names, run_names
from fsframework.cli.groups import ListingGroup
from fsframework.components.options import (
    IMAGES,
    MAIN_OPTIONS,
    RUNNING,
    SECTIONS,
    TASKS,
    Option,
    options_of,
)
from fsframework.errors import OptionError

if TYPE_CHECKING:
    from fsframework.engine.configuration import Experiment
    from fsframework.engine.session import Session

__all__ = [
    "CONFIGURATION",
    "DROPPING",
    "WORDS",
    "CommandGroup",
    "GroupedCommand",
    "added_names",
    "check_output",
    "command",
    "experiment_of",
    "flat_options",
    "group",
    "key_values",
    "option_leaves",
    "option_of",
    "plugin_names",
    "run_names",
    "section",
    "session_of",
    "shared",
    "tree_of",
]

F = TypeVar("F", bound=Callable[..., Any])
_CONFIGURATION = "Configuration"
_OWN = "Options of this command"
_REST = "Other options"
_WIDEST = 30
"""Characters of an option's name and value beside which its help starts."""

_SECTION_OF: MutableMapping[click.Parameter, str] = WeakKeyDictionary()
"""Section of an option that is not shared, if it has one of its own."""


def _number_or(word: str) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Return a callback that reads a number, or one word."""

    def read(
        context: click.Context, parameter: click.Parameter, value: str | None
    ) -> int | str | None:
        if value is None or value.lower() == word:
            return value and word
        try:
            return int(value)
        except ValueError:
            message = f"{value!r} is neither a number nor {word!r}"
            raise click.BadParameter(message, context, parameter) from None

    return read


def _run_folder(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | Path | None:
    """Return the folder of a run given by its name or by a selector; a path or file as it is."""
    del parameter
    if value is None:
        return None
    path = Path(value)
    if value and (path.exists() or len(path.parts) > 1 or path.suffix == ".safetensors"):
        return value
    from fsframework.api.running import run_folder

    return run_folder(value, context.params.get("runs_dir"))


def _set_workers(context: click.Context, parameter: click.Parameter, value: int | None) -> None:
    """Set the environment variable that data sets read; results do not depend on it."""
    del context, parameter
    if value is not None:
        os.environ["FSF_WORKERS"] = str(value)


@dataclass(init=False, repr=False, eq=False)  # only its fields are read
class _OfCommands:
    """Options that several commands share and that say nothing of an experiment.

    Args:
        arm: arm whose tasks are drawn, such as random, the control of fewstab.
        workers: images decoded in parallel; results do not depend on it.
        seeds: train one model per seed, such as 0,1,2 or 0-9, and evaluate all on the same tasks;
            prints their mean with an interval over seeds and tasks.
        dry_run: show what would be done, and do nothing.
        runs_dir: folder of the runs.
        cache_dir: cache of images, words, features and weights.
        data_dir: folder of the list of added data sets; other commands find it through the
            environment variable.
        force: replace files that exist.
        explain: also print every estimate with its interval.
        as_json: print JSON.
        options: set any field, e.g. -o method.temperature=0.2 -o training.epochs=3; repeatable.
        config: read options from a TOML file; the command line overrides it.
        plugin_files: also load the plugin classes of a Python file; repeatable.
    """

    arm: Annotated[str | None, Option(TASKS, "NAME", "the sampler's own")] = None
    workers: Annotated[
        int | None, Option(IMAGES, without="one per core, at most 8", env="FSF_WORKERS")
    ] = None
    seeds: Annotated[str | None, Option(RUNNING, "LIST")] = None
    dry_run: Annotated[bool, Option(RUNNING)] = False
    runs_dir: Annotated[Path, Option(RUNNING, "DIR", "./runs", env="FSF_RUNS")] = Path("runs")
    cache_dir: Annotated[
        Path | None, Option(RUNNING, "DIR", "~/.cache/fsframework", env="FSF_CACHE")
    ] = None
    data_dir: Annotated[
        Path | None, Option(RUNNING, "DIR", "~/.local/share/fsframework", env="FSF_DATA")
    ] = None
    force: Annotated[bool, Option(RUNNING)] = False
    explain: Annotated[bool, Option(RUNNING)] = False
    as_json: Annotated[bool, Option(RUNNING, flag="json")] = False
    options: Annotated[tuple[str, ...], Option(_CONFIGURATION, "KEY=VALUE", flag="option")] = ()
    config: Annotated[Path | None, Option(_CONFIGURATION, "FILE.toml", env="FSF_CONFIG")] = None
    plugin_files: Annotated[tuple[Path, ...], Option(_CONFIGURATION, "FILE.py", flag="plugin")] = ()


_FURTHER: Mapping[str, dict[str, Any]] = {
    "workers": {"type": click.IntRange(min=1), "callback": _set_workers, "expose_value": False},
    "runs-dir": {"default": Path("runs")},
    "option": {"multiple": True},
    "plugin": {"multiple": True},
    "statistic": {"multiple": True},
    "task-file": {"type": None},  # a Path would not tell ./DATA/NAME from a name
}
"""Settings of ``click.option`` that do not follow from the schema, by flag."""

_OF_COMMANDS = {one.flag: one for one in options_of(_OfCommands).values()}


@functools.cache
def _shared_options() -> Mapping[str, Option]:
    """Return all shared options by flag, in the order of the help."""
    # Imported late: many commands have no option of a run.
    from fsframework.engine.options import ARGUMENTS

    return {one.flag: one for one in ARGUMENTS.values() if one.section} | _OF_COMMANDS


_TYPES: Mapping[Any, tuple[str, Any]] = {
    int: ("N", click.INT),
    float: ("P", click.FLOAT),
    Path: ("FILE", click.Path(path_type=Path)),
}


def _settings(option: Option, *, several: bool = False) -> dict[str, Any]:
    """Return the settings of ``click.option`` for an option.

    Args:
        several: whether its values are several, separated by commas.
    """
    found: dict[str, Any] = {
        "help": option.help,
        "envvar": option.env or None,
        "show_envvar": bool(option.env),
    }
    if option.type is bool:
        return {**found, "is_flag": True}
    if option.usual:
        found["help"] += f"  [default: {option.usual}]"
    words = get_args(option.type) if get_origin(option.type) is Literal else ()
    plain = next((one for one in (option.type, *get_args(option.type)) if one in _TYPES), None)
    metavar, found["type"] = _TYPES.get(plain, ("|".join(map(str, words)), None))
    if words:
        found["type"] = click.Choice(words)
    if option.word:
        metavar, found["type"] = f"{metavar}|{option.word}", None
        found["callback"] = _number_or(option.word)
    if option.names == "run":
        found |= {"type": None, "callback": _run_folder, "shell_complete": run_names}
    elif option.names:
        found["shell_complete"] = plugin_names(option.names)
    found["metavar"] = option.metavar or metavar
    if several:
        return {**found, "type": str, "metavar": f"{found['metavar']},...", "callback": None}
    return found | _FURTHER.get(option.flag, {})


DROPPING = ("drop-class-words", "drop-words", "drop-words-in-classes", "min-count")
"""Shared options that set which words are not attributes."""

WORDS = ("attributes", "detector", *DROPPING, "device", "offline")
"""Shared options that set which words images have."""

CONFIGURATION = ("option", "config", "allow-code", "allow-external", "plugin")
"""Shared options that set anything that a run can be told; ``tree_of`` reads them."""


def shared(*names: str, several: bool = False) -> Callable[[F], F]:
    """Add shared options to a command, by their names without dashes: ``shared("dataset", "way")``.

    The callback gets each under its name with underscores, except ``statistics`` of
    ``--statistic``, ``options`` of ``-o``, ``plugin_files`` of ``--plugin`` and ``as_json`` of
    ``--json``; it gets nothing of ``--workers``.

    Args:
        several: whether the values of each may be several, separated by commas; it is then a text.
    """

    def add(function: F) -> F:
        for name in reversed(names):
            flags = ("-o", "--option") if name == "option" else (f"--{name}",)
            option = _OF_COMMANDS.get(name) or _shared_options()[name]
            settings = _settings(option, several=several)
            function = click.option(*flags, option.name, **settings)(function)
        return function

    return add


def section(title: str, *options: Callable[[F], F]) -> Callable[[F], F]:
    """Add options to a command, in a section of its help.

    Args:
        title: of the section, which comes after the main options.
        options: decorators of ``click.option``.
    """

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
            _SECTION_OF[function.__click_params__[-1]] = title  # type: ignore[attr-defined]
        return function

    return add


class GroupedCommand(click.Command):
    """A command whose help shows its options in named sections.

    Shared options appear in their sections. A command groups its other options with ``section``;
    all come after the main options.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section, all in the same columns."""
        shared = _shared_options()
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        flags = {one.opts[-1].removeprefix("--"): one for one in options}
        helped = {flag: one.get_help_record(ctx) for flag, one in flags.items()}
        rows = {flag: row for flag, row in helped.items() if row is not None}
        own = {flag: _SECTION_OF.get(flags[flag], _OWN) for flag in rows if flag not in shared}
        own |= {"help": _REST} if "help" in own else {}
        found = own | {flag: one.section for flag, one in shared.items() if flag in rows}
        titles = [MAIN_OPTIONS, _OWN, *_SECTION_OF.values(), *SECTIONS, _CONFIGURATION, _REST]
        several = {*found.values()} - {_OWN, _REST}
        width = max(len(term) for term, _ in rows.values() if len(term) <= _WIDEST)
        for title in dict.fromkeys(titles if several else ["Options"]):
            shown = [flag for flag in found if not several or found[flag] == title]
            if shown:
                with formatter.section(title):
                    terms = [(rows[flag][0].ljust(width), rows[flag][1]) for flag in shown]
                    formatter.write_dl(terms, col_max=width)


class CommandGroup(ListingGroup, GroupedCommand):
    """A group of such commands, to which other packages can add their own."""

    command_class = GroupedCommand


def command(name: str | None = None, **settings: Any) -> Callable[[Any], GroupedCommand]:
    """Turn a function into a command whose help shows its options in named sections.

    Args:
        name: by default the function's.
        settings: as of ``click.command``.
    """
    return click.command(name, cls=GroupedCommand, **settings)


def group(name: str | None = None, **settings: Any) -> Callable[[Any], CommandGroup]:
    """Turn a function into a group of commands, to which other packages can add their own.

    Args:
        name: by default the function's.
        settings: as of ``click.group``.
    """
    return click.group(name, cls=CommandGroup, **settings)


def option_of(name: str, value: Any = None) -> str:
    """Return how an argument is given on the command line; see ``fsframework.errors.argument``.

    >>> option_of("image_size", 84), option_of("training.epochs", 3), option_of("drop_class_words")
    ('--image-size 84', '-o training.epochs=3', '--drop-class-words')
    >>> option_of("backbone", {"name": "timm:NAME", "weights": "./a.pth"})
    '--backbone timm:NAME -o backbone.weights=./a.pth'
    """
    if isinstance(value, Mapping):
        options = (option_of(f"{name}.{k}", v) for k, v in value.items() if k != "name")
        return " ".join([option_of(name, value["name"]), *options])
    if isinstance(value, list):
        return " ".join(option_of(name, one) for one in value)
    flag = name.removesuffix("s") if name in ("plugins", "statistics") else name.replace("_", "-")
    context = click.get_current_context(silent=True)
    parameters = [] if context is None else context.command.params
    if flag in _shared_options() or any(f"--{flag}" in parameter.opts for parameter in parameters):
        given = "" if value is None or isinstance(value, bool) else f" {shlex.quote(str(value))}"
        return f"--{flag}{given}"
    return name if value is None else f"-o {shlex.quote(f'{name}={value}')}"


def check_output(path: Path, *suffixes: str, force: bool) -> None:
    """Check, before any long computation, that a file may be written.

    Args:
        path: of the file.
        suffixes: endings that its name may have, in lower case, such as ``.png``; any if none is
            given.
        force: whether an existing file is replaced.

    Raises:
        OptionError: its name has another ending, its folder does not exist, it exists, it is no
            regular file, or it is also an input of the command.
    """
    if str(path) == "-":
        raise OptionError("- stands for no file here: output has a name, such as ./output")
    if path.exists() and not path.is_file():
        kind = (
            "folder; name a file in it" if path.is_dir() else "device or pipe, not a regular file"
        )
        raise OptionError(f"{path} is a {kind}")
    if suffixes and path.suffix.lower() not in suffixes:
        raise OptionError(f"{path} must end in {' or '.join(suffixes)}")
    if not path.absolute().parent.is_dir():
        raise OptionError(f"{path}: the folder {path.parent} does not exist")
    if path.exists() and not force:
        raise OptionError(f"{path} exists; give --force to replace it")
    context = click.get_current_context(silent=True)
    given = [] if context is None else [*context.params.values()]
    values = [str(v) for one in given for v in (one if isinstance(one, tuple | list) else [one])]
    files = [f for v in values for f in {v, v.partition(":")[2]} if f and os.path.exists(f)]  # noqa: PTH110
    if path.exists() and sum(path.samefile(file) for file in files) > 1:
        raise OptionError(f"{path} is an input of this command too; choose another output")


_ORIGINS = {ParameterSource.COMMANDLINE: "command line", ParameterSource.ENVIRONMENT: "environment"}
"""Where options come from, the strongest first."""


def tree_of(
    context: click.Context,
    *,
    config: bool = True,
    leaving: Collection[str] = (),
    options: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Merge configuration file, environment and command line into a tree of ``Given``.

    Every shared option that was given counts; ``-o`` takes precedence over them.

    Args:
        context: of a command with the options ``CONFIGURATION``.
        config: whether the file of ``--config`` counts.
        leaving: parameters that do not count.
        options: in place of those of ``-o``.

    Raises:
        OptionError: an ``-o`` without ``=``; or the file is wrong.
    """
    from fsframework.engine.options import (
        ALLOWANCES,
        ARGUMENTS,
        given_tree,
        merged,
        read_config,
    )

    trees = []
    for source, origin in _ORIGINS.items():
        told = {
            name: value
            for name, value in context.params.items()
            if name in ARGUMENTS
            and name not in (*leaving, "allow_code")
            and context.get_parameter_source(name) is source
        }
        if origin == "command line":
            told |= key_values(context.params["options"] if options is None else options)
        trees.append(given_tree(told, origin))
    file = context.params["config"] if config else None
    allowed = {name: context.params[name] for name in ALLOWANCES}
    return merged(*trees, {} if file is None else read_config(file, **allowed))


def key_values(options: Sequence[str]) -> dict[str, str]:
    """Return what ``-o KEY=VALUE`` sets, by key; a later value replaces an earlier one.

    Raises:
        OptionError: an ``-o`` without ``=``.
    """
    found = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise OptionError(f"-o {option}: must be KEY=VALUE, e.g. -o method.temperature=0.2")
        found[key.strip()] = value
    return found


def session_of(context: click.Context) -> Session:
    """Return the session that a command's options describe: plugin files, folders."""
    from fsframework.api.session import open_session

    given = context.params
    return open_session(
        runs_dir=given.get("runs_dir"),
        cache_dir=given.get("cache_dir"),
        plugins=given.get("plugin_files", ()),
    )


def experiment_of(context: click.Context) -> tuple[Experiment, Session]:
    """Return the experiment that a command's options describe, and its session; see ``tree_of``.

    Raises:
        FsfError: an option is wrong, or a plugin cannot be loaded.
    """
    from fsframework.api.experiments import resolved

    session = session_of(context)
    return resolved(tree_of(context), session), session


def flat_options(
    values: Mapping[str, Any], origins: Mapping[str, Any] | None = None
) -> list[tuple[str, str, str]]:
    """Return dotted key, value and origin of every option.

    Args:
        values: a tree of options; the tables of a list are numbered from 1, an only one is not.
        origins: of the values, in the same shape; empty where there are none.
    """
    found = dict(option_leaves(origins or {}))
    leaves = option_leaves(values)
    return [(key, _shown(value), str(found.get(key, ""))) for key, value in leaves]


def option_leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted key and value of every option of a tree, as ``flat_options`` names them."""
    tables = node if isinstance(node, list) and any(isinstance(v, Mapping) for v in node) else []
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from option_leaves(value, f"{prefix}.{key}" if prefix else key)
    elif tables:
        for number, table in enumerate(tables, start=1):
            yield from option_leaves(table, f"{prefix}.{number}" if len(tables) > 1 else prefix)
    else:
        yield prefix, node


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value == []:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
