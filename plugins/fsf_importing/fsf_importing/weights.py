"""The weights that an importer takes from a file of another library."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from torch import Tensor

from fsframework.errors import naming
from fsframework.interfaces import DataError
from fsframework.values.weights import check_values, most_complete, read_weights

__all__ = ["one_line", "read_named"]


def read_named(
    path: Path, names: Collection[str], ignored: tuple[str, ...] = ()
) -> dict[str, Tensor]:
    """Read exactly the weights of some names, whichever entry of a file contains them.

    ``module`` of DataParallel is no part of a name.

    Args:
        path: of the file.
        names: as the other library has them.
        ignored: beginnings of further names that a file may have.

    Raises:
        DataError: the file is missing or damaged, or a weight is missing, unknown or there twice.
    """
    entries = {}
    for entry, tensors in read_weights(path).items():
        entries[entry] = found = dict[str, Tensor]()
        for key, tensor in tensors.items():
            name = ".".join(part for part in key.split(".") if part != "module")
            if name in found:
                raise DataError(f"{path}: contains the weight {name!r} twice")
            found[name] = tensor
    best = most_complete(entries, names)
    stored = {name: tensor for name, tensor in best.items() if not name.startswith(ignored)}
    faults = []
    if missing := [name for name in names if name not in stored]:
        faults.append(f"missing: {', '.join(missing)}")
    if left_over := [name for name in stored if name not in names]:
        faults.append(f"not in the model: {', '.join(left_over)}")
    if faults:
        raise DataError(f"{path}: weights {'; '.join(faults)}")
    with naming(path):
        check_values({n: t for n, t in stored.items() if not n.endswith("num_batches_tracked")})
    return stored


def one_line(reason: str) -> str:
    """Return a long message on one line."""
    text = " ".join(reason.split()) or "it is empty or damaged"
    return text if len(text) <= 200 else f"{text[:200]}..."
