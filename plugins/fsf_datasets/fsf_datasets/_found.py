"""The images that a layout finds among the files of a user."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from PIL import Image

__all__ = ["Found", "Pictures"]


class Pictures:
    """Images that are not separate files."""

    def __getitem__(self, index: int) -> Image.Image:
        """Return one image."""
        raise NotImplementedError


@dataclass
class Found:
    """The images that a layout finds, and everything unusual about them.

    Args:
        layout: name of the layout.
        classes: the class of each image.
        files: the file of each image, or a made-up name if ``pictures`` contains the images.
        columns: metadata of each image.
        placed: the splits whose folders contain each class, if folders are named after splits.
        unknown: number of images under each name that is not a class.
        unmatched: files that the pattern does not match.
        pictures: the images, if they are not separate files.
        sources: other files that the images depend on.
        numbered: whether classes are known only by split and number.
        problems: anything else that a user should know, one sentence each.
    """

    layout: str
    classes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    columns: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    placed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unknown: Counter[str] = field(default_factory=Counter)
    unmatched: list[str] = field(default_factory=list)
    pictures: Pictures | None = None
    sources: tuple[str, ...] = ()
    numbered: bool = False
    problems: list[str] = field(default_factory=list)

    def add(self, name: str, files: Sequence[str]) -> None:
        """Add the images of a class."""
        self.classes.extend([name] * len(files))
        self.files.extend(files)

    def keep(self, indices: Sequence[int]) -> None:
        """Keep only some of the images, which are separate files."""
        self.classes = [self.classes[i] for i in indices]
        self.files = [self.files[i] for i in indices]
        self.columns = {name: [own[i] for i in indices] for name, own in self.columns.items()}
