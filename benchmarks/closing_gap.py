"""What closes the gap: words for the control of `closing_gap.toml`, and the tables of its runs.

python benchmarks/closing_gap.py words planted shuffled.csv -o strength=0.8 -o n_per_class=100
python benchmarks/closing_gap.py table runs

The first command writes the words of a data set with those of the training images permuted within
each class: words keep their shares in the classes, but no longer describe the images. The second
prints, per data set, each method's accuracies and gaps, its paired differences from the base, its
effective robustness and its worst group, over training seeds and tasks.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

import fsf_statistics
import fsframework as fsf
from fsframework.errors import DataError


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
        sets[run.record.components["dataset"].name][label] = run
    for data, runs in sets.items():
        base = next(label for label in runs if ":" not in label)
        parts = {
            name: fsf.compare(runs, statistic, baseline=base)[name]
            for name, statistic in COMPARED.items()
        }
        beyond, notes = {}, ()
        with suppress(DataError):
            found = fsf_statistics.effective_robustness(runs, "wacc")
            beyond, notes = found.values, found.notes
        print(f"\n{data}: base {base}; lost and closed are paired differences from it\n")
        head = ["method", *SHOWN, *COMPARED, "beyond the line", "worst group"]
        print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
        for label, run in runs.items():
            cells = [label, *(str(run.estimates[name]) for name in SHOWN)]
            cells += [lost(part, base, label) for part in parts.values()]
            cells += [str(beyond.get(label, ""))]
            worst = {row.arm: row.estimate for row in fsf_statistics.worst_groups(run).rows}
            one = worst[run.record.contrast.tested]
            cells += [f"{100 * one.value:.1f} ({100 * one.low:.1f} to {100 * one.high:.1f})"]
            print("| " + " | ".join(cells) + " |")
        print("\n".join(notes))


SHOWN = ("acc-random", "acc-gap", "wacc-random", "wacc-biased", "wacc-gap")
COMPARED = {
    "acc-random": "acc",
    "wacc-random": "wacc",
    "wacc-biased": "wacc",
    "acc-gap": "acc-gap",
    "wacc-gap": "wacc-gap",
}


def lost(part: fsf_statistics.MeasureComparison, base: str, label: str) -> str:
    """Return by how much a value of the base exceeds that of a method, with its interval."""
    if label == base:
        return ""
    pair, sign = part.pair(base, label)
    one = pair.difference
    low, high = sorted(100 * sign * end for end in (one.low, one.high))
    p = "" if pair.p_holm is None else f", p = {pair.p_holm:.2g}"
    return f"{100 * sign * one.value:.1f} ({low:.1f} to {high:.1f}{p})"


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
