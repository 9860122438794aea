"""Which words hurt which classes: two questions about every pair of a class and a word."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy
from scipy import special

import fsframework as fsf
from fsf_statistics.breakdowns import (
    MOST_SHOWN,
    QUESTIONS,
    Question,
    models_and_pool,
    rows_left,
    tied_words,
    words_of,
)
from fsf_statistics.designs import (
    ClassAnswers,
    ClassWords,
    answers_by_class,
    distinct,
    drawn_away,
    rows_of_present,
    rows_of_tied,
)
from fsf_statistics.joint import Effects
from fsf_statistics.shrinking import (
    moderated,
    normal_errors,
    one_sided,
    posterior,
    shares_wrong,
    simes,
)
from fsframework.errors import FsfError, OptionError, argument
from fsframework.values import (
    ArmOutcomes,
    BoolArray,
    Estimate,
    FloatArray,
    ImagePool,
    IntArray,
    atomic_write,
    digest_of,
    html_table,
    text_table,
)

__all__ = [
    "LEAST_HARM",
    "MOST_WRONG",
    "HarmfulPairs",
    "PairRow",
    "code_digest",
    "harmful_pairs",
    "kept_pairs",
]

LEAST_HARM = 0.04
"""Share of correct answers that a word must cost before its pair is reported."""

MOST_WRONG = 0.1
"""Expected share of pairs without harm among those reported."""

_MOST_LOCAL = 4.0
"""How much likelier than the reported pairs on average a single one may be to do no harm."""

_FEWEST_CLASSES = 3
"""Classes that the mean of what other classes draw to themselves needs."""

_FEWEST_TASKS, _FEWEST_OTHERS = 2, 10
"""Tasks of a class with a tied word, and without it, that the pair needs to be looked at."""


@dataclass(frozen=True)
class PairRow:
    """How much a word costs a class.

    Args:
        class_name: the class; ``word`` the word, the commonest where several are one group.
        question: ``tied``, the word in the support, or ``present``, the word in a query.
        estimate: what the word costs: accuracy without it minus accuracy with it, other words
            accounted for, and given what all pairs of the question cost; positive where it hurts.
        with_word: accuracy with the word as observed; ``without`` the one expected without it, that
            is with the difference before shrinkage.
        n_tasks: tasks with the word in this role.
        n_queries: queries of the class in these tasks; for ``present`` those that have the word.
        n_images: distinct images with the word: in the supports, or among the queries.
        p: one-sided, of no harm, from the estimate of this pair only.
        false_sign: probability that the word costs nothing or helps, given all pairs.
        share_wrong: expected share of pairs without harm among this one and the more certain ones
            that cost enough to be reported.
        harmful: whether the pair is reported.
        inseparable: other words that always or nearly always come with it in the class, so that
            the cost is that of all together.
    """

    class_name: str
    word: str
    question: Question
    estimate: Estimate
    with_word: float
    without: float
    n_tasks: int
    n_queries: int
    n_images: int
    p: float
    false_sign: float
    share_wrong: float
    harmful: bool
    inseparable: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, str]:
        """Class and word."""
        return self.class_name, self.word

    @property
    def words(self) -> str:
        """The word, and those that cannot be told from it, as text."""
        return " + ".join((self.word, *self.inseparable))

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "class": self.class_name,
            "word": self.word,
            "question": self.question,
            "estimate": self.estimate.to_json(),
            "with": self.with_word,
            "without": self.without,
            "n_tasks": self.n_tasks,
            "n_queries": self.n_queries,
            "n_images": self.n_images,
            "p": self.p,
            "false_sign": self.false_sign,
            "share_wrong": self.share_wrong,
            "harmful": self.harmful,
            "inseparable": list(self.inseparable),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Build a pair from the output of ``to_json``."""
        names = {"class": "class_name", "with": "with_word"}
        found = {names.get(name, name): value for name, value in raw.items()}
        found["estimate"] = Estimate.from_json(raw["estimate"])
        return cls(**{**found, "inseparable": tuple(raw["inseparable"])})


