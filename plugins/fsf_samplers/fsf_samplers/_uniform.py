"""Uniform draws of many tasks at once, equal to those of ``task_rng`` one task at a time.

The numbers of ``SeedSequence`` and ``PCG64``, which NumPy guarantees, are computed for all tasks
together. Items are chosen from them as ``Generator.choice(items, n, replace=False)`` chooses: by
Floyd's algorithm and a shuffle, with integers by Lemire's method (2019).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fsframework.values import BoolArray, ImagePool, IntArray, task_entropy, task_rng

__all__ = ["draw_uniformly", "task_seeds"]

UInt32 = npt.NDArray[np.uint32]
UInt64 = npt.NDArray[np.uint64]

_BLOCK = 256
"""Tasks drawn at once, so that their numbers stay in the processor's cache."""

_MOST = 200
"""Most items chosen at once: time grows with the square, and with more of them NumPy may use
another algorithm.
"""


def draw_uniformly(
    pool: ImagePool,
    shape: tuple[int, int, int],
    seed: int,
    stream: str,
    classes: IntArray | None = None,
) -> tuple[IntArray, IntArray]:
    """Draw classes without replacement, then images of each class without replacement.

    Args:
        pool: the images to draw from; classes with too few are not drawn.
        shape: number of tasks, classes per task and images per class.
        seed: task ``t`` is drawn from ``task_rng(seed, t, stream)`` only.
        stream: name of the random numbers.
        classes: ``(T, way)``, the classes of each task where they are not to be drawn.

    Returns:
        Classes, int64 ``(T, way)``, and images, int64 ``(T, way, n)``.
    """
    n_tasks, n_way, n_images = shape
    usable = np.flatnonzero(pool.class_sizes >= n_images)
    grouped = np.argsort(pool.labels, kind="stable")
    starts = np.cumsum(pool.class_sizes) - pool.class_sizes
    labels = np.empty((n_tasks, n_way), np.int64) if classes is None else classes
    images = np.empty(shape, np.int64)
    for first in range(0, n_tasks, _BLOCK):
        tasks = range(first, min(first + _BLOCK, n_tasks))
        remaining: Any = tasks
        if max(n_way, n_images) <= _MOST:
            numbers = _Numbers(seed, tasks, stream)
            if classes is None:
                sizes = np.full((len(tasks), 1), len(usable))
                labels[first : tasks.stop] = usable[numbers.choose(sizes, n_way)[:, 0]]
            drawn = labels[first : tasks.stop]
            chosen = numbers.choose(pool.class_sizes[drawn], n_images)
            images[first : tasks.stop] = grouped[starts[drawn][:, :, None] + chosen]
            remaining = first + np.flatnonzero(numbers.rejected)
        for task in map(int, remaining):
            rng = task_rng(seed, task, stream)
            if classes is None:
                labels[task] = usable[rng.choice(len(usable), n_way, replace=False)]
            for way, label in enumerate(labels[task]):
                images[task, way] = rng.choice(pool.members(label), n_images, replace=False)
    return labels, images


def task_seeds(seed: int, tasks: range, stream: str) -> UInt64:
    """Return a 64-bit seed for each task, for samplers with their own generator."""
    return _seed_sequences(seed, tasks, stream, 1)[0]


