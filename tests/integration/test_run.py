"""`fsf run` from end to end: finished, reused, killed and resumed, dry, with outside statistics."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import fsframework
from fsframework.errors import RecordError
from fsframework.records import RunRecord, load_outcomes
from fsframework.values import TaskSet
from tests.conftest import Fsf
from tests.forked import started

QUICK = (
    "--dataset", "planted", "-o", "dataset.size=32", "-o", "dataset.n_per_class=40",
    "--shot", "1", "--queries", "5", "--tasks", "40",
    "-o", "training.epochs=3", "-o", "training.steps=4", "-o", "training.validation_tasks=5",
)  # fmt: skip


SMALL: dict[str, Any] = {
    "dataset": {"name": "planted", "size": 32, "n_per_class": 40},
    "shot": 1, "queries": 5, "tasks": 40, "progress": False,
    "training": {"epochs": 3, "steps": 4, "validation_tasks": 5},
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> fsframework.Run:
    """The run that `fsf run *QUICK` makes."""
    folder = tmp_path_factory.mktemp("whole")
    return fsframework.run(**SMALL, runs_dir=folder / "runs", cache_dir=folder / "cache")


@pytest.fixture
def finished(whole: fsframework.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished run in the folder of the test; what it computed is cached."""
    shutil.copytree(whole.folder.parent, tmp_path / "runs")
    monkeypatch.setenv("FSF_CACHE", str(whole.folder.parents[1] / "cache"))
    return tmp_path / "runs" / whole.name


def only_run(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "runs").glob("*/run.json")
    return path.parent


def test_a_run_says_what_it_found_and_a_second_one_reuses_it(fsf: Fsf, tmp_path: Path) -> None:
    first = fsf("run", *QUICK)
    assert first.returncode == 0, first.stderr
    for part in (
        *("Acc-R ", "wAcc-R", "wAcc-A", "gap = wAcc-R − wAcc-A", "40 tasks per arm"),
        *("3 epochs of 4 steps", "5-way 1-shot"),
    ):
        assert part in first.stdout, part
    folder = only_run(tmp_path)
    assert f"run: {folder}" in first.stdout
    for stage in ("train images", "training", "features", "random tasks"):
        assert f"{stage}: done in" in first.stderr
    before = {p: p.stat().st_mtime_ns for p in folder.iterdir()}
    second = fsf("run", *QUICK)
    assert second.returncode == 0
    assert second.stdout == first.stdout
    explained = fsf("run", *QUICK, "--explain").stdout
    for part in ("closed, student-t", "closed, welch-t"):
        assert part in explained
        assert part not in first.stdout
    assert "nothing to do" in second.stderr
    assert "training:" not in second.stderr
    assert {p: p.stat().st_mtime_ns for p in folder.iterdir()} == before


def test_the_record_tells_what_ran(fsf: Fsf, finished: Path) -> None:
    told = json.loads(fsf("run", *QUICK, "--json").stdout)
    assert (told["folder"], told["reused"]) == (str(finished), True)
    record = RunRecord.load(finished)
    assert record.status == "finished"
    drops = {"acc-drop", "wacc-drop"}  # where the control arm is above guessing
    assert set(told["estimates"]) - drops == {
        f"{s}-{k}" for s in ("acc", "wacc") for k in ("random", "biased", "gap")
    }
    sampler = record.components["sampler"]
    assert (sampler.options["n_shot"], sampler.origins["n_way"]) == (1, "default")
    kinds = {p.kind for p in record.plugins}
    assert kinds == {"backbone", "dataset", "method", "sampler", "statistic"}
    assert all(p.version for p in record.plugins)
    assert record.environment.torch
    assert record.environment.threads
    outcomes = load_outcomes(finished)
    biased = outcomes.arms["biased"]
    assert record.arms["biased"].digest == biased.digest == outcomes["biased"].task_digest
    assert (biased.seed, biased.sampler, biased.arm) == (0, "fewstab", "biased")
    assert outcomes.arms["random"].uniform
    assert not biased.uniform
    assert set(record.timings) >= {"tasks", "images", "training", "features", "evaluation-random"}
    shown = fsf("runs", "show", finished.name[:12], "--json")
    assert json.loads(shown.stdout)["fingerprint"] == record.fingerprint
    listed = json.loads(fsf("runs", "list", "--json").stdout)
    assert [row["status"] for row in listed] == ["finished"]
    assert "fsf-samplers 0.1.0" in fsf("runs", "show", finished.name).stdout


