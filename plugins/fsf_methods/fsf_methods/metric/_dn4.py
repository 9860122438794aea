"""Deep nearest neighbour neural networks."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods._shared import full_precision
from fsf_methods.metric._layers import slices
from fsframework.interfaces import FewShotMethod, check_at_least

__all__ = ["DN4"]

_COSINES_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Cosines computed and reduced per block: on a CPU they must stay in the caches."""

_BELOW_ALL = -2.0
"""Marks a missing cosine."""


class DN4(FewShotMethod):
    """Score how well each location of a query's map matches the locations of a class.

    Source: Li, Wang, Xu, Huo, Gao and Luo 2019, "Revisiting Local Descriptor Based Image-to-Class
    Measure for Few-shot Learning" (CVPR), section 3.3: a location of a map is a local descriptor,
    the descriptors of all support images of a class form its pool, and the score is the sum, over
    the query's descriptors, of the ``n_k`` largest cosines to the pool (equation 2). The loss is
    the cross-entropy of the scores; only the backbone is learned.

    Where a pool has fewer than ``n_k`` descriptors, all of them count.

    Args:
        n_k: nearest neighbours of a descriptor, at least 1; the paper uses 3.

    Raises:
        OptionError: ``n_k`` is below 1.

    >>> from fsframework.interfaces import Batch
    >>> support = torch.tensor([[[[[[1.0, 0.0]], [[0.0, 2.0]]]], [[[[1.0, 1.0]], [[1.0, 1.0]]]]]])
    >>> query = torch.tensor([[[[[3.0, 0.0]], [[0.0, 3.0]]]]])  # (1, 0) and (0, 1), as is class 0
    >>> method = DN4(n_k=1)
    >>> method.scores(*method.embed_episode(Batch(support, query)))
    tensor([[[2.0000, 1.4142]]])
    """

    consumes = "maps"
    weightless = True

    def __init__(self, *, n_k: int = 3) -> None:
        super().__init__()
        check_at_least(1, n_k=n_k)
        self.n_k = n_k

    def embed(self, items: Tensor) -> Tensor:
        """Turn maps ``(n, C, h, w)`` into descriptors of length 1, ``(n, h * w, C)``."""
        with torch.autocast(items.device.type, enabled=False):
            rows = full_precision(items).flatten(2).mT.contiguous()
            return functional.normalize(rows, dim=2)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return sums of cosines, float ``(tasks, n, way)``, in float32 or float64.

        Args:
            support: float ``(tasks, way, shot, h * w, C)``, embedded.
            query: float ``(tasks, n, h * w, C)``, embedded.
        """
        with torch.autocast(query.device.type, enabled=False):
            pools, descriptors = support.flatten(2, 3), query.flatten(1, 2)
            if torch.is_grad_enabled() and (pools.requires_grad or descriptors.requires_grad):
                sums = self._differentiable(pools, descriptors)
            else:
                sums = self._quick(pools, descriptors)
            return sums.reshape(*query.shape[:3], -1).sum(dim=2)

    def _quick(self, pools: Tensor, descriptors: Tensor) -> Tensor:
        """Sum the ``n_k`` largest products, without gradients.

        Args:
            pools: ``(tasks, way, p, C)``.
            descriptors: ``(tasks, m, C)``.

        Returns:
            ``(tasks, m, way)``.
        """
        tasks, way, size, _ = pools.shape
        m, k = descriptors.shape[1], min(self.n_k, size)
        padded = _padded(size)
        sums = descriptors.new_empty(tasks, way, m)
        at_once = _at_once(descriptors) // padded
        buffer = descriptors.new_empty(0)
        blocks = itertools.product(slices(tasks, at_once // m), range(way), slices(m, at_once))
        for t, w, c in blocks:
            right = descriptors[t, c].mT
            shape = len(right), padded, right.shape[2]
            if buffer.shape != shape:
                buffer = descriptors.new_empty(shape)
            torch.bmm(pools[t, w], right, out=buffer[:, :size])
            buffer[:, size:] = _BELOW_ALL
            if k > 3:
                sums[t, w, c] = buffer.topk(k, dim=1, sorted=False).values.sum(dim=1)
            else:
                sums[t, w, c] = sum(_three_largest(buffer)[:k])
        return sums.mT

    def _differentiable(self, pools: Tensor, descriptors: Tensor) -> Tensor:
        """Do what ``_quick`` does, with gradients.

        The neighbours are found without gradients, and only products with them are differentiated:
        all products of a task take gigabytes with large maps, and nearly all of it
        is 0.
        """
        tasks, way, size, channels = pools.shape
        m, k = descriptors.shape[1], min(self.n_k, size)
        first = torch.arange(tasks * way, device=pools.device).reshape(tasks, 1, way, 1) * size
        with torch.no_grad():
            index = first.new_empty(tasks, m, way, k)
            columns = pools.flatten(1, 2).mT
            at_once = _at_once(pools) // (way * size)
            for t, c in itertools.product(slices(tasks, at_once // m), slices(m, at_once)):
                products = torch.bmm(descriptors[t, c], columns[t])
                products = products.reshape(*products.shape[:2], way, size)
                index[t, c] = products.topk(k, dim=3, sorted=False).indices + first[t]
        # The sum of products with the neighbours is the product with the sum of the neighbours.
        neighbours = functional.embedding_bag(
            index.flatten(0, 2), pools.reshape(-1, channels), mode="sum"
        )
        return torch.einsum("tmc,tmwc->tmw", descriptors, neighbours.reshape(tasks, m, way, -1))


def _at_once(like: Tensor) -> int:
    return _COSINES_AT_ONCE["cpu" if like.device.type == "cpu" else "cuda"]


def _padded(size: int) -> int:
    """Return the next number that can be halved often, at least 4 and close to ``size``."""
    step: int = 1 << max(2, size.bit_length() - 4)
    return -(-size // step) * step


def _three_largest(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the largest, second and third largest along dimension 1, whose size is divisible by 4.

    Halves are compared with each other element by element, first to pairs in order, then to
    triples, until one triple is left: several times as fast as ``torch.topk`` on a CPU. ``x`` is
    overwritten with the results.
    """
    half, quarter = x.shape[1] // 2, x.shape[1] // 4
    greater = torch.maximum(x[:, :half], x[:, half:])
    less = torch.minimum(x[:, :half], x[:, half:], out=x[:, :half])
    spare = x[:, half : half + quarter]
    g1, g2 = greater[:, :quarter], greater[:, quarter:]
    l1, l2 = less[:, :quarter], less[:, quarter:]
    middle = torch.minimum(g1, g2, out=spare)
    a = torch.maximum(g1, g2, out=g1)
    rest = torch.maximum(l1, l2, out=l1)
    b = torch.maximum(middle, rest, out=g2)
    c = torch.minimum(middle, rest, out=l2)
    while (n := a.shape[1]) > 1:
        if n % 2:
            a, b, c = (functional.pad(v, (0, 0, 0, 1), value=_BELOW_ALL) for v in (a, b, c))
        a1, a2 = a.chunk(2, dim=1)
        b1, b2 = b.chunk(2, dim=1)
        c1, c2 = c.chunk(2, dim=1)
        c = torch.maximum(c1, c2, out=c1)
        rest = torch.maximum(b1, b2, out=b1)
        middle = torch.minimum(a1, a2, out=c2)
        a = torch.maximum(a1, a2, out=a1)
        b = torch.maximum(middle, rest, out=b2)
        c = torch.maximum(c, torch.minimum(middle, rest, out=a2), out=c)
    return a[:, 0], b[:, 0], c[:, 0]
