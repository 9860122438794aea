"""FewSTAB's tables as a grid of experiments.

Source: Zheng et al. 2024, "Benchmarking Spurious Bias in Few-Shot Image Classifiers", sections
5.1-5.6 and appendix D. A table of the paper is a view of the grid: Tables 3, 4, 6, S7 and S8 need
the plain cells, S5 and S6 further constructions of the tasks, of which SC3 and QC3 are the plain
one.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fsframework.benchmarks.cells import Cell
from fsframework.benchmarks.published import DATASETS, METHODS
from fsframework.errors import OptionError, close_matches
from fsframework.pipeline.experiment import Experiment, resolve_experiment
from fsframework.pipeline.model import resolve_device
from fsframework.registry import Registry
from fsframework.spec import (
    Component,
    Given,
    canonical,
    parameters,
    resolve_component,
    set_dotted,
)

__all__ = [
    "BACKBONE",
    "DETECTOR",
    "PLAIN",
    "TASKS",
    "TECHNIQUES",
    "Choice",
    "Grid",
    "Request",
    "Slot",
    "make_grid",
    "spelt",
]

TECHNIQUES: Mapping[str, Mapping[str, str]] = {
    "SC1": {"support": "random", "query": "inter-least"},
    "SC2": {"support": "targeted", "query": "inter-least"},
    "SC3": {"support": "exclusive", "query": "inter-least"},
    "QC1": {"support": "exclusive", "query": "intra"},
    "QC2": {"support": "exclusive", "query": "inter"},
    "QC3": {"support": "exclusive", "query": "inter-least"},
}
"""Options of the sampler for each construction of Tables S5 (SC) and S6 (QC)."""

PLAIN = ""
"""The technique of the sampler as it was asked for."""

BACKBONE, DETECTOR, TASKS = "resnet12", "vit-gpt2", 3000
"""The paper's backbone, source of attributes, and number of tasks of each kind."""

_EMBEDDED, _EMBEDDED_BACKBONE, _EMBEDDED_TASKS = "planted", "conv64f", 600
_SHOTS, _ABLATION_SHOTS = (1, 5), (5,)
_NEEDED = ("acc", "wacc")
_CONDITIONS = ("method", "dataset", "shot")
_COMMAND_LINE, _DEFAULT = "command line", "default of the benchmark"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What of the grid is asked for; what is left out comes from the options or the defaults.

    Args:
        datasets: ``NAME[:ARG]``, or ``LABEL=NAME[:ARG]`` where printed values are to stand beside.
        methods: registry names; by default those of the paper's ten that are installed.
        backbones: by default ``resnet12``, the paper's, and ``conv64f`` for the embedded data set.
        shots: by default 1 and 5.
        detectors: by default the data set's own words where it has them, else ``vit-gpt2``.
        ablation: also the constructions of Tables S5 and S6, at ``shots`` or by default 5.
        agreement: also the rank correlations of Tables 4 and 6.
    """

    datasets: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    shots: tuple[int, ...] = ()
    detectors: tuple[str, ...] = ()
    ablation: bool = False
    agreement: bool = False


@dataclass(frozen=True)
class Choice:
    """A data set of the grid.

    Args:
        text: ``NAME[:ARG]``.
        label: of the paper's data set that it is said to be, else empty.
        fingerprint: of its images, labels and splits.
        words: where its attributes come from: names of detectors, or one text for words that
            are read.
    """

    text: str
    label: str
    fingerprint: str
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The label, else the text."""
        return self.label or self.text


class Slot(NamedTuple):
    """A place in the grid; several may be the same experiment.

    Args:
        dataset: ``Choice.text``; ``words`` one of ``Choice.words``.
        technique: a key of ``TECHNIQUES``, or empty for the sampler as it was asked for.
    """

    dataset: str
    backbone: str
    shot: int
    method: str
    words: str
    technique: str = PLAIN


