"""Training: a list of stages, each on episodes or batches, resumable, the best epoch kept.

The method says what its loss is; how the loop goes is said here and nowhere else.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fsframework._files import atomic_write
from fsframework.errors import DataError, InfeasibleTask, OptionError
from fsframework.interfaces.method import Batch, FewShotMethod
from fsframework.pipeline.evaluation import ImageSource, predict
from fsframework.pipeline.model import (
    FewShotModel,
    load_tensors,
    pixels_to,
    save_tensors,
    seeded,
)
from fsframework.pipeline.progress import Advance, Reporter
from fsframework.pipeline.workspace import sweep
from fsframework.registry import Registry
from fsframework.spec import resolve_component
from fsframework.values import ImagePool, TaskSet, UInt8Array, digest_of

__all__ = ["Split", "Stage", "Trained", "check_episodes", "start_from", "train"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of training and its options.

    The defaults are a quick recipe for the embedded data set: RENet reaches about 85 % on its
    random 5-way 5-shot tasks within a minute on 2 cores. They are no paper's.

    Args:
        learns_from: what a step shows the loss; ``method`` is what the method asks for.
        epochs: number of epochs; after each the validation accuracy is measured. 0 trains nothing,
            so that with ``init_from`` the weights of another run are evaluated as they are.
        steps: updates an epoch.
        n_way: classes an episode; ``none`` takes the way of the tasks under test. Likewise
            ``n_shot``.
        n_query: queries a class of an episode.
        tasks_per_step: episodes an update.
        batch_size: images a batch, where batches are used.
        optimizer: ``adam`` (Kingma & Ba 2015) or ``sgd`` with Nesterov momentum.
        learning_rate: at the start; ``schedule`` changes it from epoch to epoch.
        momentum: of ``sgd``.
        weight_decay: L2 penalty.
        schedule: ``constant``; ``cosine`` to 0 at the end; ``step``: times ``gamma`` every
            ``step_epochs``; ``multi-step``: times ``gamma`` at each of ``milestones``.
        freeze: prefixes of parameter names that stay as they are, such as ``backbone``.
        init_from: a run folder or safetensors file whose weights the stage starts from.
        validation_tasks: tasks after each epoch; 0 keeps the last epoch.
    """

    learns_from: Literal["method", "episodes", "batches", "both"] = "method"
    epochs: int = 10
    steps: int = 36
    n_way: int | None = None
    n_shot: int | None = None
    n_query: int = 5
    tasks_per_step: int = 1
    batch_size: int = 64
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 2e-3
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Literal["constant", "cosine", "step", "multi-step"] = "cosine"
    milestones: tuple[int, ...] = ()
    step_epochs: int = 20
    gamma: float = 0.1
    freeze: tuple[str, ...] = ()
    init_from: Path | None = None
    validation_tasks: int = 50

    def __post_init__(self) -> None:
        for name, least in (
            ("epochs", 0), ("steps", 1), ("n_way", 2), ("n_shot", 1), ("n_query", 1),
            ("tasks_per_step", 1), ("batch_size", 2), ("step_epochs", 1), ("validation_tasks", 0),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < least:
                raise OptionError(f"training.{name} must be at least {least}, not {value}")
        if not self.learning_rate > 0:
            raise OptionError(f"training.learning_rate must be above 0, not {self.learning_rate}")
        for name in ("momentum", "weight_decay", "gamma"):
            if not getattr(self, name) >= 0:
                raise OptionError(f"training.{name} must be at least 0, not {getattr(self, name)}")

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, a pure function so that resuming needs no state.

        >>> [round(Stage(epochs=2, learning_rate=1.0).rate(e), 3) for e in range(2)]
        [1.0, 0.5]
        """
        factor = 1.0
        if self.schedule == "cosine":
            factor = (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        elif self.schedule == "step":
            factor = self.gamma ** (epoch // self.step_epochs)
        elif self.schedule == "multi-step":
            factor = self.gamma ** sum(epoch >= m for m in self.milestones)
        return self.learning_rate * factor


@dataclass(frozen=True)
class Split:
    """A pool with its pixels, uint8 ``(n, H, W, 3)``."""

    pool: ImagePool
    pixels: UInt8Array


@dataclass(frozen=True)
class Trained:
    """What training came to.

    Args:
        history: a row an epoch: stage, epoch, loss, validation accuracy, seconds.
        best_accuracy: validation accuracy of the epoch kept; ``None`` without validation.
        reused: whether the weights came from the cache.
    """

    history: tuple[dict[str, Any], ...]
    best_accuracy: float | None
    reused: bool
    notes: tuple[str, ...] = field(default=())


def train(
    model: FewShotModel,
    stages: Sequence[Stage],
    way_shot: tuple[int, int],
    splits: tuple[Split, Split | None],
    *,
    seed: int,
    device: torch.device,
    folder: Path,
    registry: Registry,
    reporter: Reporter,
) -> Trained:
    """Train a model in place, or give it the weights an earlier call left in ``folder``.

    Args:
        way_shot: way and shot of the tasks under test.
        splits: training and, if any, validation data.
        folder: ``checkpoint.safetensors`` while it lasts, ``weights.safetensors`` and
            ``training.json`` at the end. A killed training goes on after its last whole epoch
            and ends with the weights it would have had.
    """
    sweep(folder)
    done = folder / "training.json"
    if done.exists() and (folder / "weights.safetensors").exists():
        model.load_state_dict(load_tensors(folder / "weights.safetensors")[0])
        raw = json.loads(done.read_text())
        return Trained(tuple(raw["history"]), raw["best_accuracy"], True, tuple(raw["notes"]))
    state = _State(model, len(stages))
    checkpoint = folder / "checkpoint.safetensors"
    if checkpoint.exists():
        state.restore(checkpoint)
    notes: list[str] = []
    total = sum(stage.epochs * stage.steps for stage in stages)
    finished = sum(s.epochs * s.steps for s in stages[: state.stage])
    if state.stage < len(stages):
        finished += state.epoch * stages[state.stage].steps
    with reporter.stage("training", total, finished) as advance:
        for number in range(state.stage, len(stages)):
            stage = stages[number]
            loop = _StageLoop(model, stage, number, way_shot, splits, seed, device, registry, notes)
            if state.epoch == 0 and stage.init_from is not None:
                start_from(model, stage.init_from)
            state.begin(number, loop.optimizer)
            for epoch in range(state.epoch, stage.epochs):
                row = loop.run_epoch(epoch, advance)
                state.finish_epoch(row)
                state.save(checkpoint)
            state.end_stage()
            loop.release()
    weights = folder / "weights.safetensors"
    save_tensors(weights, model.state_dict(), {"what": "weights"})
    result = {"history": state.history, "best_accuracy": state.best_accuracy, "notes": notes}
    atomic_write(done, json.dumps(result, indent=2))
    checkpoint.unlink(missing_ok=True)
    return Trained(tuple(state.history), state.best_accuracy, False, tuple(notes))


def start_from(model: FewShotModel, source: Path) -> None:
    """Give a model the weights of a run folder or a safetensors file, as far as names agree.

    Raises:
        DataError: none agrees, or one is of another shape.
    """
    path = source / "weights.safetensors" if source.is_dir() else source
    own = model.state_dict()
    tensors = {_renamed(k, own): v for k, v in load_tensors(path)[0].items()}
    unfit = sorted(k for k in tensors if k in own and own[k].shape != tensors[k].shape)
    shared = {k: v for k, v in tensors.items() if k in own and k not in unfit}
    if not shared:
        raise DataError(f"{path}: none of its weights fits this model")
    if unfit:
        raise DataError(f"{path}: the weights {', '.join(unfit[:3])} are of another shape")
    model.load_state_dict(shared, strict=False)


def _renamed(key: str, own: dict[str, Tensor]) -> str:
    """Find a backbone's weights also where the method, or not the method, holds the backbone."""
    for there, here in (("backbone.", "method.backbone."), ("method.backbone.", "backbone.")):
        if key not in own and key.startswith(there) and here + key.removeprefix(there) in own:
            return here + key.removeprefix(there)
    return key


class _State:
    """All that a resumed training needs: position, weights, best weights, optimiser, history."""

    def __init__(self, model: FewShotModel, n_stages: int) -> None:
        self.model, self.n_stages = model, n_stages
        self.stage = self.epoch = 0
        self.history: list[dict[str, Any]] = []
        self.best_accuracy: float | None = None
        self.best: dict[str, Tensor] = {}
        self._optimizer_tensors: dict[str, Tensor] = {}
        self._optimizer: torch.optim.Optimizer | None = None

    def begin(self, stage: int, optimizer: torch.optim.Optimizer) -> None:
        """Start, or go on with, a stage."""
        self.stage, self._optimizer = stage, optimizer
        if self._optimizer_tensors:
            _restore_optimizer(optimizer, self._optimizer_tensors)
            self._optimizer_tensors = {}

    def finish_epoch(self, row: dict[str, Any]) -> None:
        """Note an epoch's result and keep its weights if they are the best of the stage."""
        self.history.append(row)
        self.epoch += 1
        accuracy = row["validation_accuracy"]
        if accuracy is None or self.best_accuracy is None or accuracy > self.best_accuracy:
            self.best_accuracy = accuracy
            self.best = {k: v.detach().clone() for k, v in self.model.state_dict().items()}

    def end_stage(self) -> None:
        """Go back to the stage's best weights and forget its optimiser."""
        if self.best:
            self.model.load_state_dict(self.best)
        self.epoch, self.best = 0, {}
        if self.stage + 1 < self.n_stages:
            self.best_accuracy = None
        self.stage += 1

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        assert self._optimizer is not None
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        for index, values in self._optimizer.state_dict()["state"].items():
            for name, value in values.items():
                if value is not None:
                    tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(value)
        header = {
            "what": "a checkpoint",
            "stage": self.stage,
            "epoch": self.epoch,
            "history": self.history,
            "best_accuracy": self.best_accuracy,
        }
        save_tensors(path, tensors, header)

    def restore(self, path: Path) -> None:
        """Take up a checkpoint."""
        tensors, header = load_tensors(path)
        raw: Any = header
        self.stage, self.epoch = raw["stage"], raw["epoch"]
        self.history, self.best_accuracy = raw["history"], raw["best_accuracy"]
        self.model.load_state_dict(_with_prefix(tensors, "model."))
        device = self.model.mean.device
        self.best = {k: v.to(device) for k, v in _with_prefix(tensors, "best.").items()}
        self._optimizer_tensors = _with_prefix(tensors, "optimizer.")


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def check_episodes(
    stages: Sequence[Stage],
    method: FewShotMethod,
    tested: TaskSet,
    pool: ImagePool,
    registry: Registry,
) -> None:
    """Draw one episode a stage, so that impossible ones are known before anything long begins.

    Raises:
        InfeasibleTask: the training classes cannot yield one.
    """
    for stage in stages:
        asked = stage.learns_from
        if (method.learns_from if asked == "method" else asked) == "batches":
            continue
        options = {
            "n_way": stage.n_way or tested.n_way,
            "n_shot": stage.n_shot or tested.n_shot,
            "n_query": stage.n_query,
        }
        try:
            sampler = resolve_component(registry, "sampler", {"name": "random", **options})
            sampler.create().draw(pool, 1, 0)
        except InfeasibleTask as error:
            raise InfeasibleTask(
                f"training episodes (training.n_way, n_shot and n_query): {error}"
            ) from None


def _under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


class _StageLoop:
    """Runs the epochs of one stage; each depends only on weights, optimiser and its number."""

    def __init__(
        self,
        model: FewShotModel,
        stage: Stage,
        number: int,
        way_shot: tuple[int, int],
        splits: tuple[Split, Split | None],
        seed: int,
        device: torch.device,
        registry: Registry,
        notes: list[str],
    ) -> None:
        self.model, self.stage, self.number, self.device = model, stage, number, device
        self.seed, self.registry = seed, registry
        self.train_split, self.val_split = splits
        asked = stage.learns_from
        self.learns_from = model.method.learns_from if asked == "method" else asked
        self.way, self.shot = stage.n_way or way_shot[0], stage.n_shot or way_shot[1]
        chosen = self._freeze()
        if stage.optimizer == "adam":
            self.optimizer: torch.optim.Optimizer = torch.optim.Adam(
                chosen, lr=stage.learning_rate, weight_decay=stage.weight_decay
            )
        else:
            self.optimizer = torch.optim.SGD(
                chosen,
                lr=stage.learning_rate,
                momentum=stage.momentum,
                nesterov=stage.momentum > 0,
                weight_decay=stage.weight_decay,
            )
        self.parameters = chosen
        self.validation = self._validation_tasks(notes)

    def _freeze(self) -> list[nn.Parameter]:
        """Freeze what the stage says, and return the other parameters."""
        names = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        for prefix in self.stage.freeze:
            if not any(_under(name, prefix) for name in names):
                tops = ", ".join(sorted({n.rpartition(".")[0] for n in names}))
                raise OptionError(
                    f"training.freeze {prefix}: no parameter is of that name; there are {tops}"
                )
        chosen: list[nn.Parameter] = []
        self._frozen: list[nn.Parameter] = []
        for name, parameter in names.items():
            frozen = any(_under(name, prefix) for prefix in self.stage.freeze)
            (self._frozen if frozen else chosen).append(parameter)
            parameter.requires_grad_(not frozen)
        if not chosen:
            frozen_names = ", ".join(self.stage.freeze)
            raise OptionError(f"training.freeze {frozen_names}: leaves nothing to train")
        return chosen

    def release(self) -> None:
        """Let what the stage froze be trained again."""
        for parameter in self._frozen:
            parameter.requires_grad_(True)

    def _train_mode(self) -> None:
        """Set the model to training, but for frozen parts, whose BatchNorm stays as it is too."""
        self.model.train()
        for name, module in self.model.named_modules():
            if any(_under(name, prefix) for prefix in self.stage.freeze):
                module.eval()

    def _draw(self, pool: ImagePool, way: int, n_query: int, count: int, seed: int) -> TaskSet:
        options = {"n_way": way, "n_shot": self.shot, "n_query": n_query}
        sampler = resolve_component(self.registry, "sampler", {"name": "random", **options})
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
        way = min(self.way, len(split.pool.class_names))
        room = int(split.pool.class_sizes.min()) - self.shot
        try:
            return self._draw(
                split.pool,
                way,
                min(self.stage.n_query, room),
                count,
                self._derived_seed("validation"),
            )
        except (InfeasibleTask, OptionError) as error:
            notes.append(f"no validation ({error}): the last epoch was kept")
            return None

    def run_epoch(self, epoch: int, advance: Advance) -> dict[str, Any]:
        """Train one epoch, validate, and return its row of the history."""
        started = time.perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = self.stage.rate(epoch)
        self._train_mode()
        losses = []
        batches = self._epoch_batches(epoch)
        for step in range(self.stage.steps):
            self.optimizer.zero_grad(set_to_none=True)
            with seeded(self._derived_seed("step", epoch, step), self.device):
                loss = self.model.method.loss(batches(step))
                loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            losses.append(loss.detach())
            if step + 1 < self.stage.steps:
                advance(1)
        mean = float(torch.stack(losses).mean())
        if not math.isfinite(mean):
            raise OptionError(
                f"training: the loss became {mean} in epoch {epoch + 1}; "
                "try a lower training.learning_rate"
            )
        accuracy = self._validate()
        shown = "" if accuracy is None else f", validation {100 * accuracy:.1f} %"
        advance(1, f"epoch {epoch + 1}/{self.stage.epochs}: loss {mean:.3f}{shown}")
        return {
            "stage": self.number,
            "epoch": epoch,
            "loss": mean,
            "validation_accuracy": accuracy,
            "seconds": round(time.perf_counter() - started, 3),
        }

    def _epoch_batches(self, epoch: int) -> Any:
        """Return a function from step to batch, its images drawn for the whole epoch at once."""
        stage, split = self.stage, self.train_split
        episodes = None
        if self.learns_from in ("episodes", "both"):
            count = stage.steps * stage.tasks_per_step
            seed = self._derived_seed("episodes", epoch)
            episodes = self._draw(split.pool, self.way, stage.n_query, count, seed)
        rng = np.random.default_rng(self._derived_seed("batches", epoch))
        flat = rng.integers(len(split.pool), size=(stage.steps, stage.batch_size))

        def batch(step: int) -> Batch:
            images: list[np.ndarray[Any, Any]] = []
            if episodes is not None:
                chosen = slice(step * stage.tasks_per_step, (step + 1) * stage.tasks_per_step)
                part = episodes[chosen]
                images += [part.support.ravel(), part.query.ravel()]
            if self.learns_from in ("batches", "both"):
                images.append(flat[step])
            index = np.concatenate(images)
            items = self.model.items(pixels_to(split.pixels[index], self.device))
            labels = torch.from_numpy(split.pool.labels[index]).to(self.device)
            return self._arrange(items, labels, part if episodes is not None else None)

        return batch

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
