"""FewSTAB's tables as experiments.

Source: Zheng et al. 2024, "Benchmarking Spurious Bias in Few-Shot Image Classifiers", sections
5.1-5.6 and appendices C and D. Tables 3, 4, 6, S7, S8 and S11 and Figures 4, 5 and S1 need the
plain experiments; S5 and S6 need other task constructions too, of which SC3 and QC3 are the plain
one; Figure 6 needs tests of the trained models with other numbers of shots; S9 and S10 need other
methods. Tables 2 and S1 need the words and the images only, Tables S2 to S4 nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from fsf_benchmarks._labels import check_distinct, recipe_for, spelt_label
from fsf_benchmarks._published import BASES, DATASETS, METHODS
from fsf_benchmarks.interfaces import (
    Answer,
    Benchmark,
    BenchmarkResults,
    Cell,
    ExperimentDescription,
    ExperimentResult,
    Labelled,
    PrintedValue,
    Selection,
)
from fsf_reports.values import FigureDeclaration, TableDeclaration
from fsframework.errors import OptionError, argument

__all__ = [
    "BACKBONE",
    "DETECTOR",
    "IFSL",
    "IFSL_BACKBONE",
    "IFSL_ROW",
    "PAPER_SHAPE",
    "PLAIN",
    "TASKS",
    "TECHNIQUES",
    "TRAINED",
    "UNLABELLED",
    "UNTRAINED",
    "FewStab",
    "shots_tested",
    "spelt",
]

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

PAPER_SHAPE = (5, 15)
"""Ways, and queries per class, of the paper's tasks."""

IFSL, IFSL_BACKBONE = "ifsl", "resnet10"
"""The wrapper of Table S10, and the backbone of its source (Yue et al. 2020); S10 names none."""

IFSL_ROW = "IFSL − base"
"""Name of the rows of Table S10 that show differences."""

UNLABELLED: Mapping[str, tuple[str, str]] = {
    "unisiam": ("UniSiam", "resnet18"),
    "psco": ("PsCo", "conv64f"),
    "beclr": ("BECLR", "resnet18"),
}
"""The methods of Table S9: registry name, the paper's spelling, and our recipe's backbone."""

UNTRAINED = "ncc"
"""What is evaluated, untrained, where only the words of the images are of interest."""

TRAINED = (1, 5)
"""Shots of the training episodes of the two models that Figure 6 compares."""

_TESTED = (1, 5, 10)
_NOT_EPISODIC = ("baseline-plus-plus", "rfs")
"""The paper's methods that do not train on episodes; Figure 6 leaves them out."""

_EMBEDDED, _EMBEDDED_BACKBONE, _EMBEDDED_TASKS = "planted", "conv64f", 600
_SHOTS, _ABLATION_SHOTS = (1, 5), (5,)


_MADE_ALONE = {
    "ifsl": "Table S10",
    "unlabelled": "Table S9",
    "counts": "Tables 2 and S1",
    "settings": "Tables S2 to S4",
}
"""Options that make tables and no other."""