@dataclass(frozen=True, repr=False)
class HarmfulPairs:
    """The pairs of a class and a word that hurts it; prints as a table, the worst pair first.

    Args:
        tested: every pair that was looked at, reported ones first, the most harmful first.
        questions: that were asked.
        p_any: for each question, the p of "no word hurts any class".
        drawn_away: by arm with tied words: how much more often a query is answered as another class
            if it has the word that class is tied to; the mean over classes. This is not part of
            what tied words cost their own class.
        notes: what a reader must know, a sentence each.
    """

    tested: tuple[PairRow, ...]
    questions: tuple[Question, ...] = QUESTIONS
    p_any: Mapping[Question, float] = field(default_factory=dict)
    drawn_away: Mapping[str, Estimate] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=())

    @property
    def rows(self) -> tuple[PairRow, ...]:
        """The reported pairs."""
        return tuple(row for row in self.tested if row.harmful)

    def __len__(self) -> int:
        return len(self.rows)

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        columns = ("class", "word", "question", "costs", "with", "without", "tasks", "queries")
        return (*columns, "images", "share wrong"), [
            (
                row.class_name,
                row.words,
                row.question,
                f"{100 * row.estimate.value:.1f} "
                f"[{100 * row.estimate.low:.1f}, {100 * row.estimate.high:.1f}] points",
                f"{100 * row.with_word:.1f} %",
                f"{100 * row.without:.1f} %",
                f"{row.n_tasks:,}",
                f"{row.n_queries:,}",
                f"{row.n_images:,}",
                f"{row.share_wrong:.2g}",
            )
            for row in self.rows[:MOST_SHOWN]
        ]

    def __repr__(self) -> str:
        table = [text_table(*self._cells())] if self.rows else ["no pair is reported"]
        return "\n".join([*table, *rows_left(len(self.rows)), *self.notes])

    def _repr_html_(self) -> str:
        table = html_table(*self._cells()) if self.rows else "<p>no pair is reported</p>"
        told = (*rows_left(len(self.rows)), *self.notes)
        return table + "".join(f"<p>{escape(note)}</p>" for note in told)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; ``rows`` are all pairs that were looked at."""
        return {
            "questions": list(self.questions),
            "p_any": dict(self.p_any),
            "drawn_away": {arm: one.to_json() for arm, one in self.drawn_away.items()},
            "rows": [row.to_json() for row in self.tested],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Build the pairs from the output of ``to_json``."""
        return cls(
            tuple(PairRow.from_json(row) for row in raw["rows"]),
            tuple(raw["questions"]),
            raw["p_any"],
            {arm: Estimate.from_json(one) for arm, one in raw["drawn_away"].items()},
            tuple(raw["notes"]),
        )


def harmful_pairs(
    run: fsf.Run | ArmOutcomes | str | Path,
    question: Question | None = None,
    *,
    level: float = 0.95,
    least: float = LEAST_HARM,
    wrong: float = MOST_WRONG,
    pool: ImagePool | None = None,
    runs_dir: str | Path | None = None,
) -> HarmfulPairs:
    """Return which words hurt which classes, corrected for how many pairs were looked at.

    What was computed for a run is kept in its folder, and used again as long as its outcomes, its
    words, the options and the code are the same.

    Two questions are asked about a class and a word, each judged alone. *Tied*: how much lower the
    accuracy of the class is in tasks whose support ties it to the word than in uniformly drawn
    ones, if the queries were the same images. Words tied to other classes, which draw queries that
    have them to those classes, are effects of their own. Without uniformly drawn tasks a tied word
    is compared with the other tied words of the class. *Present*: how much lower the accuracy of
    the class's images with the word is, as queries, than that of its images without it. Only
    uniformly drawn arms are used for *present*, since other samplers choose queries by their words.

    How pairs are judged, in three steps:

    1. All words of a class are estimated together by least squares, so that a word is not blamed
       for another that it often comes with. Standard errors are robust, over tasks (tied) or images
       (present): an image that is asked often is still one image. They are never smaller than
       those of independent answers, and classes with too few answers for their number of words are
       left out, as the notes say. Words that cannot be told apart are one group
       (``inseparable``); where every image has one of several words, each is compared with those
       in its place.
    2. What a pair costs is estimated given all pairs of the question (adaptive shrinkage), with a
       prior that has a point mass at zero. ``estimate`` and its interval are those of this
       distribution; ``with_word`` is what was observed, ``without`` that plus the cost before
       shrinkage.
    3. Pairs that cost at least ``least`` are reported, the most certain first, as long as the
       expected share of those without harm among them is at most ``wrong`` (``share_wrong``) and
       each of them does no harm with a probability of at most twice that (``false_sign``).
       Nothing is reported if Simes' test of "no word hurts any class" has p (``p_any``) above half
       of ``1 - level``, so that at most ``1 - level`` of reports about nothing show any pair.

    Caveats: this is about these images and this model. A word stands for whatever occurs together
    with it and is not a word of its own; a counterfactual image is the only proof. With 150 tasks,
    or words in a few images of a class, expect to miss most. How often reports
    were right is in ``docs/concepts/words-that-hurt.md``.

    Args:
        run: a run, its folder or name, or what ``fsframework.evaluate`` returned.
        question: ``tied`` or ``present``; by default both.
        level: of intervals, and one minus the share of reports about nothing that may show any
            pair; between 0 and 1.
        least: share of correct answers that a reported word costs, at least 0.
        wrong: expected share of pairs without harm among those reported, between 0 and 1.
        pool: of outcomes: the images that the tasks were drawn from, with their words.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        DataError: the images have no words, or cannot be found.
        OptionError: an option is out of range, or there are several models: words that hurt one
            need not hurt another that was trained alike.
        RecordError: the run does not exist or has no outcomes.

    Source: Stephens 2017, False discovery rates: a new deal; Cameron, Gelbach & Miller 2011; Bell &
    McCaffrey 2002; Smyth 2004; Simes 1986; FewSTAB, Definition 1.
    """
    _check(question, level, least, wrong)
    if isinstance(run, str | Path):
        run = fsf.load_run(run, runs_dir)
    folder = run.folder if isinstance(run, fsf.Run) else None
    models, pool = models_and_pool(run, pool, runs_dir)
    if len(models) > 1:
        raise OptionError(
            f"harmful_pairs is about one model, and these are {len(models)} training seeds: give "
            "one of the runs; breakdown gives accuracies over all seeds"
        )
    asked = QUESTIONS if question is None else (question,)
    return _found(models[0], pool, asked, _Limits(level, least, wrong), folder)


