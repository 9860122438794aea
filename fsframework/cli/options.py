"""Options that several commands share, and the tree of values they come to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import cloup
from click.core import ParameterSource

from fsframework.cli.completion import dataset_names, plugin_names, run_names
from fsframework.cli.groups import PluginGroup
from fsframework.components.registry import Registry
from fsframework.components.resolution import Given, set_dotted
from fsframework.errors import OptionError

__all__ = [
    "DROPPING",
    "HELP_GROUPS",
    "MAIN_OPTIONS",
    "WORDS",
    "CommandGroup",
    "GroupedCommand",
    "cache_option",
    "command",
    "dataset_names",
    "flat_options",
    "folder_options",
    "group",
    "json_option",
    "plugin_names",
    "plugin_option",
    "registry_with",
    "run_names",
    "runs_dir_option",
    "set_options",
    "shared",
    "tree_of",
    "workers_option",
]

F = TypeVar("F", bound=Callable[..., Any])

MAIN_OPTIONS = "Main options"

HELP_GROUPS: dict[str, tuple[str, ...]] = {
    MAIN_OPTIONS: (
        "method", "sampler", "dataset", "backbone", "attributes", "shot", "tasks", "device",
    ),
    "Tasks": ("way", "query", "queries", "split", "placebo", "task_file"),
    "Words": ("detector", "drop_class_words", "drop_words", "min_count"),
    "Model and training": ("recipe", "model", "init_from", "tensorboard"),
    "Measuring": ("statistics", "level", "interval", "query_batch"),
    "Images": ("image_size", "precision", "decoding", "broken", "workers"),
    "Running": (
        "seed", "offline", "dry_run", "runs_dir", "cache_dir", "data_dir", "force", "as_json",
    ),
    "Configuration": ("options", "config", "plugin_files"),
}  # fmt: skip
"""Sections of a command's help: the parameters in each, by name, in the order of the help.

An option means the same in every command that has it, so it is found in the same section.
"""

_SECTION_OF = {name: title for title, names in HELP_GROUPS.items() for name in names}
_PLACES = {name: place for names in HELP_GROUPS.values() for place, name in enumerate(names)}


class GroupedCommand(cloup.Command):
    """A command whose help shows its options in named sections.

    Options named in ``HELP_GROUPS`` have their section there. A command puts others into sections
    of its own with ``cloup.option_group``; all come after the main options.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        known: dict[str, list[click.Option]] = {title: [] for title in HELP_GROUPS}
        own: list[click.Option] = []
        for option in self.ungrouped_options:
            title = _SECTION_OF.get(option.name or "")
            (own if title is None else known[title]).append(option)
        groups = {title: _section(title, options) for title, options in known.items() if options}
        main = groups.pop(MAIN_OPTIONS, None)
        named = [*self.option_groups, *groups.values()]
        if main is not None or named:
            self.ungrouped_options = []
            mine = [_section("Options of this command", own)] if own else []
            self.option_groups = [*([main] if main else []), *mine, *named]


class CommandGroup(PluginGroup):
    """A group of such commands, into which other packages can put commands of theirs."""

    command_class = GroupedCommand


def _section(title: str, options: list[click.Option]) -> cloup.OptionGroup:
    group = cloup.OptionGroup(title)
    group.options = sorted(options, key=lambda option: _PLACES.get(option.name or "", 0))
    return group


def command(name: str | None = None, **settings: Any) -> Callable[[Any], GroupedCommand]:
    """Make a function a command whose help shows its options in named sections.

    Args:
        name: by default the function's.
        settings: as of ``click.command``.
    """
    return click.command(name, cls=GroupedCommand, **settings)


def group(name: str | None = None, **settings: Any) -> Callable[[Any], CommandGroup]:
    """Make a function a group of commands, into which other packages can put commands of theirs.

    Args:
        name: by default the function's.
        settings: as of ``click.group``.
    """
    return click.group(name, cls=CommandGroup, **settings)


_ORIGINS = {
    ParameterSource.COMMANDLINE: "command line",
    ParameterSource.ENVIRONMENT: "environment",
}


def _task_count(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | str | None:
    """Read a number of tasks; ``all``, or ``none`` as in a configuration, for as many as are."""
    if value is None:
        return None
    if value.lower() in ("all", "none"):
        return "none"
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is neither a number nor 'all'", context, parameter
        ) from None


