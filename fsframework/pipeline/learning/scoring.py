"""Calls of a model's parts: what they return is checked, and scoring leaves weights as they are."""

from __future__ import annotations

import torch
from torch import Tensor

from fsframework._calls import malformed, named
from fsframework.interfaces.method import FewShotMethod

__all__ = ["Scorer", "check_tensor"]

_MOST_NAMES = 3


def check_tensor(
    plugin: object,
    method: str,
    found: Tensor,
    shape: tuple[int, ...],
    device: torch.device,
    *,
    finite: bool = True,
) -> None:
    """Check a tensor that a plugin has returned.

    Args:
        shape: that it must have; -1 for any length, and -1 at the end for any dimensions.
        device: that it must be on.
        finite: whether it must contain only finite numbers.

    Raises:
        PluginError: it is not dense, not of floating point, on another device, of another shape
            or not finite.
    """
    dense = found.layout is torch.strided
    sound = dense and found.is_floating_point() and found.device == device
    sound = sound and _fits(tuple(found.shape), shape)
    if sound and (not finite or bool(torch.isfinite(found).all())):
        return
    broken = int((~torch.isfinite(found)).sum()) if sound else 0
    what = f"{_short(found.dtype)} of shape {tuple(found.shape)} on {found.device}"
    what += "" if dense else f" with the layout {_short(found.layout)}"
    what += f", {broken} of them not finite" if broken else ""
    wanted = ", ".join("..." if length < 0 else str(length) for length in shape)
    kind = "finite floating-point numbers" if finite else "floating-point numbers"
    raise malformed(plugin, method, what, f"{kind} of shape ({wanted}) on {device}")


def _short(name: torch.dtype | torch.layout) -> str:
    return str(name).removeprefix("torch.")


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    if wanted and wanted[-1] == -1:
        shape, wanted = shape[: len(wanted) - 1], wanted[:-1]
    return len(shape) == len(wanted) and all(
        length in (-1, own) for own, length in zip(shape, wanted, strict=True)
    )


class Scorer:
    """Calls ``scores`` of a method; a call that changes weights or buffers has them restored.

    Otherwise scores would depend on the order of the batches. A change is found by a tensor's
    version counter and address, which takes microseconds. Not found are changes through
    ``tensor.data`` or a NumPy view, and of attributes that are neither parameters nor buffers.
    """

    def __init__(self, method: FewShotMethod) -> None:
        self._method = method
        self._slots = [
            (f"{prefix}.{name}".removeprefix("."), store, name, tensor)
            for prefix, module in method.named_modules()
            for store in (module._parameters, module._buffers)
            for name, tensor in store.items()
            if tensor is not None
        ]
        self._copies = [tensor.detach().clone() for *_, tensor in self._slots]
        self._marks = self._marks_now()
        self._changed: dict[str, None] = {}

    def __call__(self, support: Tensor, query: Tensor) -> Tensor:
        """Return scores ``(tasks, n, way)``; see ``FewShotMethod.scores``.

        Raises:
            PluginError: the method raises, or its scores are malformed.
        """
        scores = self._method.scores(support, query)
        self._restore()
        shape = (*query.shape[:2], support.shape[1])
        check_tensor(self._method, "scores", scores, shape, query.device)
        return scores

    @property
    def remark(self) -> str:
        """A sentence on the weights that were restored; empty if none were."""
        if not self._changed:
            return ""
        names = [*self._changed]
        more = ", ..." if len(names) > _MOST_NAMES else ""
        return (
            f"{named(self._method)} changes its weights or buffers while it scores "
            f"({', '.join(names[:_MOST_NAMES])}{more}); they are restored after each call"
        )

    def _marks_now(self) -> list[tuple[int, int]]:
        return [(tensor._version, tensor.data_ptr()) for *_, tensor in self._slots]

    def _restore(self) -> None:
        marks = self._marks_now()
        moved = [slot for slot in self._slots if slot[1].get(slot[2]) is not slot[3]]
        if marks == self._marks and not moved and not self._method.training:
            return
        slots = zip(self._slots, self._copies, self._marks, marks, strict=True)
        for (path, store, name, tensor), copy, old, new in slots:
            if old != new or store.get(name) is not tensor:
                self._changed[path] = None
            if old[1] != new[1]:
                tensor.data = copy.clone()
            else:
                tensor.data.copy_(copy)  # which needs no version, and no gradient
            store[name] = tensor
        self._method.eval()
        self._marks = self._marks_now()
