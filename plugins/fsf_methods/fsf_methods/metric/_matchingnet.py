"""Matching networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsframework.interfaces import (
    Backbone,
    FewShotMethod,
    check_above,
    check_at_least,
)

__all__ = ["MatchingNet"]


class MatchingNet(FewShotMethod):
    """Give a query the classes of the support images, weighted by the similarity of their vectors.

    Source: Vinyals, Blundell, Lillicrap, Kavukcuoglu and Wierstra 2016, "Matching Networks for One
    Shot Learning" (NeurIPS), section 2.1: attention is the softmax, over all support images, of
    their cosines with the query, and the probability of a class is the total attention of its
    images (equation 1). ``scores`` are the logarithms of these probabilities, so that the default
    loss, their cross-entropy, is the paper's negative log-likelihood.

    ``full_context`` adds the paper's fully conditional embeddings (section 2.1.2, appendix A): a
    bidirectional LSTM over the support, and for each query an LSTM of ``n_steps`` steps that reads
    the support by attention. In the paper they do not help on Omniglot and help somewhat on
    miniImageNet. The paper reads the support in an arbitrary order, on which the result then
    depends; here the images are sorted by the sums of their vectors.

    Args:
        temperature: divides the cosines, above 0. The paper has none, which equals 1; a smaller one
            lets attention be sharper than e^2 to 1.
        full_context: embed support and queries in the context of the whole support.
        n_steps: steps of the queries' LSTM, at least 1; the paper does not state its number. Only
            with ``full_context``.

    Raises:
        OptionError: an option is outside its range.

    >>> support = torch.tensor([[[[1.0, 0.0]], [[0.0, 3.0]]]])
    >>> MatchingNet().scores(support, torch.tensor([[[2.0, 0.0]]])).exp()
    tensor([[[0.7311, 0.2689]]])
    """

    def __init__(
        self, *, temperature: float = 1.0, full_context: bool = False, n_steps: int = 2
    ) -> None:
        super().__init__()
        check_above(0, temperature=temperature)
        check_at_least(1, n_steps=n_steps)
        self.temperature = temperature
        self.full_context = full_context
        self.weightless = not full_context
        self.n_steps = n_steps

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the LSTMs for vectors ``(D,)``, if ``full_context`` is set."""
        if self.full_context:
            (width,) = item_shape
            self.read_support = nn.LSTM(width, width, batch_first=True, bidirectional=True)
            self.read_query = nn.LSTMCell(2 * width, width)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the logarithms of the classes' probabilities, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        way_shot = support.shape[1:3]
        vectors = support.flatten(1, 2)
        if self.full_context:
            vectors = self._support_in_context(vectors)
            query = self._queries_in_context(query, vectors)
        # The queries, the larger part, are divided by their lengths after the product.
        cosines = torch.bmm(query, functional.normalize(vectors, dim=2, eps=1e-8).mT)
        cosines = cosines / torch.linalg.vector_norm(query, dim=2, keepdim=True).clamp_min(1e-8)
        # A class's share of the softmax over images is the softmax over classes of its images' sum;
        # in logarithms, so that no share becomes 0.
        images = (cosines / self.temperature).reshape(*cosines.shape[:2], *way_shot)
        together: Tensor = images.logsumexp(dim=3)
        return together.log_softmax(dim=2)

    def _support_in_context(self, vectors: Tensor) -> Tensor:
        """Add the outputs of the LSTMs of both directions to ``(tasks, m, D)`` (appendix A.2)."""
        order = vectors.sum(dim=2).argsort(dim=1, stable=True)
        listed = torch.take_along_dim(vectors, order[:, :, None], dim=1)
        forward, backward = self.read_support(listed)[0].chunk(2, dim=2)
        context = torch.take_along_dim(forward + backward, order.argsort(dim=1)[:, :, None], dim=1)
        return vectors + context

    def _queries_in_context(self, query: Tensor, support: Tensor) -> Tensor:
        """Return ``(tasks, n, D)`` after ``n_steps`` of reading the support (appendix A.1)."""
        flat = query.flatten(0, 1)
        cell = torch.zeros_like(flat)
        state = torch.zeros_like(query)
        for _ in range(self.n_steps):
            # An LSTM's gates are linear in state and read-out, so the read-out may be concatenated
            # to the input; the paper concatenates it to the state.
            read = torch.bmm(torch.bmm(state, support.mT).softmax(dim=2), support)
            inputs = torch.cat([flat, read.flatten(0, 1)], dim=1)
            hidden, cell = self.read_query(inputs, (state.flatten(0, 1), cell))
            state = hidden.unflatten(0, query.shape[:2]) + query
        return state
