"""Each check of launchers rejects the one broken launcher made for it, and nothing else does."""

import os
import shlex
import signal
import subprocess

import pytest

from fsframework.errors import FsfError
from fsframework.interfaces import Launcher, Workers, WorkerState
from fsframework.testing import checks_for, launcher, parametrize_with_checks
from tests.misdeclared import misdeclared


class Started(Workers):
    """Processes of this machine, each in a group of its own."""

    grace = 1.0

    def __init__(self, how, work):
        self.work = work
        self.processes = [self.spawn(how, number) for number in range(how.count(work))]

    def log(self, number):
        return self.work.logs / f"{number}.log"

    def spawn(self, how, number):
        with self.log(number).open("wb") as file:
            try:
                return how.run(
                    self.work,
                    stdout=file,
                    stderr=how.stderr,
                    env=how.environment(self.work),
                    cwd=how.cwd,
                    start_new_session=True,
                )
            except OSError as error:
                raise FsfError(str(error)) from None

    def name(self, number):
        return f"process {number}"

    def state(self, number, process):
        code = process.poll()
        status = "running" if code is None else "failed" if code else "ended"
        reason = f"exit status {code}" if code else ""
        return WorkerState(self.name(number), status, reason=reason, log=self.log(number))

    def states(self):
        return [self.state(number, process) for number, process in enumerate(self.processes)]

    def signal(self, process, number):
        if process.poll() is None:
            os.killpg(process.pid, number)

    def stop(self):
        for process in self.processes:
            self.signal(process, signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(self.grace)
            except subprocess.TimeoutExpired:
                self.signal(process, signal.SIGKILL)
                process.wait()


class Processes(Launcher):
    """Processes of this machine."""

    started = Started
    stderr = subprocess.STDOUT
    cwd = None

    def __init__(self, *, processes: int = 1):
        self.processes = processes

    def count(self, work):
        return min(self.processes, work.n_items)

    def environment(self, work):
        return {**os.environ, **work.environment}

    def run(self, work, **options):
        return subprocess.Popen(work.command, **options)

    def start(self, work):
        return self.started(self, work)


class Several(Processes):
    """Two of them."""

    def __init__(self, *, processes: int = 2):
        super().__init__(processes=processes)


class NoLauncher:
    """It has the method but not the interface."""

    def start(self, work):
        return Started(Processes(), work)


class Positional(Processes):
    """A positional option."""

    def __init__(self, processes: int = 1):
        self.processes = processes


class Doubled(Processes):
    """An option that is stored as another value."""

    def __init__(self, *, processes: int = 1):
        self.processes = processes * 2


class Silent(Processes):
    pass


class Pretending(Processes):
    """It runs something else."""

    def run(self, work, **options):
        return subprocess.Popen(["true"], **options)


class Alike(Several):
    """All of its workers have the same name."""

    class started(Started):  # noqa: N801
        def name(self, number):
            return "process"


class Generous(Processes):
    """It starts two workers for whatever there is to do."""

    def count(self, work):
        return 2


class Shell(Processes):
    """A shell reads the command."""

    def run(self, work, **options):
        python, rest = work.command[:6], work.command[6:]
        line = " ".join([shlex.join(python), *(f'"{argument}"' for argument in rest)])
        return subprocess.Popen(f"exec {line}", shell=True, **options)


class Stubborn(Processes):
    """The variables of the place have precedence."""

    def environment(self, work):
        return {**work.environment, **os.environ}


class Elsewhere(Processes):
    """It runs in another directory."""

    cwd = "/"


class Mute(Processes):
    """Messages on stderr are lost."""

    stderr = subprocess.DEVNULL


class Laconic(Processes):
    """It gives no reason."""

    class started(Started):  # noqa: N801
        def state(self, number, process):
            found = super().state(number, process)
            silent = WorkerState(found.name, found.status, log=found.log)
            return silent if process.returncode == 3 else found


class Tireless(Processes):
    """It starts again whatever was killed."""

    class started(Started):  # noqa: N801
        def states(self):
            for number, process in enumerate(self.processes):
                if process.poll() == -signal.SIGKILL:
                    self.processes[number] = self.spawn(Processes(), number)
            return super().states()


class Abrupt(Processes):
    """It raises an error of the operating system."""

    class started(Started):  # noqa: N801
        def spawn(self, how, number):
            if not os.path.exists(self.work.command[0]):  # noqa: PTH110
                raise FileNotFoundError(self.work.command[0])
            return super().spawn(how, number)


class Blocking(Processes):
    """It waits for the workers."""

    def start(self, work):
        started = super().start(work)
        for process in started.processes:
            process.wait()
        return started


class Forgetful(Processes):
    """It says that all has failed once it was stopped."""

    class started(Started):  # noqa: N801
        stopped = False

        def state(self, number, process):
            found = super().state(number, process)
            return WorkerState(found.name, "failed", reason="stopped") if self.stopped else found

        def stop(self):
            super().stop()
            self.stopped = True


class Hoarding(Processes):
    """It reports the workers of earlier jobs."""

    def start(self, work):
        started = super().start(work)
        self.earlier = [*vars(self).get("earlier", ()), *started.processes]
        started.processes = self.earlier
        return started


class Brutal(Processes):
    """It kills at once."""

    class started(Started):  # noqa: N801
        grace = 0.0

        def signal(self, process, number):
            super().signal(process, signal.SIGKILL)


class Narrow(Processes):
    """It kills the command but not what the command has started."""

    class started(Started):  # noqa: N801
        def signal(self, process, number):
            process.send_signal(number)


BROKEN = {
    "check_construction": NoLauncher,
    "check_options_typed": Positional,
    "check_options_stored": Doubled,
    "check_summary": Silent,
    **misdeclared(Processes),
    "check_runs": Pretending,
    "check_names": Alike,
    "check_number": Generous,
    "check_arguments": Shell,
    "check_environment": Stubborn,
    "check_directory": Elsewhere,
    "check_logs": Mute,
    "check_failure": Laconic,
    "check_death": Tireless,
    "check_no_command": Abrupt,
    "check_start_returns": Blocking,
    "check_states_stay": Forgetful,
    "check_again": Hoarding,
    "check_stop": Brutal,
    "check_kill": Narrow,
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@parametrize_with_checks([Several])
def test_a_sound_launcher_passes(make, check):
    check(make)


@pytest.fixture
def checks(monkeypatch):
    """Return a function that leaves out checks which take seconds and have a test of their own."""

    def without(*names):
        kept = [check for check in checks_for("launcher") if check.__name__ not in names]
        monkeypatch.setattr(launcher, "suite", kept)

    return without


@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing, checks, monkeypatch):
    if name in list(BROKEN)[:8]:  # a wrong declaration does not change how it runs
        checks(*list(BROKEN)[9:])
    elif name not in ("check_stop", "check_kill"):
        checks("check_kill")
    if name in ("check_death", "check_start_returns"):  # these two never come to an end
        monkeypatch.setattr(launcher, "_PATIENCE", 2.0)
    assert failing(BROKEN[name], "launcher") == {name}


def test_every_check_has_its_broken_launcher():
    assert list(BROKEN) == [check.__name__ for check in checks_for("launcher")]
