"""timm's published weights, from an installed package or the hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fsf_timm._library import whole_state
from fsf_timm._packages import installed, named_by_order, without_hub
from fsf_timm._weights import from_hub
from fsframework.values.weights import read_weights

__all__ = ["PUBLISHED", "published_tensors"]

PUBLISHED = ("published", "hub")
"""Values of the option ``weights`` that stand for timm's published weights."""


def published_tensors(
    config: Mapping[str, Any], *, packages: bool, offline: bool, option: str = "backbone.weights"
) -> tuple[dict[str, dict[str, Tensor]], str, dict[str, str]]:
    """Return the published weights of a model by entry and name, classifier included.

    Args:
        config: timm's configuration of the pretrained model.
        packages: whether an installed package is preferred to the hub.
        offline: make no network call.
        option: the option that names a file of weights, for messages.

    Returns:
        The tensors, their source for messages, and provenance.

    Raises:
        DataError: the weights are not available or cannot be read.
    """
    name = f"{config['architecture']}.{config.get('tag')}"
    packaged = installed(name) if packages else None
    if packaged is not None:
        where = f"the file of the installed package {packaged}"
        tensors = next(iter(read_weights(packaged.path).values()))
        named = named_by_order(tensors, whole_state(name), where)
        return {"": named}, where, {"package": str(packaged)}
    path = from_hub(config, offline=offline, option=option, instead=without_hub(name))
    return read_weights(path), f"the hub's {path.name}", {"repository": str(config["hf_hub_id"])}
