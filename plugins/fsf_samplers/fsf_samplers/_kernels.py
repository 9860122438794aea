"""The compiled part of both FewSTAB samplers: gathering words, drawing from a ``WordIndex``.

All compiled code is in this file, since Numba's disk cache only notices changes to the file that
defines a function.
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
    "QUERY",
    "SUPPORT",
    "Cells",
    "Choices",
    "Drawn",
    "WordChoices",
    "draw_context_tasks",
    "draw_published_tasks",
    "draw_tasks",
    "group_by_word",
    "image_sets",
    "words_of_images",
]

Array = npt.NDArray[Any]
F = TypeVar("F", bound=Callable[..., Any])


def entry(function: F) -> F:
    """Compile a function that Python calls; cache its machine code on disk where possible."""
    try:
        return cast(F, numba.njit(cache=True)(function))
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return cast(F, numba.njit(function))


def inner(function: F) -> F:
    """Compile a function that only compiled code calls, without wrappers for Python."""
    without: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(F, numba.njit(**without)(function))


def inlined(function: F) -> F:
    """Compile a function into its only caller, in half the time of compiling it separately."""
    return cast(F, numba.njit(inline="always")(function))


@inner
def fill(array: Array, value: int) -> None:
    """Set every element (a loop compiles in a tenth of the time of a slice assignment)."""
    for i in range(array.size):
        array[i] = value


# -- The words of images ---------------------------------------------------------------------------


@entry
def words_of_images(indptr: Array, indices: Array, images: Array) -> tuple[Array, Array]:
    """Return ``(words_start, words)`` of these images, as ``AttributeTable.csr`` does.

    It needs no memory beyond the result.
    """
    words_start = np.zeros(images.size + 1, np.int64)
    for i in range(images.size):
        words_start[i + 1] = words_start[i] + indptr[images[i] + 1] - indptr[images[i]]
    words = np.empty(words_start[-1], np.int32)
    for i in range(images.size):
        first = indptr[images[i]]
        for j in range(words_start[i + 1] - words_start[i]):
            words[words_start[i] + j] = indices[first + j]
    return words_start, words


@entry
def group_by_word(
    class_start: Array, words_start: Array, words: Array, n_words: int
) -> tuple[Array, Array, Array, Array, Array]:
    """Return the fields of a ``WordIndex`` from ``cells`` on: a counting sort of each class.

    ``words`` is overwritten: it becomes ``cells``.
    """
    n_classes = class_start.size - 1
    cell_start = np.zeros(n_classes + 1, np.int64)
    cell_word = np.empty(words.size, np.int32)
    rows_start = np.empty(words.size + 2, np.int64)  # most of it may stay untouched
    rows_start[0] = 0
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
                words[i] = cell_of[word]
                rows[place[word]] = row
                place[word] += 1
    rows_start[cell + 1] = rows_start[cell]
    return words, cell_start, cell_word[:cell], rows_start[: cell + 2], rows


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
    """Return an unbiased integer uniform on ``0 .. n - 1``.

    64-bit integers beyond the last multiple of ``n`` are rejected.
    """
    bound = np.uint64(n)
    limit = LARGEST - LARGEST % bound
    while True:
        value = next_random(state)
        if value < limit:
            return np.int64(value % bound)


@inner
def choose(items: Array, n: int, state: Array, chosen: Array) -> None:
    """Fill ``chosen`` with distinct items among the first ``n``, uniformly and in random order.

    The items are permuted in place (Fisher-Yates, stopped early).
    """
    for i in range(chosen.size):
        j = i + below(n - i, state)
        items[i], items[j] = items[j], items[i]
        chosen[i] = items[i]


# -- One task --------------------------------------------------------------------------------------

OWN, OTHERS, TAKEN = np.uint8(1), np.uint8(2), np.uint8(4)
"""Marks of an image: has its class's attribute; has another class's; is in the support."""

ENDLESS = np.iinfo(np.int64).max
"""Higher than any score."""

DONE, NO_ATTRIBUTE, FEW_SUPPORTS, FEW_QUERIES = 0, 1, 2, 3
"""The outcomes of an attempt: success, or the reason to restart."""

EXCLUSIVE, TARGETED, ANY = 0, 1, 2
SUPPORT = {"exclusive": EXCLUSIVE, "targeted": TARGETED, "random": ANY}
"""Rules of the support."""

INTER_LEAST, INTER, INTRA = 0, 1, 2
QUERY = {"inter-least": INTER_LEAST, "inter": INTER, "intra": INTRA}
"""Rules of the queries."""


class Choices(NamedTuple):
    """The classes and attributes that a task can have."""

    classes: Array
    """int32: the classes that can be in a task."""

    attribute_start: Array
    """int64 ``(n_classes + 1,)``: where the attributes of each class begin."""

    attributes: Array
    """int32: the words that are a class's spurious attributes and can fill its support."""

    support: int
    """One of ``SUPPORT``."""

    query: int
    """One of ``QUERY``."""


