"""Does the network or the head decide how much a classifier leans? The contrasts of a grid.

Run ``python benchmarks/networks.py RUNS`` after a grid ``networks*.toml``. It prints, for each
data set with its words, the accuracies of every network with every head and two kinds of contrasts
in points: of networks, averaged over heads, and of heads, averaged over networks. Each is taken in
the control arm, in the other arm, in their gap, and in effective robustness: what the other arm has
beyond the line through the logits of all classifiers. A contrast is taken within each seed
of the tasks, where all classifiers answer the same tasks; its 95 % interval is Student's over the
seeds, so it speaks of other tasks from these images and of these networks and heads only.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import special

import fsframework as fsf
from fsf_statistics import mean_interval

Floats = npt.NDArray[np.float64]


def main() -> None:
    """Print the tables of a folder of runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", help="the folder of the runs")
    parser.add_argument("--statistic", default="acc", choices=["acc", "wacc"], help="(%(default)s)")
    asked = parser.parse_args()
    for title, cells in grids(asked.runs, asked.statistic).items():
        print(f"\n{title}")
        for line in lines_of(cells):
            print(line)


def grids(
    folder: str, statistic: str
) -> dict[str, dict[tuple[str, str], dict[int, tuple[float, float]]]]:
    """Return control and tested accuracy by data and words, network and head, and task seed."""
    found: dict[str, dict[tuple[str, str], dict[int, tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for run in fsf.runs(folder):
        record = run.record
        if record.status != "finished":
            continue
        parts = record.components
        data = parts["dataset"].options.get("path", parts["dataset"].name)
        words = "contexts"
        if parts["sampler"].name != "context":
            words = parts["detector"].name
            if model := parts["detector"].options.get("model"):
                words += f" of {model}"
        control, tested = (run.estimates[f"{statistic}-{arm}"].value for arm in run.tasks)
        network = parts["backbone"].options.get("model", parts["backbone"].name)
        if starts := [stage.init_from for stage in record.stages if stage.init_from]:
            network = Path(starts[0]).name
        own = found[f"{data}, {words}"][network, parts["method"].name]
        own[record.settings["task_seed"]] = (control, tested)
    return found


def lines_of(cells: Mapping[tuple[str, str], Mapping[int, tuple[float, float]]]) -> Iterator[str]:
    """Yield the lines of one data set: accuracies, then contrasts."""
    networks = sorted({network for network, _ in cells})
    heads = sorted({head for _, head in cells}, key=lambda head: (head != "ncc", head))
    whole = {(n, h) for n in networks for h in heads} == set(cells)
    seeds = sorted(set.intersection(*(set(own) for own in cells.values())))
    if not whole or len(seeds) < 2:
        yield f"unfinished: {len(cells)} of {len(networks) * len(heads)} classifiers"
        return
    # (seeds, networks, heads, 2)
    values = np.array([[[cells[n, h][s] for h in heads] for n in networks] for s in seeds])
    control, tested = values[..., 0], values[..., 1]
    measures = {
        "control": control,
        "other": tested,
        "gap": control - tested,
        "robustness": beyond_the_line(control, tested),
    }
    for n, network in enumerate(networks):
        for h, head in enumerate(heads):
            row = (shown(one[:, n, h]) for one in measures.values())
            yield f"{network:24}{head:26}" + "".join(f"{text:>16}" for text in row)
    yield f"{'contrast':50}" + "".join(f"{name:>16}" for name in measures)
    for n, network in enumerate(networks[1:], 1):
        row = (shown((one[:, n] - one[:, 0]).mean(axis=1)) for one in measures.values())
        yield f"{network + ' - ' + networks[0]:50}" + "".join(f"{text:>16}" for text in row)
    for h, head in enumerate(heads[1:], 1):
        row = (shown((one[..., h] - one[..., 0]).mean(axis=1)) for one in measures.values())
        yield f"{head + ' - ' + heads[0]:50}" + "".join(f"{text:>16}" for text in row)


def beyond_the_line(control: Floats, tested: Floats) -> Floats:
    """Return, within each seed, the tested accuracy beyond what a line over logits predicts.

    Args:
        control: ``(seeds, networks, heads)``, in 0..1.
        tested: the same of the other arm.

    Source: effective robustness of Taori et al. 2020, with the classifiers of one seed as models.
    """
    x, y = (special.logit(one.reshape(len(one), -1)) for one in (control, tested))
    x_c, y_c = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    slope = (x_c * y_c).sum(axis=1, keepdims=True) / (x_c**2).sum(axis=1, keepdims=True)
    predicted = special.expit(y.mean(axis=1, keepdims=True) + slope * x_c)
    beyond: Floats = tested - predicted.reshape(tested.shape)
    return beyond


def shown(values: Floats) -> str:
    """Return the mean over seeds with its interval, in points."""
    value, low, high = mean_interval(100 * values)
    return f"{value:.1f} ± {(high - low) / 2:.1f}"


if __name__ == "__main__":
    main()
