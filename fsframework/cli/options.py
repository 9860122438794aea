"""Options that several commands share, and the tree of values that they form."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import cloup
from click.core import ParameterSource

from fsframework.cli.completion import added_names, dataset_names, plugin_names, run_names
from fsframework.cli.groups import ListingGroup
from fsframework.errors import OptionError
from fsframework.statistics.estimators import INTERVALS

if TYPE_CHECKING:
    from fsframework.api.experiments import Description
    from fsframework.pipeline.session import Session

__all__ = [
    "CONFIGURATION",
    "DROPPING",
    "HELP_GROUPS",
    "MAIN_OPTIONS",
    "WORDS",
    "CommandGroup",
    "GroupedCommand",
    "added_names",
    "check_output",
    "command",
    "dataset_names",
    "description_of",
    "flat_options",
    "group",
    "key_values",
    "listed",
    "option_leaves",
    "option_of",
    "option_tree",
    "plugin_names",
    "run_command",
    "run_names",
    "runnable_group",
    "session_of",
    "shared",
    "tree_of",
]

F = TypeVar("F", bound=Callable[..., Any])


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
) -> Path | None:
    """Return the folder of a run given by the beginning of its name; a path or file as it is."""
    del parameter
    if value is None:
        return None
    path = Path(value)
    if path.exists() or len(path.parts) > 1 or path.suffix == ".safetensors":
        return path
    from fsframework.api.run_folders import run_folder

    return run_folder(value, context.params.get("runs_dir"))


def _set_workers(context: click.Context, parameter: click.Parameter, value: int | None) -> None:
    """Set the environment variable that data sets read; results do not depend on it."""
    del context, parameter
    if value is not None:
        os.environ["FSF_WORKERS"] = str(value)


def _option(
    text: str,
    metavar: str | None = None,
    default: str = "",
    of: Any = None,
    env: str | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Return the settings of an option for ``click.option``.

    Args:
        text: of the help, one or two sentences.
        metavar: of its value; a flag has none.
        default: what happens without the option, for the help; the callback gets nothing then.
        of: type of the value; by default a string.
        env: environment variable that sets it too.
        **settings: others of ``click.option``.
    """
    settings |= {"help": f"{text}  [default: {default}]" if default else text, "type": of}
    settings |= {"envvar": env, "show_envvar": env is not None}
    # Not is_flag=False otherwise, for which click lets a value be left out.
    return {"is_flag": True, **settings} if metavar is None else {"metavar": metavar, **settings}


def _plugin(kind: str, text: str, default: str = "", complete: Any = None) -> dict[str, Any]:
    names = complete or plugin_names(kind)
    return _option(text, "NAME[:ARG]", default, env=f"FSF_{kind.upper()}", shell_complete=names)


_PATH = click.Path(path_type=Path)
_RUN: dict[str, Any] = {"callback": _run_folder, "shell_complete": run_names}

MAIN_OPTIONS = "Main options"

