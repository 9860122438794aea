"""`fsf sweep --search optuna`: what is tried, what is read, what the record says."""

import json
import signal
from functools import partial

import optuna
import pytest

import fsframework as fsf_api
from fsf_optuna import OptunaSearcher, study
from fsf_tools.searcher import Range
from fsframework.errors import DataError
from fsframework.records import RunRecord
from fsframework.testing import check_component, parametrize_with_checks
from tests.forked import started

pytestmark = pytest.mark.usefixtures("shared_cache")

PLUGINS = '''
"""A method whose accuracy falls with an option, and data whose test images can be locked away."""

import os
import signal
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from fsframework.errors import DataError, OptionError
from fsframework.interfaces import Dataset, FewShotMethod
from fsframework.values import digest_of

HERE = Path(__file__).parent


class Toy(FewShotMethod):
    """Class means, and noise."""

    learns_from = "nothing"
    weightless = True

    def __init__(self, *, noise: float = 0.0, whole: int = 1,
                 kind: Literal["plain", "other"] = "plain"):
        super().__init__()
        if noise > 100:
            raise OptionError(f"noise must be at most 100, got {noise}")
        self.noise, self.whole, self.kind = noise, whole, kind

    def scores(self, support, query):
        if (fatal := HERE / "fatal.txt").exists():
            left = int(fatal.read_text()) - 1
            fatal.write_text(str(left))
            if not left:
                fatal.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        if 3 < self.noise < 5:
            raise DataError("between 3 and 5 this fails")
        found = -torch.cdist(query, support.mean(2))
        return found + self.noise * torch.sin(1e4 * found)


class Shapes(Dataset):
    """Noise of a colour per class."""

    def __init__(self):
        self.keys = tuple(f"{i:03d}" for i in range(90))
        self.labels = np.arange(90) // 10
        self.class_names = tuple("abcdefghi")
        self.splits = {"train": ("a", "b", "c"), "val": ("d", "e", "f"), "test": ("g", "h", "i")}
        self.metadata = {}
        self.fingerprint = digest_of("shapes")

    def image(self, index):
        if index >= 60 and (HERE / "locked.txt").exists():
            raise DataError(f"{self.keys[index]}: is locked away")
        rng = np.random.default_rng(index)
        base = np.random.default_rng(1000 + index // 10).integers(0, 200, 3)
        return (base + rng.integers(0, 55, (16, 16, 3))).astype(np.uint8)


class Unvalidated(Shapes):
    """Without classes to validate on."""

    def __init__(self):
        super().__init__()
        self.splits = {"train": ("a", "b", "c"), "test": ("g", "h", "i")}
        self.fingerprint = digest_of("unvalidated")
'''
TASKS = ("--sampler", "random", "--way", "2", "--shot", "1", "--queries", "3", "--device", "cpu")
SMALL = ("--plugin", "toys.py", "--method", "toy", "--dataset", "shapes", *TASKS, "--tasks", "20")
SEARCH = ("--search", "optuna", "-o", "search.startup=3", "--trials", "6")
NOISE = ("--space", "method.noise=0.01:10:log")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "toys.py").write_text(PLUGINS)
    return tmp_path


def record_of(folder):
    [path] = folder.glob("runs/*/run.json")
    return RunRecord.load(path.parent)


def trials_of(folder):
    [file] = folder.glob("runs/sweeps/searches/*/study.jsonl")
    return [(t.params, t.state.name, t.value) for t in study(file).trials]


@parametrize_with_checks(
    [partial(OptunaSearcher, startup=4), partial(OptunaSearcher, sampler="qmc", pruner="median")]
)
def test_conformance(make, check):
    check(make)


@pytest.mark.slow
def test_the_gaussian_process_keeps_the_contract():
    make = partial(OptunaSearcher, sampler="gp", startup=4, pruner="hyperband")
    assert [one for one in check_component(make, "searcher") if not one.passed] == []


