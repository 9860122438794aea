"""Checks of launchers.

The functions of a check leave files in a new folder of the current directory, which launchers share
with their workers. They wait up to two minutes for what must happen.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, closing, contextmanager
from pathlib import Path
from typing import Any

from fsframework.interfaces.launcher import Launcher, WorkerDied
from fsframework.testing._fresh import answers_in_fresh_process
from fsframework.testing._suite import Make, Suite, check_options_stored, require

suite = Suite(Launcher)

_PATIENCE = 120.0
"""Seconds to wait for what must happen, which includes the start of a remote worker."""

_QUIET = 0.5
"""Seconds in which a worker that still runs would show it."""

_ITEMS: tuple[Any, ...] = (
    "",
    'two words, it\'s "quoted", back\\slash, $HOME `true` ; # & | <> * ? %j {0} Zürich 東京\n',
    None,
    {"a": [1, 2.5, {"b": None}]},
    ("tuple", 1, (2.5,)),
    {1: "a number as key", None: True},
    b"\x00\xff",
    Path("folder/file"),
)

_MANY = 16
"""Items of a realistic map, some of them equal."""

_SHADOWED = ("json", "pickle", "socket", "wave", "numpy", "fsframework")
"""Modules that workers have imported, and one that they have not."""

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


def echo(item: Any) -> Any:
    """Return the item."""
    return item


def mark(item: tuple[str, int]) -> int:
    """Leave a file, and return the number of the item."""
    folder, number = item
    (Path(folder) / f"mark-{uuid.uuid4().hex}").touch()
    return number


def place(item: str) -> tuple[str, str | None]:
    """Return the working directory and a variable."""
    return str(Path.cwd()), os.environ.get(item)


def home(item: str) -> str:
    """Return the file of a module."""
    found = importlib.util.find_spec(item)
    return str(found and found.origin)


def speak(item: str) -> None:
    """Print on both streams, from this process and from a child."""
    print("printed", item, flush=True)
    print("warned", item, file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-I", "-S", "-c", f"print('child', {item!r})"], check=True)


def fail(item: str) -> str:
    """Raise an exception or kill this process, if the item says so."""
    if item == "raise":
        raise ValueError("the value is odd")
    if item == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def wait_for(item: str) -> bool:
    """Wait until a file exists; an empty name is one that does."""
    return not item or _happens(Path(item).exists)


def be_interrupted(item: str) -> None:
    """Leave a file when it begins, and another one when it is interrupted."""
    me = uuid.uuid4().hex
    (Path(item) / f"began-{me}").touch()
    try:
        _happens(lambda: False)
    except (KeyboardInterrupt, SystemExit):
        (Path(item) / f"cleaned-{me}").touch()
        raise


def persist(item: str) -> None:
    """Ignore SIGTERM and start a child that does so too; both show in files that they live."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child, own = Path(item) / "child", Path(item) / "worker"
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", _BEAT, str(child), str(_PATIENCE)]):
        _happens(child.exists)
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            with own.open("a") as file:
                file.write(".")
            time.sleep(0.02)