_SHARED: dict[str, dict[str, dict[str, Any]]] = {
    MAIN_OPTIONS: {
        "method": _plugin("method", "Few-shot method.", "protonet"),
        "sampler": _plugin("sampler", "How tasks are drawn.", "fewstab"),
        "dataset": _plugin(
            "dataset", "Data set: planted, folder:PATH, csv:FILE, ...", "planted", dataset_names
        ),
        "backbone": _plugin("backbone", "Feature extractor.", "conv64f"),
        "attributes": _option(
            "Words of the images: FILE.csv or FILE.parquet (columns key, words; words separated "
            "by ';' in CSV), or column:NAME.",
            "SOURCE",
            "the data set's own words",
            env="FSF_ATTRIBUTES",
        ),
        "shot": _option("Support images per class.", "N", "5", int),
        "tasks": _option(
            "Number of tasks; all for samplers that end, such as depleting.",
            "N|all",
            "600",
            callback=_number_or("all"),
        ),
        "device": _option(
            "auto, cpu, cuda, cuda:N or mps.",
            "NAME",
            "auto, a GPU if there is one",
            env="FSF_DEVICE",
        ),
    },
    "Tasks": {
        "arm": _option(
            "Arm whose tasks are drawn, such as random, the control of fewstab.",
            "NAME",
            "the sampler's own",
        ),
        "way": _option("Classes per task.", "N", "5, or what the data allow", int),
        "queries": _option("Query images per class.", "N", "15, or what the data allow", int),
        "split": _option(
            "Split whose images are used; all uses every image.",
            "NAME",
            "test, or what the data allow",
        ),
        "placebo": _option(
            "Permute the images of each class, separately for every task: a gap that remains does "
            "not come from the attributes."
        ),
        "task-file": _option(
            "Evaluate the tasks of this file (see fsf tasks make).", "FILE", of=_PATH
        ),
    },
    "Words": {
        "detector": _plugin(
            "detector",
            "Detect the words in the images: vit-gpt2, blip, clip-words, captions-file:FILE, ... "
            "(see fsf plugins list --kind detector).",
        ),
        "drop-class-words": _option("Remove from each image the words that name its own class."),
        "drop-words": _option("Words to remove, separated by commas.", "WORD,..."),
        "min-count": _option("Remove words that fewer than N images have.", "N", "1", int),
    },
    "Model and training": {
        "recipe": _option(
            "How the method is trained: quick, fewstab, ... (see fsf recipes list), or none.",
            "NAME",
            "quick, if the method has it",
        ),
        "model": _option(
            "Use the method, backbone and weights of another run or of an imported one; train "
            "nothing. A folder, or the beginning of its name in the runs folder.",
            "RUN",
            **_RUN,
        ),
        "init-from": _option(
            "Start the training from the weights of another run, or of a safetensors file.",
            "RUN",
            **_RUN,
        ),
        "tensorboard": _option(
            "Also write the training curve for TensorBoard into the run's folder."
        ),
    },
    "Measuring": {
        "statistic": _option(
            "What to measure; repeatable. Set its options with -o statistics.NAME.OPTION=VALUE.",
            "NAME",
            "acc, wacc",
            multiple=True,
            shell_complete=plugin_names("statistic"),
        ),
        "level": _option("Confidence level of intervals.", "P", "0.95", float),
        "interval": _option(
            "How intervals are computed: student-t; percentile or bca, bootstraps of the tasks; "
            "image-level or class-level, which cover new images or new classes even where tasks "
            "share them.",
            "NAME",
            "student-t",
            click.Choice(INTERVALS),
        ),
        "query-batch": _option(
            "Pass the method all queries of a task together, or those of one class at a time as "
            "FewSTAB's published evaluation does.",
            "task|class",
            "task",
            click.Choice(("task", "class")),
        ),
    },
    "Images": {
        "image-size": _option(
            "Height and width of images.",
            "PIXELS",
            "the size the model was trained at, else the data set's or the backbone's",
            int,
        ),
        "precision": _option(
            "Number format in which the backbone embeds images: bf16 is about twice as fast on "
            "CPUs that support it, fp16 is for GPUs.",
            "fp32|bf16|fp16",
            "fp32",
            click.Choice(("fp32", "bf16", "fp16")),
        ),
        "decoding": _option(
            "Decode image files in full, or, faster, only to the detail that the image size needs.",
            "exact|scaled",
            "exact",
            click.Choice(("exact", "scaled")),
        ),
        "broken": _option(
            "Stop at an image that cannot be read, or skip it.",
            "fatal|skip",
            "fatal",
            click.Choice(("fatal", "skip")),
        ),
        "workers": _option(
            "Images decoded in parallel; results do not depend on it.",
            "N",
            "one per core, at most 8",
            click.IntRange(min=1),
            "FSF_WORKERS",
            callback=_set_workers,
            expose_value=False,
        ),
    },
    "Running": {
        "seed": _option(
            "Same seed, same tasks, weights and scores.", "N", "0", int, env="FSF_SEED"
        ),
        "task-seed": _option("Seed of the tasks, in place of --seed.", "N", of=int),
        "training-seed": _option(
            "Seed of initial weights and training, in place of --seed.", "N", of=int
        ),
        "seeds": _option(
            "Train one model per seed, such as 0,1,2 or 0-9, and evaluate all on the same tasks; "
            "prints their mean with an interval over seeds and tasks.",
            "LIST",
        ),
        "name": _option(
            "Name of the run and its folder.", "NAME", "from method, data set and sampler"
        ),
        "launcher": _plugin(
            "launcher",
            "Where the work is done: local (processes of this machine), ray, slurm, ...; set its "
            "options with -o launcher.KEY=VALUE.",
            "in this process",
        ),
        "offline": _option(
            "Make no network call; models must be in the local cache or a folder.",
            env="FSF_OFFLINE",
        ),
        "dry-run": _option("Show what would be done, and do nothing."),
        "runs-dir": {
            **_option("Folder of the runs.", "DIR", "./runs", _PATH, "FSF_RUNS"),
            "default": Path("runs"),
        },
        "cache-dir": _option(
            "Cache of images, words, features and weights.",
            "DIR",
            "~/.cache/fsframework",
            _PATH,
            "FSF_CACHE",
        ),
        "data-dir": _option(
            "Folder of the list of added data sets; other commands find it through the "
            "environment variable.",
            "DIR",
            "~/.local/share/fsframework",
            _PATH,
            "FSF_DATA",
        ),
        "force": _option("Replace files that exist."),
        "explain": _option("Also print every estimate with its interval."),
        "json": _option("Print JSON."),
    },
    "Configuration": {
        "option": _option(
            "Set any field, e.g. -o method.temperature=0.2 -o training.epochs=3; repeatable.",
            "KEY=VALUE",
            multiple=True,
        ),
        "config": _option(
            "Read options from a TOML file; the command line overrides it.",
            "FILE.toml",
            of=_PATH,
            env="FSF_CONFIG",
        ),
        "plugin": _option(
            "Also load the plugin classes of a Python file; repeatable.",
            "FILE.py",
            of=_PATH,
            multiple=True,
        ),
    },
}
"""Settings of the options that several commands share, by section of the help and name.

An option means the same in every command that has it, so it is always in the same section.
"""

