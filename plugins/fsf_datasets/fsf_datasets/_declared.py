"""Data sets that a declaration describes, of this package, of another one or of a user."""

from __future__ import annotations

import sys
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
from fsf_datasets._trees import Tree, natural, open_tree
from fsframework.interfaces import DataError, OptionError
from fsframework.values import digest_of

__all__ = ["Declared", "declared"]

_SHARES = (0.64, 0.16, 0.2)
_MOST_TURNED = 64


class Declared(ImageFileDataset):
    """A data set as a TOML file declares it: its layouts, classes, splits and published counts.

    The files may lie in any of the declared layouts, in a folder or in a ``.zip`` archive, below
    any extra folders; the layout that finds most images is taken. Classes are recognised whatever
    case or separators their folders' names have. What is there but not as published is told by
    ``problems()`` and can be used.

    Args:
        declaration: the TOML file.
        path: the folder or ``.zip`` archive with the images.
        split: the name of one of the declared splits; by default the first.
        split_file: instead of these, a ``.json`` or ``.csv`` file with the classes of each split,
            as the data set ``folder`` reads it.

    Raises:
        DataError: the declaration is wrong, or nothing of the data set is found; its picture shows
            the trees that are expected.
        OptionError: there is no such split.
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
        kept = self._keep_chosen(found, chosen)
        turns = chosen.rotations if chosen else ()
        self._set_images(found, kept, turns)
        self._set_splits(found, chosen)

    # --- construction ----------------------------------------------------------------------

    def _keep_chosen(self, found: Found, chosen: Split | None) -> Sequence[int]:
        """Return the images that the split names, where it names images and these are they."""
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
                "left out, not named by the published split: "
                f"{counted(len(every) - len(kept), 'image')}"
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
        if found.nameless or (chosen is None and _lie_by_split(found)):
            named = _as_they_lie(found)
            self.splits = _in_order(named, present)
        elif chosen is None or chosen.draw is not None:
            self.splits = self._drawn(chosen)
        else:
            self.splits = _in_order(_turned(chosen), present)
        if chosen is not None:
            self._problems += _problems(found, chosen, self._declared, self.splits, self._sizes())
        if found.strangers:
            self._problems.append(_strangers(found))
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

    def _rgb(self, index: int, least: int | None = None) -> Image.Image:
        degrees = self._degrees[index % len(self._degrees)]
        if len(self._degrees) == 1:
            image = self._upright(index, least)
        else:  # the turns of an image mostly follow one another
            key = (index // len(self._degrees), least)
            found = self._turned.get(key)
            if found is None:
                if len(self._turned) >= _MOST_TURNED:
                    self._turned.clear()
                found = self._turned[key] = self._upright(index, least)
            image = found
        return image.transpose(_TURNS[degrees]) if degrees else image

    def _upright(self, index: int, least: int | None) -> Image.Image:
        pixels = self._declared.pixels
        if self._pictures is not None:
            image = self._picture(index)
        else:
            image = super()._rgb(index, least and max(least, pixels.size or 0))
        if pixels.size is not None and image.size != (pixels.size, pixels.size):
            method = Image.Resampling[pixels.interpolation.upper()]
            image = image.resize((pixels.size, pixels.size), method)
        return ImageOps.invert(image) if pixels.invert else image

    def _picture(self, index: int) -> Image.Image:
        assert self._pictures is not None
        try:
            return self._pictures[self._rows[index // len(self._degrees)]]
        except Exception as error:  # what a decoder raises on a damaged image is its own affair
            raise DataError(
                f"{self._place(index)}: not a readable image ({reason(error)})"
            ) from error

    def _place(self, index: int) -> str:
        if self._pictures is not None:
            return f"{self.path}: {self.keys[index]}"
        return super()._place(index)

    def problems(self) -> list[str]:
        """Name what is there but not as published: images and classes missing, and others."""
        return list(self._problems)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        """Changes with size or time of a file, with the classes, splits and treatment of pixels."""
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
        """Changes with size or time of a file, and with the treatment of pixels."""
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
    """Return the declared split that is asked for; ``None`` where a file is, or none declared."""
    if file is not None:
        if split is not None:
            raise OptionError(f"give split ({split!r}) or split_file ({str(file)!r}), not both")
        return None
    if split is None:
        return next(iter(declaration.splits.values()), None)
    if split in declaration.splits:
        return declaration.splits[split]
    known = ", ".join(declaration.splits) or "none is declared"
    raise OptionError(
        f"split must be a split of {declaration.name} ({known}), not {split!r}; "
        "a file of your own is given as split_file"
    )


def _best(declaration: Declaration, tree: Tree) -> tuple[Found, list[Found]]:
    """Return what the layout that finds most images found, and what each did.

    Raises:
        DataError: a layout is damaged and no other finds an image.
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
    seen = sorted({name for found in tried for name in found.strangers}, key=natural)
    what = f"{tree.root}: nothing of {declaration.title} is found here"
    if seen:
        what += f": none of the folders is a class of it (there are {quoted(seen)})"
    elif not tree.names:
        what += ": there is no file"
    problems = [problem for found in tried for problem in found.problems]
    if problems:
        what += f" ({first_few(problems, joint='; ')})"
    pictures = [f"{name}:\n{tree_}" for name, tree_ in declaration.about().layouts.items()]
    return DataError(what, picture="\n\n".join(["one of these is expected:", *pictures]))


