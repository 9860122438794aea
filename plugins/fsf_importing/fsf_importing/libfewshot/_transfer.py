"""Classifiers of LibFewShot that train on all base classes, and their counterparts here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from fsf_importing.libfewshot._here import ClassifierHere, Tasks
from fsf_importing.libfewshot._names import affine
from fsf_importing.libfewshot._section import Section

__all__ = ["baseline", "baseline_plus", "neg_net", "rfs", "skd"]

_EPOCHS, _BATCH = 100, 4
"""Settings of the fit that Baseline, Baseline++ and Neg-Cosine use here by default."""

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
    options, notes, _ = _fit(given, tasks)
    n_base = given.whole("num_class", least=1)
    names = affine("classifier", "method.classify")
    start = {"inner_weight": "weight", "inner_bias": "bias"}
    return ClassifierHere(
        "baseline",
        "vectors",
        options,
        names,
        n_base,
        check_scores=partial(_from_start, start),
        check_arrays=tuple(start),
        notes=notes,
    )


def baseline_plus(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a Baseline++, whose weights are a direction and a length per class."""
    given = Section(kwargs, where, ("feat_dim", "inner_param", "num_class"))
    options, notes, _ = _fit(given, tasks)
    names = {
        "classifier.fc.weight_v": "method.classify.directions",
        "classifier.fc.weight_g": "method.classify.lengths",
    }
    start = {"inner_weight_v": "directions", "inner_weight_g": "lengths"}
    return ClassifierHere(
        "baseline-plus-plus",
        "vectors",
        {"learn_lengths": True, **options},
        names,
        given.whole("num_class", least=1),
        shaped={"method.classify.lengths": _column},
        check_scores=partial(_from_start, start),
        check_arrays=tuple(start),
        notes=notes,
    )


def _column(lengths: Tensor) -> Tensor:
    return lengths.squeeze(1) if lengths.ndim == 2 else lengths


def neg_net(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a NegNet, whose batches are of 4 whatever its configuration says."""
    keys = ("feat_dim", "inner_param", "margin", "num_class", "scale_factor")
    given = Section(kwargs, where, keys)
    more = ("inner_margin", "inner_scale_factor")
    options, notes, inner = _fit(given, tasks, more)
    options |= {
        "margin": given.number("margin"),
        "scale": given.number("scale_factor"),
        "inner_margin": inner.number("inner_margin"),
        "inner_scale": inner.number("inner_scale_factor"),
    }
    names = {"NegLayer.weight": "method.classify.directions"}
    n_base = given.whole("num_class", least=1)
    return ClassifierHere(
        "neg-cosine",
        "vectors",
        options,
        names,
        n_base,
        check_scores=partial(_from_start, {"inner_weight": "directions"}),
        check_arrays=("inner_weight",),
        notes=notes,
    )


def _from_start(
    names: Mapping[str, str],
    method: Any,
    support: Tensor,
    query: Tensor,
    arrays: Mapping[str, Tensor],
) -> Tensor:
    """Score from the classifier that the reference started from, in batches as it has them."""
    start = {ours: arrays[theirs][None] for theirs, ours in names.items()}
    if "lengths" in start:
        start["lengths"] = start["lengths"].flatten(1)
    scores: Tensor = method.scores_from(start, support, query, batch_size=_BATCH)
    return scores


def _fit(
    given: Section, tasks: Tasks, more: tuple[str, ...] = ()
) -> tuple[dict[str, Any], tuple[str, ...], Section]:
    """Return options and notes on how the classifier of a task is fitted, and its section."""
    keys = ("inner_batch_size", "inner_optim", "inner_train_iter", *more)
    inner = given.section("inner_param", keys)
    options: dict[str, Any] = {}
    epochs = inner.whole("inner_train_iter", _EPOCHS, least=1)
    batch = inner.whole("inner_batch_size", _BATCH, least=1)
    if more:
        batch = _BATCH
    if (epochs, batch) != (_EPOCHS, _BATCH):
        options["steps"] = epochs * math.ceil(tasks.way * tasks.shot / batch)
    optimiser = inner.section("inner_optim", ("kwargs", "name"))
    name = optimiser.text("name")
    if name == "Adam":
        adam = optimiser.section("kwargs", ("lr", "weight_decay"))
        rate, decay = adam.number("lr", 0.001), adam.number("weight_decay", 0.0)
        return options | {"optimizer": "adam", "lr": rate, "weight_decay": decay}, _FITTED, inner
    if name != "SGD":
        return options, (*_FITTED, _OPTIMISED.format(name=name)), inner
    keys = ("dampening", "lr", "momentum", "nesterov", "weight_decay")
    sgd = optimiser.section("kwargs", keys)
    damped = (sgd.number("momentum", 0.0), sgd.number("dampening", 0.0))
    options |= {"lr": sgd.number("lr"), "weight_decay": sgd.number("weight_decay", 0.0)}
    if damped == (0.9, 0.9) and not sgd.flag("nesterov", False):
        return options, _FITTED, inner
    # The learning rate suits only that momentum and dampening.
    name = f"SGD with momentum {damped[0]:g} and dampening {damped[1]:g}"
    del options["lr"], options["weight_decay"]
    return options, (*_FITTED, _OPTIMISED.format(name=name)), inner


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


def skd(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read an SKD, of generation 0 or 1."""
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
    gamma, alpha = given.number("gamma", 1.0), given.number("alpha", 1.0)
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if given.flag("is_distill", False):
        options |= {"distill_gamma": gamma, "distill_alpha": alpha}
        ignored = ("distill_layer.",)
        notes = ("the teacher's weights in the checkpoint were not imported",)
    else:
        options |= {"gamma": gamma, "alpha": alpha}
    names = affine("cls_classifier", "method.classify")
    names |= affine("rot_classifier", "method.classify_rotation")
    n_base = given.whole("num_class", least=1)
    return ClassifierHere("skd", "vectors", options, names, n_base, ignored=ignored, notes=notes)
