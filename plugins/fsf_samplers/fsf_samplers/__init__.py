"""Task samplers: uniform tasks, without replacement, attribute-biased (FewSTAB), by context."""

from fsf_samplers._context import ContextSampler
from fsf_samplers._depleting import DepletingSampler
from fsf_samplers._fewstab import FewStabSampler
from fsf_samplers._published import FewStabPublishedSampler
from fsf_samplers._random import RandomSampler

__version__ = "0.1.0"

__all__ = [
    "ContextSampler",
    "DepletingSampler",
    "FewStabPublishedSampler",
    "FewStabSampler",
    "RandomSampler",
]
