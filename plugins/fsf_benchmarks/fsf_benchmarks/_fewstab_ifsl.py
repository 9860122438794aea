"""FewSTAB's Table S10: does interventional few-shot learning make a method lean less?

Source: Zheng et al. 2024, appendix D.3: wAcc-A of four methods on miniImageNet, without IFSL (Yue
et al. 2020) and with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsf_benchmarks._fewstab import IFSL_BACKBONE, IFSL_ROW, spelt
from fsf_benchmarks._fewstab_notes import about, named, printed, printed_note, settings
from fsf_benchmarks._fewstab_tables import failed, paired_difference
from fsf_benchmarks.interfaces import BenchmarkResults, ExperimentResult
from fsf_reports.values import Entry, Quantity, TableDeclaration
from fsframework.values import footnotes

__all__ = ["table_s10"]

_NAME, _ESTIMATE, _COLUMN = "S10", "wacc-biased", "wAcc-A"


def table_s10(block: BenchmarkResults) -> TableDeclaration:
    """Declare wAcc-A without and with IFSL and their paired difference.

    Args:
        block: results of one data set and backbone.
    """
    entries = tuple(_entries(block))
    return TableDeclaration(
        f"Table {_NAME}",
        f"{named(block[0])}, {block[0].tags['backbone']}: wAcc-A of methods without and with "
        "interventional few-shot learning (IFSL), in %.",
        ("shot", "method", ""),
        entries,
        (*_notes(block, entries), *footnotes(block.cautions)),
        source="FewSTAB",
    )


def _entries(block: BenchmarkResults) -> Iterator[Entry]:
    for shot, base in dict.fromkeys((r.tags["shot"], r.tags["base"]) for r in block):
        pair = block.where(shot=shot, base=base)
        without, with_ = pair[0], pair[1]
        row = str(shot), spelt(base)
        values = [printed(_NAME, without, spelt(base), column) for column in ("base", "ifsl")]
        yield _measured((*row, "base"), without, values[0])
        yield _measured((*row, "+ IFSL"), with_, values[1])
        difference, reason = paired_difference(without, with_)
        facts = {
            **about(with_, _ESTIMATE),
            "estimator": "student-t",
            "run": None,
            "fingerprint": None,
        }
        both = None if values[0] is None or values[1] is None else values[1].minus(values[0])
        yield Entry((*row, IFSL_ROW), _COLUMN, difference, reason, both, about=facts)


def _measured(row: tuple[str, ...], result: ExperimentResult, value: Quantity | None) -> Entry:
    found = result.estimates.get(_ESTIMATE)
    measured = None if found is None else Quantity.of(found)
    reason = failed(result.reason)
    return Entry(row, _COLUMN, measured, reason, value, about=about(result, _ESTIMATE))


def _notes(block: BenchmarkResults, entries: tuple[Entry, ...]) -> Iterator[str]:
    yield from settings(block)
    yield (
        "IFSL − base: above 0, IFSL leans less on spurious attributes; both answered the same "
        "tasks, and the interval is Student's over these, weights taken as fixed"
    )
    recipes = dict.fromkeys(str(result.options["recipe"] or "none") for result in block)
    yield (
        f"recipe: {', '.join(recipes)}; the paper does not state the training of this table, nor "
        f"its backbone, and follows Yue et al. 2020, whose smaller one is {IFSL_BACKBONE}"
    )
    if any(entry.printed for entry in entries):
        yield printed_note(_NAME, block)
        yield (
            "printed differences follow from the two printed values, and their intervals take "
            "these as independent"
        )
