"""Training: a list of stages on episodes or batches, resumable, with the best epoch kept.

The method defines its loss; this module alone defines the loop.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fsframework
from fsframework._calls import about, contained, malformed, named, seeded
from fsframework._files import held, load_sealed, remove_sealed, save_sealed, sweep
from fsframework.components.resolution import Component, canonical, resolve_component
from fsframework.engine.cache.images import Source
from fsframework.engine.configuration import Experiment
from fsframework.engine.learning.batches import Split, StepBatches
from fsframework.engine.learning.episodes import EPISODES, drawn_episodes
from fsframework.engine.learning.evaluation import ImageSource, predict
from fsframework.engine.learning.knowledge import Knowledge
from fsframework.engine.learning.model import (
    FewShotModel,
    base_classes_of,
    build_model,
    load_tensors,
    lowered,
    save_tensors,
    weights_from,
)
from fsframework.engine.learning.scoring import check_tensor
from fsframework.engine.lineage import facts_of
from fsframework.engine.names import told_names
from fsframework.engine.progress import Advance
from fsframework.engine.session import Session
from fsframework.engine.stages import Stage, changed_options, stage_digests
from fsframework.errors import DataError, InfeasibleTask, OptionError, argument
from fsframework.interfaces.method import Batch, FewShotMethod
from fsframework.records import Epoch, RunRecord
from fsframework.values import AttributeTable, TaskSet, digest_of

__all__ = [
    "Split",
    "Trained",
    "Training",
    "start_stages",
]


_SECONDS_BETWEEN_CHECKPOINTS = 60.0


@dataclass(frozen=True)
class Trained:
    """The result of a training.

    Args:
        history: the epochs in order.
        best_accuracy: validation accuracy of the epoch kept; ``None`` without validation.
        reused: whether the weights came from the cache.
    """

    history: tuple[Epoch, ...]
    best_accuracy: float | None
    reused: bool
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Training:
    """The training of the model of an experiment.

    Args:
        experiment: with the options that the data decided.
        source: of the images.
        way_shot: way and shot of the tasks under test.
        device: to compute on.
        session: where it runs.
        words: of the training images, if a method that learns needs them. Those of the validation
            images are not detected: they are taken to have none.
    """

    experiment: Experiment
    source: Source
    way_shot: tuple[int, int]
    device: torch.device
    session: Session
    words: AttributeTable | None = None

    @cached_property
    def n_base_classes(self) -> int:
        """Classes of the split ``train``; 0 if nothing learns from them, or it has no labels."""
        return self.source.dataset.pool("train").n_classes if self.experiment.learns else 0

    def untrained(self, seed: int | None = None) -> FewShotModel:
        """Build the model, which has its pretrained weights if it has any.

        Fails for images that are too small for the backbone.

        Args:
            seed: of the other weights; by default the experiment's.
        """
        backbone, method = self.experiment.backbone, self.experiment.method
        size, settings = self.source.store.size, self.experiment.settings
        seed = settings.training_seed if seed is None else seed
        model = build_model(backbone, method, size, self.n_base_classes, seed, settings)
        return model.to(self.device)

    def model_of(self, folder: Path) -> FewShotModel:
        """Load the model of a run, for images of the size of this experiment's.

        Raises:
            DataError: its weights are missing, damaged or not those of its model.
            OptionError: it holds no model.
            RecordError: it is no run.
        """
        record = RunRecord.load(folder)
        backbone, method = (
            resolve_component(self.session.registry, kind, tree)
            for kind, tree in record.model_tree(str(folder)).items()
        )
        model = build_model(backbone, method, self.source.store.size, base_classes_of(folder))
        start_from(model, folder, whole=True)
        return model.to(self.device)

    @cached_property
    def splits(self) -> list[Split]:
        """The images trained and, if there are any, validated on."""
        dataset, reporter = self.source.dataset, self.session.reporter
        pools = {name: dataset.pool(name) for name in ("train", "val") if name in dataset.splits}
        if (table := self.words) is not None:
            pools["train"] = pools["train"].with_attributes(table)
            if "val" in pools:
                keys, none = pools["val"].keys, np.zeros(len(pools["val"]) + 1, np.int64)
                bare = AttributeTable(keys, table.words, none, np.empty(0, np.int32))
                pools["val"] = pools["val"].with_attributes(bare)
        return [Split(pool, self.source.pixels(name, reporter)) for name, pool in pools.items()]

    @cached_property
    def told(self) -> tuple[str, ...]:
        """What the classes validated on are called."""
        return told_names(self.splits[1].pool, self.experiment.settings) if self.splits[1:] else ()

    @cached_property
    def episodes(self) -> Component:
        """The sampler that draws episodes and validation tasks."""
        return resolve_component(self.session.registry, "sampler", EPISODES)

    def train(self, model: FewShotModel, watch: Callable[[Sequence[Epoch]], None]) -> Trained:
        """Train the model in place, or take the weights of an equal training from the cache.

        Args:
            watch: called with the history so far after each epoch.
        """
        experiment, seed = self.experiment, self.experiment.settings.training_seed
        # Everything that decides the weights; no fingerprint need cover pretrained ones.
        key = digest_of(
            "training",
            fsframework.__version__,
            [split.digest for split in self.splits],
            [split.pool.fingerprint for split in self.splits],
            [experiment.backbone.fingerprint, self._method_fingerprint(model)],
            [model.weights_digest()],
            canonical([changed_options(experiment.stages), self.way_shot, seed]),
            [self.episodes.fingerprint],
            canonical(stage_digests(experiment.stages)),
            self.device.type,
            *([] if self.words is None else [self.words.fingerprint]),
            *([] if experiment.settings.class_names == "own" else [canonical(self.told)]),
        )
        folder = self.session.workspace.cache / "training" / key[:24]
        with held(folder, self.session.reporter.note):
            trained = self._trained(model, folder, watch)
        watch(trained.history)
        return trained

    def _method_fingerprint(self, model: FewShotModel) -> str:
        """Return the method's fingerprint, or nothing where other methods train all of the model.

        So what ``baseline`` trains for ``ncc`` is not trained again for ``knn``.
        """
        bare = type(model.method).build is FewShotMethod.build
        others = all(stage.method for stage in self.experiment.stages)
        return "" if bare and others else self.experiment.method.fingerprint

    def _trained(
        self, model: FewShotModel, folder: Path, watch: Callable[[Sequence[Epoch]], None]
    ) -> Trained:
        """Train the model in place, or load the weights that an earlier call left in a folder.

        Args:
            folder: holds ``checkpoint.safetensors`` during training and ``weights.safetensors`` at
                the end. A killed training resumes from its last checkpoint, written after every
                epoch and once per minute, and ends with the same weights.
        """
        sweep(folder)
        reporter, stages = self.session.reporter, self.experiment.stages
        weights, checkpoint = folder / "weights.safetensors", folder / "checkpoint.safetensors"
        earlier = load_sealed(weights, lambda path: _finished(model, path), reporter.note)
        if earlier is not None:
            return earlier
        kept = load_sealed(checkpoint, lambda path: _Progress.read(path, model), reporter.note)
        progress = kept or _Progress()
        steps = [stage.epochs * stage.steps for stage in stages]
        done = sum(steps[: progress.stage]) + len(progress.tensors.get("losses", ()))
        if stages:
            done += progress.epoch * stages[progress.stage].steps
        with reporter.stage("training", sum(steps), done) as advance:
            for number in range(first := progress.stage, len(stages)):
                if number > first:
                    progress.begin(number)
                _StageLoop(model, self, progress, checkpoint, advance, watch).run()
        notes = tuple(dict.fromkeys(progress.notes))
        header: dict[str, object] = {
            "what": "weights",
            "history": [dataclasses.asdict(row) for row in progress.history],
            "best_accuracy": progress.best_accuracy,
            "notes": notes,
        }
        save_sealed(weights, lambda path: save_tensors(path, model.state_dict(), header))
        remove_sealed(checkpoint)
        return Trained(tuple(progress.history), progress.best_accuracy, False, notes)


def _finished(model: FewShotModel, path: Path) -> Trained:
    """Load the weights that an earlier training left, and return its result."""
    tensors, header = load_tensors(path)
    told: Any = header
    history = tuple(Epoch(**row) for row in told["history"])
    trained = Trained(history, told["best_accuracy"], True, tuple(told["notes"]))
    _check_fit(model, tensors)
    model.load_state_dict(tensors)
    return trained


def _check_fit(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Check that weights are all those of a model.

    Raises:
        DataError: names or shapes are not those of the model.
    """
    own = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if own != {name: tensor.shape for name, tensor in tensors.items()}:
        raise DataError("its weights are not those of this model")


