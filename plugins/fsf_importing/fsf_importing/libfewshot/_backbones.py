"""Backbones of LibFewShot and their counterparts here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fsf_importing.libfewshot._here import BackboneHere, Items
from fsf_importing.libfewshot._names import affine, norm
from fsf_importing.libfewshot._section import Section
from fsframework.interfaces import DataError

__all__ = ["BACKBONES", "MEAN", "STD"]

MEAN = (120.39586422 / 255, 115.59361427 / 255, 104.54012653 / 255)
STD = (70.68188272 / 255, 68.27635443 / 255, 72.54505529 / 255)
"""LibFewShot's normalisation of pixel values in 0..1."""


def _conv64f(kwargs: object, where: str, items: Items, size: int) -> BackboneHere:
    known = (
        "is_feature",
        "is_flatten",
        "last_pool",
        "leaky_relu",
        "maxpool_last2",
        "negative_slope",
    )
    given = Section(kwargs, where, known)
    if given.flag("is_feature", False):
        raise DataError(f"{where}.is_feature: maps of all four blocks are not supported")
    flat = given.flag("is_flatten", False)
    _check_items(flat, items, where)
    options = {
        "last_pool": given.flag("last_pool", True),
        "maxpool_last2": given.flag("maxpool_last2", True),
        "leaky_relu": given.flag("leaky_relu", False),
        "negative_slope": given.number("negative_slope", 0.2),
        "pooling": "flatten",
    }
    names: dict[str, str] = {}
    for i in range(4):
        theirs, ours = f"emb_func.layer{i + 1}", f"backbone.blocks.{i}"
        names |= affine(f"{theirs}.0", f"{ours}.conv") | norm(f"{theirs}.1", f"{ours}.norm")
    return BackboneHere("conv64f", options, names)


def _resnet12(kwargs: object, where: str, items: Items, size: int) -> BackboneHere:
    known = (
        "avg_pool",
        "drop_rate",
        "dropblock_size",
        "is_flatten",
        "keep_prob",  # of a dropout that LibFewShot creates and never uses
        "maxpool_last2",
        "planes",
    )
    given = Section(kwargs, where, known)
    flat, average = given.flag("is_flatten", True), given.flag("avg_pool", True)
    pooled = given.flag("maxpool_last2", True)
    _check_items(flat, items, where)
    if average and items == "maps":
        raise DataError(f"{where}.avg_pool must be false: the classifier takes maps")
    side = size // (16 if pooled else 4)
    if average and side != 5:
        # There it is a window of 5 x 5 locations, which is the mean only for maps of that size.
        raise DataError(
            f"{where}.avg_pool: averages windows of 5 x 5 locations, but images of {size} x {size} "
            f"pixels leave maps of {side} x {side}"
        )
    rate = given.number("drop_rate", 0.1)
    options = {
        "widths": given.wholes("planes", (64, 160, 320, 640)),
        "drop_rate": rate,
        "drop_block_size": given.whole("dropblock_size", 5, least=1),
        "maxpool_last2": pooled,
        "pooling": "mean" if average or items == "maps" else "flatten",
    }
    return BackboneHere(
        "resnet12", options, _stages("emb_func"), {"drop_rate": 0.0} if rate else {}, _counters()
    )


def _check_items(flat: bool, items: Items, where: str) -> None:
    if items == "two encoders":
        raise DataError(
            f"{where}: GAINModel makes encoders of its own, and its backbone must be fgfl_resnet12"
        )
    if items != "either" and flat != (items == "vectors"):
        raise DataError(
            f"{where}.is_flatten must be {str(not flat).lower()}: the classifier takes {items}"
        )


