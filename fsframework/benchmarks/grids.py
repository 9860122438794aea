"""What the grids of all benchmarks share: who is asked for, options of some cells, one cell made.

The options of a benchmark are a tree as for ``resolve_experiment``, in which a component or a
number of shots may be named where the command line names none, and a list ``recipes`` may hold
options of some cells alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsframework.benchmarks.cells import Cell
from fsframework.components.registry import Registry
from fsframework.components.resolution import (
    Component,
    Given,
    canonical,
    resolve_component,
    set_dotted,
)
from fsframework.errors import (
    DataError,
    FsfError,
    InfeasibleTask,
    OptionError,
    RecordError,
    close_matches,
)
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.experiment.configuration import Experiment, resolve_experiment
from fsframework.pipeline.learning.training import learns
from fsframework.records import RunRecord

__all__ = [
    "COMMAND_LINE",
    "DEFAULT",
    "CellMaker",
    "Recipe",
    "Trial",
    "installed",
    "name_in",
    "names_in",
    "of_model",
    "overlay",
    "read_recipes",
    "shots_in",
    "split_label",
]

COMMAND_LINE, DEFAULT = "command line", "default of the benchmark"
"""Where a value comes from."""

_CONDITIONS = ("method", "dataset", "shot")


def name_in(tree: Mapping[str, Any], kind: str) -> str | None:
    """Return the name that a tree of options gives to a component, if it does."""
    value = tree.get(kind)
    if isinstance(value, Mapping):
        value = value.get("name")
    return None if value is None else str(value.value if isinstance(value, Given) else value)


def names_in(tree: Mapping[str, Any], kind: str, given: Sequence[str]) -> list[str]:
    """Return the names given, each once, else the one that the tree gives, else none."""
    named = name_in(tree, kind)
    return list(dict.fromkeys(given)) or ([] if named is None else [named])


def shots_in(
    tree: Mapping[str, Any], given: Sequence[int], default: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the numbers of shots given, each once, else the tree's, else the default.

    Raises:
        OptionError: the tree's is no number.
    """
    sampler = tree.get("sampler")
    if not given and isinstance(sampler, Mapping) and "n_shot" in sampler:
        value = sampler["n_shot"]
        text = str(value.value if isinstance(value, Given) else value)
        if not text.isdecimal():
            raise OptionError(f"sampler.n_shot must be a whole number, not {text!r}")
        return (int(text),)
    return tuple(dict.fromkeys(given)) or default


def installed(registry: Registry, names: Iterable[str], kind: str = "method") -> list[str]:
    """Return those of the names that are installed, in their order."""
    known = {plugin.name for plugin in registry.plugins(kind) if plugin.status == "ok"}
    return [name for name in names if name in known]


def split_label(text: str, labels: Sequence[str]) -> tuple[str, str]:
    """Return label and data set of ``[LABEL=]NAME[:ARG]``.

    Raises:
        OptionError: the label is none of those known.

    >>> known = ("miniImageNet", "CUB-200")
    >>> split_label("cub-200=folder:birds", known), split_label("folder:a=b", known)
    (('CUB-200', 'folder:birds'), ('', 'folder:a=b'))
    """
    label, equals, rest = text.partition("=")
    if not equals or ":" in label:
        return "", text
    for known in labels:
        if label.strip().lower() == known.lower():
            return known, rest
    raise OptionError(f"--dataset {text}: the label must be one of {', '.join(labels)}")


def of_model(folder: Path, method: str) -> dict[str, Given]:
    """Return the options that take backbone and weights from a run and train nothing.

    A run of the same method gives all its weights, another's those of its backbone alone.

    Raises:
        RecordError: there is no such run, or it has no weights of a backbone.
    """
    record = RunRecord.load(folder)
    if "backbone" not in record.resolved or not (folder / "weights.safetensors").exists():
        raise RecordError(f"--model {folder}: the run has no weights of a backbone")
    same = record.resolved["method"]["name"] == method
    backbone = dict(record.resolved["backbone"])
    found = {
        "backbone": backbone.pop("name"),
        **{f"backbone.{key}": value for key, value in backbone.items()},
        "recipe": None,
        "image_size": record.seen_size,
        "training.epochs": 0,
        "training.init_from": str(folder),
        "training.init_parts": [] if same else ["backbone"],
    }
    if same:
        own = {k: v for k, v in record.resolved["method"].items() if k not in ("name", "n_way")}
        found |= {f"method.{key}": value for key, value in own.items()}
    return {key: Given(value, f"run {folder.name}") for key, value in found.items()}


@dataclass(frozen=True)
class Recipe:
    """Options of the cells that meet all conditions."""

    conditions: Mapping[str, str]
    options: Mapping[str, Any]

    def holds_for(self, values: Mapping[str, Sequence[str]]) -> bool:
        """Whether a cell meets the conditions; of each there may be several names."""
        return all(value in values[key] for key, value in self.conditions.items())


def read_recipes(raw: Any, registry: Registry, methods: Iterable[str] = ()) -> list[Recipe]:
    """Read the list ``recipes`` of a configuration file.

    Args:
        methods: names that a method may have though it is not installed.

    Raises:
        OptionError: it is no such list; the message gives the number of the recipe.
    """
    if not isinstance(raw, list):
        raise OptionError("recipes must be a list of tables: [[recipes]] in the --config file")
    found = []
    known = {*methods, *registry.names("method")}
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
        if method and method.partition(":")[0] not in known:
            raise OptionError(f"{where}: unknown method {method!r}{close_matches(method, known)}")
        found.append(Recipe(conditions, options))
    return found