@dataclass(frozen=True)
class Grid:
    """The grid: every cell once, and which of them stands in each slot."""

    datasets: tuple[Choice, ...]
    cells: tuple[Cell, ...]
    slots: Mapping[Slot, int]
    request: Request


def make_grid(registry: Registry, tree: Mapping[str, Any], request: Request) -> Grid:
    """Enumerate the grid and check every option of it; nothing is run.

    Args:
        tree: options of every cell as for ``resolve_experiment``. A data set, method, backbone,
            detector or number of shots in it counts where the request names none. A list
            ``recipes`` holds options of some cells: each has the conditions ``method``,
            ``dataset`` (label or ``NAME[:ARG]``) and ``shot``, any of which may be left out, and
            ``set``, a tree of options. A later recipe is the stronger, the command line and the
            environment the strongest.

    Raises:
        FsfError: an option is unknown or not allowed, or a data set cannot be opened.
    """
    for key in ("task_file", "placebo"):
        if key in tree:
            raise OptionError(f"{key} has no place in a benchmark; use fsf run")
    methods = _names(tree, "method", request.methods) or _installed(registry)
    texts = _names(tree, "dataset", request.datasets) or [_EMBEDDED]
    ablated = _shots(tree, request.shots, _ABLATION_SHOTS) if request.ablation else ()
    shots = _shots(tree, request.shots, _SHOTS)
    made = _Maker(registry, tree, request)
    choices = {text: made.choice(text) for text in texts}
    if len({choice.text for choice in choices.values()}) < len(choices):
        raise OptionError("--dataset: the same data set is there twice")
    for choice in choices.values():
        usual = _EMBEDDED_BACKBONE if _is_embedded(choice.text) else BACKBONE
        backbones = _names(tree, "backbone", request.backbones) or [usual]
        for backbone, shot, method in itertools.product(backbones, shots, methods):
            for words in choice.words:
                made.add(Slot(choice.text, backbone, shot, method, words), choice)
            if shot in ablated:
                for technique in TECHNIQUES:
                    slot = Slot(choice.text, backbone, shot, method, choice.words[0], technique)
                    made.add(slot, choice)
    cells = tuple(made.cells.values())
    resolve_device(cells[0].experiment.settings.device)  # a wrong name would fail in every cell
    return Grid(tuple(choices.values()), cells, made.slots(), request)


def _name_in(tree: Mapping[str, Any], kind: str) -> str | None:
    """Return the name that a tree of options gives to a component, if it does."""
    value = tree.get(kind)
    if isinstance(value, Mapping):
        value = value.get("name")
    return None if value is None else str(value.value if isinstance(value, Given) else value)


def _names(tree: Mapping[str, Any], kind: str, given: Sequence[str]) -> list[str]:
    named = _name_in(tree, kind)
    return list(dict.fromkeys(given)) or ([] if named is None else [named])


def _shots(
    tree: Mapping[str, Any], given: Sequence[int], default: tuple[int, ...]
) -> tuple[int, ...]:
    sampler = tree.get("sampler")
    if not given and isinstance(sampler, Mapping) and "n_shot" in sampler:
        value = sampler["n_shot"]
        text = str(value.value if isinstance(value, Given) else value)
        if not text.isdecimal():
            raise OptionError(f"sampler.n_shot must be a whole number, not {text!r}")
        return (int(text),)
    return tuple(dict.fromkeys(given)) or default


def _installed(registry: Registry) -> list[str]:
    known = {plugin.name for plugin in registry.plugins("method") if plugin.status == "ok"}
    found = [name for name in METHODS if name in known]
    if not found:
        raise OptionError(
            f"none of the paper's methods is installed ({', '.join(METHODS)}); "
            "name others with --method"
        )
    return found


def _is_embedded(text: str) -> bool:
    return text.partition(":")[0] == _EMBEDDED


