"""Real tasks on a real cluster: conformance, and a node that is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fsf_ray import RayLauncher
from fsframework.errors import OptionError
from fsframework.testing import checks_for, launcher

pytestmark = pytest.mark.cluster


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fsf_ray._launcher.GRACE", 2.0)


@pytest.mark.slow  # some seconds each
@pytest.mark.parametrize("check", checks_for("launcher"), ids=lambda check: check.__name__)
def test_conformance(cluster: Any, check: Any, here: None) -> None:
    check(partial(RayLauncher, address=cluster.address, workers=1, retries=0))


@pytest.mark.slow
def test_what_a_lost_node_was_doing_is_done_elsewhere(cluster: Any, tmp_path: Path) -> None:
    mapped = RayLauncher(address=cluster.address).map(
        launcher.wait_for, [str(tmp_path / "go")] * 4, name="queue", logs=tmp_path
    )
    killed = False

    def lose() -> None:
        nonlocal killed
        until(lambda: len([*tmp_path.glob("ray-*.txt")]) >= 3)  # one on each node
        cluster.kill_node()
        killed = True
        (tmp_path / "go").touch()

    import threading

    thread = threading.Thread(target=lose)
    thread.start()
    found = dict(mapped)
    thread.join()
    assert killed
    assert found == dict.fromkeys(range(4), True)


@pytest.mark.slow
def test_more_than_a_node_has(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="^no node of the Ray cluster has 64 CPUs for a worker; "):
        next(RayLauncher(address=cluster.address, cpus=64).map(str, [1], name="t", logs=tmp_path))


OWNER = """
import pathlib, sys
from fsf_ray import RayLauncher
from fsframework.testing.launcher import persist
list(RayLauncher(workers=1).map(persist, sys.argv[1:], name="t", logs=pathlib.Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_a_new_cluster_ends_with_its_owner(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)])
    until((tmp_path / "worker").exists)
    [log] = tmp_path.glob("ray-*.txt")
    worker = int(log.stem.rpartition("-")[2])
    os.kill(worker, 0)
    owner.kill()
    owner.wait()
    until(lambda: not Path(f"/proc/{worker}").exists())
