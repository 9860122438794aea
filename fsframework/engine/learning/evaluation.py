"""Evaluation: every image through the backbone once, then thousands of tasks in batches."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fsframework._calls import about, generator_states, is_out_of_memory, malformed, reseed, seeded
from fsframework._files import load_sealed, remove_sealed, save_sealed
from fsframework.engine.cache.images import Pixels, PixelSource
from fsframework.engine.cache.rows import Records, Rows, records_of
from fsframework.engine.learning.knowledge import Knowledge
from fsframework.engine.learning.model import (
    FewShotModel,
    load_tensors,
    lowered,
    on_device,
    save_tensors,
)
from fsframework.engine.learning.scoring import Scorer, check_tensor
from fsframework.engine.progress import Reporter
from fsframework.engine.session import Workspace
from fsframework.engine.stages import Precision
from fsframework.errors import DataError, argument
from fsframework.interfaces.method import Known
from fsframework.values import IntArray, Outcomes, QueryBatch, TaskSet, UInt8Array, digest_of

__all__ = ["Classifier", "ImageSource", "ModelClassifier", "embedded", "evaluate", "predict"]

_IMAGES_A_BATCH = {"cpu": 16, "cuda": 512}
"""Images per forward pass, by the kind of device (others are treated as a CPU). On a CPU more are
not faster, since the activations of 16 images of 84 x 84 pixels fit the cache and the allocator
keeps blocks of that size; a GPU gets more."""
_BYTES_A_BATCH = {"cpu": 8 << 20, "cuda": 1 << 30}
"""Items per call of ``scores``: on a CPU they should fit the last-level cache, on a GPU there
should be enough to fill it."""
_SECONDS_BETWEEN_SAVES = 10.0


@dataclass(frozen=True)
class ImageSource:
    """The inputs of ``scores`` by image: embedded items, or pixels for some methods.

    Args:
        items: embedded items ``(n, *embedded)`` on the device of the model, or on the CPU where
            they would fill it; ``None`` for a method that sees pixels in every task, which uses
        pixels: uint8 ``(n, H, W, 3)``, moved to the device when needed.
        position: row of ``items`` for each image of the pool; ``None`` where row and index are
            equal.
        precision: precision of what is computed from the pixels.
    """

    items: Tensor | None = None
    pixels: PixelSource | None = None
    position: Tensor | None = None
    precision: Precision = "fp32"

    @classmethod
    def computed(
        cls,
        model: FewShotModel,
        pixels: PixelSource,
        used: IntArray,
        precision: Precision = "fp32",
    ) -> ImageSource:
        """Embed only some images, given by their ascending indices, in memory."""
        if not model.has_features:
            return cls(pixels=pixels, precision=precision)
        position = torch.full((len(pixels),), -1, dtype=torch.int64)
        position[torch.from_numpy(used)] = torch.arange(len(used))
        model.eval()
        embed = _Embedder(model, precision)
        # In blocks, so that only these pixels are in memory.
        starts = range(0, len(used), embed.at_once)
        blocks = [embed(pixels[used[i : i + starts.step]]) for i in starts]
        return cls(torch.cat(blocks), None, position.to(model.mean.device))

    @classmethod
    def cached(
        cls,
        model: FewShotModel,
        images: Pixels,
        workspace: Workspace,
        reporter: Reporter,
        precision: Precision = "fp32",
        used: IntArray | None = None,
    ) -> ImageSource:
        """Embed every image of a pool, or map the cached result of an earlier run into memory.

        Args:
            used: images whose cached items will be used, and are checked; by default all.

        The cache is shared between runs: its key covers the weights, the preprocessing, the
        precision, the kind of device and the pixels of the images.
        """
        if not model.has_features:
            return cls(pixels=images, precision=precision)
        features = FeatureStore(model, images, workspace, precision)
        everything = np.arange(len(images))
        stored = features.built(everything if used is None else used, reporter)
        items, device = torch.from_numpy(stored), model.mean.device
        return cls(items.to(device) if _fits(items, device) else items)

    def gather(
        self, model: FewShotModel, images: Tensor, buffers: dict[str, Tensor], use: str
    ) -> Tensor:
        """Return the items of images int64 ``(...,)`` as ``(..., *embedded)``.

        Args:
            buffers: keeps the memory of each ``use`` between calls; allocating fresh pages each
                time would take three times as long as copying.
        """
        index = images.reshape(-1)
        if self.items is None:
            assert self.pixels is not None
            pixels = on_device(self.pixels[index.cpu().numpy()], model.mean.device)
            chosen = model.method.embed(model.items(pixels))
            return chosen.reshape(*images.shape, *chosen.shape[1:])
        if self.position is not None:
            index = self.position[index]
        index = index.to(self.items.device)
        buffer = buffers.get(use)
        if buffer is None or len(buffer) < len(index):
            buffer = self.items.new_empty(len(index), *self.items.shape[1:])
            buffers[use] = buffer
        chosen = torch.index_select(self.items, 0, index, out=buffer[: len(index)])
        chosen = chosen.to(model.mean.device)
        return chosen.reshape(*images.shape, *chosen.shape[1:])


def _limit(limits: Mapping[str, int], device: torch.device) -> int:
    return limits.get(device.type, limits["cpu"])


class _Embedder:
    """Embeds images in batches, and halves the batch size for good where memory is too small.

    Args:
        precision: precision of the backbone and the method's embedding; items are always float32.
    """

    def __init__(self, model: FewShotModel, precision: Precision) -> None:
        self._model, self._precision = model, precision
        self.at_once = _limit(_IMAGES_A_BATCH, model.mean.device)

    @torch.no_grad()
    def __call__(self, pixels: UInt8Array) -> Tensor:
        """Map uint8 ``(n, H, W, 3)`` to items float32 ``(n, *embedded)`` on the device.

        Raises:
            DataError: not even one image fits in memory.
        """
        done: list[Tensor] = []
        start = 0
        while start < len(pixels):
            try:
                done.append(self._embedded(pixels[start : start + self.at_once]))
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                if self.at_once == 1:
                    raise DataError(
                        "there is not enough memory to embed one image of "
                        f"{pixels.shape[1]} x {pixels.shape[2]} pixels; use a smaller "
                        f"{argument('image_size')}"
                    ) from None
            else:
                start += self.at_once
                continue
            # Outside the handler, which keeps the tensors of the failed call alive.
            self.at_once //= 2
            if self._model.mean.device.type == "cuda":
                torch.cuda.empty_cache()
        return torch.cat(done) if len(done) > 1 else done[0]

    def _embedded(self, pixels: UInt8Array) -> Tensor:
        device = self._model.mean.device
        with seeded(0), lowered(device, self._precision):
            items = self._model.items(on_device(np.ascontiguousarray(pixels), device))
            check_tensor(self._model.extractor, "encode", items, (len(pixels), -1), device)
            found = self._model.method.embed(items)
        if found is not items:
            check_tensor(self._model.method, "embed", found, (len(pixels), -1), device)
        return found.float().contiguous()


class FeatureStore:
    """The cached features of the images of a pool: one row per image, made when first needed.

    The key covers the weights, the preprocessing, the precision, the kind of device and the pixels
    of the images.

    Args:
        model: whose method works on features.
        images: of the pool.
        workspace: where features are cached.
        precision: of the backbone.
    """

    def __init__(
        self, model: FewShotModel, images: Pixels, workspace: Workspace, precision: Precision
    ) -> None:
        self._images, model = images, model.eval()
        self._embed = _Embedder(model, precision)
        self.key = digest_of(
            "features",
            model.weights_digest(),
            images.digest,
            model.embedding_identity,
            [model.preprocessing_identity],
            f"{model.mean.device.type} {precision}",
        )
        first, _ = self._made(np.arange(1))
        self.shape = (len(images), *first.shape[1:])
        folder = workspace.cache / "features" / self.key[:24]
        self._rows = Rows(folder, self.shape, first.dtype, "features")

    @property
    def path(self) -> Path:
        """The NumPy file of float32 ``(n, *embedded)``."""
        return self._rows.path

    @property
    def block(self) -> int:
        """Number of images that are embedded together."""
        return self._embed.at_once

    def _made(self, rows: IntArray) -> tuple[npt.NDArray[Any], Records]:
        found: npt.NDArray[Any] = self._embed(self._images[rows]).cpu().numpy()
        return found, records_of(found)

    def built(self, used: IntArray, reporter: Reporter) -> npt.NDArray[Any]:
        """Map the features into memory after making those that are missing or damaged.

        Args:
            used: images whose features will be used, and are checked.
            reporter: of progress.
        """
        return self._rows.built(self._made, self.block, used, reporter)

    def missing(self, reporter: Reporter) -> IntArray:
        """Return the images to embed: whole blocks, ascending."""
        return self._rows.unmade(self.block, np.arange(len(self._images)), reporter)

    def embed(self, rows: IntArray, reporter: Reporter) -> None:
        """Embed those of some blocks of images that are missing; others may embed other blocks."""

        def find() -> IntArray:
            return np.intersect1d(rows, self._rows.unmade(self.block, rows[:0], reporter))

        stage = ("features", len(self._images))
        self._rows.fill(find, self._made, self.block, stage, reporter, alone=False)


@torch.no_grad()
def embedded(model: FewShotModel, pixels: UInt8Array, precision: Precision = "fp32") -> Tensor:
    """Map uint8 images ``(n, H, W, 3)`` to the inputs of ``scores``, ``(n, *embedded)``."""
    model.eval()
    return _Embedder(model, precision)(pixels)


def _fits(items: Tensor, device: torch.device) -> bool:
    """Return whether items may stay on a device: whether they fit in half of its free memory."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return items.numel() * items.element_size() <= free // 2


