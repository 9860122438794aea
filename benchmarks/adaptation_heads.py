"""Milliseconds per task of the heads that adapt at test time, many tasks at once and one by one.

Run ``python benchmarks/adaptation_heads.py``; it takes about three minutes. Vectors have 64 numbers
or 1600; TSA and DETA take five steps on images of 32 x 32 pixels through Conv-64F, with 15 queries.
Distribution calibration is compared with drawing and fitting one task at a time, by scikit-learn;
LP-FT-FB with gradient descent on its weights; CDKT, TSA and DETA with themselves on one task.
``_heads.py`` explains the columns.
"""

from __future__ import annotations

import numpy as np
import torch
from _heads import SHOT, WAY, Case, run, support_labels
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional
from vector_heads import descended

from fsf_methods.adaptation import CDKT, DETA, TSA, ContrastiveCentroids
from fsf_methods.transfer import LPFTFB, DistributionCalibration

PASSES_STEPS = 2100
"""Of 300 passes over 25 support images, 4 in a step."""


def plain_centroids(method: ContrastiveCentroids, support: Tensor, query: Tensor) -> Tensor:
    """Subtract every mean from every query."""
    del method
    return -(query[:, None] - support.mean(dim=1)).square().mean(dim=2)


def plain_lpftfb(method: LPFTFB, support: Tensor, query: Tensor) -> Tensor:
    """Fit a linear layer to one task."""
    vectors, labels = support.flatten(0, 1), support_labels()

    def loss(weights: list[Tensor]) -> Tensor:
        logits = functional.linear(vectors, *weights)
        penalty = -logits.log_softmax(dim=1).mean()
        return functional.cross_entropy(logits, labels) + method.firth_c * penalty

    start = [torch.zeros(WAY, vectors.shape[1]), torch.zeros(WAY)]
    weights = descended(start, loss, method.weight_decay, method.lr, PASSES_STEPS)
    return functional.linear(query, *weights)


def plain_calibration(method: DistributionCalibration, support: Tensor, query: Tensor) -> Tensor:
    """Draw from the Gaussian of each image with NumPy, and fit scikit-learn's regression."""
    means, covariances = (x.numpy() for x in method.calibrated(support.flatten(0, 1)))
    rng = np.random.default_rng(0)
    each = method.n_samples // SHOT
    drawn = [
        rng.multivariate_normal(mean, covariance, each)
        for mean, covariance in zip(means, covariances, strict=True)
    ]
    roots = support.flatten(0, 1).clamp(min=0).pow(method.beta)
    items = np.concatenate([roots.numpy(), *drawn])
    labels = support_labels()
    fitted = LogisticRegression(max_iter=1000)
    fitted.fit(items, torch.cat([labels, labels.repeat_interleave(each)]).numpy())
    return torch.from_numpy(fitted.decision_function(query.clamp(min=0).pow(method.beta).numpy()))


class Remembered(DistributionCalibration):
    """Remembers noise instead of a training."""

    def build(self, item_shape, n_base_classes, backbone) -> None:
        """Fill the memory."""
        super().build(item_shape, n_base_classes, backbone)
        self.remembered.copy_(torch.rand(self.remembered.shape))
        self.seen.fill_(self.memory)


CASES = (
    Case("Yang et al.", ContrastiveCentroids, (1600,), 64, plain_centroids),
    Case("LP-FT-FB", LPFTFB, (1600,), 64, plain_lpftfb, plain_tasks=1, trained=0),
    Case("CDKT ml", lambda: CDKT(objective="ml"), (64,), 64),
    Case("CDKT pl", lambda: CDKT(objective="pl"), (64,), 64),
    Case("distribution calibration", Remembered, (64,), 4, plain_calibration, trained=0),
    Case("TSA", lambda: TSA(steps=5), (3, 32, 32), 2, plain_tasks=1, trained=0, queries=15),
    Case(
        "DETA", lambda: DETA(steps=5, n_patches=5), (3, 32, 32), 2,
        plain_tasks=1, trained=0, queries=15,
    ),
)  # fmt: skip

if __name__ == "__main__":
    run(CASES, __doc__, "calibration: both forms draw other numbers, so their scores differ")
