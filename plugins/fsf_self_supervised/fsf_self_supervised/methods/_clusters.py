"""A memory of vectors that is kept in clusters."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_self_supervised.methods._losses import balanced
from fsf_self_supervised.methods._memory import Queue

__all__ = ["ClusteredMemory"]


class ClusteredMemory(nn.Module):
    """The last vectors, and clusters of them that follow as new ones come.

    Source: Poulakakis-Daktylidis and Jamali-Rad 2024, section 4.1 (DyCE), and the authors' code.
    Once the memory is full, k-means divides it. From then on new vectors are given to the clusters
    by balanced assignment (Sinkhorn), the oldest ones leave, and a centre is the mean of its
    vectors; a cluster without vectors keeps its centre.

    All vectors are normalised. The rounds of k-means are done in the first steps with a full
    memory, one per step, from centres that are evenly spread over the memory; the authors run
    scikit-learn's k-means to its end.

    Args:
        length: number of vectors; ``width`` of each.
        clusters: their number, at most ``length``.
        epsilon: weight of the assignment's entropy.
        iterations: of the assignment.
        rounds: of k-means.
    """

    labels: Tensor
    centres: Tensor
    written: Tensor
    done: Tensor

    def __init__(
        self,
        length: int,
        width: int,
        clusters: int,
        *,
        epsilon: float,
        iterations: int,
        rounds: int,
    ) -> None:
        super().__init__()
        self.length, self.clusters = length, clusters
        self.epsilon, self.iterations, self.rounds = epsilon, iterations, rounds
        self.queue = Queue(length, width)
        self.register_buffer("labels", torch.zeros(length, dtype=torch.int64))
        self.register_buffer("centres", torch.zeros(clusters, width))
        self.register_buffer("written", torch.zeros((), dtype=torch.int64))
        self.register_buffer("done", torch.zeros((), dtype=torch.int64))

    @property
    def ready(self) -> Tensor:
        """Whether there are clusters, a bool without dimensions."""
        return self.done >= self.rounds

    @torch.no_grad()
    def write(self, vectors: Tensor) -> None:
        """Write vectors ``(n, width)``, and let the clusters follow."""
        vectors = functional.normalize(vectors, dim=1)
        places = self.queue.write(vectors)
        entries = self.queue.entries
        self.written += len(vectors)
        full = self.written >= self.length
        numbers = torch.arange(self.clusters, device=entries.device)
        spread = entries[numbers * self.length // self.clusters]
        centres = torch.where(full & (self.done == 0), spread, self.centres)
        units = functional.normalize(centres, dim=1)
        shares = balanced(vectors @ units.mT, self.epsilon, self.iterations)
        labels = self.labels.index_copy(0, places, shares.argmax(dim=1)[-len(places) :])
        # Until k-means ends, all vectors choose. Computed in every step, so that no GPU waits.
        nearest = (entries @ units.mT).argmax(dim=1)
        labels = torch.where(self.ready, labels, nearest)
        members = (labels[:, None] == numbers).to(entries.dtype)
        count = members.sum(dim=0)[:, None]
        means = torch.where(count > 0, members.mT @ entries / count.clamp(min=1), centres)
        self.labels.copy_(labels)
        self.centres.copy_(torch.where(full, means, centres))
        self.done += full

    @torch.no_grad()
    def neighbours(self, vectors: Tensor, k: int) -> Tensor:
        """Return the most similar vectors of the nearest cluster, ``(n, k, width)``.

        Where the cluster has fewer than ``k``, those of the whole memory.

        Args:
            vectors: ``(n, width)``.
            k: vectors per row, at most the length of the memory.
        """
        entries, units = self.queue.entries, functional.normalize(vectors, dim=1)
        cluster = (units @ functional.normalize(self.centres, dim=1).mT).argmax(dim=1)
        inside = self.labels == cluster[:, None]
        enough = inside.sum(dim=1, keepdim=True) >= k
        similar = (units @ entries.mT).masked_fill(enough & ~inside, -torch.inf)
        return entries[similar.topk(k, dim=1).indices]
