"""Reading CSV files, with row numbers as a spreadsheet shows them."""

from __future__ import annotations

import contextlib
import csv
import functools
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fsf_datasets._messages import first_few, kind_of, quoted, reason
from fsf_datasets._trees import Tree
from fsf_datasets.file_names import has_control_character
from fsframework.interfaces import DataError
from fsframework.values import (
    IntArray,
    Texts,
    open_file,
    parse_json,
    read_csv,
    read_file,
    text_lines,
)

__all__ = ["Table", "is_missing", "label_fault", "read_image_lists", "read_table", "table_lines"]

_MISSING = r"^([+-]*[nN][aA][nN]|NaT|<NA>|#N/A)?$"
"""Spellings of a missing value in the tables of pandas, R and spreadsheets."""

_MOST_CHARACTERS = 500
"""Length of a label."""

_CONTROL = r"[\x00-\x1f\x7f-\x9f\x{2028}-\x{202e}\x{2066}-\x{2069}]"
_SUSPICIOUS = rf"{_MISSING}|{_CONTROL}|.{{{_MOST_CHARACTERS}}}"
"""What ``label_fault`` may refuse, in the syntax of Arrow."""

_OTHER_NAMES = {
    "path": (
        *("filename", "file_name", "file", "filepath", "file_path"),
        *("image", "image_path", "img_path", "image_name"),
    ),
    "label": ("class", "class_name", "category"),
}
"""Names of columns by which other programs mean these."""


@dataclass(frozen=True)
class Table:
    """Columns of text by name, and the number of each row in the file (the header is row 1)."""

    columns: dict[str, Texts]
    rows: IntArray


def table_lines(tree: Tree, name: str) -> Generator[list[str]]:
    """Yield the cells of each row of a table in a CSV, JSON lines or text file.

    Objects give their keys first; text is separated by white space.

    Raises:
        DataError: the file cannot be read, or is not what its name says.
    """
    place = tree.place(name)
    ending = name.casefold().rpartition(".")[2]
    what, read = _READERS.get(ending, ("a text file", _text_cells))
    try:
        with contextlib.closing(text_lines(tree.open(name))) as lines:
            yield from read(lines)
    except (OSError, ValueError) as error:
        raise DataError(f"{place}: not {what} ({reason(error)})") from None
    except csv.Error as error:
        why = str(error).replace("unexpected end of data", "a quotation mark is not closed")
        raise DataError(f"{place}: not {what} ({why})") from None


def _csv_cells(lines: Iterable[str]) -> Iterator[list[str]]:
    for cells in csv.reader(lines, strict=True, skipinitialspace=True):
        yield [cell.strip() for cell in cells]


def _json_cells(lines: Iterable[str]) -> Iterator[list[str]]:
    header: list[str] = []
    for line in lines:
        row = parse_json(line)
        if not isinstance(row, dict):
            raise ValueError("each line must be an object")
        if not header:
            header = [*row]
            yield header
        yield [str(row.get(name, "")) for name in header]


def _text_cells(lines: Iterable[str]) -> Iterator[list[str]]:
    return (line.split() for line in lines if line.strip())


_READERS: dict[str, tuple[str, Callable[[Iterable[str]], Iterator[list[str]]]]] = {
    "csv": ("a CSV file", _csv_cells),
    "jsonl": ("JSON lines", _json_cells),
}


def read_table(file: Path, needed: Sequence[str], known: Sequence[str] = ()) -> Table:
    """Read a CSV file that has the ``needed`` columns; spaces around cells are removed.

    A first column without a name, the index that pandas writes, is left out. A needed column may
    have another usual name, in any letter case, if it is the only one; the letter case of
    ``known`` columns, which may be missing, is ignored.

    Raises:
        DataError: the file or a column is missing, or rows are wrong; the message lists the first
            of them.
    """
    head = b"path"
    with contextlib.suppress(OSError), open_file(file) as stream:
        head = stream.read(8) or head
    if kind := kind_of(head):
        raise DataError(f"{file}: is {kind}, not CSV; save it as CSV in UTF-8")
    naming = functools.partial(_names_of, needed=needed, known=known, file=file)
    columns, rows, faults = read_csv(file, naming)
    header = [*columns]
    names = naming(header)
    columns = {names.get(name, name): columns[name] for name in header if name}
    faults |= _faults({name: columns[name] for name in needed}, rows)
    if faults:
        wrong = [f"row {number} {faults[number]}" for number in sorted(faults)]
        raise DataError(f"{file}: {first_few(wrong, joint='; ')}")
    if not rows.size:
        raise DataError(f"{file}: has no rows below its header")
    return Table({name: Texts([columns[name]]) for name in columns}, rows)


class _ImageList(msgspec.Struct):
    """A file list of CloserLookFewShot: paths, and labels that number the names."""

    label_names: list[str]
    image_names: list[str]
    image_labels: list[int]


_LISTED_SPLITS = {"base": "train", "val": "val", "novel": "test"}


