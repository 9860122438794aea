"""Breakdowns against values worked by hand, and those of runs, from their folders alone."""

from __future__ import annotations

import dataclasses
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import fsframework as fsf
from fsf_statistics import breakdown, harmful_pairs
from fsf_statistics.breakdowns import described_images
from fsf_statistics.crossed import crossed
from fsframework.errors import DataError, OptionError
from fsframework.values import (
    ArmOutcomes,
    Arms,
    AttributeTable,
    Contrast,
    ImagePool,
    Outcomes,
    TaskSet,
)

KEYS = tuple("abcdefgh")
PLACES = ("lake", "lake", "hill", "hill") * 2
TABLE = AttributeTable.from_words(
    KEYS,
    [{"grass"}, {"grass"}, {"sofa"}, {"sofa", "grass"}, {"sofa"}, {"sofa"}, {"grass"}, set()],
)
POOL = ImagePool(KEYS, np.repeat([0, 1], 4), ("cat", "dog"), {"context": PLACES}, TABLE)

QUERIES = [[[1, 2], [5, 6]], [[2, 3], [6, 7]], [[1, 3], [5, 7]]]


def tasks_of(attribute: list[list[int]] | None = None, *, arm: str = "random") -> TaskSet:
    """Three tasks of two classes, one support image and two queries each."""
    classes, support, query = np.tile([0, 1], (3, 1)), [[[0], [4]]] * 3, QUERIES
    tasks = TaskSet.of(
        POOL, classes, np.array(support), np.array(query), sampler="toy", options={}, seed=0
    )
    if attribute is not None:
        tasks = tasks.with_attributes(TABLE, np.array(attribute))
    return dataclasses.replace(tasks, arm=arm)


def answered(tasks: TaskSet, right: list[list[list[int]]]) -> Outcomes:
    truth = np.arange(2)[None, :, None]
    return Outcomes.of(tasks, np.where(np.array(right) == 1, truth, 1 - truth))


RIGHT = [[[1, 1], [0, 1]], [[0, 1], [1, 1]], [[1, 0], [0, 0]]]
ONE = ArmOutcomes({"random": answered(tasks_of(), RIGHT)}, Arms({"random": tasks_of()}))


OTHER = [[[1, 0], [0, 1]], [[0, 0], [1, 0]], [[1, 0], [0, 0]]]
THIRD = [[[1, 1], [1, 1]], [[1, 0], [0, 0]], [[0, 1], [1, 1]]]


def models(*right: tuple[list, list], paired: bool) -> list[ArmOutcomes]:
    """Models of the same two arms, by what each answers in them."""
    both = {"random": tasks_of(), "biased": tasks_of(arm="biased")}
    arms = Arms(both, Contrast("random", "biased", paired))
    return [
        ArmOutcomes(
            {arm: answered(both[arm], own) for arm, own in zip(both, one, strict=True)}, arms
        )
        for one in right
    ]


def test_class_accuracies_are_means_over_tasks_with_students_interval() -> None:
    cat, dog = breakdown(ONE, "class", pool=POOL).rows
    assert (cat.names, cat.arm, cat.n_tasks, cat.n_queries, cat.n_images) == (
        ("cat",), "random", 3, 6, 3,
    )  # fmt: skip
    assert cat.estimate.value == pytest.approx(4 / 6)
    # accuracies 1, 1/2, 1/2: sd 0.288675
    half = stats.t.ppf(0.975, 2) * 0.2886751 / math.sqrt(3)
    assert cat.estimate.high - cat.estimate.value == pytest.approx(half, rel=1e-6)
    assert dog.estimate.value == pytest.approx(0.5)
    assert (cat.p, cat.p_corrected) == (None, None)


def test_words_present_in_queries_count_each_query_as_often_as_it_is_asked() -> None:
    grass, sofa = breakdown(ONE, "attribute", question="present", pool=POOL).rows
    # b, g in task 0; d, g in task 1; b, d in task 2: 1 1 | 1 1 | 1 0
    assert (grass.names, grass.n_queries, grass.n_tasks, grass.n_images) == (("grass",), 6, 3, 3)
    assert grass.estimate.value == pytest.approx(5 / 6)
    # c, f | c, d | d, f: 1 0 | 0 1 | 0 0
    assert sofa.estimate.value == pytest.approx(2 / 6)


def test_pairs_join_class_and_word() -> None:
    found = breakdown(ONE, "pair", question="present", pool=POOL)
    assert found.row_names == ("class", "word")
    values = {row.names: (row.estimate.value, row.n_queries, row.n_tasks) for row in found.rows}
    assert values == {
        ("cat", "grass"): (pytest.approx(3 / 4), 4, 3),
        ("cat", "sofa"): (pytest.approx(2 / 4), 4, 3),
        ("dog", "grass"): (1.0, 2, 2),
        ("dog", "sofa"): (0.0, 2, 2),
    }


