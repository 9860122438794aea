"""Which words hurt which classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

import fsf_statistics
from fsf_reports._sections._images import first_images, often_wrong
from fsf_reports.interfaces import ReportedRun, ReportedRuns, Section
from fsf_reports.values import Block, Entry, Gallery, ImageGroup, Quantity, TableDeclaration, Text
from fsf_statistics import LEAST_HARM, MOST_WRONG
from fsframework.api.headlines import points
from fsframework.values import ImagePool, IntArray

__all__ = ["HarmfulPairs"]

_QUESTIONS = {
    "tied": (
        "Words tied to a class in the support",
        "accuracy of the class in random tasks, for the same queries, minus that in tasks where "
        "all its support images have the word and its queries lack it; what words tied to other "
        "classes cost is accounted for",
    ),
    "present": (
        "Words present in a query",
        "accuracy of the class's queries without the word minus that of those with it, other words "
        "accounted for",
    ),
}
_MOST_ROWS = 200
_MOST_GALLERIES = 4
_MOST_WORDS = 5


class HarmfulPairs(Section):
    """The pairs of a class and a word that cost a run accuracy, for both questions, with images."""

    title: ClassVar[str] = "Words that hurt"
    place: ClassVar[int] = 300

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return a table for each question, and images of the worst pairs."""
        asked = [(n, run) for n, run in enumerate(runs) if _has_words(run)]
        lacking = [run.label for run in runs.finished if not _has_words(run)]
        if not asked:
            if len(runs.finished):
                yield Text(("The images of these runs have no words, or they are not known.",))
            return
        if lacking:
            yield Text((f"Without words, and so left out: {', '.join(lacking)}.",), "caution")
        found = [(n, run, _pairs_of(run)) for n, run in asked]
        yield Text(
            (
                "A pair of a class and a word is reported if the word costs the class at least "
                f"{100 * LEAST_HARM:g} points. Up to {100 * MOST_WRONG:g} % of the listed pairs "
                "are expected to be false: their words do no harm. Words joined by + cannot be "
                "told apart in the class. A word stands for everything that occurs together with "
                "it.",
            )
        )
        for question in _QUESTIONS:
            yield from _answered(question, found)


def _pairs_of(run: ReportedRun) -> fsf_statistics.HarmfulPairs:
    assert run.outcomes is not None
    assert run.data is not None
    return fsf_statistics.kept_pairs(run.folder, run.outcomes, run.data.pool)


def _has_words(run: ReportedRun) -> bool:
    pool = run.data.pool if run.data is not None else None
    return run.outcomes is not None and pool is not None and pool.attributes is not None


def _answered(question: str, found: list[tuple[int, ReportedRun, Any]]) -> Iterator[Block]:
    """Yield the table and the images of one question, or the sentence that there is nothing."""
    title, meaning = _QUESTIONS[question]
    looked = {
        run.label: sum(row.question == question for row in pairs.tested) for _, run, pairs in found
    }
    rows = [
        (number, run, row)
        for number, run, pairs in found
        for row in pairs.rows
        if row.question == question
    ]
    rows.sort(key=lambda one: (one[2].false_sign, -one[2].estimate.value))
    count = sum(looked.values())
    if not rows:
        yield Text((f"{title}: of {count:,} pairs looked at, none is reported.",))
        return
    shown = rows[:_MOST_ROWS]
    yield Text((_summary(title, rows, count),))
    notes = [
        f"Cost: {meaning}.",
        "Share wrong: expected share of harmless pairs among this one and the more certain ones.",
    ]
    if len(rows) > len(shown):
        notes.append(f"The {len(rows) - len(shown):,} least certain are left out.")
    entries = [entry for _, run, row in shown for entry in _entries(run, row)]
    names = ("method", "class", "word")
    yield TableDeclaration(
        title, "the most certain pairs first", names, tuple(entries), tuple(notes)
    )
    for number, run, row in _one_each(shown):
        yield _gallery(number, run, row)


def _summary(title: str, rows: list[tuple[int, ReportedRun, Any]], count: int) -> str:
    """Return how many pairs are reported, the most certain, and the words in most pairs."""
    _, run, row = rows[0]
    said = [f"{title}: {len(rows):,} of {count:,} pairs are reported."]
    if row.estimate.half_width < row.estimate.value:
        cost = f"{points(row.estimate)} for {run.label}"
        said.append(f"The most certain is {row.class_name} with {row.words}, {cost}.")
    words = Counter(row.words for _, _, row in rows).most_common(_MOST_WORDS)
    if len(words) > 1:
        named = ", ".join(f"{word} ({times:,})" for word, times in words)
        said.append(f"The words in most of these pairs: {named}.")
    return " ".join(said)


def _entries(run: ReportedRun, row: Any) -> Iterator[Entry]:
    names = (run.label, row.class_name, row.words)
    yield Entry(names, "cost", Quantity.of(row.estimate))
    for column, share in (("with the word", row.with_word), ("without", row.without)):
        yield Entry(names, column, Quantity(100 * share))
    for column, count in (("tasks", row.n_tasks), ("queries", row.n_queries)):
        yield Entry(names, column, Quantity(float(count), unit=""))
    yield Entry(names, "share wrong", Quantity(row.share_wrong, unit=""))


def _one_each(rows: list[tuple[int, ReportedRun, Any]]) -> list[tuple[int, ReportedRun, Any]]:
    """Return the most certain rows, each pair of a class and a word once."""
    first: dict[tuple[str, str], tuple[int, ReportedRun, Any]] = {}
    for one in rows:
        first.setdefault(one[2].names, one)
    return list(first.values())[:_MOST_GALLERIES]


def _gallery(number: int, run: ReportedRun, row: Any) -> Gallery:
    """Return images of a pair: wrongly answered queries of the class next to images of the word."""
    assert run.data is not None
    assert run.data.pool is not None
    pool = run.data.pool
    members = pool.members(pool.class_names.index(row.class_name))
    has = _with_word(pool, members, row.word)
    wrong = often_wrong(run, members)
    by_error = members[np.argsort(-wrong, kind="stable")]
    having = by_error[_with_word(pool, by_error, row.word)]
    lacking = by_error[~_with_word(pool, by_error, row.word)]
    first = (
        ImageGroup(f"{row.class_name} with {row.word}", first_images(members[has])),
        ImageGroup(f"{row.class_name} without it, wrong most often", first_images(lacking)),
    )
    second = (
        ImageGroup(f"{row.class_name} with {row.word}, wrong most often", first_images(having)),
        ImageGroup(f"{row.class_name} without it", first_images(members[~has])),
    )
    title = f"{row.class_name} and {row.words}: costs {run.label} {points(row.estimate)}"
    return Gallery(title, number, first if row.question == "tied" else second)


def _with_word(pool: ImagePool, images: IntArray, word: str) -> Any:
    assert pool.attributes is not None
    return pool.attributes.column(pool.attributes.words.index(word))[images]
