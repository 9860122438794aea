"""Parts of an image: the cells of a grid, in place or in another order."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fsframework.interfaces import OptionError, ViewMaker, Views, check_below_one

__all__ = ["Jigsaw", "Patches", "distant_permutations"]

_MOST_GRID = 3


class Patches(ViewMaker):
    """The cells of a grid laid over the image, row by row, each reduced at a random place.

    Source: Gidaris et al. 2019, "Boosting Few-Shot Visual Learning with Self-Supervision" (ICCV),
    section 3.2 (relative patch location, after Doersch, Gupta and Efros 2015): nine patches; the
    one in the middle is the fifth view. A view's number is that of its cell.

    Args:
        grid: cells along each side.
        gap: share of a cell's side that is left out, so that edges do not continue from one patch
            to the next; where the rest lies in the cell is drawn. The paper takes 24 of 32 pixels
            in images of 96.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(self, *, grid: int = 3, gap: float = 0.25) -> None:
        _check_grid(grid)
        check_below_one(gap=gap)
        self.grid, self.gap = grid, gap
        self.n_views = self.n_kinds = grid**2
        self.random = gap > 0

    def make(self, images: Tensor) -> Views:
        """Return the patches ``(n, grid ** 2, 3, h, w)``."""
        places = _places(images, self.grid, self.gap)
        numbers = torch.arange(self.n_views, device=images.device)
        return Views(places.parts_of(images), numbers.expand(len(images), -1))


class Jigsaw(ViewMaker):
    """The cells of a grid laid over the image, in one of several orders, drawn for each image.

    Source: Noroozi and Favaro 2016, "Unsupervised Learning of Visual Representations by Solving
    Jigsaw Puzzles" (ECCV), section 3.3; with 35 permutations in Su, Maji and Hariharan 2020,
    "When Does Self-Supervision Improve Few-Shot Learning?" (ECCV), section 3.2. The number of all
    views of an image is that of its permutation. The permutations are chosen one after another,
    each as far from the ones before it as possible (Hamming distance, algorithm 1 of the first
    paper, which starts from a random one; here the first keeps the cells in place).

    Args:
        grid: cells along each side.
        n_permutations: how many there are to choose from.
        gap: share of a cell's side that is left out; where the rest lies in the cell is drawn. Both
            papers take 64 of 75 pixels.

    Raises:
        OptionError: an option is outside its range.
    """

    random = together = True

    def __init__(self, *, grid: int = 3, n_permutations: int = 35, gap: float = 11 / 75) -> None:
        _check_grid(grid)
        check_below_one(gap=gap)
        most = 24 if grid == 2 else 1000
        if not 2 <= n_permutations <= most:
            raise OptionError(
                f"n_permutations must be in 2..{most} for a grid of {grid} x {grid}, got "
                f"{n_permutations}"
            )
        self.grid, self.n_permutations, self.gap = grid, n_permutations, gap
        self.n_views, self.n_kinds = grid**2, n_permutations

    def make(self, images: Tensor) -> Views:
        """Return the patches in the order of each image's permutation."""
        n = len(images)
        places = _places(images, self.grid, self.gap)
        number = torch.randint(self.n_permutations, (n,))
        orders = torch.from_numpy(distant_permutations(self.n_views, self.n_permutations))
        parts = places.in_order(orders[number]).parts_of(images)
        return Views(parts, number.to(images.device)[:, None].expand(-1, self.n_views))


def _check_grid(grid: int) -> None:
    if not 2 <= grid <= _MOST_GRID:
        raise OptionError(f"grid must be in 2..{_MOST_GRID}, got {grid}")


@dataclass(frozen=True)
class _Places:
    """Where the parts of images are.

    Args:
        rows: the first row of each part, int64 ``(n, parts)``; ``columns`` likewise.
        height: of a part, in pixels; ``width`` likewise.
    """

    rows: Tensor
    columns: Tensor
    height: int
    width: int

    def in_order(self, order: Tensor) -> _Places:
        """Return the places of each image in an order of its own, int64 ``(n, parts)``."""
        rows, columns = (at.gather(1, order) for at in (self.rows, self.columns))
        return _Places(rows, columns, self.height, self.width)

    def parts_of(self, images: Tensor) -> Tensor:
        """Return the parts ``(n, parts, 3, height, width)`` of images."""
        # Every part that an image has, as a view of it: one index copies a whole part.
        windows = images.unfold(2, self.height, 1).unfold(3, self.width, 1)
        rows, columns = self.rows.to(images.device), self.columns.to(images.device)
        which = torch.arange(len(images), device=images.device)[:, None]
        return windows.permute(0, 2, 3, 1, 4, 5)[which, rows, columns]


def _places(images: Tensor, grid: int, gap: float) -> _Places:
    """Draw the place of a part within every cell, cells row by row.

    Raises:
        OptionError: the images are too small.
    """
    n, _, *size = images.shape
    cell = [length // grid for length in size]
    side = [max(1, round(length * (1 - gap))) for length in cell]
    if min(cell) < 1:
        raise OptionError(
            f"images of {size[0]} x {size[1]} pixels are too small for {grid} x {grid} parts"
        )
    room = torch.tensor([c - s + 1 for c, s in zip(cell, side, strict=True)])
    offset = (torch.rand(2, n, grid**2) * room[:, None, None]).long()
    number = torch.arange(grid**2)
    corner = torch.stack([number // grid * cell[0], number % grid * cell[1]])
    rows, columns = corner[:, None] + offset
    return _Places(rows, columns, *side)


@functools.cache
def distant_permutations(n: int, count: int) -> np.ndarray:
    """Return permutations that differ in many places, int64 ``(count, n)``, the identity first.

    Each next one is, of 5,000 fixed candidates (all of them for n up to 4), the one whose smallest
    number of differing places to those chosen is the largest; ties go to the larger sum.

    >>> distant_permutations(4, 3).tolist()
    [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1]]
    """
    candidates = _candidates(n)
    chosen = [np.arange(n)]
    least = np.full(len(candidates), n)
    total = np.zeros(len(candidates), dtype=np.int64)
    while len(chosen) < count:
        apart = (candidates != chosen[-1]).sum(axis=1)
        least, total = np.minimum(least, apart), total + apart
        chosen.append(candidates[np.argmax(least * (n * count + 1) + total)])
    return np.stack(chosen)


def _candidates(n: int) -> np.ndarray:
    if n <= 4:
        grids = np.stack(np.meshgrid(*[np.arange(n)] * n, indexing="ij"), axis=-1).reshape(-1, n)
        return grids[(np.sort(grids, axis=1) == np.arange(n)).all(axis=1)]
    rng = np.random.default_rng(0)
    return rng.permuted(np.tile(np.arange(n), (5000, 1)), axis=1)
