"""The layouts of the files of a data set: folders, tables or arrays."""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fsf_datasets._arrays import find_cifar, find_pickles
from fsf_datasets._class_names import ClassNames
from fsf_datasets._declaration import Layout, placeholders
from fsf_datasets._found import Found
from fsf_datasets._messages import counted, first_few, quoted
from fsf_datasets._patterns import search_names
from fsf_datasets._splits import split_of_name
from fsf_datasets._tables import is_missing, label_fault, table_lines
from fsf_datasets._trees import Tree
from fsf_datasets.file_names import is_image
from fsframework.interfaces import DataError

__all__ = ["find"]


def find(layout: Layout, tree: Tree, names: ClassNames | None) -> Found:
    """Return the images that a layout finds; none if the files have another layout.

    Args:
        layout: the layout to try.
        tree: the files.
        names: the published classes; ``None`` to accept any class.

    Raises:
        DataError: the files have this layout, but a file is damaged or two folders are one class.
    """
    found = _FINDERS[layout.kind](layout, tree, names)
    if layout.ignore_others and found.files:
        found.unknown.clear()
    return found


# --- folders ---------------------------------------------------------------------------------


@dataclass
class _Place:
    """The class and split that the folder of an image gives."""

    name: str | None
    written: str
    levels: Mapping[str, str]
    split: str | None


def _find_folders(layout: Layout, tree: Tree, names: ClassNames | None) -> Found:
    found = Found(layout.name)
    members: dict[str, list[str]] = defaultdict(list)
    for file in _images_within(tree, layout):
        members[file.rpartition("/")[0]].append(file)
    if not members:
        return found
    parts = {folder: tuple(folder.split("/")) if folder else () for folder in members}
    skipped = _common(parts.values(), len(layout.levels))
    by_split = _are_split_folders(parts.values(), skipped, len(layout.levels))
    spellings: dict[str, dict[str, str]] = defaultdict(dict)
    levels: list[Mapping[str, str]] = []
    loose = 0
    for folder, files in members.items():
        inner = parts[folder][skipped:]
        if len(inner) < len(layout.levels) + by_split:
            loose += len(files)
            continue
        place = _place(inner, by_split, layout, names)
        if place.name is None:
            found.unknown[place.written] += len(files)
            continue
        spellings[place.name].setdefault(place.written, folder)
        if place.split is not None:
            found.placed[place.name].add(place.split)
        found.add(place.name, files)
        levels += [place.levels] * len(files)
    _add_columns(found, layout, levels, _listed(tree, layout))
    if layout.merged:
        _merge(found)
    _demand_one_spelling(spellings, tree)
    if loose:
        found.problems.append(f"left out, not in a class folder: {counted(loose, 'image')}")
    return found


def _demand_one_spelling(spellings: Mapping[str, Mapping[str, str]], tree: Tree) -> None:
    for name, written in spellings.items():
        if len(written) > 1:
            raise DataError(
                f"{tree.root}: the folders {quoted(list(written.values()))} all mean the class "
                f"{name!r}; keep one"
            )


def _images_within(tree: Tree, layout: Layout) -> Sequence[str]:
    images: Sequence[str] = tree.images
    if layout.within is not None:
        mark = f"/{layout.within.casefold()}/"
        images = [name for name in images if mark in f"/{name.casefold()}"] or images
    if layout.skip:
        images = [n for n in images if not any(fnmatchcase(n, one) for one in layout.skip)]
    return images


def _common(folders: Iterable[tuple[str, ...]], levels: int) -> int:
    """Return the number of leading folders shared by all images, leaving at least ``levels``."""
    deep = [folder for folder in folders if len(folder) >= levels]
    if not deep:
        return 0
    most = min(len(folder) for folder in deep) - levels
    depth = 0
    while depth < most and len({folder[depth] for folder in deep}) == 1:
        depth += 1
    return depth


def _are_split_folders(folders: Iterable[tuple[str, ...]], skipped: int, levels: int) -> bool:
    """Return whether the outermost folders that differ are named train, val and test."""
    inner = [folder[skipped:] for folder in folders]
    return all(len(f) > levels and split_of_name(f[0]) is not None for f in inner if f)


def _place(
    inner: tuple[str, ...], by_split: bool, layout: Layout, names: ClassNames | None
) -> _Place:
    """Return the class of an image: the innermost of its folders that is a known class."""
    first, depth = int(by_split), len(layout.levels)
    starts = range(len(inner) - depth, first - 1, -1)
    nearest: _Place | None = None
    for start in starts:
        levels = dict(zip(layout.levels, inner[start : start + depth], strict=True))
        written = layout.class_.format_map(levels)
        name = written if names is None else names(written)
        above = [split for part in inner[:start] if (split := split_of_name(part))]
        place = _Place(name, written, levels, above[-1] if above else None)
        if name is not None:
            return place
        nearest = nearest or place
    assert nearest is not None
    return nearest


