"""Image files for packages that read them outside a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fsf_datasets._image_files import ImageFileDataset
from fsf_datasets._messages import counted
from fsf_datasets._splits import split_of_name
from fsf_datasets._tables import label_fault
from fsf_datasets._trees import FolderTree, Tree, images_of, open_tree, walk_files

__all__ = [
    "ImageFiles",
    "counted",
    "images_of",
    "label_fault",
    "open_tree",
    "split_of_name",
    "walk_files",
]


class ImageFiles(ImageFileDataset):
    """Images by row, without labels.

    Args:
        files: the file of each row.
        tree: what contains the files; ``None`` for any files on disk.
        notes: what a reader must know about the files, one sentence each.
    """

    def __init__(
        self, files: Sequence[str], tree: Tree | None = None, notes: Sequence[str] = ()
    ) -> None:
        self._tree, self._files = tree or FolderTree(Path(), walk=False), files
        self.notes = notes
        self.paths = tuple(Path(self._tree.place(file)) for file in files)
        """The path of each row, for messages."""

    def _place(self, index: int) -> str:
        return str(self.paths[index])
