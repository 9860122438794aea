"""Changes of accuracies and predictions with a lower precision of the backbone.

Run ``python benchmarks/precision.py [METHOD[:BACKBONE] ...]``. Each method is trained with its
quick recipe on the embedded data set, then evaluated on the same 600 random and 600 biased tasks
with the backbone in fp32, the baseline, and in bf16 (``--precision`` sets others; fp16 is for GPUs
and takes ten times as long as fp32 on a CPU). Acc and wAcc are in percent; "predictions changed" is
the share of queries that get another class. ``evaluation_at_scale.py`` measures the times. Finished
runs are reused; all files are written below ``--out``. The last line is the largest change in Acc.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from _options import positive

import fsframework as fsf
from fsframework.cli.render import print_table
from fsframework.errors import FsfError

METHODS = (
    "protonet",
    "dn4",
    "r2d2",
    "can",
    "renet",
    "relationnet",
    "rfs",
    "ncc",
    "protonet:resnet12",
)
TASKS = 600
SHOWN = {"acc-random": "Acc-R", "acc-biased": "Acc-A", "wacc-biased": "wAcc-A"}


def changed(one: fsf.Run, other: fsf.Run) -> float:
    """Return the share of queries that two runs on the same tasks classify differently."""
    first, second = one.outcomes, other.outcomes
    return float(np.mean([(first[k].predictions != second[k].predictions).mean() for k in first]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("methods", nargs="*", default=[*METHODS], metavar="METHOD[:BACKBONE]")
    parser.add_argument("--tasks", type=positive, default=TASKS, metavar="N", help="per arm")
    parser.add_argument("--precision", nargs="+", default=["bf16"], choices=["bf16", "fp16"])
    parser.add_argument("--out", type=Path, default=Path("precision-runs"), metavar="FOLDER")
    arguments = parser.parse_args()
    try:
        for text in arguments.methods:
            method, _, backbone = text.partition(":")
            fsf.describe(method=method, **({"backbone": backbone} if backbone else {}))
    except FsfError as error:
        parser.error(str(error))
    where = {"runs_dir": arguments.out / "runs", "cache_dir": arguments.out / "cache"}

    def run(**options: Any) -> fsf.Run:
        return fsf.run(tasks=arguments.tasks, **options, **where)

    rows, largest = [], 0.0
    for text in arguments.methods:
        method, _, backbone = text.partition(":")
        trained = run(method=method, **({"backbone": backbone} if backbone else {}))
        exact = None
        for precision in ("fp32", *arguments.precision):
            done = run(model=str(trained.folder), precision=precision)
            exact = exact or done
            value = {k: 100 * e.value for k, e in done.estimates.items()}
            apart = {k: value[k] - 100 * exact.estimates[k].value for k in value}
            largest = max(largest, abs(apart["acc-random"]), abs(apart["acc-biased"]))
            rows.append(
                (
                    text,
                    precision,
                    *(f"{value[k]:.2f} ({apart[k]:+.2f})" for k in SHOWN),
                    f"{100 * changed(exact, done):.2f} %",
                )
            )
    columns = ("method", "precision", *SHOWN.values(), "predictions changed")
    print_table(columns, rows)
    print(f"largest change in Acc: {largest:.3f} points")


if __name__ == "__main__":
    main()
