"""Two seeds: those of tasks and those of training, and runs of several of the latter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsframework as fsf_api
from fsframework.errors import DataError, OptionError, RecordError
from tests.conftest import Fsf

TINY: Mapping[str, Any] = {
    "method": "protonet", "sampler": "fewstab", "way": 3, "shot": 1, "queries": 3, "tasks": 20,
    "dataset": {"name": "planted", "n_per_class": 12, "size": 16}, "progress": False,
    "training": {"epochs": 1, "steps": 2, "validation_tasks": 2},
}  # fmt: skip
COMMAND = (
    "run", "--method", "protonet", "--way", "3", "--shot", "1", "--queries", "3", "--tasks", "20",
    "-o", "dataset.n_per_class=12", "-o", "dataset.size=16", "-o", "training.epochs=1",
    "-o", "training.steps=2", "-o", "training.validation_tasks=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("seeds")
    return {"runs_dir": folder / "runs", "cache_dir": folder / "cache"}


@pytest.fixture(scope="module")
def group(place: dict[str, Path]) -> fsf_api.Run:
    return fsf_api.run(**TINY, **place, seeds="0,3")


def test_seeds_are_runs_of_their_own_on_the_same_tasks(group, place) -> None:
    first, second = group.runs
    assert (group.seeds, [run.reused for run in group.runs]) == ((0, 3), [False, False])
    for arm in ("random", "biased"):
        assert first.tasks[arm].digest == second.tasks[arm].digest
    assert first.record.digests["weights"] != second.record.digests["weights"]
    assert first.record.group == second.record.group != ""
    again = fsf_api.run(**TINY, **place, training_seed=3)
    assert (again.folder, again.reused) == (second.folder, True)
    assert again.record.given["training_seed"] == 3
    assert second.record.settings["task_seed"] == 0
    # Both seeds as one: today's runs keep their folders.
    assert fsf_api.run(**TINY, **place, seed=0).folder == first.folder


def test_estimates_over_seeds_hold_both_sources_of_variance(group) -> None:
    own = [run.outcomes["random"].task_accuracy for run in group.runs]
    found = group.estimates["acc-random"]
    assert found.value == pytest.approx(np.mean(own))
    assert (found.n_seeds, found.n_tasks, found.estimator) == (2, 20, "crossed-t")
    assert found.seed_deviation is not None
    gap, own = group.estimates["wacc-gap"], [run.estimates["wacc-gap"] for run in group.runs]
    assert (gap.value, gap.n_tasks) == (pytest.approx(np.mean([one.value for one in own])), 40)
    assert list(group.estimates) == list(group.runs[0].estimates)
    assert "two seeds say little" in group.notes[0]
    own = [note for run in group.runs for note in run.record.notes]
    assert own
    assert all(any(note in told for told in group.notes) for note in own)
    single = group.runs[0]
    assert {*single.record.notes} <= {*single.notes}
    assert all(note in repr(single) for note in single.notes)
    # Where the control arm is near guessing there is no drop, and the notes say why.
    near = single.estimates["wacc-random"].near_guessing
    assert near == ("wacc-drop" not in single.estimates)
    assert near == any("wAcc-R" in note and "drop" in note for note in single.notes)
    assert "between seeds" in repr(group)
    with pytest.raises(DataError, match="choose one of its runs"):
        group.model()
    assert fsf_api.estimate(group, ["acc", "wacc"]) == group.estimates
    with pytest.raises(OptionError, match="interval='bca' is for one model per method"):
        fsf_api.estimate(group, interval="bca")
    assert group.to_json()["estimates"]["acc-random"]["n_seeds"] == 2


def test_other_tasks_share_the_weights_and_are_another_group(group, place) -> None:
    other = fsf_api.run(**TINY, **place, task_seed=1)
    assert other.record.digests["weights"] == group.runs[0].record.digests["weights"]
    assert other.record.timings["training"] < group.runs[0].record.timings["training"]
    assert other.record.group != group.record.group
    found = fsf_api.Runs([other, *group.runs, group.runs[1]]).over_seeds()
    assert [one.seeds for one in found] == [(0,), (0, 3)]
    assert found[0].estimates == other.estimates


def test_models_of_several_seeds_stay_a_group_on_other_data(group, place) -> None:
    other = {key: TINY[key] for key in ("sampler", "way", "shot", "queries", "tasks", "progress")}
    other |= {"dataset": {"name": "planted", "n_per_class": 10, "size": 16, "seed": 1}}
    runs = [fsf_api.run(**other, **place, model=run.folder, seed=8) for run in group.runs]
    assert [run.record.training_seed for run in runs] == [0, 3]
    [found] = fsf_api.Runs(runs).over_seeds()
    assert found.estimates["acc-biased"].n_seeds == 2
    with pytest.raises(OptionError, match="was trained with the seed 3; leave out training_seed"):
        fsf_api.run(**other, **place, model=group.runs[1].folder, training_seed=5)
    with pytest.raises(OptionError, match="there are no training seeds; leave out seeds"):
        fsf_api.run(**other, **place, model=group.runs[1].folder, seeds=range(2))


def test_runs_of_seeds_are_compared_as_one_method(group, place) -> None:
    ncc = fsf_api.run(**{**TINY, "method": "ncc"}, **place)
    found = fsf_api.compare([*group.runs, ncc], ["acc-random", "wacc-gap"])
    for part in found:
        assert {label: e.n_seeds for label, e in part.values.items()} == {"protonet": 2, "ncc": 1}
        (pair,) = part.pairs
        assert pair.difference.estimator == "crossed-t"
        for name in ("value", "low", "high", "seed_deviation"):
            expected = getattr(group.estimates[part.measure.name], name)
            assert getattr(part.values["protonet"], name) == pytest.approx(expected)
    assert "ncc: one seed, so intervals and differences hold for these weights only" in repr(found)
    with pytest.raises(OptionError, match="interval='bca' is for one model per method"):
        fsf_api.compare([*group.runs, ncc], interval="bca")
    named = fsf_api.compare({"mine": group, "other": ncc}, "acc-random")["acc-random"]
    assert {label: one.n_seeds for label, one in named.values.items()} == {"mine": 2, "other": 1}
    assert named.pairs[0].p == fsf_api.compare([group, ncc], "acc-random").pairs[0].p
    # Labels that the user gives keep the models apart.
    apart = fsf_api.compare({"a": group.runs[0], "b": group.runs[1]}, "acc-random")
    assert apart["acc-random"].pairs[0].difference.estimator == "student-t"


def test_a_group_needs_finished_runs_of_one_level(group, tmp_path: Path) -> None:
    first, second = group.runs
    unfinished = replace(first, record=replace(first.record, status="unfinished"))
    with pytest.raises(RecordError, match="is not finished; run the command that made it again"):
        fsf_api.Runs([unfinished, second]).over_seeds()
    settings = {**second.record.settings, "level": 0.9}
    other = replace(second, record=replace(second.record, settings=settings))
    with pytest.raises(OptionError, match="have the levels 90 % and 95 %"):
        fsf_api.Runs([first, other]).over_seeds()
    [joined] = fsf_api.Runs([first, other]).over_seeds(level=0.8)
    narrow = joined.estimates["acc-random"]
    assert narrow.half_width < group.estimates["acc-random"].half_width
    copied = replace(second, record=replace(second.record, fingerprint="another"))
    found = fsf_api.Runs([*group.runs, copied]).over_seeds()
    assert [one.seeds for one in found] == [(0, 3), (3,)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"training_seed": 1}, "training_seed"),
        ({"name": "mine"}, "name='mine'"),
        ({"interval": "bca"}, "interval='bca'"),
        ({"seeds": []}, "seeds"),
        ({"seeds": "0-1,1"}, "1 appears 2 times"),
        ({"seeds": [-1]}, "'-1'"),
        ({"seeds": "0--1"}, "'0--1'"),
        ({"seeds": "3-1"}, "3-1"),
        ({"seeds": True}, "'True'"),
        ({"training": {"epochs": -1}}, "training.epochs must be at least 0"),
    ],
)
def test_seeds_that_cannot_be(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=message):
        fsf_api.run(**{**TINY, "seeds": "0-1", **more})
    assert not (tmp_path / "runs").exists()


def test_a_seed_gives_way_to_a_more_specific_one_of_its_layer_or_a_stronger(
    fsf: Fsf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def seeds(*arguments: str) -> tuple[int, int]:
        done = fsf("run", "--dry-run", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)["resolved"]
        return found["task_seed"], found["training_seed"]

    (tmp_path / "exp.toml").write_text("seed = 1\ntraining_seed = 2\n")
    assert seeds("--config", "exp.toml") == (1, 2)
    assert seeds("--config", "exp.toml", "--task-seed", "5") == (5, 2)
    assert seeds("--config", "exp.toml", "--seed", "3") == (3, 3)
    assert seeds("--config", "exp.toml", "-o", "seed=3") == (3, 3)
    assert seeds("--seed", "3", "--training-seed", "4") == (3, 4)
    assert seeds("-o", "seed=3", "--training-seed", "4") == (3, 4)
    monkeypatch.setenv("FSF_SEED", "7")
    assert seeds("--config", "exp.toml") == (7, 7)
    assert seeds("--config", "exp.toml", "--training-seed", "4") == (7, 4)
    assert seeds("--seed", "0") == (0, 0)


def test_the_command_prints_estimates_over_seeds_first(fsf, group, place, monkeypatch):
    monkeypatch.setenv("FSF_RUNS", str(place["runs_dir"]))
    monkeypatch.setenv("FSF_CACHE", str(place["cache_dir"]))
    done = fsf(*COMMAND, "--seeds", "0,3", "--explain")
    assert (done.returncode, "nothing to do" in done.stderr) == (0, True)
    over_seeds, _, apart = done.stdout.partition("\nrun ")
    assert "between seeds" in over_seeds
    rows = [line.split()[:2] for line in apart.splitlines()[1:3]]
    assert rows == [[group.runs[0].name, "0"], [group.runs[1].name, "3"]]
    raw = json.loads(fsf(*COMMAND, "--seeds", "0,3", "--json").stdout)
    assert (raw["seeds"], [run["reused"] for run in raw["runs"]]) == ([0, 3], [True, True])
    assert raw["estimates"] == group.to_json()["estimates"]
    listed = json.loads(fsf("runs", "list", "--json", "training-seed=3,task-seed=0").stdout)
    assert [row["run"] for row in listed] == [group.runs[1].name]
    names = [run.name for run in group.runs]
    compared = fsf("compare", *names, "--statistic", "acc")
    assert (compared.returncode, "training seed" in compared.stderr) == (2, True)
    apart = fsf("compare", *(f"{name[-4:]}={name}" for name in names), "--statistic", "acc")
    assert apart.returncode == 0
