"""A table of images with their paths, labels and metadata."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np

from fsf_datasets._image_files import ImageFileDataset, files_digest
from fsf_datasets._messages import first_few
from fsf_datasets._splits import SplitOptions, Splits, split_name
from fsf_datasets._tables import is_missing, read_table
from fsf_datasets._trees import FolderTree, open_tree
from fsframework.interfaces import DataError
from fsframework.values import digest_of

__all__ = ["CsvTable"]


class CsvTable(ImageFileDataset):
    """Image files listed in a CSV file with the columns ``path`` and ``label``.

    Paths are relative to ``root``. A column ``split`` (``train``, ``val``, ``test`` or another
    name; ``valid`` and ``validation`` mean ``val``; empty means no split) assigns the class of each
    row to a split, unless the option ``split`` is given. All other columns are metadata. The text
    is UTF-8; spaces around cells and empty lines are ignored. The images need not exist until they
    are read. Messages number rows as a spreadsheet does: the header is row 1.

    Args:
        path: the CSV file.
        root: the folder or ``.zip`` archive that paths are relative to; by default the folder of
            the CSV file.
        split: a file with the classes of each split, JSON ``{"train": [class, ...], "val": ...}``
            or CSV with the columns ``class`` (or ``label``) and ``split``. Classes that it does not
            name are in no split.
        split_fractions: shares of train, val and test if classes are drawn because neither the
            column nor the file assigns them. Shares are rounded down, but to at least one class;
            remaining classes go to test, then val, then train.
        split_seed: seed of that draw.

    Raises:
        DataError: the table is missing, damaged or contradicts itself; the message names the rows.
        OptionError: an option is outside its range.
    """

    argument = "path"

    def __init__(
        self,
        *,
        path: Path,
        root: Path | None = None,
        split: Path | None = None,
        split_fractions: tuple[float, float, float] = (0.64, 0.16, 0.2),
        split_seed: int = 0,
    ) -> None:
        self.path = Path(path)
        self.root = None if root is None else Path(root)
        self.split = None if split is None else Path(split)
        self.split_fractions = split_fractions
        self.split_seed = split_seed
        options = SplitOptions(self.split, split_fractions, split_seed)

        table = read_table(self.path, ["path", "label"])
        columns, self._rows = table.columns, table.rows
        paths, classes = columns.pop("path"), columns.pop("label")
        self.keys = tuple(PurePosixPath(path).as_posix() for path in paths)
        _demand_unique(self.keys, self._rows, self.path)
        self.class_names = tuple(sorted(set(classes)))
        position = {name: i for i, name in enumerate(self.class_names)}
        self.labels = np.array([position[name] for name in classes], dtype=np.int64)
        column = columns.pop("split", None)
        given = None
        if column is not None and self.split is None:
            given = _splits_by_row(classes, column, self._rows, self.path)
        self.splits = options.splits(self.class_names, given, self.path)
        self.metadata = columns
        folder = self.path.parent if self.root is None else self.root
        # An archive lists its files; those of a folder are searched for only when needed.
        # Path.is_file raises an error for names that are too long.
        archive = folder.suffix.lower() == ".zip" and os.path.isfile(folder)  # noqa: PTH113
        self._tree = open_tree(folder) if archive else FolderTree(folder, walk=False)
        self._files = self.keys

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        """A digest that changes with the table and with the size or time of any image file."""
        return digest_of(
            "csv",
            self.keys,
            self.class_names,
            self.labels,
            *(part for split_and_classes in self.splits.items() for part in split_and_classes),
            self.pixels_fingerprint,
        )

    @cached_property
    def pixels_fingerprint(self) -> str:  # type: ignore[override]
        """A digest that changes only with the files."""
        return digest_of("csv", self.keys, files_digest(self._tree, self._files))

    def _place(self, index: int) -> str:
        return f"{self.path}, row {self._rows[index]}: {super()._place(index)}"


def _demand_unique(keys: Sequence[str], rows: Sequence[int], file: Path) -> None:
    first: dict[str, int] = {}
    double: list[str] = []
    for key, row in zip(keys, rows, strict=True):
        if first.setdefault(key, row) != row:
            double.append(f"{key!r} is in rows {first[key]} and {row}")
    if double:
        raise DataError(f"{file}: {first_few(double, joint='; ')}; each path must appear once")


def _splits_by_row(
    classes: Sequence[str], column: Sequence[str], rows: Sequence[int], file: Path
) -> Splits:
    """Return the classes of each split.

    Raises:
        DataError: rows of one class are in different splits.
    """
    first: dict[str, tuple[str, int]] = {}
    wrong: dict[str, str] = {}
    for name, raw, row in zip(classes, column, rows, strict=True):
        split = "" if is_missing(raw) else split_name(raw)
        known, where = first.setdefault(name, (split, row))
        if known != split and name not in wrong:
            wrong[name] = f"{name!r} is in {known!r} in row {where} but in {split!r} in row {row}"
    if wrong:
        raise DataError(
            f"{file}: {first_few(list(wrong.values()), joint='; ')}; each label must be in one "
            "split"
        )
    members: dict[str, list[str]] = {}
    for name, (split, _) in first.items():
        members.setdefault(split, []).append(name)
    members.pop("", None)
    return {split: tuple(names) for split, names in members.items()}
