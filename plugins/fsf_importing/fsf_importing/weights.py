"""Files of weights that PyTorch wrote, read without running code in them."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor

from fsframework.interfaces import DataError
from fsframework.values import open_file

__all__ = ["check_names", "one_line", "read_weights"]

_WRAPPERS = ("model", "state_dict")
"""Keys under which a whole training state stores the model's weights."""

_SIGNS_OF_CODE = ("GLOBAL", "Trying to call reduce", "Can only create", "Can only build")
"""In PyTorch's messages."""


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a state dict with the names in its file, without ``module.`` of DataParallel.

    Raises:
        DataError: the file is missing or damaged, or contains code or anything except named
            tensors.
    """
    try:
        file = open_file(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        with file, warnings.catch_warnings():
            # Warnings of pickle protocols: a file that cannot be read for this reason raises below.
            warnings.simplefilter("ignore")
            loaded = torch.load(file, weights_only=True, map_location="cpu")
    except Exception as error:  # a damaged file can fail anywhere in the unpickler
        # PyTorch puts the reason after a page of advice.
        reason = str(error).rpartition("WeightsUnpickler error:")[2]
        if any(sign in reason for sign in _SIGNS_OF_CODE):
            raise DataError(
                f"{path}: contains more than weights, so loading it could run code; only tensors "
                "are read"
            ) from None
        raise DataError(f"{path}: cannot be read as weights ({one_line(reason)})") from None
    return _state_dict(loaded, path)


def check_names(stored: Collection[str], names: Collection[str], path: Path) -> None:
    """Check that a file has exactly the weights of these names.

    Raises:
        DataError: a weight is missing or unknown.
    """
    faults = []
    if missing := [name for name in names if name not in stored]:
        faults.append(f"missing: {', '.join(missing)}")
    if left_over := [name for name in stored if name not in names]:
        faults.append(f"not in the model: {', '.join(left_over)}")
    if faults:
        raise DataError(f"{path}: weights {'; '.join(faults)}")


def _state_dict(loaded: object, path: Path) -> dict[str, Tensor]:
    for key in _WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
            break
    if not isinstance(loaded, Mapping):
        raise DataError(f"{path}: contains a {type(loaded).__name__}, not a state dict")
    found: dict[str, Tensor] = {}
    for key, value in loaded.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise DataError(
                f"{path}: is not a state dict: {key!r} is a {type(value).__name__}, not a tensor"
            )
        name = ".".join(part for part in key.split(".") if part != "module")
        if name in found:
            raise DataError(f"{path}: contains the weight {name!r} twice")
        found[name] = value.detach()
    return found


def one_line(reason: str) -> str:
    """Return the first sentence of a long message, on one line."""
    text = " ".join(reason.split()) or "it is empty or damaged"
    for advice in (" Check the documentation", ". This is"):
        text = text.partition(advice)[0]
    return text if len(text) <= 200 else f"{text[:200]}..."
