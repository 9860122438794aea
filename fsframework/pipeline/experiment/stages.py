"""The stages of a training: what each learns from, how it is optimised, what it freezes."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

from fsframework._calls import text_of
from fsframework.components.conversion import parameters
from fsframework.components.options import Given, Option, check_values, layer, over, value_of
from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, resolve_component, resolve_settings
from fsframework.errors import OptionError, close_matches
from fsframework.pipeline.experiment.recipes import Recipe, find_recipe, unknown_recipe

if TYPE_CHECKING:
    from torch.nn import Parameter
    from torch.optim import Optimizer

__all__ = [
    "AUGMENTATIONS",
    "OVERRIDING",
    "SCHEDULES",
    "TRAINING",
    "Precision",
    "Recipes",
    "Stage",
    "argument_apart",
    "find_recipes",
    "resolve_stages",
]

Precision = Literal["fp32", "bf16", "fp16"]
"""Number format of a backbone; operations unsafe in the shorter formats stay in fp32."""

Augmentation = Literal["resized-crop", "color-jitter", "flip"]
AUGMENTATIONS: tuple[Augmentation, ...] = get_args(Augmentation)

OVERRIDING = ("grid", "command line", "call", "environment")
"""Origins of what the user gave for this run, in order of precedence."""

TRAINING = "Model and training"
"""Section of the help for options of the model and its training."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of training and its options.

    The defaults are a quick recipe for the embedded data set: RENet reaches about 85 % on its
    random 5-way 5-shot tasks within a minute on 2 cores. They come from no paper.

    Args:
        method: another method with whose loss this stage trains the backbone, such as baseline
            before LEO; none for the method under test.
        learns_from: what the loss of a step is computed on; method is what the method declares.
        epochs: number of epochs; after each the validation accuracy is measured. 0 trains nothing,
            so that with init_from the weights of another run are evaluated as they are.
        steps: updates per epoch.
        n_way: classes per episode; none takes the way of the tasks under test.
        n_shot: support images per class; none takes the shot of the tasks under test.
        n_query: queries per class of an episode.
        tasks_per_step: episodes per update.
        batch_size: images per step on batches or views.
        augment: random changes made to an image each time it is used, any of resized-crop,
            color-jitter and flip.
        optimizer: name of one of torch.optim that takes a learning rate and a weight decay: adam
            (Kingma & Ba 2015), sgd, adamw, ...; or module and class of another library's, such as
            fsf_timm:Lars, with its own defaults for all else.
        learning_rate: learning rate at the start; schedule changes it from epoch to epoch.
        momentum: of optimisers that have one, such as sgd.
        nesterov: whether that momentum is Nesterov's.
        weight_decay: L2 penalty.
        decayed: what the penalty is for: all parameters, or matrices only, which leaves out biases
            and BatchNorm's weights. LARS adapts its rate to those with a penalty.
        clip_norm: gradients of a larger Euclidean norm are scaled down to this one.
        schedule: how the learning rate changes: constant; cosine to 0 at the end; step: times gamma
            every step_epochs; multi-step: times gamma at each of milestones.
        milestones: epochs, counted from 0, at which the rate is multiplied once more.
        step_epochs: epochs between two steps of the schedule step.
        gamma: factor of the schedules step and multi-step.
        freeze: prefixes of parameter names that stay as they are, such as backbone.
        init_from: start the training from the weights of another run, or of a safetensors file.
        init_parts: prefixes of the weights to take from init_from; by default all whose names
            agree.
        distill: the model at the start of this stage becomes the teacher of a newly initialised
            one: a method that supports it learns from the teacher's outputs on its batches or
            views.
        teacher: a run folder, whose model becomes the teacher instead, with a backbone of its own;
            the stage goes on with the weights it has.
        precision: number format: fp32, or matrix products and convolutions in bf16 or fp16 (the
            latter with scaled gradients); weights, validation and evaluation stay in fp32.
        compile: compile the backbone with torch.compile; worth it for a long training.
        validation_tasks: tasks after each epoch; 0 keeps the last epoch.
        patience: stop when the validation accuracy has not risen for this many epochs.
    """

    method: Component | None = None
    learns_from: Literal["method", "episodes", "batches", "both", "views"] = "method"
    epochs: Annotated[int, Option(least=0)] = 10
    steps: Annotated[int, Option(least=1)] = 36
    n_way: Annotated[int | None, Option(least=2)] = None
    n_shot: Annotated[int | None, Option(least=1)] = None
    n_query: Annotated[int, Option(least=1)] = 5
    tasks_per_step: Annotated[int, Option(least=1)] = 1
    batch_size: Annotated[int, Option(least=2)] = 64
    augment: tuple[Augmentation, ...] = ()
    optimizer: str = "adam"
    learning_rate: Annotated[float, Option(above=0)] = 2e-3
    momentum: Annotated[float, Option(least=0)] = 0.9
    nesterov: bool = True
    weight_decay: Annotated[float, Option(least=0)] = 5e-4
    decayed: Literal["all", "matrices"] = "all"
    clip_norm: Annotated[float | None, Option(above=0)] = None
    schedule: Literal["constant", "cosine", "step", "multi-step"] = "cosine"
    milestones: tuple[int, ...] = ()
    step_epochs: Annotated[int, Option(least=1)] = 20
    gamma: Annotated[float, Option(least=0)] = 0.1
    freeze: tuple[str, ...] = ()
    init_from: Annotated[Path | None, Option(TRAINING, "RUN", names="run")] = None
    init_parts: tuple[str, ...] = ()
    distill: bool = False
    teacher: Path | None = None
    precision: Precision = "fp32"
    compile: bool = False
    validation_tasks: Annotated[int, Option(least=0)] = 50
    patience: Annotated[int | None, Option(least=1)] = None

    def __post_init__(self) -> None:
        check_values(self, "training.")
        if self.init_parts and self.init_from is None:
            raise OptionError(
                "training.init_parts selects weights of training.init_from, which is not given"
            )
        if self.distill and self.teacher is not None:
            raise OptionError(
                "training.distill makes the model at the start of the stage the teacher; omit it "
                "or training.teacher"
            )
        if self.patience is not None and self.validation_tasks == 0:
            raise OptionError(
                "training.patience needs a validation accuracy, and training.validation_tasks=0 "
                "measures none"
            )

    @property
    def distils(self) -> bool:
        """Whether a teacher takes part."""
        return self.distill or self.teacher is not None

    def shown(self, own: str) -> str:
        """Return what the loss of a step is computed on: ``episodes``, ``batches``, ``views``, ...

        Args:
            own: what the method declares; a method that learns from nothing sees nothing.
        """
        return own if own == "nothing" or self.learns_from == "method" else self.learns_from

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch; it depends on no state, so resuming is simple.

        >>> [round(Stage(epochs=2, learning_rate=1.0).rate(e), 3) for e in range(2)]
        [1.0, 0.5]
        """
        return self.learning_rate * SCHEDULES[self.schedule](self, epoch)

    def optimizer_of(self, parameters: Sequence[Parameter]) -> Optimizer:
        """Return the stage's optimiser of some parameters.

        Raises:
            OptionError: the optimiser does not exist, or it needs options that a stage lacks.
        """
        cls = _optimizer_class(self.optimizer)
        offered: dict[str, Any] = {
            "lr": self.learning_rate,
            "weight_decay": self.weight_decay,
            "momentum": self.momentum,
            "nesterov": self.nesterov and self.momentum > 0,
        }
        taken = inspect.signature(cls).parameters
        groups: Sequence[Any] = parameters
        if self.decayed == "matrices":
            groups = [
                {"params": [p for p in parameters if p.ndim > 1]},
                {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
            ]
        try:
            return cls(groups, **{k: v for k, v in offered.items() if k in taken})
        except (TypeError, ValueError) as error:
            raise OptionError(f"training.optimizer {self.optimizer}: {error}") from None


def _optimizer_class(name: str) -> type[Optimizer]:
    """Return the class of ``torch.optim``, or of ``module:Class``, that a name means.

    Raises:
        OptionError: there is none.
    """
    import torch

    module, _, attribute = name.partition(":")
    if not attribute:
        known = {
            key.lower(): cls
            for key, cls in vars(torch.optim).items()
            if inspect.isclass(cls) and issubclass(cls, torch.optim.Optimizer)
        }
        del known["optimizer"]
        if (found := known.get(name.lower())) is None:
            hint = close_matches(name, known)
            raise OptionError(
                f"training.optimizer {name!r} is not in torch.optim{hint}; it has "
                f"{', '.join(sorted(known))}; give that of another library as module:Class"
            )
        return found
    try:
        other = getattr(importlib.import_module(module), attribute)
    # Whatever a library does when it is imported.
    except Exception as error:
        raise OptionError(
            f"training.optimizer {name} cannot be imported: {text_of(error)}"
        ) from error
    if not (inspect.isclass(other) and issubclass(other, torch.optim.Optimizer)):
        raise OptionError(f"training.optimizer {name} is not a subclass of torch.optim.Optimizer")
    return other


def _cosine(stage: Stage, epoch: int) -> float:
    return (1 + math.cos(math.pi * epoch / stage.epochs)) / 2


def _step(stage: Stage, epoch: int) -> float:
    return stage.gamma ** (epoch // stage.step_epochs)


def _multi_step(stage: Stage, epoch: int) -> float:
    return stage.gamma ** sum(epoch >= m for m in stage.milestones)


SCHEDULES: Mapping[str, Callable[[Stage, int], float]] = {
    "constant": lambda _stage, _epoch: 1.0,
    "cosine": _cosine,
    "step": _step,
    "multi-step": _multi_step,
}
"""Factor of the learning rate in an epoch, by the name of the schedule."""


class Recipes(NamedTuple):
    """The recipes of an experiment.

    Args:
        own: of the method under test.
        lent: of the method that trains the backbone instead, if its stages are used.
    """

    own: Recipe | None = None
    lent: Recipe | None = None

    def __bool__(self) -> bool:
        return self != (None, None)

    def options(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return what they set besides the training, for the backbone that is asked for."""
        backbone = value_of(asked.get("backbone"))
        name = None if backbone is None else str(backbone).partition(":")[0]
        found: dict[str, Any] = {}
        if self.own is not None:
            found = layer(dict(self.own.options_on(name)), self.own.origin)
        if self.lent is not None:
            below = layer(dict(self.lent.options_on(name)), self.lent.lent_origin)
            below.pop("method", None)  # belongs to its stages
            found = over(found, below)
        found.pop("training", None)  # belongs to single stages
        return found


def find_recipes(registry: Registry, tree: Mapping[str, Any], name: str, shot: int) -> Recipes:
    """Return the recipes for the methods, data and shot of an experiment.

    The method that trains in all stages lends its recipe, unless that of the method under test
    names it, and so has settings for it.

    Raises:
        OptionError: a recipe that is asked for does not exist, or not for these data.
    """
    dataset = str(value_of(tree["dataset"])).partition(":")[0]

    def recipe_of(request: Any) -> Recipe | None:
        method = str(value_of(request)).partition(":")[0]
        plugin = registry.find("method", method)
        return find_recipe(registry, plugin, name, dataset, shot, _argument_of(registry, request))

    own, lent, trainer = recipe_of(tree["method"]), None, _trainer(tree.get("training"))
    if trainer is not None and not (own and own.names(str(value_of(trainer)).partition(":")[0])):
        lent = recipe_of(trainer)
        if lent is not None and not _lent_stages(lent):
            lent = None
    if own is None and lent is None and "recipe" in tree:
        method = registry.find("method", str(value_of(tree["method"])).partition(":")[0])
        raise unknown_recipe(registry, method.name, name)
    return Recipes(own, lent)


def _trainer(training: Any) -> Any:
    """Return the request for the method that trains in all stages, ``None`` if there is none."""
    if not isinstance(training, Mapping) or "stages" in training:
        return None
    request = training.get("method")
    return None if value_of(request) in (None, "none") else request


def _lent_stages(recipe: Recipe) -> list[Mapping[str, Any]]:
    """Return the stages that can train the backbone of another method.

    A method that is itself trained in no stage lends none.
    """
    if all("method" in stage for stage in recipe.stages):
        return []
    return [
        stage
        for stage in recipe.stages
        if not stage.get("distill") and "backbone" not in stage.get("freeze", ())
    ]


def argument_apart(registry: Registry, request: Any) -> Any:
    """Return the request for a method with the value of ``NAME:VALUE`` as an option."""
    found = dict(request) if isinstance(request, Mapping) else {"name": request}
    given = found.get("name")
    name, colon, value = str(value_of(given) or "").partition(":")
    if not colon or not isinstance(given, Given):
        return request
    argument_of = registry.load("method", name).cls.argument
    if argument_of is None:
        return request  # explained where the method is resolved
    found["name"] = Given(name, given.origin)
    found.setdefault(argument_of, Given(value, given.origin))
    return found


def _argument_of(registry: Registry, request: Any) -> str:
    """Return the value of a method's argument, empty if it has none."""
    name, _, value = str(value_of(request)).partition(":")
    cls = registry.load("method", name).cls
    if value or cls.argument is None:
        return value
    given = request.get(cls.argument) if isinstance(request, Mapping) else None
    default = parameters(cls)[cls.argument][1]
    found = default if given is None else value_of(given)
    return found if isinstance(found, str) else ""


def resolve_stages(
    registry: Registry, training: Any, recipes: Recipes
) -> tuple[tuple[Stage, ...], list[dict[str, Any]]]:
    """Return the stages of a training, and the origins of their options.

    Args:
        training: a tree of what the user gives.
        recipes: whose stages lie below, unless the user gives stages.

    Raises:
        OptionError: the tree is malformed, or an option of a stage is wrong.
    """
    if not isinstance(training, Mapping):
        raise OptionError("training is a table of options; write training.epochs=5 or [training]")
    common = {k: v for k, v in training.items() if k != "stages"}
    listed = training.get("stages")
    if listed is None:
        trees = _stages_below(registry, common, recipes)
    elif isinstance(listed, list) and all(isinstance(own, Mapping) for own in listed):
        # What the user gives for this run holds for every stage, whatever the file sets for one.
        override = {k: v for k, v in common.items() if getattr(v, "origin", "") in OVERRIDING}
        trees = [{**common, **own, **override} for own in listed]
    else:
        raise OptionError("training.stages must be a list of tables: [[training.stages]]")
    for number, tree in enumerate(trees):
        if number and not (listed and "init_from" in listed[number]):
            # Later stages continue with the weights of the stage before them.
            tree.pop("init_from", None)
            tree.pop("init_parts", None)
    made = [_stage(registry, tree) for tree in trees]
    return tuple(stage for stage, _ in made), [origins for _, origins in made]


def _stages_below(
    registry: Registry, common: Mapping[str, Any], recipes: Recipes
) -> list[dict[str, Any]]:
    """Return a tree of options for each stage of the recipes, below what the user gives for all."""
    own, lent = recipes
    if lent is None:
        if own is None:
            return [dict(common)]
        return [{**layer(stage, own.origin), **common} for stage in own.stages]
    settings = layer(dict(lent.options.get("method", {})), lent.lent_origin)
    trainer = over({"method": argument_apart(registry, common["method"])}, {"method": settings})[
        "method"
    ]
    rest = {k: v for k, v in common.items() if k != "method"}
    return [
        {"method": trainer, **layer(stage, lent.lent_origin), **rest}
        for stage in _lent_stages(lent)
    ]


def _stage(registry: Registry, tree: dict[str, Any]) -> tuple[Stage, dict[str, Any]]:
    request = tree.pop("method", None)
    stage, origins = resolve_settings(Stage, tree, "training")
    if request is None or str(value_of(request)) == "none":
        return stage, origins
    method = resolve_component(registry, "method", request, where="training.method")
    return dataclasses.replace(stage, method=method), {**origins, "method": method.origins_json()}
