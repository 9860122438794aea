"""An attribute table indexed for the queries of FewSTAB."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsf_samplers._kernels import group_by_word, words_of_images
from fsframework.values import AttributeTable, ImagePool

__all__ = ["WordIndex"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


class WordIndex(NamedTuple):
    """The words of each image, and the images of each class that have a word.

    Images are addressed by *row*, their place when sorted by class. A *cell* is a pair (class,
    word) with at least one image; cells are sorted by class, then word, and one empty cell comes
    last. Memory grows with the number of pairs (image, word), not with the product of classes and
    words.
    """

    images: Int64
    """``(n_images,)``: the pool's index of the image in each row."""

    class_start: Int64
    """``(n_classes + 1,)``: the rows of class ``c`` are ``class_start[c]:class_start[c + 1]``."""

    cells_start: Int64
    """``(n_images + 1,)``: the cells of row ``r``: ``cells[cells_start[r]:cells_start[r + 1]]``."""

    cells: Int32
    """``(n_pairs,)``: the cells that each row is in, ascending."""

    cell_start: Int64
    """``(n_classes + 1,)``: the cells of class ``c`` are ``cell_start[c]:cell_start[c + 1]``."""

    cell_word: Int32
    """``(n_cells,)``: the word of each cell except the empty one."""

    rows_start: Int64
    """``(n_cells + 2,)``: the rows in cell ``i`` are ``rows[rows_start[i]:rows_start[i + 1]]``."""

    rows: Int32
    """``(n_pairs,)``: the rows in each cell, ascending."""

    @classmethod
    def of(cls, pool: ImagePool, table: AttributeTable) -> WordIndex:
        """Build the index, which takes about 20 bytes per pair (image, word)."""
        images = np.argsort(pool.labels, kind="stable")
        class_start = np.append(0, np.cumsum(pool.class_sizes))
        cells_start, words = words_of_images(table.indptr, table.indices, images)
        grouped = group_by_word(class_start, cells_start, words, len(table.words))
        return cls(images, class_start, cells_start, *grouped)

    @property
    def counts(self) -> Int32:
        """Images of each cell, ``(n_cells,)``, at least 1."""
        return np.diff(self.rows_start[:-1]).astype(np.int32)

    @property
    def cell_class(self) -> Int32:
        """The class of each cell, ``(n_cells,)``."""
        classes = np.arange(self.cell_start.size - 1, dtype=np.int32)
        return np.repeat(classes, np.diff(self.cell_start))
