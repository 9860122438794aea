"""FewSTAB's tables as a grid of experiments.

Source: Zheng et al. 2024, "Benchmarking Spurious Bias in Few-Shot Image Classifiers", sections
5.1-5.6 and appendix D. A table of the paper is a view of the grid: Tables 3, 4, 6, S7 and S8 need
the plain cells, S5 and S6 further constructions of the tasks, of which SC3 and QC3 are the plain
one.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fsframework.benchmarks.cells import Cell
from fsframework.benchmarks.grids import (
    COMMAND_LINE,
    DEFAULT,
    Trial,
    installed,
    name_in,
    names_in,
    overlay,
    read_recipes,
    shots_in,
    split_label,
)
from fsframework.benchmarks.published import DATASETS, METHODS
from fsframework.components.registry import Registry
from fsframework.components.resolution import (
    Given,
    parameters,
    resolve_component,
    set_dotted,
)
from fsframework.errors import OptionError
from fsframework.pipeline.experiment.configuration import Experiment, resolve_experiment
from fsframework.pipeline.learning.model import resolve_device

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
    methods = names_in(tree, "method", request.methods) or _installed(registry)
    texts = names_in(tree, "dataset", request.datasets) or [_EMBEDDED]
    ablated = shots_in(tree, request.shots, _ABLATION_SHOTS) if request.ablation else ()
    shots = shots_in(tree, request.shots, _SHOTS)
    made = _Maker(registry, tree, request)
    choices = {text: made.choice(text) for text in texts}
    if len({choice.text for choice in choices.values()}) < len(choices):
        raise OptionError("--dataset: the same data set is there twice")
    for choice in choices.values():
        usual = _EMBEDDED_BACKBONE if _is_embedded(choice.text) else BACKBONE
        backbones = names_in(tree, "backbone", request.backbones) or [usual]
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


def _installed(registry: Registry) -> list[str]:
    found = installed(registry, METHODS)
    if not found:
        raise OptionError(
            f"none of the paper's methods is installed ({', '.join(METHODS)}); "
            "name others with --method"
        )
    return found


def _is_embedded(text: str) -> bool:
    return text.partition(":")[0] == _EMBEDDED


class _Maker:
    """Resolves the cells of a grid, each once."""

    def __init__(self, registry: Registry, tree: Mapping[str, Any], request: Request) -> None:
        self._registry, self._request = registry, request
        self._tree = {key: value for key, value in tree.items() if key != "recipes"}
        self._recipes = read_recipes(tree.get("recipes", []), registry, METHODS)
        self._trial = Trial()
        self._keys: dict[Slot, str] = {}
        self.cells: dict[str, Cell] = {}

    def slots(self) -> dict[Slot, int]:
        """Return the number of each slot's cell."""
        number = {key: i for i, key in enumerate(self.cells)}
        return {slot: number[key] for slot, key in self._keys.items()}

    def choice(self, text: str) -> Choice:
        """Open a data set and find out where its attributes come from."""
        label, name = split_label(text, DATASETS)
        tree = self._base(name)
        dataset = resolve_component(self._registry, "dataset", tree["dataset"]).create()
        detectors = tuple(names_in(tree, "detector", self._request.detectors))
        if not detectors and "attributes" in tree:
            given = tree["attributes"]
            detectors = (f"words of {given.value if isinstance(given, Given) else given}",)
        elif not detectors:
            detectors = ("own words",) if "words" in dataset.metadata else (DETECTOR,)
        return Choice(name, label, dataset.fingerprint, detectors)

    def _base(self, dataset: str) -> dict[str, Any]:
        tree = copy.deepcopy(self._tree)
        origin = COMMAND_LINE if self._request.datasets else DEFAULT
        if name_in(tree, "dataset") != dataset:
            set_dotted(tree, "dataset", Given(dataset, origin))
        if "tasks" not in tree:
            tasks = _EMBEDDED_TASKS if _is_embedded(dataset) else TASKS
            set_dotted(tree, "tasks", Given(tasks, DEFAULT))
        statistics = tree.get("statistics")
        if statistics is not None:
            raw = statistics.value if isinstance(statistics, Given) else statistics
            listed = raw.split(",") if isinstance(raw, str) else list(raw)
            tree["statistics"] = Given([*dict.fromkeys([*_NEEDED, *listed])], DEFAULT)
        return tree

    def add(self, slot: Slot, choice: Choice) -> None:
        """Resolve the experiment of a slot; equal ones become one cell."""
        tree, request = self._base(slot.dataset), self._request
        named = {"method": request.methods, "backbone": request.backbones}
        for kind, value in (("method", slot.method), ("backbone", slot.backbone)):
            if name_in(tree, kind) != value:
                set_dotted(tree, kind, Given(value, COMMAND_LINE if named[kind] else DEFAULT))
        facts = {
            "method": (slot.method,),
            "dataset": (choice.text, choice.label),
            "shot": (str(slot.shot),),
        }
        for recipe in self._recipes:
            if recipe.holds_for(facts):
                overlay(tree, recipe.options)
        said = tree.get("recipe")
        if choice.label and isinstance(said, Given) and ":" not in str(said.value):
            # The data set goes by another name here, a folder perhaps; the label says which it is.
            tree["recipe"] = Given(f"{said.value}:{choice.label}", said.origin)
        origin = COMMAND_LINE if request.shots else DEFAULT
        set_dotted(tree, "sampler.n_shot", Given(slot.shot, origin))
        detected = request.detectors or slot.words == DETECTOR
        if detected and name_in(tree, "detector") != slot.words:
            origin = COMMAND_LINE if request.detectors else DEFAULT
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
            name = (name_in(tree, "sampler") or "fewstab").partition(":")[0]
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
        self._trial.of(experiment)
        return experiment


def _cell_name(slot: Slot, choice: Choice) -> str:
    parts = [spelt(slot.method), slot.backbone, choice.name, f"{slot.shot}-shot", slot.words]
    return ", ".join([*parts, *([slot.technique] if slot.technique else [])])


def spelt(method: str) -> str:
    """Return a method in the paper's spelling, where the paper has it.

    >>> spelt("baseline-plus-plus"), spelt("mine")
    ('Baseline++', 'mine')
    """
    return METHODS.get(method, method)
