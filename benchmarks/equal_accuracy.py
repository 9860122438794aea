"""Do methods that learn without labels lean more than methods with labels that know as much?

Run ``python benchmarks/equal_accuracy.py RUNS`` after the grids of ``methods.toml`` and
``equal_accuracy.toml``, or those of CIFAR-FS. For each data set it prints the effective robustness
(``fsf_statistics.effective_robustness``) of each method without labels, and of the methods with
labels that were trained to the end, beyond one line through all of them, the short trainings
included: what a model has in biased tasks beyond what models of its control accuracy have. Then
the mean of each kind, and the difference of the two, with methods as the unit: 95 % intervals by
Student and Welch, which speak of other methods of the kind.

The line is that of all runs of the data set whose methods are compared. ``--statistic acc`` takes
Acc in place of wAcc.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np

import fsf_statistics
import fsframework as fsf
from fsframework.errors import DataError

WITH = ("protonet", "matchingnet", "relationnet", "r2d2", "baseline")
WITHOUT = ("simclr", "moco", "unisiam", "psco", "beclr")
SHORT = 10  # steps per epoch of the trainings that are stopped early
FEWEST_SHORT = 5  # trainings that were stopped early, below which a data set is left out


def main() -> None:
    """Print the tables of a folder of runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", help="the folder of the runs")
    parser.add_argument(
        "--statistic", default="wacc", choices=["acc", "wacc"], help="(%(default)s)"
    )
    asked = parser.parse_args()
    for data, models in models_of(asked.runs).items():
        if sum("updates" in label for label in models) < FEWEST_SHORT:
            continue
        print(f"\n{data}: {len(models)} models")
        try:
            print_table(fsf_statistics.effective_robustness(models, asked.statistic))
        except DataError as error:
            print(error)


def models_of(folder: str) -> dict[str, dict[str, fsf.Run]]:
    """Return the finished runs of the study, joined over seeds, by data set and label."""
    found: dict[str, dict[str, fsf.Run]] = defaultdict(dict)
    runs = [run for run in fsf.runs(folder) if run.record.status == "finished"]
    for run in fsf.Runs(runs).over_seeds():
        method, data = run.record.method.called, run.record.components["dataset"]
        stage = run.record.stages[0].options
        whole = run.record.settings["recipe"] == "quick" and stage["steps"] != SHORT
        if method in WITHOUT or (method in WITH and whole):
            label = method
        elif method in WITH or stage["epochs"] == 0:
            label = f"{method}, {stage['epochs'] * stage['steps']} updates"
        else:
            continue
        options = ", ".join(f"{name} {value}" for name, value in data.options.items())
        found[f"{data.name}, {options}"][label] = run
    return found


def print_table(found: fsf_statistics.EffectiveRobustness) -> None:
    """Print the models that were trained to the end, and the means of both kinds."""
    print(f"{'method':14}{'control':>16}{'other':>16}{'beyond the line':>18}")
    for label in (*WITH, *WITHOUT):
        if label in found.values:
            row = found.control[label], found.tested[label], found.values[label]
            print(f"{label:14}{row[0]!s:>16}{row[1]!s:>16}{row[2]!s:>18}")
        elif label in found.left_out:
            print(f"{label:14}not on the line: {found.left_out[label]}")
    kinds = [
        np.array([100 * found.values[label].value for label in kind if label in found.values])
        for kind in (WITH, WITHOUT)
    ]
    if min(map(len, kinds)) < 2:
        print("too few methods for a mean")
        return
    with_labels, without = kinds
    for name, parts in {
        "with labels": (with_labels,),
        "without labels": (without,),
        "without - with": (without, -with_labels),
    }.items():
        value, low, high = fsf_statistics.mean_interval(*parts)
        print(f"{name:46}{value:9.1f} ({low:.1f} to {high:.1f})")


if __name__ == "__main__":
    main()