def _happens(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder that the workers can see, too."""
    # A worker that a faulty launcher leaves behind may still write into it.
    with tempfile.TemporaryDirectory(
        prefix="fsf-check-", dir=Path.cwd(), ignore_cleanup_errors=True
    ) as name:
        (Path(name) / "logs").mkdir()
        yield Path(name)


@contextmanager
def _mapped(
    launcher: Launcher, folder: Path, function: Callable[[Any], Any], items: Sequence[Any]
) -> Iterator[Iterator[tuple[int, Any]]]:
    found = launcher.map(function, items, name="fsf-check", logs=folder / "logs")
    require(
        hasattr(found, "close") and hasattr(found, "__next__"),
        f"map must be a generator, which can be closed, not return {type(found).__name__}",
    )
    with closing(found):  # type: ignore[type-var]
        yield found


def _results(make: Make, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return the result of each item, which must come once."""
    with _folder() as folder, _mapped(make(), folder, function, items) as found:
        pairs = list(found)
    places = [place for place, _ in pairs]
    require(
        sorted(places) == list(range(len(items))),
        f"each of {len(items)} items must have one result, but there are some for {places}",
    )
    return [result for _, result in sorted(pairs, key=lambda pair: pair[0])]


def _died(result: Any, what: str) -> None:
    require(
        isinstance(result, WorkerDied),
        f"{what} must give a WorkerDied, not {result!r}",
    )
    require(bool(result.reason.strip()), f"{what} must have a reason")


@suite.check()
def check_results(make: Make) -> None:
    """Every item has one result, at its own position; items and results arrive unchanged."""
    for sent, got in zip(_ITEMS, _results(make, echo, _ITEMS), strict=True):
        require(got == sent, f"the item {sent!r} comes back as {got!r}")


@suite.check(after=[check_results])
def check_many(make: Make) -> None:
    """Each of sixteen items is worked on once, those that are equal too."""
    with _folder() as folder:
        items = [(str(folder), place // 2) for place in range(_MANY)]
        found = _results(make, mark, items)
        marks = len([*folder.glob("mark-*")])
    require(found == [place for _, place in items], f"{_MANY} items have the results {found}")
    require(marks == _MANY, f"the function ran {marks} times for {_MANY} items")


@suite.check(after=[check_results, check_options_stored])
def check_fresh_process(make: Make) -> None:
    """A launcher that another process rebuilds from its options gives the same results."""
    with _folder() as folder:
        answers = functools.partial(_answers_in, str(folder))
        there = answers_in_fresh_process(answers, make())
    require(there == {"results": list(_ITEMS)}, f"in a fresh process the results are {there}")


def _answers_in(folder: str, make: Make) -> dict[str, Any]:
    """Return results, as a process in another folder finds them that the workers can see."""
    with chdir(folder):
        return {"results": _results(make, echo, _ITEMS)}


@suite.check(after=[check_results])
def check_no_items(make: Make) -> None:
    """Without items there are no results."""
    require(not _results(make, echo, ()), "no items must have no results")


@suite.check(after=[check_results])
def check_as_they_come(make: Make) -> None:
    """A result can be seen before the next one is there."""
    with _folder() as folder:
        go = folder / "go"
        with _mapped(make(), folder, wait_for, ["", str(go)]) as found:
            for _, result in found:
                require(result is True, "the first result comes only with the last one")
                go.touch()


@suite.check(after=[check_results])
def check_place(make: Make) -> None:
    """Workers are in the caller's directory and have its variables that begin with ``FSF_``."""
    here = Path.cwd().resolve()
    os.environ["FSF_CHECK"] = value = 'it\'s "two words", $HOME; Zürich=東京'
    try:
        [[directory, got]] = _results(make, place, ["FSF_CHECK"])
    finally:
        del os.environ["FSF_CHECK"]
    require(
        Path(directory).resolve() == here,
        f"a worker must be in the directory of the caller, not in {directory}",
    )
    require(got == value, f"FSF_CHECK={value!r} arrives as {got!r}")


@suite.check(after=[check_place])
def check_modules(make: Make) -> None:
    """Workers import no file of the caller's directory in place of a library's module."""
    with _folder() as folder, chdir(folder):
        for name in _SHADOWED:
            Path(f"{name}.py").write_text("raise SystemExit('it is a file of the directory')")
        for name, file in zip(_SHADOWED, _results(make, home, _SHADOWED), strict=True):
            ours = isinstance(file, str) and folder.resolve() not in Path(file).resolve().parents
            require(ours, f"a worker must not import ./{name}.py; it has {file}")


@suite.check(after=[check_results])
def check_logs(make: Make) -> None:
    """What workers and their children print is in files below the folder of logs."""
    with _folder() as folder:
        with _mapped(make(), folder, speak, ["a", "b"]) as found:
            list(found)
        files = [path for path in (folder / "logs").rglob("*") if path.is_file()]
        printed = "".join(path.read_text(encoding="utf-8", errors="replace") for path in files)
    for text in ("printed a", "printed b", "warned a", "warned b", "child a", "child b"):
        require(text in printed, f"{text!r} was printed and is in no file of the logs")


@suite.check(after=[check_results])
def check_exception(make: Make) -> None:
    """An exception of the function gives a ``WorkerDied`` that says so; other items go on."""
    first, second, third = _results(make, fail, ["a", "raise", "b"])
    _died(second, "an exception")
    require("the value is odd" in second.reason, f"the reason must say why, not {second.reason!r}")
    require((first, third) == ("a", "b"), "an exception must not keep other items from results")


@suite.check(after=[check_results])
def check_death(make: Make) -> None:
    """A killed worker gives a ``WorkerDied`` with a reason; other items go on."""
    results = _results(make, fail, ["a", "die", "b", "c"])
    _died(results.pop(1), "a killed worker")
    require(
        results == ["a", "b", "c"], f"a death must not keep other items from results: {results}"
    )


@suite.check(after=[check_results])
def check_again(make: Make) -> None:
    """The same launcher works again."""
    launcher = make()
    for _ in range(2):
        require(_results(lambda: launcher, echo, ["again"]) == ["again"], "it works only once")


@suite.check(after=[check_as_they_come])
def check_close(make: Make) -> None:
    """Closing interrupts the functions, lets them clean up, and returns when none runs."""
    with _folder() as folder:
        items = ["", *[str(folder)] * 2]
        with _mapped(make(), folder, _first_then_wait, items) as found:
            next(found)
            _happens(lambda: any(folder.glob("began-*")))
            found.close()  # type: ignore[attr-defined]
        began, cleaned = (len([*folder.glob(f"{name}-*")]) for name in ("began", "cleaned"))
        # A function may be stopped just before it says that it began.
        require(began > 0, "no function has begun")
        require(cleaned >= began, f"closing let {cleaned} of {began} functions clean up")


def _first_then_wait(item: str) -> None:
    if item:
        be_interrupted(item)


@suite.check(after=[check_as_they_come])
def check_kill(make: Make) -> None:
    """Closing kills a worker that ignores SIGTERM, and the processes that it has started."""
    with _folder() as folder:
        with _mapped(make(), folder, _first_then_persist, ["", str(folder)]) as found:
            next(found)
            _happens((folder / "worker").exists)
            require((folder / "worker").exists(), "the function has not begun")
            found.close()  # type: ignore[attr-defined]
        before = _beats(folder)
        time.sleep(_QUIET)
        alive = sorted(name for name, beats in _beats(folder).items() if beats != before[name])
        require(not alive, f"closing has left running: {json.dumps(alive)}")


def _first_then_persist(item: str) -> None:
    if item:
        persist(item)


def _beats(folder: Path) -> dict[str, int]:
    """Return how often each process has shown that it lives."""
    # The files are read, since NFS may give their size from its cache.
    return {name: len((folder / name).read_bytes()) for name in ("child", "worker")}