class WordChoices(NamedTuple):
    """The words and classes that a task of the published generator can have."""

    words: Array
    """int32: the words that can be drawn, ascending."""

    eligible: Array
    """uint64 ``(n_words, ceil(n_classes / 64))``: for each word of the table one bit per
    class, the lowest first, set if the class is eligible."""

    place: Array
    """int32 ``(n_words, n_classes)``: where the set of the class's images with the word begins."""

    sets: Array
    """uint64: sets of images, one bit per row of the class, the lowest first; the empty
    set, at 0, is as long as the longest. Apart from padding they take no more memory than the
    packed table, and less where a class has few of the words."""

    summary: Array
    """uint64 ``(n_words, n_classes)``: in the bits of ``MANY`` the number of the class's images
    with the word, at most ``MANY``; in the others the set, folded: a bit that is set stands for at
    least one image."""

    counted: Array
    """bool per cell: whether its word can be drawn and so counts in a score; false if empty."""


class Drawn(NamedTuple):
    """The tasks, in rows of a ``WordIndex``; shapes as in ``TaskSet``, int32 and bool."""

    classes: Array
    support: Array
    query: Array
    attribute: Array
    relaxed: Array


class Work(NamedTuple):
    """Memory that all tasks reuse."""

    state: Array
    """uint64 ``(1,)``: the state of the random numbers."""

    cells: Array
    """int64 ``(way, way)``: the cell of the first way's class and the second way's attribute."""

    mark: Array
    """uint8 per row: ``OWN``, ``OTHERS`` and ``TAKEN``, valid for the classes of the task."""

    items: Array
    """int32: the items to choose from."""

    ties: Array
    """int32: places of equal score."""

    weight: Array
    """int64 per cell: 0 between uses."""

    scores: Array
    """int64: the scores of query candidates."""

    sums: Array
    """int64: sums of weights over the first cells of a class's images; the first is 0."""

    lowest: Array
    """int64: the lowest scores, one per query of a class."""


@inner
def list_untaken(words: Array, taken: Array, items: Array) -> int:
    """List the words that are not taken; return how many there are."""
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
    """Return the cell of a word among those of a class, or ``absent`` (bisection)."""
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


@inner
def list_lacking(
    index: WordIndex, label: int, own: Array, support: Array, mark: Array, items: Array
) -> int:
    """List the images of a class that lack its own attribute and are not in its support."""
    first, last = index.class_start[label], index.class_start[label + 1]
    fill(mark[first:last], 0)
    for row in own:
        mark[row] = OWN
    for row in support:
        mark[row] = OWN
    n = 0
    for row in range(first, last):
        if mark[row] == 0:
            items[n] = row
            n += 1
    return n


# Both ways to score give Eq. 6 times the number of candidates, an exact integer: the sum, over the
# non-selected attributes of an image, of the number of candidates that have the attribute.


@inner
def score_few(index: WordIndex, rows: Array, selected: Array, weight: Array, scores: Array) -> None:
    """Score these candidates, all of one class."""
    count_cells(index, rows, selected, weight)
    add_weights(index, rows, weight, scores)


