"""Which words some images have more often than others of their classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import sparse, stats

from fsf_statistics.adjusting import holm
from fsframework.values import ImagePool, IntArray

__all__ = ["WordShare", "enriched_words"]


@dataclass(frozen=True)
class WordShare:
    """How often some images have a word.

    Args:
        word: the word.
        share: of the images, those that have it.
        usual: the same share of all images of their classes, in the proportions of the classes.
        p: one-sided, of no difference, by Holm over all words.
    """

    word: str
    share: float
    usual: float
    p: float

    def to_json(self) -> Mapping[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def enriched_words(
    pool: ImagePool, groups: IntArray, count: int, *, level: float = 0.95, most: int = 3
) -> list[tuple[WordShare, ...]]:
    """Return the words that describe groups of images best: by the difference of the two shares.

    The images of a group are compared with draws of as many images of each class (Mantel and
    Haenszel 1959), with a correction for continuity.

    Args:
        pool: with words.
        groups: int ``(images,)``, the group of each image, -1 for none.
        count: number of groups.
        level: one minus the probability that any word of a group is named by chance.
        most: words per group.
    """
    assert pool.attributes is not None
    words, n_classes = pool.attributes.words, len(pool.class_names)
    indptr, indices = pool.attributes.csr(np.arange(len(pool)))
    has = sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=(len(pool), len(words)))
    in_class, in_group = _indicator(pool.labels, n_classes), _indicator(groups, count)
    size = np.maximum(np.bincount(pool.labels, minlength=n_classes), 1)
    usual = (in_class @ has).toarray() / size[:, None]
    both = (in_group @ in_class.T).toarray()  # images by group and class
    found, expected = (in_group @ has).toarray(), both @ usual
    # That of a hypergeometric count, summed over classes.
    variance = (both * (size - both) / np.maximum(size - 1, 1)) @ (usual * (1 - usual))
    total = np.maximum(both.sum(axis=1, keepdims=True), 1)
    z = (found - expected - 0.5) / np.sqrt(np.maximum(variance, 1e-12))
    p = np.where(variance > 0, stats.norm.sf(z), 1.0)
    gain = (found - expected) / total
    chosen = []
    for group in range(count):
        corrected = holm(p[group])
        order = np.argsort(-gain[group], kind="stable")
        kept = order[corrected[order] <= 1 - level][:most]
        numbers = zip(found[group, kept], expected[group, kept], corrected[kept], strict=True)
        chosen.append(
            tuple(
                WordShare(
                    words[i], float(a / total[group, 0]), float(b / total[group, 0]), float(q)
                )
                for i, (a, b, q) in zip(kept.tolist(), numbers, strict=True)
            )
        )
    return chosen


def _indicator(groups: IntArray, count: int) -> sparse.csr_array:
    """Return which images are in which group, ``(count, images)``."""
    (image,) = np.nonzero(groups >= 0)
    return sparse.csr_array(
        (np.ones(len(image)), (groups[image], image)), shape=(count, len(groups))
    )
