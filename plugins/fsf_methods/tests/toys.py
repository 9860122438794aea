"""Small tasks and methods for the tests of this package."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.interfaces import Batch, FewShotMethod
from fsframework.testing.method import ToyBackbone

_REGISTRY = Registry()


def made(method: str, /, **options: Any) -> Any:
    """Return a method by its name, as a user asks for it."""
    return resolve_component(_REGISTRY, "method", {"name": method, **options}).create()


def method_class(name: str) -> Any:
    return _REGISTRY.load("method", name)


def episode(
    *item: int, tasks: int = 2, way: int = 3, shot: int = 2, n: int = 6, dtype: Any = None
) -> Batch:
    """Return tasks of items as after a rectifier; query ``i`` belongs to way ``i % way``."""
    generator = torch.Generator().manual_seed(1)
    return Batch(
        torch.randn(tasks, way, shot, *item, generator=generator, dtype=dtype).relu(),
        torch.randn(tasks, n, *item, generator=generator, dtype=dtype).relu(),
        torch.arange(n).expand(tasks, n) % way,
    )


def vary_norms(module: nn.Module) -> None:
    """Let every BatchNorm look as after some training."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
            if norm.affine:
                nn.init.uniform_(norm.weight, 0.5, 1.5)
                nn.init.normal_(norm.bias, std=0.3)
            nn.init.normal_(norm.running_mean, std=0.2)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)


def built(
    cls: Any, *shape: int, n_base: int = 0, backbone: nn.Module | None = None, **options: Any
) -> Any:
    """Return a method in evaluation mode, with weights from seed 0."""
    torch.manual_seed(0)
    method = cls(**options)
    method.build(shape, n_base, ToyBackbone() if backbone is None else backbone)
    vary_norms(method)
    return method.eval()


def scored(method: FewShotMethod, batch: Batch) -> Tensor:
    """Embed and score, without gradients."""
    with torch.no_grad():
        return method.scores(*method.embed_episode(batch))


def by_task(literal: Any, method: FewShotMethod, batch: Batch) -> Tensor:
    """Return what ``literal(method, support, query)`` gives for one task after the other."""
    pairs = zip(batch.support, batch.query, strict=True)
    return torch.stack([literal(method, support, query) for support, query in pairs])


def rows(maps: Tensor) -> Tensor:
    """Return the descriptors of maps ``(images, C, h, w)`` as rows ``(images * h * w, C)``."""
    return maps.movedim(1, 3).flatten(0, 2)


def assert_same_gradients(
    found: Tensor, expected: Tensor, leaves: Any, **tolerances: float
) -> None:
    """Compare the gradients of two results, weighted at random."""
    leaves = list(leaves)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(2))
    mine, theirs = (
        torch.autograd.grad((x * weights.to(x)).sum(), leaves) for x in (found, expected)
    )
    torch.testing.assert_close(mine, theirs, **tolerances)
