"""Which images fail together: slices found by embeddings and wrong answers, without words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy
from scipy import sparse, stats

import fsframework as fsf
from fsf_statistics._mixture import fitted_mixture, principal_components
from fsf_statistics.adjusting import holm
from fsf_statistics.breakdowns import models_and_pool
from fsf_statistics.enrichment import WordShare, enriched_words
from fsf_statistics.harm import code_digest
from fsframework.errors import DataError, FsfError, OptionError, argument, close_matches
from fsframework.values import (
    ArmOutcomes,
    BoolArray,
    Estimate,
    FloatArray,
    ImagePool,
    IntArray,
    Outcomes,
    TaskSet,
    atomic_write,
    digest_of,
    html_table,
    text_table,
)

__all__ = ["SliceRow", "Slices", "arm_of", "kept_slices", "slices"]

_KEPT = "slices.jsonl"
"""File of a run's folder: a line is the digest of the other and of what decides it."""

_FEWEST_IMAGES = 5
"""Effective number of images that the excess of a slice needs."""

_PERMUTATIONS, _AT_ONCE = 2000, 500
"""Permutations of the images at least, and how many are in memory together."""

_PER_CLASS = 3
"""Components of the mixture per class, unless their number is given."""

_COMPONENTS = 64
"""Principal components of the embeddings that are used at most."""


