"""A command ends with its owner, and says how it ended."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fsframework.launchers.tethered import Tethered, reason_of

BEAT = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    with open(sys.argv[1], "a") as file:
        file.write(".")
    time.sleep(0.02)
"""
OWNER = """
import os, pathlib, sys, time
from fsframework.launchers.tethered import Tethered
beats, code, forks = sys.argv[1:]
command = (sys.executable, "-S", "-c", code, beats)
log = pathlib.Path(beats + ".log")
process = Tethered(command, log=log, environment=dict(os.environ), grace=0.3)
if forks == "True" and not os.fork():
    time.sleep(60)  # it has the pipe, too
    os._exit(0)
print("ready", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    process.ask_to_stop()
    print(process.wait(), flush=True)
"""
NOTE = """
import os, signal, sys, time
def note(number, _):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM:
        os._exit(5)
signal.signal(signal.SIGINT, note)
signal.signal(signal.SIGTERM, note)
open(sys.argv[1], "w").write("began")
time.sleep(60)
"""


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def tethered(folder, *command, grace=5.0):
    return Tethered(command, log=folder / "log", environment=dict(os.environ), grace=grace)


def python(folder, code, *arguments, grace=5.0):
    return tethered(folder, sys.executable, "-S", "-c", code, *arguments, grace=grace)


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(3)", 3, "exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", -9, "killed by SIGKILL (perhaps out of memory)"),
        ("import os; os.kill(os.getpid(), 11)", -11, "killed by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 15)", -15, "killed by SIGTERM"),
    ],
)
def test_the_status_is_that_of_the_command(tmp_path, code, status, reason):
    process = python(tmp_path, code)
    assert process.wait() == process.poll() == status
    assert not status or reason_of(status) == reason
    process.ask_to_stop()


def test_a_program_that_does_not_exist(tmp_path):
    process = tethered(tmp_path, str(tmp_path / "nothing"))
    assert reason_of(process.wait()) == "its program cannot be started"
    assert (tmp_path / "log").read_text() == f"{tmp_path}/nothing: No such file or directory\n"
    process.ask_to_stop()


def test_output_is_appended_to_the_log(tmp_path):
    for text in ("one", "two"):
        process = python(tmp_path, f"import sys; print({text!r}, file=sys.stderr)")
        process.wait()
        process.ask_to_stop()
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


def beats(path):
    return len(path.read_bytes()) if path.exists() else 0


def require_silence(path):
    """Wait until a process that shows in a file that it lives has ended."""
    before = -1
    end = time.monotonic() + 60
    while before != beats(path):
        assert time.monotonic() < end
        before = beats(path)
        time.sleep(0.5)


def test_a_command_that_ignores_a_request_is_killed(tmp_path):
    process = python(tmp_path, BEAT, str(tmp_path / "beats"), grace=0.1)
    until(lambda: beats(tmp_path / "beats"))
    process.ask_to_stop()
    process.ask_to_stop()
    assert process.wait() == -signal.SIGKILL


def test_what_a_command_leaves_in_its_group_is_killed(tmp_path):
    code = f"""
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-S", "-c", {BEAT!r}, sys.argv[1]])
while not os.path.exists(sys.argv[1]): time.sleep(0.02)
"""
    process = python(tmp_path, code, str(tmp_path / "beats"))
    assert process.wait() == 0
    process.ask_to_stop()
    require_silence(tmp_path / "beats")


@pytest.mark.parametrize("forks", [False, True])
def test_a_command_ends_with_its_owner(tmp_path, forks):
    path = tmp_path / "beats"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path), BEAT, str(forks)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert owner.stdout.readline() == b"ready\n"
        until(lambda: beats(path))
        owner.kill()
        owner.wait()
        require_silence(path)
    finally:
        os.killpg(owner.pid, signal.SIGKILL) if forks else owner.kill()
        owner.stdout.close()


def test_an_interruption_in_the_terminal_reaches_only_the_owner(tmp_path):
    path = tmp_path / "began"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path), NOTE, "False"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with owner:
        assert owner.stdout.readline() == b"ready\n"
        until(path.exists)
        os.killpg(owner.pid, signal.SIGINT)
        assert owner.stdout.read() == b"interrupted\n5\n"
    assert (tmp_path / "began.log").read_text() == "SIGTERM\n"
