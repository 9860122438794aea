"""Paired comparisons: against SciPy, by hand, on real files, and where there is nothing to tell."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import stats

import fsframework as fsf
from fsf_statistics import WorstClassAccuracy, mean_interval
from fsf_statistics.adjusting import benjamini_hochberg, holm
from fsf_statistics.comparing import Comparison, Pair, compare_methods, letters, letters_shown
from fsf_statistics.equal_tasks import comparable
from fsframework.errors import DataError, OptionError
from fsframework.statistics.differences import ComparisonOptions, differences
from fsframework.statistics.estimators import IntervalChoice
from fsframework.statistics.measures import Measure
from fsframework.statistics.results import MethodResult
from fsframework.statistics.task_values import TaskValues, values_of
from fsframework.testing import toy_outcomes
from fsframework.values import (
    AccuracyOutcomes,
    ArmOutcomes,
    Arms,
    Contrast,
    Estimate,
    FloatArray,
    Outcomes,
    TaskSet,
)

ACC = Measure("acc", ("random",))


def measured(values: np.ndarray, **fields) -> TaskValues:
    return TaskValues(ACC, "t", (np.asarray(values, float),), **{"scope": "open", **fields})


def options(method="student-t", level=0.95, **fields) -> ComparisonOptions:
    return ComparisonOptions(IntervalChoice(level, method), **fields)


def accuracies(n_tasks: int, n_methods: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    difficulty = rng.beta(7, 3, n_tasks)
    return rng.binomial(75, difficulty[:, None], (n_tasks, n_methods)) / 75


def test_student_t_is_scipys_paired_test() -> None:
    values = accuracies(40, 3)
    found = compare_methods(["a", "b", "c"], measured(values), options(level=0.9))
    for pair, (i, j) in zip(found.pairs, itertools.combinations(range(3), 2), strict=True):
        test = stats.ttest_rel(values[:, i], values[:, j])
        bounds = test.confidence_interval(0.9)
        assert pair.p == pytest.approx(test.pvalue)
        assert (pair.difference.low, pair.difference.high) == pytest.approx(tuple(bounds))
        assert pair.correlation == pytest.approx(np.corrcoef(values[:, i], values[:, j])[0, 1])
        assert (pair.difference.estimator, pair.difference.n_tasks) == ("student-t", 40)
    own = mean_interval(values[:, 0], how=options(level=0.9))
    value = found.values["a"]
    assert (value.value, value.low, value.high) == pytest.approx(own)


def scipys_bootstrap(samples: tuple[np.ndarray, ...], name: str) -> tuple[float, float]:
    """The interval of a mean, or of a difference of two."""
    found = stats.bootstrap(
        samples,
        lambda *parts, axis: parts[0].mean(axis=axis) - sum(p.mean(axis=axis) for p in parts[1:]),
        n_resamples=10_000,
        method=name,
        rng=np.random.default_rng(1),
    ).confidence_interval
    return found.low, found.high


@pytest.mark.parametrize(("interval", "name"), [("percentile", "percentile"), ("bca", "BCa")])
def test_the_shared_bootstrap_is_scipys_pair_by_pair(interval: str, name: str) -> None:
    values = accuracies(60, 3) ** 3  # skewed, so that bca has something to correct
    how = options(interval, n_resamples=10_000)
    found = compare_methods(list("abc"), measured(values), how)
    made = [
        (pair.difference, (values[:, i] - values[:, j],))
        for pair, (i, j) in zip(found.pairs, itertools.combinations(range(3), 2), strict=True)
    ]
    first, second = accuracies(40, 1) ** 3, accuracies(50, 1, 1) ** 3
    [apart] = differences((first, -second), np.array([[1.0]]), how)
    for difference, samples in (*made, (apart, (first[:, 0], second[:, 0]))):
        low, high = scipys_bootstrap(samples, name)
        assert abs(difference.low - low) < 0.04 * (high - low)
        assert abs(difference.high - high) < 0.04 * (high - low)


def test_the_bootstrap_draws_what_a_plain_loop_draws() -> None:
    values = accuracies(25, 2)
    how = options("percentile", n_resamples=50, seed=3)
    [found] = differences((values,), np.array([[1.0, -1.0]]), how)
    rows = np.random.default_rng([3, 0]).integers(25, size=(50, 25))
    means = [(values[r, 0] - values[r, 1]).mean() for r in rows]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


@pytest.mark.parametrize("interval", ["student-t", "percentile", "bca"])
def test_p_and_interval_agree_on_whether_there_is_a_difference(interval: str) -> None:
    for seed in range(10):
        values = accuracies(30, 2, seed) + np.array([0.03, 0.0])
        for level in (0.8, 0.95):
            how = options(interval, level, n_resamples=4000)
            (pair,) = compare_methods(["a", "b"], measured(values), how).pairs
            distance = min(abs(pair.difference.low), abs(pair.difference.high))
            if distance > 2e-3:  # beyond the grain of the resamples
                assert (pair.p < 1 - level) == (pair.paired != "0")


def test_holm_and_benjamini_hochberg_by_hand() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    # Sorted 0.005, 0.01, 0.03, 0.04: times 4, 3, 2, 1, never falling.
    np.testing.assert_allclose(holm(p), [0.03, 0.06, 0.06, 0.02])
    # 4/4 * 0.04, 4/3 * 0.03, 4/2 * 0.01, 4/1 * 0.005, never rising from the largest down.
    np.testing.assert_allclose(benjamini_hochberg(p), [0.02, 0.04, 0.04, 0.02])
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]
    many = np.round(np.random.default_rng(0).random(45), 1)  # with ties
    np.testing.assert_array_equal(benjamini_hochberg(many), stats.false_discovery_control(many))


def test_equal_methods_are_seldom_told_apart() -> None:
    contrasts = np.array(
        [np.eye(5)[i] - np.eye(5)[j] for i, j in itertools.combinations(range(5), 2)]
    )
    any_holm = any_plain = 0
    replicates = 400
    for seed in range(replicates):
        p = np.array([one.p for one in differences((accuracies(50, 5, seed),), contrasts)])
        any_holm += bool((holm(p) <= 0.05).any())
        any_plain += bool((p <= 0.05).any())
    # Two standard errors of 400 replicates are 2.2 %.
    assert any_holm / replicates <= 0.05 + 0.022
    assert any_plain / replicates > 0.2


def test_a_baseline_leaves_its_pairs_alone() -> None:
    values = accuracies(40, 4)
    found = compare_methods(list("abcd"), measured(values), options(baseline="c"))
    assert [(p.first, p.second) for p in found.pairs] == [("c", "a"), ("c", "b"), ("c", "d")]
    plain = np.array([p.p for p in found.pairs])
    np.testing.assert_allclose([p.p_holm for p in found.pairs], holm(plain))
    with pytest.raises(OptionError, match="must be one of a, b, c, d"):
        compare_methods(list("abcd"), measured(values), options(baseline="e"))


def grouped(values: dict[str, float], different: set[frozenset[str]]) -> dict[str, str]:
    def estimate(value: float) -> Estimate:
        return Estimate("m", value, value, value, 0.95, "open", False, "t", 9, 9)

    pairs = [
        _pair(a, b, 0.01 if {a, b} in different else 0.5)
        for a, b in itertools.combinations(values, 2)
    ]
    return letters(list(values), {k: estimate(v) for k, v in values.items()}, pairs, 0.05)


def _pair(first: str, second: str, p: float) -> Pair:
    whole = compare_methods([first, second], measured(accuracies(9, 2))).pairs[0]
    return dataclasses.replace(whole, p_holm=p)


def test_letters_by_hand() -> None:
    values = {"w": 0.1, "x": 0.2, "y": 0.3, "z": 0.4}
    assert grouped(values, set()) == dict.fromkeys("zyxw", "a")
    assert grouped(values, {frozenset("wz")}) == {"z": "a", "y": "ab", "x": "ab", "w": "b"}
    apart = {frozenset(p) for p in itertools.combinations("wxyz", 2)}
    assert grouped(values, apart) == {"z": "a", "y": "b", "x": "c", "w": "d"}
    # Not every order is a chain: y differs from x alone.
    assert grouped(values, {frozenset("xy")}) == {"z": "ab", "y": "a", "x": "b", "w": "ab"}


def test_letters_say_exactly_which_pairs_differ() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        labels = "abcdefg"
        different = {frozenset(p) for p in itertools.combinations(labels, 2) if rng.random() < 0.4}
        groups = grouped({label: rng.random() for label in labels}, different)
        for a, b in itertools.combinations(labels, 2):
            assert bool(set(groups[a]) & set(groups[b])) == ({a, b} not in different)


def test_direct_and_paired_conclusions() -> None:
    rng = np.random.default_rng(0)
    difficulty = rng.normal(0.5, 0.1, 50)
    own = rng.normal(0, 0.005, (50, 3))
    values = difficulty[:, None] + own + [0.0, 0.01, 0.3]
    found = compare_methods(["a", "b", "c"], measured(values))
    ab, ac, bc = found.pairs
    assert (ab.direct, ab.paired) == ("0", "-")
    assert (ac.direct, ac.paired) == ("-", "-")
    assert found.pair("c", "b") == (bc, -1)


def test_equal_values_are_called_equal() -> None:
    values = accuracies(20, 1).repeat(2, axis=1)
    (pair,) = compare_methods(["a", "b"], measured(values)).pairs
    assert (pair.p, pair.p_holm, pair.paired) == (None, None, "0")
    assert (pair.difference.value, np.isnan(pair.difference.low)) == (0, True)
    assert "acc-random in all 20 tasks" in pair.note


@pytest.mark.parametrize("interval", ["student-t", "percentile", "bca"])
def test_a_difference_without_spread_has_no_p(interval: str) -> None:
    values = accuracies(20, 1) * 0.5 + [[0.2, 0.1, 0.0]]
    found = compare_methods(["a", "b", "c"], measured(values), options(interval, n_resamples=200))
    for pair in found.pairs:
        assert pair.p is None
        assert np.isnan(pair.difference.low)
        assert pair.direct in "+0"
        assert pair.paired == "0"
        assert "10 % in all 20 tasks" in pair.note or "20 %" in pair.note
    assert set(found.letters.values()) == {"a"}


def test_constant_accuracies_conclude_nothing_directly() -> None:
    values = np.column_stack([np.ones(20), accuracies(20, 1)[:, 0] * 0.5])
    found = compare_methods(["a", "b"], measured(values))
    assert found.pairs[0].direct == "0"
    assert found.pairs[0].paired == "+"
    assert found.pairs[0].correlation is None
    (note,) = found.notes
    assert note.startswith("a: acc-random is 100.0 %")


@pytest.mark.parametrize("interval", ["student-t", "bca"])
def test_one_task_tells_nothing(interval: str) -> None:
    found = compare_methods(["a", "b"], measured([[0.5, 0.25]]), options(interval))
    (pair,) = found.pairs
    assert (pair.difference.value, pair.p, pair.direct, pair.paired) == (0.25, None, "0", "0")
    assert np.isnan(pair.difference.low)
    assert all("one task" in text for text in (found.notes[0], pair.note))


def test_only_an_arm_in_which_methods_differ_is_one_of_few_tasks() -> None:
    """The gap of arms that were drawn independently: control less tested."""
    gap = Measure("acc", ("random", "biased"))
    control, tested = np.full((40, 2), 0.8), -accuracies(100, 2)
    notes = []
    for columns in (control, control + np.eye(40, 2) * 0.1):
        values = TaskValues(gap, "toy", (columns, tested), "closed")
        (pair,) = compare_methods(["a", "b"], values).pairs
        notes.append(pair.note)
    assert notes[0] == ""
    assert "2 of 40 random tasks" in notes[1]


def test_few_tasks_or_few_that_differ_are_warned_of() -> None:
    values = np.full((40, 2), 0.8)
    values[:3, 0] = 1.0
    (pair,) = compare_methods(["a", "b"], measured(values)).pairs
    assert "3 of 40 tasks" in pair.note
    few, many = (measured(accuracies(n, 2)) for n in (19, 20))
    assert "19 tasks" in compare_methods(["a", "b"], few, options("bca")).notes[0]
    assert compare_methods(["a", "b"], many, options("bca")).notes == ()
    assert compare_methods(["a", "b"], few).notes == ()


def test_options_and_lone_methods_are_refused() -> None:
    both = measured(accuracies(5, 2))
    for made, error, part in (
        (lambda: compare_methods(["a"], measured(accuracies(5, 1))), DataError, "only a"),
        (lambda: compare_methods(["a", "b"], both, options(level=95)), OptionError, "level .* 95"),
        (lambda: compare_methods(["a", "b"], both, options("wald")), OptionError, "student-t"),
        (lambda: options("bca", n_resamples=0), OptionError, "resamples .* 0"),
    ):
        with pytest.raises(error, match=part):
            made()


def tasks_of(arm: str, n_tasks: int = 6, shape: tuple[int, int, int] = (5, 1, 3), seed: int = 0):
    """Tasks whose images recur."""
    way, shot, n_query = shape
    rng = np.random.default_rng([seed, len(arm)])
    classes = np.tile(np.arange(way), (n_tasks, 1))
    images = rng.permuted(np.tile(np.arange(40), (n_tasks, way, 1)), axis=2)[..., : shot + n_query]
    images = images + 40 * classes[..., None]
    return TaskSet(
        classes, images[..., :shot], images[..., shot:], np.full(classes.shape, -1),
        np.zeros(classes.shape, bool), (), "toy", {}, seed, "keys", "pool", arm=arm,
    )  # fmt: skip


def result(label: str, contrast: Contrast | None = None, accuracy: float = 0.6, **of_tasks):
    """A method on toy tasks of one arm, or of the two of a contrast."""
    names = ("random",) if contrast is None else contrast.arms
    arms = Arms({name: tasks_of(name, **of_tasks) for name in names}, contrast)
    found = {}
    for place, (name, tasks) in enumerate(arms.items()):
        shape, seed = tasks.query.shape, len(label) + place
        answers = toy_outcomes(*shape, accuracy=accuracy, seed=seed).predictions
        found[name] = Outcomes.of(tasks, answers)
    return MethodResult(label, found, arms)


@pytest.mark.parametrize(
    ("other", "part"),
    [
        ({"shape": (10, 1, 3)}, "5, the second 10 ways"),
        ({"shape": (5, 5, 3)}, "1, the second 5 shots"),
        ({"shape": (5, 1, 4)}, "3, the second 4 queries per class"),
        ({"n_tasks": 4}, "6, the second 4 tasks"),
        ({"seed": 1}, "another seed or sampler, or from other images (digests"),
    ],
)
def test_different_tasks_are_refused_with_the_difference(other: dict, part: str) -> None:
    with pytest.raises(DataError) as caught:
        comparable([result("a"), result("b", **other)])
    assert str(caught.value).startswith("a and b were evaluated on different tasks")
    assert part in str(caught.value)


def known_by_name(label: str, values: list[float], task_set: str = "birds") -> MethodResult:
    outcomes = AccuracyOutcomes(values, f"{task_set} {len(values)}", 0, True)
    return MethodResult(label, {"tasks": outcomes}, task_set=task_set)


def test_names_of_tasks_and_scoring_must_be_the_same() -> None:
    long, short = known_by_name("a", [0.5] * 6), known_by_name("b", [0.5] * 4)
    with pytest.raises(DataError, match="6, the second 4 tasks"):
        comparable([long, short])
    with pytest.raises(DataError, match="'birds', the second 'cats' .*by_tasks=True"):
        comparable([long, known_by_name("b", [0.5] * 6, "cats")])
    one, two = result("a"), result("b")
    by_class = dataclasses.replace(two.outcomes["random"], query_batch="class")
    two = dataclasses.replace(two, outcomes={"random": by_class})
    with pytest.raises(DataError, match="passed by task, those of the other by class"):
        comparable([one, two])


PAIRED, APART = Contrast("iid", "ood", paired=True), Contrast("iid", "ood")


def test_results_are_compared_in_the_arms_they_share() -> None:
    whole, half = result("a", APART), result("b", APART)
    half = dataclasses.replace(half, outcomes={"iid": half.outcomes["iid"]})
    for chosen in (comparable([whole, half]), comparable([half, whole])):
        assert [list(one.outcomes) for one in chosen] == [["iid"], ["iid"]]
        assert [one.contrast for one in chosen] == [None, None]
    assert [one.contrast for one in comparable([whole, result("b", APART)])] == [APART, APART]
    with pytest.raises(DataError, match="share no arm: the arms of the first are iid, ood"):
        comparable([whole, result("b")])


class Errors(WorstClassAccuracy):
    """Worst-class error, which is the lower the better."""

    higher_is_better = False

    def per_task(self, outcomes: Outcomes) -> FloatArray:
        return 1 - super().per_task(outcomes)


@pytest.mark.parametrize("contrast", [PAIRED, APART], ids=["paired", "apart"])
@pytest.mark.parametrize("statistic", [WorstClassAccuracy(), Errors()], ids=["higher", "lower"])
def test_gaps_are_those_of_each_run_and_so_is_their_difference(contrast, statistic) -> None:
    results = [
        result("a", contrast, 0.8, n_tasks=40), result("bb", contrast, 0.6, n_tasks=40)
    ]  # fmt: skip
    values = values_of(results, Measure("w", contrast.arms), statistic)
    found = compare_methods(["a", "bb"], values)
    per_task = []
    for one in results:
        assert one.arms is not None
        own = list(fsf.estimate(ArmOutcomes(one.outcomes, one.arms), statistic).values())[-1]
        got = found.values[one.label]
        assert got.name == "w-gap"
        for name in ("value", "low", "high"):
            assert getattr(got, name) == pytest.approx(getattr(own, name))
        for name in ("scope", "paired", "estimator", "n_tasks", "n_images", "arms", "share"):
            assert getattr(got, name) == getattr(own, name)
        per_task.append([statistic.per_task(one.outcomes[arm]) for arm in contrast.arms])
    (pair,) = found.pairs
    sign = 1 if statistic.higher_is_better else -1
    (a_iid, a_ood), (b_iid, b_ood) = per_task
    if contrast.paired:
        theirs = stats.ttest_rel(sign * (a_iid - a_ood), sign * (b_iid - b_ood))
    else:
        theirs = stats.ttest_ind(sign * (a_iid - b_iid), sign * (a_ood - b_ood), equal_var=False)
    assert pair.p == pytest.approx(theirs.pvalue)
    bounds = theirs.confidence_interval()
    assert (pair.difference.low, pair.difference.high) == pytest.approx(tuple(bounds))
    assert (pair.correlation is None) == (not contrast.paired)


def test_a_comparison_is_found_by_measure_and_printed() -> None:
    made = compare_methods(["a", "b<"], measured(accuracies(30, 2)))
    other = dataclasses.replace(made, task_set="u")
    found = Comparison((made,), ("left out",), {"a": ("seen before",)})
    assert found["acc-random"] is found[0] is made
    with pytest.raises(KeyError, match="'acc' was not compared; the measures are acc-random"):
        found["acc"]
    with pytest.raises(KeyError, match="several sets of tasks: t, u"):
        Comparison((made, other))["acc-random"]
    assert "a: seen before" in repr(found)
    assert "<td>b&lt;</td>" in found._repr_html_()
    [raw] = found.to_json()["comparisons"]
    assert (raw["measure"], set(raw["values"])) == ("acc-random", {"a", "b<"})
    assert {"difference", "p", "p_holm", "p_bh"} <= set(raw["pairs"][0])


def test_letters_of_many_methods_are_read_in_ranges() -> None:
    # Each method differs from all but its four neighbours, in steps of a point.
    noise = np.random.default_rng(0).normal(0, 0.01, (40, 60))
    noise -= noise.mean(axis=0)
    values = 0.9 - 0.01 * np.arange(60) + noise
    found = compare_methods([f"m{i}" for i in range(60)], measured(values))
    for pair in found.pairs:
        assert pair.p_holm is not None
        shared = set(found.letters[pair.first]) & set(found.letters[pair.second])
        assert bool(shared) is (pair.p_holm > 0.05)
    assert {len(letter) for own in found.letters.values() for letter in own} == {1}
    assert found.cell("m0").endswith("(a)")
    assert found.cell("m30").endswith(f"({letters_shown(found.letters['m30'])})")
