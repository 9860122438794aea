"""Do methods that learn without labels lean more than methods with labels that know as much?

Run ``python benchmarks/equal_accuracy.py RUNS`` after the grids of ``methods.toml`` and
``equal_accuracy.toml``, or those of CIFAR-FS. Each method with labels is a path: trained for longer
and longer, it passes the control accuracies of the methods without labels. Where the path has the
control accuracy of a method without labels, between two lengths of training by a straight line over
logits, its accuracy in the other arm is what labels leave at equal accuracy.

For each data set it prints, for every method without labels, its accuracy in both arms and by how
many points that in the other arm exceeds the paths', on average and from the least to the most.
Then the mean over the methods without labels, with Student's 95 % interval over them: it speaks of
other methods without labels beside these with labels. ``--statistic acc`` takes Acc, not wAcc.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
from scipy import special

import fsframework as fsf
from fsf_statistics import mean_interval

WITH = ("protonet", "matchingnet", "relationnet", "r2d2", "baseline")
WITHOUT = ("simclr", "moco", "unisiam", "psco", "beclr")

Point = tuple[float, float]
"""Control and other accuracy of a model, in 0..1."""


def main() -> None:
    """Print the tables of a folder of runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", help="the folder of the runs")
    parser.add_argument(
        "--statistic", default="wacc", choices=["acc", "wacc"], help="(%(default)s)"
    )
    asked = parser.parse_args()
    for data, points in points_of(asked.runs, asked.statistic).items():
        paths = {name: sorted(points[name]) for name in WITH if len(points[name]) > 1}
        if not paths:
            continue
        print(
            f"\n{data}\n{'method':10}{'control':>9}{'other':>8}{'beyond':>8}  of {len(paths)} paths"
        )
        beyond = []
        for name in WITHOUT:
            for control, other in points[name]:
                found = [
                    100 * (other - at)
                    for path in paths.values()
                    if (at := on_path(path, control)) is not None
                ]
                if found:
                    beyond.append(np.mean(found))
                    print(
                        f"{name:10}{100 * control:9.1f}{100 * other:8.1f}{beyond[-1]:8.1f}  "
                        f"{min(found):.1f} to {max(found):.1f}, {len(found)} pass it"
                    )
        if len(beyond) > 1:
            value, low, high = mean_interval(np.array(beyond))
            print(f"{'mean':27}{value:8.1f}  ({low:.1f} to {high:.1f})")


def points_of(folder: str, statistic: str) -> dict[str, dict[str, list[Point]]]:
    """Return the models of the study by data set and method."""
    found: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    runs = [run for run in fsf.runs(folder) if run.record.status == "finished"]
    for run in fsf.Runs(runs).over_seeds():
        method, data = run.record.method.called, run.record.components["dataset"]
        if method in (*WITH, *WITHOUT):
            options = ", ".join(f"{name} {value}" for name, value in data.options.items())
            control, other = (run.estimates[f"{statistic}-{arm}"].value for arm in run.tasks)
            found[f"{data.name}, {options}"][method].append((control, other))
    return found


def on_path(path: list[Point], control: float) -> float | None:
    """Return the other accuracy where a path has a control accuracy; ``None`` if it never has.

    Args:
        path: models of one method, by their control accuracy.
    """
    x, y = special.logit(np.clip(path, 0.002, 0.998)).T
    if not x[0] <= special.logit(control) <= x[-1]:
        return None
    return float(special.expit(np.interp(special.logit(control), x, y)))


if __name__ == "__main__":
    main()
