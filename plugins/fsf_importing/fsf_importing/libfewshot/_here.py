"""The counterparts of LibFewShot's classes here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from fsframework.interfaces import FewShotMethod

__all__ = ["BackboneHere", "ClassifierHere", "Items", "Tasks"]

Items = Literal["vectors", "maps", "either", "two encoders"]
"""What a classifier receives per image; ``either`` if it flattens maps by itself. FGFL makes its
own encoders instead, of one kind."""


@dataclass(frozen=True)
class Tasks:
    """The shape of the tasks that a checkpoint was made for."""

    way: int
    shot: int
    query: int


@dataclass(frozen=True)
class BackboneHere:
    """A backbone's name, options and names of weights, there and here.

    Args:
        check_options: options for a comparison with outputs, which were made without dropout.
        more: weights that only the backbone here has.
        method_options: options of the method that there belong to the backbone, as do weights of it
            among ``names``.
        shaped: by name here, how a weight with another shape here is reshaped.
    """

    name: str
    options: Mapping[str, Any]
    names: Mapping[str, str]
    check_options: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Tensor] = field(default_factory=dict)
    method_options: Mapping[str, Any] = field(default_factory=dict)
    shaped: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)


@dataclass(frozen=True)
class ClassifierHere:
    """A method's name, what it receives per image, options and names of weights, there and here.

    Args:
        shaped: by name here, how a weight with another shape here is reshaped; weights of
            unexpected shapes stay unchanged.
        check_options: options for a comparison with outputs, which were made without randomness.
        check_scores: how such a comparison scores from the starts or noise that lie beside the
            outputs, under the names ``check_arrays``.
        ignored: prefixes of the names of weights that are not used here.
    """

    method: str
    items: Items
    options: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    n_base_classes: int = 0
    shaped: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    check_options: Mapping[str, Any] = field(default_factory=dict)
    check_scores: Callable[[FewShotMethod, Tensor, Tensor, Mapping[str, Tensor]], Tensor] | None = (
        None
    )
    check_arrays: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
