"""Each check of launchers rejects the one broken launcher made for it, and nothing else does."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import wait

import pytest

from fsframework.interfaces import Launcher, WorkerDied
from fsframework.testing import checks_for, launcher, parametrize_with_checks
from tests.misdeclared import misdeclared

FORK = multiprocessing.get_context("fork")


class Processes(Launcher):
    """A forked process for each item, each in a group of its own."""

    grace = 1.0
    first_signal = signal.SIGTERM

    def __init__(self, *, processes: int = 2):
        self.processes = processes

    def map(self, function, items, *, name, logs):
        waiting, running = list(enumerate(items)), {}
        try:
            while waiting or running:
                while waiting and len(running) < self.processes:
                    index, item = waiting.pop(0)
                    running.update([self.begun(function, item, index, logs)])
                for pipe in wait(running):
                    index, process = running.pop(pipe)
                    yield index, self.result(pipe, process)
        finally:
            self.stop([process for _, process in running.values()])

    def begun(self, function, item, index, logs):
        pipe, other = FORK.Pipe()
        process = FORK.Process(target=self.serve, args=(other, function, item, logs / f"{index}"))
        process.start()
        other.close()
        return pipe, (index, process)

    def serve(self, pipe, function, item, log):
        os.setsid()
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        self.redirect(log)
        self.prepare()
        try:
            pipe.send(function(item))
        except Exception as error:
            pipe.send(WorkerDied(str(error)))
        sys.stdout.flush()

    def redirect(self, log):
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")  # not those of pytest

    def prepare(self):
        pass

    def result(self, pipe, process):
        try:
            return pipe.recv()
        except EOFError:
            process.join()
            return WorkerDied(f"exit code {process.exitcode}")

    def kill(self, process):
        os.killpg(process.pid, signal.SIGKILL)

    def stop(self, processes):
        for process in processes:
            os.kill(process.pid, self.first_signal)
        for process in processes:
            process.join(self.grace)
            if process.is_alive():
                self.kill(process)
                process.join()


class NoLauncher:
    """It has the method but not the interface."""

    def map(self, function, items, *, name, logs):
        return Processes().map(function, items, name=name, logs=logs)


class Positional(Processes):
    """A positional option."""

    def __init__(self, processes: int = 2):
        self.processes = processes


class Doubled(Processes):
    """An option that is stored as another value."""

    def __init__(self, *, processes: int = 1):
        self.processes = processes * 2


class Silent(Processes):
    pass


class Translating(Processes):
    """Items travel as JSON, which knows no tuples."""

    def begun(self, function, item, index, logs):
        item = json.loads(json.dumps(item, default=str))
        return super().begun(function, item, index, logs)


class Bounded(Processes):
    """It has room for twelve items."""

    def map(self, function, items, *, name, logs):
        yield from super().map(function, items[:12], name=name, logs=logs)


class Settled(Processes):
    """It works in one process only."""

    def __init__(self, *, processes: int = 2, home: int = hash("home")):
        super().__init__(processes=processes)
        self.home = home

    def prepare(self):
        if self.home != hash("home"):
            raise SystemExit


class Generous(Processes):
    """It has a result where there is nothing to do."""

    def map(self, function, items, *, name, logs):
        yield from super().map(function, items, name=name, logs=logs)
        if not items:
            yield 0, None


class Collecting(Processes):
    """It yields all results at the end."""

    def map(self, function, items, *, name, logs):
        yield from list(super().map(function, items, name=name, logs=logs))


class Elsewhere(Processes):
    """It works in another directory."""

    def prepare(self):
        os.chdir("/")


class Trusting(Processes):
    """It looks for modules in the current directory first."""

    def prepare(self):
        sys.path.insert(0, "")


class Mute(Processes):
    """Messages on stderr are lost."""

    def redirect(self, log):
        super().redirect(log)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


class Laconic(Processes):
    """It does not say which exception was raised."""

    def result(self, pipe, process):
        found = super().result(pipe, process)
        told = isinstance(found, WorkerDied) and not found.reason.startswith("exit code")
        return WorkerDied("it failed") if told else found


class Hasty(Processes):
    """A death ends everything."""

    def map(self, function, items, *, name, logs):
        found = super().map(function, items, name=name, logs=logs)
        if "die" in items:
            found = [one for one in found if isinstance(one[1], WorkerDied)]
        yield from found


class Exhausted(Processes):
    """It works only once."""

    def map(self, function, items, *, name, logs):
        if "used" not in vars(self):
            yield from super().map(function, items, name=name, logs=logs)
        self.used = True


class Brutal(Processes):
    """It kills at once."""

    first_signal = signal.SIGKILL

    def stop(self, processes):
        for process in processes:
            self.kill(process)
        super().stop([])


class Narrow(Processes):
    """It kills the worker but not what the worker has started."""

    def kill(self, process):
        process.kill()


BROKEN = {
    "check_construction": NoLauncher,
    "check_options_typed": Positional,
    "check_options_stored": Doubled,
    "check_summary": Silent,
    **misdeclared(Processes),
    "check_results": Translating,
    "check_many": Bounded,
    "check_fresh_process": Settled,
    "check_no_items": Generous,
    "check_as_they_come": Collecting,
    "check_place": Elsewhere,
    "check_modules": Trusting,
    "check_logs": Mute,
    "check_exception": Laconic,
    "check_death": Hasty,
    "check_again": Exhausted,
    "check_close": Brutal,
    "check_kill": Narrow,
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@parametrize_with_checks([Processes])
def test_a_sound_launcher_passes(make, check):
    check(make)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing, monkeypatch):
    if name == "check_as_they_come":  # the first result never comes
        monkeypatch.setattr(launcher, "_PATIENCE", 1.0)
    if name != "check_many":  # a fork of these tests' large process takes long
        monkeypatch.setattr(launcher, "_MANY", 3)
    if name not in ("check_close", "check_kill"):
        monkeypatch.setattr(launcher, "_QUIET", 0.1)
        monkeypatch.setattr(Processes, "grace", 0.2)
    assert failing(BROKEN[name], "launcher") == {name}


def test_every_check_has_its_broken_launcher():
    assert list(BROKEN) == [check.__name__ for check in checks_for("launcher")]
