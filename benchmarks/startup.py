"""Processor time of commands that compute nothing, against a bare interpreter and ``import torch``.

Run ``python benchmarks/startup.py``; it takes about three minutes. Each command is run in turn with
a bare interpreter and with one that imports PyTorch; the table shows medians of its processor time,
and of the ratios to the two of the same turn. In the folder of runs are copies of one run. The last
row is a finished run that is asked for again within one process.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _options import positive

FSF = (sys.executable, "-m", "fsframework")
BARE, TORCH = ((sys.executable, "-c", code) for code in ("pass", "import torch"))
RUN = ("run", "--method", "ncc", "-o", "training.epochs=0", "-o", "dataset.size=32")
COMMANDS = {
    "fsf --help": ("--help",),
    "fsf run --help": ("run", "--help"),
    "fsf plugins list": ("plugins", "list"),
    "fsf runs list": ("runs", "list"),
    "fsf tasks make": ("tasks", "make", "tasks.safetensors", "--force"),
    "fsf run, finished": RUN,
}
WITHIN = """
import time
import fsframework as fsf
def run():
    start = time.process_time()
    fsf.run(method="ncc", training={"epochs": 0}, dataset={"name": "planted", "size": 32},
            progress=False)
    return time.process_time() - start
run()
print(sorted(run() for _ in range(7))[3])
"""


def seconds(command: tuple[str, ...]) -> float:
    """Return the processor time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=positive, default=7, metavar="N", help="default: 7")
    parser.add_argument(
        "--runs", type=positive, default=1000, metavar="N", help="in the folder (default: 1000)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= {"FSF_CACHE": "cache", "FSF_RUNS": "runs", "OMP_NUM_THREADS": "1"}
        seconds((*FSF, *RUN))
        [made] = [path for path in Path("runs").iterdir() if (path / "run.json").exists()]
        for number in range(1, options.runs):
            copied = Path("runs", f"copy-{number}")
            copied.mkdir()
            shutil.copy(made / "run.json", copied)
        time.sleep(3)  # what is installed is remembered once it has been left alone for a while
        print(f"{options.runs:,} runs; load of the machine {os.getloadavg()[0]:.1f}")
        print(f"{'':<24}{'s':>8}{'by bare':>9}{'by torch':>10}")
        for name, arguments in COMMANDS.items():
            command = (*FSF, *arguments)
            seconds(command)
            turns = [tuple(map(seconds, (BARE, TORCH, command))) for _ in range(options.turns)]
            by_bare = statistics.median(own / bare for bare, _, own in turns)
            by_torch = statistics.median(own / torch for _, torch, own in turns)
            median = statistics.median(own for *_, own in turns)
            print(f"{name:<24}{median:>8.3f}{by_bare:>9.1f}{by_torch:>10.2f}")
        found = subprocess.run((sys.executable, "-c", WITHIN), capture_output=True, check=True)
        print(f"{'again, in one process':<24}{float(found.stdout):>8.3f}")


if __name__ == "__main__":
    main()