def test_the_best_on_validation_tasks_is_run_on_the_test_tasks(fsf, folder):
    words = ("sweep", *SMALL, *SEARCH, *NOISE, "--space", "method.kind=plain,other")
    done = fsf(*words, "--json")
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)["rows"]
    record, tried = record_of(folder), trials_of(folder)
    best = max((one for one in tried if one[1] == "COMPLETE"), key=lambda one: one[2])
    options = record.method.options
    assert {key: options[key] for key in ("noise", "kind")} == {
        key.removeprefix("method."): value for key, value in best[0].items()
    }
    assert record.settings["split"] == "test"
    [file] = folder.glob("runs/*/search.json")
    [facts] = json.loads(file.read_text()).values()
    failed = sum(one[1] == "FAIL" for one in tried)
    assert (facts["configurations"], facts["failed"], facts["stopped"]) == (6, failed, 0)
    assert facts["searcher"]["sampler"] == "tpe"
    assert facts["space"] == {"method.noise": "0.01:10.0:log", "method.kind": "plain,other"}
    assert any("6 configurations" in one for one in record.cautions)
    # The configuration is what identifies the run, whoever chose it.
    plain = fsf("run", *SMALL, "--split", "test", "-o", f"method.noise={options['noise']}",
                "-o", f"method.kind={options['kind']}", "--json")  # fmt: skip
    assert json.loads(plain.stdout)["reused"]
    # All is done; more trials continue the search, and count.
    again = fsf(*words, "--json")
    assert json.loads(again.stdout)["rows"] == [row]
    assert trials_of(folder) == tried
    more = fsf(*words, "--trials", "8")
    assert "8 configurations" in more.stdout
    assert "6 configurations" not in more.stdout
    assert trials_of(folder)[:6] == tried
    # Beside a method that was not searched, the note says whose it is.
    assert fsf("run", *SMALL, "--split", "test", "-o", "method.whole=2").returncode == 0
    compared = fsf("compare", "runs", "--json")
    said = json.loads(compared.stdout)["cautions"]
    assert sorted(any("configurations" in one for one in told) for told in said.values())[-1]


def test_no_test_image_is_read_before_the_end(fsf, folder):
    (folder / "locked.txt").touch()
    words = ("sweep", *SMALL, *SEARCH, *NOISE, "--name", "locked")
    done = fsf(*words)
    assert (done.returncode, "is locked away" in done.stderr) == (2, True)
    states = json.loads(fsf("sweep", "status", "locked", "--json").stdout)["experiments"]
    *trials, last = [one["state"] for one in states]
    assert (len(trials), last) == (6, "failed")
    assert trials.count("finished") >= 4
    (folder / "locked.txt").unlink()
    assert fsf(*words).returncode == 0
    assert len(trials_of(folder)) == 6