def overlay(tree: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Set options in a tree, but for those that the command line or the environment set."""
    for key, value in options.items():
        current = tree.get(key)
        if isinstance(value, Mapping):
            inner = {"name": current} if isinstance(current, Given) else dict(current or {})
            overlay(inner, value)
            tree[key] = inner
        elif isinstance(current, dict):
            overlay(current, {"name": value})
        elif getattr(current, "origin", "") not in (COMMAND_LINE, "environment"):
            tree[key] = value


class Trial:
    """Constructs components once, so that options they refuse are told before anything runs."""

    def __init__(self) -> None:
        self._tried: set[str] = set()

    def of(self, experiment: Experiment) -> None:
        """Construct every component of an experiment, but for the data set.

        Raises:
            OptionError: one of them refuses its options.
        """
        for component in experiment.components():
            self._try(component)

    def _try(self, component: Component) -> None:
        key = canonical([component.kind, component.to_json()])
        if key in self._tried or component.kind == "dataset":
            return
        self._tried.add(key)
        try:
            component.create()
        except OptionError:
            raise
        except (FsfError, OSError, ImportError):
            return  # what is at fault is no option, but a missing file: its cells will tell


class CellMaker:
    """Makes the cells of a grid over one data set; equal ones are one.

    Args:
        tree: options of every cell; ``recipes`` among them, options of some.
        dataset: ``NAME[:ARG]`` with its origin.
        forbidden: options that the benchmark says itself, beside those that have no place in any.
        methods: names that a recipe may have though they are not installed.
        opens: whether the data set is opened; without, cells can be listed but not run.

    Raises:
        FsfError: an option has no place here, or the data set cannot be opened.
    """

    def __init__(
        self,
        registry: Registry,
        tree: Mapping[str, Any],
        dataset: Given,
        *,
        forbidden: Sequence[str] = (),
        methods: Iterable[str] = (),
        opens: bool = True,
    ) -> None:
        for key in ("task_file", "placebo", *forbidden):
            if key in tree:
                raise OptionError(f"{key} has no place in this benchmark; use fsf run")
        self._registry, self._trial = registry, Trial()
        self._tree = {key: value for key, value in tree.items() if key != "recipes"}
        if name_in(self._tree, "dataset") != str(dataset.value):
            set_dotted(self._tree, "dataset", dataset)
        self._recipes = read_recipes(tree.get("recipes", []), registry, methods)
        component = resolve_component(registry, "dataset", self._tree["dataset"])
        self.opened: Dataset | None = component.create() if opens else None
        self.text = str(dataset.value)
        given = tree.get("split", "test")
        self.split = str(given.value if isinstance(given, Given) else given)
        self.cells: dict[str, Cell] = {}

    @property
    def dataset(self) -> Dataset:
        """The data set, opened."""
        assert self.opened is not None
        return self.opened

    def check_tasks(self) -> None:
        """Draw a task for every sampler of the cells, so that what fails in each is told before.

        Raises:
            InfeasibleTask: a split is missing, or no such task can be drawn from it.
        """
        cells = [cell.experiment for cell in self.cells.values()]
        if (
            any(learns(c.stages, c.method.cls) for c in cells)
            and "train" not in self.dataset.splits
        ):
            raise InfeasibleTask(
                f"{self.text}: has no split 'train' (it has {', '.join(self.dataset.splits)}), and "
                "methods are to be trained"
            )
        samplers = {canonical(c.sampler.to_json()): c.sampler for c in cells}
        try:
            pool = self.dataset.pool(self.split)
        except DataError as error:
            raise InfeasibleTask(f"{self.text}: {error}") from None
        for component in samplers.values():
            sampler = component.create()
            if sampler.needs_attributes or not sampler.independent:
                continue
            try:
                sampler.draw(pool, 1, 0)
            except InfeasibleTask as error:
                shape = f"{sampler.n_way}-way {sampler.n_shot}-shot"
                raise InfeasibleTask(f"{self.text}, split {self.split}, {shape}: {error}") from None

    def add(self, name: str, values: Mapping[str, Given], *, method: str, shot: int) -> str:
        """Resolve a cell and return its key.

        Args:
            values: by dotted key; stronger than what the tree gives.
            method: with ``shot`` what the conditions of recipes are about.

        Raises:
            FsfError: an option is unknown or not allowed.
        """
        tree = copy.deepcopy(self._tree)
        # Names of components come before their options, so that an option finds its component.
        for key in sorted(values, key=lambda k: k.count(".")):
            if "." in key or name_in(tree, key) != str(values[key].value):
                set_dotted(tree, key, values[key])
        facts = {"method": (method,), "dataset": (self.text,), "shot": (str(shot),)}
        for recipe in self._recipes:
            if recipe.holds_for(facts):
                overlay(tree, recipe.options)
        experiment = resolve_experiment(self._registry, tree)
        self._trial.of(experiment)
        fingerprint = "" if self.opened is None else self.opened.fingerprint
        cell = Cell(name, experiment, fingerprint)
        self.cells.setdefault(cell.key, cell)
        return cell.key
