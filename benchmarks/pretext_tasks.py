"""What each pretext task changes, against the same training without it, on the embedded data set.

Run ``python benchmarks/pretext_tasks.py``. It trains ProtoNet and R2D2, each without and with every
pretext task, by the grid of ``pretext.toml``: about half an hour per training seed on one idle
thread. Finished runs are reused, whoever made them. Each row is a paired difference on the same 600
tasks, in points, with its 95 % interval: over tasks only with one training seed, over training
seeds and tasks with several.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import fsframework as fsf

MEASURES = ("acc-random", "wacc-random", "wacc-biased", "wacc-gap")
GRID = Path(__file__).with_name("pretext.toml")


def main() -> None:
    """Run the grid, then print a row for each method within a base."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0-2", help="training seeds (%(default)s)")
    asked = parser.parse_args()
    found = fsf.sweep(name="pretext", config=GRID, seeds=asked.seeds)
    for name, reason in found.failures.items():
        print(f"{name} failed: {reason}")
    groups: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for row in found.rows:
        if row.group is not None:
            method = row.tags["method"]
            base = method.rpartition(":")[2]
            groups[base, row.tags["backbone.last_pool"]][method] = row.group
    print(f"{'method':24}" + "".join(f"{name:>16}" for name in MEASURES))
    for (base, _), methods in groups.items():
        compared = fsf.compare(methods, list(MEASURES), baseline=base)
        for method in methods:
            if method != base:
                shown = [difference(compared[name], method, base) for name in MEASURES]
                print(f"{method:24}" + "".join(f"{text:>16}" for text in shown))


def difference(measure: Any, method: str, base: str) -> str:
    """Return a method's value minus its base's, in points."""
    for pair in measure.pairs:
        if {pair.first, pair.second} == {method, base}:
            sign = 1 if pair.first == method else -1
            value = sign * pair.difference.value
            return f"{100 * value:+.1f} ± {100 * pair.difference.half_width:.1f}"
    return "-"


if __name__ == "__main__":
    main()
