"""Splits of classes into training, validation and test: read from a file or drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsf_datasets._messages import quoted
from fsf_datasets._tables import is_missing, read_table
from fsframework.interfaces import DataError, OptionError
from fsframework.values import normalize, parse_json, read_file

__all__ = ["SplitOptions", "Splits", "disjoint", "split_name", "split_of_name"]

_SPLITS = ("train", "val", "test")
_SPELLINGS = {"train": "train training", "val": "val valid validation", "test": "test testing"}
_OTHER_NAMES = {name: split for split, names in _SPELLINGS.items() for name in names.split()}
Splits = dict[str, tuple[str, ...]]


def split_name(name: str) -> str:
    """Return this project's name of a split, and any other name without spaces around it.

    >>> split_name("Validation"), split_name("TEST "), split_name("Fold 1")
    ('val', 'test', 'Fold 1')
    """
    plain = normalize(name).strip()
    return _OTHER_NAMES.get(plain.casefold(), plain)


def split_of_name(name: str) -> str | None:
    """Return the split that the name of a folder or file means; ``None`` for any other name.

    >>> split_of_name("Validation"), split_of_name("training"), split_of_name("trained")
    ('val', 'train', None)
    """
    return _OTHER_NAMES.get(name.strip().casefold())


@dataclass(frozen=True)
class SplitOptions:
    """The options that define how ``folder`` and ``csv`` split their classes.

    Raises:
        OptionError: the fractions are not three shares that sum to 1, or the seed is negative.
    """

    split: Path | None
    split_fractions: tuple[float, float, float]
    split_seed: int

    def __post_init__(self) -> None:
        shares = self.split_fractions
        # Comparisons written so that NaN fails too.
        if len(shares) != 3 or not all(s >= 0 for s in shares) or not abs(sum(shares) - 1) < 1e-6:
            raise OptionError(
                "split_fractions must be three numbers of at least 0 for train, val and test "
                f"whose sum is 1, not {shares}"
            )
        if self.split_seed < 0:
            raise OptionError(f"split_seed must be at least 0, not {self.split_seed}")

    def splits(self, class_names: Sequence[str], given: Splits | None, where: Path) -> Splits:
        """Return the classes of each split, in the order of ``class_names``.

        The file ``split`` takes precedence, then the splits given by the data, then the draw.

        Args:
            class_names: all classes.
            given: the splits given by the data; ``None`` if there are none.
            where: the data, for messages.

        Raises:
            DataError: the file names a class that does not exist; the message names both.
        """
        if self.split is not None:
            named = _read(self.split, class_names)
            _demand_known(named, class_names, self.split, where)
        elif given is not None:
            named = given
        else:
            named = self._drawn(class_names)
        return {
            split: tuple(name for name in class_names if name in members)
            for split, members in ((split, set(names)) for split, names in named.items())
        }

    def _drawn(self, class_names: Sequence[str]) -> Splits:
        order = np.random.default_rng(self.split_seed).permutation(len(class_names))
        names = [sorted(class_names)[i] for i in order]
        ends = np.cumsum(_counts(len(names), self.split_fractions)).tolist()
        parts = zip(_SPLITS, [0, *ends], ends, strict=False)
        return {split: tuple(names[start:end]) for split, start, end in parts if end > start}


def _counts(n_classes: int, fractions: Sequence[float]) -> list[int]:
    """Return the number of classes of train, val and test.

    Shares are rounded down, but to at least one class. Remaining classes go to test, then val, then
    train; surplus classes are taken from the largest split, val before train before test.

    >>> _counts(100, (0.64, 0.16, 0.2)), _counts(16, (0.64, 0.16, 0.2))
    ([64, 16, 20], [10, 2, 4])
    >>> [_counts(n, (0.64, 0.16, 0.2)) for n in (1, 2, 3, 4, 5)]
    [[0, 0, 1], [1, 0, 1], [1, 1, 1], [2, 1, 1], [3, 1, 1]]
    """
    shares = dict(zip(_SPLITS, fractions, strict=True))
    counts = {
        split: max(1, math.floor(share * n_classes + 1e-6)) if share > 0 else 0
        for split, share in shares.items()
    }
    for split in ("test", "val", "train"):
        if sum(counts.values()) < n_classes and shares[split] > 0:
            counts[split] += 1
    while sum(counts.values()) > n_classes:
        counts[max(("val", "train", "test"), key=lambda split: counts[split])] -= 1
    return [counts[split] for split in _SPLITS]


def _read(file: Path, class_names: Sequence[str]) -> Splits:
    """Read a split from a JSON or CSV file, depending on the file extension.

    Names are in Unicode NFC, and without the spaces around them unless a class has these.

    Raises:
        DataError: the file is missing or damaged, or puts a class into two splits.
    """
    readers = {".json": _from_json, ".csv": _from_csv}
    if (reader := readers.get(file.suffix.lower())) is None:
        raise DataError(f"{file}: the name of a split file must end in .json or .csv")
    known = set(class_names)
    pairs = [(normalize(name), split) for name, split in reader(file)]
    return disjoint([(n if n in known else n.strip(), split) for n, split in pairs], str(file))


def _from_json(file: Path) -> list[tuple[str, str]]:
    try:
        raw = parse_json(read_file(file))
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise DataError(f"{file}: not JSON ({error})") from None
    if not isinstance(raw, dict):
        raise DataError(f'{file}: must contain {{"train": [class, ...], ...}}')
    for split, names in raw.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError(f"{file}: the split {split!r} must be a list of class names")
    return [(name, split) for split, names in raw.items() for name in names]


def _from_csv(file: Path) -> list[tuple[str, str]]:
    table = read_table(file, ["split"])
    columns = {name.casefold(): cells for name, cells in table.columns.items()}
    if (names := columns.get("class") or columns.get("label")) is None:
        raise DataError(f"{file}: row 1 must name a column class or label, not {[*table.columns]}")
    for row, name in zip(table.rows.tolist(), names, strict=True):
        if is_missing(name):
            raise DataError(f"{file}: row {row} has a missing class: {name!r}")
    return list(zip(names, columns["split"], strict=True))


def disjoint(pairs: Iterable[tuple[str, str]], where: str) -> Splits:
    """Return the classes of each split from pairs (class, split); equal pairs count once.

    Raises:
        DataError: a class is in two splits.
    """
    split_of: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    for name, raw in pairs:
        split = split_name(raw)
        if name not in split_of:
            split_of[name] = split
            members.setdefault(split, []).append(name)
        elif split_of[name] != split:
            raise DataError(
                f"{where}: the class {name!r} is in the splits {split_of[name]!r} and "
                f"{split!r}; each class must be in one split"
            )
    return {split: tuple(names) for split, names in members.items()}


def _demand_known(named: Splits, class_names: Sequence[str], file: Path, where: Path) -> None:
    known = set(class_names)
    for split, names in named.items():
        unknown = [name for name in names if name not in known]
        if unknown:
            raise DataError(
                f"{file}: the split {split!r} names classes that are not in {where}: "
                f"{quoted(unknown)}"
            )
