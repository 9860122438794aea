"""Options that several commands share, and the tree of values that they form."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import cloup
from click.core import ParameterSource

from fsframework.cli.completion import added_names, dataset_names, plugin_names, run_names
from fsframework.cli.groups import PluginGroup
from fsframework.components.registry import Registry
from fsframework.components.resolution import Given, set_dotted
from fsframework.errors import OptionError
from fsframework.statistics.estimators import INTERVALS

if TYPE_CHECKING:
    from fsframework.pipeline.session import Session

__all__ = [
    "DROPPING",
    "HELP_GROUPS",
    "MAIN_OPTIONS",
    "WORDS",
    "CommandGroup",
    "GroupedCommand",
    "added_names",
    "cache_option",
    "check_output",
    "command",
    "data_dir_option",
    "dataset_names",
    "default_runs_dir",
    "flat_options",
    "folder_options",
    "force_option",
    "group",
    "json_option",
    "option_of",
    "option_tree",
    "plugin_names",
    "plugin_option",
    "registry_with",
    "run_command",
    "run_names",
    "runs_dir_option",
    "session_of",
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
    "Tasks": ("arm", "way", "queries", "split", "placebo", "task_file"),
    "Words": ("detector", "drop_class_words", "drop_words", "min_count"),
    "Model and training": ("recipe", "model", "init_from", "tensorboard"),
    "Measuring": ("statistics", "level", "interval", "query_batch"),
    "Images": ("image_size", "precision", "decoding", "broken", "workers"),
    "Running": (
        *("seed", "name", "offline", "dry_run", "runs_dir", "cache_dir", "data_dir", "force"),
        "as_json",
    ),
    "Configuration": ("options", "config", "plugin_files"),
}  # fmt: skip
"""Sections of a command's help: the parameters in each, by name, in the order of the help.

An option means the same in every command that has it, so it is always in the same section.
"""

_SECTION_OF = {name: title for title, names in HELP_GROUPS.items() for name in names}
_PLACES = {name: place for names in HELP_GROUPS.values() for place, name in enumerate(names)}


class GroupedCommand(cloup.Command):
    """A command whose help shows its options in named sections.

    Options named in ``HELP_GROUPS`` appear in their section there. A command groups its other
    options with ``cloup.option_group``; all come after the main options.
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
    """A group of such commands, to which other packages can add their own."""

    command_class = GroupedCommand


def _section(title: str, options: list[click.Option]) -> cloup.OptionGroup:
    group = cloup.OptionGroup(title)
    group.options = sorted(options, key=lambda option: _PLACES.get(option.name or "", 0))
    return group


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


_OFFLINE_DETECTOR = "appearance"
"""A detector that needs only the images, suggested where it is installed."""

_ORIGINS = {
    ParameterSource.ENVIRONMENT: "environment",
    ParameterSource.COMMANDLINE: "command line",
}


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
    """Return the folder of a run given by the beginning of its name; a path is returned as is."""
    del parameter
    if value is None:
        return None
    path = Path(value)
    if path.exists() or len(path.parts) > 1:
        return path
    from fsframework.records import find_run

    return find_run(value, context.params.get("runs_dir") or default_runs_dir())


def default_runs_dir() -> Path:
    """Return the folder of runs used without ``--runs-dir``."""
    return Path(os.environ.get("FSF_RUNS") or "runs")


def _component(name: str, default: str, text: str, complete: Any = None) -> Any:
    return click.option(
        f"--{name}",
        metavar="NAME[:ARG]",
        envvar=f"FSF_{name.upper()}",
        show_envvar=True,
        shell_complete=complete or plugin_names(name),
        help=f"{text}{f'  [default: {default}]' if default else ''}",
    )


