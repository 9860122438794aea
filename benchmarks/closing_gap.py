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
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import fsframework as fsf


def write_words(dataset: str, output: Path, options: Sequence[str], seed: int = 0) -> None:
    """Write the words of all images, with those of the split train permuted within classes."""
    name, _, argument = dataset.partition(":")
    given = dict(option.split("=", 1) for option in options)
    opened = fsf.dataset(dataset if argument else {"name": name, **map_numbers(given)})
    words = list(opened.metadata["words"])
    trained = set(opened.splits["train"])
    rng, labels = np.random.default_rng(seed), np.asarray(opened.labels)
    for label, class_name in enumerate(opened.class_names):
        if class_name in trained:
            places = np.flatnonzero(labels == label)
            for place, source in zip(places, rng.permutation(places), strict=True):
                words[place] = opened.metadata["words"][source]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    words = commands.add_parser("words")
    words.add_argument("dataset")
    words.add_argument("output", type=Path)
    words.add_argument("-o", "--option", action="append", default=[])
    given = parser.parse_args()
    write_words(given.dataset, given.output, given.option)


if __name__ == "__main__":
    main()
