"""Keywords of wrongly answered images: bias to text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from scipy import sparse, stats

import fsframework as fsf
from fsf_statistics.adjusting import benjamini_hochberg
from fsf_statistics.breakdowns import (
    MOST_SHOWN,
    described_images,
    models_and_pool,
    rows_left,
    words_of,
)
from fsf_statistics.error_slices import arm_of
from fsframework.errors import DataError, OptionError, argument
from fsframework.interfaces import ImageTextModel
from fsframework.values import (
    ArmOutcomes,
    Estimate,
    FloatArray,
    ImagePool,
    html_table,
    text_table,
)

__all__ = ["Candidates", "KeywordRow", "Keywords", "keywords"]

Candidates = Literal["words", "captions"]
"""Where keywords come from: the words of the images, or one and two words of their captions."""

_FEWEST = 3
"""Images of a class with a keyword, and without it, that it needs."""

_TOKEN = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


@dataclass(frozen=True)
class KeywordRow:
    """How much more a keyword belongs to the wrongly answered images of a class.

    Args:
        class_name: the class; ``word`` the keyword.
        estimate: its score: ``wrong`` minus ``right``.
        wrong: mean over wrong answers to images of the class: of the similarity of image and
            keyword, or the share that has it; ``right`` the same over right answers.
        log_odds: logarithm of the odds ratio of the two shares, half an answer added to each count;
            ``None`` for similarities.
        n_images: images of the class that were asked; ``n_having`` those that have the keyword.
        p: one-sided, of no difference.
        share_wrong: p by Benjamini and Hochberg over all pairs that were looked at.
        reported: whether ``share_wrong`` is small enough.
    """

    class_name: str
    word: str
    estimate: Estimate
    wrong: float
    right: float
    log_odds: float | None
    n_images: int
    n_having: int
    p: float
    share_wrong: float
    reported: bool

    @property
    def names(self) -> tuple[str, str]:
        """Class and keyword."""
        return self.class_name, self.word

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**asdict(self), "estimate": self.estimate.to_json()}


@dataclass(frozen=True, repr=False)
class Keywords:
    """The keywords of the wrongly answered images of each class; prints as a table.

    Args:
        arm: whose answers were used.
        similarity: what compared images with keywords; empty for shares of images.
        tested: every pair of a class and a keyword that was looked at, reported ones first, the
            highest score first.
        notes: what a reader must know, a sentence each.
    """

    arm: str
    similarity: str
    tested: tuple[KeywordRow, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def rows(self) -> tuple[KeywordRow, ...]:
        """The reported pairs."""
        return tuple(row for row in self.tested if row.reported)

    def __len__(self) -> int:
        return len(self.rows)

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        columns = ("class", "keyword", "score", "wrong", "right", "images", "share wrong")
        factor, digits = (1.0, 3) if self.similarity else (100.0, 1)
        return columns, [
            (
                row.class_name,
                row.word,
                f"{factor * row.estimate.value:.{digits}f} "
                f"[{factor * row.estimate.low:.{digits}f}, "
                f"{factor * row.estimate.high:.{digits}f}]",
                f"{factor * row.wrong:.{digits}f}",
                f"{factor * row.right:.{digits}f}",
                f"{row.n_having:,} of {row.n_images:,}",
                f"{row.share_wrong:.2g}",
            )
            for row in self.rows[:MOST_SHOWN]
        ]

    def __repr__(self) -> str:
        table = text_table(*self._cells()) if self.rows else "no keyword is reported"
        return "\n".join([table, *rows_left(len(self.rows)), *self.notes])

    def _repr_html_(self) -> str:
        table = html_table(*self._cells()) if self.rows else "<p>no keyword is reported</p>"
        told = (*rows_left(len(self.rows)), *self.notes)
        return table + "".join(f"<p>{escape(note)}</p>" for note in told)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; ``rows`` are all pairs that were looked at."""
        return {
            "arm": self.arm,
            "similarity": self.similarity,
            "rows": [row.to_json() for row in self.tested],
            "notes": list(self.notes),
        }


