"""Whether tensor code keeps to its device: a run on PyTorch's meta device.

A meta tensor has a shape, a type and a device, but no values. Code that runs on it makes no tensor
on the CPU and never reads a value, so on a GPU it does not wait for the host.
"""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fsframework.testing._suite import NotApplicable

__all__ = ["fault_on_meta", "mixes_devices"]

_READS = "reads a value of a tensor"
_SIZES = "makes a tensor whose shape depends on values"
_ON_CPU = "a tensor on the CPU ("
_CHECKS = (
    "calls linear algebra that checks its result: cholesky_ex, inv_ex, solve_ex and lu_factor_ex "
    "do not check"
)
_DECOMPOSES = (
    "calls linear algebra for which a GPU waits and that has no form without a check: qr, "
    "cholesky_ex and solve_ex need not wait"
)

_WAITS: Mapping[str, str] = {
    "_local_scalar_dense": _READS,
    "allclose": _READS,
    "equal": _READS,
    "histc": _READS,
    "is_nonzero": _READS,
    "bincount": _SIZES,
    "masked_select": _SIZES,
    "nonzero": _SIZES,
    "_unique2": _SIZES,
    "unique_consecutive": _SIZES,
    "unique_dim": _SIZES,
    "_linalg_check_errors": _CHECKS,
    "_linalg_eigh": _DECOMPOSES,
    "_linalg_eigvals": _DECOMPOSES,
    "_linalg_svd": _DECOMPOSES,
    "linalg_eig": _DECOMPOSES,
    "linalg_lstsq": _DECOMPOSES,
    "linalg_pinv": _DECOMPOSES,
}
"""Operations for which a GPU waits, whatever their arguments."""

_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
_FROM_VALUES = {torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor}

_NOT_TO_BLAME = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
"""Folders of PyTorch and of this suite."""


class _Fault(Exception):
    """A step that a GPU waits for; ends the run."""


def fault_on_meta(step: Callable[[], object], *, feeds: bool = False) -> str:
    """Run a step on meta tensors and return what is wrong with it; empty if nothing is.

    Within the step ``torch.autocast`` does nothing for meta tensors.

    Args:
        step: works on modules and tensors that are on the meta device.
        feeds: whether it may work on the CPU too, and move tensors from there to the device if it
            does not wait for that.

    Returns:
        The file and line of the offending statement, and what it does that makes a GPU wait.

    Raises:
        NotApplicable: an operation of the step has no form for the meta device.
    """
    watch = _Watch(feeds)
    try:
        with _without_autocast(), _Calls(watch), watch:
            _run(step)
    except Exception as error:
        if watch.fault:  # the step may have raised another error from it
            return watch.fault
        where = _where([(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)])
        if watch.unsupported:
            raise NotApplicable(
                f"PyTorch cannot run {watch.unsupported} on its meta device ({where})"
            ) from error
        return f"{where}: raises {type(error).__name__} on the meta device: {error}"
    return watch.fault


def mixes_devices(fault: str) -> bool:
    """Return whether a fault is the use of a tensor on the CPU, which is not a move from there."""
    return _ON_CPU in fault and "_to_copy" not in fault


def _run(step: Callable[[], object]) -> None:
    """Call the step; this function's frame marks where the frames of the step begin."""
    step()