def _common_folders(files: Sequence[str]) -> int:
    """Return the number of characters of the folders that all files lie in, but their classes'."""
    folders = {file.rpartition("/")[0] for file in files}
    parts = [folder.split("/") for folder in folders]
    depth = 0
    while all(len(p) > depth + 1 for p in parts) and len({p[depth] for p in parts}) == 1:
        depth += 1
    return sum(len(part) + 1 for part in parts[0][:depth])


def _lie_by_split(found: Found) -> bool:
    """Say whether the files lie by split, each class in one."""
    laid = [found.laid.get(name, set()) for name in set(found.classes)]
    return all(len(splits) == 1 for splits in laid)


def _as_they_lie(found: Found) -> Splits:
    return {
        split: tuple(name for name, splits in found.laid.items() if splits == {split})
        for split in SPLITS
    }


def _turned(chosen: Split) -> Splits:
    """Return the classes of a split, with the turns that make classes of their own."""
    if not chosen.rotations:
        return {split: tuple(names) for split, names in chosen.members.items()}
    return {
        split: tuple(f"{name}/rot{turn:03d}" for name in names for turn in chosen.rotations)
        for split, names in chosen.members.items()
    }


def _in_order(named: Mapping[str, Sequence[str]], present: set[str]) -> Splits:
    """Return of each split the classes that are there; a split without any is left out."""
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
    told: list[str] = []
    if found.nameless:
        told.append("classes are numbered, as the files do not name them")
    else:
        told += _missing(chosen, sizes)
        told += _laid_otherwise(found, chosen, declaration)
    told += _other_counts(chosen, splits, sizes)
    if not found.nameless:
        told += _other_sizes(chosen, sizes)
    return told


def _missing(chosen: Split, sizes: Mapping[str, int]) -> list[str]:
    told = []
    for split, names in _turned(chosen).items():
        absent = [name for name in names if name not in sizes]
        if absent and len(absent) == len(names):
            told.append(f"split {split}: none of its {len(names):,} classes is there")
        elif absent:
            told.append(
                f"split {split}: {len(absent):,} of {len(names):,} classes missing: "
                f"{quoted(absent)}"
            )
    return told


def _laid_otherwise(found: Found, chosen: Split, declaration: Declaration) -> list[str]:
    """Name the classes that lie in another split than the published one."""
    if not _lie_by_split(found) or not chosen.members:
        return []
    wrong = _wrong(found, chosen)
    if not wrong:
        return []
    for other in declaration.splits.values():
        if other.members and not _wrong(found, other):
            return [
                f"the files lie by the split {other.name!r} while {chosen.name!r} is used; "
                f"say split={other.name} to use theirs"
            ]
    shown = first_few([f"{n!r} lies in {lies} and belongs to {of}" for n, lies, of in wrong])
    return [f"wrong split of {counted(len(wrong), 'class')} (the published one is used): {shown}"]


def _wrong(found: Found, split: Split) -> list[tuple[str, str, str]]:
    of = {name: part for part, names in split.members.items() for name in names}
    return [
        (name, lies, of.get(name, "none"))
        for name in dict.fromkeys(found.classes)
        for lies in found.laid.get(name, ())
        if of.get(name) != lies
    ]


def _other_counts(
    chosen: Split, splits: Mapping[str, Sequence[str]], sizes: Mapping[str, int]
) -> list[str]:
    told = []
    for split, (classes, images) in chosen.counts.items():
        names = [*sizes] if split == WHOLE else splits.get(split, ())
        here = sum(sizes[name] for name in names)
        # what is not published is 0, and cannot differ
        if not names and split != WHOLE:
            continue
        if len(names) != classes or (images and here != images):
            published = f"{images:,} of {classes:,}" if images else counted(classes, "class")
            what = "in all" if split == WHOLE else f"split {split}"
            told.append(
                f"{what}: {counted(here, 'image')} of {counted(len(names), 'class')}, "
                f"published {published}"
            )
    return told


def _other_sizes(chosen: Split, sizes: Mapping[str, int]) -> list[str]:
    """Name classes with another number of images than published."""
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
    return [f"other numbers of images in {counted(len(other), 'class')}: {first_few(other)}"]


def _strangers(found: Found) -> str:
    names = sorted(found.strangers, key=natural)
    return f"left out, as no class: {counted(found.strangers.total(), 'image')} of {quoted(names)}"


# --- classes ---------------------------------------------------------------------------------


def declared(file: Path, *, module: str | None = None) -> type[Declared]:
    """Return the class of the data set that a TOML file declares, for an entry point.

    Nothing but the declaration is read until the class is called with a path.

    Args:
        file: the declaration.
        module: the module that the class belongs to; by default the calling one.

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
        f"    {split.name}: {split.source}" + (" (the usual one)" if split is first else "")
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
        "    split_file: instead, a .json or .csv file with the classes of each split.",
        "",
        "Splits:",
        *splits,
        "",
        f"Source: {declaration.citation}",
    ]
    return "\n".join(lines)
