"""A folder of images with one sub-folder per class."""

from __future__ import annotations

import re
import reprlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from fsf_datasets._decoding import check_pixel_range
from fsf_datasets._image_files import ImageFileDataset, files_digest
from fsf_datasets._messages import first_few, quoted
from fsf_datasets._patterns import compiled, search_names
from fsf_datasets._splits import SplitOptions, disjoint, split_of_name
from fsf_datasets._tables import label_fault
from fsf_datasets._trees import CONTAINERS, images_of, open_tree
from fsf_datasets.file_names import natural
from fsframework.interfaces import DataError, OptionError
from fsframework.values import digest_of

__all__ = ["Folder"]

_NO_LABEL = "(no label)"
"""Stands for the class of images without labels."""


class Folder(ImageFileDataset):
    r"""Image files in one folder per class, at any depth.

    The class of an image is the path of the folder that contains it (``Greek/character01``),
    without the leading folders common to all images. Hidden files, what systems leave in folders
    and files of other types are ignored. A key is the path of the file relative to ``path``.

    Splits come from the file ``split`` if given. Otherwise, if the top folders are ``train``,
    ``val`` (or ``valid``, ``validation``) and ``test``, or two of these, in any letter case, they
    are the splits and their names are not part of the class. If only some folders have such names,
    or those within classes do, the data are refused; one beside several others is a class.
    Otherwise the splits are drawn.

    With ``labels="none"`` the images of the split ``train`` have no labels, for methods that learn
    without: those in the top folder ``train`` if there are such folders, else all images. Folders
    within it mean nothing.

    Args:
        path: the folder, or a ``.zip`` archive, which need not be unpacked.
        split: a file with the classes of each split, JSON ``{"train": [class, ...], "val": ...}``
            or CSV with the columns ``class`` (or ``label``) and ``split``. Classes that it does not
            name are in no split.
        split_fractions: shares of train, val and test if splits are drawn. Shares are rounded down,
            but to at least one class; remaining classes go to test, then val, then train.
        split_seed: seed of that draw.
        pattern: a regular expression with named groups, searched in each key; each group becomes
            a metadata column (``-(?P<texture>[a-z]+)\d+`` on ``cat/cat1-oven2.png`` gives
            ``oven``). A group that does not take part in the match gives the empty string.
        levels: number of folders that name the class, below those of splits and those common to
            all images; the folders below are the metadata column ``context`` (1:
            ``crow/winter/3.jpg`` is a crow in the context winter). ``None``: all folders name the
            class, and there is no column.
        labels: ``none`` for training images without labels.
        pixel_range: the values that are black and white in images of more than 8 bits per channel;
            values outside are clipped. By default those of 16 bits are 0 and 65535; floats, 32-bit
            integers and images that use only a part of 16 bits are refused.

    Raises:
        DataError: the folder does not exist or contains no image, an image is outside the class
            folders, a key does not match the pattern, or a split does not fit the classes.
        OptionError: an option is outside its range, or the split of images without labels is given.
    """

    argument = "path"
    stored_as: ClassVar[Mapping[str, str]] = {"labels": "labels_from"}
    _takes_pixel_range = True

    def __init__(  # noqa: PLR0913 - an option each
        self,
        *,
        path: Path,
        split: Path | None = None,
        split_fractions: tuple[float, float, float] = (0.64, 0.16, 0.2),
        split_seed: int = 0,
        pattern: str | None = None,
        levels: int | None = None,
        labels: Literal["folders", "none"] = "folders",
        pixel_range: tuple[float, float] | None = None,
    ) -> None:
        self.path = Path(path)
        self.split = None if split is None else Path(split)
        self.split_fractions = split_fractions
        self.split_seed = split_seed
        self.pattern = pattern
        self.levels = levels
        if levels is not None and levels < 1:
            raise OptionError(f"levels must be at least 1, not {levels}")
        self.labels_from = labels
        self.pixel_range = self._pixel_range = check_pixel_range(pixel_range)
        if labels == "none" and self.split is not None:
            raise OptionError("split assigns classes to splits; with labels=none leave it out")
        options = SplitOptions(self.split, split_fractions, split_seed)
        expression = None if pattern is None else _compiled(pattern)

        self._tree = open_tree(self.path)
        self.keys = self._files = images_of(self._tree)
        found = _arranged(self.keys, self.path, splits=self.split is None, labels=labels)
        if self.split is None:
            _require_plain_classes(found, levels, self.path)
        named = {folder: "/".join(parts[:levels]) for folder, parts in found.own.items()}
        classes = [named[folder] for folder in found.folders]
        given = None
        if found.in_splits:
            given = disjoint([(named[f], f[0]) for f in found.own if f], str(self.path))
        if labels == "none":
            self.unlabelled = frozenset({"train"})
            given = {**(given or {}), "train": (_NO_LABEL,)}
        self._depths = {named[f]: len(parts) for f, parts in found.own.items()}
        self.class_names = tuple(sorted(set(classes), key=natural))
        for name in self.class_names:
            if why := label_fault(name):
                raise DataError(f"{self.path}: the name of the class {reprlib.repr(name)} {why}")
        position = {name: i for i, name in enumerate(self.class_names)}
        self.labels = np.array([position[name] for name in classes], dtype=np.int64)
        self.splits = options.splits(self.class_names, given, self.path)
        self.metadata = {} if expression is None else _columns(self.keys, expression, self.path)
        if levels is not None:
            below = {folder: "/".join(parts[levels:]) for folder, parts in found.own.items()}
            self.metadata.setdefault("context", tuple(below[folder] for folder in found.folders))
        self.fingerprint = digest_of(
            "folder",
            self.keys,
            self.class_names,
            self.labels,
            *(part for split_and_classes in self.splits.items() for part in split_and_classes),
            *sorted(self.unlabelled),
            self.pixels_fingerprint,
        )

    @cached_property
    def pixels_fingerprint(self) -> str:  # type: ignore[override]
        """A digest that changes only with the files and the range of their values."""
        files = files_digest(self._tree, self._files)
        return digest_of("folder", self.keys, files, *map(str, self.pixel_range or ()))

    def problems(self) -> list[str]:
        """Return what is left out, class folders without images, and those nested deeper."""
        leaves = self._tree.folders - {_above(folder) for folder in self._tree.folders}
        empty = sorted(leaves - {_above(file) for file in self._files})
        found = self._tree.unread_images(CONTAINERS)
        found += [f"no image in {quoted(empty)}"] if empty else []
        usual = min(self._depths.values())
        deeper = sorted(name for name, depth in self._depths.items() if depth > usual)
        if deeper and self.levels is None:
            found.append(
                f"separate classes because they are nested deeper than others: {quoted(deeper)}; "
                f"levels={usual} merges them into the folder above"
            )
        inside = [n for n in self.class_names if "/" in n and split_of_name(n.partition("/")[0])]
        if inside and self.split is None:
            found.append(f"classes in a folder named as a split: {quoted(inside)}")
        return found


