"""Training: a list of stages on episodes or batches, resumable, with the best epoch kept.

The method defines its loss; this module alone defines the loop.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fsframework._files import sweep
from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, resolve_component
from fsframework.errors import DataError, InfeasibleTask, OptionError
from fsframework.interfaces.method import Batch, FewShotMethod
from fsframework.pipeline.cache.images import PixelSource
from fsframework.pipeline.cache.sealed import load_sealed, remove_sealed, save_sealed
from fsframework.pipeline.experiment.stages import Stage
from fsframework.pipeline.learning.evaluation import ImageSource, predict
from fsframework.pipeline.learning.history import History
from fsframework.pipeline.learning.model import (
    FewShotModel,
    load_tensors,
    lowered,
    pixels_to,
    save_tensors,
    seeded,
)
from fsframework.pipeline.progress import Advance, Reporter
from fsframework.pipeline.run_files import weights_from
from fsframework.records import Epoch
from fsframework.values import ImagePool, TaskSet, digest_of

__all__ = [
    "EPISODES",
    "Split",
    "Trained",
    "Training",
    "check_stages",
    "start_from",
    "train",
]

EPISODES = "random"
"""The sampler that training episodes are drawn with."""

_SECONDS_BETWEEN_CHECKPOINTS = 60.0
_MOST_BYTES_OF_ITEMS = 2 << 30
_IMAGES_A_BLOCK = 64


@dataclass(frozen=True)
class Split:
    """A pool with its pixels, uint8 ``(n, H, W, 3)``."""

    pool: ImagePool
    pixels: PixelSource


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
    """The inputs of a training, besides the model.

    Args:
        stages: the stages, in order.
        way_shot: way and shot of the tasks under test.
        splits: training and, if any, validation data.
        seed: the seed of everything random.
        device: the device that computes.
        episodes: the sampler that draws episodes and validation tasks.
        fresh: makes an untrained model of the same kind from a seed, for stages that distil.
    """

    stages: tuple[Stage, ...]
    way_shot: tuple[int, int]
    splits: tuple[Split, Split | None]
    seed: int
    device: torch.device
    episodes: Component
    fresh: Callable[[int], FewShotModel] | None = None

    @property
    def steps(self) -> int:
        """Number of updates in all stages."""
        return sum(stage.epochs * stage.steps for stage in self.stages)


def train(
    model: FewShotModel,
    training: Training,
    folder: Path,
    reporter: Reporter,
    watch: Callable[[History], None] = lambda _: None,
) -> Trained:
    """Train a model in place, or load the weights that an earlier call left in ``folder``.

    Args:
        training: stages, data, seed and device.
        folder: holds ``checkpoint.safetensors`` during training and ``weights.safetensors`` at the
            end. A killed training resumes from its last checkpoint, written after every epoch and
            once per minute, and ends with the same weights.
        watch: called with the history so far after each epoch.
    """
    sweep(folder)
    weights, checkpoint = folder / "weights.safetensors", folder / "checkpoint.safetensors"
    earlier = load_sealed(weights, lambda path: _finished(model, path), reporter)
    if earlier is not None:
        return earlier
    stages = training.stages
    state = _State(model, len(stages))
    load_sealed(checkpoint, state.restore, reporter)
    notes: list[str] = []
    finished = sum(s.epochs * s.steps for s in stages[: state.stage])
    if state.stage < len(stages):
        finished += state.epoch * stages[state.stage].steps + len(state.losses)
    with reporter.stage("training", training.steps, finished) as advance:
        for number in range(state.stage, len(stages)):
            stage = stages[number]
            loop = _StageLoop(model, stage, number, training, notes)
            if not state.within_stage:
                loop.start(training.fresh)
            state.begin(number, loop)
            while state.epoch < stage.epochs and not state.stale(stage.patience):
                row = loop.run_epoch(state, advance, lambda: state.save(checkpoint))
                state.finish_epoch(row)
                state.save(checkpoint)
                watch(state.history)
            if left := stage.epochs - state.epoch:
                notes.append(
                    f"training stopped after epoch {state.epoch} of {stage.epochs}: the validation "
                    f"accuracy had not improved for {stage.patience} epochs"
                )
                advance(left * stage.steps, f"stopped after epoch {state.epoch}")
            state.end_stage()
            loop.release()
    header: dict[str, object] = {
        "what": "weights",
        "history": [dataclasses.asdict(row) for row in state.history],
        "best_accuracy": state.best_accuracy,
        "notes": notes,
    }
    save_sealed(weights, lambda path: save_tensors(path, model.state_dict(), header))
    remove_sealed(checkpoint)
    return Trained(tuple(state.history), state.best_accuracy, False, tuple(notes))


def _finished(model: FewShotModel, path: Path) -> Trained:
    """Load the weights that an earlier training left, and return its result."""
    tensors, header = load_tensors(path)
    told: Any = header
    if "history" not in told:  # written by an earlier version
        told = json.loads(path.with_name("training.json").read_text())
    history = tuple(Epoch(**row) for row in told["history"])
    trained = Trained(history, told["best_accuracy"], True, tuple(told["notes"]))
    _load_whole(model, tensors)
    return trained


def _load_whole(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load all weights of a model, or change nothing.

    Raises:
        DataError: names or shapes are not those of the model.
    """
    own = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if own != {name: tensor.shape for name, tensor in tensors.items()}:
        raise DataError("its weights are not those of this model")
    model.load_state_dict(tensors)


