"""The compiled part of FewSTAB: reading the bits, and drawing tasks from a ``WordIndex``.

Everything compiled stands in this one file, since Numba's disk cache only notices changes of the
file that a function stands in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from fsf_samplers._index import WordIndex

__all__ = [
    "FEW_QUERIES",
    "FEW_SUPPORTS",
    "NO_ATTRIBUTE",
    "Choices",
    "Drawn",
    "draw_tasks",
    "group_by_word",
    "words_of_images",
]

Array = npt.NDArray[Any]
F = TypeVar("F", bound=Callable[..., Any])


def entry(function: F) -> F:
    """Compile what Python calls, and keep the machine code on disk where there is room for it."""
    try:
        return cast(F, numba.njit(cache=True)(function))
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return cast(F, numba.njit(function))


def inner(function: F) -> F:
    """Compile what only compiled code calls, without the wrappers that Python would need."""
    without: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(F, numba.njit(**without)(function))


def inlined(function: F) -> F:
    """Compile as a part of its only caller, which takes half the time of compiling it apart."""
    return cast(F, numba.njit(inline="always")(function))


@inner
def fill(array: Array, value: int) -> None:
    """Set every element (a loop compiles in a tenth of the time of a slice assignment)."""
    for i in range(array.size):
        array[i] = value


# -- The words of images ---------------------------------------------------------------------------


@entry
def words_of_images(bits: Array, images: Array) -> tuple[Array, Array]:
    """Return ``(words_start, words)`` of these images, as ``AttributeTable.csr`` does.

    It reads the packed bytes and skips the empty ones, which nearly all of them are.
    """
    most = 8 * bits.shape[1]
    words_start = np.zeros(images.size + 1, np.int64)
    words = np.empty(most + 4 * images.size, np.int32)
    n = 0
    for i in range(images.size):
        if n + most > words.size:
            larger = np.empty(most + 2 * words.size, np.int32)
            for j in range(n):
                larger[j] = words[j]
            words = larger
        packed = bits[images[i]]
        for column in range(packed.size):
            byte = packed[column]
            if byte:
                for bit in range(8):
                    if byte >> bit & 1:
                        words[n] = 8 * column + bit
                        n += 1
        words_start[i + 1] = n
    return words_start, words[:n]


@entry
def group_by_word(
    class_start: Array, words_start: Array, words: Array, n_words: int
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Return the fields of a ``WordIndex`` from ``cells`` on: a counting sort of each class."""
    n_classes, n_rows = class_start.size - 1, class_start[-1]
    cells = np.empty(words.size, np.int32)
    full_score = np.zeros(n_rows, np.int64)
    cell_start = np.zeros(n_classes + 1, np.int64)
    cell_word = np.empty(words.size, np.int32)
    rows_start = np.zeros(words.size + 2, np.int64)
    rows = np.empty(words.size, np.int32)

    count, cell_of, place = np.zeros((3, n_words), np.int64)
    cell = 0
    for label in range(n_classes):
        first, last = class_start[label], class_start[label + 1]
        fill(count, 0)
        for i in range(words_start[first], words_start[last]):
            count[words[i]] += 1
        for word in range(n_words):
            if count[word]:
                cell_word[cell], cell_of[word], place[word] = word, cell, rows_start[cell]
                rows_start[cell + 1] = rows_start[cell] + count[word]
                cell += 1
        cell_start[label + 1] = cell
        for row in range(first, last):
            for i in range(words_start[row], words_start[row + 1]):
                word = words[i]
                cells[i] = cell_of[word]
                full_score[row] += count[word]
                rows[place[word]] = row
                place[word] += 1
    rows_start[cell + 1] = rows_start[cell]
    return cells, full_score, cell_start, cell_word[:cell], rows_start[: cell + 2], rows


# -- Chance ----------------------------------------------------------------------------------------

LARGEST = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@inner
def next_random(state: Array) -> Any:
    """Return 64 random bits: SplitMix64 (Steele, Lea and Flood 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inner
def below(n: int, state: Array) -> Any:
    """Return an integer uniform on ``0 .. n - 1``, without bias: an incomplete last run of ``n``
    among the 64-bit integers is thrown away.
    """
    bound = np.uint64(n)
    limit = LARGEST - LARGEST % bound
    while True:
        value = next_random(state)
        if value < limit:
            return np.int64(value % bound)


@inner
def choose(items: Array, n: int, state: Array, chosen: Array) -> None:
    """Fill ``chosen`` with distinct ones of the first ``n`` items, uniformly and in random order;
    the items change places (Fisher-Yates, stopped early).
    """
    for i in range(chosen.size):
        j = i + below(n - i, state)
        items[i], items[j] = items[j], items[i]
        chosen[i] = items[i]


# -- One task --------------------------------------------------------------------------------------

OWN, OTHERS = np.uint8(1), np.uint8(2)
"""Marks of an image: has its class's attribute; has the attribute of another class."""

ENDLESS = np.iinfo(np.int64).max
"""Higher than any score."""