def kept_pairs(folder: Path, outcomes: ArmOutcomes, pool: ImagePool) -> HarmfulPairs:
    """Return ``harmful_pairs`` of a run whose outcomes and images have been read already."""
    limits = _Limits(0.95, LEAST_HARM, MOST_WRONG)
    return _found(outcomes, pool, QUESTIONS, limits, folder)


def _found(
    outcomes: ArmOutcomes,
    pool: ImagePool,
    asked: Sequence[Question],
    limits: _Limits,
    folder: Path | None,
) -> HarmfulPairs:
    """Return the pairs; those of a run are kept in its folder."""
    words_of(pool)
    for tasks in outcomes.arms.values():
        tasks.verify(pool)
    if folder is None:
        return _judged(outcomes, pool, asked, limits)
    # One line is the digest of the other and of what decides it.
    identity, file = _identity(outcomes, pool, asked, limits), folder / "words-that-hurt.jsonl"
    try:
        digest, _, pairs = file.read_text("utf-8").partition("\n")
        if digest == json.dumps(digest_of(identity, pairs)):
            return HarmfulPairs.from_json(json.loads(pairs))
    except (OSError, ValueError):
        pass  # there is none, or it is damaged
    found = _judged(outcomes, pool, asked, limits)
    pairs = json.dumps(found.to_json())
    with suppress(FsfError):  # of a folder that cannot be written to
        atomic_write(file, json.dumps(digest_of(identity, pairs)) + "\n" + pairs)
    return found


def _identity(
    outcomes: ArmOutcomes, pool: ImagePool, asked: Sequence[Question], limits: _Limits
) -> str:
    """Return a digest of everything that decides the pairs."""
    assert pool.attributes is not None
    versions = fsf.__version__, np.__version__, scipy.__version__
    words = pool.attributes.fingerprint
    parts: list[Any] = [code_digest(), *versions, pool.fingerprint, words, *asked, repr(limits)]
    for arm, tasks in outcomes.arms.items():
        drawn = tasks.digest, tasks.attribute, tasks.words, str(tasks.uniform)
        parts += [arm, *drawn, outcomes[arm].digest]
    return digest_of(*parts)


