"""Queries scored by a logistic regression on the support of their task."""

from __future__ import annotations

import torch
from torch import Tensor

from fsf_methods.transfer._logreg import logistic_regression
from fsframework.interfaces import check_above

__all__ = ["READS_VALUES", "check_regression", "regression_logits"]

READS_VALUES = "its solver ends when the gradients of all tasks are small enough"


def check_regression(c: float, tol: float) -> None:
    check_above(0, c=c, tol=tol)


def regression_logits(
    support: Tensor, query: Tensor, normalize: bool, c: float, tol: float
) -> Tensor:
    """Return the logits of queries ``(tasks, n, D)``, float ``(tasks, n, way)``."""
    with torch.no_grad(), torch.autocast(support.device.type, enabled=False):
        dtype = query.dtype
        if dtype not in (torch.float32, torch.float64):
            support, query = support.float(), query.float()
        # For vectors of any length, the inner products must be more exact than in float32.
        weights, biases = logistic_regression(
            support if normalize else support.double(), normalize=normalize, c=c, tol=tol
        )
        logits = weights.to(query.dtype) @ query.mT
        if normalize:
            # The few logits are divided, not the many entries of the queries.
            lengths: Tensor = torch.linalg.vector_norm(query, dim=-1)
            logits = logits / lengths.clamp(min=1e-12)[:, None]
        return (logits + biases.to(query.dtype)[..., None]).mT.to(dtype)