@inner
def count_cells(index: WordIndex, rows: Array, selected: Array, weight: Array) -> None:
    """Set each non-selected cell's weight to the number of these rows in it."""
    start, cells = index.cells_start, index.cells
    for row in rows:
        for i in range(start[row], start[row + 1]):
            weight[cells[i]] += 1
    for cell in selected:
        weight[cell] = 0


@inner
def add_weights(index: WordIndex, rows: Array, weight: Array, scores: Array) -> None:
    """Set the score of each of these rows to the sum of its cells' weights."""
    start, cells = index.cells_start, index.cells
    for place, row in enumerate(rows):
        score = 0
        for i in range(start[row], start[row + 1]):
            score += weight[cells[i]]
        scores[place] = score


@inner
def score_class(index: WordIndex, label: int, own: Array, selected: Array, work: Work) -> None:
    """Score all images of a class whose candidates are all but those of ``own`` (Eq. 3).

    The candidates are nearly the whole class, so only the others are counted.
    """
    start, cells, rows_start = index.cells_start, index.cells, index.rows_start
    weight, sums, scores = work.weight, work.sums, work.scores
    first, last = index.class_start[label], index.class_start[label + 1]
    for cell in range(index.cell_start[label], index.cell_start[label + 1]):
        weight[cell] = rows_start[cell + 1] - rows_start[cell]
    for row in own:
        for i in range(start[row], start[row + 1]):
            weight[cells[i]] -= 1
    for cell in selected:
        weight[cell] = 0
    # A loop over the few cells of each row takes twice as long: its end is hard to predict.
    begin, total = start[first], 0
    for i in range(begin, start[last]):
        total += weight[cells[i]]
        sums[i - begin + 1] = total
    for row in range(first, last):
        scores[row - first] = sums[start[row + 1] - begin] - sums[start[row] - begin]
    for row in own:
        scores[row - first] = ENDLESS
    fill(weight[index.cell_start[label] : index.cell_start[label + 1]], 0)


@inner
def nth_lowest(scores: Array, lowest: Array) -> Any:
    """Return the ``lowest.size``-th lowest score."""
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
    """Fill ``taken`` with the places of the lowest scores; ties for the last are drawn."""
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


@inner
def memory(index: WordIndex, drawn: Drawn) -> Work:
    """Return enough memory for such tasks."""
    n_rows, n_cells = index.images.size, index.cell_word.size
    n_way, n_query = drawn.query.shape[1:]
    return Work(
        np.zeros(1, np.uint64),
        np.zeros((n_way, n_way), np.int64),
        np.zeros(n_rows, np.uint8),
        np.empty(max(n_rows + 64, n_cells), np.int32),  # and the rest of a block of a set
        np.empty(n_rows, np.int32),
        np.zeros(n_cells + 1, np.int64),
        np.empty(n_rows, np.int64),
        np.zeros(index.cells.size + 1, np.int64),  # pages that are never written take no memory
        np.empty(n_query, np.int64),
    )


