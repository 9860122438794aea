"""Attacks on what surrounds a command: folders, terminals, variables, closed streams.

Each is a process of its own, since streams and variables are read when Python starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from PIL import Image

from tests.adversary.world import QUICK, Told, World


@dataclass(frozen=True)
class Attack:
    """What is wrong with the environment, and the exit codes that are right.

    Args:
        variables: to set, or to remove where ``None``; ``{world}`` stands for the world's folder.
        before: what is done to the world first.
        shell: redirections that follow the command.
        codes: allowed exit codes; with 0 the numbers must be right.
    """

    variables: dict[str, str | None] = field(default_factory=dict)
    before: Callable[[World], None] = lambda _world: None
    shell: str = ""
    codes: tuple[int, ...] = (0,)


def _replaced(name: str, by: Callable[[Path], object]) -> Callable[[World], None]:
    """Return what puts something in the place of a folder of the world."""

    def replace(world: World) -> None:
        place = world.folder / name
        if place.is_dir():
            place.rename(place.with_name(f"{name}-away"))
        by(place)

    return replace


def _file_at(name: str) -> Callable[[World], None]:
    return _replaced(name, lambda place: place.write_text("no folder"))


def _link_at(name: str) -> Callable[[World], None]:
    return _replaced(name, lambda place: place.symlink_to(place))


def _remains(world: World) -> None:
    """Leave what killed processes leave: temporary files, locks."""
    for place in [p for p in world.folder.rglob("*") if p.is_dir()]:
        (place / ".tmp-0-left.partial").write_bytes(b"left")
        (place / ".lock").write_bytes(b"")


_ATTACKS = {
    "ascii output": Attack({"PYTHONIOENCODING": "ascii"}),
    "gbk output": Attack({"PYTHONIOENCODING": "gbk", "PYTHONUTF8": "0"}),
    "cp437 output": Attack({"PYTHONIOENCODING": "cp437", "PYTHONUTF8": "0"}),
    "cp1252 output": Attack({"PYTHONIOENCODING": "cp1252"}),
    "C locale": Attack({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "POSIX locale": Attack({"LC_ALL": "POSIX", "LANG": None}),
    "unknown locale": Attack({"LC_ALL": "xx_XX.nowhere"}),
    "narrow terminal": Attack({"COLUMNS": "1"}),
    "wide terminal": Attack({"COLUMNS": "100000"}),
    "columns not a number": Attack({"COLUMNS": "abc"}),
    "dumb terminal": Attack({"TERM": "dumb"}),
    "unknown terminal": Attack({"TERM": "nowhere"}),
    "forced colour": Attack({"FORCE_COLOR": "1"}),
    "no home": Attack({"HOME": None}),
    "home that is missing": Attack({"HOME": "/nowhere/at/all"}),
    "no temporary folder": Attack({"TMPDIR": "/nowhere/at/all"}),
    "threads not a number": Attack({"OMP_NUM_THREADS": "abc"}),
    "no threads": Attack({"OMP_NUM_THREADS": "0"}),
    "hash seed": Attack({"PYTHONHASHSEED": "12345"}),
    "optimised": Attack({"PYTHONOPTIMIZE": "2"}),
    "time zone": Attack({"TZ": "nowhere/at/all"}),
    "device that is missing": Attack({"FSF_DEVICE": "cuda:99"}, codes=(0,)),
    "unknown method": Attack({"FSF_METHOD": "nowhere"}, codes=(2,)),
    "empty method": Attack({"FSF_METHOD": ""}),
    "unknown data set": Attack({"FSF_DATASET": "nowhere"}),
    "cache in a file": Attack(before=_file_at("cache"), codes=(0, 2)),
    "cache in a loop of links": Attack(before=_link_at("cache"), codes=(0, 2)),
    "cache in /proc": Attack({"FSF_CACHE": "/proc/nowhere"}, codes=(0, 2)),
    "cache in a device": Attack({"FSF_CACHE": "/dev/null"}, codes=(0, 2)),
    "cache of no name": Attack({"FSF_CACHE": ""}),
    "runs in a file": Attack(before=_file_at("runs"), codes=(2,)),
    "runs in a loop of links": Attack(before=_link_at("runs"), codes=(2,)),
    "runs in /proc": Attack({"FSF_RUNS": "/proc/nowhere"}, codes=(2,)),
    "runs in a long path": Attack({"FSF_RUNS": "x" * 300}, codes=(2,)),
    "added data in a file": Attack(before=_file_at("added")),
    "added data in a loop of links": Attack(before=_link_at("added")),
    "added data in a device": Attack({"FSF_DATA": "/dev/zero"}),
    "remains of killed processes": Attack(before=_remains),
    "closed output": Attack(shell=">&-"),
    "closed error": Attack(shell="2>&-"),
    "closed input": Attack(shell="<&-"),
    "full output": Attack(shell=">/dev/full", codes=(2,)),
    "reader that goes": Attack(shell="| head -c 1"),
}  # fmt: skip


def _attacked(world: World, attack: Attack) -> Told:
    attack.before(world)
    places = {"FSF_RUNS": "runs", "FSF_CACHE": "cache", "FSF_DATA": "added"}
    environment = {**os.environ, **{k: str(world.folder / v) for k, v in places.items()}}
    for name, value in attack.variables.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    command = f'"{sys.executable}" -m fsframework run "$@" {attack.shell}'
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command, "fsf", *QUICK],
        cwd=world.folder,
        env=environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return Told(
        done.returncode, *(s.decode("utf-8", "replace") for s in (done.stdout, done.stderr))
    )


def _faults(world: World, name: str) -> list[str]:
    attack = _ATTACKS[name]
    told = _attacked(world, attack)
    faults = [f for f in told.faults() if not f.startswith("exit code")]
    if told.code not in attack.codes:
        faults.append(f"exit code {told.code}: {told.err[-300:]}")
    if told.code == 0 and not attack.shell and name != "narrow terminal":
        # Widths follow the characters, so only the words of a line are compared.
        plain = told.out.replace("+/-", "±").replace("\ufffd", "±")
        printed = [_words(line) for line in plain.splitlines() if "±" in line]
        faults += ["other numbers"] * (printed != [_words(line) for line in world.numbers])
    return faults


def _words(line: str) -> list[str]:
    """Return the words of a line with a letter or a digit, so not the bars of intervals."""
    plain = line.replace("−", "-").split()
    return [word for word in plain if any(character.isalnum() for character in word)]


@pytest.mark.one_in(12)
@pytest.mark.parametrize("name", _ATTACKS)
def test_no_hostile_environment_ends_in_a_traceback_or_other_numbers(
    world: World, name: str
) -> None:
    assert _faults(world, name) == []


@pytest.mark.parametrize("encoding", ["gbk", "cp1252", "ascii", None])
def test_class_names_are_shown_in_any_encoding(encoding: str | None, tmp_path: Path) -> None:
    for name in ("\u732b", "\u72d7"):
        (tmp_path / "im" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (8, 8), (99 * number, 9, 9)).save(tmp_path / f"im/{name}/{number}.png")
    variables = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "fsframework", "data", "check", "--dataset", "folder:im"],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTHONIOENCODING"},
            **({"PYTHONIOENCODING": encoding} if encoding else variables),
            "PYTHONUTF8": "0",
        },
        capture_output=True,
        timeout=120,
        check=False,
    )
    # In the C locale, Python cannot read these names either; that is one sentence.
    assert done.returncode == (0 if encoding else 2), done.stderr
    assert b"Traceback" not in done.stderr
    assert encoding != "gbk" or "\u732b".encode("gbk") in done.stdout


def test_files_that_appear_are_only_in_the_folders_given(world: World, tmp_path: Path) -> None:
    before = {p for p in tmp_path.rglob("*") if not p.is_relative_to(world.folder / "cache")}
    assert world.tell("run", *QUICK).code == 0
    after = {p for p in tmp_path.rglob("*") if not p.is_relative_to(world.folder / "cache")}
    assert after == before
