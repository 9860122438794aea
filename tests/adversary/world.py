"""What the adversary attacks: a small finished run with its files, and how an attack is judged.

An attack damages a file, gives a bad value or breaks the environment, and then gives a command.
Whatever it does, the command must end in time, with exit code 0 or 2, without a traceback, without
``unexpected`` and without blaming itself; one that ends with 0 must print the right numbers.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.adversary.watch import within

__all__ = ["PLANTED", "QUICK", "TASKS", "TRAINED", "Told", "World", "build", "tell"]

PLANTED = ("--dataset", "planted", "-o", "dataset.size=32", "-o", "dataset.n_per_class=30")
TASKS = ("--shot", "1", "--queries", "5", "--tasks", "20")
TRAINED = (
    *PLANTED, "--device", "cpu", "-o", "training.epochs=1", "-o", "training.steps=2",
    "-o", "training.validation_tasks=2",
)  # fmt: skip
"""A training of a second."""
QUICK = (*TRAINED, *TASKS)
"""A run of a second."""

_PARTLY = re.compile(r"^sweep .* experiments finished.*, \d+ failed$", re.M)
"""What a sweep says at its end if some of its experiments failed; its exit code is then 1."""
_FAULTS = re.compile(
    r"Traceback \(most recent call last\)|unexpected|a bug in fsframework|not done after \d+ s",
    re.I,
)


@dataclass(frozen=True)
class Told:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    def faults(self) -> list[str]:
        """Return what no command may do, in words; empty if it did nothing of the kind."""
        partly = self.code == 1 and _PARTLY.search(self.out) is not None
        found = [f"exit code {self.code}"] * (self.code not in (0, 2) and not partly)
        match = _FAULTS.search(self.out + self.err)
        if match is not None:
            found.append(match.group())
        if self.code == 2 and not self.err.startswith("fsf: ") and "\nfsf: " not in self.err:
            found.append("no sentence")
        return found


@dataclass(frozen=True)
class World:
    """A folder with a finished run.

    Args:
        folder: holds ``runs``, ``cache``, ``added`` and the current folder ``here``.
        run: folder of the finished run.
        numbers: lines of its table.
    """

    folder: Path
    run: Path
    numbers: tuple[str, ...]

    def copied(self, to: Path) -> World:
        """Return a copy that an attack may damage."""
        shutil.copytree(self.folder, to, symlinks=True)
        return World(to, to / self.run.relative_to(self.folder), self.numbers)

    def tell(self, *arguments: object, seconds: int = 60) -> Told:
        """Give a command in this world."""
        return tell(self.folder, *arguments, seconds=seconds)

    def numbers_differ(self, told: Told) -> bool:
        """Whether a command printed a table of other numbers than the finished run's."""
        return told.code == 0 and numbers(told.out) != self.numbers


def numbers(out: str) -> tuple[str, ...]:
    """Return the lines of the table of estimates."""
    return tuple(line.strip() for line in out.splitlines() if "±" in line)


def build(folder: Path) -> World:
    """Make a world: a finished run of a second, and its caches."""
    told = tell(folder, "run", *QUICK)
    assert told.code == 0, told.err
    (record,) = folder.glob("runs/*/run.json")
    return World(folder, record.parent, numbers(told.out))


def tell(folder: Path, *arguments: object, seconds: int = 60) -> Told:
    """Give a command within this process, its files below ``folder``."""
    from fsframework.cli.main import main

    here = folder / "here"
    here.mkdir(parents=True, exist_ok=True)
    places = {"FSF_RUNS": "runs", "FSF_CACHE": "cache", "FSF_DATA": "added"}
    environment, argv, cwd = dict(os.environ), sys.argv, Path.cwd()
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    try:
        os.environ.update({name: str(folder / place) for name, place in places.items()})
        os.chdir(here)
        sys.argv = ["fsf", *map(str, arguments)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), within(seconds):
            main()
    except SystemExit as done:
        code = 0 if done.code is None else done.code
    finally:
        sys.argv = argv
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
    return Told(code if isinstance(code, int) else 1, out.getvalue(), err.getvalue())