@inlined
def draw_task(  # noqa: C901 - compiled; calls that pass arrays count references
    index: WordIndex, choices: Choices, work: Work, drawn: Drawn, task: int
) -> tuple[int, int, int]:
    """Try once to draw a task.

    Returns:
        ``DONE``, or the reason to restart; the class at fault; and the number of attributes or
        images that it had to offer.
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
        own = rows[rows_start[cell] : rows_start[cell + 1]]
        n = 0
        if choices.support == EXCLUSIVE:
            n = list_marked(own, mark, OWN, items, n)
        elif choices.support == TARGETED:
            for row in own:
                items[n] = row
                n += 1
        else:
            for row in range(index.class_start[label], index.class_start[label + 1]):
                items[n] = row
                n += 1
        if n < n_shot:
            return FEW_SUPPORTS, label, n
        choose(items, n, work.state, drawn.support[task, way])
        if choices.support == ANY:
            for row in drawn.support[task, way]:
                mark[row] |= TAKEN

    for way in range(n_way):
        label, query = classes[way], drawn.query[task, way]
        n = 0
        if choices.query != INTRA:  # Eq. 5
            for cell in cells[way]:
                n = list_marked(
                    rows[rows_start[cell] : rows_start[cell + 1]], mark, OTHERS, items, n
                )
        relaxed = n < n_query
        drawn.relaxed[task, way] = relaxed and choices.query != INTRA
        cell = cells[way, way]
        excluded = rows[rows_start[cell] : rows_start[cell + 1]]
        if relaxed:  # Eq. 3
            first = index.class_start[label]
            size = index.class_start[label + 1] - first
            n = size - excluded.size
            if choices.support == ANY or choices.query != INTER_LEAST:
                n = list_lacking(index, label, excluded, drawn.support[task, way], mark, items)
            if n < n_query:
                return FEW_QUERIES, label, n
        if choices.query != INTER_LEAST:
            choose(items, n, work.state, query)
        elif relaxed and choices.support != ANY:
            score_class(index, label, excluded, cells[way], work)
            take_lowest(work.scores[:size], work.lowest, work.ties, work.state, query)
            for i in range(n_query):
                query[i] += first
        else:
            score_few(index, items[:n], cells[way], work.weight, work.scores)
            fill(work.weight[index.cell_start[label] : index.cell_start[label + 1]], 0)
            take_lowest(work.scores[:n], work.lowest, work.ties, work.state, query)
            for i in range(n_query):
                query[i] = items[query[i]]
    return DONE, 0, 0


@entry
def draw_tasks(
    index: WordIndex, choices: Choices, seeds: Array, max_restarts: int, drawn: Drawn
) -> tuple[int, Array, Array]:
    """Fill ``drawn``, task ``t`` from ``seeds[t]`` only.

    Returns:
        The number of tasks drawn, fewer than the seeds if one task failed; and for that task,
        int64 ``(n_classes, 4)`` by class at fault and reason: how often it restarted, and the most
        that the class then had to offer.
    """
    n_classes = index.class_start.size - 1
    work = memory(index, drawn)
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


# -- As the published generator draws --------------------------------------------------------------

FAILURES = 5
"""Failed supports that allow an image one more of the others' attributes (0.2 each); and failed
queries after which queries need only lack their own.
"""

EPSILON = 1e-10
"""Added to each term of a score before its logarithm is taken."""

LOW = np.uint64(0xFFFF_FFFF)

MANY, FOLDED = np.uint64(0xFFFF), 48
"""The bits of a summary that count images, and the number of the others."""

FINENESS = 2.0**40
"""Fixed-point steps per unit for logarithms, which make sums exact in any order."""


@inner
def below_quickly(n: int, state: Array) -> Any:
    """Return an unbiased integer uniform on ``0 .. n - 1`` for ``n`` below 2**32 (Lemire 2019).

    Unlike ``below`` it almost never divides.
    """
    bound = np.uint64(n)
    product = (next_random(state) >> np.uint64(32)) * bound
    if product & LOW < bound:
        least = (np.uint64(1 << 32) - bound) % bound
        while product & LOW < least:
            product = (next_random(state) >> np.uint64(32)) * bound
    return np.int64(product >> np.uint64(32))


@inner
def count_bits(bits: np.uint64) -> Any:
    """Return the number of set bits (Warren, Hacker's Delight, 5-1)."""
    bits -= (bits >> np.uint64(1)) & np.uint64(0x5555_5555_5555_5555)
    pairs = np.uint64(0x3333_3333_3333_3333)
    bits = (bits & pairs) + ((bits >> np.uint64(2)) & pairs)
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F_0F0F_0F0F_0F0F)
    return np.int64((bits * np.uint64(0x0101_0101_0101_0101)) >> np.uint64(56))


@inlined
def draw_words(words: Array, state: Array, attribute: Array) -> None:
    """Draw distinct words; ``words`` is permuted in place."""
    for i in range(attribute.size):
        j = i + below_quickly(words.size - i, state)
        words[i], words[j] = words[j], words[i]
        attribute[i] = words[i]


