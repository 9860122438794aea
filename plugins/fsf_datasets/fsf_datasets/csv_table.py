"""A table of images with their paths, labels and metadata."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np

from fsf_datasets._decoding import check_pixel_range
from fsf_datasets._foreign_paths import files_of
from fsf_datasets._image_files import ImageFileDataset, files_digest
from fsf_datasets._messages import first_few
from fsf_datasets._splits import SplitOptions, Splits, split_name
from fsf_datasets._tables import is_missing, read_image_lists, read_table
from fsf_datasets._trees import FolderTree, Tree, open_tree
from fsframework.interfaces import DataError
from fsframework.values import IntArray, Texts, digest_of

__all__ = ["CsvTable"]

_UNUSUAL = r"\\|^/|(^|/)\.\./|^[A-Za-z][A-Za-z0-9+.-]*:"
"""Paths with backslashes or a folder above, absolute ones, and addresses."""


class CsvTable(ImageFileDataset):
    """Image files listed in a CSV file with the columns ``path`` and ``label``.

    Paths are relative to ``root``. A column ``split`` (``train``, ``val``, ``test`` in any letter
    case, ``training``, ``validation``, ``testing`` or another name; empty means no split) assigns
    the class of each row to a split, unless the option ``split`` is given. All other columns are
    metadata; a first one without a name, the index that pandas writes, is ignored, and so is the
    letter case of ``split`` and ``words``. The text is UTF-8; spaces around cells and empty lines
    are ignored. The images need not exist until they are read.

    A path may have the letter case, the Unicode form and the backslashes of another system, and an
    absolute one that does not exist here may begin above ``root``. The file lists of
    CloserLookFewShot, ``base.json`` with ``val.json`` and ``novel.json`` beside it, are read
    likewise; they give the splits. Messages number rows as a spreadsheet does: the header is row 1.

    Args:
        path: the CSV file, or one of the file lists.
        root: the folder or ``.zip`` archive that paths are relative to; by default the folder of
            the CSV file.
        split: a file with the classes of each split, JSON ``{"train": [class, ...], "val": ...}``
            or CSV with the columns ``class`` (or ``label``) and ``split``. Classes that it does not
            name are in no split.
        split_fractions: shares of train, val and test if classes are drawn because neither the
            column nor the file assigns them. Shares are rounded down, but to at least one class;
            remaining classes go to test, then val, then train.
        split_seed: seed of that draw.
        pixel_range: the values that are black and white in images of more than 8 bits per channel,
            as in the data set ``folder``.

    Raises:
        DataError: the table is missing, damaged or contradicts itself; the message names the rows.
        OptionError: an option is outside its range.
    """

    argument = "path"
    _takes_pixel_range = True

    def __init__(
        self,
        *,
        path: Path,
        root: Path | None = None,
        split: Path | None = None,
        split_fractions: tuple[float, float, float] = (0.64, 0.16, 0.2),
        split_seed: int = 0,
        pixel_range: tuple[float, float] | None = None,
    ) -> None:
        self.path = Path(path)
        self.root = None if root is None else Path(root)
        self.split = None if split is None else Path(split)
        self.split_fractions = split_fractions
        self.split_seed = split_seed
        self.pixel_range = self._pixel_range = check_pixel_range(pixel_range)
        options = SplitOptions(self.split, split_fractions, split_seed)

        read = read_image_lists if self.path.suffix.lower() == ".json" else read_table
        table = read(self.path, ["path", "label"], ["split", "words"])
        columns, self._rows = table.columns, table.rows
        paths = self.keys = _plain(columns.pop("path"))
        self.labels, self.class_names = _codes(columns.pop("label"))
        column = columns.pop("split", None)
        given = None
        if column is not None and self.split is None:
            by_row = self.labels, column, self._rows
            given = _splits_by_row(self.class_names, *by_row, self.path)
        self.splits = options.splits(self.class_names, given, self.path)
        self.metadata = columns
        folder = self.path.parent if self.root is None else self.root
        # An archive lists its files; those of a folder are searched for only when needed.
        # Path.is_file raises an error for names that are too long.
        archive = folder.suffix.lower() == ".zip" and os.path.isfile(folder)  # noqa: PTH113
        self._tree = open_tree(folder) if archive else FolderTree(folder, walk=False)
        files = files_of(paths, self._rows, self.path, self._tree)
        _demand_unique(self.keys, files, self._rows, self.path, self._tree)
        # The files of a folder are opened as the table writes them.
        same = archive or files.written is files.array
        self._files = files if same else tuple(files.written.to_pylist())

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
        """A digest that changes only with the files and the range of their values."""
        files = files_digest(self._tree, self._files)
        return digest_of("csv", self.keys, files, *map(str, self.pixel_range or ()))

    def _place(self, index: int) -> str:
        return f"{self.path}, row {self._rows[index]}: {super()._place(index)}"


def _codes(texts: Texts) -> tuple[IntArray, tuple[str, ...]]:
    """Return each text as an index into the different texts, and these, sorted."""
    encoded = texts.array.dictionary_encode()
    different = encoded.dictionary.to_pylist()
    order = np.array(sorted(range(len(different)), key=different.__getitem__))
    return np.argsort(order)[np.asarray(encoded.indices)], tuple(different[i] for i in order)


def _plain(paths: Texts) -> Texts:
    """Return paths without doubled slashes and dots that stand for a folder itself."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unusual = pc.match_substring_regex(paths.written, r"[^:/]//|(^|/)\.(/|$)|/$")
    if not unusual.true_count:
        return paths
    plain = [PurePosixPath(path).as_posix() for path in paths.written.filter(unusual).to_pylist()]
    texts = pa.array(plain, pa.large_string())
    return Texts([pc.replace_with_mask(paths.written, unusual, texts)])


