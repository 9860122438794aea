"""Run a command that does not outlive its owner: ``_tether.py OWNER GRACE COMMAND ...``.

The command gets a session of its own. It is stopped as soon as standard input ends or says
something, this process gets a signal, or its parent is no longer the process OWNER: with SIGTERM
first, and with SIGKILL after GRACE seconds. At the end, the rest of its process group is killed.
The exit status is that of the command; where a signal ended it, the same signal ends this process.

Only the standard library is used, so that ``python -I -S`` starts it within 20 ms.
"""

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import time

NOT_STARTED = 127
"""Exit status where the program cannot be started, as in a shell."""

SECONDS_BETWEEN_LOOKS = 1.0
"""How long a dead owner may go unnoticed if a process that it forked keeps the pipe open."""


def main() -> int:
    """Run the command and return its exit status."""
    owner, grace, *command = sys.argv[1:]
    asked: list[int] = []
    woken = _wake_on_signals(asked)
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_STARTED
    while process.poll() is None:
        ready, _, _ = select.select([0, woken], [], [], SECONDS_BETWEEN_LOOKS)
        if woken in ready:
            os.read(woken, 512)
        if asked or 0 in ready or os.getppid() != int(owner):
            _end(process, float(grace), woken)
    _signal(process, signal.SIGKILL)  # what it has left in its group
    if process.returncode < 0:
        _die_of(-process.returncode)
    return process.returncode


def _wake_on_signals(asked: list[int]) -> int:
    """Let signals that ask for an end be noted, and return what is readable after any signal."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: asked.append(number))
    return woken


def _end(process: "subprocess.Popen[bytes]", grace: float, woken: int) -> None:
    """Stop the command, with SIGKILL where it takes too long."""
    _signal(process, signal.SIGTERM)
    end = time.monotonic() + grace
    while process.poll() is None and (left := end - time.monotonic()) > 0:
        if select.select([woken], [], [], left)[0]:
            os.read(woken, 512)
    if process.poll() is None:
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    # macOS refuses a signal to a group of which only a zombie is left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _die_of(number: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has dumped its own
    with contextlib.suppress(OSError):  # nothing can be set for SIGKILL
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main())