_SHARED: dict[str, Any] = {
    "method": _component("method", "protonet", "Few-shot method."),
    "sampler": _component("sampler", "fewstab", "How tasks are drawn."),
    "dataset": _component(
        "dataset", "planted", "Data set: planted, folder:PATH, csv:FILE, ...", dataset_names
    ),
    "backbone": _component("backbone", "conv64f", "Feature extractor."),
    "detector": _component(
        "detector",
        "",
        "Detect the words in the images: vit-gpt2, blip, clip-words, captions-file:FILE, ... (see "
        "fsf plugins list --kind detector).",
    ),
    "attributes": click.option(
        "--attributes",
        metavar="SOURCE",
        envvar="FSF_ATTRIBUTES",
        show_envvar=True,
        help="Words of the images: FILE.csv or FILE.parquet (columns key, words; words separated "
        "by ';' in CSV), or column:NAME.  [default: the data set's own words]",
    ),
    "drop-class-words": click.option(
        "--drop-class-words",
        is_flag=True,
        help="Remove from each image the words that name its own class.",
    ),
    "drop-words": click.option(
        "--drop-words", metavar="WORD,...", help="Words to remove, separated by commas."
    ),
    "min-count": click.option(
        "--min-count",
        type=int,
        metavar="N",
        help="Remove words that fewer than N images have.  [default: 1]",
    ),
    "offline": click.option(
        "--offline",
        is_flag=True,
        envvar="FSF_OFFLINE",
        show_envvar=True,
        help="Make no network call; models must be in the local cache or a folder.",
    ),
    "query-batch": click.option(
        "--query-batch",
        type=click.Choice(["task", "class"]),
        metavar="task|class",
        help="Pass the method all queries of a task together, or those of one class at a time as "
        "FewSTAB's published evaluation does.  [default: task]",
    ),
    "decoding": click.option(
        "--decoding",
        type=click.Choice(["exact", "scaled"]),
        help="Decode image files in full, or, faster, only to the detail that the image size "
        "needs.  [default: exact]",
    ),
    "broken": click.option(
        "--broken",
        type=click.Choice(["fatal", "skip"]),
        help="Stop at an image that cannot be read, or skip it.  [default: fatal]",
    ),
    "image-size": click.option(
        "--image-size",
        type=int,
        metavar="PIXELS",
        help="Height and width of images.  [default: the size the model was trained at, else the "
        "data set's or the backbone's]",
    ),
    "precision": click.option(
        "--precision",
        type=click.Choice(["fp32", "bf16", "fp16"]),
        help="Number format in which the backbone embeds images: bf16 is about twice as fast on "
        "CPUs that support it, fp16 is for GPUs.  [default: fp32]",
    ),
    "split": click.option(
        "--split",
        metavar="NAME",
        help="Split whose images are used; all uses every image.  [default: test, or what the data "
        "allow]",
    ),
    "way": click.option(
        "--way",
        type=int,
        metavar="N",
        help="Classes per task.  [default: 5, or what the data allow]",
    ),
    "shot": click.option(
        "--shot", type=int, metavar="N", help="Support images per class.  [default: 5]"
    ),
    "queries": click.option(
        "--queries",
        callback=_number_or("auto"),
        metavar="N|auto",
        help="Query images per class; auto finds the best number in a pilot run, for tasks without "
        "replacement (see fsf plan).  [default: 15, or what the data allow]",
    ),
    "tasks": click.option(
        "--tasks",
        callback=_number_or("all"),
        metavar="N|all",
        help="Number of tasks; all for samplers that end, such as depleting.  [default: 600]",
    ),
    "arm": click.option(
        "--arm",
        metavar="NAME",
        help="Arm whose tasks are drawn, such as random, the control of fewstab.  [default: the "
        "sampler's own]",
    ),
    "task-file": click.option(
        "--task-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Evaluate the tasks of this file (see fsf tasks make).",
    ),
    "seed": click.option(
        "--seed",
        type=int,
        metavar="N",
        envvar="FSF_SEED",
        show_envvar=True,
        help="Same seed, same tasks, weights and scores.  [default: 0]",
    ),
    "device": click.option(
        "--device",
        metavar="NAME",
        envvar="FSF_DEVICE",
        show_envvar=True,
        help="auto, cpu, cuda, cuda:N or mps.  [default: auto, a GPU if there is one]",
    ),
    "placebo": click.option(
        "--placebo",
        is_flag=True,
        help="Permute the images of each class, separately for every task: a gap that remains "
        "does not come from the attributes.",
    ),
    "statistics": click.option(
        "--statistic",
        "statistics",
        multiple=True,
        shell_complete=plugin_names("statistic"),
        metavar="NAME",
        help="What to measure; repeatable. Set its options with -o "
        "statistics.NAME.OPTION=VALUE.  [default: acc, wacc]",
    ),
    "level": click.option(
        "--level", type=float, metavar="P", help="Confidence level of intervals.  [default: 0.95]"
    ),
    "interval": click.option(
        "--interval",
        type=click.Choice(INTERVALS),
        metavar="NAME",
        help="How intervals are computed: student-t; percentile or bca, bootstraps of the tasks; "
        "image-level or class-level, which cover new images or new classes even where tasks "
        "share them.  [default: student-t]",
    ),
    "recipe": click.option(
        "--recipe",
        metavar="NAME",
        help="How the method is trained: quick, fewstab, ... (see fsf recipes list), or none.  "
        "[default: quick, if the method has it]",
    ),
    "model": click.option(
        "--model",
        callback=_run_folder,
        shell_complete=run_names,
        metavar="RUN",
        help="Use the method, backbone and weights of another run or of an imported one; train "
        "nothing. A folder, or the beginning of its name in the runs folder.",
    ),
    "init-from": click.option(
        "--init-from",
        callback=_run_folder,
        shell_complete=run_names,
        metavar="RUN",
        help="Start the training from the weights of another run, or of a safetensors file.",
    ),
    "tensorboard": click.option(
        "--tensorboard",
        is_flag=True,
        help="Also write the training curve for TensorBoard into the run's folder.",
    ),
    "name": click.option(
        "--name",
        metavar="NAME",
        help="Name of the run and its folder.  [default: from method, data set and sampler]",
    ),
}
"""Options that mean the same in every command that has them, by their names."""

