"""Fine-tuning of the whole backbone per task."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fsf_methods.transfer._classifiers import penalised_loss
from fsf_methods.transfer._fit import Fit, fitted
from fsframework.interfaces import Backbone, FewShotMethod, OptionError, check_at_least

__all__ = ["FineTune"]

_MOMENTUM = 0.9
_SCALE = 10.0

Weights = dict[str, Tensor]


class FineTune(FewShotMethod):
    """Adapt the whole backbone and a classifier to the support of each task.

    Source: the adapter "Fine-tune" of Lafargue et al. 2024, "Oops, I Sampled it Again", and Luo et
    al. 2023, "A Closer Look at Few-shot Classification Again" (ICML), whose code they use: SGD with
    momentum 0.9 on the cross-entropy of the support, both learning rates following a cosine to 0,
    vectors of length 1, no augmentation, BatchNorms in evaluation mode. Lafargue et al. use 30
    steps, a ``head_lr`` of 0.1 and an ``lr`` of 0.001 for DINO, 0.0001 for CLIP and DINOv2; Luo et
    al. choose them on validation tasks.

    With ``probe_steps`` the head is fitted to the vectors of the unchanged backbone first, so that
    the backbone is not distorted for the sake of a head that knows nothing (Kumar, Raghunathan,
    Jones, Ma and Liang 2022, "Fine-Tuning can Distort Pretrained Features and Underperform
    Out-of-Distribution", section 3.4), and ``firth_c`` penalises that fit as in ``lp-ft-fb``.

    Two deviations: a step uses the whole support, where the authors draw 100 images without
    replacement, which is the same for at most 100; and the ``cosine`` head, random there, starts as
    the classes' means, so that it is deterministic and treats all ways alike.

    Args:
        head: the classifier of vectors: ``linear`` starts at 0 (the authors' starts at a constant,
            which is equivalent); ``cosine`` is a learned factor, initially 10, times the cosines to
            learned vectors; ``centroids`` is 10 times the cosines to the current means of the
            support's vectors and has no weights.
        steps: steps of SGD, at least 0.
        lr: initial learning rate of the backbone, at least 0.
        head_lr: initial learning rate of the head, at least 0.
        probe_steps: steps that move only a head of weights, before the others, at least 0; by SGD
            with momentum 0.9, dampening 0.9 and ``head_lr``.
        firth_c: weight of the penalty in these steps, at least 0: minus the mean, over images and
            classes, of the logarithm of the class's probability.
        batch_norm: whether BatchNorms use their ``running`` statistics or those of the task's
            ``support``, also for its queries.
        tasks_at_once: tasks adapted in parallel, at least 1, which bounds the memory. ``None`` for
            8, or 1 on CPUs, where convolutions that differ by task are slower together.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "images"
    learns_from = "nothing"
    weightless = True

    def __init__(  # noqa: PLR0913
        self,
        *,
        head: Literal["linear", "cosine", "centroids"] = "linear",
        steps: int = 30,
        lr: float = 0.001,
        head_lr: float = 0.1,
        probe_steps: int = 0,
        firth_c: float = 0.0,
        batch_norm: Literal["running", "support"] = "running",
        tasks_at_once: int | None = None,
    ) -> None:
        super().__init__()
        if head not in ("linear", "cosine", "centroids"):
            raise OptionError(f"head must be 'linear', 'cosine' or 'centroids', got {head!r}")
        check_at_least(
            0, steps=steps, lr=lr, head_lr=head_lr, probe_steps=probe_steps, firth_c=firth_c
        )
        if batch_norm not in ("running", "support"):
            raise OptionError(f"batch_norm must be 'running' or 'support', got {batch_norm!r}")
        if tasks_at_once is not None and tasks_at_once < 1:
            raise OptionError(f"tasks_at_once must be at least 1, got {tasks_at_once}")
        self.head = head
        self.steps = steps
        self.lr = lr
        self.head_lr = head_lr
        self.probe_steps = probe_steps
        self.firth_c = firth_c
        self.batch_norm = batch_norm
        self.tasks_at_once = tasks_at_once

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone."""
        del item_shape, n_base_classes
        self.backbone = backbone

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return logits, float ``(tasks, n, way)``, without gradients.

        Args:
            support: float ``(tasks, way, shot, 3, H, W)``.
            query: float ``(tasks, n, 3, H, W)``.
        """
        adapt_and_score = vmap(partial(self._scores_of_task, _Vectors(self.backbone)))
        n = self.tasks_at_once or (1 if support.device.type == "cpu" else 8)
        # BatchNorms do not support mixed precision under vmap.
        with torch.no_grad(), torch.autocast(support.device.type, enabled=False):
            parts = [
                adapt_and_score(support[first : first + n], query[first : first + n])
                for first in range(0, len(support), n)
            ]
        return torch.cat(parts)

    def _scores_of_task(self, vectors: _Vectors, support: Tensor, query: Tensor) -> Tensor:
        """Score queries ``(n, 3, H, W)`` of one task, support ``(way, shot, 3, H, W)``."""
        way, shot = support.shape[:2]
        images = support.flatten(0, 1)
        labels = torch.arange(way, device=images.device).repeat_interleave(shot)
        of_support = self.batch_norm == "support"

        def unit_vectors(backbone: Weights) -> Tensor:
            with _batch_statistics(vectors) if of_support else nullcontext():
                return functional.normalize(functional_call(vectors, backbone, (images,)), dim=1)

        def loss(backbone: Weights, head: Weights) -> Tensor:
            found = unit_vectors(backbone)
            logits = self._logits(head, found, found.reshape(way, shot, -1))
            return functional.cross_entropy(logits, labels)

        backbone = {name: weight.detach() for name, weight in vectors.named_parameters()}
        head = self._probed(unit_vectors(backbone).reshape(way, shot, -1))
        both: tuple[Weights, Weights] = backbone, head
        velocities: list[Weights] = [{}, {}]
        for step in range(self.steps):
            annealed = 0.5 * (1 + math.cos(math.pi * step / self.steps))
            gradients = grad(loss, argnums=(0, 1))(*both)
            rates = self.lr * annealed, self.head_lr * annealed
            velocities = [
                {name: _MOMENTUM * old[name] + new[name] if old else new[name] for name in new}
                for old, new in zip(velocities, gradients, strict=True)
            ]
            both = tuple(  # type: ignore[assignment]
                {name: weights[name] - rate * velocity[name] for name in weights}
                for weights, velocity, rate in zip(both, velocities, rates, strict=True)
            )
        backbone, head = both
        statistics: Weights = {}
        if of_support:
            with _batch_statistics(vectors) as statistics:
                functional_call(vectors, backbone, (images,))
        found = unit_vectors(backbone).reshape(way, shot, -1)
        of_query = functional_call(vectors, {**backbone, **statistics}, (query,))
        return self._logits(head, functional.normalize(of_query, dim=1), found)

    def _probed(self, support: Tensor) -> Weights:
        """Return the head's weights before the backbone moves, given vectors ``(way, shot, D)``."""
        head = self._start(support)
        if not (self.probe_steps and head):
            return head

        def logits(heads: Mapping[str, Tensor], items: Tensor) -> Tensor:
            one = {name: weight[0] for name, weight in heads.items()}
            return self._logits(one, items[0], support)[None]

        found = fitted(
            {name: weight[None] for name, weight in head.items()},
            support[None],
            logits,
            Fit(self.probe_steps, self.head_lr, weight_decay=0.0),
            loss=partial(penalised_loss, firth=self.firth_c),
        )
        return {name: weight[0] for name, weight in found.items()}

    def _start(self, support: Tensor) -> Weights:
        """Return the head's initial weights, given vectors ``(way, shot, D)``."""
        way, _, dim = support.shape
        if self.head == "linear":
            return {"weight": support.new_zeros(way, dim), "bias": support.new_zeros(way)}
        if self.head == "cosine":
            return {"weight": support.mean(dim=1), "scale": support.new_full((), _SCALE)}
        return {}

    def _logits(self, head: Weights, vectors: Tensor, support: Tensor) -> Tensor:
        """Return logits ``(n, way)`` of unit vectors ``(n, D)``, given the support's."""
        if self.head == "linear":
            return functional.linear(vectors, head["weight"], head["bias"])
        directions = head["weight"] if self.head == "cosine" else support.mean(dim=1)
        cosines = vectors @ functional.normalize(directions, dim=1).mT
        return cosines * (head["scale"] if self.head == "cosine" else _SCALE)


class _Vectors(nn.Module):
    """Images to vectors, as one module that ``functional_call`` can take."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> Tensor:
        vectors: Tensor = self.backbone.encode(images)
        return vectors


@contextmanager
def _batch_statistics(module: nn.Module) -> Iterator[Weights]:
    """Within the block, let BatchNorms use the batch's statistics, and record them.

    They are recorded under the names of the running statistics, which they can replace.
    """
    noted: Weights = {}

    def note(name: str, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        over = [d for d in range(inputs[0].ndim) if d != 1]
        noted[f"{name}.running_mean"] = inputs[0].mean(dim=over)
        noted[f"{name}.running_var"] = inputs[0].var(dim=over, correction=0)

    norms = [(n, part) for n, part in module.named_modules() if isinstance(part, _BatchNorm)]
    before = [(part.training, part.track_running_stats) for _, part in norms]
    with ExitStack() as hooks:
        for name, norm in norms:
            hooks.callback(norm.register_forward_pre_hook(partial(note, name)).remove)
            # In this state a BatchNorm neither uses nor changes its running statistics.
            norm.training, norm.track_running_stats = True, False
        try:
            yield noted
        finally:
            for (_, norm), (training, track) in zip(norms, before, strict=True):
                norm.training, norm.track_running_stats = training, track
