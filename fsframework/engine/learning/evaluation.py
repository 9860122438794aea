"""Evaluation: every image through the backbone once, then thousands of tasks in batches."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
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
from fsframework.engine.learning.model import (
    FewShotModel,
    load_tensors,
    lowered,
    pixels_to,
    save_tensors,
)
from fsframework.engine.learning.scoring import Scorer, check_tensor
from fsframework.engine.progress import Reporter
from fsframework.engine.session import Workspace
from fsframework.engine.stages import Precision
from fsframework.errors import DataError, argument
from fsframework.values import IntArray, Outcomes, QueryBatch, TaskSet, UInt8Array, digest_of

__all__ = ["ImageSource", "embedded", "evaluate", "predict"]

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
        tasks: TaskSet,
        precision: Precision = "fp32",
    ) -> ImageSource:
        """Embed only the images of some tasks, in memory."""
        if not model.has_features:
            return cls(pixels=pixels, precision=precision)
        used = np.unique(tasks.images)
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
            pixels = pixels_to(self.pixels[index.cpu().numpy()], model.mean.device)
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
            items = self._model.items(pixels_to(np.ascontiguousarray(pixels), device))
            check_tensor(self._model.extractor, "encode", items, (len(pixels), -1), device)
            found = self._model.method.embed(items)
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


class _Predictor:
    """Predicts slices of a task set, whose indices are moved to the device once.

    With queries by class, a method sees each way's queries as a separate task with the same
    support.
    """

    def __init__(
        self, model: FewShotModel, tasks: TaskSet, source: ImageSource, query_batch: QueryBatch
    ) -> None:
        self._device = model.mean.device
        self._model, self._source = model.eval(), source
        self.scorer = Scorer(model.method)
        self._parts = tasks.n_way if query_batch == "class" else 1
        self._support = tasks.support.repeat(self._parts, axis=0)
        self._query = tasks.query.reshape(len(self._support), -1)
        self._order = _orders(self._support, self._query)
        self._shape = tasks.query.shape[1:]
        self._buffers: dict[str, Tensor] = {}
        self.tasks_a_batch = max(1, _tasks_a_batch(tasks, source, self._device) // self._parts)
        self._draws: bool | None = None
        self.tied = self.asked = 0

    @torch.no_grad()
    def __call__(self, start: int) -> Tensor:
        """Return int16 ``(tasks, way, n_query)`` for the batch that begins with task ``start``."""
        stop = min(start + self.tasks_a_batch, len(self._query) // self._parts)
        rows = np.arange(start * self._parts, stop * self._parts)
        before = generator_states() if self._draws is None else []
        with about(f"tasks {start} to {stop - 1}"):
            scores = None if self._draws else self._scored(rows, self._order[rows])
            if self._draws is None:
                self._draws = generator_states() != before
            if self._draws:
                # What is drawn for a task must not depend on how many there are.
                whole = np.arange(rows[0], rows[0] + self.tasks_a_batch * self._parts)
                whole %= len(self._query)
                scores = self._scored(whole, self._order[whole])[: len(rows)]
        assert scores is not None
        best = scores.max(dim=2, keepdim=True)
        self.tied += int(((scores == best.values).sum(dim=2) > 1).sum())
        self.asked += scores.shape[0] * scores.shape[1]
        way = _put_back(best.indices[:, :, 0].cpu(), self._order[rows])
        return way.reshape(-1, *self._shape).to(torch.int16)

    def _scored(self, rows: IntArray, order: IntArray) -> Tensor:
        """Return the scores of the queries of some tasks, shown in an order ``(tasks, n)``."""
        support = torch.from_numpy(self._support[rows]).to(self._device)
        query = torch.from_numpy(np.take_along_axis(self._query[rows], order, axis=1))
        reseed(int(rows[0]) // self._parts)
        # Scores of embedded items take little time, so they use full precision.
        precision = self._source.precision if self._source.items is None else "fp32"
        with lowered(self._device, precision):
            return self.scorer(
                self._source.gather(self._model, support, self._buffers, "support"),
                self._source.gather(self._model, query.to(self._device), self._buffers, "query"),
            )

    @torch.no_grad()
    def check_order(self) -> None:
        """Check on some tasks that scores of a method do not depend on the order of the queries.

        Raises:
            PluginError: they do, and the method is not declared transductive.
        """
        method = self._model.method
        rows = np.arange(min(len(self._query), self.tasks_a_batch, _TASKS_IN_TWO_ORDERS))
        if method.transductive or self._draws is not False:
            return
        orders = self._order[rows], self._order[rows][:, ::-1]
        first, second = (
            _put_back(self._scored(rows, order).argmax(dim=2).cpu(), order) for order in orders
        )
        changed = int((first != second).sum())
        if changed > max(1, _MOST_CHANGED * first.numel()):
            raise malformed(
                method,
                "scores",
                f"other answers to {changed} of {first.numel()} queries when these came in "
                "another order",
                "the same, or be declared transductive",
            )

    @property
    def remark(self) -> str:
        """A sentence on ties; empty if there are few."""
        share = self.tied / max(1, self.asked)
        if share <= _MOST_TIED:
            return ""
        return f"{100 * share:.1f} % of queries have tied best scores; the first class is taken"


_TASKS_IN_TWO_ORDERS = 8
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


def _put_back(ways: Tensor, order: IntArray) -> Tensor:
    """Return the answers ``(tasks, n)`` to shuffled queries in the tasks' own order."""
    return torch.zeros_like(ways).scatter_(1, torch.from_numpy(order.copy()), ways)