def start_from(
    model: FewShotModel, source: Path, parts: Sequence[str] = (), *, whole: bool = False
) -> None:
    """Load the weights of a run folder or a file into a model, where names match.

    Args:
        parts: prefixes of the names of the weights to load; all if empty.
        whole: require every weight of the backbone.

    Raises:
        DataError: no name matches, a shape differs, or weights of the backbone are missing.
    """
    path = source / "weights.safetensors" if source.is_dir() else source
    own, found = model.state_dict(), weights_from(source, model)
    for part in parts:
        if not any(_is_below(name, [part]) for key in found for name in (key, _name_in(own, key))):
            tops = ", ".join(sorted({key.partition(".")[0] for key in found})) or "none at all"
            raise DataError(
                f"training.init_parts {part}: {path} has no weights of this name; it has {tops}"
            )
    shared = {
        name: tensor
        for key, tensor in found.items()
        if (name := _name_in(own, key)) in own
        and (not parts or _is_below(key, parts) or _is_below(name, parts))
    }
    unfit = sorted(name for name, tensor in shared.items() if own[name].shape != tensor.shape)
    if (own or found) and len(unfit) == len(shared):  # some models have no weights at all
        raise DataError(f"{path}: its weights do not fit this model{_made_for(path)}")
    if unfit:
        of_backbone = any(_plain(name).startswith("backbone.") for name in unfit)
        hint = "; training.init_parts=backbone loads only the backbone"
        raise DataError(
            f"{path}: the weights {', '.join(unfit[:3])} have another shape"
            f"{_made_for(path) if of_backbone else hint}"
        )
    if whole:
        extractors = set(map(id, model.extractor.parameters()))
        left = [k for k, p in model.named_parameters() if id(p) in extractors and k not in shared]
        if left:
            raise DataError(
                f"{path}: lacks {len(left)} weights of the backbone, such as {left[0]}; use the "
                "options of that run's backbone"
            )
    model.load_state_dict(shared, strict=False)