class FewStab(Benchmark):
    """Worst-class accuracy on biased tasks (FewSTAB, all tables, Figures 4, 5, 6 and S1).

    Trains and evaluates every method on every data set at every number of shots. Tables 3 (wAcc-A
    and wAcc-R), S7 (Acc and wAcc-A) and S8 (wAcc-A by detector) and Figures 4 and S1 are always
    made. Source: Zheng et al. 2024.

    Args:
        ablation: also make Tables S5 and S6, the gap by construction of support and queries;
            5-shot unless shots are given.
        agreement: also make Tables 4, 6 and S11, rank correlations over the methods and the
            agreement of two detectors.
        training_shots: also make Figure 6, wAcc-A of models trained at 5 shots minus at 1, on tasks
            of 1, 5 and 10 shots unless shots are given.
        ifsl: make Table S10 and no other, wAcc-A of methods without and with interventional
            few-shot learning; MAML, MatchingNet, SIB and MTL unless methods are given.
        unlabelled: make Table S9 and no other, methods that learn without labels; UniSiam, PsCo and
            BECLR unless methods are given.
        counts: make Tables 2 and S1 and no other, words and images; nothing is trained.
        settings: make Tables S2 to S4 and no other, the training of each method by the recipes
            ``fewstab``; nothing is run.

    Raises:
        OptionError: an option that makes tables and no other is set with another one.
    """

    axes: ClassVar[tuple[str, ...]] = ("dataset", "method", "backbone", "shot", "detector")
    arms: ClassVar[tuple[str, ...]] = ("random", "biased")

    def __init__(
        self,
        *,
        ablation: bool = False,
        agreement: bool = False,
        training_shots: bool = False,
        ifsl: bool = False,
        unlabelled: bool = False,
        counts: bool = False,
        settings: bool = False,
    ) -> None:
        self.ablation = ablation
        self.agreement = agreement
        self.one_model = agreement or training_shots or ifsl or counts
        self.training_shots = training_shots
        self.ifsl = ifsl
        self.unlabelled = unlabelled
        self.counts = counts
        self.settings = settings
        alone = [name for name in _MADE_ALONE if getattr(self, name)]
        if alone and (len(alone) > 1 or ablation or agreement or training_shots):
            raise OptionError(
                f"{alone[0]} makes {_MADE_ALONE[alone[0]]} and no other; leave out the other "
                "options"
            )
        self.only = alone[0] if alone else ""

    def experiments(self, selection: Selection) -> Iterator[ExperimentDescription]:
        """Describe the product of data sets, backbones, shots, methods and detectors.

        Those of Figure 6 come last; many of them are also among the others, and run once.
        """
        check_distinct(selection)
        if self.only:
            yield from _OTHER_EXPERIMENTS[self.only](selection)
            return
        methods = selection.methods or selection.usable("method", METHODS)
        if not methods:
            raise OptionError(
                f"none of the paper's methods is installed ({', '.join(METHODS)}); name others "
                f"with {argument('method')}"
            )
        ablated = (selection.shots or _ABLATION_SHOTS) if self.ablation else ()
        for tags, sources in _grid(selection, selection.shots or _SHOTS, methods):
            for words in sources:
                yield _described(selection, {**tags, "words": words})
            for technique in TECHNIQUES if tags["shot"] in ablated else ():
                own = {"words": sources[0], "technique": technique}
                yield _described(selection, {**tags, **own})
        if self.training_shots:
            episodic = [m for m in methods if m in selection.methods or m not in _NOT_EPISODIC]
            for tags, sources in _grid(selection, TRAINED, episodic):
                own = {"words": sources[0], "trained_at": tags["shot"]}
                yield _described(selection, {**tags, **own})

    def further_experiments(self, results: BenchmarkResults) -> Iterator[ExperimentDescription]:
        """Describe the tests of Figure 6 on tasks of other shots than those of the training."""
        for model in results:
            if model.tags["trained_at"] is None or model.folder is None or not model.trained:
                continue
            for shot in shots_tested(results.selection):
                if shot != model.tags["trained_at"]:
                    yield _described(results.selection, {**model.tags, "shot": shot}, model.folder)

    def tables(self, results: BenchmarkResults) -> list[TableDeclaration]:
        """Declare the tables per data set and backbone, the rank correlations, and Figure 6."""
        from fsf_benchmarks._fewstab_agreement import table_4, table_6
        from fsf_benchmarks._fewstab_counts import table_s11
        from fsf_benchmarks._fewstab_shots import tabulated
        from fsf_benchmarks._fewstab_tables import ABLATIONS, PLAIN_TABLES, ablation

        grid = results.where(trained_at=None)
        keys = dict.fromkeys((r.tags["dataset"], r.tags["backbone"]) for r in grid)
        blocks = [grid.where(dataset=dataset, backbone=backbone) for dataset, backbone in keys]
        if self.only:
            return _other_tables(self.only, results, blocks)
        found = [table(block) for table in PLAIN_TABLES for block in blocks]
        if self.ablation:
            made = [ablation(name, block) for name in ABLATIONS for block in blocks]
            found += [table for table in made if table is not None]
        if self.agreement:
            ranked = table_6(grid)
            found += [table_4(grid), ranked, table_s11(grid.where(technique=PLAIN), ranked)]
        return found + tabulated(_of_models(results))

    def answer(self, results: BenchmarkResults, tables: Sequence[TableDeclaration]) -> Answer:
        """Compare the methods on equal tasks by their gap, and say what other tables show."""
        from fsf_benchmarks._fewstab_answer import sentences_on
        from fsf_benchmarks._fewstab_notes import named

        if self.only == "counts":
            return Answer()  # its runs only read the words
        plain = results.where(trained_at=None, technique=PLAIN)
        names: dict[str, Callable[[ExperimentResult], Any]] = {
            "method": lambda result: spelt(result.tags["method"]),
            "data set": named,
            "backbone": lambda result: result.tags["backbone"],
            "shot": lambda result: result.tags["shot"],
            "words": lambda result: result.tags["words"],
        }
        return Answer.comparing(plain, names, "wacc", sentences_on(tables))

    def figures(self, results: BenchmarkResults) -> list[FigureDeclaration]:
        """Declare Figure 6 if it was asked for, else Figures 4 and S1."""
        from fsf_benchmarks._fewstab_figures import plain_figures
        from fsf_benchmarks._fewstab_shots import drawn

        if self.only:
            return []
        models = _of_models(results)
        return [drawn(models)] if models else plain_figures(results)

    def printed(self, cell: Cell) -> Iterable[PrintedValue]:
        """Return the values of Tables 3, S5-S8 and S10 for a cell."""
        from fsf_benchmarks._fewstab_printed import printed_for

        return printed_for(cell)


def _of_models(results: BenchmarkResults) -> BenchmarkResults:
    """Return the results that belong to Figure 6."""
    found = (result for result in results if result.tags["trained_at"] is not None)
    return BenchmarkResults(results.selection, found)


