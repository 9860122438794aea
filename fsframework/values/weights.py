"""Files of weights that other programs wrote, read without running code in them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from fsframework._reading import check_file
from fsframework.errors import DataError

__all__ = ["fit_weights", "read_weights", "strip_prefix"]

_AVERAGED = {"ema", "swa", "teacher"}
"""Words in the name of an entry with averaged weights, which are those to evaluate."""


class _Skipped:
    """Stands for an object beside the weights, whose content is not read."""

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, _: object) -> None: ...


class _SkippedTable(_Skipped):
    """Stands for a kind of ``dict``; PyTorch fills only a plain one."""

    def __new__(cls, *_: object) -> Any:
        return {}


_OF_NUMPY = [f"{c}.multiarray.{n}" for c in ("core", "_core") for n in ("scalar", "_reconstruct")]
_HARMLESS: Mapping[type[_Skipped], str] = {
    _Skipped: "argparse.Namespace types.SimpleNamespace pathlib.PosixPath pathlib._local.PosixPath "
    + " ".join(f"numpy.{name}" for name in ("dtype", "ndarray", *_OF_NUMPY)),
    _SkippedTable: "easydict.EasyDict yacs.config.CfgNode fvcore.common.config.CfgNode "
    "lightning_fabric.utilities.data.AttributeDict lightning.fabric.utilities.data.AttributeDict "
    "pytorch_lightning.utilities.parsing.AttributeDict",
}
"""Names that a file may use beside tensors: numbers of NumPy and options of a training. None of
them is imported: a stand-in that does nothing takes the place of each."""
_STAND_INS: list[Any] = [
    type(name.rpartition(".")[2], (cls,), {"__module__": name.rpartition(".")[0]})
    for cls, names in _HARMLESS.items()
    for name in names.split()
]


def read_weights(path: Path) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of a file by the entry that contains them.

    A file is safetensors, or what ``torch.save`` wrote: named tensors, or a table with entries that
    have them, such as ``state_dict`` or ``params``, beside numbers and options. Nothing in it is
    executed.

    Returns:
        Names and tensors by name of the entry, which is empty for the file as a whole. Averaged
        weights (``ema``, ``swa``, ``teacher``) come first, the others in the order of the file.

    Raises:
        DataError: the file is missing or damaged, has no named tensors, or contains objects whose
            reading could run code.
    """
    try:
        check_file(path)
        if path.suffix == ".safetensors":
            return {"": load_file(path)}
        with torch.serialization.safe_globals(_STAND_INS), warnings.catch_warnings():
            # Pickles of a version other than PyTorch's are read just as safely.
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except Exception as error:  # a damaged file can raise anything
        raise DataError(f"{path}: {_describe_failure(error)}") from None
    found = {name: table for name, table in _entries(content) if table}
    if not found:
        raise DataError(f"{path}: contains no named tensors")
    words = {name: set(re.split(r"[^a-z]+", name.lower())) for name in found}
    return {name: found[name] for name in sorted(found, key=lambda n: not words[n] & _AVERAGED)}


def _describe_failure(error: Exception) -> str:
    # PyTorch puts the reason after a page of advice.
    reason = " ".join(str(error).rpartition("WeightsUnpickler error:")[2].split())
    if match := re.search(r"GLOBAL (\S+)|Trying to call reduce|Can only (create|build)", reason):
        name = f" ({match[1]})" if match[1] else ""
        return (
            f"contains more than tensors{name}, and reading it could run code; save only the "
            "weights, as torch.save(model.state_dict(), FILE) does"
        )
    reason = re.split(r" Check the documentation|\. This is", reason)[0]
    reason = getattr(error, "strerror", None) or reason or "it is empty or damaged"
    return f"cannot be read as weights ({reason[:200]})"


def _entries(content: Any) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the tensors of each table; those of an optimizer have numbers as keys."""
    tables, seen = [("", content)], set[int]()
    for name, table in tables:  # which grows below
        if isinstance(table, Mapping) and id(table) not in seen:
            seen.add(id(table))
            named = {key: value for key, value in table.items() if isinstance(key, str)}
            yield name, {key: v.detach() for key, v in named.items() if isinstance(v, Tensor)}
            tables += [(f"{name}.{key}".lstrip("."), value) for key, value in named.items()]


def fit_weights(
    entries: Mapping[str, dict[str, Tensor]],
    expected: Mapping[str, Tensor],
    variants: Callable[[dict[str, Tensor]], Iterable[dict[str, Tensor]]] | None = None,
) -> dict[str, Tensor]:
    """Return the tensors of the first entry that has all weights of a network.

    Others, such as those of a classifier, are left out, as is a common prefix of the names.

    Args:
        entries: result of ``read_weights``.
        expected: state dict of the network. The batch counters of BatchNorm may be missing: they
            have no effect.
        variants: yields the tensors of an entry under each set of names that they may have.

    Raises:
        DataError: in every entry, a weight is missing or has another shape.

    >>> entries = {"head": {"b": torch.ones(1)}, "params": {"module.a": torch.ones(1)}}
    >>> fit_weights(entries, {"a": torch.zeros(1)})
    {'a': tensor([1.])}
    """
    demanded = [name for name in expected if not name.endswith("num_batches_tracked")]
    faults = []
    for entry, tensors in entries.items():
        for found in variants(tensors) if variants else [strip_prefix(tensors, expected)]:
            missing = [n for n in demanded if n not in found]
            shapes = [(n, tuple(found[n].shape), tuple(expected[n].shape)) for n in demanded
                      if n in found and found[n].shape != expected[n].shape]  # fmt: skip
            if not missing and not shapes:
                return {name: found[name] for name in expected if name in found}
            fault = "{!r} has the shape {}, not {}".format(*shapes[0]) if shapes else ""
            if missing:
                fault = (
                    f"it lacks {len(missing)} of {len(demanded)} weights, such as {missing[0]!r}"
                )
                if extra := [name for name in found if name not in expected]:
                    fault += f"; it has others, such as {extra[0]!r}"
            faults.append((len(missing) + len(shapes), fault, entry))
    _, fault, entry = min(faults)
    others = ", ".join(name for name in entries if name != entry)
    others = f"; the other entries with tensors fit no better: {others}" if others else ""
    raise DataError(f"does not fit: {f'{entry}: ' if entry else ''}{fault}{others}")


def strip_prefix(tensors: dict[str, Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """Remove the prefix of a network's own names, such as ``module.encoder_q.``.

    If there are several such networks, the most complete one is used, and the first of equals.

    >>> strip_prefix({"module.a": torch.ones(1), "fc": torch.ones(1)}, ["a"]).keys()
    dict_keys(['a'])
    """
    first = next(iter(names))
    prefixes = {key.removesuffix(first): None for key in tensors if key.endswith(f".{first}")}
    if first in tensors or not prefixes:
        return tensors
    best = max(prefixes, key=lambda prefix: sum(prefix + name in tensors for name in names))
    return {k.removeprefix(best): v for k, v in tensors.items() if k.startswith(best)}