def test_contexts_come_from_a_column() -> None:
    found = breakdown(ONE, "context", pool=POOL)
    values = {row.names[0]: (row.estimate.value, row.n_queries) for row in found.rows}
    # lake: b, f | | b, f; hill: c, g | c, d, g, h | d, h
    assert values == {"lake": (2 / 4, 4), "hill": (pytest.approx(5 / 8), 8)}
    with pytest.raises(DataError, match="no such column; it has context"):
        breakdown(ONE, "context", column="where", pool=POOL)


def test_tied_words_need_tasks_that_tie_some() -> None:
    with pytest.raises(OptionError, match="no class of these tasks is tied to a word"):
        breakdown(ONE, "attribute", pool=POOL)
    tied = tasks_of([[0, 1], [0, 1], [1, 0]], arm="biased")
    outcomes = ArmOutcomes({"biased": answered(tied, RIGHT)}, Arms({"biased": tied}))
    found = breakdown(outcomes, "attribute", pool=POOL)
    values = {row.names[0]: (row.estimate.value, row.n_tasks) for row in found.rows}
    assert values == {"grass": (pytest.approx(3 / 6), 3), "sofa": (pytest.approx(4 / 6), 3)}


@pytest.mark.parametrize("paired", [False, True])
def test_a_gap_is_welchs_or_paired_and_corrected_for_the_number_of_gaps(paired: bool) -> None:
    [outcomes] = models((RIGHT, OTHER), paired=paired)
    gap = breakdown(outcomes, "class", pool=POOL).rows[2]
    first, second = np.array([1, 0.5, 0.5]), np.array([0.5, 0, 0.5])
    expected = stats.ttest_rel(first, second) if paired else stats.ttest_ind(
        first, second, equal_var=False
    )  # fmt: skip
    assert (gap.names, gap.arm, gap.estimate.paired) == (("cat",), "gap", paired)
    assert gap.estimate.value == pytest.approx(1 / 3)
    assert gap.p == pytest.approx(expected.pvalue)
    assert gap.p_corrected == pytest.approx(2 * expected.pvalue)
    assert gap.n_tasks == (3 if paired else 6)


def test_classes_that_are_relabelled_give_the_same_rows() -> None:
    pool = ImagePool(KEYS, 1 - POOL.labels, ("dog", "cat"), POOL.metadata, TABLE)
    tasks = dataclasses.replace(tasks_of(), classes=np.tile([1, 0], (3, 1)))
    outcomes = ArmOutcomes({"random": answered(tasks, RIGHT)}, Arms({"random": tasks}))
    for by in ("class", "pair"):
        one = breakdown(ONE, by, question="present", pool=POOL).rows
        other = breakdown(outcomes, by, question="present", pool=pool).rows
        told = [{row.names: row.to_json() for row in rows} for rows in (one, other)]
        assert told[0] == told[1]


def test_words_of_a_placebo_are_those_of_other_images_of_the_class() -> None:
    tasks = dataclasses.replace(tasks_of(), placebo=True)
    shown = described_images(tasks, POOL)
    assert np.array_equal(POOL.labels[shown], POOL.labels[tasks.query])
    assert not np.array_equal(shown, tasks.query)
    assert np.array_equal(described_images(tasks_of(), POOL), tasks_of().query)


def test_a_breakdown_shows_itself() -> None:
    found = breakdown(ONE, "class", pool=POOL)
    assert repr(found).splitlines()[0].split() == [
        "class", "arm", "accuracy", "tasks", "queries", "images", "p", "(Holm)",
    ]  # fmt: skip
    assert "<td>cat</td>" in found._repr_html_()
    assert found.to_json()["rows"][0]["names"] == ["cat"]


def test_what_is_asked_for_must_exist() -> None:
    bare = ImagePool(KEYS, POOL.labels, POOL.class_names)
    for by, question, pool, error, part in (
        ("clas", "tied", POOL, OptionError, "class, attribute, pair, context"),
        ("pair", "there", POOL, OptionError, "tied, present"),
        ("attribute", "present", bare, DataError, "no words"),
    ):
        with pytest.raises(error, match=part):
            breakdown(ONE, by, question=question, pool=pool)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("by", ["class", "pair"])
def test_equal_models_have_the_interval_of_one(by: str, paired: bool) -> None:
    first, second = models((RIGHT, OTHER), (RIGHT, OTHER), paired=paired)
    one = breakdown(first, by, question="present", pool=POOL).rows
    both = breakdown([first, second], by, question="present", pool=POOL).rows
    assert {row.estimate.n_seeds for row in both} == {2}
    for row, alone in zip(both, one, strict=True):
        for name in ("names", "arm", "n_tasks", "n_queries", "n_images"):
            assert getattr(row, name) == getattr(alone, name)
        assert (row.p is None) == (alone.p is None)
        for name in ("value", "low", "high"):
            found, expected = (getattr(r.estimate, name) for r in (row, alone))
            assert found == pytest.approx(expected, nan_ok=True)
        if alone.p is not None:
            assert row.p == pytest.approx(alone.p, rel=1e-6)
            assert row.p_corrected == pytest.approx(alone.p_corrected, rel=1e-6)


