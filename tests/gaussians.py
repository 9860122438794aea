"""The study of section 4 of Lafargue et al. 2024: two Gaussians at -1 and 1, nearest centre."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import norm

from fsf_statistics.query_variance import PilotAnswers
from fsframework.values import FloatArray, IntArray


def gaussian_truth(shot: int) -> tuple[float, float]:
    """Return alpha and the noise of a query, integrated over where the two centres fall."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    middle = nodes / math.sqrt(2 * shot)
    swapped = norm.cdf(-math.sqrt(2 * shot))
    right = np.stack([norm.cdf(1 + middle), norm.cdf(1 - middle)])
    both = np.concatenate([right, 1 - right], axis=1)
    weights = np.concatenate([(1 - swapped) * weights, swapped * weights]) / weights.sum()
    mean = (both.mean(axis=0) * weights).sum()
    alpha = (both.mean(axis=0) ** 2 * weights).sum() - mean**2
    return float(alpha), float((mean - ((both**2).mean(axis=0) * weights).sum()) / 2)


def gaussian_answers(
    rng: np.random.Generator, shot: int, n_tasks: int, n_query: int, class_size: int = 0
) -> tuple[FloatArray, IntArray]:
    """Return answers and images of tasks: from classes of a size, or with new images in each."""
    own = np.arange(2)[:, None]
    size = shot + n_query
    if class_size:
        order = np.argsort(rng.random((n_tasks, 2, class_size)), axis=2)[:, :, :size]
        images = order + class_size * own
        values = (rng.normal(size=(2, class_size)) + 2 * own - 1).ravel()[images]
    else:
        images = np.arange(n_tasks * 2 * size).reshape(n_tasks, 2, size)
        values = rng.normal(size=images.shape) + 2 * own - 1
    centres = values[:, :, :shot].mean(axis=2)
    above = values[:, :, shot:] > centres.mean(axis=1)[:, None, None]
    above[:, 0] = ~above[:, 0]
    right = above == (centres[:, 1] > centres[:, 0])[:, None, None]
    return right.astype(float), images


def gaussian_pilot(
    rng: np.random.Generator, shot: int, n_tasks: int, n_query: int, class_size: int = 0
) -> PilotAnswers:
    """Return such tasks as a pilot."""
    right, images = gaussian_answers(rng, shot, n_tasks, n_query, class_size)
    classes = np.tile(np.arange(2), (n_tasks, 1))
    return PilotAnswers(right, classes, images[:, :, :shot], images[:, :, shot:])
