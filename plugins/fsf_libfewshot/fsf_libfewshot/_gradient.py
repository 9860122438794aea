"""Classifiers of LibFewShot that adapt by gradient steps, and what they are here."""

from __future__ import annotations

from typing import Any

from fsf_libfewshot._here import ClassifierHere, Tasks
from fsf_libfewshot._names import affine
from fsf_libfewshot._section import Section

__all__ = ["anil", "maml"]

_HEAD = affine("classifier.layers.0", "method.classify")


def anil(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read an ANIL; its head is made for the ways of its training."""
    given = Section(kwargs, where, ("feat_dim", "hid_dim", "inner_param"))
    return ClassifierHere("anil", "vectors", _inner(given, tasks), _HEAD)


def maml(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a MAML; its head is made for the ways of its training."""
    given = Section(kwargs, where, ("feat_dim", "inner_param"))
    return ClassifierHere("maml", "vectors", _inner(given, tasks), _HEAD)


def _inner(given: Section, tasks: Tasks) -> dict[str, Any]:
    """Return the options of the inner steps, of which earlier versions count but one kind."""
    inner = given.section("inner_param", ("iter", "lr", "test_iter", "train_iter"))
    if inner.has("iter"):
        train = test = inner.whole("iter", least=1)
    else:
        train = inner.whole("train_iter", least=1)
        test = inner.whole("test_iter", least=1)
    return {
        "n_way": tasks.way,
        "inner_lr": inner.number("lr"),
        "train_steps": train,
        "test_steps": test,
    }