@pytest.mark.parametrize("paired", [False, True])
def test_seeds_and_tasks_are_crossed(paired: bool) -> None:
    first, *others = models((RIGHT, OTHER), (THIRD, RIGHT), (OTHER, OTHER), paired=paired)
    rows = breakdown([first, *others], "class", pool=POOL).rows
    cells = {
        arm: np.array([np.mean(right, axis=2)[:, 0] for right in answers])
        for arm, answers in (("random", (RIGHT, THIRD, OTHER)), ("biased", (OTHER, RIGHT, OTHER)))
    }
    random, biased = cells["random"], cells["biased"]
    gap = {("m", "pairs"): random - biased}
    if not paired:
        gap = {("m", "random"): random, ("m", "biased"): -biased}
    expected = [crossed({("m", "t"): random}), crossed({("m", "t"): biased}), crossed(gap)]
    assert [row.arm for row in rows[:3]] == ["random", "biased", "gap"]
    for row, by_hand in zip(rows[:3], expected, strict=True):
        found = row.estimate
        assert (found.value, found.low, found.high) == pytest.approx(
            (by_hand.value, by_hand.low, by_hand.high)
        )
        assert found.seed_deviation == pytest.approx(by_hand.seed_deviation)
    assert rows[2].p == pytest.approx(expected[2].p)


def test_one_task_gives_no_interval() -> None:
    tasks = tasks_of()[:1]
    both = [
        ArmOutcomes({"random": answered(tasks, right[:1])}, Arms({"random": tasks}))
        for right in (RIGHT, OTHER)
    ]
    for of, value in ((both[0], 1.0), (both, 0.75)):
        cat = breakdown(of, "class", pool=POOL).rows[0].estimate
        assert (cat.value, math.isnan(cat.low)) == (value, True)


PLANTED = {"name": "planted", "n_per_class": 12, "size": 16}


def ran(folder: Path, **more: object) -> fsf.Run:
    return fsf.run(
        method="ncc", sampler="fewstab", tasks=40, way=3, shot=1, queries=3, dataset=PLANTED,
        training={"epochs": 0}, recipe="none", runs_dir=folder / "runs", cache_dir=folder / "cache",
        progress=False, device="cpu", image_size=16, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fsf.Run:
    return ran(tmp_path_factory.mktemp("runs"))


def test_a_run_keeps_its_images_and_words(run: fsf.Run) -> None:
    pool = fsf.pool(PLANTED)
    assert (run.pool.keys, run.pool.fingerprint) == (pool.keys, pool.fingerprint)
    assert run.pool.attributes.fingerprint == pool.attributes.fingerprint


def test_images_or_words_of_another_run_are_refused(run: fsf.Run, tmp_path: Path) -> None:
    folder = tmp_path / run.name
    shutil.copytree(run.folder, folder)
    fsf.pool({**PLANTED, "seed": 1}).attributes.save(folder / "words.parquet")
    with pytest.raises(DataError, match="not drawn with its words"):
        _ = fsf.load_run(folder).pool
    fsf.pool(PLANTED, split="val").save(folder / "images.parquet")
    with pytest.raises(DataError, match="not drawn from its images"):
        _ = fsf.load_run(folder).pool


def test_parts_and_whole_agree(run: fsf.Run) -> None:
    found = breakdown(run, "class")
    for arm, outcomes in run.outcomes.items():
        rows = [row for row in found.rows if row.arm == arm]
        right = sum(row.estimate.value * row.n_queries for row in rows)
        assert sum(row.n_queries for row in rows) == outcomes.predictions.size
        assert right / outcomes.predictions.size == pytest.approx(outcomes.task_accuracy.mean())
    by_name = breakdown(run.folder, "class")
    assert by_name.to_json() == found.to_json()


def test_outcomes_need_a_pool(run: fsf.Run) -> None:
    with pytest.raises(OptionError, match="give pool"):
        harmful_pairs(run.outcomes)
    found = harmful_pairs(run.outcomes, pool=run.pool)
    assert found.to_json() == harmful_pairs(run).to_json()
    assert np.isfinite([row.p for row in found.tested]).all()


def test_runs_over_seeds_have_a_breakdown_and_no_harmful_pairs(run: fsf.Run) -> None:
    again = ran(run.folder.parent.parent, seeds=[0, 1])
    found = breakdown(again, "class")
    alone = [breakdown(one, "class").rows for one in again.runs]
    for row, *own in zip(found.rows, *alone, strict=True):
        assert row.estimate.value == pytest.approx(np.mean([one.estimate.value for one in own]))
        assert row.estimate.n_seeds == 2
    with pytest.raises(OptionError, match="2 training seeds: give one of the runs"):
        harmful_pairs(again)
