"""Seconds of a sweep by several workers, against one; overhead per experiment, by launcher.

Run ``python benchmarks/sweeps.py`` on an idle machine with two cores or more. The sweep trains on
the embedded data set. Every row starts with an empty folder of runs, and all but those of overhead
with an empty cache. ``terminals`` are whole commands, each pinned to a core of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _options import one_of, positive

GRID = ("--method", "protonet,r2d2,matchingnet,baseline", "--shot", "1,5")
TRAINED = ("--seeds", "0-1", "--tasks", "100", "-o", "training.epochs=4")
QUICK = ("--method", "ncc", "--tasks", "100", "-o", "training.epochs=0")
PARTS = ("workers", "terminals", "overhead")


def command(folder: Path, *more: str) -> list[str]:
    where = ("--runs-dir", str(folder / "runs"), "--cache-dir", str(folder / "cache"))
    return [sys.executable, "-m", "fsframework", "sweep", *where, "--device", "cpu", *more]


def started(
    folder: Path, options: Sequence[str], threads: int, core: int | None = None
) -> subprocess.Popen[bytes]:
    pin = ("taskset", "-c", str(core)) if core is not None else ()
    return subprocess.Popen(
        [*pin, *command(folder, *options)],
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def seconds(processes: Sequence[subprocess.Popen[bytes]], start: float) -> float:
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit(f"a sweep ended with {codes}")
    return time.perf_counter() - start


def timed(options: Sequence[str], threads: int, cores: Sequence[int | None] = (None,)) -> float:
    """Return the seconds of a sweep from nothing, by one command per entry of ``cores``."""
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        processes = [started(Path(name), options, threads, core) for core in cores]
        return seconds(processes, start)


def row(label: str, value: float, base: float) -> None:
    print(f"{label:<44}{value:>8.1f}{base / value:>9.2f}", flush=True)


def workers() -> None:
    print(f"{'sweep of 16 trainings':<44}{'s':>8}{'speed-up':>9}")
    options = (*GRID, *TRAINED)
    one = timed(options, threads=2)
    row("this process, 2 threads", one, one)
    local = ("--launcher", "local", "-o", "launcher.processes=2", "-o", "launcher.threads=1")
    row("local, 2 processes of 1 thread", timed((*options, *local), threads=1), one)


def terminals() -> None:
    print(f"{'sweep of 16 trainings':<44}{'s':>8}{'speed-up':>9}")
    options = (*GRID, *TRAINED)
    one = timed(options, threads=1, cores=(0,))
    row("one terminal, 1 core", one, one)
    row("two terminals, 1 core each", timed(options, threads=1, cores=(0, 1)), one)


def overhead(number: int, launchers: Sequence[str]) -> None:
    """Print the seconds per experiment whose stages are cached, and those to start and end."""
    print(f"{f'{number} experiments, all stages cached':<44}{'s':>8}{'s each':>9}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        grid = (*QUICK, "-o", f"training_seed={','.join(map(str, range(number)))}")
        seconds([started(folder, grid, 1)], time.perf_counter())
        finished = _again(folder, grid)
        for launcher in ("", *launchers):
            _forget_runs(folder)
            chosen = ("--launcher", launcher) if launcher else ()
            spent = _again(folder, (*grid, *chosen))
            each = (spent - finished) / number
            print(f"{launcher or 'this process':<44}{spent:>8.1f}{each:>9.3f}", flush=True)
        print(f"{'nothing to do':<44}{finished:>8.1f}{finished / number:>9.3f}")


def _again(folder: Path, options: Sequence[str]) -> float:
    start = time.perf_counter()
    return seconds([started(folder, options, 1)], start)


def _forget_runs(folder: Path) -> None:
    for path in sorted((folder / "runs").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", type=one_of(PARTS), metavar="PART", default=PARTS)
    parser.add_argument("--experiments", type=positive, default=40, metavar="N", help="default: 40")
    parser.add_argument(
        "--launcher", action="append", default=[], metavar="NAME", help="also measure: local, ray"
    )
    options = parser.parse_args()
    for part in options.parts:
        if part == "overhead":
            overhead(options.experiments, options.launcher)
        else:
            {"workers": workers, "terminals": terminals}[part]()
        print()


if __name__ == "__main__":
    main()