class _Watch(TorchDispatchMode):
    """Refuse operations that a GPU waits for, and tensors on other devices."""

    def __init__(self, feeds: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.feeds = feeds
        self.fault = ""
        self.unsupported = ""

    def refuse(self, what: str) -> None:
        """Record that the running statement of the step is at fault, and end the step."""
        self.fault = self.fault or f"{_where(_running())}: {what}"
        raise _Fault(self.fault)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call an operation, unless it is refused."""
        given = kwargs or {}
        name = func.overloadpacket.__name__
        if name == "_to_copy" and not isinstance(args[0], Tensor):
            # Under vmap, PyTorch makes a tensor of a number in Python, on the CPU; no GPU waits.
            return func(*args, **{**given, "device": torch.device("meta")})
        if self.feeds and _is_fed(name, args, given):
            return func(*args, **given)
        if waits := _reason(name, args, given):
            self.refuse(f"{waits} ({func})")
        if any(_elsewhere(value) for value in tree_leaves((args, given))):
            self.refuse(f"uses {_ON_CPU}{func})")
        try:
            result = func(*args, **given)
        except NotImplementedError:
            self.unsupported = str(func)
            raise
        if any(_elsewhere(value) for value in tree_leaves(result)):
            self.refuse(f"makes {_ON_CPU}{func})")
        return result


def _is_fed(name: str, args: tuple[Any, ...], given: Mapping[str, Any]) -> bool:
    """Return whether an operation is one on the CPU, or moves a tensor from there and goes on."""
    tensors = [value for value in tree_leaves((args, given)) if isinstance(value, Tensor)]
    if any(tensor.is_meta for tensor in tensors):
        return False
    on_cpu = torch.device(given.get("device") or "cpu").type == "cpu"
    return on_cpu or (name == "_to_copy" and bool(given.get("non_blocking")))


def _elsewhere(value: object) -> bool:
    return isinstance(value, Tensor) and not value.is_meta


def _reason(name: str, args: tuple[Any, ...], given: Mapping[str, Any]) -> str:
    """Return why a GPU waits for an operation; empty if it does not."""
    if name in _WAITS:
        return _WAITS[name]
    if name == "_to_copy" and torch.device(given.get("device") or "meta").type != "meta":
        # A tensor on the CPU is reported as such.
        return "" if any(_elsewhere(value) for value in args) else "copies a tensor to the CPU"
    if name == "repeat_interleave" and given.get("output_size") is None:
        return _SIZES
    if given.get("check_errors"):
        return _CHECKS
    if name in _INDEXING and any(
        isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1]
    ):
        return "indexes by a tensor of booleans"
    return ""


class _Calls(TorchFunctionMode):
    """Refuse calls that copy values of Python to the device, which no operation shows."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function of PyTorch, unless it is refused."""
        device = torch.device((kwargs or {}).get("device") or "cpu")
        made = func in _FROM_VALUES and not isinstance(args[0] if args else None, Tensor)
        if made and not (self._watch.feeds and device.type == "cpu"):
            self._watch.refuse("copies numbers from the host (use torch.full or Tensor.new_full)")
        if func is Tensor.new_tensor:
            self._watch.refuse("copies numbers from the host (use Tensor.new_full)")
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(one, (list, np.ndarray)) for one in index):
                self._watch.refuse("indexes by a list, which is copied from the host")
        return func(*args, **(kwargs or {}))


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Within the block, autocast accepts the meta device and does nothing there.

    The settings of the CPU stand in for those of the meta device: autocast changes only operations
    on tensors of its own device.
    """
    begin, is_enabled, dtype = (
        torch.autocast.__init__,
        torch.is_autocast_enabled,
        torch.get_autocast_dtype,
    )

    def begin_on(self: torch.autocast, device_type: str, *args: Any, **kwargs: Any) -> None:
        begin(self, _known(device_type), *args, **kwargs)

    with (
        patch.object(torch.autocast, "__init__", begin_on),
        patch.object(torch, "is_autocast_enabled", lambda kind="cpu": is_enabled(_known(kind))),
        patch.object(torch, "get_autocast_dtype", lambda kind: dtype(_known(kind))),
    ):
        yield


def _known(device_type: str) -> str:
    return "cpu" if device_type == "meta" else device_type


def _running() -> list[tuple[FrameType, int]]:
    """Return the running frames of the step with their lines, outermost first."""
    found: list[tuple[FrameType, int]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _run.__code__:
        found.append((frame, frame.f_lineno))
        frame = frame.f_back
    return found[::-1]


def _where(frames: list[tuple[FrameType, int]]) -> str:
    """Return file, line and text of the innermost statement outside PyTorch and this suite."""
    for frame, line in reversed(frames):
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_TO_BLAME):
            text = linecache.getline(file, line).strip()
            return f"{file}, line {line}" + (f" ({text})" if text else "")
    return "a step inside PyTorch"
