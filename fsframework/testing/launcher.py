"""Checks of launchers.

The workers of a check leave files in a new folder of the current directory, which launchers share
with their workers. A check waits up to two minutes for what must happen.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fsframework.errors import FsfError
from fsframework.interfaces.launcher import Launcher, Work, Workers, WorkerState
from fsframework.testing._suite import ConformanceError, Make, Suite, require

suite = Suite(Launcher)

_PATIENCE = 120.0
"""Seconds to wait for what must happen, which includes the start of a remote worker."""

_QUIET = 0.5
"""Seconds in which a worker that still runs would show it."""

_STATUSES = ("waiting", "running", "ended", "failed")

_ARGUMENTS = (
    "",
    "two words",
    "it's",
    'a "quoted" word',
    "back\\slash",
    "$HOME `true` ; # & | <> * ?",
    "%j {0}",
    "Zürich 東京",
    "two\nlines",
    "--option=value",
)
"""What a shell or an engine would change if it read the command once more."""

_VALUE = 'it\'s "two words", $HOME; Zürich=東京'

_WORKER = """
import json, os, signal, subprocess, sys, time, uuid
folder, patience, *rest = sys.argv[1:]
me = uuid.uuid4().hex


def leave(name, what=""):
    path = os.path.join(folder, f"{name}-{me}")
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(what, file)
    os.rename(path + ".part", path)


def wait(name):
    end = time.monotonic() + float(patience)
    while not os.path.exists(os.path.join(folder, name)):
        if time.monotonic() > end:
            leave("waited in vain")
            sys.exit(1)
        time.sleep(0.02)


"""
"""The beginning of every worker: it can leave a file, complete once seen, and wait for one."""

_BEAT = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    with open(sys.argv[1], "a") as file:
        file.write(".")
    time.sleep(0.02)
"""
"""A process that ignores SIGTERM and shows in a file that it lives."""


@dataclass(frozen=True)
class _Job:
    """A running job and the folder in which its workers leave files.

    Args:
        folder: where they leave files, and find those they wait for.
        work: what was started.
        workers: what ``start`` returned.
    """

    folder: Path
    work: Work
    workers: Workers

    def left(self, name: str) -> list[Path]:
        """Return the complete files that workers have left under a name."""
        # A change by this machine makes NFS list the folder again, instead of from its cache.
        (self.folder / "look").touch()
        (self.folder / "look").unlink()
        found = self.folder.glob(f"{name}-*")
        return sorted(path for path in found if path.suffix != ".part")

    def told(self, name: str) -> list[object]:
        """Return what the files left under a name contain."""
        return [json.loads(path.read_text(encoding="utf-8")) for path in self.left(name)]

    def allow(self, name: str) -> None:
        """Create a file that workers wait for."""
        (self.folder / name).touch()

    def states(self) -> Sequence[WorkerState]:
        """Return the states, which must be those of at least one worker."""
        states = self.workers.states()
        for state in states:
            require(
                isinstance(state, WorkerState),
                f"states must contain WorkerState, not {type(state).__name__}",
            )
            require(
                state.status in _STATUSES,
                f"a status must be one of {', '.join(_STATUSES)}, not {state.status!r}",
            )
        require(states, "states must tell of at least one worker")
        return states

    def over(self) -> bool:
        """Return whether no worker waits or runs."""
        return all(state.status in ("ended", "failed") for state in self.states())

    def until_over(self) -> Sequence[WorkerState]:
        """Wait until every worker has ended or failed, and return the states."""
        _until(self.over, lambda: f"workers have not ended: {_described(self.states())}")
        return self.states()

    def until_left(self, name: str) -> None:
        """Wait until a worker has left a file under a name."""

        def left() -> bool:
            over = self.over()  # looked at first: a worker leaves its files before it ends
            found = bool(self.left(name))
            require(
                found or not over,
                f"the command has not done its work: {_described(self.states())}",
            )
            return found

        _until(left, lambda: f"the command has not started: {_described(self.states())}")


