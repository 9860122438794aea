"""Losses that find the other view of an image among those of other images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["LocalContrast", "aligned_similarities", "distance_scaled", "views_contrast"]


def views_contrast(similarities: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of finding the other view of each image.

    Args:
        similarities: ``(2 n, 2 n)``, of the first views of n images, then of the second ones; the
            diagonal does not count.
        temperature: divides them.

    >>> round(views_contrast(torch.zeros(4, 4), 1.0).item(), 4)  # one of three others
    1.0986
    """
    own = torch.eye(len(similarities), dtype=torch.bool, device=similarities.device)
    logits = similarities / temperature
    logits = logits.masked_fill(own, torch.finfo(logits.dtype).min)
    places = torch.arange(len(logits), device=logits.device)
    return functional.cross_entropy(logits, places.roll(len(logits) // 2))


def distance_scaled(queries: Tensor, labels: Tensor, means: Tensor, temperature: float) -> Tensor:
    """Return the distance-scaled contrastive loss of the queries of each task.

    Source: Yang, Wang and Zhu 2022, section 3.3, which extends the supervised contrastive loss to
    episodes: each query must find the others of its class and the means of its class among all
    queries and class means of its task, and pairs are scaled by a coefficient that grows with their
    distance. That it is 2 minus the cosine, multiplies the exponential of the cosine over the
    temperature and gets no gradient is not checked against the paper, whose formula was not at
    hand.

    Args:
        queries: ``(tasks, n, E)``, of one or several views.
        labels: int64 ``(tasks, n)``, their ways.
        means: ``(tasks, v, way, E)``, of each of v views of the support, in the order of the ways.
        temperature: divides the cosines.
    """
    tasks, n = labels.shape
    ways = torch.arange(means.shape[2], device=labels.device).repeat(means.shape[1])
    units = functional.normalize(queries, dim=2)
    others = torch.cat([units, functional.normalize(means, dim=3).flatten(1, 2)], dim=1)
    cosines = units @ others.mT
    own = torch.eye(n, others.shape[1], dtype=torch.bool, device=labels.device)
    logits = cosines / temperature + (2 - cosines.detach()).log()
    log_odds = logits - logits.masked_fill(own, torch.finfo(logits.dtype).min).logsumexp(
        dim=2, keepdim=True
    )
    every = torch.cat([labels, ways.expand(tasks, -1)], dim=1)
    friends = ((labels[:, :, None] == every[:, None]) & ~own).to(logits.dtype)
    return -((log_odds * friends).sum(dim=2) / friends.sum(dim=2)).mean()


class LocalContrast(nn.Module):
    """The losses of maps of views: against vectors, and against each other.

    Source: Yang, Wang and Zhu 2022, section 3.2. A map is compared with a vector by the mean cosine
    of its projected locations. It is compared with another map by the mean cosine of the other's
    locations and its own, brought to their places by attention.

    Args:
        channels: of the maps.
        width: of the projected locations, which is that of the vectors.
        temperature: of both losses.
    """

    def __init__(self, channels: int, width: int, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.project = nn.Sequential(
            nn.Conv2d(channels, channels, 1), nn.ReLU(), nn.Conv2d(channels, width, 1)
        )
        self.attend = nn.Conv2d(channels, 3 * width, 1)

    def forward(self, maps: Tensor, vectors: Tensor) -> Tensor:
        """Return the sum of both losses.

        Args:
            maps: ``(2 n, C, h, w)``, of the first views of n images, then of the second ones.
            vectors: ``(2 n, width)``, of the same views.
        """
        places = self.project(maps).flatten(2).mT
        asked, keys, values = self.attend(maps).flatten(2).mT.chunk(3, dim=2)
        with torch.autocast(maps.device.type, enabled=False):
            units = functional.normalize(places.float(), dim=2).mean(dim=1)
            of_vectors = units @ functional.normalize(vectors.float(), dim=1).mT
            of_maps = aligned_similarities(asked.float(), keys.float(), values.float())
            return views_contrast(of_vectors, self.temperature) + views_contrast(
                of_maps, self.temperature
            )


def aligned_similarities(asked: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the similarity of every map to every other, ``(n, n)``.

    Entry (i, j) is the mean cosine of the values of map i and those of map j, which attention
    brings to the places of map i.

    Args:
        asked: ``(n, places, width)``, as are ``keys`` and ``values``.
    """
    scale = asked.shape[2] ** -0.5
    # Only inner products are kept: values brought to all places of all maps would be many.
    weights = torch.einsum("ird,jsd->irjs", asked, keys).mul(scale).softmax(dim=3)
    inner = torch.einsum("irjs,irjs->irj", weights, torch.einsum("ird,jsd->irjs", values, values))
    spread = torch.einsum("irjs,jst->irjt", weights, values @ values.mT)
    squares = torch.einsum("irjt,irjt->irj", spread, weights)
    tiny = torch.finfo(values.dtype).eps
    lengths = squares.clamp(min=tiny).sqrt() * values.norm(dim=2).clamp(min=tiny)[:, :, None]
    similar: Tensor = (inner / lengths).mean(dim=1)
    return similar
