"""FewSTAB's Tables 4 and 6: rank correlations over the methods, with the printed values.

Source: Zheng et al. 2024, sections 5.4 and 5.6.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fsf_benchmarks._fewstab import PLAIN, spelt
from fsf_benchmarks._fewstab_notes import about, joined, named, printed, settings
from fsf_benchmarks._fewstab_tables import per_task
from fsf_benchmarks._published import DETECTORS
from fsf_benchmarks.interfaces import BenchmarkResults, ExperimentResult
from fsf_reports.values import Entry, Quantity, TableDeclaration
from fsf_statistics import FEWEST_RANKED, rank, spearman
from fsframework.errors import FsfError, argument
from fsframework.values import footnotes

__all__ = ["table_4", "table_6"]

_DECIMALS = 12
"""Of means: the order of a sum changes its last digits, which would break ties."""

_Side = tuple[Sequence[ExperimentResult], str, tuple[str, str]]
"""Results, the arm whose wAcc is ranked, and the table and column that print it."""


def table_4(results: BenchmarkResults) -> TableDeclaration:
    """Declare the rank correlation of wAcc-A and wAcc-R."""
    used: list[ExperimentResult] = []
    entries: list[Entry] = []
    for here in _by_shot(results):
        chosen = here.where(words=here[0].tags["words"])
        used += chosen
        row = (named(here[0]), str(here[0].tags["shot"]))
        biased, random = ("biased", ("3", "wAcc-A")), ("random", ("3", "wAcc-R"))
        entries.append(_correlation("4", row, (chosen, *biased), (chosen, *random)))
    title = "Spearman's rank correlation of wAcc-A and wAcc-R over the methods"
    shown = BenchmarkResults(results.selection, used)
    return _table("4", title, ("data set", "shot"), shown, entries)


def table_6(results: BenchmarkResults) -> TableDeclaration:
    """Declare the rank correlation of wAcc-A between sources of attributes."""
    used: list[ExperimentResult] = []
    entries: list[Entry] = []
    for here in _by_shot(results):
        used += here
        place = (named(here[0]), str(here[0].tags["shot"]))
        sources = list(dict.fromkeys(result.tags["words"] for result in here))
        for pair in itertools.combinations(sources, 2):
            names = [DETECTORS.get(words, words) for words in pair]
            sides = [
                (here.where(words=words), "biased", ("S8", name))
                for words, name in zip(pair, names, strict=True)
            ]
            entries.append(_correlation("6", (*place, " and ".join(names)), sides[0], sides[1]))
        if len(sources) < 2:
            reason = (
                f"none: only one source of attributes ({sources[0]}); name two with "
                f"{argument('detector')}"
            )
            row = (*place, sources[0], str(len(here)))
            facts = about(here[0], "wacc-biased")
            entries.append(Entry(row, "rho", None, reason, about=facts))
    title = "Spearman's rank correlation of wAcc-A between two sources of attributes"
    shown = BenchmarkResults(results.selection, used)
    return _table("6", title, ("data set", "shot", "attributes"), shown, entries)


def _by_shot(results: BenchmarkResults) -> Iterator[BenchmarkResults]:
    """Yield the plain results of each data set and shot; backbones are ranked together."""
    plain = results.where(technique=PLAIN)
    for dataset, shot in dict.fromkeys((r.tags["dataset"], r.tags["shot"]) for r in plain):
        yield plain.where(dataset=dataset, shot=shot)


def _correlation(table: str, row: tuple[str, ...], first: _Side, second: _Side) -> Entry:
    """Return the rank correlation of two columns of wAcc over the same methods."""
    pairs = [
        (one, other)
        for one, other in zip(first[0], second[0], strict=True)
        if one.finished and other.finished
    ]
    example, other = first[0][0], second[0][0]
    facts: dict[str, Any] = {
        **about(example, "wacc-biased"),
        "backbone": ";".join(dict.fromkeys(one.tags["backbone"] for one in first[0])),
        "method": ";".join(dict.fromkeys(one.tags["method"] for one, _ in pairs)),
        "attributes": ";".join(dict.fromkeys((example.tags["words"], other.tags["words"]))),
        "methods": len(pairs),
        "estimator": "fisher-z",
        "run": None,
        "fingerprint": None,
    }
    measured, reason = _ranked(pairs, first[1], second[1], example.options)
    sources = {DETECTORS.get(one.tags["words"]) for one in (example, other)}
    comparable = table != "6" or sources == set(DETECTORS.values())
    return Entry(
        (*row, str(len(pairs))),
        "rho",
        measured,
        reason,
        printed(table, example, "", "rho") if comparable else None,
        _from_printed(first, second, [one for one, _ in pairs]),
        facts,
    )


def _ranked(
    pairs: Sequence[tuple[ExperimentResult, ExperimentResult]],
    first_arm: str,
    second_arm: str,
    options: Any,
) -> tuple[Quantity | None, str]:
    """Return the correlation over pairs of results, or why there is none."""
    if len(pairs) < FEWEST_RANKED:
        return None, f"none: needs {FEWEST_RANKED} methods, {len(pairs)} finished"
    try:
        means = [
            per_task(results, arm).mean(axis=1).round(_DECIMALS)
            for results, arm in zip(zip(*pairs, strict=True), (first_arm, second_arm), strict=True)
        ]
    except FsfError as error:
        return None, f"none: {error}"
    found = rank(*means, level=float(options["level"]))
    if np.isnan(found.rho):
        return None, "none: all methods have the same wAcc"
    return Quantity(found.rho, found.rho_low, found.rho_high, unit=""), ""


def _from_printed(
    first: _Side, second: _Side, results: Sequence[ExperimentResult]
) -> Quantity | None:
    """Return the correlation of the paper's values for the same methods."""
    methods = list(dict.fromkeys(spelt(result.tags["method"]) for result in results))
    sides = []
    for example, _, (table, column) in (first, second):
        found = [printed(table, example[0], method, column) for method in methods]
        sides.append(np.array([q.value for q in found if q is not None]))
    if len(methods) < FEWEST_RANKED or any(len(side) < len(methods) for side in sides):
        return None
    return Quantity(spearman(sides[0], sides[1]), unit="")


def _table(
    name: str,
    title: str,
    names: tuple[str, ...],
    results: BenchmarkResults,
    entries: Sequence[Entry],
) -> TableDeclaration:
    data, tasks, _ = settings(results)
    notes = [data, tasks, "methods: with their backbones"]
    measured = [entry for entry in entries if entry.measured is not None]
    if measured:
        level = joined(f"{100 * entry.about['level']:g} %" for entry in measured)
        notes.append(
            f"intervals: {level}, about other methods like these, with values taken as exact; of "
            f"{FEWEST_RANKED} methods they say nothing"
        )
    if any(entry.printed for entry in entries):
        notes.append("printed: FewSTAB's value over its ten methods; it gives no interval")
    if any(entry.from_printed for entry in entries):
        notes.append("printed, these methods: computed from its values for the methods shown here")
    return TableDeclaration(
        f"Table {name}",
        f"{title}.",
        (*names, "methods"),
        tuple(entries),
        (*notes, *footnotes(results.cautions)),
        differences=False,
        source="FewSTAB",
    )
