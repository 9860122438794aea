"""Seconds of commands that should answer immediately, compared with a bare interpreter.

Run ``python benchmarks/startup.py``. A figure is the shortest time of several whole processes; the
bare interpreter is measured in the same run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from _options import positive

REPETITIONS, LIMIT = 7, 0.3
FSF = (sys.executable, "-m", "fsframework")
COMMANDS = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "import fsframework": (sys.executable, "-c", "import fsframework"),
    "fsf --help": (*FSF, "--help"),
    "fsf plugins list": (*FSF, "plugins", "list"),
    "fsf run --help": (*FSF, "run", "--help"),
}


def quickest(command: tuple[str, ...], repetitions: int) -> float:
    """Return the shortest wall-clock time of a command in seconds."""
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--repetitions",
        type=positive,
        default=REPETITIONS,
        metavar="N",
        help=f"default: {REPETITIONS}",
    )
    options = parser.parse_args()
    print(f"{'command':<20}{'s':>8}{'ratio':>8}   limit {LIMIT} s")
    bare = 0.0
    for name, command in COMMANDS.items():
        seconds = quickest(command, options.repetitions)
        bare = bare or seconds
        print(f"{name:<20}{seconds:>8.3f}{seconds / bare:>8.1f}")


if __name__ == "__main__":
    main()
