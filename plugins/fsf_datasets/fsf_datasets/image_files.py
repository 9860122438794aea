"""Image files for packages that read them outside a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fsf_datasets._found import split_of_name
from fsf_datasets._image_files import ImageFileDataset
from fsf_datasets._tables import label_fault
from fsf_datasets._trees import FolderTree, Tree, images_of, open_tree, walk_files

__all__ = [
    "FolderTree",
    "ImageFiles",
    "Tree",
    "images_of",
    "label_fault",
    "open_tree",
    "split_of_name",
    "walk_files",
]


class ImageFiles(ImageFileDataset):
    """Images by row, without labels.

    Args:
        tree: the files.
        names: the file of each row, within ``tree``.
    """

    def __init__(self, tree: Tree, names: Sequence[str]) -> None:
        self._tree, self._files = tree, names
        self.paths = tuple(Path(tree.place(name)) for name in names)
        """The path of each row, for messages."""

    def _place(self, index: int) -> str:
        return str(self.paths[index])
