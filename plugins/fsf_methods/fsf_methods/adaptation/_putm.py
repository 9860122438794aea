"""Prototypes by conditional transport."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fsframework.interfaces import FewShotMethod, OptionError, check_above, check_at_least

__all__ = ["PUTM"]

_LEAST = 1e-24
"""Squared length below which a prototype counts as that long."""


class PUTM(FewShotMethod):
    """Refine class prototypes by all queries of a task, without assuming equally many per class.

    Source: Tian, Feng, Chai, Chen, Wang, Liu and Chen 2023, "Prototypes-oriented Transductive
    Few-shot Learning with Conditional Transport" (ICCV), the prototypes-oriented unbiased transfer
    model. Written from the paper's description, without reference outputs. The vectors of a task
    are scaled to length 1, their mean over support and queries is subtracted, and they are scaled
    again; without the two, lengths rather than directions decide and classes collapse. With such
    vectors ``x``, ``n`` queries, ``S`` support images per class, prototypes ``mu_k`` that start as
    class means, and the cost ``d_jk = 1 - cos(x_j, mu_k)``, each of ``steps`` rounds computes

    - the forward navigator, from queries to classes with the prior ``p_k``, which starts uniform:
      ``F_jk = p_k exp(-tau d_jk) / sum_k' p_k' exp(-tau d_jk')``;
    - the prior that the data suggest: ``p_k = sum_j F_jk / n``;
    - the backward navigator, from classes to queries:
      ``B_jk = exp(-tau d_jk) / sum_j' exp(-tau d_j'k)``;
    - the plan, ``T_jk = beta F_jk / n + (1 - beta) B_jk / way``: the forward part has the data's
      prior, the backward part a uniform one, and ``beta`` balances the two;
    - the prototypes that are likeliest given the plan (maximum a posteriori, with the support as
      the prior): ``mu_k = (sum_s x_ks + gamma n sum_j T_jk x_j) / (S + gamma n sum_j T_jk)``.

    ``scores`` are ``log F_jk`` of the last prototypes and prior.

    The defaults are ours: the paper's and its code's values were not at hand and are not checked.

    Args:
        steps: rounds, at least 0.
        temperature: ``tau``, above 0.
        beta: share of the forward part, in [0, 1]; 1 trusts the data's prior, 0 the uniform one.
        gamma: weight of a query against a support image, at least 0.
        centre: whether to subtract the task's mean vector.

    Raises:
        OptionError: an option is outside its range.
    """

    learns_from = "nothing"
    weightless = True
    transductive = True

    def __init__(
        self,
        *,
        steps: int = 10,
        temperature: float = 10.0,
        beta: float = 0.5,
        gamma: float = 1.0,
        centre: bool = True,
    ) -> None:
        super().__init__()
        check_at_least(0, steps=steps, beta=beta, gamma=gamma)
        check_above(0, temperature=temperature)
        if beta > 1:
            raise OptionError(f"beta must be at most 1, got {beta}")
        self.steps = steps
        self.temperature = temperature
        self.beta = beta
        self.gamma = gamma
        self.centre = centre

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return log-probabilities, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        tasks, way, shot = support.shape[:3]
        units = functional.normalize(torch.cat([support.flatten(1, 2), query], dim=1), dim=-1)
        if self.centre:
            units = functional.normalize(units - units.mean(dim=1, keepdim=True), dim=-1)
        # Prototypes remain combinations of the vectors, so only coefficients (tasks, way, m) move,
        # and the vectors are needed for their inner products only.
        gram = units @ units.mT
        ways = torch.eye(way, dtype=gram.dtype, device=gram.device)
        own = ways.repeat_interleave(shot, dim=1).expand(tasks, -1, -1)
        coefficients = functional.pad(own / shot, (0, query.shape[1]))
        log_prior = torch.zeros_like(own[:, :, :1])
        for _ in range(self.steps):
            nearness = self._nearness(coefficients, gram)[:, :, way * shot :]
            forward = (nearness + log_prior).softmax(dim=1)
            prior = forward.mean(dim=2, keepdim=True)
            log_prior = prior.clamp(min=torch.finfo(prior.dtype).tiny).log()
            backward = nearness.softmax(dim=2)
            # The plan times the number of queries.
            plan = self.beta * forward + (1 - self.beta) * query.shape[1] / way * backward
            mass = shot + self.gamma * plan.sum(dim=2, keepdim=True)
            coefficients = torch.cat([own, self.gamma * plan], dim=2) / mass
        nearness = self._nearness(coefficients, gram)[:, :, way * shot :]
        return (nearness + log_prior).log_softmax(dim=1).mT

    def _nearness(self, coefficients: Tensor, gram: Tensor) -> Tensor:
        """Return ``-tau d_jk`` of all vectors but for a constant, ``(tasks, way, m)``."""
        inner = coefficients @ gram
        squares = (inner * coefficients).sum(dim=2, keepdim=True)
        return self.temperature * inner * squares.clamp(min=_LEAST).rsqrt()
