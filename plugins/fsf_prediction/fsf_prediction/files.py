"""The files that a prediction reads: labelled images of each class, and images to classify."""

from __future__ import annotations

import os
import posixpath
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsf_datasets.file_names import ending, is_image, is_leftover, is_unread_image, natural
from fsf_datasets.image_files import (
    ImageFiles,
    counted,
    images_of,
    label_fault,
    open_tree,
    split_of_name,
    walk_files,
)
from fsframework.errors import DataError, OptionError

__all__ = ["SupportFiles", "find_queries", "find_support"]


@dataclass(frozen=True)
class SupportFiles:
    """Labelled images.

    Args:
        images: the images of all classes.
        classes: the rows of each class, by its name.
    """

    images: ImageFiles
    classes: Mapping[str, Sequence[int]]


def find_support(folder: Path) -> SupportFiles:
    """Find the images of each class: those in each sub-folder, at any depth.

    Folders that contain everything else, as in some archives, are skipped.

    Args:
        folder: a folder or ``.zip`` archive, read like the data set ``folder``.

    Raises:
        DataError: the folder does not exist or cannot be read, has fewer than two classes or those
            of splits, or a class has no image or a name that is no label.
    """
    try:
        return _support_in(folder)
    except DataError as error:
        raise DataError(f"--support {error}") from None


def _support_in(folder: Path) -> SupportFiles:
    tree = open_tree(folder)
    images = images_of(tree)
    leaves = tree.folders - set(map(posixpath.dirname, tree.folders))
    top = posixpath.commonpath(leaves.union(map(posixpath.dirname, images)))
    start = len(posixpath.join(top, ""))
    labelled = [image for image in images if "/" in image[start:]]
    names = {leaf[start:].partition("/")[0] for leaf in leaves} - {""}
    classes: dict[str, list[int]] = {name: [] for name in sorted(names, key=natural)}
    for row, image in enumerate(labelled):
        classes[image[start:].partition("/")[0]].append(row)
    if len(classes) < 2:
        raise DataError(
            f"{folder}: needs at least two classes, each a sub-folder with images, such as "
            f"{folder}/cat/1.jpg; {folder / top} has {len(classes)}"
        )
    if all(map(split_of_name, classes)):
        raise DataError(
            f"{folder}: {' and '.join(map(repr, classes))} are splits, not classes; give one of "
            f"them, such as {folder / top / min(classes)}"
        )
    for name, rows in classes.items():
        if not rows:
            raise DataError(f"{folder}: no image in {name!r}")
        if why := label_fault(name):
            raise DataError(f"{folder}: the name of the class {reprlib.repr(name)} {why}")
    notes = [*_unread_note(folder, tree.names)]
    if top:
        notes.append(f"the classes are the folders in {folder / top}")
    if loose := len(images) - len(labelled):
        notes.append(f"not used, since they are not in a class folder: {counted(loose, 'image')}")
    return SupportFiles(ImageFiles(labelled, tree, notes), classes)


def find_queries(arguments: Sequence[str]) -> ImageFiles:
    """Find the files that names, folders (at any depth) and patterns refer to, each once.

    Raises:
        DataError: a file does not exist, its name is not Unicode, a folder cannot be read or has no
            image, or no file matches a pattern.
        OptionError: nothing is given.
    """
    files: dict[Path, str] = {}
    notes: list[str] = []
    for argument in arguments:
        # Methods of Path raise errors for names that are too long and users that do not exist.
        path = Path(os.path.expanduser(argument))  # noqa: PTH111
        matches = [path] if os.path.lexists(path) else _matching(path)
        if not matches:
            raise DataError(f"{argument}: no such file")
        for match in matches:
            inside = [match]
            if os.path.isdir(match):  # noqa: PTH112
                names = sorted(walk_files(match, set()), key=natural)
                inside = [match / name for name in names if is_image(name)]
                notes += _unread_note(match, names)
                if not inside:
                    raise DataError(f"{match}: no image in this folder")
            for file in inside:
                if re.search("[\ud800-\udfff]", str(file)):
                    raise DataError(f"{str(file)!a}: the name of a file must be Unicode")
                files.setdefault(file.absolute(), str(file))
    if not files:
        raise OptionError("name the images to classify: files, folders or both")
    return ImageFiles(tuple(files.values()), notes=notes)


def _unread_note(folder: Path, names: Iterable[str]) -> Iterator[str]:
    if unread := sum(is_unread_image(name) or not ending(name) for name in names):
        yield (
            f"not used: {unread} beside the images in {folder}, in formats that are not read or "
            "without an extension"
        )


def _matching(pattern: Path) -> list[Path]:
    """Return the files and folders that match a pattern that the shell did not expand."""
    root = Path(pattern.anchor)
    try:
        matches = list(root.glob(str(pattern.relative_to(root))))
    except (ValueError, OSError, RuntimeError):  # not a pattern
        return []
    matches = [match for match in matches if not is_leftover(match.name)]
    return sorted(matches, key=lambda match: natural(str(match)))