def _stages(theirs: str) -> dict[str, str]:
    """Return the names of a ResNet-12's weights there and here."""
    names: dict[str, str] = {}
    for i in range(4):
        block, ours = f"{theirs}.layer{i + 1}.0", f"backbone.stages.{i}"
        for j in (1, 2, 3):
            names[f"{block}.conv{j}.weight"] = f"{ours}.conv{j}.weight"
            names |= norm(f"{block}.bn{j}", f"{ours}.norm{j}")
        names[f"{block}.downsample.0.weight"] = f"{ours}.shortcut.weight"
        names |= norm(f"{block}.downsample.1", f"{ours}.shortcut_norm")
    return names


def _counters() -> dict[str, Tensor]:
    """Return the batches that DropBlock has seen, which LibFewShot counts but does not save."""
    return {f"backbone.stages.{i}.drop.n_steps": torch.tensor(0) for i in (2, 3)}


def _resnet12_bdc(kwargs: object, where: str, items: Items, size: int) -> BackboneHere:
    """Read a ResNet-12 whose last stage does not pool, and the pooling that belongs to DeepBDC."""
    keys = (
        "avg_pool",  # of the map, which is never used
        "drop_rate",
        "dropblock_size",
        "keep_prob",  # likewise
        "planes",
        "reduce_dim",
    )
    given = Section(kwargs, where, keys)
    if items != "maps":
        raise DataError(f"{where}: resnet12Bdc makes maps, but the classifier takes {items}")
    rate = given.number("drop_rate", 0.0)
    widths = given.wholes("planes", (64, 160, 320, 640))
    reduce_dim = given.whole("reduce_dim", 640, least=2)
    options = {
        "widths": widths,
        "drop_rate": rate,
        "drop_block_size": given.whole("dropblock_size", 5, least=1),
        "last_pool": False,
    }
    names = {**_stages("emb_func"), "emb_func.bdc_pool.temperature": "method.pool.log_scale"}
    if reduce_dim != widths[-1]:
        block = "emb_func.bdc_pool.conv_dr_block"
        names |= {f"{block}.0.weight": "method.pool.reduce.0.weight"}
        names |= norm(f"{block}.1", "method.pool.reduce.1")
    return BackboneHere(
        "resnet12",
        options,
        names,
        {"drop_rate": 0.0} if rate else {},
        _counters(),
        method_options={"reduce_dim": reduce_dim},
        shaped={"method.pool.log_scale": _single},
    )


def _fgfl_resnet12(kwargs: object, where: str, items: Items, size: int) -> BackboneHere:
    """Read the two encoders of FGFL, which it makes whatever ``kwargs`` say except widths."""
    keys = ("avg_pool", "drop_rate", "dropblock_size", "keep_prob", "planes")
    given = Section(kwargs, where, keys)
    if items != "two encoders":
        raise DataError(f"{where}: fgfl_resnet12 is for GAINModel only")
    if size // 16 != 5:
        raise DataError(
            f"{where}: averages windows of 5 x 5 locations, so images must have 84 x 84 pixels"
        )
    options = {"widths": given.wholes("planes", (64, 160, 320, 640)), "drop_rate": 0.1}
    first, second = _stages("encoder"), _stages("encoder_f")
    prefix = "method.frequency_backbone."
    names = first | {k: prefix + v.removeprefix("backbone.") for k, v in second.items()}
    more = _counters()
    more |= {prefix + k.removeprefix("backbone."): v for k, v in _counters().items()}
    return BackboneHere("resnet12", options, names, {"drop_rate": 0.0}, more)


def _single(weight: Tensor) -> Tensor:
    """Return a matrix of one number as a number."""
    return weight.reshape(()) if weight.numel() == 1 else weight


BACKBONES: Mapping[str, Callable[[object, str, Items, int], BackboneHere]] = {
    "Conv64F": _conv64f,
    "fgfl_resnet12": _fgfl_resnet12,
    "resnet12": _resnet12,
    "resnet12Bdc": _resnet12_bdc,
}
"""By LibFewShot's name, a function of ``kwargs``, their location, the classifier's items and the
image size that returns the backbone here."""