_SHARED: dict[str, tuple[str, Any]] = {
    "dataset": (
        "dataset",
        click.option(
            "--dataset",
            metavar="NAME[:ARG]",
            envvar="FSF_DATASET",
            shell_complete=dataset_names,
            show_envvar=True,
            help="Data set: planted, folder:PATH, csv:FILE, ...  [default: planted]",
        ),
    ),
    "attributes": (
        "attributes",
        click.option(
            "--attributes",
            metavar="SOURCE",
            envvar="FSF_ATTRIBUTES",
            show_envvar=True,
            help="Words of the images: FILE.csv or FILE.parquet (columns key, words; words "
            "separated by ';' in CSV), or column:NAME.  [default: the data set's own words]",
        ),
    ),
    "detector": (
        "detector",
        click.option(
            "--detector",
            metavar="NAME[:ARG]",
            envvar="FSF_DETECTOR",
            shell_complete=plugin_names("detector"),
            show_envvar=True,
            help="Detect the words in the images: vit-gpt2, blip, clip-words, captions-file:FILE, "
            "... (see fsf plugins list --kind detector).",
        ),
    ),
    "drop-class-words": (
        "drop_class_words",
        click.option(
            "--drop-class-words",
            is_flag=True,
            help="Take from each image the words that name its own class.",
        ),
    ),
    "drop-words": (
        "drop_words",
        click.option(
            "--drop-words", metavar="WORD,...", help="Words to take out, separated by commas."
        ),
    ),
    "min-count": (
        "min_count",
        click.option(
            "--min-count",
            type=int,
            metavar="N",
            help="Take out words that fewer than N images have.  [default: 1]",
        ),
    ),
    "offline": (
        "offline",
        click.option(
            "--offline",
            is_flag=True,
            envvar="FSF_OFFLINE",
            show_envvar=True,
            help="Make no network call; models must be in the local cache or a folder.",
        ),
    ),
    "query-batch": (
        "query_batch",
        click.option(
            "--query-batch",
            type=click.Choice(["task", "class"]),
            metavar="task|class",
            help="Show a method all queries of a task together, or those of one class at a time "
            "as FewSTAB's published evaluation does.  [default: task]",
        ),
    ),
    "decoding": (
        "decoding",
        click.option(
            "--decoding",
            type=click.Choice(["exact", "scaled"]),
            help="Decode every pixel of image files, or, faster, no more detail than their size "
            "in use can show.  [default: exact]",
        ),
    ),
    "broken": (
        "broken",
        click.option(
            "--broken",
            type=click.Choice(["fatal", "skip"]),
            help="Stop at an image that cannot be read, or leave it out.  [default: fatal]",
        ),
    ),
    "method": (
        "method",
        click.option(
            "--method",
            metavar="NAME",
            envvar="FSF_METHOD",
            shell_complete=plugin_names("method"),
            show_envvar=True,
            help="Few-shot method.  [default: protonet]",
        ),
    ),
    "image-size": (
        "image_size",
        click.option(
            "--image-size",
            type=int,
            metavar="PIXELS",
            help="Height and width of images.  [default: the run's, whose model is used, else the "
            "data set's or the backbone's]",
        ),
    ),
    "sampler": (
        "sampler",
        click.option(
            "--sampler",
            metavar="NAME",
            envvar="FSF_SAMPLER",
            shell_complete=plugin_names("sampler"),
            show_envvar=True,
            help="How tasks are drawn.  [default: fewstab]",
        ),
    ),
    "split": (
        "split",
        click.option(
            "--split", metavar="NAME", help="Split whose images are used.  [default: test]"
        ),
    ),
    "way": (
        "sampler.n_way",
        click.option("--way", type=int, metavar="N", help="Classes a task.  [default: 5]"),
    ),
    "shot": (
        "sampler.n_shot",
        click.option("--shot", type=int, metavar="N", help="Support images a class.  [default: 5]"),
    ),
    "query": (
        "sampler.n_query",
        click.option("--query", type=int, metavar="N", help="Query images a class.  [default: 15]"),
    ),
    "tasks": (
        "tasks",
        click.option(
            "--tasks",
            callback=_task_count,
            metavar="N|all",
            help="Number of tasks; all, for samplers that end, such as depleting.  [default: 600]",
        ),
    ),
    "seed": (
        "seed",
        click.option(
            "--seed",
            type=int,
            metavar="N",
            envvar="FSF_SEED",
            show_envvar=True,
            help="Same seed, same tasks, weights and scores.  [default: 0]",
        ),
    ),
    "device": (
        "device",
        click.option(
            "--device",
            metavar="NAME",
            envvar="FSF_DEVICE",
            show_envvar=True,
            help="auto, cpu, cuda, cuda:N or mps.  [default: auto: a GPU where there is one]",
        ),
    ),
}


DROPPING = ("drop-class-words", "drop-words", "min-count")
"""Shared options that say which words are no attributes."""


WORDS = ("attributes", "detector", *DROPPING, "device", "offline")
"""Shared options that say which words images have."""


def shared(*names: str) -> Callable[[F], F]:
    """Add the named shared options to a command."""

    def add(function: F) -> F:
        for name in reversed(names):
            function = _SHARED[name][1](function)
        return function

    return add


def _tell_workers(context: click.Context, parameter: click.Parameter, value: int | None) -> None:
    """Pass the number on as data sets read it, for it changes nothing of theirs."""
    del context, parameter
    if value is not None:
        os.environ["FSF_WORKERS"] = str(value)


