"""Paired comparisons: against SciPy, by hand, on real files, and where there is nothing to tell."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.errors import DataError, OptionError
from fsframework.statistics.comparison import (
    Comparison,
    Measure,
    benjamini_hochberg,
    compare,
    count,
    differences,
    holm,
    images_intervals,
    letters,
    measures_of,
)
from fsframework.statistics.intervals import mean_interval
from fsframework.statistics.results import (
    Contestant,
    by_tasks,
    find_contestants,
    same_tasks,
)
from fsframework.testing import toy_outcomes
from fsframework.values import AccuracyOutcomes, Estimate

SHARED = Path(__file__).parents[3] / "shared"


def statistics(*names: str) -> dict:
    return {
        name: resolve_component(Registry(), "statistic", {"name": name}).create() for name in names
    }


def measured(values: np.ndarray, **fields) -> Measure:
    return Measure(
        "acc-R", "t", ((1, np.asarray(values, float)),), "open", 0, True, "task", **fields
    )


def accuracies(n_tasks: int, n_methods: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    difficulty = rng.beta(7, 3, n_tasks)
    return rng.binomial(75, difficulty[:, None], (n_tasks, n_methods)) / 75


def named(*labels: str) -> list[Contestant]:
    return [Contestant(label, Path(label), {}) for label in labels]


# --- intervals and p ------------------------------------------------------------------------------


def test_student_t_is_scipys_paired_test() -> None:
    values = accuracies(40, 3)
    found = compare(["a", "b", "c"], measured(values), level=0.9)
    for pair, (i, j) in zip(found.pairs, itertools.combinations(range(3), 2), strict=True):
        test = stats.ttest_rel(values[:, i], values[:, j])
        bounds = test.confidence_interval(0.9)
        assert pair.p == pytest.approx(test.pvalue)
        assert (pair.difference.low, pair.difference.high) == pytest.approx(tuple(bounds))
        assert pair.correlation == pytest.approx(np.corrcoef(values[:, i], values[:, j])[0, 1])
        assert (pair.difference.estimator, pair.difference.n_tasks) == ("student-t", 40)
    own = mean_interval(values[:, 0], 0.9)
    value = found.values["a"]
    assert (value.value, value.low, value.high) == pytest.approx(own)


def test_a_gap_is_welchs_test_of_paired_differences() -> None:
    parts = ((1, accuracies(40, 2)), (-1, accuracies(70, 2, 1)))
    measure = Measure("wacc-gap", "t", parts, "closed", 9, True, "task")
    (pair,) = compare(["a", "b"], measure).pairs
    deltas = [values[:, 0] - values[:, 1] for _, values in parts]
    test = stats.ttest_ind(*deltas, equal_var=False)
    assert pair.p == pytest.approx(test.pvalue)
    assert (pair.difference.low, pair.difference.high) == pytest.approx(
        tuple(test.confidence_interval())
    )
    assert (pair.difference.estimator, pair.difference.n_tasks) == ("welch-t", 110)


@pytest.mark.parametrize("interval", ["percentile", "bca"])
def test_the_shared_bootstrap_is_scipys_pair_by_pair(interval: str) -> None:
    values = accuracies(60, 4) ** 3  # skewed, so that bca has something to correct
    found = compare(list("abcd"), measured(values), interval=interval, n_resamples=20_000)
    for pair, (i, j) in zip(found.pairs, itertools.combinations(range(4), 2), strict=True):
        _, low, high = mean_interval(
            values[:, i] - values[:, j], 0.95, interval, n_resamples=20_000, seed=1
        )
        assert abs(pair.difference.low - low) < 0.03 * (high - low)
        assert abs(pair.difference.high - high) < 0.03 * (high - low)


def test_the_bootstrap_draws_what_a_plain_loop_draws() -> None:
    values = accuracies(25, 2)
    found = differences(
        ((1, values),), np.array([[1.0, -1.0]]), interval="percentile", n_resamples=50, seed=3
    )
    rows = np.random.default_rng([3, 0]).integers(25, size=(50, 25))
    means = [(values[r, 0] - values[r, 1]).mean() for r in rows]
    assert (found.low[0], found.high[0]) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


@pytest.mark.parametrize("interval", ["student-t", "percentile", "bca"])
def test_p_and_interval_agree_on_whether_there_is_a_difference(interval: str) -> None:
    for seed in range(20):
        values = accuracies(30, 2, seed) + np.array([0.03, 0.0])
        for level in (0.8, 0.95):
            (pair,) = compare(
                ["a", "b"], measured(values), interval=interval, n_resamples=4000, level=level
            ).pairs
            distance = min(abs(pair.difference.low), abs(pair.difference.high))
            if distance > 2e-3:  # beyond the grain of the resamples
                assert (pair.p < 1 - level) == (pair.paired != "0")


def test_bca_of_two_parts_is_scipys() -> None:
    parts = ((1, accuracies(40, 1) ** 3), (-1, accuracies(50, 1, 1) ** 3))
    found = differences(parts, np.array([[1.0]]), interval="bca", n_resamples=20_000)
    theirs = stats.bootstrap(
        [values[:, 0] for _, values in parts],
        lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
        n_resamples=20_000,
        method="BCa",
        rng=np.random.default_rng(0),
    ).confidence_interval
    width = theirs.high - theirs.low
    assert abs(found.low[0] - theirs.low) < 0.03 * width
    assert abs(found.high[0] - theirs.high) < 0.03 * width


# --- many pairs -----------------------------------------------------------------------------------


def test_holm_and_benjamini_hochberg_by_hand() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    # Sorted 0.005, 0.01, 0.03, 0.04: times 4, 3, 2, 1, never falling.
    np.testing.assert_allclose(holm(p), [0.03, 0.06, 0.06, 0.02])
    # 4/4 * 0.04, 4/3 * 0.03, 4/2 * 0.01, 4/1 * 0.005, never rising from the largest down.
    np.testing.assert_allclose(benjamini_hochberg(p), [0.02, 0.04, 0.04, 0.02])
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]


def test_equal_methods_are_seldom_told_apart() -> None:
    contrasts = np.array(
        [np.eye(5)[i] - np.eye(5)[j] for i, j in itertools.combinations(range(5), 2)]
    )
    any_holm = any_plain = 0
    replicates = 400
    for seed in range(replicates):
        p = differences(((1, accuracies(50, 5, seed)),), contrasts).p
        any_holm += bool((holm(p) <= 0.05).any())
        any_plain += bool((p <= 0.05).any())
    # Two standard errors of 400 replicates are 2.2 %.
    assert any_holm / replicates <= 0.05 + 0.022
    assert any_plain / replicates > 0.2


def test_a_baseline_leaves_its_pairs_alone() -> None:
    values = accuracies(40, 4)
    found = compare(list("abcd"), measured(values), baseline="c")
    assert [(p.first, p.second) for p in found.pairs] == [("c", "a"), ("c", "b"), ("c", "d")]
    plain = np.array([p.p for p in found.pairs])
    np.testing.assert_allclose([p.p_holm for p in found.pairs], holm(plain))
    with pytest.raises(OptionError, match="must be one of a, b, c, d"):
        compare(list("abcd"), measured(values), baseline="e")


# --- letters --------------------------------------------------------------------------------------


def grouped(values: dict[str, float], different: set[frozenset[str]]) -> dict[str, str]:
    def estimate(value: float) -> Estimate:
        return Estimate("m", value, value, value, 0.95, "open", False, "t", 9, 9)

    pairs = [
        _pair(a, b, 0.01 if {a, b} in different else 0.5)
        for a, b in itertools.combinations(values, 2)
    ]
    return letters(list(values), {k: estimate(v) for k, v in values.items()}, pairs, 0.05)


def _pair(first: str, second: str, p: float):
    whole = compare([first, second], measured(accuracies(9, 2))).pairs[0]
    return type(whole)(**{**vars(whole), "p_holm": p})


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


# --- signs ----------------------------------------------------------------------------------------


def test_direct_and_paired_conclusions_and_their_counts() -> None:
    rng = np.random.default_rng(0)
    difficulty = rng.normal(0.5, 0.1, 50)
    own = rng.normal(0, 0.005, (50, 3))
    values = difficulty[:, None] + own + [0.0, 0.01, 0.3]
    found = compare(["a", "b", "c"], measured(values))
    ab, ac, bc = found.pairs
    assert (ab.direct, ab.paired) == ("0", "-")
    assert (ac.direct, ac.paired) == ("-", "-")
    assert found.pair("c", "b") == (bc, -1)
    total = count([found, found])
    assert (total.pairs, total.direct, total.paired, total.holm) == (6, 4, 6, 6)
    assert (total.inverted, total.only_direct, total.only_paired) == (0, 0, 2)


def test_open_intervals_of_runs_stand_beside_closed_ones() -> None:
    found = compare(["a", "b"], dataclasses.replace(measured(accuracies(30, 2)), kind="closed"))
    wide = {
        label: dataclasses.replace(e, kind="open", estimator="image-level", low=e.low - 0.1)
        for label, e in found.values.items()
    }

    def runs(**estimates: Estimate) -> list[Contestant]:
        return [
            Contestant(label, Path(label), {}, estimates={"acc-R": estimates[label]})
            for label in ("a", "b")
        ]

    assert images_intervals(runs(**wide), found) == wide
    assert images_intervals(runs(**found.values), found) == {}
    other_level = {label: dataclasses.replace(e, level=0.9) for label, e in wide.items()}
    assert images_intervals(runs(**other_level), found) == {}


# --- nothing to tell ------------------------------------------------------------------------------


def test_equal_outcomes_are_called_equal() -> None:
    values = accuracies(20, 1).repeat(2, axis=1)
    (pair,) = compare(["a", "b"], measured(values, same=frozenset({(0, 1)}))).pairs
    assert (pair.p, pair.p_holm, pair.paired) == (None, None, "0")
    assert (pair.difference.value, pair.difference.half_width) == (0, 0)
    assert "hold equal outcomes in all 20 tasks" in pair.note
    (other,) = compare(["a", "b"], measured(values)).pairs
    assert "have the same acc-R in all 20 tasks" in other.note


@pytest.mark.parametrize("interval", ["student-t", "percentile", "bca"])
def test_a_difference_without_spread_has_no_p(interval: str) -> None:
    values = accuracies(20, 1) * 0.5 + [[0.2, 0.1, 0.0]]
    found = compare(["a", "b", "c"], measured(values), interval=interval, n_resamples=200)
    for pair in found.pairs:
        assert pair.p is None
        assert np.isnan(pair.difference.low)
        assert pair.direct in "+0"
        assert pair.paired == "0"
        assert "differ by the same 10 % in all 20 tasks" in pair.note or "20 %" in pair.note
    assert set(found.groups.values()) == {"a"}


def test_constant_accuracies_conclude_nothing_directly() -> None:
    values = np.column_stack([np.ones(20), accuracies(20, 1)[:, 0] * 0.5])
    found = compare(["a", "b"], measured(values))
    assert found.pairs[0].direct == "0"
    assert found.pairs[0].paired == "+"
    assert found.pairs[0].correlation is None
    assert found.notes == (
        "a: acc-R is 100.0 % in every one of 20 tasks; an interval of no width says nothing of "
        "other tasks, so no direct conclusion is drawn",
    )


@pytest.mark.parametrize("interval", ["student-t", "bca"])
def test_one_task_tells_nothing(interval: str) -> None:
    found = compare(["a", "b"], measured([[0.5, 0.25]]), interval=interval)
    (pair,) = found.pairs
    assert (pair.difference.value, pair.p, pair.direct, pair.paired) == (0.25, None, "0", "0")
    assert np.isnan(pair.difference.low)
    assert "one task" in found.notes[0]
    assert "one task" in pair.note


def test_a_handful_of_tasks_is_named() -> None:
    values = np.full((40, 2), 0.8)
    values[:3, 0] = 1.0
    (pair,) = compare(["a", "b"], measured(values)).pairs
    assert pair.note == "a and b differ in 3 of 40 tasks only; interval and p rest on these"


def test_a_bootstrap_of_few_tasks_is_warned_of() -> None:
    few, many = (measured(accuracies(n, 2)) for n in (19, 20))
    assert compare(["a", "b"], few, interval="bca").notes[0].startswith("a bootstrap of 19 tasks")
    assert compare(["a", "b"], many, interval="bca").notes == ()
    assert compare(["a", "b"], few).notes == ()


def test_options_and_lone_methods_are_refused() -> None:
    with pytest.raises(DataError, match="there is a alone"):
        compare(["a"], measured(accuracies(5, 1)))
    with pytest.raises(OptionError, match="level must lie between 0 and 1, not 95"):
        compare(["a", "b"], measured(accuracies(5, 2)), level=95)
    with pytest.raises(OptionError, match="interval must be one of student-t"):
        compare(["a", "b"], measured(accuracies(5, 2)), interval="wald")


# --- contestants ----------------------------------------------------------------------------------


def contestant(label: str, digest: str, n_tasks: int = 6, **facts: object) -> Contestant:
    outcomes = toy_outcomes(n_tasks, seed=len(label))
    outcomes = type(outcomes)(outcomes.predictions, digest, 30, False)
    tasks = {"R": {"way": 5, "shot": 1, "query": 3, "sampler": "random", **facts}}
    return Contestant(label, Path(label), {"R": outcomes}, tasks)


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (contestant("b", "y", way=10), "5 and 10 ways"),
        (contestant("b", "y", shot=5), "1 and 5 shots"),
        (
            contestant("b", "y", n_tasks=4),
            "6 and 4 tasks; give both runs the same --tasks",
        ),
        (contestant("b", "y"), "another seed, sampler or from other images (digests x and y)"),
    ],
)
def test_different_tasks_are_refused_with_the_difference(other: Contestant, part: str) -> None:
    with pytest.raises(DataError) as caught:
        same_tasks([contestant("a", "x"), other])
    assert str(caught.value).startswith("a and b were evaluated on different tasks")
    assert part in str(caught.value)


def test_missing_tasks_are_counted() -> None:
    long, short = contestant("a", "x", name="birds"), contestant("b", "y", 4, name="birds")
    with pytest.raises(DataError, match="6 and 4 tasks; b lacks 2, and which ones cannot be told"):
        same_tasks([long, short])


def test_scoring_must_be_the_same() -> None:
    one, two = contestant("a", "x"), contestant("b", "x")
    outcomes = two.outcomes["R"]
    by_class = type(outcomes)(outcomes.predictions, "x", 30, False, "class")
    two = Contestant("b", Path("b"), {"R": by_class}, two.tasks)
    with pytest.raises(DataError, match="shown by task, those of the other by class"):
        same_tasks([one, two])


def test_groups_of_equal_tasks() -> None:
    a, b, c = contestant("a", "x"), contestant("b", "y"), contestant("c", "x")
    assert by_tasks([a, b, c]) == [[a, c], [b]]


def test_what_needs_predictions_is_left_out_or_refused() -> None:
    bare = [
        Contestant(label, Path(label), {"R": AccuracyOutcomes(values, "x", 0, False)})
        for label, values in (("a", [0.5, 1.0]), ("b", [0.5, 0.5]))
    ]
    known = statistics("acc", "wacc")
    (found,), left_out = measures_of(bare, known, [])
    assert found.name == "acc-R"
    assert found.parts[0][1].tolist() == [[0.5, 0.5], [1.0, 0.5]]
    assert left_out[0].startswith("without wacc-R: these are accuracies of whole tasks")
    with pytest.raises(DataError, match="wacc-R cannot be compared: .* hold no predictions"):
        measures_of(bare, known, ["wacc"])
    with pytest.raises(DataError, match="wacc-gap: needs tasks of the kind A"):
        measures_of(bare, known, ["gap"])


# --- the published files --------------------------------------------------------------------------


NAMES = {
    "DINOv2 FT": "dinov2/finetune",
    "CLIP LR": "clip/LR",
    "DINO LR": "dino/LR",
    "DINOv2 LR": "dinov2/LR",
    "DINOv2 NCC": "dinov2/NCC",
}


@pytest.fixture(scope="module")
def published() -> dict[str, Comparison]:
    folder = SHARED / "data" / "per_task_accuracies"
    if not folder.is_dir():
        pytest.skip(f"reference material is absent: {folder}")
    found = {}
    for group in by_tasks(find_contestants([str(folder)], Path(), kind="open")):
        chosen = same_tasks(group)
        (measure,), _ = measures_of(chosen, statistics("acc"), ["acc"])
        made = compare([c.label for c in chosen], measure)
        found[made.task_set] = made
    return found


@pytest.mark.shared_data
def test_table_4_follows_from_the_published_files(published: dict[str, Comparison]) -> None:
    unlike = {}
    with (SHARED / "published" / "ci_table4.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            data = row["dataset"].lower().replace(" ", "_")
            comparison = published[f"{row['shot']}-shot/{data}"]
            pair, sign = comparison.pair(NAMES[row["baseline"]], NAMES[row["compared_with"]])
            shift = 100 * sign * pair.difference.value - float(row["difference_percent"])
            width = 100 * pair.difference.half_width - float(row["ci95_half_width"])
            if max(abs(shift), abs(width)) > 0.0005 + 1e-6:
                unlike.setdefault((row["dataset"], row["shot"]), []).append((shift, width))
    # The published file of the baseline differs there from the one the table was made of.
    assert {key: len(cells) for key, cells in unlike.items()} == {
        ("MSCOCO", "5"): 4,
        ("Omniglot", "1"): 4,
    }
    for (name, _), cells in unlike.items():
        expected = 0.002 if name == "MSCOCO" else -0.015
        for shift, width in cells:
            assert shift == pytest.approx(expected, abs=0.001)
            assert abs(width) <= 0.001


@pytest.mark.shared_data
def test_conclusive_comparisons_of_the_published_files(published: dict[str, Comparison]) -> None:
    total = count(list(published.values()))
    assert (total.pairs, total.direct, total.paired, total.holm) == (270, 133, 194, 170)
    # On the same tasks the two never contradict each other: the difference is the same.
    assert (total.inverted, total.only_direct) == (0, 0)


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def imported(fsf, tmp_path: Path):
    values = accuracies(40, 3)
    values[:, 2] *= 0.8
    rows = "\n".join(",".join(map(str, row)) for row in values)
    (tmp_path / "open.csv").write_text("one,two_%,three\n" + rows + "\n")
    assert fsf("import", "accuracies", "open.csv", "--tasks-kind", "open").returncode == 0
    more = "\n".join(rows.splitlines()[::-1] * 4)
    (tmp_path / "closed.csv").write_text("one,two_%,three\n" + more + "\n")
    return fsf


def test_the_table_says_what_every_interval_is(imported) -> None:
    done = imported("compare", "one", "two", "three")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    with_interval = [line for line in lines if "±" in line]
    assert len(with_interval) == 6
    for line in with_interval:
        assert "95 % open, student-t" in line
        assert line.rstrip().endswith("not known")
    assert "3 pairs: direct comparison tells" in done.stdout
    assert "note: without wacc-R" in done.stdout


def test_closed_stands_beside_open(imported) -> None:
    done = imported("compare", "one", "three", "--beside", "closed.csv")
    assert "--beside must name the same methods" in done.stderr
    done = imported("compare", "one", "two", "three", "--beside", "closed.csv")
    assert done.returncode == 0, done.stderr
    assert "95 % closed, student-t" in done.stdout
    assert "of these the paired comparison on open tasks confirms" in done.stdout
    matrix = done.stdout.partition("who is higher")[2].splitlines()[2:5]
    assert all("·" not in line for line in matrix)
    again = imported(
        "compare", "one", "two", "three", "--beside", "open.csv", "--tasks-kind", "open"
    )
    assert "one must be closed" in again.stderr


def test_other_forms(imported) -> None:
    latex = imported("compare", "one", "two", "--format", "latex").stdout
    assert r"two\_\%" in latex
    assert latex.count(r"\toprule") == latex.count(r"\bottomrule") == latex.count(r"\end{table}")
    assert "−" not in latex
    assert "±" not in latex
    rows = list(
        csv.DictReader(imported("compare", "one", "two", "--format", "csv").stdout.splitlines())
    )
    assert [(r["first"], r["second"], r["kind"]) for r in rows] == [("one", "two_%", "open")]
    assert float(rows[0]["low"]) < float(rows[0]["difference"]) < float(rows[0]["high"])
    markdown = imported("compare", "one", "two", "--format", "markdown").stdout
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    assert "| method | acc-R | group |" in table[0]


def test_files_are_compared_only_where_their_tasks_are_said_to_be_equal(
    imported, tmp_path: Path
) -> None:
    for name in ("p", "q"):
        (tmp_path / f"{name}.csv").write_text(f"{name}\n0.5\n0.{'6' if name == 'p' else '7'}\n")
    refused: subprocess.CompletedProcess[str] = imported("compare", "p.csv", "q.csv")
    assert refused.returncode == 2
    assert "different tasks" in refused.stderr
    assert "say --same-tasks" in refused.stderr
    done = imported("compare", "mine=p.csv", "q.csv", "--same-tasks")
    assert done.returncode == 0
    assert "mine − q" in done.stdout
    assert "closed: images recur" in done.stdout
    both = imported("compare", "p.csv", "one", "--same-tasks")
    assert (both.returncode, "different tasks" in both.stderr) == (2, True)
    alone = imported("compare", "p.csv", "--same-tasks")
    assert "two methods at least" in alone.stderr


def test_by_tasks_compares_what_can_be(imported, tmp_path: Path) -> None:
    (tmp_path / "lone.csv").write_text("lone\n0.5\n0.7\n")
    assert imported("import", "accuracies", "lone.csv", "--task-set", "x").returncode == 0
    done = imported("compare", "runs", "--by-tasks", "--baseline", "three")
    assert done.returncode == 0, done.stderr
    assert "2 pairs" in done.stdout
    everything = imported("compare", "runs", "--by-tasks")
    assert "note: 1 stand alone on their tasks: lone" in everything.stdout
    refused = imported("compare", "runs")
    assert (refused.returncode, "--by-tasks compares" in refused.stderr) == (2, True)