@dataclass(frozen=True)
class SliceRow:
    """A slice: images that are near each other, and how much more often they are answered wrongly.

    Args:
        images: keys of all of its images, the most typical first.
        classes: number of its images by class, most first.
        estimate: excess of wrong answers: how much more often its images are answered wrongly than
            the other images of their class in the same task. From answers that had no part in
            finding it; the interval holds for all slices at once.
        wrong: share of wrong answers to its images, from the same answers.
        n_queries: these answers; ``n_images`` the distinct images among them.
        p: one-sided, of no excess, by permuting the images of each class, and Holm over all slices
            that were looked at.
        reported: whether ``p`` is small enough.
        words: that describe the slice best, if the images have words.
    """

    images: tuple[str, ...]
    classes: Mapping[str, int]
    estimate: Estimate
    wrong: float
    n_queries: int
    n_images: int
    p: float
    reported: bool
    words: tuple[WordShare, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "images": list(self.images),
            "classes": dict(self.classes),
            "estimate": self.estimate.to_json(),
            "wrong": self.wrong,
            "n_queries": self.n_queries,
            "n_images": self.n_images,
            "p": self.p,
            "reported": self.reported,
            "words": [dict(word.to_json()) for word in self.words],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Build a slice from the output of ``to_json``."""
        read = {
            "images": tuple(raw["images"]),
            "estimate": Estimate.from_json(raw["estimate"]),
            "words": tuple(WordShare(**word) for word in raw["words"]),
        }
        return cls(**{**raw, **read})


@dataclass(frozen=True, repr=False)
class Slices:
    """The slices of a run that fail; prints as a table, the worst slice first.

    Args:
        arm: whose answers they were found in.
        tested: every slice that was looked at, reported ones first, the greatest excess first.
        options: with which they were found.
        notes: what a reader must know, a sentence each.
    """

    arm: str
    tested: tuple[SliceRow, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=())

    @property
    def rows(self) -> tuple[SliceRow, ...]:
        """The reported slices."""
        return tuple(row for row in self.tested if row.reported)

    def __len__(self) -> int:
        return len(self.rows)

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        columns = ("slice", "excess", "wrong", "images", "classes", "words", "p")
        return columns, [
            (
                str(number),
                f"{100 * row.estimate.value:.1f} "
                f"[{100 * row.estimate.low:.1f}, {100 * row.estimate.high:.1f}] points",
                f"{100 * row.wrong:.1f} %",
                f"{len(row.images):,}",
                _shortened([f"{name} ({count:,})" for name, count in row.classes.items()]),
                ", ".join(
                    f"{w.word} ({100 * w.share:.0f} %, usually {100 * w.usual:.0f} %)"
                    for w in row.words
                ),
                f"{row.p:.2g}",
            )
            for number, row in enumerate(self.rows, start=1)
        ]

    def __repr__(self) -> str:
        table = text_table(*self._cells()) if self.rows else "no slice is reported"
        return "\n".join([table, *self.notes])

    def _repr_html_(self) -> str:
        table = html_table(*self._cells()) if self.rows else "<p>no slice is reported</p>"
        return table + "".join(f"<p>{escape(note)}</p>" for note in self.notes)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; ``rows`` are all slices that were looked at."""
        return {
            "arm": self.arm,
            "options": dict(self.options),
            "rows": [row.to_json() for row in self.tested],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Build slices from the output of ``to_json``."""
        rows = tuple(SliceRow.from_json(row) for row in raw["rows"])
        return cls(raw["arm"], rows, raw["options"], tuple(raw["notes"]))


def _shortened(names: list[str], most: int = 3) -> str:
    left = len(names) - most
    return ", ".join(names[:most]) + (f", {left:,} more" if left > 0 else "")


def slices(  # noqa: PLR0913 - an option each
    run: fsf.Run | ArmOutcomes | str | Path,
    arm: str | None = None,
    *,
    count: int | None = None,
    weight: float = 10.0,
    seed: int = 0,
    level: float = 0.95,
    embeddings: FloatArray | None = None,
    pool: ImagePool | None = None,
    runs_dir: str | Path | None = None,
    device: str = "auto",
) -> Slices:
    """Return groups of images that the model answers wrongly more often than others of their class.

    What was found for a run by its own features is kept in its folder, for reports and for a second
    call with the same options.

    Needs no words: a mixture over embedding, class and share of wrong answers of each image
    (Domino), whose components are the slices. In three steps:

    1. Tasks, and the images of each class, are halved at random. The mixture is fitted to the
       answers of the first half of the tasks to the first half of the images.
    2. Every image belongs to the likeliest component by its embedding and class alone, so that a
       slice is not merely a list of images that happened to be answered wrongly. Components that
       have no excess of wrong answers so far are dropped.
    3. The excess of each slice is estimated from the answers of the second half of the tasks to the
       second half of the images, which had no part in finding it: least squares with an effect of
       each class in each task, so that a poor support does not count. Its error allows dependence
       within an image and within a task, and intervals hold for all slices at once (Bonferroni).
       p is found by permuting the images of each class; a slice is reported if it is at most
       ``1 - level`` by Holm over the slices.

    Caveats: a slice is what the embedding can tell apart, and need not have a name; the model's own
    features may not contain what it fails on. A quarter of the answers finds slices and another
    quarter judges them. How often reports were right is in ``docs/concepts/slices.md``.

    Args:
        run: a run, its folder or name, or what ``fsframework.evaluate`` returned.
        arm: whose tasks to use; by default the first, the control.
        count: components of the mixture, at least 2; by default three per class.
        weight: of class and wrong answers against the embedding, gamma of Domino; at least 0. With
            0 wrong answers have no part in finding slices.
        seed: of halves and fits.
        level: one minus the share of reports about nothing that may show any slice, and of
            intervals; between 0 and 1.
        embeddings: float ``(images, D)``, a row per image of the pool; by default the features of
            the run's own model.
        pool: of outcomes: the images that the tasks were drawn from.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.
        device: that computes features which are not in the cache.

    Raises:
        DataError: there are too few tasks or images, an image can no longer be read, or embeddings
            do not fit the pool.
        OptionError: an option is out of range, the arm is unknown, or there are several models.
        RecordError: the run does not exist or has no outcomes.

    Source: Eyuboglu et al. 2022, Domino: discovering systematic errors with cross-modal embeddings
    (ICLR), section 4. Deviations: embeddings of the model itself unless others are given; the share
    of wrong answers instead of one prediction per image; slices are assigned without wrong answers;
    step 3 is not in the paper.
    """
    _check(count, weight, level)
    if isinstance(run, str | Path):
        run = fsf.load_run(run, runs_dir)
    models, pool = models_and_pool(run, pool, runs_dir)
    if len(models) > 1:
        raise OptionError(
            f"slices are about one model, and these are {len(models)} training seeds: give one of "
            "the runs"
        )
    outcomes = models[0]
    chosen = arm_of(outcomes, arm)
    tasks = outcomes.arms[chosen]
    tasks.verify(pool)
    if count is None:
        count = max(2, _PER_CLASS * len(np.unique(tasks.classes)))
    options = _Options(count, float(weight), seed, level)
    if embeddings is not None:
        return _found(outcomes, chosen, _checked_embeddings(embeddings, pool), pool, options)
    if not isinstance(run, fsf.Run):
        raise OptionError(f"outcomes have no features: give {argument('embeddings')}")
    kept = kept_slices(run.folder, outcomes, pool)
    if kept is not None and (kept.arm, kept.options) == (chosen, asdict(options)):
        return kept
    from fsf_statistics.embeddings import embeddings_of

    own = _checked_embeddings(embeddings_of(run, device=device), pool)
    found = _found(outcomes, chosen, own, pool, options)
    text = json.dumps(found.to_json())
    with suppress(FsfError):  # of a folder that cannot be written to
        digest = json.dumps(digest_of(_identity(outcomes, pool), text))
        atomic_write(run.folder / _KEPT, digest + "\n" + text)
    return found


def kept_slices(folder: Path, outcomes: ArmOutcomes, pool: ImagePool) -> Slices | None:
    """Return the slices that were last found for a run; ``None`` if there are none.

    Args:
        folder: of the run.
        outcomes: its answers; ``pool`` its images.
    """
    try:
        digest, _, text = (folder / _KEPT).read_text("utf-8").partition("\n")
        if digest == json.dumps(digest_of(_identity(outcomes, pool), text)):
            return Slices.from_json(json.loads(text))
    except (OSError, ValueError):
        pass  # there are none, or they are damaged
    return None


def _identity(outcomes: ArmOutcomes, pool: ImagePool) -> str:
    """Return a digest of what decides slices, besides their options and the weights."""
    words = "" if pool.attributes is None else pool.attributes.fingerprint
    versions = fsf.__version__, np.__version__, scipy.__version__
    parts: list[Any] = [code_digest(), *versions, pool.fingerprint, words]
    return digest_of(*parts, *(outcomes[arm].digest for arm in outcomes))


def _check(count: int | None, weight: float, level: float) -> None:
    if count is not None and count < 2:
        raise OptionError(f"{argument('count')} must be at least 2, not {count}")
    if not 0 <= weight < np.inf:
        raise OptionError(f"{argument('weight')} must be at least 0, not {weight}")
    if not 0 < level < 1:
        raise OptionError(f"{argument('level')} must lie between 0 and 1, not {level}")


def arm_of(outcomes: ArmOutcomes, arm: str | None) -> str:
    """Return the name of an arm, by default the first.

    Raises:
        OptionError: there is no such arm.
    """
    known = list(outcomes)
    if arm is not None and arm not in known:
        hint = close_matches(arm, known)
        raise OptionError(f"{argument('arm', arm)} must be {' or '.join(known)}{hint}")
    return known[0] if arm is None else arm


def _checked_embeddings(embeddings: FloatArray, pool: ImagePool) -> FloatArray:
    found = np.asarray(embeddings, np.float64)
    if found.ndim != 2 or len(found) != len(pool) or not np.isfinite(found).all():
        raise DataError(
            f"embeddings must be finite numbers ({len(pool):,}, D), a row per image, not "
            f"{found.shape}"
        )
    if (found == found[:1]).all():
        raise DataError("embeddings must differ between images; these are all equal")
    return found


@dataclass(frozen=True)
class _Options:
    count: int
    weight: float
    seed: int
    level: float


@dataclass(frozen=True, eq=False)
class _Answers:
    """The answers to the queries of an arm, one row each.

    Args:
        task: int ``(n,)``; ``group`` the class in its task; ``image`` that was asked.
        wrong: float ``(n,)``, 1.0 for each wrong answer.
        scope: of intervals over these tasks.
    """

    task: IntArray
    group: IntArray
    image: IntArray
    wrong: FloatArray
    scope: Any

    @classmethod
    def of(cls, tasks: TaskSet, outcomes: Outcomes) -> _Answers:
        n_tasks, way, n_query = tasks.query.shape
        group = np.repeat(np.arange(n_tasks * way), n_query)
        wrong = outcomes.predictions != np.arange(way)[:, None]
        image = tasks.query.ravel().astype(np.int64)
        return cls(group // way, group, image, wrong.ravel().astype(float), outcomes.scope)

    def only(self, kept: BoolArray) -> _Answers:
        rows = self.task[kept], self.group[kept], self.image[kept]
        return _Answers(*rows, self.wrong[kept], self.scope)


def _found(
    outcomes: ArmOutcomes, arm: str, embeddings: FloatArray, pool: ImagePool, options: _Options
) -> Slices:
    answers = _Answers.of(outcomes.arms[arm], outcomes[arm])
    rng = np.random.default_rng(options.seed)
    first_task = _half(np.zeros(int(answers.task.max()) + 1, np.int64), rng)
    first_image = _half(pool.labels, rng)
    seen = answers.only(first_task[answers.task] & first_image[answers.image])
    held = answers.only(~first_task[answers.task] & ~first_image[answers.image])
    images = np.unique(seen.image)
    if len(images) < 2 * options.count or not len(held.task):
        raise DataError(
            f"{options.count} slices need at least {2 * options.count} images in half of the tasks "
            f"and images, there are {len(images):,}: use more tasks or lower {argument('count')}"
        )
    asked = np.bincount(seen.image, minlength=len(pool))[images]
    wrong = np.bincount(seen.image, seen.wrong, minlength=len(pool))[images] / asked
    z = principal_components(embeddings, _COMPONENTS)
    _, label = np.unique(pool.labels, return_inverse=True)
    mixture = fitted_mixture(
        z[images], label[images], wrong, options.count, options.weight, options.seed
    )
    # Classes without an image in the first half have no share in any component.
    known = np.isin(label, label[images])
    joint = np.full((len(pool), options.count), -np.inf)
    joint[known] = mixture.log_joint(z[known], label[known], None)
    component = np.where(known, joint.argmax(axis=1), -1)
    before = _Excess.of(seen, component, options.count)
    after = _Excess.of(held, component, options.count)
    candidates = np.flatnonzero(
        (np.nan_to_num(before.value) > 0) & after.known & (after.freedom >= _FEWEST_IMAGES - 1)
    )
    p = np.ones(options.count)
    p[candidates] = holm(_by_chance(held, component, candidates, label, options, rng))
    words: list[tuple[WordShare, ...]] = [()] * options.count
    if pool.attributes is not None:
        words = enriched_words(pool, component, options.count, level=options.level)
    rows = [
        _row(
            int(j),
            component,
            joint,
            pool,
            after,
            p,
            words[j],
            len(candidates),
            (arm, answers.scope, len(np.unique(held.task))),
            options,
        )
        for j in candidates
    ]
    rows.sort(key=lambda row: (-row.reported, -row.estimate.value))
    return Slices(arm, tuple(rows), asdict(options), _notes(rows, options))


def _half(groups: IntArray, rng: np.random.Generator) -> BoolArray:
    """Return a random half of the members of each group."""
    order = np.lexsort((rng.random(len(groups)), groups))
    _, start = np.unique(groups[order], return_index=True)
    rank = np.arange(len(groups)) - np.repeat(start, np.diff([*start, len(groups)]))
    first = np.empty(len(groups), bool)
    first[order] = rank % 2 == 0
    return first


@dataclass(frozen=True, eq=False)
class _Excess:
    """How much more often the images of slices are answered wrongly, each ``(slices,)``."""

    value: FloatArray
    error: FloatArray
    freedom: FloatArray
    wrong: FloatArray
    n_queries: IntArray
    n_images: IntArray

    @property
    def known(self) -> BoolArray:
        return np.isfinite(self.value) & (self.error > 0) & (self.freedom > 0)

    @classmethod
    def of(cls, answers: _Answers, component: IntArray, count: int) -> _Excess:
        """Estimate the excess of each slice, with an effect of each class in each task."""
        slice_of = component[answers.image]
        _, group = np.unique(answers.group, return_inverse=True)
        _, task = np.unique(answers.task, return_inverse=True)
        _, image = np.unique(answers.image, return_inverse=True)
        n_groups = int(group.max()) + 1
        inside = (slice_of[:, None] == np.arange(count)).astype(float)
        size = np.bincount(group, minlength=n_groups)
        share = _sums(inside, group) / size[:, None]
        centred = inside - share[group]
        usual = np.bincount(group, answers.wrong, minlength=n_groups) / size
        gap = answers.wrong - usual[group]
        scale = (centred**2).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = centred.T @ gap / scale
            influence = centred * (gap[:, None] - centred * value) / scale
        influence = np.nan_to_num(influence)
        by_image, by_task = ((_sums(influence, own) ** 2).sum(axis=0) for own in (image, task))
        both = by_image + by_task - (influence**2).sum(axis=0)
        variance = np.maximum(both, np.maximum(by_image, by_task))
        n_queries = inside.sum(axis=0).astype(np.int64)
        n_images = (_sums(inside, image) > 0).sum(axis=0)
        # Few images decide where few are inside a slice, or few of its classes are outside.
        deciding = [_effective(_sums(centred**2, own)) for own in (image, task)]
        freedom = np.minimum(*deciding) - 1
        variance = variance * (freedom + 1) / np.maximum(freedom, 1e-9)
        wrong = answers.wrong @ inside / np.maximum(n_queries, 1)
        return cls(value, np.sqrt(variance), freedom, wrong, n_queries, n_images)


def _by_chance(
    answers: _Answers,
    component: IntArray,
    candidates: IntArray,
    label: IntArray,
    options: _Options,
    rng: np.random.Generator,
) -> FloatArray:
    """Return p of each candidate, one-sided, if any images of its classes could be in the slice.

    Images are permuted within their class. What is compared is the sum, over the images of a slice,
    of their wrong answers above the share of wrong answers to the class in the same task.
    """
    if not len(candidates):
        return np.empty(0)
    _, group = np.unique(answers.group, return_inverse=True)
    above = answers.wrong - (np.bincount(group, answers.wrong) / np.bincount(group))[group]
    images, image = np.unique(answers.image, return_inverse=True)
    order = np.argsort(label[images], kind="stable")
    images, rank = images[order], np.argsort(order)
    excess = np.bincount(rank[image], above)
    inside = (component[images][:, None] == candidates).astype(float)
    observed = excess @ inside
    count = max(_PERMUTATIONS, int(2 * len(candidates) / (1 - options.level))) - 1
    reached = np.ones(len(candidates))
    for start in range(0, count, _AT_ONCE):
        draws = rng.random((min(_AT_ONCE, count - start), len(images)))
        permuted = np.argsort(label[images] + draws, axis=1)
        reached += (excess[permuted] @ inside >= observed - 1e-9).sum(axis=0)
    return reached / (count + 1)


def _effective(shares: FloatArray) -> FloatArray:
    """Return the effective number of groups ``(n, k)``, by their shares in the estimate (Kish)."""
    squares = (shares**2).sum(axis=0)
    return np.asarray(shares.sum(axis=0) ** 2 / np.maximum(squares, 1e-30))


def _sums(values: FloatArray, own: IntArray) -> FloatArray:
    """Return the sums of rows ``(n, k)`` over the members of each group."""
    ones = np.ones(len(own))
    add = sparse.csr_array((ones, (own, np.arange(len(own)))), shape=(int(own.max()) + 1, len(own)))
    return np.asarray(add @ values)


def _row(  # noqa: PLR0913 - all that a row tells
    j: int,
    component: IntArray,
    joint: FloatArray,
    pool: ImagePool,
    excess: _Excess,
    p: FloatArray,
    words: tuple[WordShare, ...],
    n_slices: int,
    scope: tuple[str, Any, int],
    options: _Options,
) -> SliceRow:
    members = np.flatnonzero(component == j)
    members = members[np.argsort(-joint[members, j], kind="stable")]
    names, counts = np.unique(pool.labels[members], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    half = stats.t.isf((1 - options.level) / 2 / n_slices, excess.freedom[j]) * excess.error[j]
    value = float(excess.value[j])
    arm, closed, n_tasks = scope
    estimate = Estimate(
        "excess",
        *np.clip((value, value - half, value + half), -1, 1).tolist(),  # a difference of shares
        options.level,
        closed,
        False,
        "bonferroni-t",
        n_tasks,
        int(excess.n_images[j]),
        share=True,
        arms=(arm,),
        higher_is_better=False,
    )
    return SliceRow(
        tuple(pool.keys[int(i)] for i in members),
        {pool.class_names[int(names[i])]: int(counts[i]) for i in order},
        estimate,
        float(excess.wrong[j]),
        int(excess.n_queries[j]),
        int(excess.n_images[j]),
        float(p[j]),
        bool(p[j] <= 1 - options.level),
        words,
    )


def _notes(rows: list[SliceRow], options: _Options) -> tuple[str, ...]:
    return (
        f"slices looked at: {len(rows)}; those reported were found in one half of the tasks and "
        "images, and their excess is estimated in the other half",
        f"intervals hold for all slices at once; with at most {100 * (1 - options.level):g} % "
        "probability, any slice without excess is reported",
        "a slice is what the embedding can tell apart, and need not have a name",
    )
