"""What a layout finds among the files of a user."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from PIL import Image

from fsf_datasets._splits import split_name

__all__ = ["Found", "Pictures", "split_of_name"]

_SPLIT_NAMES = {"training": "train", "testing": "test"}


def split_of_name(name: str) -> str | None:
    """Return the split that a folder or file is named after, if it is.

    >>> split_of_name("Validation"), split_of_name("training"), split_of_name("trained")
    ('val', 'train', None)
    """
    lower = name.casefold()
    found = _SPLIT_NAMES.get(lower, split_name(lower))
    return found if found in ("train", "val", "test") else None


class Pictures:
    """Images that are no files of their own."""

    def __getitem__(self, index: int) -> Image.Image:
        """Return one image."""
        raise NotImplementedError


@dataclass
class Found:
    """The images that a layout finds, and what is odd about them.

    Args:
        layout: its name.
        classes: the class of each image.
        files: the file of each image; where ``pictures`` holds the images, a name of its own.
        columns: metadata of each image.
        laid: the splits in which the files of each class lie, where they lie by split.
        strangers: how many images lie under names that are no class.
        unmatched: files that the pattern does not match.
        pictures: the images, where they are no files of their own.
        sources: files that the images depend on, besides themselves.
        nameless: whether classes are known by split and number only.
        problems: what else a user should know, a sentence each.
    """

    layout: str
    classes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    columns: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    laid: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    strangers: Counter[str] = field(default_factory=Counter)
    unmatched: list[str] = field(default_factory=list)
    pictures: Pictures | None = None
    sources: tuple[str, ...] = ()
    nameless: bool = False
    problems: list[str] = field(default_factory=list)

    def add(self, name: str, files: Sequence[str]) -> None:
        """Add the images of a class."""
        self.classes.extend([name] * len(files))
        self.files.extend(files)