DONE, NO_ATTRIBUTE, FEW_SUPPORTS, FEW_QUERIES = 0, 1, 2, 3
"""What came of a try, and why the task must start again."""


class Choices(NamedTuple):
    """What a task may be made of."""

    classes: Array
    """int32: the classes that can stand in a task."""

    attribute_start: Array
    """int64 ``(n_classes + 1,)``: where the attributes of each class begin."""

    attributes: Array
    """int32: the words that are a class's spurious attributes and can fill its support."""


class Drawn(NamedTuple):
    """The tasks, in rows of a ``WordIndex``; shapes as in ``TaskSet``, int32 and bool."""

    classes: Array
    support: Array
    query: Array
    attribute: Array
    relaxed: Array


class Work(NamedTuple):
    """Memory used again and again."""

    state: Array
    """uint64 ``(1,)``: of the random numbers."""

    cells: Array
    """int64 ``(way, way)``: of the class of the first way and the attribute of the second."""

    mark: Array
    """uint8 a row: ``OWN`` and ``OTHERS``, valid for the classes of the task."""

    items: Array
    """int32: things to choose from."""

    ties: Array
    """int32: places of equal score."""

    weight: Array
    """int64 a cell: 0 between uses."""

    scores: Array
    """int64: of query candidates."""

    lowest: Array
    """int64: as many scores as a class has queries."""


@inner
def list_untaken(words: Array, taken: Array, items: Array) -> int:
    """List the words that are not taken; return their number."""
    n = 0
    for word in words:
        items[n] = word
        n += 1
        for other in taken:
            if word == other:
                n -= 1
    return n


@inner
def find_cell(cell_word: Array, first: int, last: int, word: int, absent: int) -> int:
    """Return the cell of a word among those of a class, or ``absent`` (by bisection)."""
    while first < last:
        middle = (first + last) // 2
        if cell_word[middle] == word:
            return middle
        if cell_word[middle] < word:
            first = middle + 1
        else:
            last = middle
    return absent


@inner
def list_marked(rows: Array, mark: Array, wanted: np.uint8, items: Array, n: int) -> int:
    """List the rows marked as wanted, after the first ``n`` items; return the number of items."""
    for row in rows:
        if mark[row] == wanted:
            items[n] = row
            n += 1
            mark[row] = 0  # listed once, though it may be among the rows of two cells
    return n


# Either way to score gives the score of Eq. 6 times the number of candidates, an exact integer: the
# sum, over the non-selected attributes of an image, of how many candidates have the attribute.


@inner
def score_few(index: WordIndex, rows: Array, selected: Array, weight: Array, scores: Array) -> None:
    """Score these candidates, all of one class."""
    start, cells = index.cells_start, index.cells
    for row in rows:
        for i in range(start[row], start[row + 1]):
            weight[cells[i]] += 1
    for cell in selected:
        weight[cell] = 0
    for place, row in enumerate(rows):
        score = 0
        for i in range(start[row], start[row + 1]):
            score += weight[cells[i]]
        scores[place] = score


@inner
def score_class(
    index: WordIndex, label: int, own: Array, selected: Array, weight: Array, scores: Array
) -> None:
    """Score all images of a class, those with its attribute being no candidates (Eq. 3).

    The candidates are nearly the whole class. So this starts from the scores for all of its images
    as candidates and no attribute selected, and takes off what is not to be counted.
    """
    start, cells = index.cells_start, index.cells
    first, last = index.class_start[label], index.class_start[label + 1]
    for row in range(first, last):
        scores[row - first] = index.full_score[row]
    for row in own:
        for i in range(start[row], start[row + 1]):
            weight[cells[i]] += 1
    for cell in selected:
        weight[cell] = index.rows_start[cell + 1] - index.rows_start[cell]
        take_off(index.rows_start, index.rows, first, cell, weight, scores)
    for row in own:
        for i in range(start[row], start[row + 1]):
            take_off(index.rows_start, index.rows, first, cells[i], weight, scores)
        scores[row - first] = ENDLESS


@inner
def take_off(
    rows_start: Array, rows: Array, first: int, cell: int, weight: Array, scores: Array
) -> None:
    """Subtract the weight of a cell from the score of every image in it, once."""
    if weight[cell]:
        for i in range(rows_start[cell], rows_start[cell + 1]):
            scores[rows[i] - first] -= weight[cell]
        weight[cell] = 0


@inner
def nth_lowest(scores: Array, lowest: Array) -> Any:
    """Return the score at place ``lowest.size``, the lowest being at place 1."""
    fill(lowest, ENDLESS)
    end = lowest.size - 1
    for score in scores:
        if score < lowest[end]:
            place = end
            while place > 0 and lowest[place - 1] > score:
                lowest[place] = lowest[place - 1]
                place -= 1
            lowest[place] = score
    return lowest[end]


