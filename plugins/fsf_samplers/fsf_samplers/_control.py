"""The control arm of attribute-biased tasks."""

from __future__ import annotations

from fsframework.interfaces import Control, TaskSampler

__all__ = ["random_control"]


def random_control(sampler: TaskSampler) -> Control:
    """Return the control of attribute-biased tasks: random ones of the same shape.

    Source: FewSTAB (Zheng et al. 2024), section 5.3, which prints the arms as R and A.
    """
    from fsf_samplers._random import RandomSampler

    random = RandomSampler(n_way=sampler.n_way, n_shot=sampler.n_shot, n_query=sampler.n_query)
    return Control(random, arms=("random", "biased"), symbols=("R", "A"))
