"""Seconds until workers have called an empty function and ended, by launcher.

Run ``python benchmarks/launchers.py``. The first start of a launcher contains what is done once; a
start after it is what each further job costs. Give the address of a running cluster to leave the
start of a cluster out: ``--address HOST:PORT``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from _options import positive

from fsf_ray import RayLauncher
from fsf_tools.local import Local
from fsframework.interfaces import Launcher


def nothing(item: int) -> int:
    """Return the item."""
    return item


def launched(launcher: Launcher, items: int) -> tuple[float, float]:
    """Return the seconds to the first result, and from there to the end."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        found = launcher.map(nothing, range(items), name="empty", logs=Path(folder))
        next(found)
        first = time.perf_counter()
        list(found)
        return first - start, time.perf_counter() - first


def show(name: str, number: int, seconds: tuple[float, float]) -> None:
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
    print(f"{'':<28}{'items':>8}{'first':>8}{'rest':>8}{'s per item':>12}")
    for name, launcher in launchers.items():
        show(f"{name}, first start", options.workers, launched(launcher, options.workers))
        show(f"{name}, one item", 1, launched(launcher, 1))
        show(f"{name}, again", options.workers, launched(launcher, options.workers))


if __name__ == "__main__":
    main()
