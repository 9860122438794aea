"""Leases: one holder at a time, and none lost when a holder dies."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from fsframework.pipeline.work import leases as module
from fsframework.pipeline.work.leases import Holder, Leases

HOLD = """
import sys, time
from pathlib import Path
from fsframework.pipeline.work.leases import Leases
lease = Leases(Path(sys.argv[1]), "other").take("a")
print("held" if lease else "refused", flush=True)
time.sleep(600)
"""


def holding_process(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_held_item_is_refused_until_it_is_given_back(tmp_path: Path) -> None:
    mine, others = Leases(tmp_path, "mine"), Leases(tmp_path, "others")
    lease = mine.take("a")
    assert lease is not None
    assert others.take("a") is None
    holder = others.holder("a")
    assert holder is not None
    assert holder.worker == "mine"
    assert others.holders("abc") == {"a": holder}
    with lease:
        assert others.take("b") is not None, "another item is free"
    taken = others.take("a")
    assert taken is not None
    assert taken.deaths == 0, "giving back is no death"


def test_what_a_killed_process_held_is_free_at_once_on_its_machine(tmp_path: Path) -> None:
    process = holding_process(tmp_path)
    leases = Leases(tmp_path, "mine")
    assert leases.take("a") is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    taken = leases.take("a")
    assert taken is not None
    assert taken.deaths == 1
    assert process.stdout is not None
    process.stdout.close()


def test_a_process_that_has_ended_but_is_not_waited_for_is_dead(tmp_path: Path) -> None:
    process = holding_process(tmp_path)
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert Leases(tmp_path, "mine").take("a") is not None
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def foreign(folder: Path, **changed: object) -> Path:
    """Write the lease of a process on another machine."""
    holder = Holder("there", "elsewhere", "another system", 1, "1", 60.0)
    folder.mkdir(exist_ok=True)
    path = folder / "a.0"
    path.write_bytes(msgspec.json.encode(dataclasses.replace(holder, **changed)))
    return path


def test_a_lease_elsewhere_ends_when_its_file_stays_the_same_for_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    foreign(tmp_path)
    leases = Leases(tmp_path, "mine")
    assert leases.take("a") is None, "seen for the first time"
    now += 50
    assert leases.take("a") is None
    foreign(tmp_path, beat=1)
    now += 50
    assert leases.take("a") is None, "it was renewed in between"
    now += 59
    assert leases.take("a") is None
    now += 2
    taken = leases.take("a")
    assert taken is not None
    assert taken.deaths == 1


def test_a_holder_renews_its_lease(tmp_path: Path) -> None:
    leases = Leases(tmp_path, "mine", seconds=0.12)
    lease = leases.take("a")
    assert lease is not None
    lease.note("training 3/10")
    changed = threading.Event()
    for _ in range(500):
        told = json.loads((tmp_path / "a.0").read_bytes())
        if told["beat"] >= 2 and told["note"] == "training 3/10":
            changed.set()
            break
        threading.Event().wait(0.02)
    assert changed.is_set()


def test_a_torn_lease_is_somebodys_until_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    (tmp_path / "a.0").write_bytes(b'{"worker": "th')
    leases = Leases(tmp_path, "mine")
    assert leases.take("a") is None
    now += 61
    assert leases.take("a") is not None


def test_of_many_that_take_a_dead_holders_item_one_gets_it(tmp_path: Path) -> None:
    foreign(tmp_path, given_back=True)
    barrier, found = threading.Barrier(8), []

    def take(number: int) -> None:
        leases = Leases(tmp_path, f"worker {number}")
        barrier.wait()
        found.append(leases.take("a"))

    threads = [threading.Thread(target=take, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(lease is not None for lease in found) == 1


def test_leases_of_a_finished_item_are_removed(tmp_path: Path) -> None:
    leases = Leases(tmp_path, "mine")
    lease = leases.take("a")
    assert lease is not None
    with lease:
        leases.clear("a")
    assert not [*tmp_path.iterdir()]


def test_a_holder_that_was_stopped_for_long_leaves_its_successors_alone(tmp_path: Path) -> None:
    foreign(tmp_path, given_back=True)
    first = Leases(tmp_path, "first")
    stopped = first.take("a")
    assert stopped is not None
    # While it is stopped, others take the item, finish it and clear it; later it is begun again.
    first.clear("a")
    foreign(tmp_path, given_back=True)
    current = Leases(tmp_path, "current").take("a")
    assert current is not None
    stopped.renew()
    with stopped:
        pass
    assert not stopped.is_held
    assert current.is_held
    holder = Leases(tmp_path, "other").holder("a")
    assert holder is not None
    assert holder.worker == "current"
