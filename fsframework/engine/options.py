"""The options of a run: one schema, and one merge of defaults, files, environment and calls.

The schema is the fields of ``Arguments``, ``Settings`` and ``Stage``. An option is added as one
field; the command line, configuration files, ``fsframework.run``, ``--dry-run``, validation and the
reference of options (``docs/sitepages/options.py``) are read from it.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

from fsframework._reading import parse_toml, read_file
from fsframework.components.options import (
    IMAGES,
    MAIN_OPTIONS,
    MEASURING,
    MOST_LEVELS,
    RUNNING,
    TASKS,
    TRAINING,
    TRUSTED_ORIGINS,
    WORDS,
    Given,
    Option,
    check_values,
    layer,
    options_of,
    over,
    value_of,
)
from fsframework.engine.stages import Precision, Stage
from fsframework.errors import OptionError, argument, close_matches
from fsframework.statistics.estimators import Interval, IntervalChoice

__all__ = [
    "ALLOWANCES",
    "ARGUMENTS",
    "EMBEDDED",
    "GROUPED",
    "LISTS",
    "OF_RUN",
    "QUICK",
    "SEEDS",
    "Arguments",
    "Settings",
    "WordChoice",
    "check_keys",
    "given_tree",
    "merged",
    "read_config",
    "written_out",
]

EMBEDDED = "planted"
"""The data set that needs no file, for which quick recipes are made."""

QUICK = "quick"
"""The recipe that is used unless another is given."""


def _plugin(
    kind: str, section: str = MAIN_OPTIONS, without: str | None = None, *, of_run: bool = True
) -> Option:
    env = f"FSF_{kind.upper()}"
    return Option(section, "NAME[:ARG]", without, names=kind, env=env, of_run=of_run)


@dataclass(init=False, repr=False, eq=False)  # only its fields are read
class Arguments:
    """What a run takes besides its settings: components, and short names of their options.

    Args:
        method: few-shot method.
        sampler: how tasks are drawn.
        dataset: data set: planted, folder:PATH, csv:FILE, ...
        backbone: feature extractor.
        detector: detect the words in the images: vit-gpt2, blip, clip-words, captions-file:FILE,
            ... (see fsf plugins list --kind detector).
        shot: support images per class.
        way: classes per task.
        queries: query images per class.
        training: options of all stages of the training, or a list of stages.
        statistics: what to measure; repeatable. Set its options with -o
            statistics.NAME.OPTION=VALUE.
        seed: same seed, same tasks, weights and scores.
        name: name of the run and its folder.
        launcher: where the work is done: local (processes of this machine), ray, slurm, ...; set
            its options with -o launcher.KEY=VALUE.
        allow_code: let the configuration file name code that is imported and so runs, such as
            training.optimizer=module:Class. Such names may always be given outside of the file.
        allow_external: let configuration files and records set options that open a connection, read
            the environment, run a command or write elsewhere, such as the url of an endpoint. They
            may always be given outside of the file.
    """

    method: Annotated[Any, _plugin("method")] = "protonet"
    sampler: Annotated[Any, _plugin("sampler")] = "fewstab"
    dataset: Annotated[Any, _plugin("dataset")] = EMBEDDED
    backbone: Annotated[Any, _plugin("backbone")] = "conv64f"
    detector: Annotated[Any, _plugin("detector", WORDS)] = None
    shot: Annotated[int, Option(MAIN_OPTIONS, key="sampler.n_shot", least=1)] = 5
    way: Annotated[
        int | None, Option(TASKS, without="5, or what the data allow", key="sampler.n_way")
    ] = None
    queries: Annotated[
        int | None, Option(TASKS, without="15, or what the data allow", key="sampler.n_query")
    ] = None
    training: Any = None
    statistics: Annotated[
        Any, Option(MEASURING, "NAME", "acc, wacc", flag="statistic", names="statistic")
    ] = None
    seed: Annotated[int, Option(RUNNING, env="FSF_SEED")] = 0
    name: Annotated[str | None, Option(RUNNING, "NAME", "from method, data set and sampler")] = None
    launcher: Annotated[Any, _plugin("launcher", RUNNING, "in this process", of_run=False)] = None
    allow_code: Annotated[bool, Option(RUNNING, of_run=False)] = False
    allow_external: Annotated[bool, Option(RUNNING, of_run=False)] = False


@dataclass(frozen=True, kw_only=True)
class WordChoice:
    """Which words images have: where they come from, and which are dropped.

    Args:
        attributes: file or column they are read from, ``None`` for the data set's own.
        drop_class_words: remove from each image the words that name its own class.
        drop_words: words that are not attributes.
        drop_words_in_classes: remove words that most images of at least this share of the classes
            have.
        min_count: remove words that fewer images of the split have.

    Raises:
        OptionError: a number is out of its bounds.
    """

    attributes: Annotated[
        str | None, Option(MAIN_OPTIONS, "SOURCE", "the data set's own words", env="FSF_ATTRIBUTES")
    ] = None
    drop_class_words: Annotated[bool, Option(WORDS)] = False
    drop_words: Annotated[tuple[str, ...], Option(WORDS, "WORD,...")] = ()
    drop_words_in_classes: Annotated[float | None, Option(WORDS, "SHARE", above=0, below=1)] = None
    min_count: Annotated[int, Option(WORDS, least=1)] = 1

    def __post_init__(self) -> None:
        check_values(self)

    @property
    def drops(self) -> list[str]:
        """The options by which words are dropped."""
        dropping = dataclasses.fields(WordChoice)[1:]
        return [f.name for f in dropping if getattr(self, f.name) != f.default]


@dataclass(frozen=True, kw_only=True)
class Settings(WordChoice):
    """Options of a run as a whole.

    Args:
        task_seed: seed of the tasks, in place of --seed.
        training_seed: seed of initial weights and training, in place of --seed.
        attributes: words of the images: FILE.csv or FILE.parquet (columns key, words; words
            separated by ';' in CSV), or column:NAME.
        tasks: number of tasks; all for samplers that end, such as depleting.
        device: where it is computed: auto, cpu, cuda, cuda:N or mps.
        placebo: permute the images of each class, separately for every task: a gap that remains
            does not come from the attributes.
        level: confidence level of intervals.
        interval: how intervals are computed: student-t; percentile or bca, bootstraps of the tasks;
            image-level or class-level, which cover new images or new classes even where tasks share
            them.
        query_batch: pass the method all queries of a task together, or those of one class at a time
            as FewSTAB's published evaluation does.
        image_size: height and width of images.
        precision: number format in which the backbone embeds images: bf16 is about twice as fast on
            CPUs that support it, fp16 is for GPUs.
        decoding: decode image files in full, or, faster, only to the detail that the image size
            needs.
        broken: stop at an image that cannot be read, or skip it.
        class_names: what methods that read class names are told: each class's own name, the name of
            another class, random syllables, or the names of a file (columns class, name).
        split: split whose images are used; all uses every image.
        task_file: evaluate the tasks of this file (see fsf tasks make), of the folder of a run, or
            of a task set of an installed package, such as cub/fewstab-5w1s-v1.
        drop_class_words: remove from each image the words that name its own class.
        drop_words: words to remove, separated by commas.
        drop_words_in_classes: remove words that most images of at least this share of the classes
            have, such as bird of captions of birds.
        min_count: remove words that fewer than N images have.
        offline: make no network call; models must be in the local cache or a folder.
        recipe: how the method is trained: quick, fewstab, ... (see fsf recipes list), or none.
        model: use the method, backbone and weights of another run or of an imported one; train
            nothing. A folder, a name or its beginning, a selector such as method=renet,shot=5, or a
            model of an installed package, such as cifar-fs/protonet.
        tensorboard: also write the training curve for TensorBoard into the run's folder.
    """

    task_seed: Annotated[int, Option(RUNNING, "N", "", least=0, below=2**63)] = 0
    training_seed: Annotated[int, Option(RUNNING, "N", "", least=0, below=2**63)] = 0
    tasks: Annotated[int | None, Option(MAIN_OPTIONS, word="all", least=1)] = 600
    device: Annotated[
        str, Option(MAIN_OPTIONS, "NAME", "auto, a GPU if there is one", env="FSF_DEVICE")
    ] = "auto"
    placebo: Annotated[bool, Option(TASKS)] = False
    level: Annotated[float, Option(MEASURING, "P", above=0, below=1)] = 0.95
    interval: Annotated[Interval, Option(MEASURING, "NAME")] = "student-t"
    query_batch: Annotated[Literal["task", "class"], Option(MEASURING)] = "task"
    image_size: Annotated[
        int | None,
        Option(
            IMAGES,
            "PIXELS",
            "the size the model was trained at, else the data set's or the backbone's",
            least=8,
            unit="pixels",
        ),
    ] = None
    precision: Annotated[Precision, Option(IMAGES)] = "fp32"
    decoding: Annotated[Literal["exact", "scaled"], Option(IMAGES)] = "exact"
    broken: Annotated[Literal["fatal", "skip"], Option(IMAGES)] = "fatal"
    class_names: Annotated[str, Option(TASKS, "own|shuffled|random|FILE.csv")] = "own"
    split: Annotated[str | None, Option(TASKS, "NAME", "test, or what the data allow")] = None
    task_file: Annotated[Path | None, Option(TASKS)] = None
    offline: Annotated[bool, Option(RUNNING, env="FSF_OFFLINE")] = False
    recipe: Annotated[str | None, Option(TRAINING, "NAME", "quick, if the method has it")] = QUICK
    model: Annotated[Path | None, Option(TRAINING, "RUN", names="run")] = None
    tensorboard: Annotated[bool, Option(TRAINING)] = False

    @property
    def intervals(self) -> IntervalChoice:
        """Level and method of the intervals."""
        return IntervalChoice(self.level, self.interval)


ARGUMENTS: Mapping[str, Option] = {
    **options_of(Arguments),
    **options_of(Settings),
    **{
        name: dataclasses.replace(option, key=f"training.{name}")
        for name, option in options_of(Stage).items()
        if option.section
    },
}
"""The options that have a name of their own, on the command line, in files and in calls."""

OF_RUN = tuple(one.flag for one in ARGUMENTS.values() if one.section and one.of_run)
"""Flags, without dashes, of the options that tell what a run does."""

LISTS = (
    *("statistics", "training"),
    *(name for name, option in ARGUMENTS.items() if get_origin(option.type) is tuple),
)
"""Arguments whose value is a list."""

_MOST_FILES = 100
"""Configuration files that may be read for one experiment."""

_FLAGS = {option.flag: option for option in ARGUMENTS.values() if option.section}

ALLOWANCES = ("allow_code", "allow_external")
"""Arguments that allow what a file or a record says."""

GROUPED = tuple(n for n, option in ARGUMENTS.items() if option.names == n and option.of_run)
"""Components whose options a configuration file may give as named groups."""

SEEDS = ("task_seed", "training_seed")
"""Settings that ``seed`` sets, unless they are given beside it or by a stronger source."""

_IMPORTING = {one.name for one in options_of(Stage).values() if one.imports}
"""Options whose values may name code."""

_REPLACED_BY = {
    "attributes": "detector",
    "detector": "attributes",
    **dict.fromkeys(SEEDS, "seed"),
}
"""Arguments by that which replaces them: one of the command line replaces the other of a file."""

_OF_ALL_PLUGINS = [o.key.split(".") for o in ARGUMENTS.values() if "." in o.key]
"""Options of a component that stay when a stronger source names another plugin: ways and shots."""


def given_tree(values: Mapping[str, Any], origin: str, *, trusted: bool = False) -> dict[str, Any]:
    """Return options that one source gives as a tree of ``Given``.

    Args:
        values: by name of an argument, its flag or by dotted key; those that are ``None`` are not
            given. Leaves that are ``Given`` keep their origins.
        origin: of every other value; ``trusted`` as in ``Given``.

    Raises:
        OptionError: a key is malformed, or options are nested too deep.

    >>> tree = given_tree({"way": 3, "tasks": "all", "method.base.steps": "5"}, "call")
    >>> tree["sampler"]["n_way"].value, tree["tasks"].value, list(tree["method"]["base"])
    (3, None, ['steps'])
    """
    found: dict[str, Any] = {}
    # Names of components come before their options; a later value replaces an earlier one.
    for name, value in sorted(values.items(), key=lambda pair: _key_of(pair[0]).count(".")):
        if value is None:
            continue
        option = ARGUMENTS.get(name) or _FLAGS.get(name)
        raw = value.value if isinstance(value, Given) else value
        if option is not None and option.word and str(raw).lower() in (option.word, "none"):
            value = dataclasses.replace(layer(value, origin, trusted=trusted), value=None)
        if name == "training" and isinstance(value, (list, tuple)):
            value = {"stages": list(value)}
        found = over(_nested(_key_of(name), layer(value, origin, trusted=trusted)), found)
    return found


def _key_of(name: str) -> str:
    """Return the dotted key that an argument or a flag sets; of every other option its name."""
    option = ARGUMENTS.get(name) or _FLAGS.get(name)
    return name if option is None else option.key


def _nested(key: str, node: Any) -> dict[str, Any]:
    """Return a node below a dotted key."""
    path = key.split(".")
    if not all(path):
        raise OptionError(f"{key!r} is not an option; write it as component.option=value")
    if len(path) > MOST_LEVELS + 1:
        raise OptionError(
            f"{key[:40]}...: an option may be nested at most {MOST_LEVELS} levels deep, not "
            f"{len(path) - 1}"
        )
    for part in reversed(path):
        node = {part: node}
    found: dict[str, Any] = node
    return found


def merged(*trees: Mapping[str, Any]) -> dict[str, Any]:
    """Return several trees of ``Given`` as one; earlier ones take precedence.

    >>> strong = given_tree({"seed": 5}, "command line")
    >>> weak = given_tree({"task_seed": 1}, "exp.toml")
    >>> list(merged(strong, weak)), list(merged(weak, strong))
    (['seed'], ['task_seed', 'seed'])
    """
    return functools.reduce(_merged, trees, {})


def _merged(tree: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    found = over(tree, {k: v for k, v in below.items() if _REPLACED_BY.get(k) not in tree})
    for key, option in _OF_ALL_PLUGINS:
        given = below.get(key)
        if isinstance(given, Mapping) and option in given and isinstance(value_of(found[key]), str):
            found = over(found, {key: {option: given[option]}})
    return found


def read_config(
    path: Path, *, allow_code: bool | None = False, allow_external: bool | None = False
) -> dict[str, Any]:
    """Read an experiment file, or the record of a run, into a tree whose leaves are ``Given``.

    The options of a file take precedence over those of the files that it includes, and those of an
    included file over those of the files before it. Each file is read once.

    Args:
        path: of the file.
        allow_code: whether it may name code that is then imported.
        allow_external: whether it may set options that reach out of the machine.

    Raises:
        OptionError: the file is missing or not TOML, and the message gives line and column; or it
            names code, includes itself or more than 100 files.
        RecordError: the record is damaged, or that of an imported run.
    """
    return merged(*_layers(path, bool(allow_code), bool(allow_external), (), set()))


def _layers(
    path: Path, allow_code: bool, allow_external: bool, above: tuple[Path, ...], read: set[Path]
) -> Iterator[dict[str, Any]]:
    """Yield the tree of a file, then those of the files that it includes, the strongest first."""
    called = argument("config", str(path)) if not above else f"{above[-1]}: include {str(path)!r}"
    raw = _raw_options(path, called)
    read.add(path.resolve())
    if len(read) > _MOST_FILES:
        raise OptionError(f"{called}: more than {_MOST_FILES} files are included")
    for name, code in () if allow_code else _named_code(raw):
        raise OptionError(
            f"{called}: {name} names code, {code}, which would be imported; if you trust it, give "
            f"{argument('allow_code', True)} too, or give {name} outside of the file"
        )
    included = raw.pop("include", [])
    if not isinstance(included, list) or not all(
        isinstance(one, str) and "\0" not in one for one in included
    ):
        raise OptionError(f'{called}: include must be a list of files, as in ["base.toml"]')
    # A file may be called "call", and is none.
    origin = f"./{path.name}" if path.name in TRUSTED_ORIGINS else path.name
    yield given_tree(_with_groups_apart(raw, called), origin, trusted=allow_external)
    files = [path.parent / name for name in reversed(included)]
    for file in files:
        if any(file.resolve() == one.resolve() for one in (*above, path)):
            raise OptionError(f"{path}: include {str(file)!r}: that file includes this one")
        if file.resolve() not in read:  # what is read twice changes nothing
            yield from _layers(file, allow_code, allow_external, (*above, path), read)


def _raw_options(path: Path, called: str) -> dict[str, Any]:
    """Return the options of a TOML file, or those that made a run."""
    try:
        if path.suffix == ".json":
            from fsframework.records import RunRecord  # late: it needs NumPy

            return RunRecord.load(path).configuration
        return parse_toml(read_file(path))
    except FileNotFoundError:
        raise OptionError(f"{called}: no such file") from None
    except ValueError as error:
        raise OptionError(f"{called}: not TOML ({error})") from None
    except OSError as error:
        raise OptionError(f"{called}: cannot be read ({error.strerror})") from None


def _with_groups_apart(raw: Mapping[str, Any], called: str) -> dict[str, Any]:
    """Return the options of a file with its named groups, by kind, under the key ``like``."""
    if "like" in raw:
        raise OptionError(f"{called}: like belongs in a named group, such as [method.NAME]")
    found: dict[str, Any] = dict(raw)
    groups: dict[str, Any] = {}
    for kind in GROUPED:
        if isinstance(table := raw.get(kind), Mapping):
            own = {k: v for k, v in table.items() if isinstance(v, Mapping) and "like" in v}
            found[kind] = {key: value for key, value in table.items() if key not in own}
            groups |= {kind: own} if own else {}
    return {key: value for key, value in (*found.items(), ("like", groups)) if value != {}}


def written_out(request: Any, groups: Mapping[str, Any]) -> Any:
    """Return a request for a component with the options of the named group that it asks for.

    Args:
        request: a name, or a tree of ``Given``; its options take precedence over the group's.
        groups: trees of options by name, each with the key ``like``: a plugin or another group.

    Raises:
        OptionError: a group is like itself.

    >>> wide = {"wide": layer({"like": "renet", "steps": 5}, "exp.toml")}
    >>> found = written_out(Given("wide", "call"), wide)
    >>> found["name"].value, found["steps"].origin
    ('renet', 'exp.toml')
    """
    seen: list[str] = []
    while isinstance(name := value_of(request), str) and name in groups:
        if name in seen:
            raise OptionError(f"the group {name!r} is like {' like '.join((*seen[1:], name))}")
        seen.append(name)
        own = dict(request) if isinstance(request, Mapping) else {"name": request}
        options = {key: value for key, value in groups[name].items() if key != "like"}
        own["name"] = groups[name]["like"]  # with the origin of the file that says so
        request = over(own, options)
    return request


def _named_code(node: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield option and value wherever a file, its grid or its overrides name code to import."""
    if isinstance(node, Mapping):
        for key, inner in node.items():
            yield from _named_code(inner, key.rpartition(".")[2])
    elif isinstance(node, list):
        for inner in node:
            yield from _named_code(inner, name)
    elif name in _IMPORTING and ":" in str(node):
        yield f"training.{name}", str(node)


def check_keys(tree: Mapping[str, Any]) -> None:
    """Check that every key of a tree is known.

    Raises:
        OptionError: a key is unknown; the message gives the closest matches.
    """
    known = [name for name, option in ARGUMENTS.items() if option.of_run]
    for key in tree:
        if key not in known:
            raise OptionError(
                f"unknown option {key!r}{close_matches(key, known)}; known: {', '.join(known)}"
            )
