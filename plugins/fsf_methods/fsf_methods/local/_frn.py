"""Feature map reconstruction networks."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.local._descriptors import by_blocks, descriptors
from fsframework.interfaces import Batch, FewShotMethod, OptionError

__all__ = ["FRN"]

_LEAST_LAMBDA = 1e-6


class FRN(FewShotMethod):
    """Score how well the locations of a class's maps reconstruct those of a query's map.

    Source: Wertheimer, Tang and Hariharan 2021, "Few-Shot Classification with Feature Map
    Reconstruction Networks" (CVPR), sections 3.2 and 3.3, and the authors' code. With the support
    descriptors of a class as rows of S, ``(k, C)``, ridge regression reconstructs a descriptor q as
    rho q (S^T S + lambda I)^-1 S^T S (equations 4 to 10); lambda = k / C * exp(alpha) and rho =
    exp(beta). The score is minus the squared error, averaged over the query's locations, times a
    learned factor; a softmax turns scores into probabilities (equation 6). Alpha, beta and the
    factor are learned. The loss adds, to the cross-entropy, ``auxiliary_weight`` times the sum over
    pairs of classes of |S_i S_j^T|^2, with rows of length 1, which keeps the classes apart
    (equation 11); each pair counts once, as in the authors' code.

    ``scores`` returns log-probabilities, as the authors' code does. As there, 1e-6 is added to
    lambda. The authors first train the backbone on all base classes; ``--init-from`` starts from
    such a run.

    Args:
        divisor: divides the descriptors, above 0; the authors use the square root of 640 with
            ResNet-12 and 1 with Conv-4.
        loss_divisor: the same within the loss; ``None`` for ``divisor``. LibFewShot uses 1 in
            evaluation and the square root of 640 in training, with any backbone.
        auxiliary_weight: weight of the auxiliary loss, at least 0.
        auxiliary_norm: what has length 1 in the auxiliary loss: each of the ``rows``, as in the
            paper, or the whole support of a ``task``, as in the authors' code.

    Raises:
        OptionError: an option is outside its range.

    >>> support = torch.eye(2)[None, :, None, None]  # two classes of one descriptor each
    >>> FRN().scores(support, torch.tensor([[[[0.0, 3.0]]]])).argmax(dim=2)
    tensor([[1]])
    """

    consumes = "maps"

    def __init__(
        self,
        *,
        divisor: float = 1.0,
        loss_divisor: float | None = None,
        auxiliary_weight: float = 0.03,
        auxiliary_norm: Literal["rows", "task"] = "rows",
    ) -> None:
        super().__init__()
        if not divisor > 0:
            raise OptionError(f"divisor must be above 0, got {divisor}")
        if loss_divisor is not None and not loss_divisor > 0:
            raise OptionError(f"loss_divisor must be above 0, got {loss_divisor}")
        if not auxiliary_weight >= 0:
            raise OptionError(f"auxiliary_weight must be at least 0, got {auxiliary_weight}")
        if auxiliary_norm not in ("rows", "task"):
            raise OptionError(f"auxiliary_norm must be 'rows' or 'task', got {auxiliary_norm!r}")
        self.divisor = divisor
        self.loss_divisor = loss_divisor
        self.auxiliary_weight = auxiliary_weight
        self.auxiliary_norm = auxiliary_norm
        self.scale = nn.Parameter(torch.ones(1))
        self.exponents = nn.Parameter(torch.zeros(2))
        """Alpha and beta."""

    def embed(self, items: Tensor) -> Tensor:
        """Turn maps ``(n, C, h, w)`` into descriptors, ``(n, h * w, C)``."""
        return descriptors(items) / self.divisor

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return log-probabilities, float ``(tasks, n, way)``, in float32 or float64.

        Args:
            support: float ``(tasks, way, shot, m, C)``, embedded.
            query: float ``(tasks, n, m, C)``, embedded.
        """
        with torch.autocast(query.device.type, enabled=False):
            return (-self.scale * self.errors(support, query)).log_softmax(dim=2)

    def errors(self, support: Tensor, query: Tensor) -> Tensor:
        """Return squared errors of the reconstruction, averaged over locations.

        No reconstruction is ever stored: a sum of squares over the locations of a query is the
        inner product of a matrix per class with one per query. The matrices are as large as the
        smaller of the two systems of the paper, that of the channels (equation 10) and that of the
        support's descriptors (equation 8).

        Args:
            support: float ``(tasks, way, shot, m, C)``, embedded.
            query: float ``(tasks, n, m, C)``, embedded.

        Returns:
            float ``(tasks, n, way)``.
        """
        rows = support.flatten(2, 3)
        way, k, channels = rows.shape[1:]
        if channels <= k:
            return by_blocks(self._by_channels, [rows], query, channels**2)
        return by_blocks(self._by_rows, [rows], query, way * k * query.shape[2])

    def _by_channels(self, rows: Tensor, query: Tensor) -> Tensor:
        """Do the work of ``errors`` with matrices ``(C, C)``; rows are ``(tasks, way, k, C)``."""
        gram = rows.mT @ rows
        hat = torch.cholesky_solve(gram, self._factor(gram, rows))
        # rho H - I is symmetric, so the squared error of q is q (rho H - I)^2 q^T.
        identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        residual = self._rho() * hat - identity
        of_class = (residual @ residual.mT).flatten(2)
        of_query = (query.mT @ query).flatten(2)
        return (of_query @ of_class.mT) / query.shape[2]

    def _by_rows(self, rows: Tensor, query: Tensor) -> Tensor:
        """Do the work of ``errors`` with matrices ``(k, k)``; rows are ``(tasks, way, k, C)``."""
        tasks, n, m, _ = query.shape
        gram = rows @ rows.mT
        factor, rho = self._factor(gram, rows), self._rho()
        # With a = q S^T and M = (S S^T + lambda I)^-1, the squared error of q is
        # |q|^2 + a (rho^2 M S S^T M - 2 rho M) a^T.
        solved = torch.cholesky_solve(gram, factor)
        identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        form = torch.cholesky_solve(rho**2 * solved - 2 * rho * identity, factor)
        products = query.flatten(1, 2)[:, None] @ rows.mT
        of_pairs = ((products @ form) * products).reshape(tasks, len(rows[0]), n, -1).sum(dim=3)
        lengths = query.square().sum(dim=(2, 3))
        return (lengths[:, :, None] + of_pairs.mT) / m

    def _factor(self, gram: Tensor, rows: Tensor) -> Tensor:
        """Return the Cholesky factors of Gram matrices plus lambda on the diagonal."""
        k, channels = rows.shape[2:]
        added = k / channels * self.exponents[0].exp() + _LEAST_LAMBDA
        diagonal = torch.diag_embed(added.to(gram.dtype).expand(gram.shape[:-1]))
        # A failed factorisation shows in the scores; checking for it would make a GPU wait.
        factors: Tensor = torch.linalg.cholesky_ex(gram + diagonal).L
        return factors

    def _rho(self) -> Tensor:
        return self.exponents[1].exp()

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy + auxiliary_weight * the classes' overlap."""
        assert batch.query_labels is not None
        support, query = self.embed_episode(batch)
        if self.loss_divisor is not None:
            factor = self.divisor / self.loss_divisor
            support, query = support * factor, query * factor
        logits = self.scores(support, query)
        loss = functional.cross_entropy(logits.flatten(0, 1), batch.query_labels.flatten())
        with torch.autocast(support.device.type, enabled=False):
            return loss + self.auxiliary_weight * self.overlap(support).mean()

    def overlap(self, support: Tensor) -> Tensor:
        """Return the auxiliary loss of each task without its weight, float ``(tasks,)``.

        Args:
            support: float ``(tasks, way, shot, m, C)``, embedded.
        """
        rows = support.flatten(2, 3)
        if self.auxiliary_norm == "rows":
            rows = functional.normalize(rows, dim=3)
        else:
            rows = functional.normalize(rows.flatten(1), dim=1).reshape(rows.shape)
        # |S_i S_j^T|^2 is the inner product of the Gram matrices of i and j; the sum over pairs is
        # half of what the square of the sum has besides the squares.
        grams = rows.mT @ rows
        return (grams.sum(dim=1).square() - grams.square().sum(dim=1)).sum(dim=(1, 2)) / 2
