"""`fsf.compare` as a script uses it: runs, names, folders and outcomes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fsframework as fsf
from fsf_statistics.accuracies import TaskAccuracies
from fsf_statistics.imported_runs import import_accuracies
from fsframework.errors import DataError, OptionError, RecordError
from fsframework.interfaces import Statistic
from fsframework.values import ArmOutcomes, Arms, FloatArray, Outcomes

DATA = {"name": "planted", "n_per_class": 20, "size": 16}


class RangeGap(Statistic):
    """How far the best class is from the worst, the lower the better."""

    name = "range-gap"
    higher_is_better = False

    def __init__(self, *, power: float = 1.0) -> None:
        self.power = power

    def per_task(self, outcomes: Outcomes) -> FloatArray:
        accuracy = outcomes.class_accuracy
        return (accuracy.max(axis=1) - accuracy.min(axis=1)) ** self.power


@pytest.fixture(scope="module")
def pool() -> fsf.ImagePool:
    return fsf.pool(DATA)


@pytest.fixture(scope="module")
def arms(pool: fsf.ImagePool) -> Arms:
    return fsf.draw("fewstab", pool, tasks=30, shot=1, queries=4)


def answers(arms: Arms, accuracy: float, seed: int) -> ArmOutcomes:
    rng = np.random.default_rng(seed)
    found = {}
    for name, tasks in arms.items():
        truth = np.arange(tasks.n_way)[None, :, None]
        right = rng.random(tasks.query.shape) < accuracy
        found[name] = Outcomes.of(tasks, np.where(right, truth, (truth + 1) % tasks.n_way))
    return ArmOutcomes(found, arms)


@pytest.fixture(scope="module")
def two(arms: Arms) -> dict[str, ArmOutcomes]:
    return {"good": answers(arms, 0.8, 0), "poor": answers(arms, 0.5, 1)}


def test_gaps_near_guessing_and_of_unlike_methods_are_compared_with_a_caution(two, arms) -> None:
    knows_nothing = {"a": answers(arms, 0.2, 2), "b": answers(arms, 0.2, 3)}
    for shown in (fsf.compare(knows_nothing, "gap"), fsf.compare(knows_nothing, "gap")["wacc-gap"]):
        assert "a, b is near what guessing gives" in repr(shown)
        assert "a, b is near what guessing gives" in shown._repr_html_()
    [unlike] = fsf.compare(two, "gap")
    assert any("do not rank" in limit for limit in unlike.limits)
    assert {*unlike.limits} <= {*unlike.to_json()["notes"]}
    assert not fsf.compare(two, "wacc-random")[0].limits


def test_outcomes_are_compared_in_every_arm_and_in_the_gap(two, arms) -> None:
    found = fsf.compare(two)
    names = [part.measure.name for part in found]
    assert names == ["acc-random", "acc-biased", "wacc-random", "wacc-biased", "wacc-gap"]
    (pair,) = found["acc-random"].pairs
    differences = two["good"]["random"].task_accuracy - two["poor"]["random"].task_accuracy
    assert pair.difference.value == pytest.approx(differences.mean())
    assert (pair.first, pair.paired, pair.p == pair.p_holm == pair.p_bh) == ("good", "+", True)
    assert found["wacc-gap"].values["good"].arms == ("random", "biased")


def test_a_statistic_of_a_script_keeps_its_name_and_its_direction(two) -> None:
    found = fsf.compare(two, [RangeGap(power=2.0), "range-gap-gap"])
    names = [part.measure.name for part in found]
    assert names == ["range-gap-random", "range-gap-biased", "range-gap-gap"]
    values = {name: found[name].values["good"].value for name in names}
    assert values["range-gap-gap"] == pytest.approx(
        values["range-gap-biased"] - values["range-gap-random"]
    )
    with pytest.raises(OptionError, match=r"no measure is called 'range-gp' \(did you mean"):
        fsf.compare(two, [RangeGap, "range-gp"])


def test_intervals_over_images_need_the_pool_and_uniform_tasks(two, pool) -> None:
    with pytest.raises(DataError, match="give pool"):
        fsf.compare(two, "acc-random", interval="image-level")
    found = fsf.compare(two, ["acc-random", "acc-biased"], interval="image-level", pool=pool)
    assert found["acc-random"].pairs[0].difference.scope == "open"
    assert {e.scope for e in found["acc-random"].other_scope.values()} == {"closed"}
    assert found["acc-biased"].pairs[0].difference.scope == "closed"
    assert "does not draw classes and images uniformly" in found["acc-biased"].notes[-1]


def test_runs_are_given_themselves_by_folder_by_name_or_all_of_a_folder(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    measured = {"a": np.array([0.5, 0.7, 0.8, 0.6]), "b": np.array([0.4, 0.7, 0.6, 0.5])}
    read = [
        TaskAccuracies(name, "birds", values, tmp_path / "birds.csv", "open")
        for name, values in measured.items()
    ]
    made, _ = import_accuracies(read, runs)
    wanted = fsf.compare(made)
    assert [part.measure.name for part in wanted] == ["acc-tasks"]
    assert wanted[0].scope == "open"
    assert "without wacc-tasks" in wanted.notes[0]
    for given in ([run.folder for run in made], ["a-birds", "b-birds"], [runs], runs):
        assert fsf.compare(given, runs_dir=runs).to_json() == wanted.to_json()
    named = fsf.compare({"mine": made[0], "theirs": "b-birds"}, runs_dir=runs)
    assert list(named[0].values) == ["mine", "theirs"]
    with pytest.raises(DataError, match="wacc-tasks cannot be compared: .* without predictions"):
        fsf.compare(made, "wacc")
    [again, _], _ = import_accuracies(read, runs)
    assert (again.reused, again.folder) == (True, made[0].folder)


def test_what_cannot_be_compared_is_refused(two, arms, pool, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at least two methods on equal tasks, and there is only"):
        fsf.compare({"good": two["good"]})
    with pytest.raises(OptionError, match="outcomes have no name"):
        fsf.compare(list(two.values()))
    with pytest.raises(OptionError, match="baseline='x': must be one of good, poor"):
        fsf.compare(two, baseline="x")
    with pytest.raises(RecordError, match="no run 'nothing'"):
        fsf.compare(["nothing"], runs_dir=tmp_path)
    other = fsf.draw("fewstab", pool, tasks=30, shot=1, queries=4, seed=1)
    elsewhere = {**two, "late": answers(other, 0.6, 2)}
    with pytest.raises(DataError, match="good and late were evaluated on different tasks"):
        fsf.compare(elsewhere)
    found = fsf.compare(elsewhere, "acc", by_tasks=True)
    assert {label for part in found for label in part.values} == {"good", "poor"}
    assert found.notes == ("no other method was tested on the tasks of late",)
