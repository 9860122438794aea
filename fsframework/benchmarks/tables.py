"""Tables of measured values beside printed ones, and the files they are written to."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from fsframework._files import atomic_write
from fsframework.errors import OptionError
from fsframework.values import Estimate

__all__ = [
    "SUFFIXES",
    "Line",
    "Quantity",
    "Table",
    "check_suffix",
    "to_csv",
    "to_markdown",
    "to_tex",
    "write_tables",
]

SUFFIXES = (".md", ".csv", ".json", ".tex")
"""Endings of the files that tables can be written to."""

_ABSENT = "–"


@dataclass(frozen=True)
class Quantity:
    """A number with its interval.

    Args:
        value: the number; ``low`` and ``high`` bound its interval, NaN where there is none.
        unit: ``%``, or nothing.

    >>> Quantity.around(32.07, 0.58).text()
    '32.07 ± 0.58'
    >>> Quantity(0.96, 0.9, 1.0, unit="").text()
    '0.96 [0.90, 1.00]'
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    unit: str = "%"

    @classmethod
    def around(cls, value: float, half_width: float, unit: str = "%") -> Self:
        """Return a value with a symmetric interval."""
        return cls(value, value - half_width, value + half_width, unit)

    @classmethod
    def of(cls, estimate: Estimate) -> Self:
        """Return an estimate; shares of 1 become percent."""
        factor, unit = (100, "%") if estimate.share else (1, "")
        return cls(factor * estimate.value, factor * estimate.low, factor * estimate.high, unit)

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval."""
        return not math.isnan(self.low)

    @property
    def half_width(self) -> float:
        """Half the length of the interval, NaN where there is none."""
        return round((self.high - self.low) / 2, 12)

    def minus(self, other: Quantity) -> Quantity:
        """Return the difference to an independent quantity.

        Its half-width is the root of the sum of both squared. Where only one of them has an
        interval the other counts as exact.
        """
        halves = [q.half_width for q in (self, other) if q.has_interval]
        half = math.hypot(*halves) if halves else math.nan
        return Quantity.around(self.value - other.value, half, self.unit)

    def text(self, *, signed: bool = False) -> str:
        """Return value and interval with two decimals, as the paper prints them."""
        value = f"{self.value:+.2f}" if signed else f"{self.value:.2f}"
        if not self.has_interval:
            return value
        if self.unit:
            return f"{value} ± {self.half_width:.2f}"
        return f"{value} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Line:
    """One measured value, what was printed for it, and all that must be known to read it.

    Args:
        row: names of the row of the table it stands in; ``column`` is that of its column.
        measured: ``None`` where it could not be measured; ``reason`` says why.
        printed: what the paper prints for it, ``None`` where it has nothing to compare.
        from_printed: the same quantity computed from the paper's values of the methods measured
            here, where that is another thing than ``printed``.
        about: what was measured, as JSON values; the same keys in every line of a table.
    """

    row: tuple[str, ...]
    column: str
    measured: Quantity | None
    reason: str = ""
    printed: Quantity | None = None
    from_printed: Quantity | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def difference(self) -> Quantity | None:
        """Measured minus printed."""
        if self.measured is None or self.printed is None:
            return None
        return self.measured.minus(self.printed)

    def to_json(self) -> dict[str, Any]:
        """Return a flat object; what there is not is null."""
        difference = self.difference
        return {
            "quantity": self.column,
            **_fields("measured", self.measured, bounds=True),
            **_fields("printed", self.printed),
            **_fields("difference", difference),
            "from_printed": None if self.from_printed is None else self.from_printed.value,
            "unit": self.measured.unit if self.measured else "",
            **self.about,
            "reason": self.reason,
        }


def _fields(name: str, quantity: Quantity | None, *, bounds: bool = False) -> dict[str, Any]:
    def known(value: float) -> float | None:
        return None if math.isnan(value) else round(value, 6)

    q = quantity or Quantity(math.nan)
    ends = {f"{name}_low": known(q.low), f"{name}_high": known(q.high)} if bounds else {}
    return {name: known(q.value), f"{name}_half_width": known(q.half_width), **ends}


@dataclass(frozen=True)
class Table:
    """A table of the paper as measured here.

    Args:
        number: the paper's, such as ``S7``, or what it is called, such as ``Figure 3``.
        title: one sentence.
        row_names: what the names of a row are, such as ``shot`` and ``method``.
        lines: in the order of rows and columns.
        notes: sentences that a reader must know.
        differences: whether measured minus printed is shown.
        paper: whose table it is.
    """

    number: str
    title: str
    row_names: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    differences: bool = True
    paper: str = "FewSTAB"

    @property
    def name(self) -> str:
        """What the table is called."""
        return f"Table {self.number}" if len(self.number) <= 3 else self.number

    def to_json(self) -> dict[str, Any]:
        """Return title, notes and every line as JSON values."""
        return {
            "table": self.number,
            "title": self.title,
            "notes": list(self.notes),
            "rows": [line.to_json() for line in self.lines],
        }

    def columns(self) -> list[str]:
        """Return the heads of the columns as they are shown."""
        heads = [*self.row_names]
        for column in self._columns():
            heads += [column, *(head for head, _ in self._beside(column))]
        return heads

    def rows(self) -> list[list[str]]:
        """Return the cells as they are shown."""
        found: dict[tuple[str, ...], dict[str, Line]] = {}
        for line in self.lines:
            found.setdefault(line.row, {})[line.column] = line
        rows = []
        for names, lines in found.items():
            row, told = [*names], set[str]()
            for column in self._columns():
                found_line = lines.get(column)
                row.append(_measured(found_line, told))
                row += [
                    _ABSENT if found_line is None else text(found_line)
                    for _, text in self._beside(column)
                ]
            rows.append(row)
        return rows

    def _columns(self) -> list[str]:
        return list(dict.fromkeys(line.column for line in self.lines))

    def _beside(self, column: str) -> list[tuple[str, Callable[[Line], str]]]:
        """Return heads and contents of what stands beside a measured column."""
        lines = [line for line in self.lines if line.column == column]
        beside: list[tuple[str, Callable[[Line], str]]] = []
        if any(line.printed for line in lines):
            beside.append(("printed", lambda line: _shown(line.printed)))
            if self.differences:
                beside.append(("difference", lambda line: _shown(line.difference, signed=True)))
        if any(line.from_printed for line in lines):
            beside.append(("printed, these methods", lambda line: _shown(line.from_printed)))
        return beside


def _measured(line: Line | None, told: set[str]) -> str:
    """Return a measured value, or why there is none, which is said once a row."""
    if line is None:
        return _ABSENT
    if line.measured is not None:
        text = line.measured.text()
        return text if line.measured.has_interval else f"{text} (no interval)"
    if line.reason in told:
        return _ABSENT
    told.add(line.reason)
    return line.reason


def _shown(quantity: Quantity | None, *, signed: bool = False) -> str:
    return _ABSENT if quantity is None else quantity.text(signed=signed)


def check_suffix(path: Path) -> None:
    """Check that tables can be written to a file of this name.

    Raises:
        OptionError: its ending is none of ``SUFFIXES``, or its folder is not there.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise OptionError(f"--output {path}: must end in {', '.join(SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise OptionError(f"--output {path}: there is no folder {path.parent}")


def write_tables(tables: Sequence[Table], document: Mapping[str, Any], path: Path) -> None:
    """Write tables to a file whose ending says how: ``.md``, ``.csv``, ``.tex`` or ``.json``.

    Args:
        document: what a ``.json`` file holds.

    Raises:
        OptionError: see ``check_suffix``.
        FsfError: the file cannot be written.
    """
    check_suffix(path)
    match path.suffix.lower():
        case ".json":
            text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        case ".csv":
            text = to_csv(tables)
        case ".tex":
            text = to_tex(tables)
        case _:
            text = to_markdown(tables)
    atomic_write(path, text)


def to_csv(tables: Sequence[Table]) -> str:
    """Return one row a measured value, with every table's in one file."""
    rows = [{"table": t.number, **line.to_json()} for t in tables for line in t.lines]
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def to_markdown(tables: Sequence[Table]) -> str:
    """Return Markdown tables, each with its notes below.

    >>> line = Line(("1",), "Acc", Quantity.around(50, 1))
    >>> print(to_markdown([Table("S7", "Accuracy.", ("shot",), (line,))]))
    ## Table S7
    <BLANKLINE>
    Accuracy.
    <BLANKLINE>
    | shot | Acc |
    |---|---|
    | 1 | 50.00 ± 1.00 |
    <BLANKLINE>
    """
    parts = []
    for table in tables:
        head, rows = table.columns(), table.rows()
        lines = [head, ["---"] * len(head), *([_plain(cell) for cell in row] for row in rows)]
        body = ["| " + " | ".join(line) + " |" for line in lines]
        body[1] = body[1].replace(" ", "")
        notes = ["", *(f"- {note}" for note in table.notes)] if table.notes else []
        parts += [f"## {table.name}", "", table.title, "", *body, *notes, ""]
    return "\n".join(parts)


def _plain(cell: str) -> str:
    return " ".join(cell.split()).replace("|", "\\|")


_TEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in " ".join(text.split()))


def to_tex(tables: Sequence[Table]) -> str:
    """Return LaTeX tables, each with its notes below; they need the package ``booktabs``."""
    parts = [r"% needs \usepackage{booktabs}"]
    for table in tables:
        head, rows = table.columns(), table.rows()
        lines = [" & ".join(map(_tex, line)) + r" \\" for line in (head, *rows)]
        parts += [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(table.name)} of {_tex(table.paper)}. {_tex(table.title)}}}",
            rf"\begin{{tabular}}{{{'l' * len(head)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par\footnotesize {_tex(note)}" for note in table.notes),
            r"\end{table}",
        ]
    return "\n".join(parts) + "\n"
