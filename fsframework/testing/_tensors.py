"""Helpers of the suites of methods and backbones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fsframework._calls import seeded
from fsframework.testing._random import scramble
from fsframework.testing._suite import require

__all__ = ["Snapshot", "require_close", "snapshot", "usual_settings"]

_RELATIVE = 1e-3
_FLOAT_NOISE = 1e-5


def require_close(found: Tensor, expected: Tensor, message: str) -> None:
    """Require equal shapes, and equal values to within a thousandth of the range of ``expected``.

    The range counts, not the magnitude, since only differences between scores decide; float32 is
    allowed another 1e-5 of the magnitude.
    """
    shapes = tuple(found.shape), tuple(expected.shape)
    require(shapes[0] == shapes[1], f"{message}: shape {shapes[0]}, not {shapes[1]}")
    if not expected.numel():
        return
    spread = (expected.max() - expected.min()).item()
    allowed = _RELATIVE * spread + _FLOAT_NOISE * expected.abs().max().item()
    apart = (found - expected).abs().max().item()
    require(apart <= allowed, f"{message}: by up to {apart:.3g}; {allowed:.3g} is allowed")


def _settings() -> dict[str, object]:
    """Return what is set for all of PyTorch, and what its generator draws next."""
    return {
        "PyTorch's default type": torch.get_default_dtype(),
        "whether gradients are recorded": torch.is_grad_enabled(),
        "PyTorch's number of threads": torch.get_num_threads(),
        "PyTorch's deterministic mode": torch.are_deterministic_algorithms_enabled(),
        "PyTorch's precision of products": torch.get_float32_matmul_precision(),
        "PyTorch's generator": torch.get_rng_state().tolist(),
    }


@contextmanager
def usual_settings() -> Iterator[None]:
    """Give PyTorch its usual settings within the block, and generators that nobody has seeded."""
    with seeded(0):
        scramble()
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)
            torch.set_grad_enabled(True)


@dataclass(frozen=True)
class Snapshot:
    """The state of a module at one moment, and the settings of PyTorch."""

    tensors: dict[str, Tensor]
    training: dict[str, bool]
    settings: dict[str, object]

    def difference(self, module: nn.Module) -> list[str]:
        """Return the names of what has changed in the module since."""
        now = snapshot(module)
        names = sorted(self.tensors.keys() | now.tensors.keys())
        changed = [n for n in names if not _equal(self.tensors.get(n), now.tensors.get(n))]
        flags = [n for n in now.training if self.training.get(n) != now.training[n]]
        changed += [name for name, value in now.settings.items() if self.settings[name] != value]
        return changed + [f"the training flag of {n or 'the module itself'}" for n in flags]


def snapshot(module: nn.Module) -> Snapshot:
    """Copy parameters, buffers and training flags."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return Snapshot(
        {name: tensor.detach().clone() for name, tensor in tensors.items()},
        {name: part.training for name, part in module.named_modules()},
        _settings(),
    )


def _equal(left: Tensor | None, right: Tensor | None) -> bool:
    return left is not None and right is not None and torch.equal(left, right)
