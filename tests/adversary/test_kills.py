"""Kills at every ``rename``, ``write`` and ``unlink`` of each command that writes.

The system call at which a command dies is chosen by ``strace``, which kills it with SIGKILL just
before the call takes effect. The same command must then end as if nothing had happened.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.adversary.world import PLANTED, QUICK, World, numbers
from tests.toys import image_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]

_CALLS = "rename,renameat,renameat2,unlink,unlinkat,write,pwrite64,ftruncate,mkdir,rmdir"
_KILLS = int(os.environ.get("FSF_KILLS", "12"))
"""How many system calls of each command are tried; all of them if it is large."""


@dataclass(frozen=True)
class Writer:
    """A command that writes.

    Args:
        arguments: of ``fsf``; ``RUN`` stands for the finished run's name.
        result: file that it makes, below the current folder.
        again: exit codes that are right when the command is given again.
        fresh: whether it starts without a finished run and without a cache.
    """

    arguments: tuple[str, ...]
    result: str = ""
    again: tuple[int, ...] = (0,)
    fresh: bool = False


_TASKS = ("tasks", "make", "t.safetensors", *PLANTED, "--tasks", "20", "--force")
_WORDS = ("attributes", "extract", "w.parquet", *PLANTED, "--detector", "appearance", "--force")
_PREDICT = ("predict", "images/class 0", "--model", "RUN", "--support", "images", "--force")

_WRITERS = {
    "run": Writer(("run", *QUICK), fresh=True),
    "run from the cache": Writer(("run", *QUICK, "--tasks", "30")),
    "run with words detected": Writer(("run", *QUICK, "--detector", "appearance"), fresh=True),
    "tasks make": Writer(_TASKS, "t.safetensors"),
    "attributes extract": Writer(_WORDS, "w.parquet"),
    "data pack": Writer(("data", "pack", *PLANTED), fresh=True),
    "data add": Writer(("data", "add", "folder", "images", "--as", "mine"), again=(0, 2)),
    "cache clean": Writer(("cache", "clean", "--yes")),
    "runs remove": Writer(("runs", "remove", "RUN", "--yes"), again=(0, 2)),
    "predict": Writer((*_PREDICT, "--output", "p.csv"), "p.csv"),
}


def _process(
    world: World, arguments: tuple[str, ...], *tracer: str
) -> subprocess.CompletedProcess[str]:
    places = {"FSF_RUNS": "runs", "FSF_CACHE": "cache", "FSF_DATA": "added"}
    environment = {**os.environ, **{k: str(world.folder / v) for k, v in places.items()}}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    named = [world.run.name if a == "RUN" else str(a) for a in arguments]
    return subprocess.run(
        [*tracer, sys.executable, "-m", "fsframework", *named],
        cwd=world.folder / "here",
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _strace(*options: str) -> tuple[str, ...]:
    return ("strace", "-f", "--seccomp-bpf", "-qq", *options)


def _state(world: World, writer: Writer, told: subprocess.CompletedProcess[str]) -> object:
    """Return what must be equal whether or not the command was killed before."""
    if writer.result:
        from fsframework.values import AttributeTable, TaskSet

        path = world.folder / "here" / writer.result
        if path.suffix == ".safetensors":
            return TaskSet.load(path).digest
        return (
            AttributeTable.load(path).fingerprint if path.suffix == ".parquet" else path.read_text()
        )
    return numbers(told.stdout)


def _start(world: World, writer: Writer, folder: Path) -> World:
    copy = world.copied(folder)
    image_folder(copy.folder / "here" / "images", [f"class {i}" for i in range(5)], side=32)
    if writer.fresh:
        shutil.rmtree(copy.folder / "cache")
        shutil.rmtree(copy.run)
    return copy


@pytest.mark.parametrize("name", _WRITERS)
def test_a_command_killed_while_writing_ends_as_if_it_had_not_been(
    intact: World, tmp_path: Path, name: str
) -> None:
    writer = _WRITERS[name]
    whole = _start(intact, writer, tmp_path / "whole")
    log = tmp_path / "calls"
    told = _process(whole, writer.arguments, *_strace("-o", str(log), "-e", f"trace={_CALLS}"))
    assert told.returncode == 0, told.stderr
    right = _state(whole, writer, told)
    calls = re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.M)
    faults = []
    for call in sorted(set(calls)):
        count = calls.count(call)
        step = max(1, count * len(set(calls)) // _KILLS)
        for number in range(1, count + 1, step):
            world = _start(intact, writer, tmp_path / f"{call}-{number}")
            inject = f"inject={call}:signal=SIGKILL:when={number}"
            _process(
                world,
                writer.arguments,
                *_strace("-o", "/dev/null", "-e", "trace=none", "-e", inject),
            )
            told = _process(world, writer.arguments)
            where = f"{call} {number} of {count}"
            if told.returncode not in writer.again or "Traceback" in told.stderr:
                faults.append(f"{where}: exit code {told.returncode}: {told.stderr[-300:]}")
            elif told.returncode == 0 and _state(world, writer, told) != right:
                faults.append(f"{where}: another result")
            listed = _process(world, ("runs", "list"))
            if listed.returncode != 0:
                faults.append(f"{where}: runs list: {listed.stderr[-200:]}")
            shutil.rmtree(world.folder)
    assert faults == []
