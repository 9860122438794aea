"""Frozen NumPy arrays, and helpers to validate fields of values."""

from __future__ import annotations

import copyreg
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fsframework.errors import DataError

__all__ = [
    "BoolArray",
    "ByName",
    "FloatArray",
    "IntArray",
    "UInt8Array",
    "frozen",
    "named",
    "read_only",
]


IntArray = npt.NDArray[np.integer[Any]]


FloatArray = npt.NDArray[np.floating[Any]]


BoolArray = npt.NDArray[np.bool_]


UInt8Array = npt.NDArray[np.uint8]


def frozen(array: npt.ArrayLike, dtype: npt.DTypeLike, name: str, ndim: int) -> npt.NDArray[Any]:
    kind = np.dtype(dtype)
    try:
        source = np.asarray(array)
        with np.errstate(invalid="ignore"):
            result = source.astype(kind, copy=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be an array of {kind.name}: {error}") from None
    if result.ndim != ndim:
        raise DataError(f"{name} must have {ndim} dimensions, not shape {result.shape}")
    if not np.can_cast(source.dtype, kind) and not np.array_equal(result, source):
        raise DataError(
            f"{name} must be an array of {kind.name}, but some of its values are not {kind.name}"
        )
    if result.flags.writeable and (result is array or not result.flags.owndata):
        result = result.copy()
    return read_only(result)


def _frozen_mapping(mapping: dict[str, Any]) -> MappingProxyType[str, Any]:
    return MappingProxyType(mapping)


# Lets values that hold one be copied and sent to other processes.
copyreg.pickle(MappingProxyType, lambda mapping: (_frozen_mapping, (dict(mapping),)))


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


def named(words: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(repr(w) for w in words[:most])
    return shown + (f" and {len(words) - most} more" if len(words) > most else "")


T = TypeVar("T")


class ByName(Mapping[str, T], Generic[T]):
    """A mapping from names that keeps their order, and lists them for one that it lacks."""

    noun: ClassVar[str]
    """What is named."""

    def __init__(self, values: Mapping[str, T]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> T:
        try:
            return self._values[name]
        except KeyError:
            known = ", ".join(self._values) or "none"
            raise KeyError(f"no {self.noun} {name!r}; the {self.noun}s are {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
