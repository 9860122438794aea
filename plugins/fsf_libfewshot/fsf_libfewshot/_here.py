"""What a class of LibFewShot is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

__all__ = ["BackboneHere", "ClassifierHere", "Items", "Tasks"]

Items = Literal["vectors", "maps"]
"""What a classifier gets of an image."""


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
        check_options: for a comparison with outputs, which are made without dropping anything.
        more: weights that only ours have.
    """

    name: str
    options: Mapping[str, Any]
    names: Mapping[str, str]
    check_options: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class ClassifierHere:
    """A method's name, what it takes of an image, options and names of weights, there and here.

    Args:
        shaped: by our name, how a weight that we hold in another shape is brought to it; one of a
            shape that was not to be expected is left as it is.
        check_options: for a comparison with outputs, which are made without random numbers.
        ignored: beginnings of names of weights that have no use here.
    """

    method: str
    items: Items
    options: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    n_base_classes: int = 0
    shaped: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    check_options: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
