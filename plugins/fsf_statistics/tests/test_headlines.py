"""The answer first: sentences, one table, marks and bars, of made-up answers and of real runs."""

from __future__ import annotations

import numpy as np
import pytest

import fsf_statistics
import fsframework as fsf
from fsf_statistics.task_sets import tasks_told_apart
from fsframework.api.headlines import Headline, HeadlineEntry, HeadlineTable
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


def told(*results: MethodResult) -> Headline:
    return fsf_statistics.headline(results)


STEADY = [0, 0, 1, 0, 1, 0, 0, 1]
"""Mean of the worst class: 1 - 3/32."""


def test_one_method_loses_what_its_arms_differ_by() -> None:
    found = told(result("leaner", {"random": STEADY, "biased": [3, 4, 3, 4, 3, 3, 4, 4]}))
    control, tested = 1 - 3 / 32, 1 - 28 / 32
    assert found.table.columns == ("Acc-R", "wAcc-R", "wAcc-A", "gap")
    values = [entry.estimate.value for entry in found.table.entries]
    assert values == pytest.approx([(1 + control) / 2, control, tested, control - tested])
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
    assert found.sentences[0].startswith("b has the smallest wAcc gap, 0.0 ± ")
    assert "; c " in found.sentences[0]
    assert found.sentences[1].startswith("a has the largest, 78.1 ± ")


def test_what_cannot_be_distinguished_from_the_smallest_is_not_called_the_largest() -> None:
    found = told(
        result("even", {"random": STEADY, "biased": STEADY}),
        result("worse", {"random": STEADY, "biased": [*STEADY[:2], *(n + 1 for n in STEADY[2:])]}),
        result("unsteady", {"random": STEADY, "biased": [*STEADY[:6], 4, 4]}),
    )
    first, second = found.sentences[:2]
    assert first.startswith("even has the smallest")
    assert "; unsteady cannot be distinguished" in first
    assert second.startswith("worse has the largest of the others, 18.")


def test_a_small_gap_of_a_method_that_answers_worse_is_no_merit() -> None:
    found = told(
        result("poor", {"random": [4] * 7 + [3], "biased": [4] * 8}),
        result("good", {"random": STEADY, "biased": [2, 2, 1, 2, 2, 1, 2, 2]}),
    )
    assert "wAcc-R of poor is 87.5 points worse than that of good" in found.sentences[-1]


def test_marks_hold_within_equal_tasks_only() -> None:
    one = result("a", {"random": STEADY, "biased": STEADY})
    other = result("b", {"random": [4] * 8, "biased": [4] * 8}, seed=1)
    found = told(one, other)
    assert {entry.mark for entry in found.table.entries} == {""}
    assert found.sentences[0].startswith("On set 1: ")
    more = result("c", {"random": [4] * 9, "biased": [4] * 9})
    assert told(one, more).sentences[1].startswith("On 9 tasks: No loss of wAcc")


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


def test_the_table_aligns_decimals_and_leaves_out_columns_before_the_last_three() -> None:
    values = {"Acc": (9.5, 0.1), "R": (50.0, 10.0), "A": (5.0, 1.0), "gap": (45.0, 2.0)}
    entries = tuple(
        entry(f"method-{row}", column, value * row, half)
        for row in (1, 2)
        for column, (value, half) in values.items()
    )
    found = Headline((), HeadlineTable(("method",), entries))
    lines = found.text(80).splitlines()
    assert lines[0].split() == ["method", "Acc", "R", "A", "gap"]
    assert lines[1].startswith("method-1   9.5 ± 0.1")
    assert lines[2].startswith("method-2  19.0 ± 0.1")
    assert "Acc" not in found.text(45)


def test_bars_share_a_scale_that_contains_zero() -> None:
    entries = tuple(
        entry(f"m{value}", "gap", value, 2) if value else HeadlineEntry(("m0",), "gap", "m0", None)
        for value in (8, -2, 0)
    )
    table = HeadlineTable(("method",), entries)
    _, *rows = Headline((), table).text(35).splitlines()
    first, second, none = (row[20:] for row in rows)
    assert none == ""
    assert first.index("╎") == second.index("┤") == 4
    assert (first.index("├"), first.index("●"), first.index("┤")) == (10, 12, 14)


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
    assert found.table.columns == ("Acc-R", "wAcc-R", "wAcc-A", "gap")
    for entry in found.table.entries:
        assert entry.estimate is not None
        own = runs[entry.row[0]].estimates[entry.estimate.name]
        assert entry.estimate.value == pytest.approx(own.value)
        assert entry.estimate.half_width == pytest.approx(own.half_width)
    gap = compared["wacc-gap"]
    best, *others = sorted(gap.values, key=lambda label: gap.values[label].value)
    marks = {e.row[0]: e.mark for e in found.table.entries if e.column == "gap"}
    assert marks.pop(best) == "best"
    tied = {label: gap.pair(best, label)[0].p_holm >= 0.05 for label in others}
    assert {label: mark == "tied" for label, mark in marks.items()} == tied
    found = fsf_statistics.headline([runs["ncc"], runs["other tasks"]])
    assert found.table.row_names == ("method", "task_seed")
    assert {entry.mark for entry in found.table.entries} == {""}
