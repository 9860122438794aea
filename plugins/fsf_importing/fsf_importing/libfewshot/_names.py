"""The names of layers' weights there and here."""

from __future__ import annotations

__all__ = ["affine", "conv_norm", "norm"]


def affine(theirs: str, ours: str) -> dict[str, str]:
    """Return the names there and here of a layer with weight and bias."""
    return {f"{theirs}.{part}": f"{ours}.{part}" for part in ("weight", "bias")}


def norm(theirs: str, ours: str) -> dict[str, str]:
    """Return the names there and here of a BatchNorm."""
    parts = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return {f"{theirs}.{part}": f"{ours}.{part}" for part in parts}


def conv_norm(theirs: str, ours: str) -> dict[str, str]:
    """Return the names of a convolution without bias and its BatchNorm, numbered there."""
    return {f"{theirs}.0.weight": f"{ours}.conv.weight", **norm(f"{theirs}.1", f"{ours}.norm")}