def start_stages(model: FewShotModel, stages: Sequence[Stage], *, whole: bool) -> None:
    """Load the weights that stages start from into a model that is not trained.

    Args:
        whole: require every weight of the backbone.
    """
    for stage in stages:
        if stage.init_from is not None:
            start_from(model, stage.init_from, stage.init_parts, whole=whole)


def _made_for(path: Path) -> str:
    """Return which backbone weights are for, as the end of a sentence, if their file says so."""
    facts = facts_of(path)
    if facts is None or not facts.backbone.name:
        return ": is the backbone another?"
    return f"; they are for {argument('backbone', facts.backbone.name)} with the options it had"


_HELD = re.compile(r"method\.(base\.)*backbone(?=\.|$)")
"""How a name within the backbone begins where the method holds it, or a method in that one."""


def _plain(name: str) -> str:
    """Return a name within a model as if no method held the backbone; users need not know this.

    >>> _plain("method.base.backbone.blocks.0.weight"), _plain("method.head.weight")
    ('backbone.blocks.0.weight', 'method.head.weight')
    """
    held = _HELD.match(name)
    return name if held is None else f"backbone{name[held.end() :]}"


def _name_in(own: Mapping[str, Tensor], key: str) -> str:
    """Return a weight's name in this model, whether or not the method holds the backbone."""
    if key in own or not (plain := _plain(key)).startswith("backbone."):
        return key
    return next((name for name in own if _plain(name) == plain), key)


def _is_below(name: str, prefixes: Iterable[str]) -> bool:
    """Return whether a weight's name begins with one of the prefixes."""
    names = (name, name.removeprefix("method."), _plain(name))
    return any(n == prefix or n.startswith(f"{prefix}.") for prefix in prefixes for n in names)