def _tasks_a_batch(tasks: TaskSet, source: ImageSource, device: torch.device) -> int:
    per_task = int(tasks.images.shape[1])
    if source.items is None:
        # A backbone's activations outweigh the pixels, so the number of images counts.
        return max(1, 4 * _limit(_IMAGES_A_BATCH, device) // per_task)
    item_bytes = source.items[0].numel() * source.items.element_size()
    return max(1, min(1024, _limit(_BYTES_A_BATCH, device) // (item_bytes * per_task)))


def predict(model: FewShotModel, tasks: TaskSet, source: ImageSource) -> npt.NDArray[np.int16]:
    """Return the predicted way of each query, int16 ``(T, way, n_query)``, in evaluation mode."""
    predictor = _Predictor(model, tasks, source, "task")
    with seeded(0):
        parts = [predictor(start) for start in range(0, len(tasks), predictor.tasks_a_batch)]
    return torch.cat(parts).numpy()


def evaluate(
    model: FewShotModel,
    tasks: TaskSet,
    source: ImageSource,
    *,
    label: str,
    reporter: Reporter,
    partial: Path | None = None,
    query_batch: QueryBatch = "task",
) -> Outcomes:
    """Predict every query of every task, saving progress every few seconds.

    Args:
        partial: file of the predictions so far, from which a killed evaluation resumes; ``None``
            to store nothing.
        query_batch: ``task`` shows a method all queries of a task together; ``class`` those of one
            class at a time, as the published evaluation of FewSTAB does. Where a score depends on
            the other queries (transductive methods, BatchNorm in training mode), the two give
            different scores.
    """
    predictor = _Predictor(model, tasks, source, query_batch)
    identity = digest_of(tasks.digest, model.weights_digest(), f"{query_batch} {source.precision}")
    kept = None
    if partial is not None:
        kept = load_sealed(partial, lambda path: _predictions(path, identity), reporter.note)
    done = [] if kept is None else [kept]
    finished = sum(map(len, done))
    saved = time.monotonic()
    progress = reporter.stage(label, len(tasks), finished)
    with progress as advance, seeded(0):
        for start in range(finished, len(tasks), predictor.tasks_a_batch):
            done.append(predictor(start))
            advance(len(done[-1]))
            if partial is not None and time.monotonic() - saved > _SECONDS_BETWEEN_SAVES:
                _save_predictions(partial, torch.cat(done), identity)
                saved = time.monotonic()
        predictor.check_order()
    for remark in filter(None, (predictor.scorer.remark, predictor.remark)):
        reporter.note(remark)
    outcomes = Outcomes.of(tasks, torch.cat(done).numpy(), query_batch)
    if partial is not None:
        remove_sealed(partial)
    return outcomes


def _save_predictions(partial: Path, predictions: Tensor, identity: str) -> None:
    tensors = {"predictions": predictions}
    save_sealed(partial, lambda path: save_tensors(path, tensors, {"identity": identity}))


def _predictions(partial: Path, identity: str) -> Tensor | None:
    """Return the predictions that were saved, if they are of these tasks and weights."""
    tensors, header = load_tensors(partial)
    return tensors["predictions"] if header.get("identity") == identity else None