DROPPING = ("drop-class-words", "drop-words", "min-count")
"""Shared options that set which words are not attributes."""

WORDS = ("attributes", "detector", *DROPPING, "device", "offline")
"""Shared options that set which words images have."""


_OTHER_FLAGS = (
    "batch-size", "cache-dir", "config", "force", "output", "plugin", "runs-dir", "shard",
)  # fmt: skip
"""Options that messages name besides the shared ones."""


def option_of(name: str, value: Any = None) -> str:
    """Return how an argument is given on the command line; see ``fsframework.errors.argument``.

    >>> option_of("image_size", 84), option_of("training.epochs", 3), option_of("drop_class_words")
    ('--image-size 84', '-o training.epochs=3', '--drop-class-words')
    """
    flag = name.replace("_", "-")
    context = click.get_current_context(silent=True)
    own = context is not None and any(
        f"--{flag}" in parameter.opts for parameter in context.command.params
    )
    if own or flag in _SHARED or flag in _OTHER_FLAGS:
        flag = "statistic" if flag == "statistics" else flag
        given = "" if value is None or isinstance(value, bool) else f" {shlex.quote(str(value))}"
        return f"--{flag}{given}"
    return name if value is None else f"-o {name}={shlex.quote(str(value))}"


def shared(*names: str) -> Callable[[F], F]:
    """Add the named shared options to a command."""

    def add(function: F) -> F:
        for name in reversed(names):
            function = _SHARED[name](function)
        return function

    return add


def _set_workers(context: click.Context, parameter: click.Parameter, value: int | None) -> None:
    """Set the environment variable that data sets read; results do not depend on it."""
    del context, parameter
    if value is not None:
        os.environ["FSF_WORKERS"] = str(value)


def workers_option(function: F) -> F:
    """Add ``--workers``."""
    option = click.option(
        "--workers",
        type=click.IntRange(min=1),
        callback=_set_workers,
        expose_value=False,
        metavar="N",
        envvar="FSF_WORKERS",
        show_envvar=True,
        help="Images decoded in parallel; results do not depend on it.  [default: one per core, at "
        "most 8]",
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
        help="Folder of the runs.  [default: ./runs]",
    )(function)