def _split_label(text: str) -> tuple[str, str]:
    """Return label and data set of ``[LABEL=]NAME[:ARG]``.

    >>> _split_label("cub-200=folder:birds"), _split_label("folder:a=b")
    (('CUB-200', 'folder:birds'), ('', 'folder:a=b'))
    """
    label, equals, rest = text.partition("=")
    if not equals or ":" in label:
        return "", text
    for known in DATASETS:
        if label.strip().lower() == known.lower():
            return known, rest
    raise OptionError(f"--dataset {text}: the label must be one of {', '.join(DATASETS)}")


@dataclass(frozen=True)
class _Recipe:
    """Options of the cells that meet all conditions."""

    conditions: Mapping[str, str]
    options: Mapping[str, Any]

    def holds_for(self, slot: Slot, choice: Choice) -> bool:
        """Whether a slot meets the conditions."""
        values = {
            "method": (slot.method,),
            "dataset": (choice.text, choice.label),
            "shot": (str(slot.shot),),
        }
        return all(value in values[key] for key, value in self.conditions.items())


def _recipes(raw: Any, registry: Registry) -> list[_Recipe]:
    if not isinstance(raw, list):
        raise OptionError("recipes must be a list of tables: [[recipes]] in the --config file")
    found = []
    methods = {*METHODS, *registry.names("method")}
    for number, table in enumerate(raw, start=1):
        where = f"recipes, number {number}"
        options = table.get("set")
        conditions = {
            key: str(value.value if isinstance(value, Given) else value)
            for key, value in table.items()
            if key != "set"
        }
        for key in conditions:
            if key not in _CONDITIONS:
                raise OptionError(
                    f"{where}: unknown key {key!r}; conditions are {', '.join(_CONDITIONS)}, and "
                    "options stand below set, as in [recipes.set.training]"
                )
        if not isinstance(options, Mapping):
            raise OptionError(f"{where}: sets no option; give some in [recipes.set.training]")
        method = conditions.get("method", "")
        if method and method.partition(":")[0] not in methods:
            raise OptionError(f"{where}: unknown method {method!r}{close_matches(method, methods)}")
        found.append(_Recipe(conditions, options))
    return found