@inlined
def draw_classes(
    eligible: Array, attribute: Array, free: Array, state: Array, classes: Array
) -> int:
    """Draw a class for each attribute; return the first way without one, or ``n_way``.

    ``free`` holds sets of classes: in the first row those eligible for at least two attributes,
    less those taken; in the second those of them eligible for the current attribute.
    """
    n_blocks = free.shape[1]
    for block in range(n_blocks):
        once = twice = np.uint64(0)
        for way in range(attribute.size):
            bits = eligible[attribute[way], block]
            twice |= once & bits
            once |= bits
        free[0, block] = twice
    for way in range(attribute.size):
        word, n = attribute[way], 0
        for block in range(n_blocks):
            free[1, block] = free[0, block] & eligible[word, block]
            n += count_bits(free[1, block])
        if n == 0:
            return way
        n = below_quickly(n, state)
        block = 0
        while n >= count_bits(free[1, block]):
            n -= count_bits(free[1, block])
            block += 1
        bits = free[1, block]
        for _ in range(n):
            bits &= bits - np.uint64(1)
        lowest = bits & (~bits + np.uint64(1))
        free[0, block] &= ~lowest
        classes[way] = 64 * block + count_bits(lowest - np.uint64(1))
    return attribute.size


@inlined
def judge(  # noqa: PLR0913 - compiled; see draw_published_tasks
    class_start: Array,
    place: Array,
    sets: Array,
    summary: Array,
    classes: Array,
    attribute: Array,
    failed: Array,
    n_shot: int,
    n_query: int,
    others: Array,
    blamed: bool,
) -> tuple[int, int, int]:
    """Find out whether each way's class has enough images for support and queries.

    ``failed`` counts the supports and the queries that failed since the last success. The first way
    that succeeds resets its count, so what a count allows concerns way 0 only.

    Nearly all attempts fail, so sets are only read where their summaries cannot tell, or to find
    the class to be ``blamed``.

    Returns:
        ``DONE``, or the reason to restart; the class at fault; and the number of images it had.
    """
    n_way = classes.size
    most, lacking = failed[0] // FAILURES, failed[1] >= FAILURES
    enough = min(np.uint64(n_query), MANY)
    first = rest = MANY  # an upper bound on the queries of way 0, and of another way
    for way in range(n_way):
        label = classes[way]
        bits, n_with = np.uint64(0), np.uint64(0)
        for other in range(n_way):
            found = summary[attribute[other], label] * np.uint64(other != way)
            bits |= found
            n_with += found & MANY
        own = summary[attribute[way], label]
        if count_bits(own & ~bits & ~MANY) < n_shot:
            n = count_supports(
                class_start, place, sets, label, attribute, way, others, most, n_shot
            )
            if n < n_shot:
                failed[0] += 1
                return FEW_SUPPORTS, label, n
        failed[0] = most = 0
        if way == 0:
            first = n_with
        else:
            rest = min(rest, n_with)
    for way in range(n_way):
        label = classes[way]
        if way > 0 or not lacking:
            n = np.int64(rest if way else first)
            if n >= enough or blamed:
                n = count_queries(class_start, place, sets, label, attribute, way, others, n_query)
            if n < n_query:
                failed[1] += 1
                return FEW_QUERIES, label, n
        failed[1] = 0
    return DONE, 0, 0


@inner
def count_supports(  # noqa: PLR0913 - compiled
    class_start: Array,
    place: Array,
    sets: Array,
    label: int,
    attribute: Array,
    way: int,
    others: Array,
    most: int,
    n_shot: int,
) -> int:
    """Return the number of images that can be support, once there are enough."""
    own = place[attribute[way], label]
    n_others = find_others(place, label, attribute, way, others)
    n = 0
    for block in range(count_blocks(class_start, label)):
        n += count_bits(supports(sets, own, others, n_others, block, most))
        if n >= n_shot:
            break
    return n


@inner
def count_queries(  # noqa: PLR0913 - compiled
    class_start: Array,
    place: Array,
    sets: Array,
    label: int,
    attribute: Array,
    way: int,
    others: Array,
    n_query: int,
) -> int:
    """Return the number of images that can be queries, once there are enough."""
    own = place[attribute[way], label]
    n_others = find_others(place, label, attribute, way, others)
    n = 0
    for block in range(count_blocks(class_start, label)):
        n += count_bits(unite(sets, others, n_others, block) & ~sets[own + block])
        if n >= n_query:
            break
    return n


