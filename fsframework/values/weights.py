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
from fsframework.errors import DataError, FsfWarning

__all__ = ["check_values", "fit_weights", "most_complete", "read_weights", "strip_prefix"]

_IGNORED = {
    *("exp", "fisher", "grad", "gradient", "gradients", "grads", "importance", "importances"),
    *("init", "initial", "k", "mask", "masks", "momentum", "optim", "optimizer", "optimizers"),
}
"""Words in the name of an entry whose tensors are no trained weights; ``k`` is the momentum encoder
of MoCo, ``encoder_k``."""
_PREFERENCE = (
    {"average", "averaged", "avg", "ema", "polyak", "shadow", "swa", "teacher"},
    {"best"},
    set[str](),
    {"last", "latest"},
    _IGNORED,
)
"""Words in the name of an entry, those to evaluate first; the third is for all other names."""


class _Skipped:
    """Stands for an object beside the weights, whose content is not read."""

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, _: object) -> None: ...


class _SkippedList(_Skipped):
    """Stands for a kind of ``list``; PyTorch extends only a plain one."""

    def __new__(cls, *_: object) -> Any:
        return []


class _SkippedTable(_Skipped):
    """Stands for a kind of ``dict``; PyTorch fills only a plain one."""

    def __new__(cls, *_: object) -> Any:
        return {}