@dataclass(frozen=True)
class _Arrangement:
    """Where the images are.

    Args:
        folders: those of each image, without the leading ones that mean nothing; none for images
            without labels.
        own: the folders that name the class, by all of them.
        in_splits: whether the top folders are splits.
    """

    folders: Sequence[tuple[str, ...]]
    own: Mapping[tuple[str, ...], tuple[str, ...]]
    in_splits: bool


def _arranged(
    keys: Sequence[str], root: Path, *, splits: bool, labels: Literal["folders", "none"]
) -> _Arrangement:
    """Return where the images are.

    Args:
        splits: whether top folders may be splits.
        labels: of the training images.

    Raises:
        DataError: an image with a label is outside the folder of its class.
    """
    # One tuple per folder, not per image; a dictionary keeps the order, a set would not.
    if labels == "folders":
        folders = _class_folders(keys, root)
        in_splits = splits and _are_splits(folders)
        cut = int(in_splits)
        return _Arrangement(folders, {f: f[cut:] for f in dict.fromkeys(folders)}, in_splits)
    folders = _without_common([tuple(_above(key).split("/")) for key in keys])
    tops = {split_of_name(folder[0]) for folder in folders}
    if not (None not in tops and "train" in tops and len(tops) > 1):
        parts = [{split_of_name(part) for part in key.split("/")[:-1]} for key in keys]
        wrong = [key for key, names in zip(keys, parts, strict=True) if names & {"val", "test"}]
        if wrong:
            raise DataError(
                f"{root}: with labels=none all images would be for training, also those of another "
                f"split: {quoted(wrong)}; put the others into a folder train beside it"
            )
        return _Arrangement([()] * len(keys), {(): (_NO_LABEL,)}, in_splits=False)
    folders = [() if split_of_name(folder[0]) == "train" else folder for folder in folders]
    if loose := [k for k, folder in zip(keys, folders, strict=True) if len(folder) == 1]:
        raise DataError(
            f"{root}: each image must be in the folder of its class, unlike {quoted(loose)}; only "
            "those of train need none with labels=none"
        )
    own = {f: f[1:] or (_NO_LABEL,) for f in dict.fromkeys(folders)}
    return _Arrangement(folders, own, in_splits=True)