def read_image_lists(file: Path, needed: Sequence[str], _known: Sequence[str] = ()) -> Table:
    """Read a file list of CloserLookFewShot, or all three if it is one of them.

    Args:
        file: a list; of ``base.json``, ``val.json`` and ``novel.json`` those beside it are read
            too, and give the column ``split``.
        needed: the columns of paths and of labels.

    Raises:
        DataError: a file is missing or not such a list, or a label is not one.
    """
    splits = _LISTED_SPLITS if file.stem in _LISTED_SPLITS else {file.stem: ""}
    lists = {split: file.with_name(f"{stem}.json") for stem, split in splits.items()}
    columns: dict[str, list[str]] = {name: [] for name in (*needed, "split")}
    for split, path in lists.items():
        if path != file and not path.exists():
            continue
        try:
            listed = msgspec.json.decode(read_file(path), type=_ImageList)
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path}: not a file list with label_names, image_names and image_labels "
                f"({reason(error)}); tables are CSV files"
            ) from None
        names = dict(enumerate(Texts(listed.label_names)))
        if twice := sorted(n for n, times in Counter(names.values()).items() if times > 1):
            raise DataError(f"{path}: label_names has a name more than once: {quoted(twice)}")
        labels = [names.get(label, "") for label in listed.image_labels]
        wrong = [n for n, label in enumerate(labels, start=1) if label_fault(label)]
        if wrong or len(labels) != len(listed.image_names) or not labels:
            raise DataError(
                f"{path}: has {len(listed.image_names):,} image_names and {len(labels):,} "
                f"image_labels, {len(wrong):,} without a name in label_names"
            )
        for column, cells in zip(columns.values(), (listed.image_names, labels), strict=False):
            column += cells
        columns["split"] += [split] * len(labels)
    if not any(columns["split"]):
        del columns["split"]
    rows = np.arange(1, len(columns[needed[0]]) + 1)
    return Table({name: Texts(cells) for name, cells in columns.items()}, rows)


def _names_of(
    header: Sequence[str], needed: Sequence[str], known: Sequence[str], file: Path
) -> dict[str, str]:
    """Return the needed and known names of the columns that have another name.

    Raises:
        DataError: a needed column is missing, or a name is missing or appears twice.
    """
    names: dict[str, str] = {}
    for wanted in needed:
        usual = (wanted, *_OTHER_NAMES.get(wanted, ()))
        same = [name for name in header if name.casefold() in usual]
        exact = [name for name in same if name.casefold() == wanted]
        if wanted not in header and len(exact or same) == 1:
            names[(exact or same)[0]] = wanted
    missing = [name for name in needed if name not in (*header, *names.values())]
    if missing:
        raise DataError(
            f"{file}: row 1 must name the columns {' and '.join(needed)}, separated by commas; "
            f"it lacks {' and '.join(missing)}: {first_few(header, most=20) or 'an empty row'}"
        )
    for number, name in enumerate(header, start=1):
        if not name and number > 1:
            raise DataError(f"{file}: column {number} has no name in row 1")
        if name in header[: number - 1]:
            raise DataError(f"{file}: row 1 names the column {reprlib.repr(name)} twice")
    for wanted in known:
        same = [name for name in header if name.casefold() == wanted]
        if len(same) > 1:
            raise DataError(f"{file}: row 1 names the column {wanted} twice: {first_few(same)}")
        names |= dict.fromkeys(same, wanted)
    return names


def _faults(needed: Mapping[str, Any], rows: IntArray) -> dict[int, str]:
    """Return by its number what is wrong with each row whose needed cells are not text."""
    import pyarrow.compute as pc

    unusual = [np.asarray(pc.match_substring_regex(own, _SUSPICIOUS)) for own in needed.values()]
    places = np.flatnonzero(np.any(unusual, axis=0)).tolist()
    found = [_fault({name: own[place].as_py() for name, own in needed.items()}) for place in places]
    return {row: why for row, why in zip(rows[places].tolist(), found, strict=True) if why}


def _fault(cells: Mapping[str, str]) -> str:
    """Return what is wrong with the needed cells of a row; nothing if they are text."""
    empty = [name for name, cell in cells.items() if not cell]
    if empty:
        return f"has no {' and no '.join(empty)}"
    faults = {name: label_fault(cell, line_ends=name == "path") for name, cell in cells.items()}
    for name, why in faults.items():
        if why:
            return f"has {reprlib.repr(cells[name])} for its {name}, which {why}"
    return ""


def label_fault(label: str, *, line_ends: bool = False) -> str:
    r"""Return why a text cannot be a label, or a path if it may have line ends; empty if it can.

    >>> label_fault("NA"), label_fault("a\0"), label_fault("nan")
    ('', 'has a control character', 'stands for a missing value')
    """
    if not label.strip():
        return "is blank"
    if is_missing(label):
        return "stands for a missing value"
    if has_control_character("".join(label.split()) if line_ends else label):
        return "has a control character"
    if not line_ends and len(label) > _MOST_CHARACTERS:
        return f"has {len(label):,} characters, more than {_MOST_CHARACTERS}"
    return ""


def is_missing(cell: str) -> bool:
    """Return whether a cell is empty or holds what programs write for a missing value.

    >>> is_missing("NaN"), is_missing("<NA>"), is_missing("naan")
    (True, True, False)
    """
    return re.search(_MISSING, cell) is not None
