"""What errors of a detector do to tasks and to the gap, on data whose words are exactly known."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsframework.errors import OptionError
from fsframework.values import AttributeTable, FloatArray, ImagePool, Outcomes, TaskSet

__all__ = ["ErrorEffect", "MeanOfSeeds", "effect_of_errors"]

_LEVEL = 0.95
_SIDE = 42


@dataclass(frozen=True)
class MeanOfSeeds:
    """A mean over seeds with its 95 % interval (Student's t); ``None`` bounds with one seed."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ErrorEffect:
    """What errors of a detector do to attribute-biased tasks; every number is a share of 1.

    A class of a task is not what it claims if a support image lacks the word that is tied to it, or
    a query has that word.

    Args:
        seeds: number of repetitions; ``tasks`` the number of tasks in each.
        n_way: classes per task; ``n_shot`` support and ``n_query`` query images per class.
        wrong_tasks: tasks with a class that is not what it claims.
        wrong_classes: classes of tasks that are not what they claim.
        false_support: support images that lack the word tied to their class.
        true_queries: queries that have the word tied to their class.
        true_gap: gap of wAcc with the true words; ``detected_gap`` with the detected ones.
        lost: share of the gap that is lost, ``1 - detected_gap / true_gap``.
    """

    seeds: int
    tasks: int
    n_way: int
    n_shot: int
    n_query: int
    wrong_tasks: MeanOfSeeds
    wrong_classes: MeanOfSeeds
    false_support: MeanOfSeeds
    true_queries: MeanOfSeeds
    true_gap: MeanOfSeeds
    detected_gap: MeanOfSeeds
    lost: MeanOfSeeds

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return dataclasses.asdict(self)


def effect_of_errors(
    rates: Sequence[tuple[float, float]], *, seeds: int = 10, tasks: int = 200
) -> ErrorEffect:
    """Draw tasks of the data set ``planted`` with words that are wrong at given rates.

    Each word of ``planted`` gets one of the rates, shuffled for every seed. An image keeps a true
    word with the probability of the recall, and gets a false one with that of a false alarm, all
    independently. FewSTAB's tasks are then drawn once with the true and once with the detected
    words, with random tasks as the control of both. Class means of an untrained Conv-32F classify
    them: nothing is learned, and it leans strongly on the planted attributes.

    Args:
        rates: pairs of a recall and a rate of false alarms, between 0 and 1.
        seeds: number of repetitions, each with other errors and other tasks.
        tasks: tasks of each arm and repetition.

    Raises:
        OptionError: there are no rates, or a number is out of range.
        InfeasibleTask: no tasks can be drawn with words that are wrong so often.
    """
    import fsframework as fsf

    if not rates or not all(0 <= rate <= 1 for pair in rates for rate in pair):
        raise OptionError(f"rates must be pairs of numbers between 0 and 1, not {list(rates)}")
    if min(seeds, tasks) < 1:
        raise OptionError(f"seeds and tasks must be at least 1, not {seeds} and {tasks}")
    data = fsf.dataset("planted")
    pool = fsf.pool(data)
    drawn: dict[str, TaskSet] = {}
    for seed in range(seeds):
        errors = np.random.default_rng(seed)
        for words, own in (("true", pool), ("detected", _with_errors(pool, rates, errors))):
            arms = fsf.draw("fewstab", own, tasks=tasks, seed=seed)
            drawn |= {f"{words}-{arm}-{seed}": arms[arm] for arm in arms}
    model = fsf.model("ncc", backbone="conv32f", image_size=_SIDE)
    found = fsf.evaluate(model, drawn, data, progress=False)
    wrong = np.array([_wrong_shares(drawn[f"detected-biased-{s}"], pool) for s in range(seeds)])
    true, detected = (
        np.array(
            [
                _wacc(found[f"{w}-random-{s}"]) - _wacc(found[f"{w}-biased-{s}"])
                for s in range(seeds)
            ]
        )
        for w in ("true", "detected")
    )
    # A ratio of two means over seeds, linearised: the gap of one seed alone may be near 0.
    kept = detected.mean() / true.mean()
    lost = 1 - kept - (detected - kept * true) / true.mean()
    means = [_mean(values) for values in (*wrong.T, true, detected, lost)]
    shape = drawn["true-biased-0"]
    return ErrorEffect(seeds, tasks, shape.n_way, shape.n_shot, shape.n_query, *means)


def _with_errors(
    pool: ImagePool, rates: Sequence[tuple[float, float]], rng: np.random.Generator
) -> ImagePool:
    table = pool.attributes
    assert table is not None
    has = table.rows(np.arange(len(table)))
    dealt = np.array(rates)[rng.permutation(len(table.words)) % len(rates)]
    recall, false_alarms = dealt.T
    said = rng.random(has.shape) < np.where(has, recall, false_alarms)
    words = np.array(table.words, dtype=object)
    return pool.with_attributes(
        AttributeTable.from_words(table.keys, [words[row].tolist() for row in said])
    )


def _wrong_shares(tasks: TaskSet, pool: ImagePool) -> tuple[float, float, float, float]:
    """Return the shares of wrong tasks, classes, support images and queries, by the true words."""
    truth = pool.attributes
    assert truth is not None
    place = np.array([*map(truth.words.index, tasks.words)])
    tied = place[tasks.attribute][..., None, None]
    lacking = ~np.take_along_axis(truth.rows(tasks.support), tied, axis=-1)[..., 0]
    present = np.take_along_axis(truth.rows(tasks.query), tied, axis=-1)[..., 0]
    classes = np.asarray(lacking.any(axis=2) | present.any(axis=2))
    return (
        float(classes.any(axis=1).mean()),
        float(classes.mean()),
        float(lacking.mean()),
        float(present.mean()),
    )


def _wacc(outcomes: Outcomes) -> float:
    return float(outcomes.class_accuracy.min(axis=1).mean())


def _mean(values: FloatArray) -> MeanOfSeeds:
    from scipy.stats import t

    mean = float(values.mean())
    if values.size < 2:
        return MeanOfSeeds(mean, None, None)
    half = t.ppf((1 + _LEVEL) / 2, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size)
    return MeanOfSeeds(mean, float(mean - half), float(mean + half))
