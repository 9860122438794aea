"""Data sets described by a declaration of this package, another package or a user."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image, ImageOps

from fsf_datasets._class_names import ClassNames
from fsf_datasets._declaration import SPLITS, WHOLE, Declaration, Split, read_declaration
from fsf_datasets._found import Found
from fsf_datasets._image_files import ImageFileDataset, files_digest
from fsf_datasets._layouts import find
from fsf_datasets._messages import counted, first_few, quoted, reason
from fsf_datasets._splits import SplitOptions, Splits
from fsf_datasets._trees import Tree, open_tree
from fsf_datasets.file_names import natural
from fsframework.interfaces import DataError, OptionError
from fsframework.values import IntArray, digest_of

__all__ = ["Declared", "declared"]

_SHARES = (0.64, 0.16, 0.2)
_MAX_CACHED = 64


class Declared(ImageFileDataset):
    """A data set whose layouts, classes, splits and published counts are declared in a TOML file.

    The files may have any of the declared layouts, in a folder or in a ``.zip`` archive, below any
    extra folders; the layout that finds most images is used. Classes are recognised regardless of
    case and separators in folder names. ``problems()`` lists what differs from the published data
    set; such data can still be used.

    Args:
        declaration: the TOML file.
        path: the folder or ``.zip`` archive with the images.
        split: the name of a declared split; by default the first.
        split_file: a ``.json`` or ``.csv`` file with the classes of each split, used instead of
            the declared splits and read as by the data set ``folder``.

    Raises:
        DataError: the declaration is wrong, or no part of the data set is found; its picture shows
            the expected trees of files.
        OptionError: the split is not declared.
    """

    argument: ClassVar[str | None] = "declaration"
    location: ClassVar[str | None] = "path"
    declared_by: ClassVar[str | None] = "declaration"

    def __init__(
        self,
        *,
        declaration: Path,
        path: Path,
        split: str | None = None,
        split_file: Path | None = None,
    ) -> None:
        self.declaration = Path(declaration)
        self._take(read_declaration(self.declaration), path, split, split_file)

    def _take(
        self, declaration: Declaration, path: Path, split: str | None, split_file: Path | None
    ) -> None:
        self.path = Path(path)
        self.split = split
        self.split_file = None if split_file is None else Path(split_file)
        self._declared = declaration
        chosen = _chosen(declaration, split, self.split_file)
        self.native_size = declaration.native_size
        self.about = declaration.about(chosen.name if chosen else None)
        self._tree = open_tree(self.path)
        found, tried = _best(declaration, self._tree)
        if not found.files:
            raise _not_found(declaration, self._tree, tried)
        self.layout = found.layout
        self._problems = [*found.problems]
        if chosen is not None:
            _select(found, chosen, self.path)
        kept = self._keep_chosen(found, chosen)
        turns = chosen.rotations if chosen else ()
        self._set_images(found, kept, turns)
        self._set_splits(found, chosen)

    # --- construction ----------------------------------------------------------------------

    def _keep_chosen(self, found: Found, chosen: Split | None) -> Sequence[int]:
        """Return the indices of the images that the split names; all if it names none of them."""
        every = range(len(found.files))
        usual = next(iter(self._declared.splits.values()), None)
        files = chosen.files if chosen else usual.files if usual else {}
        if not files or found.pictures is not None:
            return every
        stems = {name: frozenset(f.rpartition(".")[0] for f in of) for name, of in files.items()}
        none: frozenset[str] = frozenset()
        kept = [
            i
            for i, (file, name) in enumerate(zip(found.files, found.classes, strict=True))
            if file.rpartition("/")[2].rpartition(".")[0] in stems.get(name, none)
        ]
        if not kept:
            return every
        if len(kept) < len(every):
            self._problems.append(
                f"left out, not in the published split: {counted(len(every) - len(kept), 'image')}"
            )
        return kept

    def _set_images(self, found: Found, kept: Sequence[int], turns: Sequence[int]) -> None:
        files = [found.files[i] for i in kept]
        skipped = _common_folders(files) if found.pictures is None else 0
        keys = [file[skipped:] for file in files]
        classes = [found.classes[i] for i in kept]
        names = sorted(set(classes), key=natural)
        degrees = turns or (0,)
        if turns:
            self.class_names = tuple(f"{name}/rot{turn:03d}" for name in names for turn in turns)
            self.keys = tuple(f"{key}@rot{turn:03d}" for key in keys for turn in turns)
        else:
            self.class_names, self.keys = tuple(names), tuple(keys)
        position = {name: place for place, name in enumerate(names)}
        bare = np.array([position[name] for name in classes], dtype=np.int64)
        count = len(degrees)
        self.labels = (bare[:, None] * count + np.arange(count)).ravel()
        self._degrees = degrees
        self._turned: dict[tuple[int, int | None], Image.Image] = {}
        self._pictures, self._rows = found.pictures, kept
        self._files = tuple(file for file in files for _ in degrees)
        self._sources = (*found.sources, *(files if found.pictures is None else ()))
        columns = {name: [column[i] for i in kept] for name, column in found.columns.items()}
        self.metadata = {
            name: tuple(value for value in column for _ in degrees)
            for name, column in columns.items()
        }

    def _set_splits(self, found: Found, chosen: Split | None) -> None:
        present = set(self.class_names)
        if self.split_file is not None:
            given = SplitOptions(self.split_file, _SHARES, 0)
            self.splits = given.splits(self.class_names, None, self.path)
            return
        if found.numbered or (chosen is None and _in_split_folders(found)):
            named = _splits_of_folders(found)
            self.splits = _in_order(named, present)
        elif chosen is None or chosen.draw is not None:
            self.splits = self._drawn(chosen)
        else:
            self.splits = _in_order(_turned(chosen), present)
        if chosen is not None:
            self._problems += _problems(found, chosen, self._declared, self.splits, self._sizes())
            self._problems += _other_contexts(chosen, self.metadata.get("context", ()))
        self._problems += self._tree.unread_images()
        if found.unknown:
            self._problems.append(_unknown(found))
        if found.unmatched:
            files = counted(len(found.unmatched), "file")
            shown = quoted(found.unmatched)
            self._problems.append(f"the pattern of the metadata does not match {files}: {shown}")

    def _drawn(self, chosen: Split | None) -> Splits:
        shares, seed = _SHARES, 0
        if chosen is not None and chosen.draw is not None:
            total = sum(chosen.draw)
            train, val, test = (n / total for n in chosen.draw)
            shares, seed = (train, val, test), chosen.seed
        return SplitOptions(None, shares, seed).splits(self.class_names, None, self.path)

    def _sizes(self) -> dict[str, int]:
        counts = np.bincount(self.labels, minlength=len(self.class_names)).tolist()
        return dict(zip(self.class_names, counts, strict=True))

    # --- images ----------------------------------------------------------------------------

    def local_states(self, indices: Sequence[int] | IntArray) -> list[str]:
        """Return for each image a text that changes with any edit of the files that hold it."""
        if self._pictures is None:
            return super().local_states(indices)
        return [" ".join(self._tree.local_states(self._sources))] * len(indices)

    def _rgb(self, index: int, min_size: int | None = None) -> Image.Image:
        degrees = self._degrees[index % len(self._degrees)]
        if len(self._degrees) == 1:
            image = self._upright(index, min_size)
        else:  # the rotations of an image are mostly requested one after the other
            key = (index // len(self._degrees), min_size)
            if (found := self._turned.get(key)) is None:
                if len(self._turned) >= _MAX_CACHED:
                    self._turned.clear()
                found = self._turned[key] = self._upright(index, min_size)
            image = found
        return image.transpose(_TURNS[degrees]) if degrees else image

    def _upright(self, index: int, min_size: int | None) -> Image.Image:
        pixels = self._declared.pixels
        if self._pictures is not None:
            image = self._picture(index)
        else:
            image = super()._rgb(index, min_size and max(min_size, pixels.size or 0))
        if pixels.size is not None and image.size != (pixels.size, pixels.size):
            method = Image.Resampling[pixels.interpolation.upper()]
            image = image.resize((pixels.size, pixels.size), method)
        return ImageOps.invert(image) if pixels.invert else image

    def _picture(self, index: int) -> Image.Image:
        assert self._pictures is not None
        try:
            return self._pictures[self._rows[index // len(self._degrees)]]
        except Exception as error:  # the type of a decoder's error depends on the format
            raise DataError(
                f"{self._place(index)}: not a readable image ({reason(error)})"
            ) from error

    def _place(self, index: int) -> str:
        if self._pictures is not None:
            return f"{self.path}: {self.keys[index]}"
        return super()._place(index)

    def problems(self) -> list[str]:
        """Return the differences from the published data set, one sentence each."""
        return list(self._problems)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        """A digest that changes with the files, classes, splits and treatment of pixels."""
        return digest_of(
            "declared",
            self._declared.name,
            self.keys,
            self.class_names,
            self.labels,
            *(part for split_and_classes in self.splits.items() for part in split_and_classes),
            self.pixels_fingerprint,
        )

    @cached_property
    def pixels_fingerprint(self) -> str:  # type: ignore[override]
        """A digest that changes with the size or time of a file and the treatment of pixels."""
        return digest_of(
            "declared",
            self._declared.name,
            self.keys,
            repr(self._declared.pixels),
            files_digest(self._tree, self._sources),
        )


_TURNS = {
    90: Image.Transpose.ROTATE_90,
    180: Image.Transpose.ROTATE_180,
    270: Image.Transpose.ROTATE_270,
}


def _chosen(declaration: Declaration, split: str | None, file: Path | None) -> Split | None:
    """Return the requested declared split; ``None`` for a file or if no split is declared."""
    if file is not None:
        if split is not None:
            raise OptionError(
                f"split ({split!r}) and split_file ({str(file)!r}) must not both be given"
            )
        return None
    if split is None:
        return next(iter(declaration.splits.values()), None)
    if split in declaration.splits:
        return declaration.splits[split]
    known = ", ".join(declaration.splits) or "none is declared"
    raise OptionError(
        f"split must be a split of {declaration.name} ({known}), not {split!r}; pass a file of "
        "classes as split_file"
    )


def _select(found: Found, chosen: Split, path: Path) -> None:
    """Keep the images of a split that selects them by a column, with the classes that it names.

    Raises:
        DataError: the files do not give a column that the split needs, or no image is left.
    """
    own = [chosen.class_] if chosen.class_ else []
    for column in (*chosen.where, *own):
        if not any(found.columns.get(column, ())):
            raise DataError(
                f"{path}: the split {chosen.name!r} needs the {column} of each image, which no "
                "file here gives"
            )
    if chosen.where:
        rows = [found.columns[column] for column in chosen.where]
        wanted = tuple(chosen.where.values())
        kept = [i for i, row in enumerate(zip(*rows, strict=True)) if row == wanted]
        if not kept:
            named = " and ".join(f"{column} {value!r}" for column, value in chosen.where.items())
            raise DataError(f"{path}: the split {chosen.name!r} has the images with {named}; none")
        found.keep(kept)
    if chosen.class_:
        members = {name for names in chosen.members.values() for name in names}
        names = found.columns[chosen.class_]
        known = [i for i, name in enumerate(names) if name and (not members or name in members)]
        found.keep(known)
        found.classes = list(found.columns[chosen.class_])
        found.placed.clear()


def _best(declaration: Declaration, tree: Tree) -> tuple[Found, list[Found]]:
    """Return the result of the layout that finds most images, and the results of all layouts.

    Raises:
        DataError: a file of a layout is damaged and no other layout finds images.
    """
    names = ClassNames(declaration.classes) if declaration.classes else None
    tried: list[Found] = []
    damaged: list[DataError] = []
    for layout in declaration.layouts:
        try:
            tried.append(find(layout, tree, names))
        except DataError as error:
            damaged.append(error)
    best = max(tried, key=lambda found: len(found.files), default=None)
    if damaged and (best is None or not best.files):
        raise damaged[0]
    assert best is not None
    best.problems += [f"another layout is not used: {error}" for error in damaged]
    return best, tried


def _not_found(declaration: Declaration, tree: Tree, tried: Iterable[Found]) -> DataError:
    seen = sorted({name for found in tried for name in found.unknown}, key=natural)
    what = f"{tree.root}: no part of {declaration.title} is found here"
    if seen:
        what += f": no folder is one of its classes (found: {quoted(seen)})"
    elif not tree.names:
        what += ": there are no files"
    problems = [problem for found in tried for problem in found.problems]
    if problems:
        what += f" ({first_few(problems, joint='; ')})"
    pictures = [f"{name}:\n{tree_}" for name, tree_ in declaration.about().layouts.items()]
    return DataError(what, picture="\n\n".join(["One of these is expected:", *pictures]))


def _common_folders(files: Sequence[str]) -> int:
    """Return the number of characters in the folders common to all files, above their classes."""
    folders = {file.rpartition("/")[0] for file in files}
    parts = [folder.split("/") for folder in folders]
    depth = 0
    while all(len(p) > depth + 1 for p in parts) and len({p[depth] for p in parts}) == 1:
        depth += 1
    return sum(len(part) + 1 for part in parts[0][:depth])


def _in_split_folders(found: Found) -> bool:
    """Return whether each class is in the folder of exactly one split."""
    placed = [found.placed.get(name, set()) for name in set(found.classes)]
    return all(len(splits) == 1 for splits in placed)


def _splits_of_folders(found: Found) -> Splits:
    return {
        split: tuple(name for name, splits in found.placed.items() if splits == {split})
        for split in SPLITS
    }


def _turned(chosen: Split) -> Splits:
    """Return the classes of each split, including their rotations."""
    if not chosen.rotations:
        return {split: tuple(names) for split, names in chosen.members.items()}
    return {
        split: tuple(f"{name}/rot{turn:03d}" for name in names for turn in chosen.rotations)
        for split, names in chosen.members.items()
    }


def _in_order(named: Mapping[str, Sequence[str]], present: set[str]) -> Splits:
    """Return the classes of each split that are present, without empty splits."""
    kept = {s: tuple(n for n in named.get(s, ()) if n in present) for s in SPLITS}
    return {split: names for split, names in kept.items() if names}


# --- what is not as published ----------------------------------------------------------------


def _problems(
    found: Found,
    chosen: Split,
    declaration: Declaration,
    splits: Mapping[str, Sequence[str]],
    sizes: Mapping[str, int],
) -> list[str]:
    problems: list[str] = []
    if found.numbered:
        problems.append("classes are numbered because the files do not name them")
    else:
        problems += _missing(chosen, sizes)
        problems += _in_other_splits(found, chosen, declaration)
    problems += _other_counts(chosen, splits, sizes)
    if not found.numbered:
        problems += _other_sizes(chosen, sizes)
    return problems


def _missing(chosen: Split, sizes: Mapping[str, int]) -> list[str]:
    problems = []
    for split, names in _turned(chosen).items():
        absent = [name for name in names if name not in sizes]
        if absent and len(absent) == len(names):
            problems.append(f"split {split}: all {len(names):,} classes missing")
        elif absent:
            problems.append(
                f"split {split}: {len(absent):,} of {len(names):,} classes missing: "
                f"{quoted(absent)}"
            )
    return problems


def _in_other_splits(found: Found, chosen: Split, declaration: Declaration) -> list[str]:
    """Return the classes that are in the folder of another split than the published one."""
    if not _in_split_folders(found) or not chosen.members:
        return []
    if not (wrong := _wrong(found, chosen)):
        return []
    for other in declaration.splits.values():
        if other.members and not _wrong(found, other):
            return [
                f"the folders follow the split {other.name!r}, but {chosen.name!r} is used; "
                f"set split={other.name} to use the other"
            ]
    shown = first_few([f"{n!r} is in {folder} but belongs to {of}" for n, folder, of in wrong])
    return [
        f"{counted(len(wrong), 'class')} in the folder of a wrong split (the published split is "
        f"used): {shown}"
    ]


def _wrong(found: Found, split: Split) -> list[tuple[str, str, str]]:
    of = {name: part for part, names in split.members.items() for name in names}
    return [
        (name, folder, of.get(name, "none"))
        for name in dict.fromkeys(found.classes)
        for folder in found.placed.get(name, ())
        if of.get(name) != folder
    ]


def _other_counts(
    chosen: Split, splits: Mapping[str, Sequence[str]], sizes: Mapping[str, int]
) -> list[str]:
    problems = []
    for split, (classes, images) in chosen.counts.items():
        names = [*sizes] if split == WHOLE else splits.get(split, ())
        here = sum(sizes[name] for name in names)
        # An unpublished number is 0 and cannot differ.
        if not names and split != WHOLE:
            continue
        if len(names) != classes or (images and here != images):
            published = f"{images:,} of {classes:,}" if images else counted(classes, "class")
            what = "in total" if split == WHOLE else f"split {split}"
            problems.append(
                f"{what}: {counted(here, 'image')} of {counted(len(names), 'class')}, "
                f"published {published}"
            )
    return problems


def _other_sizes(chosen: Split, sizes: Mapping[str, int]) -> list[str]:
    """Return the classes whose number of images differs from the published one."""
    turned = [f"/rot{turn:03d}" for turn in chosen.rotations] or [""]
    other = [
        f"{name + turn!r} {sizes[name + turn]:,} (published {count:,})"
        for names in chosen.members.values()
        for name, count in names.items()
        for turn in turned
        if count is not None and sizes.get(name + turn, count) != count
    ]
    if not other:
        return []
    return [f"{counted(len(other), 'class')} with other numbers of images: {first_few(other)}"]


def _other_contexts(chosen: Split, contexts: Sequence[str]) -> list[str]:
    """Return the contexts whose number of images differs from the published one."""
    here = Counter(contexts)
    other = [
        f"{name!r} {here[name]:,} (published {count:,})"
        for name, count in chosen.contexts.items()
        if here[name] != count
    ]
    if not other:
        return []
    return [f"{counted(len(other), 'context')} with other numbers of images: {first_few(other)}"]


def _unknown(found: Found) -> str:
    names = sorted(found.unknown, key=natural)
    return f"left out, not a class: {counted(found.unknown.total(), 'image')} of {quoted(names)}"


# --- classes ---------------------------------------------------------------------------------


def declared(file: Path, *, module: str | None = None) -> type[Declared]:
    """Return the class of the data set that a TOML file declares, for an entry point.

    Only the declaration is read until the class is called with a path.

    Args:
        file: the declaration.
        module: the module that the class belongs to; by default that of the caller.

    Raises:
        DataError: the declaration is wrong.
    """
    declaration = read_declaration(file)
    if module is None:
        module = sys._getframe(1).f_globals["__name__"]
    name = "".join(part.capitalize() for part in declaration.name.split("-"))
    first = next(iter(declaration.splits.values()), None)
    members: dict[str, Any] = {
        "__init__": _constructor(declaration),
        "__doc__": _text(declaration, first),
        "__module__": module,
        "argument": "path",
        "location": None,
        "declared_by": None,
        "native_size": declaration.native_size,
        "about": declaration.about(),
    }
    return type(name, (Declared,), members)


def _constructor(declaration: Declaration) -> Callable[..., None]:
    def __init__(  # noqa: N807
        self: Declared, *, path: Path, split: str | None = None, split_file: Path | None = None
    ) -> None:
        self.declaration = declaration.file
        self._take(declaration, path, split, split_file)

    return __init__


def _text(declaration: Declaration, first: Split | None) -> str:
    splits = [
        f"    {split.name}: {split.source}" + (" (the default)" if split is first else "")
        for split in declaration.splits.values()
    ]
    lines = [
        declaration.summary,
        "",
        *declaration.notes,
        f"Licence: {declaration.licence}",
        f"Where to get it: {declaration.source}",
        "",
        "Args:",
        "    path: the folder or .zip archive with the images.",
        "    split: one of the splits below.",
        "    split_file: a .json or .csv file with the classes of each split, used instead.",
        "",
        "Splits:",
        *splits,
        "",
        f"Source: {declaration.citation}",
    ]
    return "\n".join(lines)