def keywords(  # noqa: PLR0913 - an option each
    run: fsf.Run | ArmOutcomes | str | Path,
    arm: str | None = None,
    *,
    of: Candidates = "words",
    similarity: ImageTextModel | str | None = None,
    level: float = 0.95,
    wrong: float = 0.1,
    pool: ImagePool | None = None,
    runs_dir: str | Path | None = None,
    device: str = "auto",
) -> Keywords:
    """Return the keywords that belong to the wrongly answered images of each class.

    The score of a keyword is ``sim(a, wrong) - sim(a, right)``, where ``sim`` is the mean cosine
    similarity of the keyword and the images of the class that are answered wrongly, or right. It
    needs a model that embeds images and texts: ``similarity``, or the backbone of the run if it
    reads text. Without one, ``sim`` is the share of the images that have the keyword, which needs
    only words or captions.

    An image counts as often as it is answered wrongly, or right. Errors take the images as
    independent. A pair is reported if its p, by Benjamini and Hochberg over all pairs, is at most
    ``wrong``.

    Caveats: each keyword is looked at alone, so that it is also blamed for words that it comes
    with; ``harmful_pairs`` estimates all words together and compares queries of the same task.

    Args:
        run: a run, its folder or name, or what ``fsframework.evaluate`` returned.
        arm: whose tasks to use; by default the first, the control.
        of: ``words`` of the images, or ``captions``: one and two words in a row of their captions.
        similarity: a detector that embeds images and texts, or its name (``clip-words:MODEL``).
        level: of intervals, between 0 and 1.
        wrong: expected share of keywords without a difference among those reported.
        pool: of outcomes: the images that the tasks were drawn from, with their words.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.
        device: that computes similarities.

    Raises:
        DataError: the images have no words or captions, or one can no longer be read.
        OptionError: an option is out of range, outcomes are to be compared with texts, or there are
            several models.
        RecordError: the run does not exist or has no outcomes.

    Source: Kim et al. 2024, Discovering and mitigating visual biases through keyword explanation
    (CVPR), section 3. Deviations: every word is a candidate instead of those that YAKE extracts;
    weights, errors and shares are not in the paper.
    """
    _check(of, level, wrong)
    if isinstance(run, str | Path):
        run = fsf.load_run(run, runs_dir)
    models, pool = models_and_pool(run, pool, runs_dir)
    if len(models) > 1:
        raise OptionError(
            f"keywords are about one model, and these are {len(models)} training seeds: give one "
            "of the runs"
        )
    outcomes, chosen = models[0], arm_of(models[0], arm)
    tasks = outcomes.arms[chosen]
    tasks.verify(pool)
    names, has = _candidates(pool, of)
    compared, called = _compared(run, names, similarity, device)
    shown = tasks.query if compared is not None else described_images(tasks, pool)
    answers = outcomes[chosen].predictions != np.arange(outcomes[chosen].n_way)[:, None]
    asked, failed = (
        np.bincount(shown.ravel(), one.ravel().astype(float), minlength=len(pool)).astype(float)
        for one in (np.ones_like(answers), answers)
    )
    found = _Scores.of(pool, has, compared, failed, asked - failed)
    rows = _rows(found, pool, names, (chosen, outcomes[chosen].scope), level, wrong)
    return Keywords(chosen, called, tuple(rows), _notes(rows, called, of, wrong))


def _check(of: Candidates, level: float, wrong: float) -> None:
    if of not in get_args(Candidates):
        raise OptionError(f"{argument('of', of)} must be {' or '.join(get_args(Candidates))}")
    for name, value in (("level", level), ("wrong", wrong)):
        if not 0 < value < 1:
            raise OptionError(f"{argument(name)} must lie between 0 and 1, not {value}")


def _candidates(pool: ImagePool, of: Candidates) -> tuple[Sequence[str], sparse.csr_array]:
    """Return keywords, and which images have which, ``(images, keywords)``."""
    if of == "words":
        words_of(pool)
        assert pool.attributes is not None
        indptr, indices = pool.attributes.csr(np.arange(len(pool)))
        names: Sequence[str] = pool.attributes.words
    else:
        captions = None if pool.attributes is None else pool.attributes.captions
        if captions is None:
            raise DataError("these images have no captions; use a table of a captioning detector")
        tokens = [_TOKEN.findall(caption.lower()) for caption in captions]
        terms = [{*one, *(f"{a} {b}" for a, b in pairwise(one))} for one in tokens]
        number = {term: i for i, term in enumerate(sorted(set().union(*terms)))}
        indptr = np.cumsum([0, *map(len, terms)])
        indices = np.array([number[term] for one in terms for term in sorted(one)], np.int64)
        names = [*number]
    ones = np.ones(len(indices))
    return names, sparse.csr_array((ones, indices, indptr), shape=(len(pool), len(names)))


def _compared(
    run: fsf.Run | ArmOutcomes,
    names: Sequence[str],
    similarity: ImageTextModel | str | None,
    device: str,
) -> tuple[FloatArray | None, str]:
    """Return the cosine of each image with each keyword, and what computed it."""
    if not isinstance(run, fsf.Run):
        if similarity is not None:
            raise OptionError("outcomes have no images to compare with texts: give a run")
        return None, ""
    from fsf_statistics.embeddings import images_and_texts

    return images_and_texts(run, names, similarity, device=device)