@dataclass
class _Progress:
    """How far a training has come; a checkpoint has it in its header.

    Args:
        stage: number of the current stage; ``epoch`` counts those that it has finished.
        best_accuracy: highest validation accuracy of the stage, reached after ``best_epoch``
            epochs; ``None`` without validation.
        scaler: state of the gradients' scaler.
        tensors: of the checkpoint that the stage resumes from; empty for one that starts.
    """

    stage: int = 0
    epoch: int = 0
    best_accuracy: float | None = None
    best_epoch: int = 0
    history: list[Epoch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    scaler: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def read(cls, checkpoint: Path, model: FewShotModel) -> _Progress:
        """Read a checkpoint of the training of a model."""
        tensors, header = load_tensors(checkpoint)
        raw: Any = {k: v for k, v in header.items() if k in cls.__dataclass_fields__}
        raw["history"] = [Epoch(**row) for row in raw["history"]]
        progress = cls(**raw, tensors=tensors)
        _check_fit(model, progress.part("model"))
        return progress

    def part(self, name: str) -> dict[str, Tensor]:
        """Return the tensors of one part of the checkpoint, such as ``model``."""
        prefix = f"{name}."
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}

    def header(self) -> dict[str, object]:
        """Return everything but the tensors."""
        found = dataclasses.asdict(replace(self, tensors={}))
        return {name: value for name, value in found.items() if name != "tensors"}

    def begin(self, stage: int) -> None:
        """Turn to the next stage."""
        self.stage, self.epoch, self.best_epoch, self.best_accuracy = stage, 0, 0, None


