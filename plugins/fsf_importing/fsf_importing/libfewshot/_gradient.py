"""Classifiers of LibFewShot that adapt by gradient steps, and their counterparts here."""

from __future__ import annotations

from typing import Any

from fsf_importing.libfewshot._here import ClassifierHere, Tasks
from fsf_importing.libfewshot._names import affine
from fsf_importing.libfewshot._section import Section
from fsframework.interfaces import DataError

__all__ = ["anil", "boil", "leo", "maml", "mtl"]

_TESTING = {"NIL": "nil", "Once_update": "adapted"}
"""LibFewShot's ways to test a BOIL; testing it unadapted with its head is not supported."""

_MTL_RATE = 0.01
"""Of LibFewShot's MTL, whatever its configuration says."""

_HEAD = affine("classifier.layers.0", "method.classify")


def anil(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read an ANIL; its head is made for the ways of its training."""
    given = Section(kwargs, where, ("feat_dim", "hid_dim", "inner_param"))
    return ClassifierHere("anil", "vectors", _inner(given, tasks), _HEAD)


def boil(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a BOIL; its head is made for the ways of its training."""
    given = Section(kwargs, where, ("feat_dim", "inner_param", "testing_method"))
    inner = given.section("inner_param", ("classifier_lr", "extractor_lr"))
    rate = inner.number("extractor_lr")
    inner.number("classifier_lr", rate)
    testing = given.choice("testing_method", tuple(_TESTING))
    options = {
        "n_way": tasks.way,
        "extractor_lr": rate,
        # LibFewShot looks for the head under a name it does not have, and adapts it like the rest.
        "classifier_lr": rate,
        "testing": _TESTING[testing],
    }
    return ClassifierHere("boil", "vectors", options, _HEAD)


def leo(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a LEO; a comparison omits what is drawn at random in training."""
    weights = ("encoder_penalty_weight", "kl_weight", "orthogonality_penalty_weight")
    given = Section(kwargs, where, ("feat_dim", "hid_dim", "inner_para", *weights))
    inner = given.section("inner_para", ("finetune_iter", "finetune_lr", "iter", "lr"))
    options = {
        "latent_size": given.whole("hid_dim", least=1),
        "inner_lr": inner.number("lr"),
        "inner_steps": inner.whole("iter"),
        "finetune_lr": inner.number("finetune_lr"),
        "finetune_steps": inner.whole("finetune_iter"),
        "kl_weight": given.number("kl_weight"),
        "encoder_penalty_weight": given.number("encoder_penalty_weight"),
        "orthogonality_weight": given.number("orthogonality_penalty_weight"),
        "bias": True,
        "learned_rates": False,
        "normalize": False,
        "spread": "relu",
        "orthogonal": "outputs",
        "first_order": True,
    }
    names = affine("encoder.encoder_func", "method.encode")
    names |= affine("decoder.decoder_func", "method.decode")
    names |= {f"encoder.relation_net.{i}.weight": f"method.relate.{i}.weight" for i in (0, 2, 4)}
    return ClassifierHere("leo", "vectors", options, names, check_options={"sample": False})


def maml(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a MAML; its head is made for the ways of its training."""
    given = Section(kwargs, where, ("feat_dim", "inner_param"))
    return ClassifierHere("maml", "vectors", _inner(given, tasks), _HEAD)


def mtl(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read an MTL on Conv64F, whose steps are of 0.01 and whose head is stored twice."""
    given = Section(kwargs, where, ("feat_dim", "inner_param", "num_classes", "use_MTL"))
    if not given.flag("use_MTL", True):
        raise DataError(f"{where}.use_MTL must be true: without it there are no scales and shifts")
    steps = given.section("inner_param", ("iter", "lr")).whole("iter", least=1)
    options = {
        "n_way": tasks.way,
        "inner_lr": _MTL_RATE,
        "train_steps": steps,
        "test_steps": steps,
        "first_order": True,
    }
    names = {
        "base_learner.vars.0": "method.classify.weight",
        "base_learner.vars.1": "method.classify.bias",
    }
    for i in range(4):
        names[f"emb_func.layer{i + 1}.0.mtl_weight"] = f"method.scales.{i}"
        names[f"emb_func.layer{i + 1}.0.mtl_bias"] = f"method.shifts.{i}"
    twice = ("base_learner.fc1_",)
    return ClassifierHere("mtl", "either", options, names, ignored=twice)


def _inner(given: Section, tasks: Tasks) -> dict[str, Any]:
    """Return the options of the inner steps, of which earlier versions have only one kind."""
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