_DECLARED = {
    "option": ("-o", "--option", "options"),
    "json": ("--json", "as_json"),
    "plugin": ("--plugin", "plugin_files"),
    "statistic": ("--statistic", "statistics"),
}
"""Flags and parameter of the options whose parameter is not called like the flag."""

HELP_GROUPS = {title: tuple(options) for title, options in _SHARED.items()}
"""Sections of a command's help: the options in each, in the order of the help."""

DROPPING = ("drop-class-words", "drop-words", "min-count")
"""Shared options that set which words are not attributes."""

WORDS = ("attributes", "detector", *DROPPING, "device", "offline")
"""Shared options that set which words images have."""

CONFIGURATION = ("option", "config", "plugin")
"""Shared options that set anything that a run can be told; ``tree_of`` reads them."""

_BY_NAME = {name: option for options in _SHARED.values() for name, option in options.items()}
_PLACES = {f"--{name}": place for place, name in enumerate(_BY_NAME)}


def shared(*names: str) -> Callable[[F], F]:
    """Add shared options to a command, by their names without dashes: ``shared("dataset", "way")``.

    The callback gets each under its name with underscores, except ``statistics`` of
    ``--statistic``, ``options`` of ``-o``, ``plugin_files`` of ``--plugin`` and ``as_json`` of
    ``--json``; it gets nothing of ``--workers``.
    """

    def add(function: F) -> F:
        for name in reversed(names):
            declared = _DECLARED.get(name, (f"--{name}",))
            function = click.option(*declared, **_BY_NAME[name])(function)
        return function

    return add


def listed(*names: str) -> Callable[[F], F]:
    """Add shared options whose values may be several, separated by commas; see ``shared``.

    The callback gets each as a text, or ``None``.
    """

    def add(function: F) -> F:
        for name in reversed(names):
            settings = {k: v for k, v in _BY_NAME[name].items() if k not in ("callback", "default")}
            metavar = f"{settings['metavar']},..."
            function = click.option(f"--{name}", **{**settings, "type": str, "metavar": metavar})(
                function
            )
        return function

    return add


class GroupedCommand(cloup.Command):
    """A command whose help shows its options in named sections.

    Shared options appear in their sections. A command groups its other options with
    ``cloup.option_group``; all come after the main options.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        known: dict[str, list[click.Option]] = {title: [] for title in HELP_GROUPS}
        own: list[click.Option] = []
        for option in sorted(self.ungrouped_options, key=_place):
            flag = option.opts[-1].removeprefix("--")
            sections = [known[title] for title, flags in HELP_GROUPS.items() if flag in flags]
            (sections or [own])[0].append(option)
        main = _section(MAIN_OPTIONS, known.pop(MAIN_OPTIONS))
        named = [*self.option_groups]
        for title, options in known.items():
            named += _section(title, options)
        if main or named:
            self.ungrouped_options = []
            self.option_groups = [*main, *_section("Options of this command", own), *named]

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the whole summary, whatever the limit."""
        del limit
        return super().get_short_help_str(limit=10_000)


