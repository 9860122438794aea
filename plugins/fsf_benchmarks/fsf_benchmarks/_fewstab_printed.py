"""What FewSTAB prints for the cell of a run.

Source: Zheng et al. 2024, Tables 3, S5, S6, S7, S8 and S10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fsf_benchmarks._fewstab import BACKBONE, DETECTOR, IFSL, PAPER_SHAPE, TECHNIQUES
from fsf_benchmarks._published import BASES, DATASETS, DETECTORS, METHODS, printed_values
from fsf_benchmarks.interfaces import Cell, PrintedValue
from fsf_reports.values import Quantity

__all__ = ["printed_for"]

_NAMES = dict(zip(("miniimagenet", "tieredimagenet", "cub"), DATASETS, strict=True))
_OWN = TECHNIQUES["SC3"]
_SAMPLERS = ("fewstab", "fewstab-published")


def printed_for(cell: Cell) -> Iterator[PrintedValue]:
    """Yield the printed values of a cell; nothing if a table has no such cell."""
    sampler, data = cell.sampler, cell.is_of(_NAMES)
    shape = tuple(sampler.get(name) for name in ("n_way", "n_query"))
    if not data or sampler.get("name") not in _SAMPLERS or shape != PAPER_SHAPE:
        return
    place = data, int(sampler["n_shot"])
    technique = {key: sampler.get(key, own) for key, own in _OWN.items()}
    if cell.backbone == BACKBONE and cell.method in METHODS:
        method = METHODS[cell.method]
        if technique == _OWN:
            yield from _plain(cell, *place, method)
        else:
            yield from _constructed(cell, *place, method, technique)
    if technique == _OWN:
        yield from _without_and_with(cell, *place)


def _plain(cell: Cell, data: str, shot: int, method: str) -> Iterator[PrintedValue]:
    """Yield Acc, wAcc-R, wAcc-A and their difference; that of BLIP's words is in Table S8."""
    known = printed_values()
    acc = known.get(("S7", data, shot, method, "Acc"))
    random = known.get(("3", data, shot, method, "wAcc-R"))
    table, biased = "Table 3", known.get(("3", data, shot, method, "wAcc-A"))
    if cell.detector != DETECTOR and cell.detector in DETECTORS:
        table = "Table S8"
        biased = known.get(("S8", data, shot, method, DETECTORS[cell.detector]))
    apart = _words(cell)
    if acc is not None:
        yield PrintedValue("acc-random", acc, "FewSTAB", "Table S7")
    if random is not None:
        yield PrintedValue("wacc-random", random, "FewSTAB", "Table 3")
    if biased is not None:
        yield PrintedValue("wacc-biased", biased, "FewSTAB", table, apart)
    if random is not None and biased is not None:
        both = " and ".join(dict.fromkeys(("Table 3", table)))
        yield PrintedValue("wacc-gap", random.minus(biased), "FewSTAB", both, apart)


def _constructed(
    cell: Cell, data: str, shot: int, method: str, technique: Mapping[str, str]
) -> Iterator[PrintedValue]:
    """Yield the gap of another construction of the tasks."""
    for name, options in TECHNIQUES.items():
        table = f"S{5 if name.startswith('SC') else 6}"
        gap = printed_values().get((table, data, shot, method, name))
        if technique == options and gap is not None:
            yield PrintedValue("wacc-gap", gap, "FewSTAB", f"Table {table}", _words(cell))


def _without_and_with(cell: Cell, data: str, shot: int) -> Iterator[PrintedValue]:
    """Yield wAcc-A of a method of Table S10, which names no backbone."""
    wrapper, _, base = cell.method.rpartition(":")
    if wrapper not in ("", IFSL) or base not in BASES:
        return
    column = "ifsl" if wrapper else "base"
    value: Quantity | None = printed_values().get(("S10", data, shot, BASES[base], column))
    if value is not None:
        apart = ", ".join(filter(None, ("no backbone named", _words(cell))))
        yield PrintedValue("wacc-biased", value, "FewSTAB", "Table S10", apart)


def _words(cell: Cell) -> str:
    """Return whose words the publication used, where they are not those of the run."""
    return "" if cell.detector in DETECTORS else f"words by {DETECTORS[DETECTOR]}"