def _add_columns(
    found: Found,
    layout: Layout,
    levels: Sequence[Mapping[str, str]],
    listed: Mapping[str, Mapping[str, str]],
) -> None:
    """Add the columns of a layout, from the levels of each image, the pattern and the lists."""
    if not layout.columns:
        return
    values = list(levels)
    for column, held in listed.items():
        depth = len(layout.levels) + 1
        values = [
            {**own, column: held.get(_end(file, depth), "")}
            for own, file in zip(values, found.files, strict=True)
        ]
    if layout.pattern is not None:
        matches = search_names(layout.pattern, found.files)
        found.unmatched = [f for f, m in zip(found.files, matches, strict=True) if m is None]
        none = dict.fromkeys(layout.pattern.groupindex, "")
        values = [{**own, **(m or none)} for own, m in zip(values, matches, strict=True)]
    for column, template in layout.columns.items():
        if column not in layout.lists or listed[column]:
            found.columns[column] = [template.format_map(value) for value in values]


def _listed(tree: Tree, layout: Layout) -> dict[str, dict[str, str]]:
    """Return for each column of lists the value of every image that a list names.

    An image is known by the end of its path, because lists hold paths of other machines too.
    """
    depth = len(layout.levels) + 1
    found: dict[str, dict[str, str]] = {}
    for column, patterns in layout.lists.items():
        held = found[column] = {}
        for value, pattern in patterns.items():
            for name in tree.names:
                if fnmatchcase(name, pattern):
                    for cells in table_lines(tree, name):
                        # A number after the path is the class.
                        path = " ".join(cells[:-1] if cells[-1].isdecimal() else cells)
                        held[_end(path, depth)] = value
    return found


def _end(path: str, parts: int) -> str:
    return "/".join(path.split("/")[-parts:])


def _merge(found: Found) -> None:
    """Make images of one class with the same file name one; its words are all its contexts."""
    contexts: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    rows = zip(found.classes, found.files, found.columns["context"], strict=True)
    for index, (name, file, context) in enumerate(rows):
        contexts[name, _end(file, 1)].setdefault(context, index)
    found.keep([min(places.values()) for places in contexts.values()])
    found.columns["words"] = [";".join(places) for places in contexts.values()]


# --- tables ----------------------------------------------------------------------------------


@dataclass
class _Row:
    """An image in a table: its file, its class and its metadata."""

    file: str
    label: str
    columns: Mapping[str, str]
    matched: bool


def _find_tables(layout: Layout, tree: Tree, names: ClassNames | None) -> Found:
    found = Found(layout.name)
    tables = [table for name in layout.tables if (table := tree.nearest(name)) is not None]
    if not tables:
        return found
    images = _Images(tree)
    joined = _joined(tree, layout)
    rows: dict[str, dict[str, _Row]] = defaultdict(dict)
    for table in tables:
        missing: list[str] = []
        ambiguous: list[str] = []
        split = split_of_name(table.rpartition("/")[2].partition(".")[0])
        for row in _rows(tree, table, layout, joined):
            name = row.label if names is None else names(row.label)
            if name is None:
                found.unknown[row.label] += 1
                continue
            if split is not None:
                found.placed[name].add(split)
            places = images.find(row.file, row.label, table)
            if len(places) == 1:
                rows[name].setdefault(places[0], row)
            else:
                (ambiguous if places else missing).append(row.file)
        found.problems += _not_found(table.rpartition("/")[2], missing, ambiguous)
    for name, own in rows.items():
        found.add(name, list(own))
    kept = [row for own in rows.values() for row in own.values()]
    for column in kept[0].columns if kept else ():
        found.columns[column] = [row.columns[column] for row in kept]
    found.unmatched = [row.file for row in kept if not row.matched]
    further = [table for name in layout.join if (table := tree.nearest(name)) is not None]
    found.sources = (*tables, *further)
    return found


def _not_found(table: str, missing: Sequence[str], ambiguous: Sequence[str]) -> Iterator[str]:
    if missing:
        yield f"{table} lists {counted(len(missing), 'missing image')}: {quoted(missing)}"
    if ambiguous:
        yield (
            f"left out, listed in {table} but found more than once: "
            f"{counted(len(ambiguous), 'image')}: {quoted(ambiguous)}"
        )