def shots_tested(selection: Selection) -> tuple[int, ...]:
    """Return the shots of the tasks of Figure 6."""
    return selection.shots or _TESTED


def _without_and_with(selection: Selection) -> Iterator[ExperimentDescription]:
    """Describe the experiments of Table S10."""
    if IFSL not in selection.installed.get("method", ()):
        raise OptionError(f"Table S10 needs the method {IFSL}, which is not installed")
    bases = selection.methods or selection.usable("method", BASES)
    if not bases:
        raise OptionError(
            f"none of the methods of Table S10 is installed ({', '.join(BASES)}); name others "
            f"with {argument('method')}"
        )
    for tags, sources in _grid(selection, selection.shots or _SHOTS, bases, IFSL_BACKBONE):
        for method in (tags["method"], f"{IFSL}:{tags['method']}"):
            own = {"words": sources[0], "method": method, "base": tags["method"]}
            yield _described(selection, {**tags, **own})


def _without_labels(selection: Selection) -> Iterator[ExperimentDescription]:
    """Describe the experiments of Table S9."""
    methods = selection.methods or selection.usable("method", UNLABELLED)
    if not methods:
        raise OptionError(
            f"none of the methods of Table S9 is installed ({', '.join(UNLABELLED)}); name others "
            f"with {argument('method')}"
        )
    for shot, method in itertools.product(selection.shots or _SHOTS, methods):
        backbone = UNLABELLED.get(method, ("", BACKBONE))[1]
        for tags, sources in _grid(selection, (shot,), (method,), backbone):
            for words in sources:
                yield _described(selection, {**tags, "words": words})


def _words_only(selection: Selection) -> Iterator[ExperimentDescription]:
    """Describe the experiments of Table 2, which read the words and train nothing."""
    methods = selection.methods or (UNTRAINED,)
    for tags, sources in _grid(selection, selection.shots or (1,), methods, _EMBEDDED_BACKBONE):
        for words in sources:
            one = _described(selection, {**tags, "words": words})
            untrained = {"training": {"epochs": 0}, "recipe": "none", "tasks": 2}
            yield replace(one, arguments={**one.arguments, **untrained})


_OTHER_EXPERIMENTS: Mapping[str, Callable[[Selection], Iterator[ExperimentDescription]]] = {
    "ifsl": _without_and_with,
    "unlabelled": _without_labels,
    "counts": _words_only,
    "settings": lambda _: iter(()),
}
"""What describes the experiments of options that make tables and no other."""


def _other_tables(
    only: str, results: BenchmarkResults, blocks: Sequence[BenchmarkResults]
) -> list[TableDeclaration]:
    """Declare the tables of an option that makes them and no other.

    Args:
        only: the option.
        results: of all its experiments.
        blocks: the same by data set and backbone.
    """
    from fsf_benchmarks._fewstab_counts import settings_tables, table_2, table_s1
    from fsf_benchmarks._fewstab_ifsl import table_s10
    from fsf_benchmarks._fewstab_unlabelled import table_s9

    if only == "settings":
        methods = results.selection.methods
        return list(
            settings_tables(
                results.selection, methods or results.selection.usable("method", METHODS)
            )
        )
    if only == "counts":
        return [table_2(results), table_s1(results)]
    if only == "ifsl":
        return [table_s10(block) for block in blocks]
    names = dict.fromkeys(result.tags["dataset"] for result in results)
    return [table_s9(results.where(dataset=dataset)) for dataset in names]


def _grid(
    selection: Selection, shots: Sequence[int], methods: Sequence[str], published: str = BACKBONE
) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """Yield the tags of plain experiments, without the source of words, and these sources."""
    for data in selection.datasets or (Labelled(_EMBEDDED),):
        usual = _EMBEDDED_BACKBONE if _is_embedded(data) else published
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
                "technique": PLAIN,
                "trained_at": None,
                "base": None,
            }
            yield tags, sources


def _described(
    selection: Selection, tags: Mapping[str, Any], model: Path | None = None
) -> ExperimentDescription:
    """Describe an experiment, with the weights of the run in a folder if there is one."""
    arguments = {key: tags[key] for key in ("dataset", "shot")}
    if model is None:
        arguments |= {key: tags[key] for key in ("backbone", "method")}
    else:
        arguments |= {"model": str(model), "training": {"epochs": 0}}
    if tags["words"] in (*selection.detectors, DETECTOR):
        arguments["detector"] = tags["words"]
    if tags["label"]:
        arguments |= recipe_for(selection, tags["label"])
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
        *([f"model trained {tags['trained_at']}-shot"] if model is not None else []),
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

    >>> spelt("baseline-plus-plus"), spelt("ifsl:maml"), spelt("mine")
    ('Baseline++', 'MAML + IFSL', 'mine')
    """
    wrapper, _, base = method.partition(":")
    if wrapper == IFSL:
        return f"{spelt(base)} + IFSL"
    return {**METHODS, **BASES}.get(method, method)
