"""Real workers on a real cluster: conformance, a node that is lost, a process that is killed."""

import contextlib
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from fsf_ray import RayLauncher
from fsframework.errors import OptionError
from fsframework.interfaces import Work
from fsframework.testing import checks_for, launcher

pytestmark = pytest.mark.cluster


def until(condition, otherwise=lambda: ""):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def make(cluster):
    return partial(RayLauncher, address=cluster.address, workers=1)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fsf_ray._launcher.GRACE", 2.0)


@pytest.mark.slow  # five seconds each
@pytest.mark.parametrize("check", checks_for("launcher"), ids=lambda check: check.__name__)
def test_conformance(make, check, here):
    check(make)


def test_stop(make, here):
    inspect.unwrap(launcher.check_stop)(make)  # without those that it depends on


QUEUE = """
import fcntl, json, os, pathlib, sys, time, uuid
folder, n_items, text = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
told = {"pid": os.getpid(), "text": text, "mode": os.environ["MODE"],
        "threads": os.environ["OMP_NUM_THREADS"], "gpus": os.environ["CUDA_VISIBLE_DEVICES"]}
(folder / f"worker-{uuid.uuid4().hex}").write_text(json.dumps(told))
while True:
    left = [i for i in range(n_items) if not (folder / f"result-{i}").exists()]
    if not left:
        break
    for i in left:
        # The lock ends with its holder, as a lease does.
        with open(folder / f"item-{i}", "w") as item:
            try:
                fcntl.flock(item, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if (folder / f"result-{i}").exists():
                continue
            (folder / f"begun-{i}-{os.getpid()}").touch()
            while not (folder / "go").exists():
                time.sleep(0.02)
            os.close(os.open(folder / f"result-{i}", os.O_CREAT | os.O_EXCL))
            print("item", i, flush=True)
    time.sleep(0.02)
"""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_lost_node_loses_nothing(cluster, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    command = (sys.executable, "-S", "-c", QUEUE, str(tmp_path), "9", 'it\'s "ours", $HOME')
    work = Work("queue", command, 9, logs, {"MODE": "a b"})
    workers = RayLauncher(address=cluster.address).start(work)
    try:
        assert len(workers.states()) == 3
        until(lambda: len(list(tmp_path.glob("begun-*"))) == 3, workers.states)
        until(lambda: all(s.status == "running" for s in workers.states()), workers.states)
        assert all(os.uname().nodename in state.place for state in workers.states())

        cluster.kill_node()
        until(lambda: "waiting" in {s.status for s in workers.states()}, workers.states)
        (tmp_path / "go").touch()
        until(lambda: all(s.status == "ended" for s in workers.states()), workers.states)
    finally:
        workers.stop()

    assert len(list(tmp_path.glob("result-*"))) == 9
    assert len(list(tmp_path.glob("begun-*"))) == 10  # one was begun on the lost node
    printed = "".join(state.log.read_text() for state in workers.states())
    assert sorted(printed.split("\n")) == sorted([*(f"item {i}" for i in range(9)), ""])
    told = [json.loads(path.read_text()) for path in tmp_path.glob("worker-*")]
    pids = [one.pop("pid") for one in told]
    until(lambda: not any(map(alive, pids)))
    assert told == [{"text": 'it\'s "ours", $HOME', "mode": "a b", "threads": "1", "gpus": ""}] * 4
    assert {state.log for state in workers.states()} == set(logs.glob("ray-?.txt"))
    assert not list(logs.glob("*.json"))


@pytest.mark.slow
def test_more_than_a_node_has(cluster, tmp_path):
    work = Work("large", ("true",), 3, tmp_path)
    with pytest.raises(OptionError, match="^no node of the Ray cluster has 64 CPUs for a worker; "):
        RayLauncher(address=cluster.address, cpus=64).start(work)
    workers = RayLauncher(address=cluster.address, cpus=64, workers=1).start(work)
    assert [state.status for state in workers.states()] == ["waiting"]
    workers.stop()
    assert [(state.status, state.reason) for state in workers.states()] == [("failed", "stopped")]


OWNER = """
import pathlib, sys, time
from fsf_ray import RayLauncher
from fsframework.interfaces import Work
folder = pathlib.Path(sys.argv[1])
command = (sys.executable, "-S", "-c", sys.argv[2], str(folder), "1", "")
workers = RayLauncher(workers=1).start(Work("owned", command, 1, folder, {"MODE": ""}))
time.sleep(600)
"""


@pytest.mark.slow
def test_a_new_cluster_ends_with_its_owner(tmp_path):
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path), QUEUE])
    until(lambda: list(tmp_path.glob("begun-*")))
    told = [json.loads(path.read_text()) for path in tmp_path.glob("worker-*")]
    owner.kill()
    owner.wait()
    until(lambda: not alive(told[0]["pid"]))


@pytest.mark.slow
def test_a_killed_driver_is_an_error_and_leaves_nothing(cluster, tmp_path):
    command = (sys.executable, "-S", "-c", QUEUE, str(tmp_path), "1", "")
    workers = RayLauncher(address=cluster.address).start(
        Work("orphaned", command, 1, tmp_path, {"MODE": ""})
    )
    until(lambda: list(tmp_path.glob("begun-*")))
    [told] = [json.loads(path.read_text()) for path in tmp_path.glob("worker-*")]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"fsf_ray._driver" in words and os.fsencode(workers._file) in words:
                os.kill(int(process.name), signal.SIGKILL)
    with pytest.raises(Exception, match="the driver of Ray has ended"):
        until(lambda: workers.states() is None)
    workers.stop()
    until(lambda: not alive(told["pid"]))
    assert [state.reason for state in workers.states()] == ["stopped"]
