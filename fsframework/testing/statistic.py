"""Checks of statistics; values are compared to within 1e-9."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

from fsframework.errors import DataError
from fsframework.interfaces.statistic import Statistic
from fsframework.testing._example import note_call, shown, size
from fsframework.testing._suite import Make, Suite, require
from fsframework.testing.toys import toy_outcomes, toy_pool
from fsframework.values import (
    AccuracyOutcomes,
    ArmOutcomes,
    Arms,
    Contrast,
    Estimate,
    IntArray,
    Outcomes,
    TaskSet,
)

suite = Suite(Statistic)

_TOLERANCE = 1e-9
_TASKS, _QUERIES = 64, 15


def _require_equal(found: Any, expected: Any, message: str) -> None:
    found, expected = np.atleast_1d(found), np.atleast_1d(expected)
    apart = np.abs(found - expected)
    place = int(apart.argmax())
    require(
        apart[place] <= _TOLERANCE,
        f"{message}: {found[place]:.6g}, not {expected[place]:.6g}",
    )


def _values(statistic: Statistic, outcomes: Outcomes) -> Any:
    note_call(f"per_task(outcomes), outcomes.predictions = {shown(outcomes.predictions)}")
    return statistic.per_task(outcomes)


def _outcomes(**given: Any) -> Outcomes:
    """Return the usual outcomes, or those of a small example."""
    ways = size("ways", 5, least=2)
    return toy_outcomes(size("tasks", _TASKS), ways, size("queries", _QUERIES), **given)


def _many(**given: Any) -> Outcomes:
    """Return outcomes of many tasks, for what holds on average."""
    return toy_outcomes(_TASKS, 5, _QUERIES, **given)


def _extremes() -> Outcomes:
    """Return tasks in which each class is all right or taken for one other, or all for one."""
    ways = np.arange(size("ways", 5, least=2))
    right = np.array(list(itertools.product((True, False), repeat=len(ways))))
    answered = np.concatenate(
        [np.where(right, ways, (ways + 1) % len(ways)), np.tile(ways[:, None], len(ways))]
    )
    predictions = answered[:, :, None].repeat(size("queries", _QUERIES), 2)
    return _with(_many(), predictions)


def _with(outcomes: Outcomes, predictions: IntArray) -> Outcomes:
    return dataclasses.replace(outcomes, predictions=predictions)


@suite.check()
def check_one_number_a_task(make: Make) -> None:
    """``per_task`` returns one finite float per task, the same again for the same outcomes."""
    outcomes = _outcomes()
    values = _values(make(), outcomes)
    require(isinstance(values, np.ndarray), f"it must be an array, not {type(values).__name__}")
    require(np.issubdtype(values.dtype, np.floating), f"it must be of floats, not {values.dtype}")
    expected = (len(outcomes),)
    require(values.shape == expected, f"it must have shape {expected}, not {values.shape}")
    require(np.isfinite(values).all(), f"it must be finite, not {shown(values)}")
    _require_equal(
        _values(make(), outcomes),
        values,
        "the same outcomes have another value a second time (does it draw random numbers?)",
    )


@suite.check(after=[check_one_number_a_task])
def check_bounds(make: Make) -> None:
    """Every value is within ``bounds``, which ascend, from all wrong to all right."""
    statistic = make()
    low, high = statistic.bounds
    require(low < high, f"bounds must ascend, not {statistic.bounds}")
    for accuracy in (0.0, 0.2, 0.8, 1.0):
        values = _values(statistic, _outcomes(accuracy=accuracy))
        inside = (values >= low - _TOLERANCE) & (values <= high + _TOLERANCE)
        require(
            inside.all(),
            f"at accuracy {accuracy} it gives {values[~inside][:1]}, outside {low}..{high}",
        )
    extremes = _extremes()
    for answers, value in zip(extremes.predictions, _values(statistic, extremes), strict=True):
        require(
            low - _TOLERANCE <= value <= high + _TOLERANCE,
            f"where classes are answered {answers[:, 0].tolist()} it gives {value}, outside "
            f"{low}..{high}",
        )


@suite.check(after=[check_bounds])
def check_direction(make: Make) -> None:
    """Where all answers are right, the mean is no worse than where all are wrong."""
    statistic = make()
    right, wrong = (float(_values(statistic, _many(accuracy=a)).mean()) for a in (1.0, 0.0))
    better = right >= wrong if statistic.higher_is_better else right <= wrong
    require(
        better,
        f"higher_is_better is {statistic.higher_is_better}, but all right gives {right:.3g} and "
        f"all wrong {wrong:.3g}",
    )


@suite.check(after=[check_one_number_a_task])
def check_own_interval(make: Make) -> None:
    """An interval of its own holds the mean, stays within ``bounds`` and grows with the level.

    The same outcomes have the same interval. A statistic without one returns ``None``.
    """
    statistic, outcomes = make(), _many()
    found = [statistic.interval(outcomes, level) for level in (0.5, 0.95)]
    again = [make().interval(outcomes, level) for level in (0.5, 0.95)]
    require(
        found == again,
        f"the same outcomes have the intervals {found} and then {again} (does it draw random "
        "numbers?)",
    )
    if None in found:
        require(found == [None, None], f"one level has an interval, another none: {found}")
        return
    narrow, wide = (np.array(one, dtype=float) for one in found)
    require(narrow.shape == wide.shape == (2,), "it must have a lower and an upper bound")
    mean, (least, most) = float(_values(statistic, outcomes).mean()), statistic.bounds
    inside = least <= wide[0] <= narrow[0] <= mean <= narrow[1] <= wide[1] <= most
    require(inside, f"mean {mean}, bounds {least}..{most}: 50 % {narrow}, 95 % {wide}")
    widest = np.array(statistic.interval(outcomes, 0.99), dtype=float)
    grows = widest[0] < wide[0] or widest[1] > wide[1] or tuple(wide) == (least, most)
    require(grows, f"the intervals of 95 % and 99 % are equal, {wide}")


@suite.check(after=[check_one_number_a_task])
def check_single_task(make: Make) -> None:
    """One task is enough: ``T = 1`` gives shape ``(1,)``."""
    values = _values(make(), toy_outcomes(1))
    require(np.shape(values) == (1,), f"one task must give shape (1,), not {np.shape(values)}")


@suite.check(after=[check_one_number_a_task])
def check_other_shapes(make: Make) -> None:
    """Any number of ways and queries works: 2 ways of 1 query, 7 of 3, 20 of 15."""
    for n_way, n_query in ((2, 1), (7, 3), (20, 15)):
        values = _values(make(), toy_outcomes(4, n_way, n_query))
        require(
            np.shape(values) == (4,) and np.isfinite(values).all(),
            f"{n_way} ways of {n_query} queries must give four finite numbers, not {values}",
        )


@suite.check(after=[check_bounds])
def check_tasks_independent(make: Make) -> None:
    """The value of a task does not depend on the other tasks."""
    together = _values(make(), _outcomes())
    tasks = len(together)
    for chosen in ([4, 1], [tasks - 1], list(range(tasks))[::-1]):
        chosen = [min(task, tasks - 1) for task in chosen]
        _require_equal(
            _values(make(), _with(_outcomes(), _outcomes().predictions[chosen])),
            together[chosen],
            f"the value of a task differs between {len(chosen)} and {tasks} tasks",
        )
    for place, value in enumerate(_values(make(), _extremes())):
        answers = _extremes().predictions[[place]]
        _require_equal(
            _values(make(), _with(_extremes(), answers)),
            value,
            f"the task of answers {answers[0, :, 0].tolist()} has another value alone",
        )


@suite.check(after=[check_one_number_a_task])
def check_query_order(make: Make) -> None:
    """The order of the queries of a class does not matter."""
    outcomes = _outcomes()
    rng = np.random.default_rng(1)
    _require_equal(
        _values(make(), _with(outcomes, rng.permuted(outcomes.predictions, axis=2))),
        _values(make(), outcomes),
        "shuffling the queries within each class changes the value of a task",
    )


@suite.check(after=[check_one_number_a_task])
def check_way_order(make: Make) -> None:
    """The numbering of the ways does not matter."""
    outcomes = _outcomes()
    order = np.array([way for way in (1, 4, 3, 0, 2) if way < outcomes.n_way])
    # Way w of the new numbering is way order[w] of the old; argsort inverts this for predictions.
    renumbered = np.argsort(order)[outcomes.predictions[:, order]]
    _require_equal(
        _values(make(), _with(outcomes, renumbered)),
        _values(make(), outcomes),
        f"taking the ways in the order {order.tolist()} changes the value of a task",
    )


@suite.check(after=[check_one_number_a_task])
def check_outcomes_unchanged(make: Make) -> None:
    """The outcomes are not changed."""
    outcomes = _outcomes()
    _values(make(), outcomes)
    fresh = _outcomes()
    for name in ("predictions", "class_accuracy"):
        same = np.array_equal(getattr(outcomes, name), getattr(fresh, name))
        require(same, f"per_task changes the outcomes' {name}")


@suite.check(after=[check_one_number_a_task])
def check_no_memory(make: Make) -> None:
    """The values do not depend on earlier outcomes."""
    first, second = _outcomes(seed=1), _outcomes(seed=2)
    used = make()
    _values(used, first)
    _require_equal(
        _values(used, second),
        _values(make(), second),
        "the value of a task depends on earlier outcomes",
    )


@suite.check(after=[check_one_number_a_task])
def check_without_predictions(make: Make) -> None:
    """Imported accuracies, without predictions, give one number per task or a ``DataError``."""
    outcomes = AccuracyOutcomes([0.2, 0.6, 1.0], "imported", 0, True)
    note_call("per_task(AccuracyOutcomes([0.2, 0.6, 1.0], 'imported', 0, True))")
    try:
        values = make().per_task(outcomes)
    except DataError:
        return  # the outcomes' own error states why
    require(
        np.shape(values) == (3,) and np.isfinite(values).all(),
        f"three tasks must give three finite numbers or a DataError, not {values}",
    )


@suite.check(after=[check_other_shapes])
def check_guessing(make: Make) -> None:
    """``guessing`` is the mean over tasks whose queries are assigned at random, or ``None``."""
    statistic = make()
    for n_way, n_query in ((5, 15), (2, 4)):
        found = statistic.guessing(n_way, n_query)
        if found is None:
            continue
        values = _values(statistic, toy_outcomes(2_000, n_way, n_query, accuracy=1 / n_way))
        error = 5 * float(values.std()) / len(values) ** 0.5
        require(
            abs(float(values.mean()) - found) <= error + _TOLERANCE,
            f"{n_way} ways of {n_query} queries: guessing gives {float(values.mean()):.4g}, not "
            f"{found:.4g}",
        )


@suite.check(after=[check_one_number_a_task])
def check_notes(make: Make) -> None:
    """``notes`` returns a list of sentences, also where one arm is answered much worse."""
    pool, rng = toy_pool(), np.random.default_rng(0)
    found = {}
    for arm, accuracy in (("control", 0.8), ("tested", 0.3)):
        classes = np.array([rng.choice(12, 5, replace=False) for _ in range(_TASKS)])
        images = classes[:, :, None] * 80 + rng.permutation(80)[: _QUERIES + 1]
        tasks = TaskSet.of(
            pool, classes, images[..., :1], images[..., 1:], sampler=arm, options={}, seed=0
        )
        found[arm] = tasks, Outcomes.of(tasks, _many(accuracy=accuracy).predictions)
    arms = Arms({arm: tasks for arm, (tasks, _) in found.items()}, Contrast("control", "tested"))
    outcomes = ArmOutcomes({arm: one for arm, (_, one) in found.items()}, arms)
    statistic = make()
    first, second = (_values(statistic, one).mean() for one in outcomes.values())
    value = float(first - second)
    gap = Estimate(
        *("toy", value, value - 0.02, value + 0.02, 0.95, "closed", False, "student-t"),
        n_tasks=_TASKS,
        n_images=len(pool),
        arms=tuple(arms),
    )
    notes = statistic.notes(outcomes, gap)
    plain = isinstance(notes, list) and all(isinstance(note, str) and note for note in notes)
    require(plain, f"it must be a list of non-empty strings, not {notes!r}")


@suite.answers(
    after=[check_one_number_a_task, check_no_memory, check_own_interval],
    calls={"the values": "per_task(outcomes)", "the interval": "interval(outcomes, 0.95)"},
)
def _answers(make: Make) -> dict[str, Any]:
    statistic = make()
    return {
        "the values": _values(statistic, _many()),
        "the interval": statistic.interval(_many(), 0.95),
    }
