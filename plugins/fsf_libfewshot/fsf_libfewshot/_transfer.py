"""Classifiers of LibFewShot that train on all base classes, and their counterparts here."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from fsf_libfewshot._here import ClassifierHere, Tasks
from fsf_libfewshot._names import affine
from fsf_libfewshot._section import Section

__all__ = ["baseline", "baseline_plus", "rfs"]

_EPOCHS, _BATCH = 100, 4
"""Settings of the fit that Baseline and Baseline++ use here by default."""

_FITTED = (
    "LibFewShot fits the classifier of a task from a random start on random batches; here the fit "
    "is deterministic, so scores agree only roughly",
)
_OPTIMISED = (
    "LibFewShot's configuration fits the classifier of a task by {name}; here it is SGD with "
    "momentum and dampening 0.9 and the default learning rate and weight decay"
)


def baseline(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a Baseline."""
    given = Section(kwargs, where, ("feat_dim", "inner_param", "num_class"))
    options, notes = _fit(given, tasks)
    n_base = given.whole("num_class", least=1)
    names = affine("classifier", "method.classify")
    return ClassifierHere("baseline", "vectors", options, names, n_base, notes=notes)


def baseline_plus(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a Baseline++, whose weights are a direction and a length per class."""
    given = Section(kwargs, where, ("feat_dim", "inner_param", "num_class"))
    options, notes = _fit(given, tasks)
    names = {
        "classifier.fc.weight_v": "method.classify.directions",
        "classifier.fc.weight_g": "method.classify.lengths",
    }
    return ClassifierHere(
        "baseline-plus-plus",
        "vectors",
        {"learn_lengths": True, **options},
        names,
        given.whole("num_class", least=1),
        shaped={"method.classify.lengths": _column},
        notes=notes,
    )


def _column(lengths: Tensor) -> Tensor:
    return lengths.squeeze(1) if lengths.ndim == 2 else lengths


def _fit(given: Section, tasks: Tasks) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return options and notes on how the classifier of a task is fitted."""
    inner = given.section("inner_param", ("inner_batch_size", "inner_optim", "inner_train_iter"))
    options: dict[str, Any] = {}
    epochs = inner.whole("inner_train_iter", _EPOCHS, least=1)
    batch = inner.whole("inner_batch_size", _BATCH, least=1)
    if (epochs, batch) != (_EPOCHS, _BATCH):
        options["steps"] = epochs * math.ceil(tasks.way * tasks.shot / batch)
    optimiser = inner.section("inner_optim", ("kwargs", "name"))
    name = optimiser.text("name")
    if name != "SGD":
        return options, (*_FITTED, _OPTIMISED.format(name=name))
    keys = ("dampening", "lr", "momentum", "nesterov", "weight_decay")
    sgd = optimiser.section("kwargs", keys)
    damped = (sgd.number("momentum", 0.0), sgd.number("dampening", 0.0))
    options |= {"lr": sgd.number("lr"), "weight_decay": sgd.number("weight_decay", 0.0)}
    if damped == (0.9, 0.9) and not sgd.flag("nesterov", False):
        return options, _FITTED
    # The learning rate suits only that momentum and dampening.
    name = f"SGD with momentum {damped[0]:g} and dampening {damped[1]:g}"
    del options["lr"], options["weight_decay"]
    return options, (*_FITTED, _OPTIMISED.format(name=name))


def rfs(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read an RFS, the teacher or a student."""
    keys = (
        "alpha",
        "classifier_path",
        "emb_func_path",
        "feat_dim",
        "gamma",
        "is_distill",
        "kd_T",
        "num_class",
    )
    given = Section(kwargs, where, keys)
    options = {"temperature": given.number("kd_T", 4.0)}
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if given.flag("is_distill", False):
        # There gamma is the weight of the classes, alpha that of the teacher.
        options |= {"alpha": given.number("gamma", 1.0), "beta": given.number("alpha", 0.0)}
        ignored = ("distill_layer.",)
        notes = ("the teacher's weights in the checkpoint were not imported",)
    return ClassifierHere(
        "rfs",
        "vectors",
        options,
        affine("classifier", "method.classify"),
        given.whole("num_class", least=1),
        ignored=ignored,
        notes=notes,
    )