@inner
def supports(
    sets: Array, own: int, others: Array, n_others: int, block: int, most: int
) -> np.uint64:
    """Return a block of the images of ``own`` that are in at most ``most`` of the others."""
    bits = sets[own + block]
    if bits and most == 0:
        bits &= ~unite(sets, others, n_others, block)
    elif bits:
        for element in range(64 * block, 64 * block + 64):
            if count_others(sets, others, n_others, element) > most:
                bits &= ~(np.uint64(1) << np.uint64(element % 64))
    return bits


@inner
def list_set(bits: np.uint64, first: int, items: Array, n: int) -> int:
    """List the elements of a block, after the first ``n`` items; return the number of items."""
    while bits:
        rest = bits & (bits - np.uint64(1))
        items[n] = first + count_bits((bits ^ rest) - np.uint64(1))
        n += 1
        bits = rest
    return n


@inner
def count_blocks(class_start: Array, label: int) -> Any:
    """Return the number of blocks of 64 rows in a set of the class's images."""
    return (class_start[label + 1] - class_start[label] + 63) // 64


@inner
def find_others(place: Array, label: int, attribute: Array, way: int, others: Array) -> int:
    """Find the sets of a class's images with the other ways' attributes; return their number.

    Empty sets are left out.
    """
    n = 0
    for other in range(attribute.size):
        others[n] = place[attribute[other], label]
        n += other != way and others[n] > 0
    return n


@inner
def unite(sets: Array, others: Array, n_others: int, block: int) -> Any:
    """Return a block of the union of the first ``n_others`` sets."""
    bits = np.uint64(0)
    for i in range(n_others):
        bits |= sets[others[i] + block]
    return bits


@inner
def count_others(sets: Array, others: Array, n_others: int, element: int) -> Any:
    """Return how many of the first ``n_others`` sets contain an element."""
    n = 0
    for i in range(n_others):
        n += has(sets, others[i], element)
    return n


