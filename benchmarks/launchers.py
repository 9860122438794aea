"""Seconds until workers have run and ended, by launcher, against the command by itself.

Run ``python benchmarks/launchers.py``. Every worker runs an empty Python script. The first start of
a launcher contains what is done once; a start after it is what each further job costs. Give the
address of a running cluster to leave the start of a cluster out: ``--address HOST:PORT``.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _options import positive

from fsf_ray import RayLauncher
from fsframework.interfaces import Launcher, Work
from fsframework.launchers.local import Local

COMMAND = (sys.executable, "-S", "-c", "pass")


def by_itself(workers: int) -> tuple[float, float, float]:
    """Return the seconds that the commands take without a launcher, one after the other."""
    start = time.perf_counter()
    for _ in range(workers):
        subprocess.run(COMMAND, check=True)
    return 0.0, time.perf_counter() - start, 0.0


def launched(launcher: Launcher, workers: int) -> tuple[float, float, float]:
    """Return the seconds of ``start``, from there to the last worker's end, and of ``stop``."""
    with tempfile.TemporaryDirectory() as folder:
        times = [time.perf_counter()]
        started = launcher.start(Work("empty", COMMAND, workers, Path(folder)))
        times.append(time.perf_counter())
        while any(state.status in ("waiting", "running") for state in started.states()):
            time.sleep(0.01)
        times.append(time.perf_counter())
        started.stop()
        times.append(time.perf_counter())
    first, second, third = (after - before for before, after in itertools.pairwise(times))
    return first, second, third


def show(name: str, number: int, seconds: tuple[float, float, float]) -> None:
    each = f"{sum(seconds) / number:>12.3f}"
    print(f"{name:<28}{number:>8}" + "".join(f"{one:>8.2f}" for one in seconds) + each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=positive, default=2, metavar="N", help="default: 2")
    parser.add_argument("--address", metavar="HOST:PORT", help="a running Ray cluster")
    options = parser.parse_args()
    launchers = {
        "local": Local(processes=options.workers, threads=1),
        "ray": RayLauncher(address=options.address, workers=options.workers, cpus=0.5),
    }
    print(f"{'':<28}{'workers':>8}{'start':>8}{'run':>8}{'stop':>8}{'s per worker':>12}")
    for number in (1, options.workers):
        show("by itself", number, by_itself(number))
    for name, launcher in launchers.items():
        show(f"{name}, first start", options.workers, launched(launcher, options.workers))
        show(f"{name}, one worker", 1, launched(launcher, 1))
        show(f"{name}, again", options.workers, launched(launcher, options.workers))


if __name__ == "__main__":
    main()
