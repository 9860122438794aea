"""Few-shot pseudo-supervised contrastive learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_self_supervised.methods._heads import perceptron
from fsf_self_supervised.methods._losses import balanced, queue_contrast
from fsf_self_supervised.methods._memory import MomentumCopy, Queue
from fsf_self_supervised.methods._pairs import PairMethod, cosines_to_means, full_precision
from fsframework.interfaces import (
    Backbone,
    Batch,
    OptionError,
    ViewMaker,
    check_above,
    check_at_least,
    check_below_one,
    check_one_of,
)

__all__ = ["PsCo", "pseudo_supervised"]


class PsCo(PairMethod):
    """Make tasks of the queue without labels, and learn to classify the images of the step in them.

    Source: Jang, Lee and Shin 2023, "Unsupervised Meta-Learning via Few-Shot Pseudo-Supervised
    Contrastive Learning" (ICLR), section 3, and the authors' code. Each image of the step is a way;
    its shots are the ``shots`` vectors of the queue that a balanced assignment (Sinkhorn) gives the
    largest shares of its second view. The first view must find its own shots among those of all
    images. To this the loss of MoCo is added. Backbone and projection have a slow copy, which sees
    the second view; the first one also passes a predictor.

    Scores are cosines of the queries' predictions to the class means of normalised projections of
    the support, all of them from the trained network, as in the authors' tests without adaptation.
    The paper adapts the projection to the support only across domains.

    The paper shows the trained network strongly and the copy weakly changed views; here both come
    from the same ``views``.

    Args:
        views: makes two views of an image.
        shots: vectors of the queue per image, at least 1; the paper uses 4 for miniImageNet and 1
            for Omniglot.
        temperature: of MoCo's loss, above 0.
        shot_temperature: of the loss of the made tasks, above 0.
        epsilon: weight of the assignment's entropy, above 0.
        iterations: of the assignment, at least 1.
        head: ``nonlinear`` for projection and predictor, as the authors do, or ``none``.
        width: length of the projected vectors, at least 1; ``hidden`` of the layers before.
        queue: number of vectors that are remembered, at least ``shots``.
        momentum: share of its own weights that the copy keeps per step, in [0, 1).
        space: where vectors are compared: after the ``heads``, as the authors do, or those of the
            ``backbone``.

    Raises:
        OptionError: an option is outside its range.
    """

    usual_components: ClassVar[Mapping[str, str]] = {"views": "simclr"}

    def __init__(  # noqa: PLR0913
        self,
        *,
        views: ViewMaker,
        shots: int = 4,
        temperature: float = 0.2,
        shot_temperature: float = 1.0,
        epsilon: float = 0.05,
        iterations: int = 3,
        head: Literal["nonlinear", "none"] = "nonlinear",
        width: int = 256,
        hidden: int = 4096,
        queue: int = 16384,
        momentum: float = 0.99,
        space: Literal["heads", "backbone"] = "heads",
    ) -> None:
        super().__init__(views=views)
        check_at_least(1, shots=shots, iterations=iterations, width=width, hidden=hidden)
        check_above(0, temperature=temperature, shot_temperature=shot_temperature, epsilon=epsilon)
        check_below_one(momentum=momentum)
        check_one_of(("heads", "backbone"), space=space)
        check_one_of(("nonlinear", "none"), head=head)
        if queue < shots:
            raise OptionError(f"queue must be at least shots, {shots}, got {queue}")
        self.shots = shots
        self.temperature = temperature
        self.shot_temperature = shot_temperature
        self.epsilon = epsilon
        self.iterations = iterations
        self.head = head
        self.width = width
        self.hidden = hidden
        self.queue = queue
        self.momentum = momentum
        self.space = space

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Store the backbone; create projection, predictor, copy and queue for vectors ``(D,)``."""
        super().build(item_shape, n_base_classes, backbone)
        (size,) = item_shape
        width = self.width
        self.project: nn.Module = nn.Identity()
        self.predict: nn.Module = nn.Identity()
        if self.head == "none":
            width = size
        else:
            self.project = perceptron((size, self.hidden, width), bias=False, last=False)
            self.predict = perceptron((width, self.hidden, width), bias=False)
        self.slow = MomentumCopy(backbone, self.project, self.momentum)
        self.keys = Queue(self.queue, width)

    @property
    def _plain(self) -> bool:
        """Whether vectors of the backbone are compared."""
        return self.space == "backbone" or self.head == "none"

    def embed(self, items: Tensor) -> Tensor:
        """Map vectors ``(n, D)`` to their projection and its prediction, ``(n, 2 * width)``.

        The identity where ``space`` is that of the backbone, or there are no heads.
        """
        if self._plain:
            return items
        projected = self.project(items)
        return torch.cat([projected, self.predict(projected)], dim=1)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return cosines to class means of normalised vectors, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, E)``, embedded; of the heads, the projections count.
            query: float ``(tasks, n, E)``, embedded; of the heads, the predictions count.
        """
        if self._plain:
            return super().scores(support, query)
        return cosines_to_means(support[..., : self.width], query[..., self.width :])

    def loss(self, batch: Batch) -> Tensor:
        """Return the losses of the made tasks and of MoCo; carries the keys to ``after_step``."""
        first, second = self.pair(batch)
        predicted = self.predict(self.project(self.backbone.encode(first)))
        keys = self.slow(second)
        with torch.autocast(first.device.type, enabled=False):
            queries = functional.normalize(full_precision(predicted), dim=1)
            keys = functional.normalize(full_precision(keys), dim=1)
            self.carried = {"keys": keys}
            return self.contrast(queries, keys)

    def contrast(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the loss of normalised vectors ``(n, width)`` of the first and second views."""
        queue = self.keys.entries
        chosen = self.chosen(self.assigned(keys))
        tasks = pseudo_supervised(queries, queue[chosen], self.shot_temperature)
        return tasks + queue_contrast(queries, keys, queue, self.temperature)

    def assigned(self, keys: Tensor) -> Tensor:
        """Return each key's shares of the queue, ``(n, K)``, with the sum 1."""
        return balanced(keys @ self.keys.entries.mT, self.epsilon, self.iterations)

    def chosen(self, shares: Tensor) -> Tensor:
        """Return the places of the shots in the queue, int64 ``(n, shots)``."""
        return shares.topk(self.shots, dim=1).indices

    def after_step(self, carried: Mapping[str, Tensor]) -> None:
        """Let the copy follow, and put the keys into the queue."""
        self.slow.follow(self.backbone, self.project)
        self.keys.write(carried["keys"])


def pseudo_supervised(queries: Tensor, shots: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss of queries that are ways of their own.

    The mean over queries of the log of the sum of exp(inner product / temperature) over the shots
    of all queries, each as often as it was chosen, minus the mean over the own shots.

    Args:
        queries: ``(n, D)``.
        shots: ``(n, shots, D)``.
        temperature: divides the inner products.
    """
    logits = torch.einsum("nd,msd->nms", queries, shots) / temperature
    own = logits.diagonal(dim1=0, dim2=1).mean(dim=0)
    return (logits.flatten(1).logsumexp(dim=1) - own).mean()