def _place(option: click.Option) -> int:
    return _PLACES.get(option.opts[-1], -1)


def _section(title: str, options: Sequence[click.Option]) -> list[cloup.OptionGroup]:
    """Return a section, or nothing where no option is in it."""
    if not options:
        return []
    section = cloup.OptionGroup(title)
    section.options = options
    return [section]


class CommandGroup(ListingGroup):
    """A group of such commands, to which other packages can add their own."""

    command_class = GroupedCommand


class RunnableGroup(GroupedCommand, ListingGroup):
    """A command that also has commands below it."""

    command_class = GroupedCommand

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, invoke_without_command=True, **settings)


def command(name: str | None = None, **settings: Any) -> Callable[[Any], GroupedCommand]:
    """Turn a function into a command whose help shows its options in named sections.

    Args:
        name: by default the function's.
        settings: as of ``click.command``.
    """
    return click.command(name, cls=GroupedCommand, **settings)


def runnable_group(name: str | None = None, **settings: Any) -> Callable[[Any], RunnableGroup]:
    """Turn a function into a command that also has commands below it.

    Args:
        name: by default the function's.
        settings: as of ``click.group``.
    """
    return click.command(name, cls=RunnableGroup, **settings)


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
    """
    flag = "statistic" if name == "statistics" else name.replace("_", "-")
    context = click.get_current_context(silent=True)
    parameters = [] if context is None else context.command.params
    if flag in _BY_NAME or any(f"--{flag}" in parameter.opts for parameter in parameters):
        given = "" if value is None or isinstance(value, bool) else f" {shlex.quote(str(value))}"
        return f"--{flag}{given}"
    return name if value is None else f"-o {name}={shlex.quote(str(value))}"


def check_output(path: Path, *suffixes: str, force: bool) -> None:
    """Check, before any long computation, that a file may be written.

    Args:
        path: of the file.
        suffixes: endings that its name may have, in lower case, such as ``.png``; any if none is
            given.
        force: whether an existing file is replaced.

    Raises:
        OptionError: its name has another ending, its folder does not exist, or it exists.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        raise OptionError(f"{path} must end in {' or '.join(suffixes)}")
    if not path.absolute().parent.is_dir():
        raise OptionError(f"{path}: the folder {path.parent} does not exist")
    if path.exists() and not force:
        raise OptionError(f"{path} exists; give --force to replace it")


_ORIGINS = {
    ParameterSource.ENVIRONMENT: "environment",
    ParameterSource.COMMANDLINE: "command line",
}


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
    from fsframework.pipeline.experiment.arguments import ARGUMENTS, given_tree
    from fsframework.pipeline.experiment.configuration import read_config

    file = context.params["config"] if config else None
    tree = {} if file is None else read_config(file)
    for source, origin in _ORIGINS.items():
        given = {
            name: value
            for name, value in context.params.items()
            if name in ARGUMENTS
            and name not in leaving
            and context.get_parameter_source(name) is source
        }
        tree = given_tree(given, origin, tree)
    return option_tree(context.params["options"] if options is None else options, tree)


def option_tree(options: Sequence[str], tree: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what ``-o KEY=VALUE`` sets as a tree of ``Given``, over a tree that is changed.

    Raises:
        OptionError: an ``-o`` without ``=``.
    """
    from fsframework.components.resolution import Given
    from fsframework.pipeline.experiment.arguments import set_option

    tree = {} if tree is None else tree
    for key, value in key_values(options).items():
        set_option(tree, key, Given(value, "command line"))
    return tree


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


def description_of(context: click.Context) -> Description:
    """Return the experiment that a command's options describe; see ``tree_of``.

    Raises:
        FsfError: an option is wrong, or a plugin cannot be loaded.
    """
    from fsframework.api.experiments import described

    return described(tree_of(context), session_of(context))


_OFFLINE_DETECTOR = "appearance"
"""A detector that needs only the images, suggested where it is installed."""


def run_command(dataset: str, *, words: bool, plugins: Sequence[Path] = ()) -> str:
    """Return an ``fsf run`` command for a data set that needs no download.

    Args:
        words: whether its images have words; otherwise they are detected.
    """
    found = f"fsf run --dataset {dataset}"
    if words:
        return found
    from fsframework.api.plugins import registry_with

    detected = _OFFLINE_DETECTOR in registry_with(plugins).names("detector")
    return found + (f" --detector {_OFFLINE_DETECTOR}" if detected else " --sampler random")


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
