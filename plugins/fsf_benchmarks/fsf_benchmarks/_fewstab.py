"""FewSTAB's tables as experiments.

Source: Zheng et al. 2024, "Benchmarking Spurious Bias in Few-Shot Image Classifiers", sections
5.1-5.6 and appendix D. Tables 3, 4, 6, S7 and S8 need the plain experiments; S5 and S6 need other
task constructions too, of which SC3 and QC3 are the plain one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from fsf_benchmarks._labels import check_distinct, spelt_label
from fsf_benchmarks._published import DATASETS, METHODS
from fsframework.errors import OptionError, argument
from fsframework.interfaces import Benchmark, BenchmarkResults, Labelled, Selection
from fsframework.values import ExperimentDescription, TableDeclaration

__all__ = ["BACKBONE", "DETECTOR", "PLAIN", "TASKS", "TECHNIQUES", "FewStab", "spelt"]

TECHNIQUES: Mapping[str, Mapping[str, str]] = {
    "SC1": {"support": "random", "query": "inter-least"},
    "SC2": {"support": "targeted", "query": "inter-least"},
    "SC3": {"support": "exclusive", "query": "inter-least"},
    "QC1": {"support": "exclusive", "query": "intra"},
    "QC2": {"support": "exclusive", "query": "inter"},
    "QC3": {"support": "exclusive", "query": "inter-least"},
}
"""Options of the sampler for each construction of Tables S5 (SC) and S6 (QC)."""

PLAIN = ""
"""The technique of the sampler with the options that the user gave."""

BACKBONE, DETECTOR, TASKS = "resnet12", "vit-gpt2", 3000
"""The paper's backbone, source of attributes and number of tasks per arm."""

_EMBEDDED, _EMBEDDED_BACKBONE, _EMBEDDED_TASKS = "planted", "conv64f", 600
_SHOTS, _ABLATION_SHOTS = (1, 5), (5,)


class FewStab(Benchmark):
    """Worst-class accuracy on random and attribute-biased tasks (FewSTAB, Tables 3-4, 6, S5-S8).

    Trains and evaluates every method on every data set at every number of shots. Tables 3 (wAcc-A
    and wAcc-R), S7 (Acc and wAcc-A) and S8 (wAcc-A by detector) are always made. Source: Zheng et
    al. 2024.

    Args:
        ablation: also make Tables S5 and S6, the gap by construction of support and queries;
            5-shot unless shots are given.
        agreement: also make Tables 4 and 6, rank correlations over the methods.
    """

    axes: ClassVar[tuple[str, ...]] = ("dataset", "method", "backbone", "shot", "detector")
    arms: ClassVar[tuple[str, ...]] = ("random", "biased")

    def __init__(self, *, ablation: bool = False, agreement: bool = False) -> None:
        self.ablation = ablation
        self.agreement = agreement

    def experiments(self, selection: Selection) -> Iterator[ExperimentDescription]:
        """Describe the product of data sets, backbones, shots, methods and detectors."""
        check_distinct(selection)
        methods = selection.methods or selection.usable("method", METHODS)
        if not methods:
            raise OptionError(
                f"none of the paper's methods is installed ({', '.join(METHODS)}); name others "
                f"with {argument('method')}"
            )
        ablated = (selection.shots or _ABLATION_SHOTS) if self.ablation else ()
        shots = selection.shots or _SHOTS
        for data in selection.datasets or (Labelled(_EMBEDDED),):
            usual = _EMBEDDED_BACKBONE if _is_embedded(data) else BACKBONE
            sources = _sources_of_words(selection, data)
            for backbone, shot, method in itertools.product(
                selection.backbones or (usual,), shots, methods
            ):
                tags = {
                    "dataset": data.value,
                    "label": _label(data),
                    "backbone": backbone,
                    "shot": shot,
                    "method": method,
                }
                for words in sources:
                    yield _described(selection, {**tags, "words": words, "technique": PLAIN})
                for technique in TECHNIQUES if shot in ablated else ():
                    own = {"words": sources[0], "technique": technique}
                    yield _described(selection, {**tags, **own})

    def tables(self, results: BenchmarkResults) -> list[TableDeclaration]:
        """Declare the tables for each data set and backbone, then the rank correlations."""
        from fsf_benchmarks._fewstab_agreement import table_4, table_6
        from fsf_benchmarks._fewstab_tables import ABLATIONS, PLAIN_TABLES, ablation

        keys = dict.fromkeys((r.tags["dataset"], r.tags["backbone"]) for r in results)
        blocks = [results.where(dataset=dataset, backbone=backbone) for dataset, backbone in keys]
        found = [table(block) for table in PLAIN_TABLES for block in blocks]
        if self.ablation:
            made = [ablation(name, block) for name in ABLATIONS for block in blocks]
            found += [table for table in made if table is not None]
        if self.agreement:
            found += [table_4(results), table_6(results)]
        return found


def _described(selection: Selection, tags: Mapping[str, Any]) -> ExperimentDescription:
    arguments = {key: tags[key] for key in ("dataset", "backbone", "method", "shot")}
    if tags["words"] in (*selection.detectors, DETECTOR):
        arguments["detector"] = tags["words"]
    recipe = selection.options.get("recipe")
    if tags["label"] and recipe is not None and ":" not in str(recipe):
        # The data set may have another name here, such as a folder; the label identifies it.
        arguments["recipe"] = f"{recipe}:{tags['label']}"
    defaults: dict[str, Any] = {
        "sampler": "fewstab",
        "tasks": _EMBEDDED_TASKS if _is_embedded(Labelled(tags["dataset"])) else TASKS,
    }
    if tags["technique"]:
        arguments["sampler"] = dict(TECHNIQUES[tags["technique"]])
    parts = [
        spelt(tags["method"]),
        tags["backbone"],
        tags["label"] or tags["dataset"],
        f"{tags['shot']}-shot",
        tags["words"],
        *([tags["technique"]] if tags["technique"] else []),
    ]
    return ExperimentDescription(", ".join(parts), arguments, defaults, tags)


def _is_embedded(data: Labelled) -> bool:
    return data.value.partition(":")[0] == _EMBEDDED


def _label(data: Labelled) -> str:
    """Return the label in the paper's spelling, empty without a label."""
    label = spelt_label(data, DATASETS)
    if data.label and label is None:
        raise OptionError(
            f"{argument('dataset', f'{data.label}={data.value}')}: the label must be one of "
            f"{', '.join(DATASETS)}"
        )
    return label or ""


def _sources_of_words(selection: Selection, data: Labelled) -> tuple[str, ...]:
    """Return the sources of the attributes: detectors, or one text for words read from a file."""
    given = selection.options.get("attributes")
    if selection.detectors and given is not None:
        raise OptionError(
            f"attributes are either read from {given} or detected; leave out "
            f"{argument('attributes')} or {argument('detector')}"
        )
    if selection.detectors:
        return selection.detectors
    if given is not None:
        return (f"words of {given}",)
    own = "words" in selection.open_dataset(data.value).metadata
    return ("own words",) if own else (DETECTOR,)


def spelt(method: str) -> str:
    """Return a method in the paper's spelling if the paper has it.

    >>> spelt("baseline-plus-plus"), spelt("mine")
    ('Baseline++', 'mine')
    """
    return METHODS.get(method, method)