def workers_option(function: F) -> F:
    """Add ``--workers``."""
    option = click.option(
        "--workers",
        type=click.IntRange(min=1),
        callback=_tell_workers,
        expose_value=False,
        metavar="N",
        envvar="FSF_WORKERS",
        show_envvar=True,
        help="Images decoded at a time; the results are the same, whatever it is.  [default: one "
        "for each core, at most 8]",
    )
    return option(function)


def set_options(function: F) -> F:
    """Add ``-o``, ``--config`` and ``--plugin``."""
    option = click.option(
        "-o",
        "--option",
        "options",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set any field, e.g. -o method.temperature=0.2 -o training.epochs=3; repeatable.",
    )
    config = click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE.toml",
        envvar="FSF_CONFIG",
        show_envvar=True,
        help="Read options from a TOML file; the command line overrides it.",
    )
    return option(config(plugin_option(function)))


def runs_dir_option(function: F) -> F:
    """Add ``--runs-dir``, for commands that read runs."""
    return click.option(
        "--runs-dir",
        type=click.Path(path_type=Path),
        default=Path("runs"),
        envvar="FSF_RUNS",
        show_envvar=True,
        metavar="DIR",
        help="Where runs are looked for.  [default: ./runs]",
    )(function)


def plugin_option(function: F) -> F:
    """Add ``--plugin``."""
    return click.option(
        "--plugin",
        "plugin_files",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE.py",
        help="Also know the plugin classes of a Python file; repeatable.",
    )(function)


def cache_option(function: F) -> F:
    """Add ``--cache-dir``."""
    return click.option(
        "--cache-dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        envvar="FSF_CACHE",
        show_envvar=True,
        help="Where images, words, features and weights are kept.  [default: ~/.cache/fsframework]",
    )(function)


def folder_options(function: F) -> F:
    """Add ``--runs-dir`` and ``--cache-dir``."""
    runs = click.option(
        "--runs-dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        envvar="FSF_RUNS",
        show_envvar=True,
        help="Where runs are written.  [default: ./runs]",
    )
    return runs(cache_option(function))


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def registry_with(files: tuple[Path, ...]) -> Registry:
    """Return a registry that also knows the plugins of some files."""
    registry = Registry()
    for path in files:
        registry.load_file(path)
    return registry


def tree_of(
    context: click.Context, config: Path | None, options: tuple[str, ...], keys: dict[str, str]
) -> dict[str, Any]:
    """Merge configuration file, environment and command line into a tree of ``Given``.

    Args:
        keys: dotted key of each command-line parameter beside the shared ones.

    Raises:
        OptionError: an ``-o`` without ``=``.
    """
    from fsframework.pipeline.experiment.configuration import read_config

    tree = read_config(config) if config is not None else {}
    dotted = {name.replace("-", "_"): key for name, (key, _) in _SHARED.items()} | keys
    # Names of components come before their options, so that an option finds its component.
    for name in sorted(dotted, key=lambda n: dotted[n].count(".")):
        source = context.get_parameter_source(name)
        if source in _ORIGINS:
            value = context.params[name]
            if name in _RUNS:
                value = _run_of(value, context)
            set_dotted(tree, dotted[name], Given(value, _ORIGINS[source]))
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise OptionError(f"-o {option}: must be KEY=VALUE, e.g. -o method.temperature=0.2")
        set_dotted(tree, key.strip(), Given(value, "command line"))
    return tree


_RUNS = ("model", "init_from")
"""Parameters that name a run."""


def _run_of(value: Path, context: click.Context) -> Path:
    """Return the folder of a run by the beginning of its name, too; a path stays what it is."""
    from fsframework.records import find_run

    if value.exists() or len(value.parts) > 1:
        return value
    runs_dir = context.params.get("runs_dir") or Path(os.environ.get("FSF_RUNS") or "runs")
    return find_run(str(value), runs_dir)


def flat_options(
    resolved: Mapping[str, Any], origins: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """Return dotted key, value and origin of every option, as one would write it with ``-o``."""
    if len(resolved["training"]) == 1:
        resolved = {**resolved, "training": resolved["training"][0]}
        origins = {**origins, "training": origins["training"][0]}
    return list(_leaves(resolved, origins))


def _leaves(values: Any, origins: Any, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    pairs = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in pairs:
        origin = origins.get(key, {}) if isinstance(origins, dict) else origins[key]
        dotted = f"{prefix}{key}"
        if isinstance(value, dict) or (
            isinstance(value, list) and any(isinstance(v, dict) for v in value)
        ):
            yield from _leaves(value, origin, f"{dotted}.")
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            if isinstance(value, bool) or value is None or value == []:
                shown = str(value).lower() if isinstance(value, bool) else "none"
            yield dotted, shown, str(origin)
