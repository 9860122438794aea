"""Effective robustness: a line worked by hand, intervals by another way, and what is left out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from scipy import special, stats

from fsf_statistics import EffectiveRobustness, effective_robustness
from fsframework.errors import DataError, OptionError
from fsframework.interfaces import Statistic
from fsframework.statistics.results import MethodResult
from fsframework.values import ArmOutcomes, Arms, Contrast, FloatArray, ImagePool, Outcomes, TaskSet

WAY, QUERIES, TASKS = 5, 4, 20
KEYS = tuple(f"{image:03}" for image in range(WAY * 40))
POOL = ImagePool(KEYS, np.repeat(np.arange(WAY), 40), tuple("abcde"))


def arms_of(*, paired: bool) -> Arms:
    """Two arms of tasks of all five classes."""
    made = {}
    for seed, arm in enumerate(("random", "biased")):
        rng = np.random.default_rng(seed)
        drawn = np.argsort(rng.random((TASKS, WAY, 40)), axis=2) + 40 * np.arange(WAY)[:, None]
        tasks = TaskSet.of(
            POOL, np.tile(np.arange(WAY), (TASKS, 1)), drawn[:, :, :1],
            drawn[:, :, 1 : 1 + QUERIES], sampler="toy", options={}, seed=0,
        )  # fmt: skip
        made[arm] = dataclasses.replace(tasks, arm=arm)
    return Arms(made, Contrast("random", "biased", paired))


def answered(tasks: TaskSet, share: float, seed: int) -> Outcomes:
    """Answer exactly this share of all queries, here and there, correctly."""
    right = np.zeros(tasks.query.size, dtype=bool)
    chosen = np.random.default_rng(seed).permutation(right.size)
    right[chosen[: round(share * right.size)]] = True
    truth = np.arange(WAY)[None, :, None]
    return Outcomes.of(tasks, np.where(right.reshape(tasks.query.shape), truth, (truth + 1) % WAY))


def models(
    *shares: tuple[float, float], paired: bool = False, seeds: int | Sequence[int] = 1
) -> dict[str, MethodResult]:
    """Models by their accuracies in both arms, called a, b, ...; later seeds have a bit more."""
    arms, found = arms_of(paired=paired), {}
    numbers = [seeds] * len(shares) if isinstance(seeds, int) else seeds
    for place, (own, n) in enumerate(zip(shares, numbers, strict=True)):
        trained = [
            {
                arm: answered(arms[arm], share + 0.02 * seed, 100 * place + 10 * seed + k)
                for k, (arm, share) in enumerate(zip(arms, own, strict=True))
            }
            for seed in range(n)
        ]
        label = "abcdefghij"[place]
        found[label] = MethodResult(label, trained[0], arms, other_seeds=tuple(trained[1:]))
    return found


def test_a_line_worked_by_hand() -> None:
    # Logits of 0.3, 0.5 and 0.7 are -0.847, 0 and 0.847; the outer two models lie on the diagonal,
    # so the slope is 1 and the intercept a third of logit(0.6) = 0.4055.
    found = effective_robustness(models((0.3, 0.3), (0.5, 0.6), (0.7, 0.7)), "acc")
    assert (found.slope, found.intercept) == (pytest.approx(1), pytest.approx(0.4055 / 3, abs=1e-4))
    assert next(iter(found.values)) == "b"
    assert found.predicted["b"] == pytest.approx(0.5337, abs=1e-4)
    assert found.values["b"].value == pytest.approx(0.0663, abs=1e-4)
    assert found.values["a"].value == pytest.approx(0.3 - 0.3291, abs=1e-4)
    assert (found.control["b"].value, found.tested["b"].value) == pytest.approx((0.5, 0.6))
    # Without b, a and c are the line.
    assert found.spans["b"][1] == pytest.approx(0.1)
    assert "3 models" in found.notes[0]
    assert json.loads(json.dumps(found.to_json()))["values"]["b"]["statistic"] == (
        "effective-robustness"
    )
    for printed in (repr(found), found._repr_html_()):
        assert "53.4 %" in printed


def welch(parts: Sequence[tuple[float, float]]) -> float:
    """Return the square of the half-width of a sum with these variances and their freedom."""
    total = sum(variance for variance, _ in parts)
    freedom = total**2 / sum(variance**2 / one for variance, one in parts) if total else 1.0
    return float(stats.t.ppf(0.95, freedom) ** 2 * total)


def over_tasks(cells: Mapping[tuple[str, str], FloatArray]) -> float:
    parts = []
    for arm in dict.fromkeys(arm for _, arm in cells):
        own = [values for (_, of), values in cells.items() if of == arm]
        variance = sum(values.mean(axis=0) for values in own).var(ddof=1) / TASKS
        for values in own:
            n = len(values)
            rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True)
            rest += values.mean()
            variance -= (rest**2).sum() / max(n - 1, 1) / (TASKS - 1) / (n * TASKS)
        parts.append((max(variance, 0.0), TASKS - 1))
    return welch(parts)


def over_seeds(cells: Mapping[tuple[str, str], FloatArray], compared: str) -> float:
    """The model itself, and the others together."""
    square, others = 0.0, []
    for label in dict.fromkeys(label for label, _ in cells):
        means = sum(v.mean(axis=1) for (of, _), v in cells.items() if of == label)
        if len(means) > 1:
            part = means.var(ddof=1) / len(means), len(means) - 1
            if label == compared:
                square = welch([part])
            else:
                others.append(part)
    return square + welch(others)


def residuals(control: FloatArray, tested: FloatArray) -> FloatArray:
    x, y = special.logit(control), special.logit(tested)
    line = stats.linregress(x, y)
    return np.asarray(tested - special.expit(line.intercept + line.slope * x))


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("seeds", [1, 3, (1, 2, 2, 5)])
def test_intervals_carry_the_tasks_and_seeds_of_every_model(paired: bool, seeds) -> None:
    """The interval of a difference of means whose weights are derivatives of the residual."""
    given = models((0.4, 0.3), (0.6, 0.5), (0.7, 0.45), (0.8, 0.7), paired=paired, seeds=seeds)
    found = effective_robustness(given, "acc", level=0.9)
    cells = {
        (label, arm): np.array([model[arm].task_accuracy for model in one.models])
        for label, one in given.items()
        for arm in ("random", "biased")
    }
    means = np.array([cells[label, a].mean() for a in ("random", "biased") for label in given])
    values = residuals(*means.reshape(2, 4))
    step = 1e-6
    derivatives = [
        (
            residuals(*(means + change).reshape(2, 4)) - residuals(*(means - change).reshape(2, 4))
        ) / (2 * step)
        for change in np.eye(8) * step
    ]  # fmt: skip
    for place, label in enumerate(given):
        weighted: dict[tuple[str, str], FloatArray] = {}
        for k, (arm, other) in enumerate((a, o) for a in ("random", "biased") for o in given):
            names = other, "pairs" if paired else arm
            own = derivatives[k][place] * cells[other, arm]
            weighted[names] = weighted[names] + own if names in weighted else own
        half = np.sqrt(over_tasks(weighted) + over_seeds(weighted, label))
        got = found.values[label]
        assert got.value == pytest.approx(values[place])
        assert (got.high - got.value, got.value - got.low) == pytest.approx((half, half), rel=1e-4)
        if seeds == 1:
            assert got.estimator == ("student-t" if paired else "welch-t")


def test_models_that_cannot_be_told_apart_share_a_letter() -> None:
    found = effective_robustness(
        models((0.4, 0.35), (0.5, 0.45), (0.6, 0.55), (0.7, 0.65), (0.8, 0.76), (0.75, 0.3)), "acc"
    )
    assert list(found.values)[-1] == "f"
    assert found.values["f"].high < 0
    assert set(found.letters["f"]).isdisjoint(found.letters["e"])
    p = {pair.p_holm for pair in found.compared.pairs if "f" in (pair.first, pair.second)}
    assert max(p) < 0.05
    assert found.compared.measure.name == "effective-robustness"


def test_a_model_far_from_the_others_and_a_curve_are_said() -> None:
    line = [(0.3, 0.25), (0.4, 0.35), (0.5, 0.45), (0.6, 0.55), (0.7, 0.65), (0.8, 0.75)]
    assert not effective_robustness(models(*line), "acc").notes
    [note] = effective_robustness(models(*line, (0.85, 0.3)), "acc").notes
    assert "'g'" in note
    bent = [(x, y - 2 * (x - 0.3) * (0.8 - x)) for x, y in line]
    assert any("curve" in note for note in effective_robustness(models(*bent), "acc").notes)


def test_models_at_an_end_or_near_guessing_are_left_out_and_said() -> None:
    usual = (0.5, 0.4), (0.6, 0.5), (0.8, 0.6)
    left_out = (0.7, 0.0), (1.0, 0.9), (0.22, 0.22), (0.7, 0.22)
    found = effective_robustness(models(*usual, *left_out), "acc")
    assert list(found.left_out) == ["d", "e", "f", "g"]
    assert sorted(found.values) == ["a", "b", "c"]
    assert "floor" in found.left_out["d"]
    assert "ceiling" in found.left_out["e"]
    assert "near guessing in the control arm" in found.left_out["f"]
    assert "near guessing in the tested arm" in found.left_out["g"]
    alone = effective_robustness(models(*usual), "acc")
    assert found.values["a"].value == pytest.approx(alone.values["a"].value)
    assert "not on the line" in repr(found)
    # What misleads a model below guessing goes on to mislead it: no floor.
    misled = effective_robustness(models(*usual, (0.7, 0.08)), "acc")
    assert list(misled.values)[-1] == "d"


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        (((0.5, 0.4), (0.6, 0.5)), "at least 3 models .*, not 2"),
        (((0.5, 0.4), (0.6, 0.5), (1.0, 0.5)), "not 2; c: 100.0 %"),
        (((0.5, 0.4), (0.5, 0.5), (0.5, 0.3)), "the same control accuracy"),
    ],
)
def test_models_without_a_line(shares: Sequence[tuple[float, float]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        effective_robustness(models(*shares), "acc")


def test_a_statistic_of_which_less_is_better_has_no_line() -> None:
    class Errors(Statistic):
        higher_is_better = False

        def per_task(self, outcomes: Outcomes) -> FloatArray:
            return np.asarray(1 - outcomes.task_accuracy)

    with pytest.raises(OptionError, match="more is better"):
        effective_robustness(models((0.5, 0.4), (0.6, 0.5), (0.7, 0.5)), Errors)


def test_it_needs_two_arms_and_takes_wacc_by_default() -> None:
    given = models((0.8, 0.7), (0.85, 0.7), (0.9, 0.85))
    found: EffectiveRobustness = effective_robustness(given)
    assert found.control["a"].name == "wacc-random"
    single: Mapping[str, ArmOutcomes] = {
        label: ArmOutcomes({"random": one.outcomes["random"]}, Arms({"random": one.arms["random"]}))
        for label, one in given.items()
        if one.arms is not None
    }
    with pytest.raises(DataError, match="two arms"):
        effective_robustness(single)
