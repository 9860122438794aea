"""The layouts of the files of a data set: folders, tables or arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fsf_datasets._arrays import find_cifar, find_pickles
from fsf_datasets._class_names import ClassNames
from fsf_datasets._declaration import Layout
from fsf_datasets._found import Found, split_of_name
from fsf_datasets._messages import counted, first_few, quoted, reason
from fsf_datasets._patterns import search_names
from fsf_datasets._tables import csv_lines, is_missing
from fsf_datasets._trees import ENDINGS, Tree, ending
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
    for file in _images_within(tree, layout.within):
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
    _add_columns(found, layout, levels)
    for name, written in spellings.items():
        if len(written) > 1:
            raise DataError(
                f"{tree.root}: the folders {quoted(list(written.values()))} all mean the class "
                f"{name!r}; keep one"
            )
    if loose:
        found.problems.append(f"left out, not in a class folder: {counted(loose, 'image')}")
    return found


def _images_within(tree: Tree, within: str | None) -> Sequence[str]:
    if within is None:
        return tree.images
    mark = f"/{within.casefold()}/"
    return [name for name in tree.images if mark in f"/{name.casefold()}"] or tree.images


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


def _add_columns(found: Found, layout: Layout, levels: Sequence[Mapping[str, str]]) -> None:
    """Add the columns of a layout, from the levels of each image and the pattern."""
    if not layout.columns:
        return
    values = list(levels)
    if layout.pattern is not None:
        matches = search_names(layout.pattern, found.files)
        found.unmatched = [f for f, m in zip(found.files, matches, strict=True) if m is None]
        none = dict.fromkeys(layout.pattern.groupindex, "")
        values = [{**own, **(m or none)} for own, m in zip(levels, matches, strict=True)]
    for column, template in layout.columns.items():
        found.columns[column] = [template.format_map(value) for value in values]


# --- tables ----------------------------------------------------------------------------------


def _find_tables(layout: Layout, tree: Tree, names: ClassNames | None) -> Found:
    found = Found(layout.name)
    tables = [table for name in layout.tables if (table := tree.nearest(name)) is not None]
    if not tables:
        return found
    images = _Images(tree)
    rows: dict[str, list[str]] = defaultdict(list)
    for table in tables:
        missing: list[str] = []
        ambiguous: list[str] = []
        split = split_of_name(table.rpartition("/")[2].partition(".")[0])
        for file, label in _rows(tree, table, layout):
            name = label if names is None else names(label)
            if name is None:
                found.unknown[label] += 1
                continue
            if split is not None:
                found.placed[name].add(split)
            places = images.find(file, label, table)
            if len(places) == 1:
                rows[name].append(places[0])
            else:
                (ambiguous if places else missing).append(file)
        last = table.rpartition("/")[2]
        if missing:
            found.problems.append(
                f"{last} lists {counted(len(missing), 'missing image')}: {quoted(missing)}"
            )
        if ambiguous:
            number = counted(len(ambiguous), "image")
            found.problems.append(
                f"left out, listed in {last} but found more than once: {number}: "
                f"{quoted(ambiguous)}"
            )
    for name, files in rows.items():
        found.add(name, list(dict.fromkeys(files)))
    found.sources = tuple(tables)
    return found


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
            found = self._by_stem.get(last, same if ending(last) in ENDINGS else [])
        if len(found) > 1:
            folder = table.rpartition("/")[0]
            for place in (f"/{file}", f"/{label}/{file}"):
                near = [n for n in found if f"/{n}".casefold().endswith(place.casefold())]
                if len(near) > 1 and folder:
                    near = [n for n in near if n.startswith(f"{folder}/")] or near
                if len(near) == 1:
                    return near
        return found


def _rows(tree: Tree, table: str, layout: Layout) -> list[tuple[str, str]]:
    """Return file name and class of each row; cells beyond the header are ignored."""
    place = tree.place(table)
    try:
        stream = tree.open(table)
    except OSError as error:
        raise DataError(f"{place}: cannot be read ({reason(error)})") from None
    lines = csv_lines(stream, place, skipinitialspace=True)
    header = [cell.strip() for cell in lines[0]] if lines else []
    for needed in (layout.image, *([layout.label] if layout.label else [])):
        if needed not in header:
            held = first_few(header, most=20) or "nothing"
            raise DataError(f"{place}: row 1 must name the column {needed}, not {held}")
    image = header.index(layout.image)
    label = header.index(layout.label) if layout.label else None
    found, wrong = [], []
    for number, cells in enumerate(lines[1:], start=2):
        if not any(cells):
            continue
        name = _label(cells, header, image) if label is None else "".join(cells[label : label + 1])
        file, name = "".join(cells[image : image + 1]).strip(), name.strip()
        if not is_missing(file) and not is_missing(name):
            found.append((file, name))
        else:
            wrong.append(f"row {number} has no image or no class")
    if wrong:
        raise DataError(f"{place}: {first_few(wrong, joint='; ')}")
    return found


def _label(cells: Sequence[str], header: Sequence[str], image: int) -> str:
    """Return the name of the only column with the value 1; empty if there is not exactly one."""
    ones = [
        name
        for place, (name, cell) in enumerate(zip(header, cells, strict=False))
        if place != image and cell.strip() in ("1", "1.0")
    ]
    return ones[0] if len(ones) == 1 else ""


_FINDERS: dict[str, Callable[[Layout, Tree, ClassNames | None], Found]] = {
    "folders": _find_folders,
    "tables": _find_tables,
    "pickles": find_pickles,
    "cifar-100": find_cifar,
}