@functools.cache
def code_digest() -> str:
    """Return a digest of the code of this package."""
    return digest_of(*(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py"))))


def _judged(
    outcomes: ArmOutcomes, pool: ImagePool, asked: Sequence[Question], limits: _Limits
) -> HarmfulPairs:
    """Return the pairs that were looked at, those to report first."""
    rows: list[PairRow] = []
    p_any: dict[Question, float] = {}
    away: dict[str, Estimate] = {}
    scarce: dict[Question, int] = {}
    for one in asked:
        designs = _tied(outcomes, pool) if one == "tied" else [_present(outcomes, pool)]
        judged = [design.judged(limits) for design in designs]
        rows += [row for found, _ in judged for row in found]
        p_any[one] = min([1.0, *(len(judged) * p for _, p in judged)])
        scarce[one] = sum(of.scarce for design in designs for of in design.classes)
        away |= {
            arm: of for design in designs for arm, of in design.drawn_away(limits.level).items()
        }
    rows.sort(key=lambda row: (-row.harmful, -row.estimate.value, row.names, row.question))
    notes = _notes(rows, outcomes, (p_any, away, scarce), limits)
    return HarmfulPairs(tuple(rows), tuple(asked), p_any, away, notes)


def _check(question: Question | None, level: float, least: float, wrong: float) -> None:
    if question is not None and question not in QUESTIONS:
        known = " or ".join(QUESTIONS)
        raise OptionError(f"{argument('question', question)} must be {known}")
    if not 0 < level < 1:
        raise OptionError(f"{argument('level')} must lie between 0 and 1, not {level}")
    if not 0 <= least < 1:
        raise OptionError(f"{argument('least')} must be at least 0 and below 1, not {least}")
    if not 0 < wrong < 1:
        raise OptionError(f"{argument('wrong')} must lie between 0 and 1, not {wrong}")


@dataclass(frozen=True)
class _Limits:
    """What is reported: see ``harmful_pairs``."""

    level: float
    least: float
    wrong: float

    @property
    def by_chance(self) -> float:
        """The p of "no word hurts any class" up to which a question reports anything."""
        return (1 - self.level) / len(QUESTIONS)


@dataclass(frozen=True, eq=False)
class _Class:
    """The effects of words on one class.

    Args:
        name: of the class; ``words`` those of each effect, the commonest of a group first.
        found: the effects.
        accuracy: float ``(k,)``, with the word; ``counts`` int ``(k, 3)``: tasks, queries, images.
        away: how much more often its queries are answered as a class tied to a word of theirs.
        scarce: pairs that are left out, since there are too few answers for the class's words.
    """

    name: str
    words: Sequence[tuple[str, ...]]
    found: Effects
    accuracy: FloatArray
    counts: IntArray
    away: float = np.nan
    scarce: int = 0

    def only(self, kept: BoolArray, enough: bool) -> Self:
        """Return the effects that are kept and can be estimated, none without enough answers."""
        kept = kept & np.isfinite(self.found.value)
        scarce = 0 if enough else int(kept.sum())
        kept = kept & enough
        words = [words for words, one in zip(self.words, kept, strict=True) if one]
        return type(self)(
            self.name,
            words,
            self.found.only(kept),
            self.accuracy[kept],
            self.counts[kept],
            self.away,
            scarce,
        )

    @property
    def expected(self) -> FloatArray:
        """The variance of each effect if all units of the class varied alike."""
        reach, freedom = self.found.reach, self.found.freedom
        used = reach > 0
        if not used.any():
            return reach
        usual = np.average(self.found.variance[used] / reach[used], weights=freedom[used])
        return np.asarray(reach * usual)


@dataclass(frozen=True, eq=False)
class _Design:
    """The effects of words on all classes in one question, which are judged together.

    Args:
        arms: whose tasks are named in estimates; ``closed`` whether tasks share images.
        size: tasks and distinct images.
    """

    question: Question
    arms: tuple[str, ...]
    closed: bool
    size: tuple[int, int]
    classes: Sequence[_Class]

    def drawn_away(self, level: float) -> dict[str, Estimate]:
        """Return how queries are drawn to classes tied to a word of theirs, by arm."""
        found = np.array([one.away for one in self.classes])
        found = found[np.isfinite(found)]
        if len(found) < _FEWEST_CLASSES:
            return {}
        half = special.stdtrit(len(found) - 1, (1 + level) / 2) * found.std(ddof=1)
        half /= np.sqrt(len(found))
        interval = found.mean() - half, found.mean() + half
        name = "drawn-away"
        return {
            arm: self._estimate(name, found.mean(), interval, self.size, level) for arm in self.arms
        }

    def judged(self, limits: _Limits) -> tuple[list[PairRow], float]:
        """Return the rows, and the p of "no word hurts any class"."""
        found = [one.found for one in self.classes]
        value, accuracy = (
            np.concatenate([np.empty(0), *parts])
            for parts in ([one.value for one in found], [one.accuracy for one in self.classes])
        )
        counts = np.concatenate([np.empty((0, 3), int), *(one.counts for one in self.classes)])
        error, freedom = self._errors(counts[:, 1])
        p = one_sided(value, error, freedom)
        p_any = simes(p)
        likely = posterior(value, normal_errors(value, error, freedom))
        mean, false_sign = likely.mean, likely.below(0.0)
        low, high = (likely.quantile((1 + side * limits.level) / 2) for side in (-1, 1))
        low, high = np.minimum(low, mean), np.maximum(high, mean)
        wrong = shares_wrong(false_sign, mean >= limits.least)
        harmful = (mean >= limits.least) & (wrong <= limits.wrong) & (p_any <= limits.by_chance)
        harmful &= false_sign <= _MOST_LOCAL * limits.wrong
        names = [(one.name, words) for one in self.classes for words in one.words]
        rows = [
            PairRow(
                name,
                words[0],
                self.question,
                self._estimate("harm", mean[i], (low[i], high[i]), counts[i], limits.level),
                float(accuracy[i]),
                float(np.clip(accuracy[i] + value[i], 0, 1)),
                *counts[i].tolist(),
                p=float(p[i]),
                false_sign=float(false_sign[i]),
                share_wrong=float(wrong[i]),
                harmful=bool(harmful[i]),
                inseparable=words[1:],
            )
            for i, (name, words) in enumerate(names)
        ]
        return rows, p_any

    def _errors(self, n_queries: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the standard error of each effect and its degrees of freedom."""
        variance, freedom, independent, expected = (
            np.concatenate([np.empty(0), *parts])
            for parts in (
                [one.found.variance for one in self.classes],
                [one.found.freedom for one in self.classes],
                [one.found.independent for one in self.classes],
                [one.expected for one in self.classes],
            )
        )
        variance, freedom = moderated(variance, freedom, expected)
        variance = np.maximum(variance, independent)
        # Where all answers are alike, no less than one more answer could change.
        return np.maximum(np.sqrt(variance), 0.5 / np.maximum(n_queries, 1)), freedom

    def _estimate(
        self,
        name: str,
        mean: float,
        interval: tuple[float, float],
        size: Sequence[int],
        level: float,
    ) -> Estimate:
        n_tasks, n_images = int(size[0]), int(size[-1])
        mean, low, high = np.clip((mean, *interval), -1, 1).tolist()  # differences of shares
        return Estimate(
            name,
            mean,
            low,
            high,
            level,
            "closed" if self.closed else "open",
            False,
            "pooled" if name == "harm" else "student-t",
            n_tasks,
            n_images,
            share=True,
            arms=self.arms,
            higher_is_better=False,
        )


def _tied(outcomes: ArmOutcomes, pool: ImagePool) -> list[_Design]:
    """Return the effects of tied words, for each arm whose classes are tied to words.

    Whether words tied to other classes also send queries to third classes cannot be told class by
    class without loss. Of the fits with and without such effects, the one that blames the class's
    own words less is returned.
    """
    uniform = _uniform(outcomes)
    found = []
    for arm, tasks in outcomes.arms.items():
        if not (tied_words(tasks, pool) >= 0).any():
            continue
        arms = [arm, *(one for one in uniform if one != arm)]
        fits = [
            _tied_of_class(answers, pool)
            for answers in answers_by_class(outcomes, pool, arms)
            if (answers.tied >= 0).any()
        ]
        classes = min(
            zip(*fits, strict=True),
            key=lambda fit: sum(float(one.found.value.sum()) for one in fit),
        )
        size, closed = (len(tasks), tasks.n_images), outcomes[arm].scope == "closed"
        found.append(_Design("tied", (arm,), closed, size, classes))
    return found


def _tied_of_class(answers: ClassAnswers, pool: ImagePool) -> list[_Class]:
    """Return the effects with and without those of other words on third classes."""
    words = ClassWords.of(answers.shown, pool)
    tied = answers.tied >= 0
    # A tied word that too few images have or lack is an effect of its own.
    alone = len(words.group) + np.arange(len(words.group))
    key = np.where(words.group >= 0, words.group, alone)
    keys, own = np.unique(key[answers.tied[tied]], return_inverse=True)
    number = np.full(len(tied), -1)
    number[tied] = own
    support = np.repeat(own, answers.support.shape[1]), answers.support[tied].ravel()
    n_queries = np.bincount(own, minlength=len(keys))
    n_tasks = distinct(own, answers.task[tied], len(keys))
    n_others = len(np.unique(answers.task)) - n_tasks
    counts = np.stack([n_tasks, n_queries, distinct(*support, len(keys))], axis=1)
    kept = (n_tasks >= _FEWEST_TASKS) & (n_others >= _FEWEST_OTHERS)
    names = [words.names(np.flatnonzero(key == one)) for one in keys]
    accuracy = np.bincount(own, answers.right[tied], minlength=len(keys)) / n_queries
    rows, name = rows_of_tied(answers, words, number), pool.class_names[answers.label]
    fits = rows.fitted()
    enough = all(found.enough for found in fits)  # the same pairs in both
    return [
        _Class(name, names, found, accuracy, counts, drawn_away(rows, found)).only(kept, enough)
        for found in fits
    ]


def _present(outcomes: ArmOutcomes, pool: ImagePool) -> _Design:
    """Return the effects of words that are present in a query."""
    arms = _uniform(outcomes) or list(outcomes)
    classes = [_present_of_class(one, pool) for one in answers_by_class(outcomes, pool, arms)]
    closed = any(outcomes[arm].scope == "closed" for arm in arms)
    size = sum(len(outcomes[arm]) for arm in arms), len(pool)
    return _Design("present", tuple(arms) if len(arms) == 1 else (), closed, size, classes)


def _present_of_class(answers: ClassAnswers, pool: ImagePool) -> _Class:
    words = ClassWords.of(answers.shown, pool)
    query, own = np.nonzero(words.having)
    n_groups = words.having.shape[1]
    n_queries = words.having.sum(axis=0)
    n_tasks = distinct(own, answers.task[query], n_groups)
    counts = np.stack([n_tasks, n_queries, distinct(own, answers.shown[query], n_groups)], axis=1)
    found = rows_of_present(answers, words).fitted()[0]
    return _Class(
        pool.class_names[answers.label],
        [words.names(np.flatnonzero(words.group == one)) for one in range(n_groups)],
        found,
        words.having.T @ answers.right / np.maximum(n_queries, 1),
        counts,
    ).only(np.ones(n_groups, bool), found.enough)


def _uniform(outcomes: ArmOutcomes) -> list[str]:
    return [arm for arm in outcomes if outcomes.arms[arm].uniform]


def _notes(
    rows: Sequence[PairRow],
    outcomes: ArmOutcomes,
    found: tuple[Mapping[Question, float], Mapping[str, Estimate], Mapping[Question, int]],
    limits: _Limits,
) -> tuple[str, ...]:
    p_any, away, scarce = found
    counted = {one: sum(row.question == one for row in rows) for one in p_any}
    how = {"tied": "tied to the class in the support", "present": "present in a query"}
    looked = " and ".join(f"{counted[one]:,} with the word {how[one]}" for one in p_any)
    notes = [
        f"pairs looked at: {looked}; those reported cost at least {100 * limits.least:g} points, "
        f"and at most {100 * limits.wrong:g} % of those of a question are expected to be harmless"
    ]
    notes += [
        f"pairs left out with the word {how[one]}: {count:,}, of classes with too few answers or "
        f"{'tasks' if one == 'tied' else 'images'} for their number of words; draw more tasks"
        for one, count in scarce.items()
        if count
    ]
    notes += [
        f"no pair is reported with the word {how[one]}: that no word hurts any class has "
        f"p = {p:.2g}, above {limits.by_chance:.2g}"
        for one, p in p_any.items()
        if counted[one] and p > limits.by_chance
    ]
    notes += [
        f"{arm} tasks: a query with a word that another class is tied to is answered as that class "
        f"{100 * one.value:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}] points more often; "
        "this is not part of what tied words cost their own class"
        for arm, one in away.items()
    ]
    if counted.get("tied") == 0 and not scarce["tied"]:
        notes.append("no class is tied to the same word in enough tasks to say what that costs")
    if any(tasks.placebo for tasks in outcomes.arms.values()):
        notes.append("this is a placebo: words are those of other images of the class")
    notes.append("a word stands for whatever occurs together with it and is not a word of its own")
    return tuple(notes)
