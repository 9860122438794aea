"""The stages of a training: what each learns from, how it is optimised, what it freezes."""

from __future__ import annotations

import importlib
import inspect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fsframework._calls import text_of
from fsframework._code import code_of
from fsframework._digest import digest_of
from fsframework._reading import check_file
from fsframework.components.options import TRAINING, Option, check_values
from fsframework.components.resolution import differing
from fsframework.errors import DataError, OptionError, argument, close_matches

if TYPE_CHECKING:
    from torch.nn import Parameter
    from torch.optim import Optimizer

__all__ = ["Precision", "Stage", "changed_options", "stage_digests"]

Precision = Literal["fp32", "bf16", "fp16"]
"""Number format of a backbone; operations unsafe in the shorter formats stay in fp32."""

Augmentation = Literal["resized-crop", "color-jitter", "flip"]


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
            every step_epochs; multi-step: times gamma at each of milestones; plateau: times gamma
            whenever the validation accuracy has not risen for step_epochs.
        milestones: epochs, counted from 0, at which the rate is multiplied once more.
        step_epochs: epochs between two steps of the schedules step and plateau.
        gamma: factor of the schedules step, multi-step and plateau.
        freeze: prefixes of parameter names that stay as they are, such as backbone.
        init_from: start the training from the weights of another run, of a model that a package
            has under a name, or of a file (.safetensors, .pth), also of another program.
        init_parts: prefixes of the weights to take from init_from; by default all whose names
            agree.
        distill: the model at the start of this stage becomes the teacher of a newly initialised
            one: a method that supports it learns from the teacher's outputs on its batches or
            views.
        teacher: a run folder, whose model becomes the teacher instead, with a backbone of its own;
            the stage goes on with the weights it has.
        precision: number format: fp32, or matrix products and convolutions in bf16 or fp16 (the
            latter with scaled gradients), in validation too; weights and evaluation stay in fp32.
        compile: compile the backbone with torch.compile; worth it for a long training.
        validation_tasks: tasks after each epoch; 0 keeps the last epoch.
        patience: stop when the validation accuracy has not risen for this many epochs; without
            validation all epochs are trained.
    """

    method: Annotated[Any, Option(names="method")] = None
    learns_from: Literal["method", "episodes", "batches", "both", "views"] = "method"
    epochs: Annotated[int, Option(least=0)] = 10
    steps: Annotated[int, Option(least=1)] = 36
    n_way: Annotated[int | None, Option(least=2)] = None
    n_shot: Annotated[int | None, Option(least=1)] = None
    n_query: Annotated[int, Option(least=1)] = 5
    tasks_per_step: Annotated[int, Option(least=1)] = 1
    batch_size: Annotated[int, Option(least=2)] = 64
    augment: tuple[Augmentation, ...] = ()
    optimizer: Annotated[str, Option(imports=True)] = "adam"
    learning_rate: Annotated[float, Option(above=0)] = 2e-3
    momentum: Annotated[float, Option(least=0)] = 0.9
    nesterov: bool = True
    weight_decay: Annotated[float, Option(least=0)] = 5e-4
    decayed: Literal["all", "matrices"] = "all"
    clip_norm: Annotated[float | None, Option(above=0)] = None
    schedule: Literal["constant", "cosine", "step", "multi-step", "plateau"] = "cosine"
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

    def episode(self, way_shot: tuple[int, int]) -> dict[str, int]:
        """Return ways, shots and queries per class of an episode.

        Args:
            way_shot: way and shot of the tasks under test.
        """
        way, shot = way_shot
        shape = {"n_way": self.n_way or way, "n_shot": self.n_shot or shot}
        return {**shape, "n_query": self.n_query}

    def rate(self, accuracies: Sequence[float | None]) -> float:
        """Return the learning rate of the next epoch, which depends on no state of its own.

        Args:
            accuracies: the validation accuracy of each epoch so far, ``None`` where none is known.

        >>> [round(Stage(epochs=2, learning_rate=1.0).rate([None] * e), 3) for e in range(2)]
        [1.0, 0.5]
        """
        epoch, falls = len(accuracies), 0
        if self.schedule == "cosine":
            return self.learning_rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        if self.schedule == "step":
            falls = epoch // self.step_epochs
        elif self.schedule == "multi-step":
            falls = sum(epoch >= m for m in self.milestones)
        elif self.schedule == "plateau":
            best = itertools.accumulate((a for a in accuracies if a is not None), max)
            waits = [len(list(same)) - 1 for _, same in itertools.groupby(best)]
            falls = sum(wait // self.step_epochs for wait in waits)
        return self.learning_rate * self.gamma**falls

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
            "fused": all(p.is_cuda for p in parameters) or None,
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


def changed_options(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """Return the options of each stage that are not the defaults."""
    return [differing(Stage, vars(stage)) for stage in stages]


def stage_digests(stages: Sequence[Stage]) -> list[list[str]]:
    """Return what decides each stage besides its options: weights that are read, and code."""
    return [
        [
            _digest_of("init_from", stage.init_from),
            stage.method.fingerprint if stage.method else "",
            _digest_of("teacher", stage.teacher),
            *([code_of(_optimizer_class(name)).digest] if ":" in (name := stage.optimizer) else []),
        ]
        for stage in stages
    ]


def _digest_of(option: str, source: Path | None) -> str:
    """Return the digest of the weights that an option of a stage names."""
    if source is None:
        return ""
    path = source / "weights.safetensors" if source.is_dir() else source
    try:
        check_file(path)
        return digest_of(path.read_bytes())
    except OSError as error:
        raise DataError(f"{argument(f'training.{option}')}: {path}: {error.strerror}") from None
