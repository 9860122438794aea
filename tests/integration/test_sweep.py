"""`fsf sweep`: a grid of experiments, each run once, by whoever takes it."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fsframework as fsf_api
from fsframework.errors import OptionError
from fsframework.interfaces import FewShotMethod, Statistic
from fsframework.records import RunRecord
from fsframework.values import FloatArray, Outcomes
from tests.forked import finished, started

Fsf = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.usefixtures("shared_cache")
SMALL = (
    *("--sampler", "random", "--way", "2", "--queries", "2", "--tasks", "10", "--device", "cpu"),
    *("-o", "dataset.n_per_class=8", "-o", "dataset.size=16", "-o", "training.epochs=0"),
)
GRID = ("--method", "ncc,protonet", "--shot", "1,2", *SMALL)


def results(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for path in (folder / "runs").glob("*/run.json"):
        record = RunRecord.load(path.parent)
        assert record.method is not None
        key = f"{record.method.name} {record.arms['random'].n_shot} {record.training_seed}"
        assert key not in found, "an experiment ran twice"
        found[key] = {**record.digests, "estimates": record.estimates, "status": record.status}
    return found


def test_every_combination_is_one_run(fsf: Fsf, tmp_path: Path) -> None:
    assert fsf("sweep", "--method", "ncc", "--shot", "1", *SMALL).returncode == 0
    before = sorted(tmp_path.rglob("*"))
    planned = fsf("sweep", *GRID, "--dry-run")
    assert "4 experiments: 1 finished, 3 to do" in planned.stdout, planned.stderr
    assert sorted(tmp_path.rglob("*")) == before, "a plan writes nothing"
    done = fsf("sweep", *GRID, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    found = results(tmp_path)
    assert sorted(found) == ["ncc 1 0", "ncc 2 0", "protonet 1 0", "protonet 2 0"]
    tags = [(row["tags"]["method"], row["tags"]["shot"]) for row in told["rows"]]
    assert tags == [("ncc", "1"), ("ncc", "2"), ("protonet", "1"), ("protonet", "2")]
    single = fsf("run", "--method", "ncc", "--shot", "2", *SMALL, "--json")
    assert json.loads(single.stdout)["reused"], "a sweep makes the runs that fsf run makes"
    again = fsf("sweep", *GRID, "--json")
    assert json.loads(again.stdout)["rows"] == told["rows"]
    # A line per method, with its number of seeds.
    done = fsf("sweep", "--method", "ncc,protonet", "--seeds", "0-1", "--shot", "1", *SMALL)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["method", "seeds", "Acc", "wAcc"]
    assert [line[:2] for line in lines[1:3]] == [["ncc", "2"], ["protonet", "2"]]


def test_a_row_that_nothing_trained_is_named_beside_a_trained_one(fsf: Fsf) -> None:
    little = ("-o", "training.steps=1", "-o", "training.validation_tasks=1", "--shot", "1")
    for epochs, told in (("1", ["ncc"]), ("0", [])):
        done = fsf("sweep", "--method", "ncc,protonet", "--recipe", "none", *little, *SMALL[:-2],
                   "-o", f"training.epochs={epochs}")  # fmt: skip
        assert done.returncode == 0, done.stderr
        said = [line for line in done.stdout.splitlines() if "nothing was trained" in line]
        assert [line.removeprefix("note: ").partition(":")[0] for line in said] == told


def test_rows_of_other_tasks_say_so(fsf: Fsf, tmp_path: Path) -> None:
    config = """
        [grid]
        method = ["ncc", "protonet"]
        [[overrides]]
        method = "ncc"
        [overrides.set]
        split = "all"
        tasks = 12
        sampler.n_way = 3
        """
    (tmp_path / "grid.toml").write_text(config)
    options = ("--sampler", "random", "--queries", "2", "--shot", "1", *SMALL[8:])
    done = fsf("sweep", "--config", "grid.toml", *options)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:5] == ["method", "way", "split", "tasks", "seeds"]
    assert lines[1].split()[:4] == ["ncc", "3", "all", "12"]
    assert done.stdout.count("compare those of equal tasks with fsf compare --by-tasks") == 1
    shots = fsf_api.sweep(
        method="ncc", runs_dir=tmp_path, **{**FEW, "shot": [1, 2], "training": {"epochs": 0}}
    )
    assert shots.table()[0][:2] == ["shot", "seeds"]
    assert "not all rows have the same tasks" in repr(shots)
    equal = fsf("sweep", "--method", "ncc,protonet", "--shot", "1", *SMALL)
    assert "not all rows" not in equal.stdout


def test_a_failing_experiment_hinders_no_other_and_is_tried_again(fsf: Fsf, tmp_path: Path) -> None:
    broken = ("--method", "ncc", "--shot", "1,7", *SMALL)  # 8 images per class: too few for 7 + 2
    done = fsf("sweep", *broken, "--name", "mine")
    assert done.returncode == 1
    assert "failed: shot 7: " in done.stdout
    assert "1 of 2 experiments finished, 1 failed" in done.stdout
    status = fsf("sweep", "status", "mine")
    assert "failed" in status.stdout
    assert "sweep mine: 2 experiments: 1 finished, 1 failed" in status.stdout
    again = fsf("sweep", *broken, "--name", "mine")
    assert again.returncode == 1
    assert "2 of 2: shot 7: failed: " in again.stderr
    assert len(results(tmp_path)) == 1


def test_a_file_has_lists_conditions_and_exclusions(fsf: Fsf, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(
        """
        tasks = 10
        [grid]
        method = ["ncc", { name = "r2d2", initial_alpha = 20.0 }]
        shot = [1, 2]
        [[exclude]]
        method = "ncc"
        shot = [2]
        [[overrides]]
        shot = 2
        [overrides.set]
        tasks = 12
        """
    )
    options = [one for one in SMALL if one not in ("--tasks", "10")]
    done = fsf("sweep", "--config", "grid.toml", *options, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    told = [(r["tags"]["method"], r["tags"]["shot"]) for r in rows]
    r2d2 = "r2d2 (initial_alpha=20.0)"
    assert told == [("ncc", "1"), (r2d2, "1"), (r2d2, "2")]
    records = [RunRecord.load(Path(row["folders"][0])) for row in rows]
    assert [record.arms["random"].n_tasks for record in records] == [10, 10, 12]
    assert records[1].components["method"].options["initial_alpha"] == 20.0
    # What is given now takes precedence.
    now = ("--method", "r2d2", "-o", "sampler.n_shot=1", "--dry-run")
    done = fsf("sweep", "--config", "grid.toml", *options, *now, "--json")
    assert done.returncode == 0, done.stderr
    assert [one["experiment"] for one in json.loads(done.stdout)["experiments"]] == [
        "the only experiment"
    ]


def test_other_weights_to_start_from_are_another_experiment(fsf: Fsf, tmp_path: Path) -> None:
    chosen = ("--method", "protonet", "--init-from", "start.safetensors", *SMALL, "--shot", "1")
    for seed in ("0", "1"):
        made = fsf("run", "--method", "protonet", *SMALL, "--shot", "1", "--seed", seed, "--json")
        weights = Path(json.loads(made.stdout)["folder"]) / "weights.safetensors"
        (tmp_path / "start.safetensors").write_bytes((tmp_path / weights).read_bytes())
        done = fsf("sweep", *chosen)
        assert done.stdout.splitlines()[-1].endswith(": 1 of 1 experiments finished"), seed


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--method", "ncc,,maml"), "'ncc,,maml'"),
        (("--method", "nccc,protone"), "'nccc'"),
        (("--method", "protonet,nccc"), "unknown method 'nccc'"),
        (("--method", "protonet,logistic", "-o", "method.c=3"), "method protonet: unknown option"),
        (("--seeds", "0-1", "-o", "training_seed=7"), "--seeds and --training-seed"),
        (("--shot", "1,2", "-o", "sampler.n_shot=2,3"), "--shot and sampler.n_shot"),
        (("--method", "ncc,protonet,ncc"), "--method: ncc"),
        (("--name", "../mine"), "--name"),
        (("--launcher", "nowhere"), "'nowhere'"),
        (("--config", "wrong.toml"), "exclude, number 1: 'methd'"),
        (("--config", "all.toml"), "all 2 experiments"),
        (("status", "unknown"), "unknown.json"),
    ],
)
def test_bad_input_is_one_sentence(
    fsf: Fsf, tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    grid = '[grid]\nmethod = ["ncc", "protonet"]\n[[exclude]]\n'
    (tmp_path / "wrong.toml").write_text(f'{grid}methd = "ncc"\n')
    (tmp_path / "all.toml").write_text(f'{grid}method = ["ncc", "protonet"]\n')
    done = fsf("sweep", *arguments)
    assert done.returncode == 2
    assert named in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def _words(folder: Path, *more: str) -> list[str]:
    where = ("--runs-dir", str(folder / "runs"), "--cache-dir", str(folder / "cache"))
    return ["sweep", *GRID, *where, *more]


def test_a_killed_sweep_goes_on_and_two_share_the_work(tmp_path: Path) -> None:
    alone = finished(tmp_path, *_words(tmp_path / "alone"))
    assert alone.returncode == 0, alone.stderr
    folder = tmp_path / "shared"
    killed = started(tmp_path, *_words(folder))
    while killed.poll() is None and not [*folder.glob("runs/*/run.json")]:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() != 0, "it ended before it could be killed"
    both = [started(tmp_path, *_words(folder)) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    tables = [process.said()[0].splitlines()[:5] for process in both]
    assert tables[0] == tables[1]
    assert results(folder) == results(tmp_path / "alone")
    logs = [path.read_text() for path in folder.glob("runs/sweeps/logs/*.jsonl")]
    assert [log.count('"status": "finished"') for log in logs] == [1] * 4


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]
)
def test_an_interrupted_sweep_leaves_no_worker(tmp_path: Path, number: signal.Signals) -> None:
    local = ("--launcher", "local", "-o", "launcher.processes=2", "-o", "launcher.threads=1")
    words = _words(tmp_path, *local, "-o", "training.epochs=1000")
    process = subprocess.Popen(
        [sys.executable, "-m", "fsframework", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    logs = tmp_path / "runs" / "sweeps" / "logs"

    def training() -> list[Path]:
        return [path for path in logs.glob("*.jsonl") if "epoch 1/1000" in path.read_text()]

    while len(training()) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    workers = [int(p.stem.rpartition("-")[2]) for p in tmp_path.glob("runs/sweeps/workers/*/*.txt")]
    assert len(workers) == 2
    process.send_signal(number)
    assert "interrupted; run the same command again to resume" in process.communicate()[1]
    assert process.returncode == 130
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


DYING = '''
"""A method that ends its process in each of its first trainings, in another epoch if it resumes."""

import os
from pathlib import Path

from fsf_methods.metric import ProtoNet

HERE = Path(__file__).parent


class Dying(ProtoNet):
    """ProtoNet."""

    steps = 0

    def loss(self, batch):
        type(self).steps += 1
        deaths = len(list(HERE.glob("death-*")))
        if deaths < int((HERE / "deaths.txt").read_text()) and type(self).steps == AT:
            (HERE / f"death-{deaths}").touch()
            os.kill(os.getpid(), 9)
        return super().loss(batch)
'''


@pytest.mark.slow
@pytest.mark.parametrize(("at", "code"), [(2, 0), pytest.param(1, 2, marks=pytest.mark.slow)])
def test_deaths_count_unless_a_checkpoint_was_reached(
    fsf: Fsf, tmp_path: Path, at: int, code: int
) -> None:
    # With an epoch of one step, a death in the second step comes after a checkpoint. The first
    # attempt always gets on: it decodes the images.
    (tmp_path / "dying.py").write_text(DYING.replace("AT", str(at)))
    (tmp_path / "deaths.txt").write_text("4")
    done = fsf(
        *("sweep", "--plugin", "dying.py", "--method", "dying", "--shot", "1"),
        *("--sampler", "random", "--way", "2", "--queries", "2", "--tasks", "10"),
        *("-o", "dataset.n_per_class=8", "-o", "dataset.size=16", "-o", "training.epochs=8"),
        *("-o", "training.steps=1", "-o", "training.validation_tasks=0"),
        *("--launcher", "local", "-o", "launcher.processes=1"),
    )
    assert done.returncode == code, done.stderr
    assert len([*tmp_path.glob("death-*")]) == 4
    if code:
        assert "3 processes that ran it died; the last one: killed by SIGKILL" in done.stderr


GRIDS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.toml"))


def test_there_are_grids() -> None:
    assert len(GRIDS) >= 4


@pytest.mark.one_in(4)
@pytest.mark.parametrize("grid", GRIDS, ids=lambda path: path.stem)
def test_a_grid_of_the_benchmarks_can_be_planned(fsf: Fsf, grid: Path) -> None:
    """Every method, recipe and option in it exists."""
    one = ("--seeds", "0", "--task-seed", "0")
    said = fsf("sweep", "--config", str(grid), *one, "--dry-run").stdout
    assert " to do" in said.splitlines()[-1]


class FirstTask(Statistic):
    """Accuracy of the first way."""

    def per_task(self, outcomes: Outcomes) -> Any:
        return np.asarray(outcomes.class_accuracy[:, 0])


PLAIN: dict[str, Any] = {
    "sampler": {"name": "random", "n_way": 2, "n_shot": 1, "n_query": 2},
    "tasks": 10,
    "dataset": {"name": "planted", "n_per_class": 8, "size": 16},
    "training": {"epochs": 0},
}


def test_a_mapping_has_the_tables_of_a_file() -> None:
    tables = {"grid": {"method": ["ncc", "protonet"]}, "exclude": [{"method": "protonet"}]}
    found = fsf_api.sweep(config={**PLAIN, **tables}, progress=False)
    assert [run.record.components["method"].name for run in found.runs] == ["ncc"]


def test_classes_run_in_this_process_only() -> None:
    asked = {"method": ["ncc", "protonet"], "statistics": [FirstTask], "progress": False}
    found = fsf_api.sweep(**PLAIN, **asked)
    assert [row.tags["method"] for row in found.rows] == ["ncc", "protonet"]
    assert list(found.runs[0].estimates) == ["first-task-random"]
    with pytest.raises(OptionError, match="known to this process only"):
        fsf_api.sweep(**{**PLAIN, "tasks": 11}, **asked, launcher="local")


FEW = {
    "sampler": "random",
    "way": 5,
    "shot": 1,
    "queries": 4,
    "tasks": 10,
    "split": "all",
    "dataset": {"name": "planted", "size": 32, "n_per_class": 20},
    "progress": False,
}


class Signed(FewShotMethod):
    """Nearest class mean, or the farthest one: a sign that no option says."""

    learns_from = "nothing"
    sign = 1.0

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return -self.sign * torch.cdist(query, support.mean(dim=2))


def test_instances_of_one_class_are_two_lines_with_values_of_their_own(tmp_path: Path) -> None:
    plain, turned = Signed(), Signed()
    turned.sign = -1.0
    found = fsf_api.sweep(method=[plain, turned], runs_dir=tmp_path, **FEW)
    values = [one.run.estimates["acc-random"].value for one in found.results if one.run]
    assert len({row.tags["method"] for row in found.rows}) == 2
    assert values[0] > 0.2 > values[1]
    turned.sign = 1.0
    again = fsf_api.sweep(method=[turned], runs_dir=tmp_path, **FEW)
    assert again.runs[0].estimates["acc-random"].value == values[0]
    with pytest.raises(OptionError, match="Signed appears twice"):
        fsf_api.sweep(method=[plain, plain], runs_dir=tmp_path, **FEW)


class Nth(Statistic):
    """The accuracy of the n-th class from below."""

    def __init__(self, *, n: int = 0) -> None:
        self.n = n

    def per_task(self, outcomes: Outcomes) -> FloatArray:
        return np.sort(outcomes.class_accuracy, axis=1)[:, self.n]


def test_results_travel_to_processes_without_what_was_swept(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\nfrom fsframework.interfaces import FewShotMethod\n"
        "class Mine(FewShotMethod):\n    weightless = True\n"
        "    def scores(self, support, query):\n"
        "        return -torch.cdist(query, support.mean(dim=2))\n"
    )
    asked = {"method": ["mine", "ncc"], "backbone": torch.nn.AdaptiveAvgPool2d(4)}
    found = fsf_api.sweep(**PLAIN, **asked, plugins=[file], progress=False)
    assert not found.failures
    compared = fsf_api.compare(found.runs, "acc-random")
    values = [found, found.runs, found.runs[0].estimates, found.runs[0].outcomes, compared]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        again = pool.submit(pickle.loads, pickle.dumps(values)).result()
    assert repr(again) == repr(values)


def test_one_run_is_not_given_two_values_of_a_statistic(tmp_path: Path) -> None:
    asked = [[{"name": Nth, "n": n}] for n in (0, 4)]
    with pytest.raises(OptionError, match="'nth'"):
        fsf_api.sweep(method="ncc", statistics=asked, runs_dir=tmp_path, **FEW)


def test_a_grid_may_name_groups_of_options_and_start_from_the_record_of_a_run(
    fsf: Fsf, tmp_path: Path
) -> None:
    (tmp_path / "base.toml").write_text(
        'sampler = "random"\ntasks = 9\nway = 2\nqueries = 2\n[training]\nepochs = 0\n'
        '[dataset]\nname = "planted"\nn_per_class = 8\nsize = 16\n'
    )
    (tmp_path / "grid.toml").write_text(
        'include = ["base.toml"]\n[method.steep]\nlike = "r2d2"\ninitial_alpha = 20.0\n'
        '[grid]\nmethod = ["r2d2", "steep"]\n"image-size" = [16]\n'
        '[[exclude]]\nmethod = "r2d2"\n'
    )
    done = fsf("sweep", "--config", "grid.toml", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [row["tags"]["method"] for row in told["rows"]] == ["steep"]
    [folder] = [Path(one["folder"]) for one in told["experiments"]]
    again = fsf("run", "--config", str(folder / "run.json"), "--name", "named", "--json")
    assert again.returncode == 0, again.stderr
    named = Path(json.loads(again.stdout)["folder"]) / "run.json"
    listed = fsf("sweep", "--config", str(named), "--shot", "5,1", "--dry-run", "--json")
    assert listed.returncode == 0, listed.stderr
    assert len(json.loads(listed.stdout)["experiments"]) == 2