def start_from(
    model: FewShotModel, source: Path, parts: Sequence[str] = (), *, whole: bool = False
) -> None:
    """Load the weights of a run folder or a safetensors file into a model, where names match.

    Args:
        parts: prefixes of the names of the weights to load; all if empty.
        whole: require every weight of the backbone.

    Raises:
        DataError: no name matches, a shape differs, or weights of the backbone are missing.
    """
    path = source / "weights.safetensors" if source.is_dir() else source
    own = model.state_dict()
    found = weights_from(source)
    # A backbone's weights have other names where the method holds it: either name works.
    names = {key: (key, _renamed(key, own)) for key in found}
    for part in parts:
        if not any(_under(name, part) for both in names.values() for name in both):
            tops = ", ".join(sorted({key.partition(".")[0] for key in found}))
            raise DataError(
                f"training.init_parts {part}: {path} has no weights of this name; it has {tops}"
            )
    tensors = {
        names[key][1]: tensor
        for key, tensor in found.items()
        if not parts or any(_under(name, part) for name in names[key] for part in parts)
    }
    unfit = sorted(k for k in tensors if k in own and own[k].shape != tensors[k].shape)
    shared = {k: v for k, v in tensors.items() if k in own and k not in unfit}
    if not shared:
        raise DataError(f"{path}: none of its weights fits this model")
    if unfit:
        raise DataError(
            f"{path}: the weights {', '.join(unfit[:3])} have another shape; "
            "training.init_parts=backbone loads only the backbone"
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


def _renamed(key: str, own: Mapping[str, Tensor]) -> str:
    """Return a weight's name in this model, whether or not the method holds the backbone."""
    for there, here in (("backbone.", "method.backbone."), ("method.backbone.", "backbone.")):
        if key not in own and key.startswith(there) and here + key.removeprefix(there) in own:
            return here + key.removeprefix(there)
    return key


class _State:
    """All that a resumed training needs: position, weights, best weights, optimiser, history."""

    def __init__(self, model: FewShotModel, n_stages: int) -> None:
        self.model, self.n_stages = model, n_stages
        self.stage = self.epoch = 0
        self.within_stage = False
        self.losses: list[Tensor] = []
        self.history: list[Epoch] = []
        self.best_accuracy: float | None = None
        self.best_epoch = 0
        self.best: dict[str, Tensor] = {}
        self._restored: dict[str, Tensor] = {}
        self._scaler: dict[str, Any] = {}
        self._loop: _StageLoop

    def begin(self, stage: int, loop: _StageLoop) -> None:
        """Start or resume a stage."""
        self.stage, self._loop = stage, loop
        if self.within_stage:
            loop.resume(self._restored, self._scaler)
            self._restored = {}
        self.within_stage = True

    def stale(self, patience: int | None) -> bool:
        """Return whether the validation accuracy has not improved for ``patience`` epochs."""
        return patience is not None and self.epoch - self.best_epoch >= patience

    def finish_epoch(self, row: Epoch) -> None:
        """Record an epoch's result and keep its weights if they are the best of the stage."""
        self.history.append(row)
        self.epoch += 1
        self.losses = []
        accuracy = row.validation_accuracy
        if accuracy is None or self.best_accuracy is None or accuracy > self.best_accuracy:
            self.best_accuracy, self.best_epoch = accuracy, self.epoch
            self.best = {k: v.detach().clone() for k, v in self._loop.model.state_dict().items()}

    def end_stage(self) -> None:
        """Return to the stage's best weights and drop its optimiser."""
        if self.best:
            self._loop.model.load_state_dict(self.best)
        self.epoch = self.best_epoch = 0
        self.within_stage, self.best = False, {}
        if self.stage + 1 < self.n_stages:
            self.best_accuracy = None
        self.stage += 1

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        parts = {"model": self.model.state_dict(), "best": self.best, **self._loop.state()}
        tensors = {f"{part}.{k}": v for part, found in parts.items() for k, v in found.items()}
        if self.losses:
            tensors["losses"] = torch.stack(self.losses)
        header = {
            "what": "a checkpoint",
            "stage": self.stage,
            "epoch": self.epoch,
            "history": [dataclasses.asdict(row) for row in self.history],
            "best_accuracy": self.best_accuracy,
            "best_epoch": self.best_epoch,
            "scaler": self._loop.scaler.state_dict(),
        }
        save_sealed(path, lambda place: save_tensors(place, tensors, header))

    def restore(self, path: Path) -> None:
        """Load a checkpoint, or change nothing."""
        tensors, header = load_tensors(path)
        raw: Any = header
        position = raw["stage"], raw["epoch"], raw["best_accuracy"], raw["best_epoch"]
        history, scaler = [Epoch(**row) for row in raw["history"]], raw["scaler"]
        _load_whole(self.model, _with_prefix(tensors, "model."))
        self.stage, self.epoch, self.best_accuracy, self.best_epoch = position
        self.history, self._scaler, self.within_stage = history, scaler, True
        device = self.model.mean.device
        self.best = {k: v.to(device) for k, v in _with_prefix(tensors, "best.").items()}
        self.losses = list(tensors["losses"].to(device)) if "losses" in tensors else []
        self._restored = tensors


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def check_stages(
    stages: Sequence[Stage],
    method: FewShotMethod,
    way_shot: tuple[int, int],
    pool: ImagePool,
    registry: Registry,
) -> None:
    """Check each stage and draw one episode, so that impossible requests fail early.

    Raises:
        InfeasibleTask: the training classes cannot yield an episode.
        OptionError: a stage has nothing to learn from, or requires what its method does not
            support.
    """
    for number, stage in enumerate(stages, start=1):
        if not stage.epochs:
            continue
        where = f"training stage {number}" if len(stages) > 1 else "training"
        trained = method if stage.method is None else stage.method.create()
        name = type(trained).__name__
        shown = _shown(stage, trained)
        if shown == "nothing":
            raise OptionError(
                f"{where}: {name} does not learn; name the method that trains the backbone, such "
                "as training.method=baseline"
            )
        if stage.distill and (shown == "episodes" or stage.method is not None):
            raise OptionError(
                f"{where}: distill needs batches, and the method under test as the teacher; omit "
                "training.method and use a method that learns from batches, such as rfs"
            )
        if stage.compile and trained.consumes == "images":
            raise OptionError(
                f"{where}: compile works only where the backbone sees each image once, not with "
                f"{name}, which runs the backbone itself"
            )
        if shown == "batches":
            continue
        options = {
            "n_way": stage.n_way or way_shot[0],
            "n_shot": stage.n_shot or way_shot[1],
            "n_query": stage.n_query,
        }
        if trained.n_way not in (None, options["n_way"]):
            raise OptionError(
                f"{where}: episodes have {options['n_way']} ways, but {name} is made for "
                f"{trained.n_way} (method.n_way)"
            )
        try:
            sampler = resolve_component(registry, "sampler", {"name": EPISODES, **options})
            sampler.create().draw(pool, 1, 0)
        except InfeasibleTask as error:
            raise InfeasibleTask(
                f"training episodes (training.n_way, n_shot and n_query): {error}"
            ) from None


def _shown(stage: Stage, method: FewShotMethod) -> str:
    """Return what the method sees in the steps of a stage."""
    if method.learns_from == "nothing":
        return "nothing"
    return method.learns_from if stage.learns_from == "method" else stage.learns_from


def _under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


class _StageLoop:
    """Runs the epochs of one stage; each depends only on weights, optimiser and its number."""

    def __init__(
        self,
        whole: FewShotModel,
        stage: Stage,
        number: int,
        training: Training,
        notes: list[str],
    ) -> None:
        self.whole, self.stage, self.number = whole, stage, number
        self.device, self.seed, self.episodes = training.device, training.seed, training.episodes
        self.train_split, self.val_split = training.splits
        self.tested = training.way_shot
        self.way, self.shot = stage.n_way or self.tested[0], stage.n_shot or self.tested[1]
        self.model = self._trained_model()
        self.learns_from = _shown(stage, self.model.method)
        self.teacher: FewShotModel | None = None
        chosen = self._freeze()
        self.optimizer = stage.optimizer_of(chosen)
        self.parameters = chosen
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=stage.precision == "fp16")
        self.validation = self._validation_tasks(notes)
        self._items: Tensor | None = None

    def _trained_model(self) -> FewShotModel:
        """Return the model under test, or its backbone with the stage's own method."""
        component, whole = self.stage.method, self.whole
        if component is None:
            return whole
        n_base = len(self.train_split.pool.class_names)
        with seeded(self._derived_seed("method"), torch.device("cpu")):
            made = FewShotModel(whole.extractor, component.create(), whole.size, n_base)
        return made.to(self.device)

    def start(self, fresh: Callable[[int], FewShotModel] | None) -> None:
        """Prepare the first epoch: load other weights, set up a teacher."""
        if self.stage.init_from is not None:
            start_from(self.model, self.stage.init_from, self.stage.init_parts)
        if self.stage.distill:
            assert fresh is not None, "a stage that distils needs fresh"
            self._teach(copy.deepcopy(self.model))
            student = fresh(self._derived_seed("student"))
            start = {**self.model.state_dict(), **student.state_dict()}
            self.model.load_state_dict({k: start[k] for k in self.model.state_dict()})

    def _teach(self, teacher: FewShotModel) -> None:
        self.teacher = teacher.eval().requires_grad_(False)

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Return what a checkpoint must contain besides the weights of the whole model."""
        optimizer: dict[str, Tensor] = {}
        for index, values in self.optimizer.state_dict()["state"].items():
            for name, value in values.items():
                if value is not None:
                    optimizer[f"{index}.{name}"] = torch.as_tensor(value)
        found = {"optimizer": optimizer}
        if self.model is not self.whole:
            found["stage"] = self.model.state_dict()
        if self.teacher is not None:
            found["teacher"] = self.teacher.state_dict()
        return found

    def resume(self, tensors: Mapping[str, Tensor], scaler: dict[str, Any]) -> None:
        """Resume from what ``state`` returned."""
        _restore_optimizer(self.optimizer, _with_prefix(tensors, "optimizer."))
        if self.model is not self.whole:
            self.model.load_state_dict(_with_prefix(tensors, "stage."))
        if taught := _with_prefix(tensors, "teacher."):
            self._teach(copy.deepcopy(self.model))
            assert self.teacher is not None
            self.teacher.load_state_dict(taught)
        if scaler:
            self.scaler.load_state_dict(scaler)

    def _freezes(self, name: str) -> bool:
        # A method that consumes images holds the backbone; users need not know this.
        names = (name, name.removeprefix("method."))
        return any(_under(n, prefix) for prefix in self.stage.freeze for n in names)

    def _freeze(self) -> list[nn.Parameter]:
        """Freeze the stage's frozen parameters and return the others."""
        names = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        for prefix in self.stage.freeze:
            if not any(_under(n, prefix) or _under(n, f"method.{prefix}") for n in names):
                tops = ", ".join(sorted({n.rpartition(".")[0] for n in names}))
                raise OptionError(
                    f"training.freeze {prefix}: no parameter has that name; known are {tops}"
                )
        chosen: list[nn.Parameter] = []
        self._frozen: list[nn.Parameter] = []
        for name, parameter in names.items():
            frozen = self._freezes(name)
            (self._frozen if frozen else chosen).append(parameter)
            parameter.requires_grad_(not frozen)
        if not chosen:
            frozen_names = ", ".join(self.stage.freeze)
            raise OptionError(f"training.freeze {frozen_names}: leaves nothing to train")
        return chosen

    def release(self) -> None:
        """Unfreeze what the stage froze."""
        for parameter in self._frozen:
            parameter.requires_grad_(True)

    def _train_mode(self) -> None:
        """Set the model to training mode, except for frozen parts, including their BatchNorm."""
        self.model.train()
        for name, module in self.model.named_modules():
            if self._freezes(name):
                module.eval()

    def _draw(self, pool: ImagePool, shape: tuple[int, int, int], count: int, seed: int) -> TaskSet:
        """Draw episodes of a shape: ways, shots, queries per class."""
        options = dict(zip(("n_way", "n_shot", "n_query"), shape, strict=True))
        sampler = replace(self.episodes, options={**self.episodes.options, **options})
        tasks: TaskSet = sampler.create().draw(pool, count, seed)
        return tasks

    def _derived_seed(self, *parts: object) -> int:
        text = " ".join(map(str, (self.seed, self.number, *parts)))
        return int(digest_of(text)[:15], 16)

    def _validation_tasks(self, notes: list[str]) -> TaskSet | None:
        split, count = self.val_split, self.stage.validation_tasks
        if split is None or count == 0:
            notes.append("no validation: the last epoch was kept")
            return None
        # Validated as it will be tested, as far as the classes of the split allow.
        way, shot = min(self.tested[0], len(split.pool.class_names)), self.tested[1]
        room = int(split.pool.class_sizes.min()) - shot
        seed = self._derived_seed("validation")
        try:
            if self.model.method.n_way not in (None, way):
                raise OptionError(f"{way} classes, but {self.model.method.n_way} are needed")
            n_query = min(self.stage.n_query, room)
            return self._draw(split.pool, (way, shot, n_query), count, seed)
        except (InfeasibleTask, OptionError) as error:
            notes.append(f"no validation ({error}): the last epoch was kept")
            return None

    def run_epoch(self, state: _State, advance: Advance, save: Callable[[], None]) -> Epoch:
        """Train the rest of an epoch, validate, and return its result."""
        started = saved = time.perf_counter()
        epoch, stage, losses = state.epoch, self.stage, state.losses
        rate = stage.rate(epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self._train_mode()
        self._items = self._items_of_a_frozen_backbone()
        batches = self._epoch_batches(epoch)
        with self._compiled():
            for step in range(len(losses), stage.steps):
                with seeded(self._derived_seed("step", epoch, step), self.device):
                    losses.append(self._step(batches, step))
                if step + 1 < stage.steps:
                    advance(1)
                    if time.perf_counter() - saved > _SECONDS_BETWEEN_CHECKPOINTS:
                        save()
                        saved = time.perf_counter()
        mean = float(torch.stack(losses).mean())
        if not math.isfinite(mean):
            raise OptionError(
                f"training: the loss became {mean} in epoch {epoch + 1}; "
                "try a lower training.learning_rate"
            )
        accuracy = self._validate()
        shown = "" if accuracy is None else f", validation {100 * accuracy:.1f} %"
        advance(1, f"epoch {epoch + 1}/{stage.epochs}: loss {mean:.3f}{shown}")
        seconds = round(time.perf_counter() - started, 3)
        return Epoch(self.number, epoch, rate, mean, accuracy, seconds)

    def _step(self, batches: Callable[[int], Batch], step: int) -> Tensor:
        """Do one update and return its loss."""
        self.optimizer.zero_grad(set_to_none=True)
        with lowered(self.device, self.stage.precision):
            loss = self.model.method.loss(batches(step))
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self.stage.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.parameters, self.stage.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach().float()

    @contextmanager
    def _compiled(self) -> Iterator[None]:
        """Compile the backbone for the steps of an epoch, if the stage requests it."""
        if not self.stage.compile:
            yield
            return
        extractor: Any = self.model.extractor
        if not hasattr(self, "_compiled_call"):
            extractor.compile()
            self._compiled_call = extractor._compiled_call_impl
        extractor._compiled_call_impl = self._compiled_call
        try:
            yield
        finally:
            # Validation batches have other shapes, each of which would be compiled again.
            extractor._compiled_call_impl = None

    @torch.no_grad()
    def _items_of_a_frozen_backbone(self) -> Tensor | None:
        """Return the items of all training images if no step changes them, else ``None``."""
        if self._items is not None:
            return self._items
        model, pixels = self.model, self.train_split.pixels
        if self.stage.augment or model.method.consumes == "images" or not self._backbone_is_fixed():
            return None
        one = model.items(pixels_to(pixels[:1], self.device))
        if one.numel() * one.element_size() * len(pixels) > _MOST_BYTES_OF_ITEMS:
            return None
        items = one.new_empty(len(pixels), *one.shape[1:])
        for start in range(0, len(pixels), _IMAGES_A_BLOCK):
            block = np.ascontiguousarray(pixels[start : start + _IMAGES_A_BLOCK])
            items[start : start + len(block)] = model.items(pixels_to(block, self.device))
        return items

    def _backbone_is_fixed(self) -> bool:
        """Return whether the stage or the backbone itself keeps all its weights unchanged."""
        inner = [m for m in self.model.extractor.modules() if m is not self.model.extractor]
        own = not any(p.requires_grad for p in self.model.extractor.parameters())
        return self._freezes("backbone") or (own and not any(m.training for m in inner))

    def _epoch_batches(self, epoch: int) -> Callable[[int], Batch]:
        """Return a function from step to batch, with images drawn for the whole epoch."""
        stage, split = self.stage, self.train_split
        episodes = None
        if self.learns_from in ("episodes", "both"):
            count = stage.steps * stage.tasks_per_step
            seed = self._derived_seed("episodes", epoch)
            episodes = self._draw(split.pool, (self.way, self.shot, stage.n_query), count, seed)
        rng = np.random.default_rng(self._derived_seed("batches", epoch))
        flat = rng.integers(len(split.pool), size=(stage.steps, stage.batch_size))

        def batch(step: int) -> Batch:
            images: list[np.ndarray[Any, Any]] = []
            part = None
            if episodes is not None:
                chosen = slice(step * stage.tasks_per_step, (step + 1) * stage.tasks_per_step)
                part = episodes[chosen]
                images += [part.support.ravel(), part.query.ravel()]
            if self.learns_from in ("batches", "both"):
                images.append(flat[step])
            return self._made(np.concatenate(images), part)

        return batch

    def _made(self, index: np.ndarray[Any, Any], part: TaskSet | None) -> Batch:
        """Return the batch of some images, those of the episodes first."""
        split = self.train_split
        labels = torch.from_numpy(split.pool.labels[index]).to(self.device)
        if self._items is not None:
            items = self._items[torch.from_numpy(index).to(self.device)]
            batch = self._arrange(items, labels, part)
        else:
            pixels = pixels_to(split.pixels[index], self.device)
            images = self.model.images(pixels, self.stage.augment)
            batch = self._arrange(self.model.encode(images), labels, part)
        if self.teacher is None:
            return batch
        if self._items is not None:
            images = self.model.images(pixels_to(split.pixels[index], self.device))
        assert batch.items is not None
        with torch.no_grad():
            shown = self.teacher.encode(images[-len(batch.items) :])
            logits = self.teacher.method.class_logits(shown)
        return replace(batch, teacher_logits=logits)

    def _arrange(self, items: Tensor, labels: Tensor, part: TaskSet | None) -> Batch:
        if part is None:
            return Batch(items=items, classes=labels)
        tasks, way, shot, n_query = len(part), part.n_way, part.n_shot, part.n_query
        n_support, n = tasks * way * shot, tasks * way * (shot + n_query)
        item = items.shape[1:]
        rest: dict[str, Tensor] = {}
        if len(items) > n:
            rest = {"items": items[n:], "classes": labels[n:]}
        return Batch(
            support=items[:n_support].reshape(tasks, way, shot, *item),
            query=items[n_support:n].reshape(tasks, way * n_query, *item),
            query_labels=torch.arange(way, device=items.device)
            .repeat_interleave(n_query)
            .expand(tasks, -1),
            support_classes=labels[:n_support].reshape(tasks, way, shot),
            query_classes=labels[n_support:n].reshape(tasks, way * n_query),
            **rest,
        )

    def _validate(self) -> float | None:
        if self.validation is None or self.val_split is None:
            return None
        source = ImageSource.computed(self.model, self.val_split.pixels, self.validation)
        predictions = predict(self.model, self.validation, source)
        truth = np.arange(self.validation.n_way)[None, :, None]
        return float((predictions == truth).mean())