class _StageLoop:
    """Runs the epochs of one stage; each depends only on weights, optimiser and its number.

    Args:
        whole: the model under test.
        training: that it is a stage of.
        progress: where to start; it is kept up to date.
        checkpoint: file that the training resumes from.
        advance: called after each step.
        watch: called with the history after each epoch.
    """

    def __init__(
        self,
        whole: FewShotModel,
        training: Training,
        progress: _Progress,
        checkpoint: Path,
        advance: Advance,
        watch: Callable[[Sequence[Epoch]], None],
    ) -> None:
        self.whole, self.training, self.progress = whole, training, progress
        self.checkpoint, self.advance, self.watch = checkpoint, advance, watch
        self.stage = stage = training.experiment.stages[progress.stage]
        self.device = training.device
        self.train_split, *others = training.splits
        self.val_split = others[0] if others else None
        self.model = self._trained_model()
        # Compiled only for training: each of the shapes of validation would be compiled too.
        encode = self.model.encode
        self.batches = StepBatches(
            stage,
            stage.shown(self.model.method.learns_from),
            self.model,
            self.train_split,
            torch.compile(encode) if stage.compile else encode,
            self.device,
            fixed=_is_below("backbone", stage.freeze),
        )
        self.best: dict[str, Tensor] = {}
        self.losses: list[Tensor] = []
        self.frozen, self.parameters = self._divided()
        self.optimizer = stage.optimizer_of(self.parameters)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=stage.precision == "fp16")
        self.validation = self._validation_tasks()
        if stage.teacher is not None:
            self._teach(training.model_of(stage.teacher))
        if progress.tensors:
            self._resume()
        else:
            self._start()

    def _trained_model(self) -> FewShotModel:
        """Return the model under test, or its backbone with the stage's own method."""
        component, whole = self.stage.method, self.whole
        if component is None:
            return whole
        n_base = self.train_split.pool.n_classes
        with seeded(self._derived_seed("method")):
            made = FewShotModel(whole.extractor, component.create(), whole.size, n_base)
        return made.to(self.device)

    def _start(self) -> None:
        """Prepare the first epoch: load other weights, set up a teacher."""
        if self.stage.init_from is not None:
            start_from(self.model, self.stage.init_from, self.stage.init_parts)
        if self.stage.distill:
            self._teach(copy.deepcopy(self.model))
            student = self.training.untrained(self._derived_seed("student")).state_dict()
            self.model.load_state_dict({k: student[k] for k in self.model.state_dict()})

    def _teach(self, teacher: FewShotModel) -> None:
        self.batches.teacher = teacher.eval().requires_grad_(False)

    def save(self) -> None:
        """Write a checkpoint."""
        optimizer = {
            f"{index}.{name}": torch.as_tensor(value)
            for index, values in self.optimizer.state_dict()["state"].items()
            for name, value in values.items()
            if value is not None
        }
        parts = {"model": self.whole.state_dict(), "best": self.best, "optimizer": optimizer}
        if self.model is not self.whole:
            parts["stage"] = self.model.state_dict()
        if self.stage.distill and self.batches.teacher is not None:
            parts["teacher"] = self.batches.teacher.state_dict()
        tensors = {f"{part}.{k}": v for part, found in parts.items() for k, v in found.items()}
        if self.losses:
            tensors["losses"] = torch.stack(self.losses)
        self.progress.scaler = self.scaler.state_dict()
        header = {"what": "a checkpoint", **self.progress.header()}
        save_sealed(self.checkpoint, lambda path: save_tensors(path, tensors, header))

    def _resume(self) -> None:
        """Continue from the progress's checkpoint."""
        part = self.progress.part
        self.whole.load_state_dict(part("model"))
        if self.model is not self.whole:
            self.model.load_state_dict(part("stage"))
        if weights := part("teacher"):
            teacher = copy.deepcopy(self.model)
            teacher.load_state_dict(weights)
            self._teach(teacher)
        state: dict[int, dict[str, Tensor]] = defaultdict(dict)
        for key, value in part("optimizer").items():
            index, _, name = key.partition(".")
            state[int(index)][name] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": dict(state)})
        if self.progress.scaler:
            self.scaler.load_state_dict(self.progress.scaler)
        self.best = {k: v.to(self.device) for k, v in part("best").items()}
        if "losses" in self.progress.tensors:
            self.losses = list(self.progress.tensors["losses"].to(self.device))
        self.progress.tensors = {}

    def run(self) -> None:
        """Run the epochs that are left, then return to the best weights of the stage."""
        stage, progress = self.stage, self.progress
        patience = stage.patience or math.inf
        while progress.epoch < stage.epochs and progress.epoch - progress.best_epoch < patience:
            self._finish(self._epoch())
            self.save()
            self.watch(progress.history)
        if left := stage.epochs - progress.epoch:
            progress.notes.append(
                f"training stopped after epoch {progress.epoch} of {stage.epochs}: the validation "
                f"accuracy had not improved for {stage.patience} epochs"
            )
            self.advance(left * stage.steps, f"stopped after epoch {progress.epoch}")
        if self.best:
            self.model.load_state_dict(self.best)
        # The next stage may have another method, and what this one does in training is then over.
        self.model.eval()
        for parameter in self.frozen:
            parameter.requires_grad_(True)

    def _finish(self, row: Epoch) -> None:
        """Record an epoch's result and keep its weights if they are the best of the stage."""
        progress, accuracy = self.progress, row.validation_accuracy
        progress.history.append(row)
        progress.epoch += 1
        self.losses = []
        if accuracy is None or progress.best_accuracy is None or accuracy > progress.best_accuracy:
            progress.best_accuracy, progress.best_epoch = accuracy, progress.epoch
            self.best = {k: v.detach().clone() for k, v in self.model.state_dict().items()}

    def _divided(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Freeze what the stage freezes; return frozen and trained parameters."""
        names = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        for prefix in self.stage.freeze:
            if not any(_is_below(name, [prefix]) for name in names):
                tops = ", ".join(sorted({n.rpartition(".")[0] for n in names}))
                raise OptionError(
                    f"training.freeze {prefix}: no parameter has that name; known are {tops}"
                )
        divided: tuple[list[nn.Parameter], list[nn.Parameter]] = [], []
        for name, parameter in names.items():
            trained = not _is_below(name, self.stage.freeze)
            parameter.requires_grad_(trained)
            divided[trained].append(parameter)
        if not divided[True]:
            frozen = ", ".join(self.stage.freeze)
            raise OptionError(f"training.freeze {frozen}: leaves nothing to train")
        return divided

    def _train_mode(self) -> None:
        """Set the model to training mode, except for frozen parts, including their BatchNorm."""
        self.model.train()
        for name, module in self.model.named_modules():
            if _is_below(name, self.stage.freeze):
                module.eval()

    def _derived_seed(self, *parts: object) -> int:
        parts = self.training.experiment.settings.training_seed, self.progress.stage, *parts
        return int(digest_of(" ".join(map(str, parts)))[:15], 16)

    def _validation_tasks(self) -> TaskSet | None:
        split, count = self.val_split, self.stage.validation_tasks
        reason = ""
        if split is not None and count > 0:
            # Validated as it will be tested, as far as the classes of the split allow.
            way, shot = self.training.way_shot
            way, needed = min(way, len(split.pool.class_names)), self.model.method.n_way
            room = int(split.pool.class_sizes.min()) - shot
            shape = {"n_way": way, "n_shot": shot, "n_query": min(self.stage.n_query, room)}
            try:
                if needed not in (None, way):
                    raise OptionError(f"{way} classes, but {needed} are needed")
                seed = self._derived_seed("validation")
                return drawn_episodes(self.training.episodes, shape, split.pool, count, seed)
            except (InfeasibleTask, OptionError) as error:
                reason = f" ({error})"
        self.progress.notes.append(f"no validation{reason}: the last epoch was kept")
        return None

    def _epoch(self) -> Epoch:
        """Train the rest of an epoch, validate, and return its result."""
        started = saved = time.perf_counter()
        epoch, stage, losses = self.progress.epoch, self.stage, self.losses
        earlier = [row for row in self.progress.history if row.stage == self.progress.stage]
        rate = stage.rate([row.validation_accuracy for row in earlier])
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self._train_mode()
        batches = self.batches.of_epoch(self._episodes(epoch), self._derived_seed("batches", epoch))
        for step in range(len(losses), stage.steps):
            with about(f"step {step + 1} of epoch {epoch + 1}"):
                losses.append(self._step(batches, step))
            if step + 1 < stage.steps:
                self.advance()
                if time.perf_counter() - saved > _SECONDS_BETWEEN_CHECKPOINTS:
                    self.save()
                    saved = time.perf_counter()
        mean = float(torch.stack(losses).mean())
        if not math.isfinite(mean):
            raise OptionError(
                f"training: the loss became {mean} in epoch {epoch + 1}; "
                "try a lower training.learning_rate"
            )
        accuracy = self._validate()
        shown = "" if accuracy is None else f", validation {100 * accuracy:.1f} %"
        self.advance(1, f"epoch {epoch + 1}/{stage.epochs}: loss {mean:.3f}{shown}")
        seconds = round(time.perf_counter() - started, 3)
        return Epoch(self.progress.stage, epoch, rate, mean, accuracy, seconds)

    def _step(self, batches: Callable[[int], Batch], step: int) -> Tensor:
        """Do one update and return its loss."""
        self.optimizer.zero_grad(set_to_none=True)
        method = self.model.method
        with seeded(self._derived_seed("step", self.progress.epoch, step)):
            loss = self._loss(batches, step)
            with contained(named(method), "the gradient of loss"):
                self.scaler.scale(loss).backward()
        carried, method.carried = method.carried, {}
        if self.stage.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.parameters, self.stage.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        with torch.no_grad():
            method.after_step({name: tensor.detach() for name, tensor in carried.items()})
        return loss.detach().float()

    def _episodes(self, epoch: int) -> TaskSet | None:
        """Draw the episodes of an epoch, if its steps have any."""
        if not self.batches.has_episodes:
            return None
        stage = self.stage
        shape = stage.episode(self.training.way_shot)
        count, seed = stage.steps * stage.tasks_per_step, self._derived_seed("episodes", epoch)
        return drawn_episodes(self.training.episodes, shape, self.train_split.pool, count, seed)

    def _loss(self, batches: Callable[[int], Batch], step: int) -> Tensor:
        """Return the loss of a step, the mean over its tasks or images."""
        method = self.model.method
        with lowered(self.device, self.stage.precision):
            loss = method.loss(batches(step))
        check_tensor(method, "loss", loss, (), self.device, finite=False)
        if not loss.requires_grad:
            raise malformed(method, "loss", "a constant", "a value that depends on the weights")
        return loss

    def _validate(self) -> float | None:
        if self.validation is None or self.val_split is None:
            return None
        tasks = self.validation
        pixels, used = self.val_split.pixels, np.unique(tasks.images)
        source = ImageSource.computed(self.model, pixels, used, self.stage.precision)
        truth = np.arange(tasks.n_way)[None, :, None]
        known = Knowledge(self.model, self.val_split.pool, self.training.told)
        right = int((predict(self.model, tasks, source, known) == truth).sum())
        return right / int(tasks.query.size)