def plugin_option(function: F) -> F:
    """Add ``--plugin``."""
    return click.option(
        "--plugin",
        "plugin_files",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE.py",
        help="Also load the plugin classes of a Python file; repeatable.",
    )(function)


def cache_option(function: F) -> F:
    """Add ``--cache-dir``."""
    return click.option(
        "--cache-dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        envvar="FSF_CACHE",
        show_envvar=True,
        help="Cache of images, words, features and weights.  [default: ~/.cache/fsframework]",
    )(function)


def data_dir_option(function: F) -> F:
    """Add ``--data-dir``."""
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        envvar="FSF_DATA",
        show_envvar=True,
        help="Folder of the list of added data sets; other commands find it through the "
        "environment variable.  [default: ~/.local/share/fsframework]",
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


def force_option(function: F) -> F:
    """Add ``--force``, for commands that write a file."""
    return click.option("--force", is_flag=True, help="Replace the output if it exists.")(function)


def check_output(path: Path, *suffixes: str, force: bool) -> None:
    """Check, before any long computation, that a file may be written.

    Args:
        suffixes: endings that it may have, such as ``.png``; any where none is given.

    Raises:
        OptionError: the name ends otherwise, or the file exists and ``force`` is not given.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        raise OptionError(f"{path} must end in {' or '.join(suffixes)}")
    if path.exists() and not force:
        raise OptionError(f"{path} exists; give --force to replace it")


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def registry_with(files: tuple[Path, ...]) -> Registry:
    """Return a registry that also has the plugins of some files."""
    registry = Registry()
    for path in files:
        registry.load_file(path)
    return registry


def tree_of(
    context: click.Context, config: Path | None = None, options: Sequence[str] = ()
) -> dict[str, Any]:
    """Merge configuration file, environment and command line into a tree of ``Given``.

    Every shared option that was given counts; ``-o`` takes precedence over them.

    Raises:
        OptionError: an ``-o`` without ``=``.
    """
    from fsframework.pipeline.experiment.arguments import ARGUMENTS, given_tree
    from fsframework.pipeline.experiment.configuration import read_config

    tree = read_config(config) if config is not None else {}
    for source, origin in _ORIGINS.items():
        given = {
            name: value
            for name, value in context.params.items()
            if name in ARGUMENTS and context.get_parameter_source(name) is source
        }
        tree = given_tree(given, origin, tree)
    return option_tree(options, tree)


def option_tree(options: Sequence[str], tree: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what ``-o KEY=VALUE`` sets as a tree of ``Given``, over a tree that is changed.

    Raises:
        OptionError: an ``-o`` without ``=``.
    """
    tree = {} if tree is None else tree
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise OptionError(f"-o {option}: must be KEY=VALUE, e.g. -o method.temperature=0.2")
        set_dotted(tree, key.strip(), Given(value, "command line"))
    return tree


def session_of(context: click.Context) -> Session:
    """Return the session that a command's options describe: plugin files, folders."""
    from fsframework.pipeline.cache.workspace import Workspace
    from fsframework.pipeline.progress import usual_reporter
    from fsframework.pipeline.session import Session

    given = context.params
    workspace = Workspace.default(given.get("runs_dir"), given.get("cache_dir"))
    return Session(registry_with(given.get("plugin_files", ())), workspace, usual_reporter())


def run_command(dataset: str, *, words: bool, plugins: Sequence[Path] = ()) -> str:
    """Return an ``fsf run`` command for a data set that needs no download.

    Args:
        words: whether its images have words; otherwise they are detected.
    """
    found = f"fsf run --dataset {dataset}"
    if words:
        return found
    names = registry_with(tuple(plugins)).names("detector")
    detected = _OFFLINE_DETECTOR in names
    return found + (f" --detector {_OFFLINE_DETECTOR}" if detected else " --sampler random")


def flat_options(
    resolved: Mapping[str, Any], origins: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """Return dotted key, value and origin of every option, as written with ``-o``."""
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
