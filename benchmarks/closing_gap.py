"""What closes the gap: words for the control of `closing_gap.toml`, and the tables of its runs.

python benchmarks/closing_gap.py words planted shuffled.csv -o strength=0.8 -o n_per_class=100
python benchmarks/closing_gap.py table runs

The first command writes the words of a data set with those of the training images permuted within
each class: words keep their shares in the classes, but no longer describe the images. The second
prints, per set of tasks, each method's Acc-R, gaps, worst group and effective robustness, and its
paired differences from the base, over training seeds and tasks.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import fsf_statistics
import fsframework as fsf


def write_words(dataset: str, output: Path, options: Sequence[str], seed: int = 0) -> None:
    """Write the words of all images, with those of the split train permuted within classes."""
    name, _, argument = dataset.partition(":")
    given = map_numbers(dict(option.split("=", 1) for option in options))
    opened = fsf.dataset({"name": name, **({"path": argument} if argument else {}), **given})
    column = "words" if "words" in opened.metadata else "context"
    words = list(opened.metadata[column])
    trained = set(opened.splits["train"])
    rng, labels = np.random.default_rng(seed), np.asarray(opened.labels)
    for label, class_name in enumerate(opened.class_names):
        if class_name in trained:
            places = np.flatnonzero(labels == label)
            for place, source in zip(places, rng.permutation(places), strict=True):
                words[place] = opened.metadata[column][source]
    with output.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["key", "words"])
        rows.writerows(zip(opened.keys, words, strict=True))


def map_numbers(options: dict[str, str]) -> dict[str, object]:
    """Return options with numbers as numbers."""
    found: dict[str, object] = {}
    for name, value in options.items():
        try:
            found[name] = float(value) if "." in value else int(value)
        except ValueError:
            found[name] = value
    return found


def print_tables(folder: Path) -> None:
    """Print a Markdown table for each data set; differences are from the base, in points."""
    sets = defaultdict(dict)
    for run in fsf.runs(folder).over_seeds():
        control = "column:" not in str(run.record.settings["attributes"])
        label = run.record.method.called + ", permuted words" * control
        sets[run.record.dataset.name][label] = run
    for data, runs in sets.items():
        base = next(label for label in runs if ":" not in label)
        compared = fsf.compare(runs, ["acc", "wacc"], baseline=base)
        beyond = fsf_statistics.effective_robustness(runs, "wacc")
        print(f"\n{data}: base {base}\n")
        head = ["method", "Acc-R", "wAcc-R", "gap", "Acc-R lost", "gap closed", "p", "beyond line",
                "worst group, tested"]  # fmt: skip
        print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
        for label, run in runs.items():
            worst = {row.arm: row for row in fsf_statistics.worst_groups(run).rows}
            tested = run.outcomes.arms.contrast.tested
            cells = [label, *(str(run.estimates[name]) for name in NAMES)]
            cells += [lost(compared["acc-random"], base, label)[0]]
            cells += [*lost(compared["wacc-gap"], base, label)]
            own = beyond.values.get(label)
            cells += [beyond.left_out.get(label, "") if own is None else str(own)]
            cells += [str(worst[tested].estimate)]
            print("| " + " | ".join(cells) + " |")
        print("\n".join(beyond.notes))


NAMES = ("acc-random", "wacc-random", "wacc-gap")


def lost(part: object, base: str, label: str) -> tuple[str, str]:
    """Return by how much a value of the base exceeds that of a method, and Holm's p."""
    if label == base:
        return "", ""
    pair, sign = part.pair(base, label)
    value, low, high = (100 * sign * one for one in (
        pair.difference.value, pair.difference.low, pair.difference.high
    ))  # fmt: skip
    ends = sorted((low, high))
    p = "" if pair.p_holm is None else f"{pair.p_holm:.2g}"
    return f"{value:.1f} ({ends[0]:.1f} to {ends[1]:.1f})", p


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    words = commands.add_parser("words")
    words.add_argument("dataset")
    words.add_argument("output", type=Path)
    words.add_argument("-o", "--option", action="append", default=[])
    table = commands.add_parser("table")
    table.add_argument("runs", type=Path)
    given = parser.parse_args()
    if given.command == "words":
        write_words(given.dataset, given.output, given.option)
    else:
        print_tables(given.runs)


if __name__ == "__main__":
    main()