def _until(condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise ConformanceError(f"after {_PATIENCE:g} seconds {otherwise()}")
        time.sleep(0.02)


def _described(states: Sequence[WorkerState]) -> str:
    def one(state: WorkerState) -> str:
        return f"{state.name} {state.status}" + (f" ({state.reason})" if state.reason else "")

    return ", ".join(map(one, states))


@contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder that the workers can see, too."""
    # A worker that a faulty launcher leaves behind may still write into it.
    with tempfile.TemporaryDirectory(
        prefix="fsf-check-", dir=Path.cwd(), ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


@contextmanager
def _started(
    launcher: Launcher,
    folder: Path,
    command: tuple[str, ...],
    n_items: int = 2,
    environment: Mapping[str, str] | None = None,
) -> Iterator[_Job]:
    """Start a command in a folder, and stop whatever runs at the end of the block."""
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    work = Work("fsf-check", command, n_items, logs, environment or {})
    workers = launcher.start(work)
    require(
        isinstance(workers, Workers), f"start must return Workers, not {type(workers).__name__}"
    )
    try:
        yield _Job(folder, work, workers)
    finally:
        workers.stop()


def _command(folder: Path, script: str, *arguments: str) -> tuple[str, ...]:
    """Return the command of a worker, in which ``leave``, ``wait`` and ``rest`` are known."""
    # Without -S, a long path of packages would be searched, of which none is needed.
    python = (sys.executable, "-S", "-c")
    return (*python, _WORKER + script, str(folder), str(_PATIENCE), *arguments)


@contextmanager
def _running(
    make: Make,
    script: str,
    *arguments: str,
    n_items: int = 2,
    environment: Mapping[str, str] | None = None,
) -> Iterator[_Job]:
    """Start a script in a folder of its own."""
    with (
        _folder() as folder,
        _started(make(), folder, _command(folder, script, *arguments), n_items, environment) as job,
    ):
        yield job


def _require_success(job: _Job) -> None:
    states = job.until_over()
    require(
        all(state.status == "ended" for state in states),
        f"a command that exits with 0 must end its worker: {_described(states)}",
    )


def _require_failure(job: _Job, what: str) -> None:
    states = job.until_over()
    require(
        all(state.status == "failed" for state in states),
        f"{what} must give a failed worker: {_described(states)}",
    )
    silent = [state.name for state in states if not state.reason.strip()]
    require(not silent, f"{what} must have a reason, but {', '.join(silent)} has none")


@suite.check()
def check_runs(make: Make) -> None:
    """The command runs, and every worker ends when it exits with 0."""
    with _running(make, "leave('ran')") as job:
        _require_success(job)
        require(job.left("ran"), "all workers have ended, but the command has not run")


@suite.check(after=[check_runs])
def check_names(make: Make) -> None:
    """Each worker has a name of its own."""
    with _running(make, "pass") as job:
        names = [state.name for state in job.until_over()]
    require(all(names), "the name of a worker must not be empty")
    twice = sorted({name for name in names if names.count(name) > 1})
    require(not twice, f"the names of workers must differ, but {', '.join(twice)} occurs again")


@suite.check(after=[check_runs])
def check_number(make: Make) -> None:
    """There are no more workers than items."""
    with _running(make, "leave('ran')", n_items=1) as job:
        states, times = job.until_over(), len(job.left("ran"))
    require(len(states) == 1, f"1 item must have 1 worker, not {_described(states)}")
    require(times == 1, f"1 item must have 1 worker, but the command ran {times} times")


@suite.check(after=[check_runs])
def check_arguments(make: Make) -> None:
    """The arguments of the command arrive unchanged: spaces, quotes, other scripts, nothing."""
    with _running(make, "leave('got', rest)", *_ARGUMENTS) as job:
        job.until_over()
        for got in job.told("got"):
            for sent, found in zip(_ARGUMENTS, got if isinstance(got, list) else [], strict=False):
                require(found == sent, f"the argument {sent!r} arrives as {found!r}")
            require(got == list(_ARGUMENTS), f"the arguments {_ARGUMENTS} arrive as {got}")


@suite.check(after=[check_runs])
def check_environment(make: Make) -> None:
    """The variables of the work reach each worker, over those of the place where it runs."""
    given = {"FSF_CHECK_NEW": _VALUE, "FSF_CHECK_OLD": "new"}
    script = f"leave('got', {{n: os.environ.get(n) for n in {[*given, 'PATH']!r}}})"
    with _set("FSF_CHECK_OLD", "old"), _running(make, script, environment=given) as job:
        job.until_over()
        for got in job.told("got"):
            assert isinstance(got, dict)
            for name, value in given.items():
                require(got[name] == value, f"{name}={value!r} arrives as {got[name]!r}")
            require(got["PATH"], "the variables of the place, such as PATH, must stay")


@contextmanager
def _set(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


@suite.check(after=[check_runs])
def check_directory(make: Make) -> None:
    """The command runs in the directory in which the launcher was called."""
    here = Path.cwd().resolve()
    with _running(make, "leave('got', os.getcwd())") as job:
        job.until_over()
        for got in job.told("got"):
            require(
                Path(str(got)).resolve() == here,
                f"the command must run in the directory of its caller, not in {got}",
            )


@suite.check(after=[check_runs])
def check_logs(make: Make) -> None:
    """What a worker prints is in its log, below the folder of logs."""
    script = "print('on stdout', flush=True); print('on stderr', file=sys.stderr, flush=True)"
    with _running(make, script) as job:
        for state in job.until_over():
            require(
                state.log is not None and job.work.logs in Path(state.log).parents,
                f"the log of {state.name} must be below the folder of logs, not {state.log}",
            )
            assert state.log is not None
            printed = _read(state.log)
            for text in ("on stdout", "on stderr"):
                require(
                    text in printed, f"what {state.name} prints {text} must be in its log: {text!r}"
                )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise ConformanceError(f"there is no log {path.name}") from None


@suite.check(after=[check_runs])
def check_failure(make: Make) -> None:
    """A command that exits with another status than 0 gives a failed worker and its reason."""
    with _running(make, "sys.exit(3)") as job:
        _require_failure(job, "exit status 3")


@suite.check(after=[check_runs])
def check_death(make: Make) -> None:
    """A command that is killed each time gives a failed worker and its reason in the end."""
    with _running(make, "os.kill(os.getpid(), signal.SIGKILL)") as job:
        _require_failure(job, "a command that is always killed")


@suite.check(after=[check_runs])
def check_no_command(make: Make) -> None:
    """A program that does not exist gives a failed worker or an ``FsfError``."""
    with _folder() as folder:
        try:
            with _started(make(), folder, (str(folder / "no program"),)) as job:
                _require_failure(job, "a program that does not exist")
        except FsfError:
            return  # it says so
        except Exception as error:
            if isinstance(error, ConformanceError):
                raise
            text = f"{type(error).__name__}: {error}"
            require(False, f"a program that does not exist must not raise {text}")


@suite.check(after=[check_runs])
def check_start_returns(make: Make) -> None:
    """``start`` does not wait for the workers, and states change while they run."""
    with _running(make, "leave('began'); wait('go')") as job:
        require(not job.left("waited in vain"), "start must not wait for the workers to end")
        job.until_left("began")
        _until(
            lambda: any(state.status == "running" for state in job.states()),
            lambda: f"the command runs, but no worker is running: {_described(job.states())}",
        )
        job.allow("go")
        _require_success(job)


@suite.check(after=[check_runs])
def check_states_stay(make: Make) -> None:
    """The states stay when all has ended; ``stop`` may then be called, and changes nothing."""
    with _running(make, "pass") as job:
        before = [(state.name, state.status) for state in job.until_over()]
        for _ in range(2):
            job.workers.stop()
            after = [(state.name, state.status) for state in job.states()]
            require(after == before, f"stop after the end changes {before} to {after}")


@suite.check(after=[check_runs])
def check_again(make: Make) -> None:
    """The same launcher runs another job afterwards."""
    launcher = make()
    for _ in range(2):
        with _folder() as folder:
            with _started(launcher, folder, _command(folder, "leave('ran')")) as job:
                _require_success(job)
                ran, known = len(job.left("ran")), len(job.states())
            require(ran == known, f"{known} workers are reported, but the command ran {ran} times")


@suite.check(after=[check_start_returns])
def check_stop(make: Make) -> None:
    """``stop`` lets every command clean up on SIGTERM and returns when none runs."""
    script = """
def clean(*_):
    time.sleep(0.2)
    leave("cleaned")
    os._exit(0)
signal.signal(signal.SIGTERM, clean)
leave("began")
wait("never")
"""
    with _running(make, script, n_items=3) as job:
        job.until_left("began")
        job.workers.stop()
        cleaned, began = len(job.left("cleaned")), len(job.left("began"))
        require(cleaned == began, f"stop let {cleaned} of {began} commands clean up")
        states = job.states()
        require(job.over(), f"nothing may wait or run after stop: {_described(states)}")
        job.workers.stop()
        require(job.over(), "nothing may wait or run after a second stop")


@suite.check(after=[check_start_returns])
def check_kill(make: Make) -> None:
    """``stop`` kills a command that ignores SIGTERM, and the processes that it has started."""
    script = f"""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
beats = os.path.join(folder, "child of " + me)
child = subprocess.Popen([sys.executable, "-S", "-c", {_BEAT!r}, beats, patience])
while not os.path.exists(beats):
    time.sleep(0.02)
leave("began")
sys.argv = ["", os.path.join(folder, "worker " + me), patience]
exec({_BEAT!r})
"""
    with _running(make, script, n_items=1) as job:
        job.until_left("began")
        job.workers.stop()
        before = _beats(job.folder)
        time.sleep(_QUIET)
        after = _beats(job.folder)
        alive = sorted(name for name in after if after[name] != before.get(name))
        require(not alive, f"stop has left running: {', '.join(alive)}")


def _beats(folder: Path) -> dict[str, int]:
    """Return how often each process has shown that it lives."""
    # The files are read, since NFS may give their size from its cache.
    files = [path for start in ("child of", "worker") for path in folder.glob(f"{start} *")]
    return {path.name.rpartition(" ")[0]: len(path.read_bytes()) for path in files}
