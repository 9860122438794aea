"""The mixture of an error-aware search for slices: embedding, label and wrong answers together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg, special

from fsframework.values import FloatArray, IntArray

__all__ = ["Mixture", "fitted_mixture", "principal_components"]

_ROUNDS = 100
_RESTARTS = 4
_CLOSE = 1e-4
"""Gain of the mean log-likelihood below which fitting ends."""

_FLOOR = 1e-2
"""Smallest variance of a component, as a share of that of all images."""


def principal_components(embeddings: FloatArray, count: int) -> FloatArray:
    """Return the first principal components ``(n, count)``, of which the first has variance 1.

    Args:
        embeddings: float ``(n, D)``.
        count: at most; there are no more than dimensions that vary.
    """
    centred = embeddings - embeddings.mean(axis=0)
    wide = centred.shape[1] > len(centred)
    gram = centred @ centred.T if wide else centred.T @ centred
    least = max(0, len(gram) - count)
    roots, axes = linalg.eigh(gram, subset_by_index=(least, len(gram) - 1))
    kept = np.flatnonzero(roots > 1e-9 * max(float(roots[-1]), 1e-30))[::-1]
    found = axes[:, kept] * np.sqrt(roots[kept]) if wide else centred @ axes[:, kept]
    return np.asarray(found * np.sqrt(len(centred) / roots[-1]) if len(kept) else found)


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of ``k`` components over embeddings ``(d,)``, classes and shares of wrong answers.

    Args:
        log_share: float ``(k,)``; ``mean`` and ``variance`` float ``(k, d)``.
        of_class: float ``(k, classes)``, the share of each class; ``wrong`` float ``(k,)``, the
            share of wrong answers.
        weight: of the logarithms of the last two in the likelihood: gamma of Domino, Eq. 3.
    """

    log_share: FloatArray
    mean: FloatArray
    variance: FloatArray
    of_class: FloatArray
    wrong: FloatArray
    weight: float

    def log_joint(self, z: FloatArray, label: IntArray, wrong: FloatArray | None) -> FloatArray:
        """Return the log-likelihood of each image with each component, ``(n, k)``.

        Args:
            z: float ``(n, d)``; ``label`` int ``(n,)``; ``wrong`` float ``(n,)``, or ``None`` to
                leave wrong answers out.
        """
        precise = 1 / self.variance
        squares = z**2 @ precise.T - 2 * z @ (self.mean * precise).T
        squares = squares + (self.mean**2 * precise).sum(axis=1)
        found = self.log_share - 0.5 * (squares + np.log(self.variance).sum(axis=1))
        found = found + self.weight * np.log(self.of_class.T[label])
        if wrong is not None:
            right = np.log1p(-self.wrong)
            found = found + self.weight * (right + wrong[:, None] * (np.log(self.wrong) - right))
        return np.asarray(found)

    def component(self, z: FloatArray, label: IntArray) -> IntArray:
        """Return the likeliest component of each image, from embedding and class alone."""
        return np.asarray(self.log_joint(z, label, None).argmax(axis=1))


def fitted_mixture(
    z: FloatArray, label: IntArray, wrong: FloatArray, k: int, weight: float, seed: int
) -> Mixture:
    """Return the likeliest mixture of several fits by expectation and maximisation.

    Source: Eyuboglu et al. 2022 (Domino), section 4.2. Deviations: the prediction is the share of
    wrong answers of an image instead of one answer; fits start from images drawn far from each
    other (k-means++), and the likeliest of four is returned.

    Args:
        z: float ``(n, d)``; ``label`` int ``(n,)``; ``wrong`` float ``(n,)``, from 0 to 1.
        k: number of components, at most ``n``.
        weight: gamma.
        seed: of the starts.
    """
    rng = np.random.default_rng(seed)
    n_classes = int(label.max()) + 1
    one_hot = np.eye(n_classes)[label]
    fits = [_fitted(z, one_hot, label, wrong, k, weight, rng) for _ in range(_RESTARTS)]
    return max(fits, key=lambda fit: fit[0])[1]


def _fitted(
    z: FloatArray, one_hot: FloatArray, label: IntArray, wrong: FloatArray, k: int,
    weight: float, rng: np.random.Generator,
) -> tuple[float, Mixture]:  # fmt: skip
    seen = np.hstack([z, one_hot * np.sqrt(weight), wrong[:, None] * np.sqrt(weight)])
    starts = _far_apart(seen, k, rng)
    away = (seen[starts] ** 2).sum(axis=1) - 2 * seen @ seen[starts].T
    share = np.eye(k)[away.argmin(axis=1)]
    last = -np.inf
    for _ in range(_ROUNDS):
        mixture = _mixture(z, one_hot, wrong, share, weight)
        joint = mixture.log_joint(z, label, wrong)
        total = special.logsumexp(joint, axis=1)
        now = float(total.mean())
        if now - last < _CLOSE:
            break
        last, share = now, np.exp(joint - total[:, None])
    return now, mixture


def _far_apart(seen: FloatArray, k: int, rng: np.random.Generator) -> list[int]:
    """Return images drawn one after the other by their squared distance to the nearest drawn."""
    chosen = [int(rng.integers(len(seen)))]
    away = ((seen - seen[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < k:
        total = away.sum()
        chosen.append(int(rng.choice(len(seen), p=away / total if total > 0 else None)))
        away = np.minimum(away, ((seen - seen[chosen[-1]]) ** 2).sum(axis=1))
    return chosen


def _mixture(
    z: FloatArray, one_hot: FloatArray, wrong: FloatArray, share: FloatArray, weight: float
) -> Mixture:
    """Return the likeliest parameters for given shares of components ``(n, k)`` in images."""
    size = share.sum(axis=0)
    safe = size[:, None] + 1e-9
    mean = share.T @ z / safe
    whole = z.var(axis=0).mean()
    # Two more images with the variance of all keep a component from closing in on one image.
    spread = share.T @ z**2 - size[:, None] * mean**2 + 2 * whole
    variance = np.maximum(spread / (size[:, None] + 2), _FLOOR * whole + 1e-12)
    n_classes = one_hot.shape[1]
    of_class = (share.T @ one_hot + 1 / n_classes) / (size[:, None] + 1)
    erring = (share.T @ wrong + wrong.mean()) / (size + 1)
    log_share = np.log((size + 1) / (len(z) + len(size)))
    erring = np.clip(erring, 1e-3, 1 - 1e-3)
    return Mixture(log_share, mean, variance, of_class, erring, weight)