@inner
def take_lowest(scores: Array, lowest: Array, ties: Array, state: Array, taken: Array) -> None:
    """Fill ``taken`` with the places of the lowest scores; those that tie for its end are drawn."""
    last = nth_lowest(scores, lowest)
    n_taken = n_ties = 0
    for place, score in enumerate(scores):
        if score < last:
            taken[n_taken] = place
            n_taken += 1
        elif score == last:
            ties[n_ties] = place
            n_ties += 1
    choose(ties, n_ties, state, taken[n_taken:])


@inlined
def draw_task(
    index: WordIndex, choices: Choices, work: Work, drawn: Drawn, task: int
) -> tuple[int, int, int]:
    """Try once to draw a task.

    Returns:
        ``DONE``, or why the task must start again; the class at fault; and how many attributes or
        images it had to offer.
    """
    classes, attribute = drawn.classes[task], drawn.attribute[task]
    n_way, n_shot, n_query = classes.size, drawn.support.shape[2], drawn.query.shape[2]
    items, cells, mark = work.items, work.cells, work.mark
    rows_start, rows = index.rows_start, index.rows

    for i in range(choices.classes.size):
        items[i] = choices.classes[i]
    choose(items, choices.classes.size, work.state, classes)

    for way in range(n_way):
        label = classes[way]
        first, last = choices.attribute_start[label], choices.attribute_start[label + 1]
        n = list_untaken(choices.attributes[first:last], attribute[:way], items)
        if n == 0:
            return NO_ATTRIBUTE, label, n
        attribute[way] = items[below(n, work.state)]

    for way in range(n_way):
        label = classes[way]
        fill(mark[index.class_start[label] : index.class_start[label + 1]], 0)
        first, last = index.cell_start[label], index.cell_start[label + 1]
        for other in range(n_way):
            cell = find_cell(index.cell_word, first, last, attribute[other], index.cell_word.size)
            cells[way, other] = cell
            for i in range(rows_start[cell], rows_start[cell + 1]):
                mark[rows[i]] |= OWN if other == way else OTHERS
        cell = cells[way, way]
        n = list_marked(rows[rows_start[cell] : rows_start[cell + 1]], mark, OWN, items, 0)
        if n < n_shot:
            return FEW_SUPPORTS, label, n
        choose(items, n, work.state, drawn.support[task, way])

    for way in range(n_way):
        label, query = classes[way], drawn.query[task, way]
        n = 0
        for cell in cells[way]:
            n = list_marked(rows[rows_start[cell] : rows_start[cell + 1]], mark, OTHERS, items, n)
        drawn.relaxed[task, way] = n < n_query
        if n >= n_query:  # Eq. 5
            score_few(index, items[:n], cells[way], work.weight, work.scores)
            fill(work.weight[index.cell_start[label] : index.cell_start[label + 1]], 0)
            take_lowest(work.scores[:n], work.lowest, work.ties, work.state, query)
            for i in range(n_query):
                query[i] = items[query[i]]
        else:  # Eq. 3
            cell = cells[way, way]
            own = rows[rows_start[cell] : rows_start[cell + 1]]
            first = index.class_start[label]
            size = index.class_start[label + 1] - first
            if size - own.size < n_query:
                return FEW_QUERIES, label, size - own.size
            score_class(index, label, own, cells[way], work.weight, work.scores)
            take_lowest(work.scores[:size], work.lowest, work.ties, work.state, query)
            for i in range(n_query):
                query[i] += first
    return DONE, 0, 0


@entry
def draw_tasks(
    index: WordIndex, choices: Choices, seeds: Array, max_restarts: int, drawn: Drawn
) -> tuple[int, Array, Array]:
    """Fill ``drawn``, task ``t`` from ``seeds[t]`` alone.

    Returns:
        The number of tasks drawn, less than that of seeds if one of them could not be; and for
        that one, int64 ``(n_classes, 4)`` by class at fault and reason: how often it started again,
        and the most that the class had to offer then.
    """
    n_rows, n_classes, n_cells = index.images.size, index.class_start.size - 1, index.cell_word.size
    n_way, n_query = drawn.query.shape[1:]
    work = Work(
        np.zeros(1, np.uint64),
        np.zeros((n_way, n_way), np.int64),
        np.zeros(n_rows, np.uint8),
        np.empty(max(n_rows, n_cells), np.int32),
        np.empty(n_rows, np.int32),
        np.zeros(n_cells + 1, np.int64),
        np.empty(n_rows, np.int64),
        np.empty(n_query, np.int64),
    )
    faults = np.zeros((n_classes, 4), np.int64)
    offers = np.zeros((n_classes, 4), np.int64)
    for task in range(seeds.size):
        work.state[0] = seeds[task]
        for label in range(n_classes):
            fill(faults[label], 0)
            fill(offers[label], 0)
        for _ in range(max_restarts + 1):
            outcome, label, offer = draw_task(index, choices, work, drawn, task)
            if outcome == DONE:
                break
            faults[label, outcome] += 1
            offers[label, outcome] = max(offers[label, outcome], offer)
        else:
            return task, faults, offers
    return seeds.size, faults, offers