_OF_NUMPY = [f"{c}.multiarray.{n}" for c in ("core", "_core") for n in ("scalar", "_reconstruct")]
_HARMLESS: Mapping[type[_Skipped], str] = {
    _Skipped: "argparse.Namespace types.SimpleNamespace pathlib.PosixPath pathlib._local.PosixPath "
    "datetime.datetime datetime.date datetime.timedelta datetime.timezone decimal.Decimal "
    "uuid.UUID uuid.SafeUUID torch.torch_version.TorchVersion "
    "builtins.dict builtins.float builtins.frozenset builtins.int builtins.list builtins.range "
    "builtins.set builtins.slice builtins.str "
    + " ".join(f"numpy.{name}" for name in ("dtype", "ndarray", *_OF_NUMPY)),
    _SkippedList: "collections.deque",
    _SkippedTable: "collections.defaultdict easydict.EasyDict yacs.config.CfgNode "
    "fvcore.common.config.CfgNode "
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
        weights (``ema``, ``swa``, ``teacher``) come first, then the ``best`` ones, the others in
        the order of the file, and the ``last`` ones; gradients, masks, initial weights and those of
        an optimizer are left out.

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
    found = {
        name: table for name, table in _entries(content) if table and not _words(name) & _IGNORED
    }
    if not found:
        raise DataError(f"{path}: contains no named tensors")
    return {name: found[name] for name in sorted(found, key=_preference)}


def _words(name: str) -> set[str]:
    """Return the words of a name such as ``model_ema`` or ``modelEMA``, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def _preference(name: str) -> int:
    """Return the place of an entry or a prefix among others, by the words of its name."""
    words = _words(name)
    ranks = [rank for rank, of_rank in enumerate(_PREFERENCE) if words & of_rank]
    return 4 if 4 in ranks else min(ranks, default=2)


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

    Others, such as those of a classifier, are left out, as is a common prefix of the names. If
    other entries fit with other values, a warning names them.

    Args:
        entries: result of ``read_weights``.
        expected: state dict of the network. The batch counters of BatchNorm may be missing: they
            have no effect.
        variants: yields the tensors of an entry under each set of names that they may have.

    Raises:
        DataError: in every entry, a weight is missing, has another shape or is not a dense tensor
            of floating-point numbers, or the values taken are not finite.

    >>> entries = {"head": {"b": torch.ones(1)}, "params": {"module.a": torch.ones(1)}}
    >>> fit_weights(entries, {"a": torch.zeros(1)})
    {'a': tensor([1.])}
    """
    demanded = [name for name in expected if not name.endswith("num_batches_tracked")]
    floating = {name for name in demanded if expected[name].is_floating_point()}
    faults, fitting = [], {}
    for entry, tensors in entries.items():
        for found in variants(tensors) if variants else [strip_prefix(tensors, expected)]:
            missing = [n for n in demanded if n not in found]
            unfit = [n for n in demanded if n in found and (found[n].shape != expected[n].shape
                     or (n in floating and not _is_dense(found[n])))]  # fmt: skip
            if not missing and not unfit:
                fitting[entry] = {name: found[name] for name in expected if name in found}
                break
            fault = f"{unfit[0]!r} {_misfit(found[unfit[0]], expected[unfit[0]])}" if unfit else ""
            if missing:
                fault = (
                    f"it lacks {len(missing)} of {len(demanded)} weights, such as {missing[0]!r}"
                )
                if extra := [name for name in found if name not in expected]:
                    fault += f"; it has others, such as {extra[0]!r}"
            faults.append((len(missing) + len(unfit), fault, entry))
    if fitting:
        chosen = most_complete(fitting, expected)
        check_values({name: chosen[name] for name in floating})
        return chosen
    _, fault, entry = min(faults)
    others = ", ".join(name for name in entries if name != entry)
    others = f"; the other entries with tensors fit no better: {others}" if others else ""
    raise DataError(f"does not fit: {f'{entry}: ' if entry else ''}{fault}{others}")


def _is_dense(tensor: Tensor) -> bool:
    plain = tensor.layout is torch.strided and not tensor.is_meta
    return plain and tensor.is_floating_point()


def _misfit(found: Tensor, expected: Tensor) -> str:
    if _is_dense(found):
        return f"has the shape {tuple(found.shape)}, not {tuple(expected.shape)}"
    kind = str(found.dtype if found.layout is torch.strided else found.layout)
    kind = f"quantised ({kind})" if found.is_quantized else kind.removeprefix("torch.")
    kind = "on the device meta" if found.is_meta else kind
    return f"is {kind}, not a dense tensor of floating-point numbers"


def check_values(tensors: Mapping[str, Tensor]) -> None:
    """Check that weights are finite numbers in dense tensors.

    Raises:
        DataError: one is not.
    """
    for name, tensor in tensors.items():
        if not _is_dense(tensor):
            raise DataError(f"does not fit: {name!r} {_misfit(tensor, tensor)}")
        if not tensor.float().isfinite().all():
            raise DataError(f"does not fit: {name!r} contains NaN or infinite values")


def most_complete(
    tables: Mapping[str, dict[str, Tensor]], names: Collection[str]
) -> dict[str, Tensor]:
    """Return the table that has the most of some names, the first of equals.

    If others have as many, with other values, a warning says which one was taken.

    Args:
        tables: by what the warning calls them.
    """
    counts = {label: sum(name in table for name in names) for label, table in tables.items()}
    best, *others = [label for label in tables if counts[label] == max(counts.values())]
    shared = [name for name in names if name in tables[best]]
    differing = [
        label or "no prefix"
        for label in others
        if not all(_is_equal(tables[best][name], tables[label].get(name)) for name in shared)
    ]
    if differing:
        warnings.warn(
            f"of several sets of weights that fit, {best or 'that without a prefix'} was taken, "
            f"not {', '.join(differing)} (averaged before best, then others in the order of the "
            "file, last ones at the end)",
            FsfWarning,
            stacklevel=2,
        )
    return tables[best]


def _is_equal(first: Tensor, second: Tensor | None) -> bool:
    if second is None or first.is_meta or second.is_meta or first.layout is not second.layout:
        return False
    return first.dtype == second.dtype and torch.equal(first.to_dense(), second.to_dense())


def strip_prefix(tensors: dict[str, Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """Remove the prefix of a network's own names, such as ``module.encoder_q.``.

    If there are several such networks, the most complete one is used; of equals, by their names and
    with a warning, one of averaged weights, the best, the first that is not ``encoder_k`` or such.

    >>> strip_prefix({"module.a": torch.ones(1), "fc": torch.ones(1)}, ["a"]).keys()
    dict_keys(['a'])
    """
    first = next(iter(names))
    keys = (key for key in tensors if f".{key}".endswith(f".{first}"))
    prefixes = sorted((key.removesuffix(first) for key in keys), key=_preference)
    tables = {
        prefix: {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        for prefix in prefixes
    }
    return most_complete(tables, names) if prefixes not in ([], [""]) else tensors