class _Numbers:
    """The numbers that ``task_rng`` gives each of some tasks, consumed in order.

    Args:
        seed: the seed of the draw.
        tasks: the tasks.
        stream: name of the random numbers.
    """

    def __init__(self, seed: int, tasks: range, stream: str) -> None:
        self._start = _seed_sequences(seed, tasks, stream, 4)
        self._used = np.zeros(len(tasks), np.int64)
        self.rejected: BoolArray = np.zeros(len(tasks), bool)
        """The tasks that NumPy gives other items, since it rejects one of their numbers."""

    def choose(self, sizes: IntArray, n: int) -> IntArray:
        """Choose ``n`` of each of ``sizes`` items of each task, in random order.

        Args:
            sizes: ``(T, m)``, at least ``n`` and below ``2**32``.
            n: items to choose each time, at most 200.

        Returns:
            Places of items, int64 ``(T, m, n)``.
        """
        without_first = sizes == n  # an integer below 1 takes no number
        lengths = 2 * n - 1 - without_first
        ends = self._used[:, None] + np.cumsum(lengths, axis=1)
        self._used = ends[:, -1]
        numbers = _pcg64(self._start, -(-int(ends.max()) // 2))
        first = ends - (2 * n - 1) + np.arange(len(sizes))[:, None] * numbers.shape[1]
        places = first.ravel() + np.arange(2 * n - 1)[:, None]

        count = sizes.ravel().astype(np.uint64)
        bounds = np.empty(places.shape, np.uint64)
        bounds[:n] = count - np.arange(n, dtype=np.uint64)[::-1, None]
        bounds[n:] = np.arange(n, 1, -1, dtype=np.uint64)[:, None]
        products = numbers.ravel()[places] * bounds
        low = products & _LOW
        suspect = (low < bounds).any(axis=0)
        if suspect.any():
            least = (np.uint64(1 << 32) - bounds[:, suspect]) % bounds[:, suspect]
            suspect[suspect] = (low[:, suspect] < least).any(axis=0)
            self.rejected |= suspect.reshape(sizes.shape).any(axis=1)
        drawn = (products >> np.uint64(32)).astype(np.int64)

        chosen = drawn[:n]
        for i in range(1, n):
            again = (chosen[:i] == chosen[i]).any(axis=0)
            chosen[i] = np.where(again, bounds[i].astype(np.int64) - 1, chosen[i])
        columns = np.arange(chosen.shape[1])
        for i, other in zip(range(n - 1, 0, -1), drawn[n:], strict=True):
            moved = chosen[other, columns]
            chosen[other, columns] = chosen[i]
            chosen[i] = moved
        items: IntArray = chosen.T.reshape(*sizes.shape, n)
        return items


# -- SeedSequence ----------------------------------------------------------------------------------


def _seed_sequences(seed: int, tasks: range, stream: str, n: int) -> list[UInt64]:
    """Return the first ``n`` 64-bit numbers of each task's ``SeedSequence``."""
    words = _words_of(seed, tasks, stream)
    constants = _constants(0x43B0D7E5, 0x931E8875)
    pool = [_hashed(word, constants) for word in words[:4]]
    for source, target in itertools.permutations(range(4), 2):
        pool[target] = _mixed(pool[target], _hashed(pool[source], constants))
    for word in words[4:]:
        for target in range(4):
            pool[target] = _mixed(pool[target], _hashed(word, constants))
    constants = _constants(0x8B51F9DD, 0x58F38DED)
    halves = [_hashed(pool[i % 4], constants).astype(np.uint64) for i in range(2 * n)]
    return [halves[i] | halves[i + 1] << np.uint64(32) for i in range(0, 2 * n, 2)]


def _words_of(seed: int, tasks: range, stream: str) -> list[UInt32]:
    """Return what the tasks are seeded with as 32-bit words, at least four."""
    entropies = [task_entropy(seed, task, stream) for task in tasks]
    words = []
    for numbers in zip(*entropies, strict=True):
        n_words = max(1, -(-max(numbers).bit_length() // 32))
        words += [[number >> 32 * i & 0xFFFF_FFFF for number in numbers] for i in range(n_words)]
    words += [[0] * len(tasks)] * (4 - len(words))
    return [np.array(word, np.uint32) for word in words]


def _constants(first: int, multiplier: int) -> Iterator[tuple[np.uint32, np.uint32]]:
    while True:
        following = first * multiplier & 0xFFFF_FFFF
        yield np.uint32(first), np.uint32(following)
        first = following


def _hashed(value: UInt32, constants: Iterator[tuple[np.uint32, np.uint32]]) -> UInt32:
    mask, multiplier = next(constants)
    value = (value ^ mask) * multiplier
    return value ^ value >> np.uint32(16)


def _mixed(x: UInt32, y: UInt32) -> UInt32:
    value: UInt32 = np.uint32(0xCA01F9DD) * x - np.uint32(0x4973F715) * y
    return value ^ value >> np.uint32(16)


# -- PCG64 -----------------------------------------------------------------------------------------

_LOW = np.uint64(0xFFFF_FFFF)


def _pcg64(start: list[UInt64], n: int) -> UInt64:
    """Return the first ``2 n`` 32-bit numbers of each generator, uint64 ``(T, 2 n)``.

    State ``k`` of the generator is ``a m^k + c (1 + m + ... + m^(k-1))`` modulo ``2**128``, where
    ``m`` is its multiplier, ``c`` its increment and ``a`` their sum with the seed.
    """
    high, low, stream_high, stream_low = (part[:, None] for part in start)
    stream_high = stream_high << np.uint64(1) | stream_low >> np.uint64(63)
    stream_low = stream_low << np.uint64(1) | np.uint64(1)
    powers, sums = _powers(n)
    seeded = _multiplied(_added((high, low), (stream_high, stream_low)), powers)
    high, low = _added(seeded, _multiplied((stream_high, stream_low), sums))
    turn, mixed = high >> np.uint64(58), high ^ low
    numbers = mixed >> turn | mixed << (-turn & np.uint64(63))
    return np.stack((numbers & _LOW, numbers >> np.uint64(32)), axis=2).reshape(len(numbers), -1)


@functools.lru_cache(maxsize=8)
def _powers(n: int) -> tuple[Wide, Wide]:
    """Return ``m^2 ... m^(n+1)`` and the sums of the powers below each."""
    multiplier, whole = 0x2360ED051FC65DA44385DF649FCCF645, (1 << 128) - 1
    power, total = multiplier, 1
    powers, sums = [], []
    for _ in range(n):
        total = total + power & whole
        power = power * multiplier & whole
        powers.append(power)
        sums.append(total)
    return _wide(powers), _wide(sums)


Wide = tuple[UInt64, UInt64]
"""The upper and lower halves of 128-bit integers."""


def _wide(numbers: list[int]) -> Wide:
    upper = np.array([number >> 64 for number in numbers], np.uint64)
    return upper, np.array([number & (1 << 64) - 1 for number in numbers], np.uint64)


def _added(first: Wide, second: Wide) -> Wide:
    low = first[1] + second[1]
    return first[0] + second[0] + (low < first[1]), low


def _multiplied(first: Wide, second: Wide) -> Wide:
    (a_high, a_low), (b_high, b_low) = (
        (n >> np.uint64(32), n & _LOW) for n in (first[1], second[1])
    )
    crossed = a_high * b_low
    middle = (a_low * b_low >> np.uint64(32)) + (crossed & _LOW) + a_low * b_high
    carried = a_high * b_high + (crossed >> np.uint64(32)) + (middle >> np.uint64(32))
    return carried + first[0] * second[1] + first[1] * second[0], first[1] * second[1]