def test_a_new_statistic_needs_no_new_run_and_an_edited_one_is_computed_anew(
    fsf: Fsf, tmp_path: Path, finished: Path
) -> None:
    values = []
    for kind in ("max", "mean"):
        (tmp_path / "mine.py").write_text(
            "from fsframework.interfaces import Statistic\n"
            "class Mine(Statistic):\n"
            "    'Of mine.'\n"
            "    def per_task(self, outcomes):\n"
            f"        return outcomes.class_accuracy.{kind}(axis=1)\n"
        )
        options = ("--plugin", "mine.py", "--statistic", "wacc", "--statistic", "mine")
        done = fsf("run", *QUICK, *options, "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["reused"], told["folder"]) == (True, str(finished))
        assert "training" not in done.stderr
        values.append(told["estimates"]["mine-random"]["value"])
        least = told["estimates"]["wacc-random"]["value"]
    assert values[0] > values[1] > least


def test_another_kind_of_interval_needs_no_new_run(fsf: Fsf, finished: Path) -> None:
    found = {}
    for interval in ("student-t", "image-level", "bca", "image-level"):
        done = fsf("run", *QUICK, "--interval", interval, "--json")
        assert done.returncode == 0, done.stderr
        found[interval] = json.loads(done.stdout)["estimates"]
    assert len(list(finished.parent.iterdir())) == 1
    told = {
        i: [(one["estimator"], one["scope"]) for one in e.values() if not one["relative"]]
        for i, e in found.items()
    }
    closed = "closed"
    assert told["bca"] == [("bca", closed)] * 6
    # Attribute-biased tasks are not drawn uniformly, and their intervals stay as they are.
    level = [("image-level", "open"), ("student-t", closed), ("welch-t", closed)]
    assert told["image-level"] == level * 2
    length = {i: e["acc-random"]["high"] - e["acc-random"]["low"] for i, e in found.items()}
    assert length["image-level"] > 1.1 * length["student-t"]
    assert found["bca"]["acc-random"]["value"] == found["student-t"]["acc-random"]["value"]


def test_outcomes_of_other_weights_are_not_mixed_in(fsf: Fsf, finished: Path) -> None:
    folder = finished
    whole = RunRecord.load(folder)
    # As if the run had been killed after the first outcomes, its training having been another's.
    digests = {**whole.digests, "weights": "of another training"}
    dataclasses.replace(whole, status="unfinished", estimates={}, digests=digests).save(folder)
    (folder / "outcomes-biased.parquet").unlink()
    outcomes = folder / "outcomes-random.parquet"
    before = outcomes.stat().st_mtime_ns
    assert fsf("run", *QUICK).returncode == 0
    assert outcomes.stat().st_mtime_ns != before
    assert RunRecord.load(folder).estimates == whole.estimates
    assert RunRecord.load(folder).digests == whole.digests


def test_other_tasks_reuse_training_and_features(fsf: Fsf, finished: Path) -> None:
    more = fsf("run", *QUICK, "--seed", "0", "--tasks", "60")
    assert more.returncode == 0, more.stderr
    assert "training:" not in more.stderr
    assert "features:" not in more.stderr
    assert "random tasks: done" in more.stderr
    placebo = fsf("run", *QUICK, "--placebo")
    assert "training:" not in placebo.stderr
    assert "placebo" in placebo.stdout
    assert len(list(finished.parent.iterdir())) == 3


def test_outcomes_of_equal_tasks_are_shared_unless_queries_are_shown_by_class(
    fsf: Fsf, finished: Path
) -> None:
    first = RunRecord.load(finished).estimates
    other = fsf("run", *QUICK, "-o", "sampler.query=inter", "--json")
    assert "\nrandom tasks: " not in other.stderr
    assert "\nbiased tasks: " in other.stderr
    told = json.loads(other.stdout)["estimates"]
    assert told["wacc-random"] == first["wacc-random"].to_json()
    assert told["wacc-biased"]["value"] != first["wacc-biased"].value
    # Shown by class, every query is answered anew.
    by_class = fsf("run", *QUICK, "--query-batch", "class", "--explain")
    assert "\nrandom tasks: " in by_class.stderr
    assert "queries by class" in by_class.stdout
    [line] = [line for line in by_class.stdout.splitlines() if line.startswith("wAcc-A  ")]
    assert "class" in line.split()
    # ProtoNet answers each query by itself, so the protocol makes no difference to it.
    records = map(RunRecord.load, finished.parent.iterdir())
    [made] = [one for one in records if one.settings["query_batch"] == "class"]
    assert made.estimates["wacc-biased"].value == first["wacc-biased"].value


def test_a_task_file_can_be_evaluated(fsf: Fsf, tmp_path: Path) -> None:
    data = QUICK[:6]
    made = fsf(
        "tasks", "make", "t.safetensors", *data, "--shot", "2", "--queries", "4", "--tasks", "20"
    )
    assert made.returncode == 0, made.stderr
    beside = fsf("run", *QUICK, "--task-file", "t.safetensors")
    assert beside.returncode == 2
    assert "leave out sampler, way, shot, queries and number of tasks" in beside.stderr
    alone = (*data, *QUICK[12:])
    assert "5-way 2-shot, 4 queries" in fsf("run", *alone, "--task-file", "t.safetensors").stdout
    done = fsf("run", *alone, "--task-file", "t.safetensors", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told["estimates"]) == {"acc-biased", "wacc-biased"}
    arms = load_outcomes(Path(told["folder"])).arms
    assert arms["biased"].digest == TaskSet.load(tmp_path / "t.safetensors").digest


def test_a_method_in_a_script(fsf: Fsf) -> None:
    script = Path(__file__).parents[2] / "examples" / "mine.py"
    done = fsf(
        "run", *QUICK, "--plugin", script, "--method", "mine", "-o", "method.temperature=0.2"
    )
    assert done.returncode == 0, done.stderr
    assert "\nmine with conv64f on planted" in done.stdout


def test_dry_run_prints_every_value_with_its_origin_and_runs_nothing(
    fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSF_SEED", "7")
    (tmp_path / "exp.toml").write_text(
        'tasks = 5\n[sampler]\nname = "fewstab"\nn_shot = 2\n[training]\nepochs = 2\n'
    )
    done = fsf("run", "--config", "exp.toml", "--shot", "3", "--dry-run")
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.rstrip() for line in done.stdout.splitlines() if line.strip()}
    for option, value, origin in (
        ("tasks", "5", "exp.toml"),
        ("sampler.n_shot", "3", "command line"),
        ("sampler.n_way", "5", "default"),
        ("task_seed", "7", "environment"),
        ("training_seed", "7", "environment"),
        ("training.epochs", "2", "exp.toml"),
        ("training.steps", "", "recipe quick"),
        ("training.momentum", "0.9", "default"),
    ):
        assert rows[option].split()[1].startswith(value)
        assert rows[option].endswith(origin)
    assert not (tmp_path / "runs").exists()
    assert {path.name for path in (tmp_path / "cache").glob("*")} <= {"plugins"}
    as_json = json.loads(fsf("run", "--config", "exp.toml", "--dry-run", "--json").stdout)
    assert as_json["resolved"]["tasks"] == 5
    assert as_json["origins"]["tasks"] == "exp.toml"


@pytest.mark.slow
@pytest.mark.parametrize(
    "moments", [range(0, 10, 3), pytest.param(range(10), marks=pytest.mark.slow)]
)
def test_killed_at_many_moments_a_run_leaves_nothing_or_an_unfinished_record(
    tmp_path: Path, fsf: Fsf, whole: fsframework.Run, moments: range
) -> None:
    """Each start is killed a little later into the work than the one before it, then resumed."""
    cache, states = tmp_path / "cache", []
    # First as soon as an epoch has been written down.
    process = started(tmp_path, "run", *QUICK)
    while process.poll() is None and not [*cache.glob("training/*/checkpoint.safetensors")]:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() != 0, "it ended before it could be killed"
    assert not [*cache.glob("training/*/weights.safetensors")]
    for moment in moments:
        process = started(tmp_path, "run", *QUICK)
        # The clock starts with the first file of this start, since imports take most of its time.
        before = newest(cache)
        while process.poll() is None and newest(cache) == before:
            time.sleep(0.01)
        appeared = time.monotonic()
        while process.poll() is None and time.monotonic() - appeared < 0.12 * moment:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for folder in (tmp_path / "runs").glob("*"):
            try:
                states.append(RunRecord.load(folder).status)
            except RecordError:
                assert not (folder / "run.json").exists()
                states.append("nothing")
    resumed = fsf("run", *QUICK, "--json")
    assert resumed.returncode == 0, resumed.stderr
    record = RunRecord.load(only_run(tmp_path))
    assert record.status == "finished"
    assert record.digests == whole.record.digests
    assert record.estimates == whole.record.estimates
    assert not list(only_run(tmp_path).glob(".*.tmp"))
    assert set(states) <= {"unfinished", "finished", "nothing"}


def newest(folder: Path) -> tuple[int, int]:
    files = [p for p in folder.rglob("*") if p.is_file()]
    return len(files), sum(p.stat().st_size for p in files if p.exists())


def test_interrupted_by_the_user_says_how_to_go_on(tmp_path: Path) -> None:
    process = started(tmp_path, "run", *QUICK, "-o", "training.epochs=500")
    while process.poll() is None and "\ntraining:" not in process.said()[1]:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    told = process.said()[1].splitlines()[-1]
    assert told == "fsf: interrupted; run the same command again to resume"
    assert RunRecord.load(only_run(tmp_path)).status == "unfinished"
