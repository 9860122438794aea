"""What a lower precision of the backbone changes: accuracies and single answers.

Run ``python benchmarks/precision.py [METHOD[:BACKBONE] ...]``. Each method is trained by its quick
recipe on the embedded data set, then evaluated on the same 600 random and 600 attribute-biased
tasks with the backbone in fp32, the baseline, and in bf16 (``--precision`` for others: fp16 is for
GPUs, and takes ten times as long as fp32 on a CPU). Acc and wAcc are in percent, the change of
answers is the share of queries that were given another class. ``evaluation_at_scale.py`` has the
seconds. What is finished is not done again; everything lies below ``--out``. The last line is the
largest change of Acc.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from fsframework.cli.render import LogReporter, print_table
from fsframework.components.registry import Registry
from fsframework.pipeline.cache.workspace import Workspace
from fsframework.pipeline.experiment.configuration import resolve_experiment
from fsframework.pipeline.run import RunResult, load_outcomes, run_experiment

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


def changed(one: Path, other: Path) -> float:
    """Return the share of queries that two runs on equal tasks answer otherwise."""
    first, second = load_outcomes(one)[1], load_outcomes(other)[1]
    return float(np.mean([(first[k].predictions != second[k].predictions).mean() for k in first]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", default=[*METHODS], metavar="METHOD[:BACKBONE]")
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--precision", nargs="+", default=["bf16"], choices=["bf16", "fp16"])
    parser.add_argument("--out", type=Path, default=Path("precision-runs"))
    arguments = parser.parse_args()
    registry = Registry()
    workspace = Workspace(arguments.out / "runs", arguments.out / "cache")

    def run(**tree: Any) -> RunResult:
        experiment = resolve_experiment(registry, {"tasks": arguments.tasks, **tree})
        return run_experiment(experiment, registry, workspace, LogReporter())

    rows, largest = [], 0.0
    for text in arguments.methods:
        method, _, backbone = text.partition(":")
        trained = run(method=method, **({"backbone": backbone} if backbone else {}))
        exact = None
        for precision in ("fp32", *arguments.precision):
            done = run(model=str(trained.folder), precision=precision)
            exact = exact or done
            value = {k: 100 * e.value for k, e in done.record.estimates.items()}
            apart = {k: value[k] - 100 * exact.record.estimates[k].value for k in value}
            largest = max(largest, abs(apart["acc-R"]), abs(apart["acc-A"]))
            rows.append(
                (
                    text,
                    precision,
                    *(f"{value[k]:.2f} ({apart[k]:+.2f})" for k in ("acc-R", "acc-A", "wacc-A")),
                    f"{100 * changed(exact.folder, done.folder):.2f} %",
                )
            )
    columns = ("method", "precision", "Acc-R", "Acc-A", "wAcc-A", "answers changed")
    print_table(columns, rows)
    print(f"largest change of Acc: {largest:.3f} points")


if __name__ == "__main__":
    main()
