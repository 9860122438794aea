"""Metric classifiers of LibFewShot and their counterparts here."""

from __future__ import annotations

import torch
from torch import Tensor

from fsf_importing.libfewshot._here import ClassifierHere, Tasks
from fsf_importing.libfewshot._names import affine, conv_norm, norm
from fsf_importing.libfewshot._section import Section

__all__ = ["can", "dn4", "protonet", "r2d2", "relation_net", "renet", "versa"]


def can(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a CAN; ``HW`` is both the side of its maps and the width of its fusion layer."""
    keys = ("HW", "iter_num_prob", "nFeat", "num_classes", "scale_cls")
    given = Section(kwargs, where, keys)
    options = {
        "scale": given.number("scale_cls"),
        "reduction": given.whole("HW", 5, least=1),
        "fusion": "mean",
    }
    names = affine("cam_layer.cam.conv1.conv", "method.reduce")
    names |= norm("cam_layer.cam.conv1.bn", "method.norm")
    names |= affine("cam_layer.cam.conv2", "method.expand")
    names |= affine("cam_layer.classifier", "method.classify")
    n_base = given.whole("num_classes", 64, least=1)
    # Convolutions of size 1 there, linear layers here.
    layers = ("reduce", "expand", "classify")
    flat = {f"method.{layer}.weight": _without_kernel for layer in layers}
    return ClassifierHere("can", "maps", options, names, n_base, shaped=flat)


def _without_kernel(weight: Tensor) -> Tensor:
    """Return a 2-d kernel of size 1 x 1 as a matrix."""
    return weight[:, :, 0, 0] if weight.ndim == 4 and weight.shape[2:] == (1, 1) else weight


def dn4(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a DN4, which has no weights of its own."""
    given = Section(kwargs, where, ("n_k",))
    return ClassifierHere("dn4", "maps", {"n_k": given.whole("n_k", 3, least=1)})


def protonet(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a ProtoNet, which has neither keys nor weights of its own."""
    Section(kwargs, where, ())
    return ClassifierHere("protonet", "vectors")


def r2d2(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read an R2D2, whose three numbers have the names of the paper's letters."""
    Section(kwargs, where, ())
    names = {
        "classifier.alpha": "method.scale",
        "classifier.beta": "method.bias",
        "classifier.gamma": "method.regularisation",
    }
    return ClassifierHere("r2d2", "vectors", names=names)


def relation_net(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a RelationNet, whose pairs have the query's channels first."""
    given = Section(kwargs, where, ("feat_dim", "feat_height", "feat_width"))
    for key in ("feat_dim", "feat_height", "feat_width"):
        given.whole(key, 3, least=1)
    names: dict[str, str] = {}
    for theirs, ours in ((0, "first"), (4, "second")):
        names |= affine(f"relation_layer.layers.{theirs}", f"method.{ours}.conv")
        names |= norm(f"relation_layer.layers.{theirs + 1}", f"method.{ours}.norm")
    names |= affine("relation_layer.fc.0", "method.combine")
    names |= affine("relation_layer.fc.2", "method.relate")
    return ClassifierHere(
        "relationnet",
        "maps",
        {"objective": "cross-entropy", "padding": False},
        names,
        shaped={"method.first.conv.weight": _class_first},
    )


def _class_first(weight: Tensor) -> Tensor:
    """Swap the halves of the input channels."""
    if weight.ndim != 4 or weight.shape[1] % 2:
        return weight
    query, of_class = weight.chunk(2, dim=1)
    return torch.cat([of_class, query], dim=1)


def renet(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a RENet."""
    keys = ("feat_dim", "lambda_epi", "num_classes", "temperature", "temperature_attn")
    given = Section(kwargs, where, keys)
    names = affine("fc", "method.classify")
    for theirs, ours in (
        ("conv1x1_in", "enter"),
        ("conv1", "shrink"),
        ("conv2", "shrink_more"),
        ("conv1x1_out", "leave"),
    ):
        names |= conv_norm(f"scr_layer.model.1.{theirs}", f"method.self_correlation.{ours}")
    names |= conv_norm("cca_layer.cca_1x1", "method.reduce")
    for place, layer in (("0", "widen"), ("2", "narrow")):
        for theirs, ours in (("conv2", "hw"), ("conv1", "uv"), ("proj", "channels")):
            names |= conv_norm(
                f"cca_layer.cca_module.conv.{place}.{theirs}", f"method.{layer}.over_{ours}"
            )
    options = {key: given.number(key) for key in ("temperature", "temperature_attn", "lambda_epi")}
    flat = {ours: _without_depth for theirs, ours in names.items() if ".0.weight" in theirs}
    return ClassifierHere(
        "renet", "maps", options, names, given.whole("num_classes", least=1), shaped=flat
    )


def _without_depth(weight: Tensor) -> Tensor:
    """Return a 3-d kernel of size 1 in one direction as a 2-d one."""
    if weight.ndim == 5 and 1 in (weight.shape[2], weight.shape[4]):
        return weight.squeeze(2 if weight.shape[2] == 1 else 4)
    return weight


def versa(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a VERSA; a comparison omits what is drawn at random."""
    given = Section(kwargs, where, ("d_theta", "drop_rate", "feat_dim", "sample_num"))
    options = {
        "dim": given.whole("d_theta", least=1),
        "n_samples": given.whole("sample_num", 10, least=1),
        "dropout": given.number("drop_rate", 0.0),
        "average": "logits",
    }
    names = affine("h.0", "method.enter") | norm("h.1", "method.norm")
    for part in ("weight_mean", "weight_logvar", "bias_mean", "bias_logvar"):
        for layer in (0, 2, 4):
            names |= affine(f"{part}.layers.{layer}", f"method.{part}.{layer}")
    exact = {"sample": False, "dropout": 0.0}
    notes = ("LibFewShot scores with weights drawn at random; here they are the mean weights",)
    return ClassifierHere("versa", "vectors", options, names, check_options=exact, notes=notes)
