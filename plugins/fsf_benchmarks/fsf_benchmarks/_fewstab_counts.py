"""FewSTAB's Tables 2, S1, S2-S4 and S11: words, splits, training, agreement of two detectors.

Source: Zheng et al. 2024, section 5.1 and appendices C and D.4.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from fsf_benchmarks._fewstab import UNTRAINED, spelt
from fsf_benchmarks._fewstab_notes import named
from fsf_benchmarks._published import DETECTORS, number_in, rows_of
from fsf_benchmarks.interfaces import BenchmarkResults, ExperimentResult, Selection
from fsf_reports.values import Entry, Quantity, TableDeclaration
from fsframework.api.recipes import recipes
from fsframework.api.running import load_run
from fsframework.errors import FsfError
from fsframework.values import AttributeTable, footnotes

__all__ = ["settings_tables", "table_2", "table_s1", "table_s11"]

_DATA = files("fsf_benchmarks") / "data"
_TRAINING = MappingProxyType({"S2": "miniImageNet", "S3": "tieredImageNet", "S4": "CUB-200"})
_SPLITS = ("train", "val", "test")
_UNIQUE, _PER_CLASS = "unique attributes", "attributes per class"


@functools.cache
def _printed_words() -> Mapping[tuple[str, str, str], Quantity]:
    """Return what Tables 2 and S11 print, by data set, detector and column."""
    path = _DATA / "fewstab_tables_2_S11.csv"
    columns = {
        "unique_attributes": _UNIQUE,
        "avg_attributes_per_class": _PER_CLASS,
        "detection_accuracy_percent_vs_other_vlm": "accuracy",
    }
    found = {}
    for where, row in rows_of(path, ("vlm", "dataset", *columns)):
        for column, called in columns.items():
            value = number_in(row[column], 0, 1e6, f"{where}, {column}")
            found[row["dataset"], row["vlm"], called] = Quantity.known(value)
    return MappingProxyType(found)


@functools.cache
def _printed_splits() -> Mapping[tuple[str, str, str], Quantity]:
    """Return what Table S1 prints, by data set, split and column."""
    path = _DATA / "fewstab_table_S1.csv"
    columns = {"classes": "classes", "images_thousands": "thousands of images"}
    return MappingProxyType(
        {
            (row["dataset"], row["split"], called): Quantity.known(
                number_in(row[column], 0, 1e4, f"{where}, {column}")
            )
            for where, row in rows_of(path, ("dataset", "split", *columns))
            for column, called in columns.items()
        }
    )


def _words_of(results: Iterable[ExperimentResult]) -> tuple[AttributeTable | None, Any, str]:
    """Return the words of the first finished run, its images, or the reason why it has none."""
    reason = "none: no run is finished"
    for result in results:
        if result.folder is None:
            reason = f"failed: {result.reason}"
            continue
        try:
            pool = load_run(result.folder).pool
        except FsfError:
            reason = "none: the images and words of its run cannot be read"
            continue
        if pool.attributes is not None:
            return pool.attributes, pool, ""
    return None, None, reason


def _by_data(results: BenchmarkResults) -> Iterator[tuple[BenchmarkResults, list[str]]]:
    """Yield the results of each data set, and its sources of words."""
    for dataset in dict.fromkeys(result.tags["dataset"] for result in results):
        here = results.where(dataset=dataset)
        yield here, list(dict.fromkeys(result.tags["words"] for result in here))


def table_2(results: BenchmarkResults) -> TableDeclaration:
    """Declare how many words there are in all and per class, by source."""
    from fsf_tools import attribute_statistics

    entries = []
    for here, sources in _by_data(results):
        for words in sources:
            table, pool, reason = _words_of(here.where(words=words))
            values: dict[str, Quantity | None] = {_UNIQUE: None, _PER_CLASS: None}
            if table is not None:
                counted = attribute_statistics(pool, n_shot=1, n_query=1)
                values[_UNIQUE] = Quantity.known(counted.unique_words)
                values[_PER_CLASS] = Quantity.known(round(counted.words_per_class, 2))
            label, source = here[0].tags["label"], DETECTORS.get(words, words)
            for column, value in values.items():
                printed = _printed_words().get((label, source, column))
                facts = {"dataset": here[0].tags["dataset"], "words": words}
                entries.append(Entry((named(here[0]), source), column, value, reason, printed,
                                     about=facts))  # fmt: skip
    return TableDeclaration(
        "Table 2",
        "Attributes that the images of the test classes have, in all and on average per class.",
        ("data set", "words"),
        tuple(entries),
        (
            f"the words are those of a run of {UNTRAINED}, untrained",
            *footnotes(results.cautions),
        ),
        differences=False,
        source="FewSTAB",
    )


def table_s1(results: BenchmarkResults) -> TableDeclaration:
    """Declare the classes and images of each split."""
    entries = []
    for here, _ in _by_data(results):
        data = results.selection.open_dataset(here[0].tags["dataset"])
        for split in [one for one in _SPLITS if one in data.splits] or ["all"]:
            pool = data.pool(split)
            values = {
                "classes": len(pool.class_names),
                "images": len(pool),
                "thousands of images": round(len(pool) / 1000, 1),
            }
            for column, value in values.items():
                printed = _printed_splits().get((here[0].tags["label"], split, column))
                row = (named(here[0]), split)
                entries.append(Entry(row, column, Quantity.known(value), printed=printed))
    return TableDeclaration(
        "Table S1",
        "Classes and images of each split.",
        ("data set", "split"),
        tuple(entries),
        tuple(footnotes(results.cautions)),
        differences=False,
        source="FewSTAB",
    )


def table_s11(results: BenchmarkResults, ranked: TableDeclaration) -> TableDeclaration:
    """Declare the detection accuracies of two sources, and how alike the two rank methods.

    Args:
        results: plain results with the words of both.
        ranked: Table 6.
    """
    from fsf_tools import agreement

    entries: list[Entry] = []
    for here, sources in _by_data(results):
        names = [DETECTORS.get(words, words) for words in sources]
        facts = {"dataset": here[0].tags["dataset"]}
        tables, reasons = [], []
        for words in sources[:2]:
            table, _, reason = _words_of(here.where(words=words))
            tables.append(table)
            reasons.append(reason)
        first, second = tables if len(tables) == 2 else (None, None)
        accuracies: list[float | None] = [None, None]
        if first is not None and second is not None:
            found = agreement(first, second)
            accuracies = [found.a.accuracy, found.b.accuracy]
        reason = next(filter(None, reasons), "none: there are not two sources of words")
        for name, other, accuracy in zip(names[:2], names[1::-1], accuracies, strict=False):
            value = None if accuracy is None else Quantity.known(round(100 * accuracy, 2))
            printed = None
            if {name, other} == set(DETECTORS.values()):
                printed = _printed_words().get((here[0].tags["label"], name, "accuracy"))
            row = (named(here[0]), f"{name} by {other}")
            entries.append(Entry(row, "detection accuracy", value, reason, printed, about=facts))
    for entry in ranked.entries:
        data, shot, sources, _ = entry.row
        row, facts = (data, sources), {"dataset": entry.about["dataset"]}
        entries.append(
            Entry(row, f"rho, {shot}-shot", entry.measured, entry.reason, entry.printed,
                  about=facts)
        )  # fmt: skip
    return TableDeclaration(
        "Table S11",
        "How many of a source's words the other also has, in %, and Spearman's correlation of "
        "wAcc-A with the words of both.",
        ("data set", "words"),
        tuple(entries),
        (
            "A by B: the mean share of B's words of an image that A has too (Eq. 9); images "
            "without a word by B are left out",
            *footnotes(results.cautions),
        ),
        differences=False,
        source="FewSTAB",
    )


# --- training ---------------------------------------------------------------------------------

_SETTINGS = MappingProxyType(
    {
        "learning rate": "learning_rate",
        "epochs": "epochs",
        "training episodes": "episodes_per_epoch",
        "episode size": "episodes_per_update",
    }
)
"""Columns of Tables S2 to S4, and of the file with their values."""


@functools.cache
def _printed_training() -> Mapping[tuple[str, str, str], Mapping[str, str]]:
    """Return the rows of Tables S2 to S4 by data set, method and mode."""
    path = _DATA / "fewstab_tables_S2_S3_S4.csv"
    columns = ("dataset", "method", "mode", "task_or_batch_size", "lr_scheduler", "optimizer")
    return MappingProxyType(
        {
            (row["dataset"], row["method"], _mode(row["mode"], row["task_or_batch_size"])): row
            for _, row in rows_of(path, (*columns, *_SETTINGS.values()))
        }
    )


def _mode(kind: str, size: str) -> str:
    return f"{'T' if kind == 'episodes' else 'B'} ({size})"


def settings_tables(selection: Selection, methods: Iterable[str]) -> Iterator[TableDeclaration]:
    """Declare the training of each method by our recipes, beside the printed settings.

    Args:
        selection: whose labelled data sets are shown; all of the paper's without any.
        methods: as users name them.
    """
    asked = [data.label.lower() for data in selection.datasets if data.label]
    known = [recipe for method in methods for recipe in recipes(method) if recipe.name == "fewstab"]
    for table, dataset in _TRAINING.items():
        if asked and dataset.lower() not in asked:
            continue
        own = [one for one in known if dataset in one.datasets]
        entries, apart = [], []
        for recipe in own:
            training = dict(recipe.stages[0])
            mode, printed = _mode_of(training), {}
            row = (spelt(recipe.method), mode, *_how(training))
            printed = _printed_training().get((dataset, row[0], mode), {})
            for column, value in _values(training).items():
                text = printed.get(_SETTINGS[column], "")
                beside = Quantity.known(float(text)) if text else None
                measured = None if value is None else Quantity.known(value)
                reason = "" if value is not None else "not applicable"
                entries.append(Entry(row, column, measured, reason, beside))
            told = (printed.get("optimizer"), printed.get("lr_scheduler") or "-")
            if printed and told != row[2:]:
                apart.append(f"{row[0]}, {mode}: {told[0]}, {told[1]}")
        if entries:
            unlike = "; ".join(apart) or "none"
            yield TableDeclaration(
                f"Table {table}",
                f"{dataset}: training by the recipes fewstab.",
                ("method", "mode", "optimizer", "schedule"),
                tuple(entries),
                (
                    "T (5w1s): episodes of 5-way 1-shot tasks; B (128): batches of 128 images",
                    f"printed with another optimizer or schedule: {unlike}",
                ),
                differences=False,
                source="FewSTAB",
            )


def _mode_of(training: Mapping[str, Any]) -> str:
    if training.get("learns_from") == "batches":
        return _mode("batches", str(training["batch_size"]))
    return _mode("episodes", f"{training['n_way']}w{training['n_shot']}s")


def _how(training: Mapping[str, Any]) -> tuple[str, str]:
    """Return optimizer and schedule as the paper spells them."""
    gamma = training.get("gamma")
    schedules = {
        "constant": "-",
        "cosine": "CosineAnnealingLR",
        "step": f"StepLR({training.get('step_epochs')}, {gamma})",
        "multi-step": f"MultiStepLR({list(training.get('milestones', ()))}, {gamma})",
    }
    optimizers = {"adam": "Adam", "sgd": "SGD"}
    return optimizers[training["optimizer"]], schedules[training["schedule"]]


def _values(training: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the numbers of a training as Tables S2 to S4 count them."""
    episodic = training.get("learns_from") != "batches"
    per_step = training.get("tasks_per_step", 1)
    return {
        "learning rate": training["learning_rate"],
        "epochs": training["epochs"],
        "training episodes": training["steps"] * per_step if episodic else None,
        "episode size": per_step if episodic else None,
    }