@pytest.mark.slow
def test_a_training_that_promises_little_is_stopped(fsf, tmp_path):
    done = fsf("sweep", *TASKS, "--tasks", "20", "-o", "dataset.n_per_class=8",
               *("-o", "dataset.size=16", "-o", "training.epochs=3", "-o", "training.steps=2"),
               *("--search", "optuna", "-o", "search.pruner=median", "-o", "search.startup=1"),
               *("--space", "training.learning_rate=1e-5:1:log", "--trials", "5"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    [file] = tmp_path.glob("runs/sweeps/searches/*/study.jsonl")
    states = optuna.trial.TrialState
    stopped = [t for t in study(file).trials if t.state == states.PRUNED]
    assert stopped
    assert f"{len(stopped)} stopped" in done.stdout
    assert any(max(trial.intermediate_values) < 3 for trial in stopped)
    trained = [len(path.read_text().splitlines()) - 1 for path in file.parent.glob("*/curve.csv")]
    assert min(trained) < 3, "a stopped training went on"
    finished = [t for t in study(file).trials if t.state == states.COMPLETE]
    assert all(set(trial.intermediate_values) == {1, 2, 3} for trial in finished)


@pytest.mark.slow
def test_a_killed_search_goes_on_with_the_same_trials(folder):
    words = ("sweep", *SMALL, *SEARCH, *NOISE)
    alone, shared = folder / "alone", folder / "shared"
    whole = started(folder, *words, "--runs-dir", alone)
    assert whole.wait() == 0, whole.said()
    (folder / "fatal.txt").write_text("3")
    cache = ("--cache-dir", folder / "cache", "--runs-dir", shared)
    assert started(folder, *words, *cache).wait() == -signal.SIGKILL
    both = [started(folder, *words, *cache) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0], [one.said() for one in both]
    tables = [one.said()[0].splitlines()[:2] for one in (*both, whole)]
    assert tables[0] == tables[1]
    found = [next(one.glob("sweeps/searches/*/study.jsonl")) for one in (alone, shared)]
    alone_trials, shared_trials = (study(one).trials for one in found)
    assert len(shared_trials) == 6
    assert sorted(t.user_attrs["number"] for t in shared_trials) == [*range(6)]
    assert [t.params for t in shared_trials[:3]] == [t.params for t in alone_trials[:3]]


def test_every_combination_searches_and_seeds_share_a_search(folder, monkeypatch):
    monkeypatch.chdir(folder)
    common = {
        "plugins": ["toys.py"], "dataset": "shapes", "sampler": "random", "way": 2, "queries": 3,
        "tasks": 10, "progress": False, "trials": 2, "device": "cpu",
    }  # fmt: skip
    found = fsf_api.sweep(
        method="toy",
        shot=[1, 2],
        seeds=range(2),
        search={"name": "optuna", "sampler": "random", "seed": 5},
        space={"method.whole": {"low": 2, "high": 9}, "method.kind": ["plain", "other"]},
        objective="wacc-random",
        **common,
    )
    assert len(found.rows) == 2
    assert [row.group.seeds for row in found.rows] == [(0, 1), (0, 1)]
    files = [*folder.glob("runs/sweeps/searches/*/study.jsonl")]
    assert len(files) == 2
    values = [trial.params["method.whole"] for file in files for trial in study(file).trials]
    assert all(isinstance(one, int) and 2 <= one <= 9 for one in values)


def test_a_file_describes_a_search(fsf, folder):
    (folder / "search.toml").write_text("""
        trials = 3
        objective = "wacc-random"
        search = { name = "optuna", sampler = "qmc", seed = 4 }
        [method]
        name = "toy"
        noise = 0.5
        [space]
        "method.noise" = { low = 0.5, high = 2.0, step = 0.5 }
        method.kind = ["plain", "other"]
    """)
    done = fsf("sweep", *SMALL[:2], *SMALL[4:], "--config", "search.toml")
    assert done.returncode == 0, done.stderr
    tried = trials_of(folder)
    assert len(tried) == 3
    assert {one[0]["method.noise"] for one in tried} <= {0.5, 1.0, 1.5, 2.0}
    record = record_of(folder)
    assert any("wacc-random" in note and "optuna" in note for note in record.notes)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--space", "method.nois=0:1"), "method.nois"),
        (("--space", "method.noise=2:1"), "method.noise"),
        (("--space", "method.noise=0:1:log"), "method.noise"),
        (("--space", "method.noise=0:1:2"), "method.noise"),
        (("--space", "method.noise=0:200"), "at most 100"),
        (("--space", "method.noise=high,low"), "method.noise"),
        (("--space", "method.whole=0.5:2"), "method.whole"),
        (("--space", "method.kind=0:1"), "method.kind"),
        (("--space", "method.kind=plain"), "method.kind"),
        (("--space", "method.kind=plain,bad"), "bad"),
        (("--space", "training.learning_rate=1e-4:1"), "training.learning_rate"),
        (("--space", "shot=1,5"), "shot"),
        ((*NOISE, "-o", "method.noise=1"), "method.noise"),
        ((*NOISE, "--split", "val"), "--split val"),
        ((*NOISE, "--trials", "0"), "--trials"),
        ((*NOISE, "--objective", "acc"), "--objective"),
        ((*NOISE, "-o", "search.sampler=best"), "search.sampler"),
        ((*NOISE, "--dataset", "unvalidated"), "val"),
        ((), "--space"),
    ],
)
def test_what_cannot_be_searched_is_refused(fsf, folder, words, told):
    done = fsf("sweep", *SMALL, *SEARCH, *words)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "runs").exists()


def journal_of(folder):
    """The journal of a search of two trials that have ended, and of one that was begun."""
    file = folder / "study.jsonl"
    space = {"x": Range(0, 1)}
    search = OptunaSearcher(sampler="random").open(file, space)
    for number in range(2):
        search.begin(number)
        search.end(number, "finished", score=0.5)
    return file, space


def test_a_journal_whose_last_line_was_not_finished_goes_on(tmp_path):
    file, space = journal_of(tmp_path)
    whole = file.read_bytes()
    for torn in (b'{"op_code": 4, "wor', b"{", b"\0" * 40):
        file.write_bytes(whole + torn)
        search = OptunaSearcher(sampler="random").open(file, space)
        assert [trial.number for trial in search.trials()] == [0, 1]
        search.begin(2)
        search.end(2, "finished", score=0.25)
        assert len(OptunaSearcher(sampler="random").open(file, space).trials()) == 3


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"\0", b'{"op_code": 99}', b"{}"])
def test_a_damaged_journal_is_named_with_what_to_do(tmp_path, line):
    file, space = journal_of(tmp_path)
    first, *rest = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([first, line + b"\n", *rest]))
    with pytest.raises(DataError, match=r"study\.jsonl: .*damaged.*remove it"):
        OptunaSearcher(sampler="random").open(file, space)