@dataclass(frozen=True, eq=False)
class _Scores:
    """Scores of each class and keyword, each ``(classes, keywords)`` or ``(classes, 1)``."""

    wrong: FloatArray
    right: FloatArray
    variance: FloatArray
    log_odds: FloatArray | None
    n_images: FloatArray
    n_having: FloatArray

    @classmethod
    def of(
        cls,
        pool: ImagePool,
        has: sparse.csr_array,
        compared: FloatArray | None,
        failed: FloatArray,
        passed: FloatArray,
    ) -> _Scores:
        """Return the difference of two weighted means of each class, with its variance.

        The variance is that of a ratio over images (linearised).
        """
        n_classes, images = len(pool.class_names), np.arange(len(pool))
        totals = [np.bincount(pool.labels, w, minlength=n_classes) for w in (failed, passed)]
        with np.errstate(divide="ignore", invalid="ignore"):
            a, b = (
                np.nan_to_num(w / t[pool.labels])
                for w, t in zip((failed, passed), totals, strict=True)
            )

        def by_class(weights: FloatArray) -> Any:
            shape = n_classes, len(pool)
            return sparse.csr_array((weights, (pool.labels, images)), shape=shape)

        x: Any = has if compared is None else compared
        # The square of 0 and 1 is itself.
        square = x if compared is None else compared**2

        def summed(weights: FloatArray, values: Any) -> FloatArray:
            found = by_class(weights) @ values
            return np.asarray(found.toarray() if sparse.issparse(found) else found)

        first, second = summed(a, x), summed(b, x)
        gap = a - b
        one = [
            np.bincount(pool.labels, w, minlength=n_classes)[:, None] for w in (a * a, a * b, b * b)
        ]
        cross = first * summed(gap * a, x) - second * summed(gap * b, x)
        variance = summed(gap * gap, square) - 2 * cross
        variance += first**2 * one[0] - 2 * first * second * one[1] + second**2 * one[2]
        asked = (failed + passed > 0).astype(float)
        n_images = summed(asked, np.ones((len(pool), 1)))
        n_having = summed(asked, has)
        variance = np.maximum(variance, 0) * n_images / np.maximum(n_images - 1, 1)
        log_odds = None
        if compared is None:
            odds = [
                (summed(w, has) + 0.5) / (t[:, None] - summed(w, has) + 0.5)
                for w, t in zip((failed, passed), totals, strict=True)
            ]
            log_odds = np.log(odds[0] / odds[1])
        lacking = ((totals[0] == 0) | (totals[1] == 0))[:, None]
        few = (n_having < _FEWEST) | (n_images - n_having < _FEWEST)
        variance = np.where(lacking | few, 0.0, variance)
        return cls(first, second, variance, log_odds, n_images, n_having)


def _rows(
    found: _Scores,
    pool: ImagePool,
    names: Sequence[str],
    scope: tuple[str, Any],
    level: float,
    wrong: float,
) -> list[KeywordRow]:
    pairs = np.argwhere(found.variance > 1e-12)
    label, word = pairs.T
    score = (found.wrong - found.right)[label, word]
    error = np.sqrt(found.variance[label, word])
    n_images = found.n_images[label, 0].astype(np.int64)
    p = stats.t.sf(score / error, n_images - 1)
    share_wrong = benjamini_hochberg(p)
    half = stats.t.isf((1 - level) / 2, n_images - 1) * error
    order = np.lexsort((-score, share_wrong > wrong))
    arm, closed = scope
    share = found.log_odds is not None
    rows = []
    for i in order.tolist():
        at = int(label[i]), int(word[i])
        value, width, count = float(score[i]), float(half[i]), int(n_images[i])
        estimate = Estimate(
            "keyword",
            value,
            value - width,
            value + width,
            level,
            closed,
            False,
            "ratio-t",
            0,
            count,
            share=share,
            arms=(arm,),
            higher_is_better=False,
        )
        rows.append(
            KeywordRow(
                pool.class_names[at[0]],
                names[at[1]],
                estimate,
                float(found.wrong[at]),
                float(found.right[at]),
                None if found.log_odds is None else float(found.log_odds[at]),
                count,
                int(found.n_having[at]),
                float(p[i]),
                float(share_wrong[i]),
                bool(share_wrong[i] <= wrong),
            )
        )
    return rows


def _notes(
    rows: Sequence[KeywordRow], called: str, of: Candidates, wrong: float
) -> tuple[str, ...]:
    how = f"cosine similarity by {called}" if called else f"share of images with it, in %, by {of}"
    return (
        f"score: {how}, over wrong answers minus over right ones",
        f"pairs of a class and a keyword looked at: {len(rows):,}; at most {100 * wrong:g} % of "
        "those reported are expected to have no difference",
        "each keyword is looked at alone: it is also blamed for words that it comes with",
    )