def _above(name: str) -> str:
    """Return the folder that contains a file or folder."""
    return name.rpartition("/")[0]


def _class_folders(keys: Sequence[str], root: Path) -> list[tuple[str, ...]]:
    """Return the folders above each image, without the leading ones common to all.

    Raises:
        DataError: images are in the root itself, where no folder names their class.
    """
    # One tuple per folder, not per image.
    aboves = [*dict.fromkeys(map(_above, keys))]
    if "" in aboves:
        loose = [key for key in keys if "/" not in key]
        raise DataError(
            f"{root}: each image must be in the folder of its class, unlike {quoted(loose)}"
        )
    parts = _without_common([tuple(above.split("/")) for above in aboves])
    short = dict(zip(aboves, parts, strict=True))
    return [short[_above(key)] for key in keys]


def _without_common(folders: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return folders without the leading ones common to all, but at least one."""
    distinct = {*folders}
    depth, deepest = 0, min(map(len, distinct)) - 1
    while depth < deepest and len({folder[depth] for folder in distinct}) == 1:
        depth += 1
    return [folder[depth:] for folder in folders]


def _are_splits(folders: Sequence[tuple[str, ...]]) -> bool:
    tops = {split_of_name(folder[0]) for folder in folders}
    return None not in tops and len(tops) > 1 and all(len(folder) > 1 for folder in folders)


def _require_plain_classes(found: _Arrangement, levels: int | None, root: Path) -> None:
    """Refuse folders of classes of which some are named as splits.

    A single such folder is a class if its neighbours are several, or have no folders inside either.

    Raises:
        DataError: there are such folders.
    """
    inside: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for parts in found.own.values():
        for depth in range(len(parts)):
            inside[parts[:depth]].add(parts[: depth + 1])
    for above, folders in sorted(inside.items()):
        splits = sorted(folder[-1] for folder in folders if split_of_name(folder[-1]))
        alone = len(splits) == 1 and (len(folders) != 2 or not folders & {*inside})
        if splits and not alone and (levels is None or len(above) < levels):
            place = f" in {'/'.join(above)!r}" if above else ""
            raise DataError(
                f"{root}: folders{place} are named as splits, {quoted(splits)}, but not every "
                "folder beside them is a top folder of a split with folders of classes inside; "
                "rename folders, assign classes by a file split, or leave those inside classes "
                "out by levels=1"
            )


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        expression = compiled(pattern)
    except ValueError as error:
        raise OptionError(
            f"pattern must be a regular expression: {error} in {reprlib.repr(pattern)}"
        ) from None
    if not expression.groupindex:
        raise OptionError(f"pattern must have a named group (?P<name>...), not {pattern!r}")
    return expression


def _columns(
    keys: Sequence[str], expression: re.Pattern[str], root: Path
) -> dict[str, tuple[str, ...]]:
    matches = search_names(expression, keys)
    unmatched = [repr(key) for key, match in zip(keys, matches, strict=True) if match is None]
    if unmatched:
        raise DataError(
            f"{root}: the pattern {expression.pattern!r} does not match {first_few(unmatched)}"
        )
    return {
        name: tuple(match[name] for match in matches if match is not None)
        for name in expression.groupindex
    }
