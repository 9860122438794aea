"""Weight files: downloaded from the hub, read without running code, and loaded into a model."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fsframework.interfaces import DataError
from fsframework.values import check_file, parse_json, read_file
from fsframework.values.weights import fit_weights, strip_prefix

__all__ = ["file_of", "fill", "from_hub", "read_config"]

_FILES = ("model.safetensors", "pytorch_model.bin")
"""Names of weight files in a folder; the first that exists is read."""


def from_hub(config: Mapping[str, Any], *, offline: bool, option: str, instead: str) -> Path:
    """Return the file of a model's published weights, downloading it if it is not in the cache.

    Args:
        config: timm's configuration of the pretrained model.
        offline: make no network call.
        option: the option that names a file of weights, for messages.
        instead: weights that need no network, for messages.

    Raises:
        DataError: the file is neither in the cache nor available from the hub.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    repository = config.get("hf_hub_id")
    if not repository:
        raise DataError(
            f"its weights are not on the hub but at {config.get('url')}; download that file and "
            f"pass it with -o {option}=FILE"
        )
    names = (config["hf_hub_filename"],) if config.get("hf_hub_filename") else _FILES
    for name in names:
        with contextlib.suppress(LocalEntryNotFoundError):
            return Path(hf_hub_download(repository, name, local_files_only=True))
    reason = "network access is turned off"
    if not offline:
        found, reason = _downloaded(repository, names)
        if found is not None:
            return found
    raise DataError(
        f"its weights are not on this machine, and {reason}; {instead}, or, on a machine with a "
        f"network, download https://huggingface.co/{repository}/resolve/main/{names[0]} and pass "
        f"the file with -o {option}=FILE (or use random weights with -o {option}=none)"
    )


def _downloaded(repository: str, names: Sequence[str]) -> tuple[Path | None, str]:
    """Return the first of some files that the hub has, or ``None`` and why there is none."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    reason = ""
    try:
        for name in names:
            try:
                # This asks once; a download asks six times, which takes half a minute.
                get_hf_file_metadata(hf_hub_url(repository, name))
                return Path(hf_hub_download(repository, name)), ""
            except EntryNotFoundError:
                reason = f"the hub has no file {name} for it"
    except HfHubHTTPError as error:
        reason = f"the hub does not deliver them ({_first_line(error)})"
    # The errors of the underlying network library are not part of the hub's interface.
    except Exception as error:
        reason = f"the hub cannot be reached ({_first_line(error)})"
    return None, reason


def _first_line(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "").rstrip(" .:")
    return f"{type(error).__name__}: {first[:160]}" if first else type(error).__name__


def file_of(weights: Path) -> Path:
    """Return the weight file for the path of the file or its folder.

    Raises:
        DataError: the path or a weight file in the folder does not exist.
    """
    if not os.path.isdir(weights):  # noqa: PTH112 - Path.is_dir raises an error for long names
        try:
            check_file(weights)
        except FileNotFoundError:
            raise DataError(
                f"weights {weights}: no such file or folder (allowed: published, hub, none, a path)"
            ) from None
        except OSError as error:
            raise DataError(f"weights {weights}: cannot be read ({error.strerror})") from None
        return weights
    found = next((weights / name for name in _FILES if (weights / name).is_file()), None)
    if found is None:
        raise DataError(f"weights {weights}: the folder has neither {' nor '.join(_FILES)}")
    return found


def read_config(weights: Path) -> dict[str, Any]:
    """Return the ``config.json`` that timm writes next to the weights; empty without such a file.

    Raises:
        DataError: the file is not JSON or not a JSON object.
    """
    path = weights / "config.json"
    if not path.is_file():
        return {}
    try:
        found = parse_json(read_file(path))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({_first_line(error)})") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: must contain a JSON object")
    return found


def fill(net: nn.Module, entries: Mapping[str, dict[str, Tensor]], where: str) -> None:
    """Load the weights of a file into a model, under any common prefix or known naming scheme.

    Other weights in the file, such as a classifier or a projection head, are left out.

    Args:
        net: model without a classifier.
        entries: result of ``read_weights``; the first entry that fits is used.
        where: name of the file for messages.

    Raises:
        DataError: in every entry, a weight is missing or has another shape.
    """
    own = net.state_dict()
    try:
        found = fit_weights(entries, own, lambda tensors: _candidates(net, own, tensors))
    except DataError as error:
        raise DataError(f"{where} {error}") from None
    net.load_state_dict(found, strict=False)


_UNFIT = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What converters raise on a file of another kind. Each converter is written for one kind but tried
on every file; if none fits, the message states what the file lacks."""


def _candidates(
    net: nn.Module, own: Mapping[str, Tensor], tensors: dict[str, Tensor]
) -> Iterator[dict[str, Tensor]]:
    """Yield the weights under each set of names that the model may use."""
    bare = strip_prefix(tensors, own)
    yield bare
    for convert in _converters(net):
        for given in (bare, tensors) if bare is not tensors else (tensors,):
            try:
                yield convert(dict(given), net)
            except _UNFIT:
                continue


def _converters(net: nn.Module) -> Iterator[Callable[..., dict[str, Tensor]]]:
    """Yield timm's functions that convert foreign names and shapes to those of the model."""
    module = sys.modules[type(net).__module__]
    for name in ("checkpoint_filter_fn", "_filter_fn", "pretrained_filter_fn"):
        function = getattr(module, name, None)
        if function is None:
            continue
        yield lambda tensors, net, function=function: function(tensors, net)
        if "adapt_layer_scale" in inspect.signature(function).parameters:
            yield lambda tensors, net, function=function: function(
                tensors, net, adapt_layer_scale=True
            )