class Classifier:
    """What answers the queries of tasks; the base of a model's and of a function's."""

    plugin: object
    """Whom messages name."""

    transductive: bool = False
    """Whether a score may depend on the other queries, and so on their order."""

    @property
    def remark(self) -> str:
        """A sentence for readers of its answers; empty if there is none."""
        return ""

    def tasks_at_once(self, tasks: TaskSet) -> int:
        """Return how many tasks ``scores`` is called for at once."""
        del tasks
        return 1

    def scores(self, support: IntArray, query: IntArray) -> Tensor:
        """Score images ``(tasks, n)`` for classes given by images ``(tasks, way, shot)``.

        Returns:
            Finite numbers ``(tasks, n, way)``; higher is likelier.
        """
        raise NotImplementedError


class ModelClassifier(Classifier):
    """A model, on the images of a source.

    Args:
        known: of the pool of the images; ``None`` for a method that asks for nothing.
    """

    def __init__(
        self, model: FewShotModel, source: ImageSource, known: Knowledge | None = None
    ) -> None:
        self._model, self._source, self._known = model.eval(), source, known
        self._scorer = Scorer(model.method)
        self._buffers: dict[str, Tensor] = {}
        self.plugin, self.transductive = model.method, model.method.transductive

    @property
    def remark(self) -> str:
        """Which weights it changes, if any."""
        return self._scorer.remark

    def tasks_at_once(self, tasks: TaskSet) -> int:
        """Return how many tasks fit the memory that is fast."""
        source, device, per_task = self._source, self._model.mean.device, int(tasks.images.shape[1])
        if source.items is None:
            # A backbone's activations outweigh the pixels, so the number of images counts.
            return 4 * _limit(_IMAGES_A_BATCH, device) // per_task
        item_bytes = source.items[0].numel() * source.items.element_size()
        told = 0 if self._known is None else self._known.bytes_of(tasks.n_way, tasks.n_shot)
        return min(1024, _limit(_BYTES_A_BATCH, device) // (item_bytes * per_task + told))

    @torch.no_grad()
    def scores(self, support: IntArray, query: IntArray) -> Tensor:
        """Score images; scores of embedded items take little time, so they use full precision."""
        device, source = self._model.mean.device, self._source
        shown, asked = (on_device(images, device) for images in (support, query))
        known = Known() if self._known is None else self._known.of(support)
        with lowered(device, source.precision if source.items is None else "fp32"):
            return self._scorer(
                source.gather(self._model, shown, self._buffers, "support"),
                source.gather(self._model, asked, self._buffers, "query"),
                known,
            )


class _Predictor:
    """Predicts the queries of a task set, a block of tasks at a time.

    With queries by class, a classifier sees each way's queries as a separate task with the same
    support.
    """

    def __init__(self, classifier: Classifier, tasks: TaskSet, query_batch: QueryBatch) -> None:
        self._classifier = classifier
        self._parts = tasks.n_way if query_batch == "class" else 1
        self._support = tasks.support.repeat(self._parts, axis=0)
        self._query = tasks.query.reshape(len(self._support), -1)
        self._order = _orders(self._support, self._query)
        self._shape = tasks.query.shape
        self._draws = False
        self.tasks_a_batch = max(1, classifier.tasks_at_once(tasks) // self._parts)
        self.tied: Tensor | int = 0

    def __call__(self, start: int) -> Tensor:
        """Return int16 ``(tasks, way, n_query)`` for the batch that begins with task ``start``.

        A GPU waits for nothing but the check that scores are finite.
        """
        scores = self._scored(start, min(start + self.tasks_a_batch, self._shape[0]))
        best = scores.max(dim=2, keepdim=True)
        self.tied = self.tied + ((scores == best.values).sum(dim=2) > 1).sum()
        return best.indices.reshape(-1, *self._shape[1:]).short()

    def _scored(self, first: int, last: int, step: int = 1) -> Tensor:
        """Return the scores of the queries of some tasks, in the order of the task set.

        Args:
            step: -1 to ask them in the reverse of their usual order.
        """
        rows = slice(first * self._parts, last * self._parts)
        order = self._order[rows][:, ::step]
        with about(f"task {first}" if last - first == 1 else f"tasks {first} to {last - 1}"):
            reseed(first)
            before = generator_states()
            query = np.take_along_axis(self._query[rows], order, axis=1)
            scores = self._classifier.scores(self._support[rows], query)
            drawn = generator_states() != before
        self._draws |= drawn
        if drawn and last - first > 1:
            # What is drawn for a task must depend on no other.
            return torch.cat([self._scored(task, task + 1, step) for task in range(first, last)])
        places = on_device(np.argsort(order, axis=1)[:, :, None], scores.device)
        return scores.take_along_dim(places, dim=1)

    def check(self) -> None:
        """Check on some tasks that answers depend on nothing but the task.

        Raises:
            PluginError: they change when the classifier is asked again, or in another order though
                it is not declared transductive.
        """
        usual = self._first_answers(1)
        asked = {1: "when it was asked again"}
        if not (self._classifier.transductive or self._draws):
            asked[-1] = "when these came in another order"
        for step, when in asked.items():
            changed = int((usual != self._first_answers(step)).sum())
            if changed > max(1, _MOST_CHANGED * usual.numel()):
                found = f"other answers to {changed} of {usual.numel()} queries {when}"
                wanted = "the same" + (", or be declared transductive" if step < 0 else "")
                raise malformed(self._classifier.plugin, "scores", found, wanted)

    def _first_answers(self, step: int) -> Tensor:
        tasks = range(min(self._shape[0], _TASKS_ASKED_AGAIN))
        return torch.cat([self._scored(task, task + 1, step) for task in tasks]).argmax(dim=2)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences for readers of the answers."""
        share = int(self.tied) / max(1, self._query.size)
        tied = f"{100 * share:.1f} % of queries have tied best scores; the first class is taken"
        return tuple(filter(None, (self._classifier.remark, tied if share > _MOST_TIED else "")))


_TASKS_ASKED_AGAIN = 8
_MOST_CHANGED, _MOST_TIED = 0.01, 0.01


def _orders(support: IntArray, query: IntArray) -> IntArray:
    """Return an order of the queries of each task that follows from its images alone.

    A method must not learn a query's class from its place, nor the place from other tasks.

    Args:
        support: images ``(T, ...)``; ``query`` those of the queries, ``(T, n)``.
    """
    images = np.concatenate([support.reshape(len(query), -1), query], axis=1).astype(np.uint64)
    # A digest of all images of a task, then one for each query: SplitMix64's steps.
    weights = _mixed(np.arange(1, images.shape[1] + 1, dtype=np.uint64))
    task = _mixed((_mixed(images) * weights).sum(axis=1, dtype=np.uint64))
    places = np.arange(query.shape[1], dtype=np.uint64)
    return np.argsort(_mixed(task[:, None] + _GOLDEN * places), axis=1, kind="stable")


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the bits of integers, as SplitMix64 does (Steele et al., OOPSLA 2014, Fig. 16)."""
    mixed = values + _GOLDEN
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def predict(
    model: FewShotModel, tasks: TaskSet, source: ImageSource, known: Knowledge | None = None
) -> npt.NDArray[np.int16]:
    """Return the predicted way of each query, int16 ``(T, way, n_query)``, in evaluation mode."""
    predictor = _Predictor(ModelClassifier(model, source, known), tasks, "task")
    with seeded(0):
        parts = [predictor(start) for start in range(0, len(tasks), predictor.tasks_a_batch)]
    return _on_cpu(parts).numpy()


def evaluate(
    classifier: Classifier,
    tasks: TaskSet,
    *,
    label: str,
    reporter: Reporter,
    partial: Path | None = None,
    identity: str = "",
    query_batch: QueryBatch = "task",
) -> Outcomes:
    """Predict every query of every task, saving progress every few seconds.

    Args:
        partial: file of the predictions so far, from which a killed evaluation resumes; ``None``
            to store nothing.
        identity: of all that decides the predictions, without which those of a file are not used.
        query_batch: ``task`` shows a method all queries of a task together; ``class`` those of one
            class at a time, as the published evaluation of FewSTAB does. Where a score depends on
            the other queries (transductive methods, BatchNorm in training mode), the two give
            different scores.
    """
    predictor = _Predictor(classifier, tasks, query_batch)
    done: list[Tensor] = []
    if partial is not None:
        kept = load_sealed(partial, lambda path: _predictions(path, identity), reporter.note)
        if kept is not None:
            done, predictor.tied = [kept[0]], kept[1]
    finished = sum(map(len, done))
    saved = time.monotonic()
    progress = reporter.stage(label, len(tasks), finished)
    with progress as advance, seeded(0):
        predictor.check()
        for start in range(finished, len(tasks), predictor.tasks_a_batch):
            done.append(predictor(start))
            advance(len(done[-1]))
            if partial is not None and time.monotonic() - saved > _SECONDS_BETWEEN_SAVES:
                _save_predictions(partial, _on_cpu(done), identity, int(predictor.tied))
                saved = time.monotonic()
    for remark in predictor.remarks:
        reporter.note(f"{label}: {remark}")
    if partial is not None:
        remove_sealed(partial)
    outcomes = Outcomes.of(tasks, _on_cpu(done).numpy(), query_batch)
    return replace(outcomes, notes=predictor.remarks)


def _on_cpu(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.cpu() for part in parts])


def _save_predictions(partial: Path, predictions: Tensor, identity: str, tied: int) -> None:
    tensors, header = {"predictions": predictions}, {"identity": identity, "tied": tied}
    save_sealed(partial, lambda path: save_tensors(path, tensors, header))


def _predictions(partial: Path, identity: str) -> tuple[Tensor, int] | None:
    """Return what was saved, if it is of these tasks and weights: predictions, and ties."""
    tensors, header = load_tensors(partial)
    if header.get("identity") != identity:
        return None
    return tensors["predictions"], int(str(header.get("tied", 0)))
