"""What the loss of a training step is computed on: episodes, batches, views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fsframework._calls import checked
from fsframework.engine.cache.images import Pixels, PixelSource
from fsframework.engine.learning.model import FewShotModel, on_device
from fsframework.engine.learning.scoring import check_tensor
from fsframework.engine.stages import Stage
from fsframework.errors import OptionError
from fsframework.interfaces.method import Batch
from fsframework.interfaces.views import ViewMaker, Views
from fsframework.values import ImagePool, IntArray, TaskSet, digest_of

__all__ = ["Split", "StepBatches"]

_MOST_BYTES_OF_ITEMS = 2 << 30
_IMAGES_A_BLOCK = 64


@dataclass(frozen=True)
class Split:
    """A pool with its pixels, uint8 ``(n, H, W, 3)``."""

    pool: ImagePool
    pixels: PixelSource

    @property
    def digest(self) -> str:
        """Digest of the pixels."""
        return self.pixels.digest if isinstance(self.pixels, Pixels) else digest_of(self.pixels)


class StepBatches:
    """Makes the batches of a stage.

    Args:
        stage: sets sizes and augmentation.
        shown: what the loss is computed on.
        model: the stage's.
        split: the training images.
        encode: maps normalised images to items.
        fixed: whether the stage keeps all weights of the backbone.
        device: of the tensors.
    """

    def __init__(
        self,
        stage: Stage,
        shown: str,
        model: FewShotModel,
        split: Split,
        encode: Callable[[Tensor], Tensor],
        device: torch.device,
        *,
        fixed: bool,
    ) -> None:
        self.stage, self.shown, self.model, self.split = stage, shown, model, split
        self.encode, self.device, self.fixed = encode, device, fixed
        self.teacher: FewShotModel | None = None
        """Of a stage that distils."""

    @property
    def has_episodes(self) -> bool:
        """Whether a step has episodes."""
        return self.shown in ("episodes", "both")

    def of_epoch(self, episodes: TaskSet | None, seed: int) -> Callable[[int], Batch]:
        """Return a function from step to batch, with images drawn for an epoch.

        Args:
            episodes: those of the whole epoch, if there are any.
            seed: of the images drawn without regard to episodes.
        """
        stage, count = self.stage, self.stage.tasks_per_step
        rng = np.random.default_rng(seed)
        flat = rng.integers(len(self.split.pool), size=(stage.steps, stage.batch_size))

        def batch(step: int) -> Batch:
            part = None if episodes is None else episodes[step * count : (step + 1) * count]
            shown = [] if part is None else [part.support.ravel(), part.query.ravel()]
            if self.shown != "episodes":
                shown.append(flat[step])
            return self._batch(np.concatenate(shown), part)

        return batch

    def _batch(self, index: IntArray, part: TaskSet | None) -> Batch:
        """Return the batch of some images, those of the episodes first."""
        method, fields = self.model.method, dict[str, Tensor]()
        if method.uses_labels or part is not None:
            labels = on_device(self.split.pool.labels[index], self.device)
        n = 0 if part is None else part.support.size + part.query.size
        plain = self._plain(index)
        images = None if plain is None else self.model.normalised(plain)
        if self.shown != "views":
            items = self._items(index, images)
            if part is not None:
                fields |= _episode(items[:n], labels[:n], part)
            if len(items) > n:
                fields["items"] = items[n:]
        if len(index) > n and method.uses_labels:
            fields["classes"] = labels[n:]
        if method.needs_words:
            fields |= self._words(index, part, n)
        if method.views is not None:
            assert plain is not None, "a method with views is shown images"
            fields |= self._views(method.views, plain)
        if self.teacher is not None:
            assert images is not None, "a teacher is shown images"
            if self.shown == "views":
                fields["teacher_vectors"] = self._view_vectors(self.teacher, fields["views"])
            else:
                fields["teacher_logits"] = self._logits(self.teacher, images[n:])
        return Batch(**fields)

    def _words(self, index: IntArray, part: TaskSet | None, n: int) -> dict[str, Tensor]:
        """Return the fields of a batch for the words of images, of which n are of episodes."""
        table, fields = self.split.pool.attributes, dict[str, Tensor]()
        assert table is not None, "images have words where a method needs these"
        words = on_device(table.rows(index), self.device)
        if part is not None:
            shots = words[: part.support.size]
            fields["support_words"] = shots.reshape(*part.support.shape, -1)
            fields["query_words"] = words[len(shots) : n].reshape(len(part), -1, words.shape[1])
        return {**fields, "words": words[n:]} if len(index) > n else fields

    def _plain(self, index: IntArray) -> Tensor | None:
        """Return augmented images, values 0..255, if anything but kept items is needed."""
        if self._kept is not None and self.teacher is None and self.model.method.views is None:
            return None
        return self.model.plain(
            on_device(self.split.pixels[index], self.device), self.stage.augment
        )

    def _items(self, index: IntArray, images: Tensor | None) -> Tensor:
        """Return the items of images."""
        if self._kept is not None:
            return self._kept.index_select(0, on_device(index, self.device))
        assert images is not None, "there are no kept items"
        return images if self.model.method.trains_on_images else self.encode(images)

    def _views(self, maker: ViewMaker, plain: Tensor) -> dict[str, Tensor]:
        """Return the fields of a batch for views of images."""
        with torch.no_grad():
            made = checked(maker, "make", maker.make(plain / 255), Views)
        n = len(plain)
        fields = {"views": made.images, "applied": made.applied}
        if made.small is not None:
            fields["small_views"] = made.small
        for name, count in (("views", maker.n_views), ("small_views", -1)):
            if name in fields:
                shape = (n, count, 3, -1, -1)
                check_tensor(maker, "make", fields[name], shape, self.device, finite=False)
                fields[name] = self._normalised(fields[name])
        return fields

    def _normalised(self, views: Tensor) -> Tensor:
        """Normalise views ``(n, v, 3, h, w)``; flattened they are in the channels-last format."""
        flat = self.model.normalised(255 * views.flatten(0, 1))
        flat = flat.contiguous(memory_format=torch.channels_last)
        return flat.reshape(*views.shape[:2], *flat.shape[1:])

    def _logits(self, teacher: FewShotModel, images: Tensor) -> Tensor:
        """Return the teacher's logits of images."""
        with torch.no_grad():
            shown = teacher.encode(self._for(teacher, images))
            logits = teacher.method.class_logits(shown)
        check_tensor(teacher.method, "class_logits", logits, (len(shown), -1), self.device)
        if logits.shape[1] != self.split.pool.n_classes:
            raise OptionError(
                f"training.teacher {self.stage.teacher}: knows {logits.shape[1]} classes, but the "
                f"split 'train' has {self.split.pool.n_classes}"
            )
        return logits

    def _view_vectors(self, teacher: FewShotModel, views: Tensor) -> Tensor:
        """Return the teacher's vectors of views, ``(n, v, E)``."""
        with torch.no_grad():
            shown = self._for(teacher, views.flatten(0, 1))
            vectors = teacher.method.view_vectors(shown)
        check_tensor(teacher.method, "view_vectors", vectors, (len(shown), -1), self.device)
        return vectors.reshape(*views.shape[:2], -1)

    def _for(self, teacher: FewShotModel, images: Tensor) -> Tensor:
        """Return normalised images ``(n, 3, h, w)`` as the backbone of a teacher expects them."""
        model = self.model
        own, theirs = (one.extractor.preprocessing for one in (model, teacher))
        if (own.mean, own.std) == (theirs.mean, theirs.std):
            return images
        return teacher.normalised(images * model.std + model.mean)

    @cached_property
    def _kept(self) -> Tensor | None:
        """The items of all training images if no step changes them, else ``None``."""
        model, pixels = self.model, self.split.pixels
        method = model.method
        if method.consumes == "images" or method.trains_on_images:
            return None
        if self.stage.augment or self.shown == "views" or not self._backbone_is_fixed():
            return None
        with torch.no_grad():
            one = model.items(on_device(pixels[:1], self.device))
            if one.numel() * one.element_size() * len(pixels) > _MOST_BYTES_OF_ITEMS:
                return None
            items = one.new_empty(len(pixels), *one.shape[1:])
            for start in range(0, len(pixels), _IMAGES_A_BLOCK):
                block = np.ascontiguousarray(pixels[start : start + _IMAGES_A_BLOCK])
                items[start : start + len(block)] = model.items(on_device(block, self.device))
        return items

    def _backbone_is_fixed(self) -> bool:
        """Return whether the stage or the backbone itself keeps all its weights unchanged."""
        if self.fixed:
            return True
        extractor = self.model.extractor
        inner = (m for m in extractor.modules() if m is not extractor)
        return not any(p.requires_grad for p in extractor.parameters()) and not any(
            m.training for m in inner
        )


def _episode(items: Tensor, labels: Tensor, part: TaskSet) -> Mapping[str, Tensor]:
    """Return the fields of a batch for episodes, from their supports followed by their queries."""
    n, item, shape = part.support.size, items.shape[1:], part.support.shape
    ways = torch.arange(part.n_way, device=items.device).repeat_interleave(part.n_query)
    return {
        "support": items[:n].reshape(*shape, *item),
        "query": items[n:].reshape(len(part), part.n_way * part.n_query, *item),
        "query_labels": ways.expand(len(part), -1),
        "support_classes": labels[:n].reshape(shape),
        "query_classes": labels[n:].reshape(len(part), -1),
    }