class _Images:
    """Image files by file name, ignoring case, with or without an extension."""

    def __init__(self, tree: Tree) -> None:
        self._by_stem: dict[str, list[str]] = defaultdict(list)
        for name in tree.images:
            self._by_stem[name.rpartition("/")[2].rpartition(".")[0].casefold()].append(name)

    def find(self, file: str, label: str, table: str) -> list[str]:
        """Return the images that a row may mean: exactly one if it is unambiguous."""
        last = file.rpartition("/")[2].casefold()
        same = self._by_stem.get(last.rpartition(".")[0] or last, [])
        found = [name for name in same if name.casefold().endswith(last)]
        if not found:  # named without an extension, or with that of another format
            found = self._by_stem.get(last, same if is_image(last) else [])
        if len(found) > 1:
            folder = table.rpartition("/")[0]
            for place in (f"/{file}", f"/{label}/{file}"):
                near = [n for n in found if f"/{n}".casefold().endswith(place.casefold())]
                if len(near) > 1 and folder:
                    near = [n for n in near if n.startswith(f"{folder}/")] or near
                if len(near) == 1:
                    return near
        return found


def _joined(tree: Tree, layout: Layout) -> dict[str, dict[str, str]]:
    """Return for each image the values of the further tables; those of missing tables are empty."""
    empty = {name: "" for names in layout.join.values() for name in names}
    found: dict[str, dict[str, str]] = defaultdict(empty.copy)
    for table, names in layout.join.items():
        place = tree.nearest(table)
        for cells in () if place is None else table_lines(tree, place):
            found[cells[0]] |= dict(zip(names, cells[1:], strict=False))
    return found


def _rows(
    tree: Tree, table: str, layout: Layout, joined: Mapping[str, Mapping[str, str]]
) -> Iterator[_Row]:
    """Yield each row; cells beyond the header are ignored.

    Raises:
        DataError: rows have no image or no class.
    """
    matches: Iterable[Mapping[str, str] | None] = itertools.repeat({})
    none: dict[str, str] = {}
    if layout.pattern is not None:
        texts = [",".join(cells.values()) for _, cells in _cells(tree, table, layout)]
        matches = search_names(layout.pattern, texts)
        none = dict.fromkeys(layout.pattern.groupindex, "")
    wrong = []
    for (number, cells), match in zip(_cells(tree, table, layout), matches, strict=False):
        file = cells[layout.image]
        values = {**cells, **(joined[file] if layout.join else {}), **none, **(match or {})}
        for column, names in layout.values.items():
            cell = values.get(column, "")
            values[column] = names.get(cell, cell)
        label = _class(values, layout)
        if is_missing(file) or label_fault(label):
            wrong.append(f"row {number} has no image or no class")
            continue
        columns = {name: how.format_map(values) for name, how in layout.columns.items()}
        if layout.word_cells is not None:
            columns["words"] = _words(cells, layout)
        yield _Row(file, label, columns, match is not None)
    if wrong:
        raise DataError(f"{tree.place(table)}: {first_few(wrong, joint='; ')}")


def _cells(tree: Tree, table: str, layout: Layout) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of each row and its cells by the names of the columns.

    A text file may begin with the number of its rows, and need not name the column of the image.

    Raises:
        DataError: the header lacks a column that the layout needs.
    """
    with contextlib.closing(table_lines(tree, table)) as rows:
        lines = enumerate(rows, start=1)
        _, header = next(lines, (1, []))
        if not table.casefold().endswith((".csv", ".jsonl")):
            if len(header) == 1 and header[0].isdecimal():
                _, header = next(lines, (2, []))
            header = [layout.image, *(name for name in header if name != layout.image)]
        for needed in layout.needed:
            if needed not in header:
                held = first_few(header, most=20) or "nothing"
                raise DataError(
                    f"{tree.place(table)}: row 1 must name the column {needed}, not {held}"
                )
        none = dict.fromkeys(header, "")
        for number, cells in lines:
            if any(cells):
                yield number, none | dict(zip(header, cells, strict=False))


def _class(values: Mapping[str, str], layout: Layout) -> str:
    """Return the class of a row; empty if not exactly one column of one-hot labels has a 1."""
    if layout.class_:
        return layout.class_.format_map(values)
    if layout.label is not None:
        return values[layout.label]
    ones = [n for n, cell in values.items() if n != layout.image and cell in ("1", "1.0")]
    return ones[0] if len(ones) == 1 else ""


def _words(cells: Mapping[str, str], layout: Layout) -> str:
    """Return the names of the columns with the cell that makes them words, but not the class's."""
    own = placeholders(layout.class_)
    named = [name for name, cell in cells.items() if cell == layout.word_cells and name not in own]
    return ";".join(name.replace("_", " ").casefold() for name in named)


_FINDERS: dict[str, Callable[[Layout, Tree, ClassNames | None], Found]] = {
    "folders": _find_folders,
    "tables": _find_tables,
    "pickles": find_pickles,
    "cifar-100": find_cifar,
}
