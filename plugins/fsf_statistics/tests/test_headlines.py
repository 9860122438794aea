"""The answer first: sentences, one table, marks and bars, of made-up answers and of real runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import fsf_statistics
import fsframework as fsf
from fsf_statistics import ComparedHeadline, HeadlineEntry, HeadlineTable
from fsf_statistics.task_sets import tasks_told_apart
from fsframework.errors import DataError
from fsframework.records import RunRecord
from fsframework.statistics.results import MethodResult
from fsframework.values import Arms, Contrast, Estimate, Outcomes, TaskSet

ARMS = Contrast("random", "biased")


def tasks_of(arm: str, n_tasks: int, seed: int = 0) -> TaskSet:
    classes = np.tile(np.arange(2), (n_tasks, 1))
    images = np.arange(n_tasks * 2 * 5).reshape(n_tasks, 2, 5) + seed
    return TaskSet(
        classes, images[..., :1], images[..., 1:], np.full(classes.shape, -1),
        np.zeros(classes.shape, bool), (), "toy", {}, seed, "keys", "pool", arm=arm,
    )  # fmt: skip


def result(label: str, worst: dict[str, list[int]], seed: int = 0, **more) -> MethodResult:
    """A method that misses so many of the 4 queries of the first class of each task."""
    arms = Arms(
        {arm: tasks_of(arm, len(missed), seed) for arm, missed in worst.items()},
        ARMS if "biased" in worst else None,
        {"random": "R", "biased": "A"},
    )
    outcomes = {}
    for arm, missed in worst.items():
        wrong = np.arange(4)[None] < np.array(missed)[:, None]
        predictions = np.stack([wrong.astype(int), np.ones_like(wrong, int)], axis=1)
        outcomes[arm] = Outcomes.of(arms[arm], predictions)
    return MethodResult(label, outcomes, arms, **more)


def told(*results: MethodResult) -> ComparedHeadline:
    return fsf_statistics.headline(results)


GUESSED = (15**2 + 11**2 + 5**2 + 1) / 16**2 / 4
"""Expected worst of two classes whose 4 queries are guessed: at least 1, 2, 3, 4 of both right."""

STEADY = [0, 0, 1, 0, 1, 0, 0, 1]
"""Mean of the worst class: 1 - 3/32."""


def test_one_method_loses_what_its_arms_differ_by() -> None:
    found = told(result("leaner", {"random": STEADY, "biased": [3, 4, 3, 4, 3, 3, 4, 4]}))
    control, tested = 1 - 3 / 32, 1 - 28 / 32
    assert found.table.columns == ("Acc-R", "Acc gap", "wAcc-R", "wAcc-A", "drop", "gap")
    values = [entry.estimate.value for entry in found.table.entries]
    gap, drop = control - tested, (control - tested) / (control - GUESSED)
    assert values == pytest.approx([(1 + control) / 2, gap / 2, control, tested, drop, gap])
    [sentence] = found.sentences
    for part in ("leaner loses 78.1 ± ", "wAcc from random to biased", "90.6 % to 12.5 %"):
        assert part in sentence
    assert {entry.mark for entry in found.table.entries} == {""}
    assert any("gap = wAcc-R − wAcc-A" in note for note in found.notes)


@pytest.mark.parametrize(
    ("random", "biased", "said"),
    [
        (STEADY, [1, 0, 0, 0, 1, 0, 1, 0], "No loss of wAcc"),
        ([2, 1, 2, 2, 1, 2, 2, 2], [0] * 8, "steady gains 43.8 ± "),
    ],
)
def test_no_loss_and_a_gain_are_called_so(random: list[int], biased: list[int], said: str) -> None:
    found = told(result("steady", {"random": random, "biased": biased}))
    assert found.sentences[0].startswith(said)


def test_the_smallest_gap_is_best_and_equal_methods_are_tied() -> None:
    shifted = [*STEADY[1:], STEADY[0]]
    found = told(
        result("a", {"random": STEADY, "biased": [3, 4, 3, 4, 3, 3, 4, 4]}),
        result("b", {"random": STEADY, "biased": STEADY}),
        result("c", {"random": STEADY, "biased": shifted}),
    )
    gaps = {e.row[0]: e.mark for e in found.table.entries if e.column == "gap"}
    assert gaps == {"b": "best", "c": "tied", "a": ""}
    assert list(gaps) == ["b", "c", "a"]
    first, second = found.sentences
    assert first == "b and c are one group with the smallest wAcc gaps, 0.0 points."
    assert second.startswith("a loses more than b, 78.1 ± ")


def test_what_is_in_the_group_of_the_smallest_is_not_called_the_largest() -> None:
    found = told(
        result("even", {"random": STEADY, "biased": STEADY}),
        result("worse", {"random": STEADY, "biased": [*STEADY[:2], *(n + 1 for n in STEADY[2:])]}),
        result("unsteady", {"random": STEADY, "biased": [*STEADY[:6], 4, 4]}),
    )
    first, second = found.sentences[:2]
    assert first.startswith("even and unsteady are one group with the smallest")
    assert second.startswith("worse loses more than even, 18.")


def test_only_what_differs_from_the_whole_best_group_is_called_worse() -> None:
    missed = {"a": [0] * 40, "b": [1] * 3 + [0] * 37, "c": [0] * 3 + [1] * 7 + [0] * 30}
    missed["d"] = [1, 2] * 20
    results = [result(name, {"random": own}) for name, own in missed.items()]
    letters = fsf.compare(results, "wacc-random")["wacc-random"].letters
    assert letters == {"a": "a", "b": "ab", "c": "b", "d": "c"}
    [sentence] = told(*results).sentences
    assert sentence.startswith("a and b are one group with the best wAcc-R, ")
    assert sentence.endswith("; d is worse.")
    [sentence] = told(*results[:3]).sentences
    assert sentence.endswith("98.1 to 100.0 %.")


def test_letters_of_gaps_begin_at_the_smallest_and_small_p_are_said_to_be_small() -> None:
    found = fsf.compare(
        [
            result("leaner", {"random": STEADY, "biased": [3, 4, 3, 4, 3, 3, 4, 4]}),
            result("even", {"random": STEADY, "biased": STEADY}),
        ],
        "wacc-gap",
    )["wacc-gap"]
    assert found.letters == {"even": "a", "leaner": "b"}
    assert "<0.001" in repr(found)


def test_a_method_has_the_same_value_alone_and_among_others() -> None:
    draw = np.random.default_rng(0)
    results = [
        result(name, {arm: draw.binomial(4, 0.3, 203).tolist() for arm in ("random", "biased")})
        for name in "abc"
    ]
    among = fsf.compare([*results], "wacc-gap")["wacc-gap"].values
    for one in results:
        alone = next(e.estimate for e in told(one).table.entries if e.column == "gap")
        assert alone == among[one.label]


def marks(found: ComparedHeadline, column: str) -> dict[str, str]:
    return {one.row[0]: one.mark for one in found.table.entries if one.column == column}


def test_gaps_rank_no_methods_that_differ_in_the_control_arm() -> None:
    found = told(
        result("middling", {"random": [1, 2, 1, 2, 1, 2, 1, 2], "biased": [2] * 8}),
        result("good", {"random": STEADY, "biased": [2, 2, 1, 2, 2, 1, 2, 2]}),
    )
    [sentence] = found.sentences
    assert sentence.startswith("The gaps do not rank these methods, whose Acc-R differs")
    assert [marks(found, column) for column in ("Acc-R", "gap", "drop")] == [
        {"good": "best", "middling": ""},
        {"good": "", "middling": ""},
        {"good": "", "middling": ""},
    ]


def test_methods_that_cannot_be_told_apart_are_one_group() -> None:
    turned = [*STEADY[3:], *STEADY[:3]]
    found = told(*(result(name, {"random": STEADY, "biased": b})
                   for name, b in (("a", STEADY), ("b", turned))))  # fmt: skip
    [sentence] = found.sentences
    assert sentence.startswith("Both methods are one group: their wAcc gaps, 0.0 points, ")


def test_near_guessing_there_is_no_drop_and_nothing_is_ranked() -> None:
    knows_nothing = {"random": [2, 3, 3, 2, 3, 3, 2, 3], "biased": [3] * 8}
    found = told(
        result("poor", knows_nothing), result("good", {"random": STEADY, "biased": [2] * 8})
    )
    drops = {e.row[0]: e for e in found.table.entries if e.column == "drop"}
    assert drops["poor"].estimate is None
    assert "wAcc-R" in drops["poor"].reason
    assert drops["good"].estimate.value == pytest.approx((29 / 32 - 1 / 2) / (29 / 32 - GUESSED))
    *_, limit = found.limits
    assert limit.startswith("wAcc-R of poor is near what guessing gives (")
    assert limit.endswith("nothing can be read from the gap.")
    [sentence] = told(result("a", knows_nothing), result("b", knows_nothing)).sentences
    assert "nothing can be ranked" in sentence
    with pytest.raises(DataError, match="wacc-random of poor is 34.4"):
        fsf.compare([result("poor", knows_nothing), result("other", knows_nothing)], "wacc-drop")


@pytest.mark.parametrize(
    ("biased", "said"),
    [
        ([3, 4, 4, 3, 4, 4, 4, 4], "below what guessing gives (36.3 %): the hint misleads it."),
        ([3, 2, 3, 2, 3, 2, 3, 2], "near what guessing gives (36.3 %): little is left to lose, "),
    ],
)
def test_what_is_near_guessing_in_the_tested_arm_alone_has_a_gap_that_says_much(
    biased: list[int], said: str
) -> None:
    *_, limit = told(result("misled", {"random": STEADY, "biased": biased})).limits
    assert limit.startswith(f"wAcc-A of misled is {said}")


def test_where_the_control_arm_is_below_guessing_the_gap_and_the_tested_arm_say_nothing() -> None:
    lost = result("lost", {"random": [4] * 8, "biased": [4, 4, 4, 4, 4, 4, 4, 3]})
    [limit] = (one for one in told(lost).limits if "wAcc" in one)
    assert limit.startswith("wAcc-R of lost is below what guessing gives (")
    assert limit.endswith("nothing can be read from the gap.")
    assert len(told(lost).sentences) == 1
    assert "loses" not in told(lost).sentences[0]


def test_methods_near_guessing_are_not_ranked_among_others() -> None:
    poor = result("poor", {"random": [2, 3, 3, 2, 3, 3, 2, 3], "biased": [3] * 8})
    good = result("good", {"random": STEADY, "biased": [2] * 8})
    even = result("even", {"random": STEADY, "biased": STEADY})
    found = told(poor, good, even)
    assert found.near_guessing == ("poor",)
    assert found.sentences[0].startswith("poor is near guessing")
    assert found.sentences[1].startswith("even has the smallest wAcc gap, 0.0 ")
    [sentence] = told(poor, good).sentences
    assert sentence.startswith("poor is near guessing, so nothing can be ranked")
    assert told(poor).sentences[0].startswith("poor is near guessing, so its gap says nothing")
    one_arm = [result(name, {"random": [3] * 8}) for name in ("a", "b")]
    [sentence] = told(*one_arm).sentences
    assert "nothing can be ranked" in sentence


@pytest.mark.parametrize("seed", range(30))
def test_no_method_is_both_the_best_and_not_to_be_told_from_another(seed: int) -> None:
    draw = np.random.default_rng(seed)

    def missed(share: float) -> list[int]:
        return draw.binomial(4, share, 40).tolist()

    arms = ("random", "biased") if seed % 2 else ("random",)
    shares = draw.uniform(0.05, 0.6, (int(draw.integers(2, 5)), 2))
    found = told(*(result(f"m{n}", {a: missed(p) for a, p in zip(arms, own, strict=False)})
                   for n, own in enumerate(shares)))  # fmt: skip
    said = " ".join(found.sentences)
    best = "has the smallest" in said or "has the best" in said
    assert not (best and ("one group" in said or "nothing can be ranked" in said))
    if best:
        column = "gap" if len(arms) == 2 else "wAcc-R"
        assert "tied" not in marks(found, column).values() or found.near_guessing


def test_the_interval_of_a_drop_is_that_of_a_ratio() -> None:
    random, biased = [1, 2, 0, 1, 1, 0, 2, 1], [1, 3, 2, 2, 3, 1, 2, 2]
    one = result("one", {"random": random, "biased": biased})
    [drop] = [e.estimate for e in told(one).table.entries if e.column == "drop"]
    control, tested = (1 - np.array(missed) / 4 for missed in (random, biased))
    known = control.mean() - GUESSED
    left = (tested.mean() - GUESSED) / known
    # The first order of a ratio of two independent means, with Welch's degrees of freedom.
    errors = [(left / known) ** 2 * control.var(ddof=1) / 8, tested.var(ddof=1) / 8 / known**2]
    freedom = sum(errors) ** 2 / sum(e**2 / 7 for e in errors)
    half = stats.t.ppf(0.975, freedom) * sum(errors) ** 0.5
    assert (drop.value, drop.half_width) == pytest.approx((1 - left, half))
    assert drop.name == "wacc-drop"
    assert drop.share


MISSED = {"a": (6, 14), "b": (10, 20), "c": (14, 23), "d": (18, 25), "e": (22, 34), "f": (24, 37)}
"""Of the 48 queries of the worst classes of 12 tasks, those that a method misses in each arm."""


def six() -> list[MethodResult]:
    return [
        result(name, {"random": _missed(random), "biased": _missed(biased)})
        for name, (random, biased) in MISSED.items()
    ]


def _missed(total: int) -> list[int]:
    """Misses of 12 tasks with this sum, as equal as can be."""
    return [total // 12 + (task < total % 12) for task in range(12)]


def test_where_robustness_does_not_rank_is_among_the_limits() -> None:
    # The better a strong model, the less it misses; of weak ones, the more: no line fits.
    results = [
        result(f"m{n}", {"random": _missed(2 * n), "biased": _missed(4 * n if n < 9 else 30 - n)})
        for n in range(1, 17)
    ]
    notes = fsf_statistics.effective_robustness(results).notes
    assert notes
    for note in notes:
        assert sum(note in limit for limit in told(*results).limits) == 1


def test_enough_methods_are_ordered_by_effective_robustness_with_letters() -> None:
    results = [*six(), result("g", {"random": [4] * 12, "biased": [4] * 12})]
    expected = fsf_statistics.effective_robustness(results)
    found = told(*results)
    assert found.table.row_names == ("method", "letter")
    order = [*expected.values, "g"]
    assert found.table.rows == tuple((label, expected.letters.get(label, "")) for label in order)
    own = {e.label: e for e in found.table.entries if e.column == "robustness"}
    assert {k: e.estimate for k, e in own.items()} == {**expected.values, "g": None}
    # By hand: the residuals of a line through the logits.
    missed = np.array(list(MISSED.values())).T
    x, y = np.log((48 - missed) / missed)
    line = np.polynomial.Polynomial.fit(x, y, 1)(x)
    beyond = 1 / (1 + np.exp(-y)) - 1 / (1 + np.exp(-line))
    values = [own[label].estimate.value for label in MISSED]
    assert values == pytest.approx(beyond)
    assert own[order[0]].mark == "best"
    assert set(marks(found, "gap").values()) == {""}
    assert any(limit.startswith("No robustness of g") for limit in found.limits)
    assert "robustness" in found.terms
    assert "robustness" not in told(*results[:5]).table.columns
    assert not told(*results[:5]).left_out


def test_without_enough_methods_on_the_line_a_note_says_why() -> None:
    guessing = result("g", {"random": [3, 2] * 6, "biased": [3] * 12})
    for given, n_on_line in ((six()[:5], 5), (six()[:2], 2)):
        others = [replace(guessing, label=f"g{n}") for n in range(7 - len(given))]
        found = told(*given, *others)
        assert "robustness" not in found.table.columns
        [why] = found.left_out
        assert why in found.notes
        assert f"not {n_on_line}; g0, g1" in why
        assert "near guessing in the control arm" in why


def test_how_alike_two_sets_of_tasks_rank_methods() -> None:
    other = dict(
        zip(MISSED, [(8, 14), (12, 16), (16, 25), (18, 23), (22, 35), (24, 39)], strict=True)
    )
    there = [
        result(name, {"random": _missed(random), "biased": _missed(biased)}, seed=1)
        for name, (random, biased) in other.items()
    ]
    ranks = [
        [fsf_statistics.effective_robustness(own).values[name].value for name in MISSED]
        for own in (six(), there)
    ]
    [said] = [note for note in told(*six(), *there).notes if note.startswith("Spearman")]
    assert f"{stats.spearmanr(*ranks).statistic:.2f} [" in said
    assert "over 6 methods" in said


def test_marks_hold_within_equal_tasks_only() -> None:
    one = result("a", {"random": STEADY, "biased": STEADY})
    other = result("b", {"random": [4] * 8, "biased": [4] * 8}, seed=1)
    found = told(one, other)
    assert {entry.mark for entry in found.table.entries} == {""}
    assert found.sentences[0].startswith("set 1: ")
    assert [line.partition(": ")[0] for line in found.text(500).split("\n")[:2]] == [
        "set 1",
        "set 2",
    ]
    more = result("c", {"random": [4] * 9, "biased": [4] * 9})
    assert told(one, more).sentences[1].startswith("9 tasks: c is near guessing")


def record(*cautions: str) -> RunRecord:
    return RunRecord("f" * 64, "finished", "2026-01-01", cautions=cautions)


def test_shared_cautions_stand_once() -> None:
    caution = "classes may have been seen before"
    own = record(caution, "an own one")
    found = told(
        result("a", {"random": STEADY, "biased": STEADY}, records=(record(caution),)),
        result("b", {"random": STEADY, "biased": [2] * 8}, records=(own,)),
    )
    assert [note for note in found.notes if caution in note] == [f"note: {caution}"]
    assert "b: an own one" in found.notes


def test_one_arm_tells_its_value_and_nothing_is_refused() -> None:
    found = told(result("only", {"random": STEADY}))
    assert found.sentences == ("only has wAcc-R 90.6 ± 10.8 %.",)
    assert found.table.columns == ("Acc-R", "wAcc-R")
    with pytest.raises(DataError, match="no results"):
        told()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_longer_than_asked(width: int) -> None:
    long = "a-method-with-a-name-that-is-far-too-long-for-any-terminal-that-people-use"
    found = told(
        result(long, {"random": STEADY, "biased": STEADY}),
        result("b", {"random": STEADY, "biased": [2] * 8}),
    )
    assert max(map(len, found.text(width).splitlines())) <= width
    assert long in found.text(10_000)


def entry(name: str, column: str, value: float, half: float) -> HeadlineEntry:
    """A value in percent."""
    ends = (value / 100, (value - half) / 100, (value + half) / 100)
    estimate = Estimate(
        "wacc", *ends, 0.95, "closed", False, "student-t", 8, 40, share=True, arms=("random",)
    )
    return HeadlineEntry((name,), column, name, estimate)


def test_the_table_aligns_decimals_and_leaves_out_columns_after_the_first() -> None:
    values = {"Acc": (9.5, 0.1), "R": (50.0, 10.0), "A": (5.0, 1.0), "gap": (45.0, 2.0)}
    entries = tuple(
        entry(f"method-{row}", column, value * row, half)
        for row in (1, 2)
        for column, (value, half) in values.items()
    )
    found = ComparedHeadline((), table=HeadlineTable(("method",), entries))
    lines = found.text(80).splitlines()
    assert lines[0].split() == ["method", "Acc", "R", "A", "gap"]
    assert lines[1].startswith("method-1   9.5 ± 0.1")
    assert lines[2].startswith("method-2  19.0 ± 0.1")
    assert found.text(45).splitlines()[0].split() == ["method", "Acc", "A", "gap"]


def test_bars_share_a_scale_that_contains_zero() -> None:
    entries = tuple(
        entry(f"m{value}", "gap", value, 2) if value else HeadlineEntry(("m0",), "gap", "m0", None)
        for value in (8, -2, 0)
    )
    table = HeadlineTable(("method",), entries)
    _, *rows = ComparedHeadline((), table=table).text(35).splitlines()
    first, second, none = (row[20:] for row in rows)
    assert none == ""
    assert first.index("╎") == second.index("┤") == 4
    assert (first.index("├"), first.index("●"), first.index("┤")) == (10, 12, 14)


def test_what_rounds_to_zero_has_no_sign_and_others_a_minus() -> None:
    entries = (entry("below", "gap", -2.0, 1), entry("zero", "gap", -0.04, 1))
    table = HeadlineTable(("method",), entries)
    _, first, second = ComparedHeadline((), table=table).text().splitlines()
    assert "−2.0 ± 1.0" in first
    assert " 0.0 ± 1.0" in second


def test_tasks_are_told_apart_by_as_few_options_as_do_it() -> None:
    told = [
        {"dataset.path": path, "sampler.n_query": n, "detector": words, "detector.model": words}
        for path, n, words in (("a", "5", "x"), ("b", "5", "x"), ("a", "9", "y"), ("b", "9", "y"))
    ]
    assert tasks_told_apart(told) == {"path": ["a", "b"] * 2, "n_query": ["5", "5", "9", "9"]}
    assert tasks_told_apart([told[0], told[0]]) == {"set": ["1", "2"]}


QUICK = {
    "dataset": {"name": "planted", "n_per_class": 12, "size": 16}, "sampler": "fewstab", "shot": 1,
    "tasks": 30, "way": 3, "queries": 3, "training": {"epochs": 0}, "progress": False,
    "image_size": 16,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, fsf.Run]:
    folder = tmp_path_factory.mktemp("headlines")
    where = {"runs_dir": folder / "runs", "cache_dir": folder / "cache"}
    names = ("ncc", "logistic", "protonet")
    found = {name: fsf.run(method=name, **QUICK, **where) for name in names}
    found["other tasks"] = fsf.run(method="ncc", **QUICK, **where, task_seed=1)
    return found


def test_its_numbers_are_those_of_estimates_and_of_compare(runs: dict[str, fsf.Run]) -> None:
    equal = [run for name, run in runs.items() if name != "other tasks"]
    found = fsf_statistics.headline(equal)
    compared = fsf.compare(equal)
    for entry in found.table.entries:
        if entry.estimate is None:
            assert "wacc-drop" not in runs[entry.row[0]].estimates
            continue
        own = runs[entry.row[0]].estimates[entry.estimate.name]
        assert entry.estimate.value == pytest.approx(own.value)
        assert entry.estimate.half_width == pytest.approx(own.half_width)
    tested = compared["wacc-biased"]
    best, *others = sorted(tested.values, key=lambda label: -tested.values[label].value)
    marked = marks(found, "wAcc-A")
    assert marked.pop(best) == "best"
    tied = {label: tested.pair(best, label)[0].p_holm >= 0.05 for label in others}
    assert {label: mark == "tied" for label, mark in marked.items()} == tied
    found = fsf_statistics.headline([runs["ncc"], runs["other tasks"]])
    assert found.table.row_names == ("method", "task_seed")
    assert {entry.mark for entry in found.table.entries} == {""}


def test_methods_trained_on_variants_of_the_data_are_told_apart(tmp_path: Path) -> None:
    where = {"runs_dir": tmp_path / "runs", "cache_dir": tmp_path / "cache"}
    runs = []
    for strength in (0.2, 0.8):
        data = {**QUICK["dataset"], "strength": strength, "test_strength": 0.8}
        runs += [
            fsf.run(method=name, **{**QUICK, "dataset": data}, **where)
            for name in ("ncc", "logistic")
        ]
    assert len({run.tasks["biased"].digest for run in runs}) == 1
    found = fsf_statistics.headline(runs)
    assert found.table.row_names == ("method", "strength")
    assert set(found.table.rows) == {(m, s) for m in ("ncc", "logistic") for s in ("0.2", "0.8")}
    assert len(found.columns) == 2


def test_methods_with_equal_answers_are_all_marked_as_best_and_noted_once() -> None:
    again = [*STEADY[3:], *STEADY[:3]]
    same = {"random": STEADY, "biased": again}
    other = result("other", {"random": STEADY, "biased": [2, 1, 2, 2, 1, 2, 2, 2]})
    found = told(*(result(name, same) for name in ("a", "b", "c")), other)
    for column in ("wAcc-R", "wAcc-A"):
        assert {marks(found, column)[one] for one in ("a", "b", "c")} == {"best"}
    [note] = [note for note in found.notes if "twice" in note]
    assert "a, b and c" in note
    assert not any("twice" in note for note in told(result("a", same)).notes)


def test_an_interval_that_reaches_guessing_is_not_said_to_be_near_it() -> None:
    wide = {"random": STEADY, "biased": [0, 4, 0, 4, 1, 0, 4, 1]}
    *_, limit = told(result("wide", wide)).limits
    assert limit.startswith("wAcc-A of wide may be near what guessing gives (")
