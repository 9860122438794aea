"""Calls of a model's parts: what they return is checked, and scoring leaves weights as they are."""

from __future__ import annotations

import torch
from torch import Tensor

from fsframework._calls import checked, malformed, named
from fsframework.interfaces.method import FewShotMethod, Known

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
    checked(plugin, method, found, Tensor)
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
    """Calls ``scores_with`` of a method; a call that changes weights or buffers has them restored.

    Otherwise scores would depend on the order of the batches. Every parameter and buffer of the
    method is compared with a copy after the first call, and after later ones if it is replaced or
    PyTorch has counted a change; other attributes are not looked at.
    """

    def __init__(self, method: FewShotMethod) -> None:
        self._method = method
        self._slots = [
            (f"{prefix}.{name}".removeprefix("."), store, name, tensor, tensor.detach().clone())
            for prefix, module in method.named_modules()
            for store in (module._parameters, module._buffers)
            for name, tensor in store.items()
            if tensor is not None
        ]
        self._changed: dict[str, None] = {}
        self._states: dict[str, tuple[int, int, int]] = {}

    def __call__(self, support: Tensor, query: Tensor, known: Known) -> Tensor:
        """Return scores ``(tasks, n, way)``; see ``FewShotMethod.scores_with``.

        Raises:
            PluginError: the method raises, or its scores are malformed.
        """
        scores = self._method.scores_with(support, query, known)
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

    def _restore(self) -> None:
        for path, store, name, tensor, copy in self._slots:
            found = store.get(name)
            if path not in self._changed and _state(found) == self._states.get(path):
                continue
            if not _is_same(found, copy):
                self._changed[path] = None
            store[name] = tensor
            if _form(tensor) != _form(copy):
                tensor.data = copy.clone()
            elif path in self._changed:
                tensor.data.copy_(copy)
            self._states[path] = _state(tensor)
        if self._method.training:
            self._method.eval()


def _state(tensor: Tensor | None) -> tuple[int, int, int]:
    """Return what tells a tensor that has changed, without reading its values."""
    return (0, 0, 0) if tensor is None else (id(tensor), tensor.data_ptr(), tensor._version)


def _form(tensor: Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return tensor.shape, tensor.dtype, tensor.device


def _is_same(tensor: Tensor | None, copy: Tensor) -> bool:
    """Return whether a tensor has the values of its copy; NaN is equal to NaN."""
    if tensor is None or _form(tensor) != _form(copy):
        return False
    if torch.equal(tensor, copy):
        return True
    return bool(((tensor == copy) | (tensor.isnan() & copy.isnan())).all())