@inner
def has(sets: Array, place: int, element: int) -> Any:
    """Return whether a set contains an element."""
    return (sets[place + element // 64] >> np.uint64(element % 64)) & np.uint64(1) != 0


@entry
def image_sets(index: WordIndex, n_words: int) -> tuple[Array, Array, Array]:
    """Return ``place``, ``sets`` and ``summary`` of a ``WordChoices``."""
    n_classes = index.class_start.size - 1
    place = np.zeros((n_words, n_classes), np.int32)
    summary = np.zeros((n_words, n_classes), np.uint64)
    longest = size = 0
    for label in range(n_classes):
        n_blocks = count_blocks(index.class_start, label)
        longest = max(longest, n_blocks)
        size += n_blocks * (index.cell_start[label + 1] - index.cell_start[label])
    sets = np.zeros(longest + size, np.uint64)
    start = longest
    for label in range(n_classes):
        first = index.class_start[label]
        n_blocks = count_blocks(index.class_start, label)
        for cell in range(index.cell_start[label], index.cell_start[label + 1]):
            begin, end = index.rows_start[cell], index.rows_start[cell + 1]
            bits = min(np.uint64(end - begin), MANY)
            for i in range(begin, end):
                element = index.rows[i] - first
                sets[start + element // 64] |= np.uint64(1) << np.uint64(element % 64)
                bits |= (MANY + np.uint64(1)) << np.uint64(element % FOLDED)
            place[index.cell_word[cell], label] = start
            summary[index.cell_word[cell], label] = bits
            start += n_blocks
    return place, sets, summary


@inner
def draw_log_queries(
    index: WordIndex,
    choices: WordChoices,
    work: Work,
    label: int,
    n: int,
    selected: Array,
    query: Array,
) -> None:
    """Take the items with the lowest scores among the first ``n``.

    A word of share ``p`` adds ``log(p + EPSILON)`` to the score of an image that has it and
    ``log(EPSILON)`` to that of one that lacks it; only the difference distinguishes two images.
    """
    items, weight = work.items, work.weight
    count_cells(index, items[:n], selected, weight)
    cells = weight[index.cell_start[label] : index.cell_start[label + 1]]
    counted = choices.counted[index.cell_start[label] : index.cell_start[label + 1]]
    logs = work.scores  # of counts, each computed once
    fill(logs[:n], -1)
    for cell in range(cells.size):
        count = cells[cell]
        if count and counted[cell]:
            if logs[count - 1] < 0:
                logs[count - 1] = np.int64(np.log((count / n + EPSILON) / EPSILON) * FINENESS)
            cells[cell] = logs[count - 1]
        else:
            cells[cell] = 0
    add_weights(index, items[:n], weight, work.scores)
    fill(cells, 0)
    take_lowest(work.scores[:n], work.lowest, work.ties, work.state, query)
    for i in range(query.size):
        query[i] = items[query[i]]


@inner
def draw_images(
    index: WordIndex,
    choices: WordChoices,
    work: Work,
    most: int,
    lacking: bool,
    drawn: Drawn,
    task: int,
) -> None:
    """Draw support and queries of a task that can be drawn.

    The support of way 0 may have ``most`` of the others' attributes; if ``lacking``, its queries
    need only lack their own.
    """
    sets, items, attribute = choices.sets, work.items, drawn.attribute[task]
    n_way = attribute.size
    others = np.empty(n_way, np.int64)
    for way in range(n_way):
        label = drawn.classes[task, way]
        first, last = index.class_start[label], index.class_start[label + 1]
        own = choices.place[attribute[way], label]
        n_others = find_others(choices.place, label, attribute, way, others)
        n_blocks = count_blocks(index.class_start, label)
        n = 0
        for block in range(n_blocks):
            bits = supports(sets, own, others, n_others, block, most)
            n = list_set(bits, first + 64 * block, items, n)
        choose(items, n, work.state, drawn.support[task, way])
        drawn.relaxed[task, way] = lacking
        for row in drawn.support[task, way]:
            if count_others(sets, others, n_others, row - first):
                drawn.relaxed[task, way] = True

        n = 0
        for block in range(n_blocks):
            bits = LARGEST if lacking else unite(sets, others, n_others, block)
            n = list_set(bits & ~sets[own + block], first + 64 * block, items, n)
        while items[n - 1] >= last:
            n -= 1
        begin, end = index.cell_start[label], index.cell_start[label + 1]
        for other in range(n_way):
            others[other] = find_cell(
                index.cell_word, begin, end, attribute[other], index.cell_word.size
            )
        draw_log_queries(index, choices, work, label, n, others, drawn.query[task, way])
        most, lacking = 0, False


@entry
def draw_published_tasks(
    index: WordIndex, choices: WordChoices, seeds: Array, max_restarts: int, drawn: Drawn
) -> tuple[int, Array, Array, Array]:
    """Fill ``drawn``, task ``t`` from ``seeds[t]`` only.

    Returns:
        As ``draw_tasks``, and how often each word found no class, int64 ``(n_words,)``.
    """
    # Arrays are unpacked and sliced here: within the loop, counting references to them would take
    # longer than an attempt.
    class_start, eligible, place, sets, summary = (
        index.class_start,
        choices.eligible,
        choices.place,
        choices.sets,
        choices.summary,
    )
    n_classes = class_start.size - 1
    n_way, n_shot, n_query = drawn.classes.shape[1], drawn.support.shape[2], drawn.query.shape[2]
    work = memory(index, drawn)
    state = work.state
    words = np.empty(choices.words.size, np.int32)
    free = np.empty((2, eligible.shape[1]), np.uint64)
    others = np.empty(n_way, np.int64)
    failed = np.zeros(2, np.int64)
    faults = np.zeros((n_classes, 4), np.int64)
    offers = np.zeros((n_classes, 4), np.int64)
    unplaced = np.zeros(eligible.shape[0], np.int64)
    task, blamed = 0, False
    while task < seeds.size:
        classes, attribute = drawn.classes[task], drawn.attribute[task]
        state[0] = seeds[task]
        for i in range(words.size):
            words[i] = choices.words[i]
        fill(failed, 0)
        for label in range(n_classes):
            fill(faults[label], 0)
            fill(offers[label], 0)
        fill(unplaced, 0)
        most, lacking, outcome = 0, False, NO_ATTRIBUTE
        for _ in range(max_restarts + 1):
            draw_words(words, state, attribute)
            way = draw_classes(eligible, attribute, free, state, classes)
            if way < n_way:
                unplaced[attribute[way]] += 1
                continue
            most, lacking = failed[0] // FAILURES, failed[1] >= FAILURES
            outcome, label, offer = judge(
                class_start,
                place,
                sets,
                summary,
                classes,
                attribute,
                failed,
                n_shot,
                n_query,
                others,
                blamed,
            )
            if outcome == DONE:
                break
            faults[label, outcome] += 1
            offers[label, outcome] = max(offers[label, outcome], offer)
        if outcome == DONE:
            draw_images(index, choices, work, most, lacking, drawn, task)
            task += 1
        elif blamed:
            return task, faults, offers, unplaced
        else:
            blamed = True  # draw the task once more, to know what was missing
    return seeds.size, faults, offers, unplaced


# -- Tasks by context ------------------------------------------------------------------------------


class Cells(NamedTuple):
    """The images of each class by context; only those that can be in a task."""

    classes: Array
    """int64: labels of the classes that can be in a task."""

    class_start: Array
    """int64 ``(len(classes) + 1,)``: where the cells of each begin."""

    cell_start: Array
    """int64 ``(n_cells + 1,)``: where the images of each cell begin."""

    images: Array
    """int64: indices into the pool."""


@inner
def draw_from_cells(
    cells: Cells, chosen: Array, without: Array, items: Array, state: Array, drawn: Array
) -> None:
    """Fill ``drawn`` with images of these cells in equal shares, skipping those in ``without``.

    The first cells give one more where the shares are uneven.
    """
    n_cells, done = chosen.size, 0
    for place, cell in enumerate(chosen):
        n = 0
        for i in range(cells.cell_start[cell], cells.cell_start[cell + 1]):
            items[n] = cells.images[i]
            n += 1
            for image in without:
                if image == cells.images[i]:
                    n -= 1
        count = (drawn.size + n_cells - 1 - place) // n_cells
        choose(items, n, state, drawn[done : done + count])
        done += count


@entry
def draw_context_tasks(
    cells: Cells, n_contexts: int, same: bool, seeds: Array, drawn: Drawn
) -> None:
    """Fill classes, support and query of ``drawn``, task ``t`` from ``seeds[t]`` only.

    What both arms share is drawn before the queries, so ``same`` changes only the queries.
    """
    n_way = drawn.classes.shape[1]
    state = np.zeros(1, np.uint64)
    usable = np.arange(cells.classes.size)
    places = np.zeros(n_way, np.int64)
    cell_items = np.zeros(cells.cell_start.size, np.int64)
    items = np.zeros(cells.images.size, np.int64)
    contexts = np.zeros((n_way, 2 * n_contexts), np.int64)
    nothing = np.zeros(0, np.int64)
    for task in range(seeds.size):
        state[0] = seeds[task]
        for i in range(usable.size):
            usable[i] = i
        choose(usable, usable.size, state, places)
        for way in range(n_way):
            drawn.classes[task, way] = cells.classes[places[way]]
            first = cells.class_start[places[way]]
            n = cells.class_start[places[way] + 1] - first
            for i in range(n):
                cell_items[i] = first + i
            choose(cell_items, n, state, contexts[way])
            draw_from_cells(
                cells,
                contexts[way, :n_contexts],
                nothing,
                items,
                state,
                drawn.support[task, way],
            )
        for way in range(n_way):
            if same:
                queried, without = contexts[way, :n_contexts], drawn.support[task, way]
            else:
                queried, without = contexts[way, n_contexts:], nothing
            draw_from_cells(cells, queried, without, items, state, drawn.query[task, way])
