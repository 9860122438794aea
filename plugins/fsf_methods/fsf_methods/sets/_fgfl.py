"""Frequency-guided few-shot learning."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fsf_methods._shared import full_precision
from fsf_methods.sets._attention import SelfAttention, class_centres
from fsf_methods.sets._frequencies import Frequencies
from fsf_methods.sets._vectors import squared_distances
from fsframework.interfaces import Backbone, Batch, FewShotMethod, OptionError

__all__ = ["FGFL"]

_SMALLEST = 8
_FREQUENCY_TEMPERATURE = 12.5
_THRESHOLD, _STEEPNESS = 0.1, 100.0
_MARGIN = 0.1
_LARGEST_COEFFICIENT = 127.0


class _Task(NamedTuple):
    """The vectors of the images of each task, the support first.

    Args:
        items: float ``(tasks, m, D)``.
        n_support: how many of them are support, class by class with equally many.
        way: classes.
    """

    items: Tensor
    n_support: int
    way: int

    @property
    def support(self) -> Tensor:
        """Support vectors, ``(tasks, way, shot, D)``."""
        support: Tensor = self.items[:, : self.n_support].unflatten(1, (self.way, -1))
        return support

    @property
    def query(self) -> Tensor:
        """Query vectors, ``(tasks, n, D)``."""
        return self.items[:, self.n_support :]


class FGFL(FewShotMethod):
    """Train with images from which the frequencies that decide, or all others, are removed.

    Source: Cheng, Yang, Zhou, Guo and Wen 2023, "Frequency Guidance Matters in Few-Shot Learning"
    (ICCV), in the form of the authors' code. In evaluation, self-attention transforms support and
    queries of a task together; prototypes are re-estimated with the queries, each counted by its
    probabilities; the score is minus the squared distance to them, divided by ``temperature``. This
    is transductive.

    In training, a second backbone classifies the images' discrete cosine coefficients. Its
    class-wise gradients (Grad-CAM) mark the coefficients that decide; images of only these, and of
    all others, are made. The loss adds, to the cross-entropy of the scores:

    - that of the second backbone's cosines with class means, and 0.1 times the same between its
      vectors and those of the coefficients that do not decide;
    - 0.01 times that of the scores when the images of the deciding coefficients join the task, and
      0.1 times that between the images and those of the other coefficients;
    - 0.01 times a triplet loss: an image is nearer to that of its deciding coefficients;
    - ``balance`` times the regulariser of FEAT, on the transformed vectors.

    Vectors of images with removed coefficients use the running statistics of BatchNorms. The second
    backbone starts as a copy of the first and is not used in evaluation.

    Args:
        temperature: divides the scores, above 0.
        regulariser_temperature: divides the scores of the regulariser, above 0.
        balance: weight of the regulariser, at least 0.
        dropout: share of numbers dropped after the attention in training, in [0, 1).
        attention_dropout: share of attention weights dropped in training, in [0, 1).

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "images"
    transductive = True

    def __init__(
        self,
        *,
        temperature: float = 64.0,
        regulariser_temperature: float = 64.0,
        balance: float = 0.01,
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
    ) -> None:
        super().__init__()
        temperatures = {
            "temperature": temperature,
            "regulariser_temperature": regulariser_temperature,
        }
        for name, value in temperatures.items():
            if not value > 0:
                raise OptionError(f"{name} must be above 0, got {value}")
        if not balance >= 0:
            raise OptionError(f"balance must be at least 0, got {balance}")
        for name, value in {"dropout": dropout, "attention_dropout": attention_dropout}.items():
            if not 0 <= value < 1:
                raise OptionError(f"{name} must be in [0, 1), got {value}")
        self.temperature = temperature
        self.regulariser_temperature = regulariser_temperature
        self.balance = balance
        self.dropout = dropout
        self.attention_dropout = attention_dropout

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone, copy it, and create the attention for images ``(3, H, W)``.

        Raises:
            OptionError: the images are smaller than a block of 8 x 8 pixels.
        """
        if min(item_shape[1:]) < _SMALLEST:
            raise OptionError(
                f"FGFL needs images of at least 8 x 8 pixels, got {item_shape[1]} x {item_shape[2]}"
            )
        self.backbone = backbone
        self.frequency_backbone = copy.deepcopy(backbone)
        self.frequencies = Frequencies(backbone.preprocessing.mean, backbone.preprocessing.std)
        was_training = backbone.training
        with torch.no_grad():
            length = backbone.eval().encode(torch.zeros(1, *item_shape)).shape[1]
        backbone.train(was_training)
        self.attention = SelfAttention(length, self.dropout, self.attention_dropout)

    def embed(self, items: Tensor) -> Tensor:
        """Turn images ``(n, 3, H, W)`` into vectors ``(n, D)`` in float32 or float64."""
        return full_precision(self.backbone.encode(items))

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return negative squared distances over ``temperature``, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``, embedded.
            query: float ``(tasks, n, D)``, embedded.
        """
        with torch.autocast(query.device.type, enabled=False):
            task = _Task(
                torch.cat([support.flatten(1, 2), query], dim=1),
                support.shape[1:3].numel(),
                support.shape[1],
            )
            adapted = self._adapted(task)
            return self._scores(adapted.query, self._prototypes(adapted.support, adapted.query))

    def _adapted(self, task: _Task) -> _Task:
        return task._replace(items=self.attention(task.items))

    def _scores(self, query: Tensor, prototypes: Tensor) -> Tensor:
        return -squared_distances(query, prototypes) / self.temperature

    def _prototypes(self, support: Tensor, pool: Tensor) -> Tensor:
        """Average a class's support ``(tasks, way, shot, D)`` and the pool, by probabilities."""
        shares = self._scores(pool, support.mean(dim=2)).softmax(dim=2)
        sums = support.sum(dim=2) + shares.mT @ pool
        return sums / (support.shape[2] + shares.sum(dim=1)[:, :, None])

    def loss(self, batch: Batch) -> Tensor:
        """Return the sum of the losses listed above."""
        assert batch.query_labels is not None
        if batch.support is None or batch.query is None:
            raise OptionError("FGFL learns from episodes, but this step has none")
        tasks, way, shot = batch.support.shape[:3]
        images = torch.cat([batch.support.flatten(1, 2), batch.query], dim=1)
        own = torch.arange(way, device=images.device).repeat_interleave(shot).expand(tasks, -1)
        classes = torch.cat([own, batch.query_labels], dim=1)

        def task(flat: Tensor) -> _Task:
            vectors = full_precision(flat)
            return _Task(vectors.unflatten(0, (tasks, -1)), way * shot, way)

        plain = task(self.backbone.encode(images.flatten(0, 1)))
        coefficients = self.frequencies(images.flatten(0, 1))
        mask, of_frequencies = self._frequency_loss(coefficients, classes, task)
        largest = _LARGEST_COEFFICIENT
        with _running_statistics(self.backbone):
            good, bad = (
                task(self.backbone.encode(self.frequencies.images(kept.clamp(-128.0, largest))))
                for kept in (coefficients * mask, coefficients * (1 - mask))
            )
        with torch.autocast(images.device.type, enabled=False):
            triplet = functional.triplet_margin_loss(
                plain.items.flatten(0, 1),
                good.items.flatten(0, 1),
                bad.items.flatten(0, 1),
                margin=_MARGIN,
            )
            bad = bad._replace(items=bad.items.detach())
            of_images = self._image_loss(plain, good, bad, classes)
        return of_images + of_frequencies + 0.01 * triplet

    def _frequency_loss(
        self, coefficients: Tensor, classes: Tensor, task: Callable[[Tensor], _Task]
    ) -> tuple[Tensor, Tensor]:
        """Return the mask of the deciding coefficients, and the second backbone's losses.

        Args:
            coefficients: float ``(tasks * m, 3, H, W)``.
            classes: int64 ``(tasks, m)``.
            task: arranges vectors ``(tasks * m, D)``.
        """
        maps = self.frequency_backbone(coefficients)
        if not maps.requires_grad:
            maps = maps.detach().requires_grad_()
        plain = task(self.frequency_backbone.vectors(maps))
        logits = _cosines(plain, plain)
        decided = logits.gather(2, classes[:, :, None]).sum()
        slopes = torch.autograd.grad(decided, maps, retain_graph=True)[0]
        relevance = (maps * slopes.mean(dim=(2, 3), keepdim=True)).sum(dim=1, keepdim=True)
        mask = _mask(relevance.relu().float(), coefficients.shape[2:], len(classes))
        with _running_statistics(self.frequency_backbone), torch.no_grad():
            other = task(self.frequency_backbone.encode(coefficients * (1 - mask)))
        losses = [
            _cross_entropy(compared / _FREQUENCY_TEMPERATURE, classes)
            for compared in (logits, _cosines(plain, other), _cosines(other, plain))
        ]
        return mask, losses[0] + 0.1 * (losses[1] + losses[2])

    def _image_loss(self, plain: _Task, good: _Task, bad: _Task, classes: Tensor) -> Tensor:
        """Return the losses of the first backbone's vectors without the triplet loss."""
        labels = classes[:, plain.n_support :]
        adapted, adapted_bad = self._adapted(plain), self._adapted(bad)
        prototypes = self._prototypes(adapted.support, adapted.query)
        of_bad = self._prototypes(adapted_bad.support, adapted_bad.query)
        loss = _cross_entropy(self._scores(adapted.query, prototypes), labels)
        crossed = _cross_entropy(self._scores(adapted.query, of_bad), labels) + _cross_entropy(
            self._scores(adapted_bad.query, prototypes), labels
        )
        joined = self._joined_loss(plain, good, labels)
        centres = class_centres(self.attention, adapted.items, classes, plain.way)
        logits = -squared_distances(adapted.items, centres) / self.regulariser_temperature
        regulariser = _cross_entropy(logits, classes)
        return loss + 0.1 * crossed + 0.01 * joined + self.balance * regulariser

    def _joined_loss(self, plain: _Task, good: _Task, labels: Tensor) -> Tensor:
        """Return the loss where the images of the deciding coefficients join the task."""
        count = plain.items.shape[1]
        items = self.attention(torch.cat([plain.items, good.items], dim=1))
        with_plain, with_good = (
            plain._replace(items=half) for half in (items[:, :count], items[:, count:])
        )
        query = torch.cat([with_plain.query, with_good.query], dim=1)
        pool = torch.cat([with_good.support.flatten(1, 2), query], dim=1)
        scores = self._scores(query, self._prototypes(with_plain.support, pool))
        return _cross_entropy(scores, labels.repeat(1, 2))


def _cosines(points: _Task, classes: _Task) -> Tensor:
    """Return the products of all vectors with the directions of class means."""
    return points.items @ functional.normalize(classes.support.mean(dim=2), dim=2).mT


def _mask(relevance: Tensor, size: torch.Size, tasks: int) -> Tensor:
    """Turn relevance ``(tasks * m, 1, h, w)``, at least 0, into a soft mask of a larger size."""
    large = functional.interpolate(relevance, size=size, mode="bilinear", align_corners=True)
    of_task = large.reshape(tasks, -1)
    least, most = of_task.amin(dim=1, keepdim=True), of_task.amax(dim=1, keepdim=True)
    scaled = (of_task - least) / (most - least + 1e-8)
    return (_STEEPNESS * (scaled - _THRESHOLD)).sigmoid().reshape(large.shape)


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Average over tasks and images; ``(tasks, m, way)`` and ``(tasks, m)``."""
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


@contextmanager
def _running_statistics(module: nn.Module) -> Iterator[None]:
    """Within the block, let BatchNorms use their running statistics."""
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    before = [norm.training for norm in norms]
    for norm in norms:
        norm.eval()
    try:
        yield
    finally:
        for norm, training in zip(norms, before, strict=True):
            norm.train(training)
