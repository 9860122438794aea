"""FewSTAB's Table S9: methods that learn without labels.

Source: Zheng et al. 2024, appendix D.3: wAcc-R, and wAcc-A with the words of two detectors, of
three methods on miniImageNet.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

from fsf_benchmarks._fewstab import UNLABELLED, spelt
from fsf_benchmarks._fewstab_notes import about, has_paper_shape, named, settings
from fsf_benchmarks._fewstab_tables import failed
from fsf_benchmarks._published import DATASETS, DETECTORS, number_in, rows_of
from fsf_benchmarks.interfaces import BenchmarkResults, ExperimentResult
from fsf_reports.values import Entry, Quantity, TableDeclaration
from fsframework.values import footnotes

__all__ = ["table_s9"]

_COLUMNS = {"wAcc-R": "wacc_r", "ViT-GPT2": "wacc_a_vit_gpt2", "BLIP": "wacc_a_blip"}


@functools.cache
def _printed() -> Mapping[tuple[int, str, str], Quantity]:
    """Return the values of Table S9 by shot, method, and ``wAcc-R`` or the detector of wAcc-A."""
    path = files("fsf_benchmarks") / "data" / "fewstab_table_S9.csv"
    found = {}
    for where, row in rows_of(path, ("method", "shot", *_COLUMNS.values())):
        for column, name in _COLUMNS.items():
            values = (number_in(row[key], 0, 100, where) for key in (name, f"{name}_ci95"))
            found[int(row["shot"]), row["method"], column] = Quantity.around(*values)
    return MappingProxyType(found)


def table_s9(block: BenchmarkResults) -> TableDeclaration:
    """Declare wAcc-R, and wAcc-A by source of the words.

    Args:
        block: results of one data set.
    """
    first = block[0].tags["words"]
    entries = []
    for result in block:
        words = result.tags["words"]
        source = DETECTORS.get(words, words)
        if words == first:
            entries.append(_entry(result, "wacc-random", "wAcc-R", "wAcc-R"))
        entries.append(_entry(result, "wacc-biased", f"wAcc-A ({source})", source))
    notes = [
        *settings(block),
        "recipe: "
        + ", ".join(dict.fromkeys(str(one.options["recipe"] or "none") for one in block))
        + "; the paper prints no training for this table",
    ]
    if any(entry.printed for entry in entries):
        notes.append("printed: FewSTAB (Zheng et al. 2024), Table S9; its backbones are not named")
    return TableDeclaration(
        "Table S9",
        f"{named(block[0])}: worst-class accuracy of methods that learn without labels, in %.",
        ("shot", "method", "backbone"),
        tuple(entries),
        (*notes, *footnotes(block.cautions)),
        source="FewSTAB",
    )


def _entry(result: ExperimentResult, estimate: str, column: str, printed: str) -> Entry:
    found, tags = result.estimates.get(estimate), result.tags
    method = UNLABELLED.get(tags["method"], ("", ""))[0]
    of_paper = tags["label"] == DATASETS[0] and has_paper_shape(result)
    return Entry(
        (str(tags["shot"]), method or spelt(tags["method"]), tags["backbone"]),
        column,
        None if found is None else Quantity.of(found),
        failed(result.reason),
        _printed().get((tags["shot"], method, printed)) if of_paper else None,
        about=about(result, estimate),
    )
