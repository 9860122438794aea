"""Seconds of commands that should answer immediately, compared with a bare interpreter.

Run ``python benchmarks/startup.py``. Whole processes, the quickest of several, the bare interpreter
measured in the same run.
"""

from __future__ import annotations

import subprocess
import sys
import time

REPETITIONS, LIMIT = 7, 0.3
FSF = (sys.executable, "-m", "fsframework")
COMMANDS = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "import fsframework": (sys.executable, "-c", "import fsframework"),
    "fsf --help": (*FSF, "--help"),
    "fsf plugins list": (*FSF, "plugins", "list"),
    "fsf run --help": (*FSF, "run", "--help"),
}


def quickest(command: tuple[str, ...]) -> float:
    """Return the shortest wall-clock time of a command in seconds."""
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    print(f"{'command':<20}{'s':>8}{'ratio':>8}   limit {LIMIT} s")
    bare = 0.0
    for name, command in COMMANDS.items():
        seconds = quickest(command)
        bare = bare or seconds
        print(f"{name:<20}{seconds:>8.3f}{seconds / bare:>8.1f}")


if __name__ == "__main__":
    main()