def _overlay(tree: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Set options in a tree, but for those that the command line or the environment set."""
    for key, value in options.items():
        current = tree.get(key)
        if isinstance(value, Mapping):
            inner = {"name": current} if isinstance(current, Given) else dict(current or {})
            _overlay(inner, value)
            tree[key] = inner
        elif isinstance(current, dict):
            _overlay(current, {"name": value})
        elif getattr(current, "origin", "") not in (_COMMAND_LINE, "environment"):
            tree[key] = value


class _Maker:
    """Resolves the cells of a grid, each once."""

    def __init__(self, registry: Registry, tree: Mapping[str, Any], request: Request) -> None:
        self._registry, self._request = registry, request
        self._tree = {key: value for key, value in tree.items() if key != "recipes"}
        self._recipes = _recipes(tree.get("recipes", []), registry)
        self._created: set[str] = set()
        self._keys: dict[Slot, str] = {}
        self.cells: dict[str, Cell] = {}

    def slots(self) -> dict[Slot, int]:
        """Return the number of each slot's cell."""
        number = {key: i for i, key in enumerate(self.cells)}
        return {slot: number[key] for slot, key in self._keys.items()}

    def choice(self, text: str) -> Choice:
        """Open a data set and find out where its attributes come from."""
        label, name = _split_label(text)
        tree = self._base(name)
        dataset = resolve_component(self._registry, "dataset", tree["dataset"]).create()
        detectors = tuple(_names(tree, "detector", self._request.detectors))
        if not detectors and "attributes" in tree:
            given = tree["attributes"]
            detectors = (f"words of {given.value if isinstance(given, Given) else given}",)
        elif not detectors:
            detectors = ("own words",) if "words" in dataset.metadata else (DETECTOR,)
        return Choice(name, label, dataset.fingerprint, detectors)

    def _base(self, dataset: str) -> dict[str, Any]:
        tree = copy.deepcopy(self._tree)
        origin = _COMMAND_LINE if self._request.datasets else _DEFAULT
        if _name_in(tree, "dataset") != dataset:
            set_dotted(tree, "dataset", Given(dataset, origin))
        if "tasks" not in tree:
            tasks = _EMBEDDED_TASKS if _is_embedded(dataset) else TASKS
            set_dotted(tree, "tasks", Given(tasks, _DEFAULT))
        statistics = tree.get("statistics")
        if statistics is not None:
            raw = statistics.value if isinstance(statistics, Given) else statistics
            listed = raw.split(",") if isinstance(raw, str) else list(raw)
            tree["statistics"] = Given([*dict.fromkeys([*_NEEDED, *listed])], _DEFAULT)
        return tree

    def add(self, slot: Slot, choice: Choice) -> None:
        """Resolve the experiment of a slot; equal ones become one cell."""
        tree, request = self._base(slot.dataset), self._request
        named = {"method": request.methods, "backbone": request.backbones}
        for kind, value in (("method", slot.method), ("backbone", slot.backbone)):
            if _name_in(tree, kind) != value:
                set_dotted(tree, kind, Given(value, _COMMAND_LINE if named[kind] else _DEFAULT))
        for recipe in self._recipes:
            if recipe.holds_for(slot, choice):
                _overlay(tree, recipe.options)
        said = tree.get("recipe")
        if choice.label and isinstance(said, Given) and ":" not in str(said.value):
            # The data set goes by another name here, a folder perhaps; the label says which it is.
            tree["recipe"] = Given(f"{said.value}:{choice.label}", said.origin)
        origin = _COMMAND_LINE if request.shots else _DEFAULT
        set_dotted(tree, "sampler.n_shot", Given(slot.shot, origin))
        detected = request.detectors or slot.words == DETECTOR
        if detected and _name_in(tree, "detector") != slot.words:
            origin = _COMMAND_LINE if request.detectors else _DEFAULT
            set_dotted(tree, "detector", Given(slot.words, origin))
        if slot.technique:
            for key, value in TECHNIQUES[slot.technique].items():
                set_dotted(tree, f"sampler.{key}", Given(value, slot.technique))
        experiment = self._resolved(tree, slot)
        cell = Cell(_cell_name(slot, choice), experiment, choice.fingerprint)
        self._keys[slot] = cell.key
        self.cells.setdefault(cell.key, cell)

    def _resolved(self, tree: Mapping[str, Any], slot: Slot) -> Experiment:
        if slot.technique:
            name = (_name_in(tree, "sampler") or "fewstab").partition(":")[0]
            known = parameters(self._registry.load("sampler", name).cls)
            missing = [key for key in TECHNIQUES[slot.technique] if key not in known]
            if missing:
                raise OptionError(
                    f"--ablation needs a sampler with the options support and query; {name} has "
                    f"no {' and no '.join(missing)}"
                )
        experiment = resolve_experiment(self._registry, tree)
        if experiment.baseline is None:
            raise OptionError(
                f"--sampler {experiment.sampler.name}: ties no attribute to a class, so that it "
                "has no wAcc-A; use fewstab or fewstab-published"
            )
        for component in experiment.components():
            self._try(component)
        return experiment

    def _try(self, component: Component) -> None:
        """Construct a component once, so that options it refuses are told before anything runs."""
        key = canonical([component.kind, component.to_json()])
        if key in self._created or component.kind == "dataset":
            return
        self._created.add(key)
        try:
            component.create()
        except OptionError:
            raise
        except Exception:
            return  # what is at fault is no option, but a missing file: its cells will tell


def _cell_name(slot: Slot, choice: Choice) -> str:
    parts = [spelt(slot.method), slot.backbone, choice.name, f"{slot.shot}-shot", slot.words]
    return ", ".join([*parts, *([slot.technique] if slot.technique else [])])


def spelt(method: str) -> str:
    """Return a method in the paper's spelling, where the paper has it.

    >>> spelt("baseline-plus-plus"), spelt("mine")
    ('Baseline++', 'mine')
    """
    return METHODS.get(method, method)
