"""A folder of images, one sub-folder a class."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from fsf_datasets._image_files import ImageFileDataset, files_digest
from fsf_datasets._messages import first_few, quoted
from fsf_datasets._splits import SplitOptions, disjoint, split_name
from fsframework.interfaces import DataError, OptionError
from fsframework.values import digest_of

__all__ = ["Folder"]

_ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif"})
_SPLIT_FOLDERS = frozenset({"train", "val", "test"})


class Folder(ImageFileDataset):
    r"""Image files in a folder for each class, at any depth.

    The class of an image is the path of the folder that holds it (``Greek/character01``), less the
    leading folders common to all images. Hidden files and other kinds of file are passed over.
    A key is the path of the file relative to ``path``.

    Splits come from the file ``split`` if given. Otherwise, if the top folders are ``train``,
    ``val`` (or ``valid``, ``validation``) and ``test``, or two of these, they are the splits and
    their names are no part of the class. Otherwise the classes are drawn.

    Args:
        path: the folder.
        split: a file with the classes of each split, JSON ``{"train": [class, ...], "val": ...}``
            or CSV with the columns ``class`` (or ``label``) and ``split``. A class it does not
            name is in no split.
        split_fractions: shares of train, val and test when classes are drawn. Shares are rounded
            down, though to no less than one class; what is left goes to test, then val, then train.
        split_seed: seed of that draw.
        pattern: a regular expression with named groups, searched in each key; each group becomes
            a metadata column (``-(?P<texture>[a-z]+)\d+`` on ``cat/cat1-oven2.png`` gives
            ``oven``). A group that takes no part gives the empty string.

    Raises:
        DataError: there is no such folder, no image in it, an image outside any class, a key the
            pattern does not match, or a split that does not fit the classes.
        OptionError: an option is not what it must be.
    """

    argument = "path"

    def __init__(
        self,
        *,
        path: Path,
        split: Path | None = None,
        split_fractions: tuple[float, float, float] = (0.64, 0.16, 0.2),
        split_seed: int = 0,
        pattern: str | None = None,
    ) -> None:
        self.path = Path(path)
        self.split = None if split is None else Path(split)
        self.split_fractions = split_fractions
        self.split_seed = split_seed
        self.pattern = pattern
        options = SplitOptions(self.split, split_fractions, split_seed)
        expression = None if pattern is None else _compiled(pattern)

        found = _image_files(self.path)
        self.keys = tuple(found)
        self._files = tuple(found.values())
        folders = _class_folders(self.keys, self.path)
        given = None
        if self.split is None and _are_splits(folders):
            pairs = [("/".join(rest), top) for top, *rest in folders]
            given = disjoint(pairs, str(self.path))
            classes = [name for name, _ in pairs]
        else:
            classes = ["/".join(folder) for folder in folders]
        self.class_names = tuple(sorted(set(classes), key=_natural))
        position = {name: i for i, name in enumerate(self.class_names)}
        self.labels = np.array([position[name] for name in classes], dtype=np.int64)
        self.splits = options.splits(self.class_names, given, self.path)
        self.metadata = {} if expression is None else _columns(self.keys, expression, self.path)
        self.fingerprint = digest_of(
            "folder",
            self.keys,
            self.class_names,
            self.labels,
            *(part for split_and_classes in self.splits.items() for part in split_and_classes),
            files_digest(self._files),
        )

    def problems(self) -> list[str]:
        """Name the folders that should be a class but hold no image."""
        empty = sorted(
            Path(folder).relative_to(self.path).as_posix()
            for folder, folders, files in os.walk(self.path)
            if not folders
            and not any(part.startswith(".") for part in Path(folder).relative_to(self.path).parts)
            and not any(PurePosixPath(file).suffix.lower() in _ENDINGS for file in files)
        )
        return [f"no image in {quoted(empty)}"] if empty else []


def _image_files(root: Path) -> dict[str, Path]:
    """Return the image files below a folder by key, in natural order.

    Raises:
        DataError: there is none, a name is not Unicode, or two names are the same text.
    """
    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    found: dict[str, Path] = {}
    for file in _walk(root):
        key = unicodedata.normalize("NFC", file.relative_to(root).as_posix())
        if not key.isprintable():
            raise DataError(f"{str(file)!a}: the name of a file must be printable Unicode")
        if key in found:
            raise DataError(f"{file}: another file has the same name in another Unicode form")
        found[key] = file
    if not found:
        endings = ", ".join(sorted(ending[1:] for ending in _ENDINGS))
        raise DataError(f"{root}: holds no image ({endings})")
    return {key: found[key] for key in sorted(found, key=_natural)}


def _walk(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield the image files below a folder; links are followed unless they lead back above."""
    real = folder.resolve()
    if real in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _walk(folder / entry.name, (*above, real))
            elif PurePosixPath(entry.name).suffix.lower() in _ENDINGS:
                yield folder / entry.name


def _natural(text: str) -> tuple[list[tuple[int, str]], str]:
    """Return a key that sorts ``cat2`` before ``cat10``; equal ones by their text.

    >>> sorted(["cat10", "cat2", "b/1", "b"], key=_natural)
    ['b', 'b/1', 'cat2', 'cat10']
    """
    parts = re.split(r"([0-9]+)", text)
    numbers = [int(number) for number in parts[1::2]] + [0]
    return [(0, parts[0]), *zip(numbers, [*parts[2::2], ""], strict=True)], text


def _class_folders(keys: Sequence[str], root: Path) -> list[tuple[str, ...]]:
    """Return the folders each image is in, less the leading ones common to all.

    Raises:
        DataError: images lie in the root itself, where no folder names their class.
    """
    folders = [PurePosixPath(key).parts[:-1] for key in keys]
    loose = [key for key, folder in zip(keys, folders, strict=True) if not folder]
    if loose:
        raise DataError(f"{root}: each image must lie in the folder of its class: {quoted(loose)}")
    depth, deepest = 0, min(len(folder) for folder in folders) - 1
    while depth < deepest and len({folder[depth] for folder in folders}) == 1:
        depth += 1
    return [folder[depth:] for folder in folders]


def _are_splits(folders: Sequence[tuple[str, ...]]) -> bool:
    tops = {split_name(folder[0]) for folder in folders}
    return tops <= _SPLIT_FOLDERS and len(tops) > 1 and all(len(folder) > 1 for folder in folders)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise OptionError(f"pattern must be a regular expression: {error} in {pattern!r}") from None
    if not expression.groupindex:
        raise OptionError(f"pattern must have a named group, (?P<name>...), not {pattern!r}")
    return expression


def _columns(
    keys: Sequence[str], expression: re.Pattern[str], root: Path
) -> dict[str, tuple[str, ...]]:
    matches = [expression.search(key) for key in keys]
    unmatched = [repr(key) for key, match in zip(keys, matches, strict=True) if match is None]
    if unmatched:
        raise DataError(
            f"{root}: the pattern {expression.pattern!r} does not match {first_few(unmatched)}"
        )
    return {
        name: tuple(match[name] or "" for match in matches if match is not None)
        for name in expression.groupindex
    }