def _demand_unique(keys: Texts, files: Texts, rows: IntArray, table: Path, tree: Tree) -> None:
    """Refuse two rows of one key or one file, also in two spellings.

    Files are compared by their place if a path is spelt unusually, else by their spelling.

    Raises:
        DataError: there are such rows.
    """
    import pyarrow.compute as pc

    unusual = pc.any(pc.match_substring_regex(keys.array, _UNUSUAL)).as_py()
    spelt = Texts([*map(tree.folded_place, files)] if unusual else [pc.utf8_lower(files.array)])
    if not (places := spelt.repeated).size:
        return
    double = []
    first_rows: dict[str, int] = {}
    again = set(spelt.take(places))
    for place, (spelling, key, file) in enumerate(zip(spelt, keys, files, strict=True)):
        if spelling in again:
            real = os.path.realpath(tree.place(file))
            first = min(first_rows.setdefault(name, place) for name in (key, real))
            if first != place:
                other = "is" if key == keys[first] else f"is the file {keys[first]!r},"
                double.append(f"{key!r} {other} in rows {rows[first]} and {rows[place]}")
    if double:
        raise DataError(f"{table}: {first_few(double, joint='; ')}; each path must appear once")


def _splits_by_row(
    class_names: Sequence[str], labels: IntArray, column: Texts, rows: IntArray, file: Path
) -> Splits:
    """Return the classes of each split.

    Raises:
        DataError: rows of one class are in different splits.
    """
    spelt, spellings = _codes(column)
    known = ["" if is_missing(raw) else split_name(raw) for raw in spellings]
    split = np.array([known.index(name) for name in known])[spelt]
    first = np.unique(labels, return_index=True)[1]
    apart = np.flatnonzero(split != split[first][labels])
    earliest = apart[np.sort(np.unique(labels[apart], return_index=True)[1])]
    if earliest.size:
        wrong = [
            f"{class_names[labels[row]]!r} is in {known[split[home]]!r} in row {rows[home]} but "
            f"in {known[split[row]]!r} in row {rows[row]}"
            for row, home in zip(earliest, first[labels[earliest]], strict=True)
        ]
        raise DataError(f"{file}: {first_few(wrong, joint='; ')}; each label must be in one split")
    members: dict[str, list[str]] = {}
    for label in np.argsort(first):
        members.setdefault(known[split[first[label]]], []).append(class_names[label])
    members.pop("", None)
    return {name: tuple(classes) for name, classes in members.items()}
