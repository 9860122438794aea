"""What FewSTAB's tables say besides which method has the smallest gap."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from fsf_benchmarks._fewstab import IFSL_ROW, TRAINED
from fsf_benchmarks._sentences import beside_printed, conclusive, per_column
from fsf_reports.values import Entry, TableDeclaration

__all__ = ["sentences_on"]


def sentences_on(tables: Sequence[TableDeclaration]) -> Iterator[str]:
    """Yield a sentence per table that does not compare methods by their gap."""
    for table in tables:
        said = _SAY.get(table.name)
        if said is not None:
            yield from said(table)
    of_wacc = [table for table in tables if table.name in ("Table 3", "Table S10")]
    yield from beside_printed(of_wacc)


def _ablation(table: TableDeclaration) -> Iterator[str]:
    """Yield the averages over methods, which belong to no run, for each construction."""
    what = "support" if table.name == "Table S5" else "queries"
    rows = [e for e in table.entries if e.measured is not None and e.about["run"] is None]
    for shot, row in itertools.groupby(rows, key=lambda entry: entry.row[0]):
        if told := per_column(row):
            yield f"By construction of the {what}, {shot}-shot, the average gap is {told} points."


def _correlation(table: TableDeclaration) -> Iterator[str]:
    """Yield how alike two rankings of the methods are."""
    between = "wAcc-R" if table.name == "Table 4" else "wAcc-A with other words"
    for entry in table.entries:
        if entry.measured is not None:
            data, shot = entry.row[:2]
            yield (
                f"Ranks by wAcc-A and by {between} have the correlation {entry.measured.text()} "
                f"({data}, {shot}-shot)."
            )


def _training_shots(table: TableDeclaration) -> Iterator[str]:
    """Yield how often more shots in training made a model more robust."""
    few, many = TRAINED
    more, less, known = conclusive(table.entries)
    if known:
        yield (
            f"Trained at {many} shots rather than {few}, wAcc-A is higher in {more} of {known} "
            f"cases and lower in {less}, by whole intervals."
        )


def _ifsl(table: TableDeclaration) -> Iterator[str]:
    """Yield how often IFSL made a method more robust."""
    differences: list[Entry] = [e for e in table.entries if e.row[-1] == IFSL_ROW]
    more, less, known = conclusive(differences)
    if known:
        yield (
            f"IFSL raises wAcc-A in {more} of {known} cases and lowers it in {less}, by whole "
            "intervals."
        )


_SAY: Mapping[str, Callable[[TableDeclaration], Iterator[str]]] = {
    "Table S5": _ablation,
    "Table S6": _ablation,
    "Table 4": _correlation,
    "Table 6": _correlation,
    "Figure 6": _training_shots,
    "Table S10": _ifsl,
}
