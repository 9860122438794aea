"""The files that a prediction reads: labelled images of each class, and images to classify."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsf_datasets.file_names import is_image, is_leftover, is_unread_image, natural
from fsframework.errors import DataError, OptionError

__all__ = ["SupportFiles", "count_unread", "find_queries", "find_support", "place_of"]


@dataclass(frozen=True)
class SupportFiles:
    """Labelled images.

    Args:
        classes: the files of each class, by its name.
        loose: number of images outside the class folders, which are not used.
    """

    classes: Mapping[str, tuple[Path, ...]]
    loose: int = 0


def find_support(folder: Path) -> SupportFiles:
    """Find the images of each class: those in each sub-folder, at any depth.

    A folder that contains only another folder, as in some archives, is skipped.

    Raises:
        DataError: the folder does not exist, has fewer than two classes, or a class has no image.
    """
    if not folder.is_dir():
        raise DataError(f"--support {folder}: no such folder")
    inner = folder
    while not _images_in(inner) and len(_folders(inner)) == 1:
        (only,) = _folders(inner)
        if not _folders(only):
            break
        inner = only
    found = {
        unicodedata.normalize("NFC", sub.name): tuple(_images_below(sub)) for sub in _folders(inner)
    }
    if len(found) < 2:
        raise DataError(
            f"--support {folder}: needs at least two classes, each a sub-folder with images, such "
            f"as {folder}/cat/1.jpg; it has {len(found)}"
        )
    empty = [name for name, files in found.items() if not files]
    if empty:
        raise DataError(f"--support {folder}: no image in {', '.join(map(repr, empty[:3]))}")
    return SupportFiles(found, len(_images_in(inner)))


def find_queries(given: Sequence[str]) -> tuple[Path, ...]:
    """Return the files that names, folders (at any depth) and patterns refer to, each once.

    Raises:
        DataError: a file does not exist, a folder has no image, or no file matches a pattern.
        OptionError: nothing is given.
    """
    found: list[Path] = []
    for one in given:
        path = Path(one).expanduser()
        if path.is_dir():
            files = list(_images_below(path))
            if not files:
                raise DataError(f"{one}: no image in this folder")
            found += files
        elif path.exists():
            found.append(path)
        elif matches := _matching(path):
            found += matches
        else:
            raise DataError(f"{one}: no such file")
    if not found:
        raise OptionError("name the images to classify: files, folders or both")
    unique: dict[str, Path] = {}
    for file in found:
        unique.setdefault(place_of(file), file)
    return tuple(unique.values())


def count_unread(files: Iterable[Path]) -> int:
    """Return the number of images beside some files that are in formats that are not read."""
    folders = {file.parent for file in files}
    return sum(is_unread_image(other.name) for folder in folders for other in folder.iterdir())


def place_of(file: Path) -> str:
    """Return the absolute location of a file, independent of how it was named."""
    return str(file.absolute())


def _matching(pattern: Path) -> list[Path]:
    """Return the files that match a pattern that the shell did not expand."""
    root = Path(pattern.anchor)
    try:
        matches = [m for m in root.glob(str(pattern.relative_to(root))) if m.is_file()]
    except (ValueError, NotImplementedError):  # not a pattern
        return []
    return sorted(matches, key=lambda match: natural(str(match)))


def _folders(folder: Path) -> list[Path]:
    inner = (f for f in folder.iterdir() if f.is_dir() and not is_leftover(f.name))
    return sorted(inner, key=lambda f: natural(f.name))


def _images_in(folder: Path) -> list[Path]:
    inner = (f for f in folder.iterdir() if f.is_file() and not is_leftover(f.name))
    return sorted((f for f in inner if is_image(f.name)), key=lambda f: natural(f.name))


def _images_below(folder: Path) -> Iterator[Path]:
    yield from _images_in(folder)
    for inner in _folders(folder):
        yield from _images_below(inner)
