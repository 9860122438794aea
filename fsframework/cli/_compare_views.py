"""How comparisons read: on the terminal, in Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsframework.statistics.comparison import Comparison, Counts, Pair
    from fsframework.values import Estimate

__all__ = ["Table", "as_csv", "as_latex", "as_markdown", "as_text", "tables_of"]

_SIGNS = {"+": "+", "-": "−", "0": "0"}
_REVERSED = {"+": "-", "-": "+", "0": "0"}
_MATRIX = (
    "row against column, three signs a pair: closed, open, paired; + the row's method is higher, "
    "− lower, 0 cannot be told, · not measured; ! the paired comparison concludes the opposite; "
    "each pair on its own, not adjusted for their number"
)
_GROUPS = "methods that share a letter cannot be told apart (Holm's p over all pairs)"
_CSV = (
    *("measure", "tasks", "first", "second", "first_value", "second_value"),
    *("difference", "low", "high", "level", "kind", "estimator", "n_tasks", "n_images"),
    *("p", "p_holm", "p_bh", "correlation", "direct", "paired", "inverted", "note", "cautions"),
)
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
    "−": r"$-$",
    "·": r"$\cdot$",
    "|": r"$|$",
}


@dataclass(frozen=True)
class Table:
    """A table as every format draws it: a title, columns, rows of text, and lines below.

    ``cautions`` are lines too, which stand below each table where tables are apart, and last.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    def narrowed(self) -> Table:
        """Return the table with what is the same in all rows, of how to read them, in its title."""
        n = len(_READ_WITH)
        said = {row[-n:] for row in self.rows}
        if self.columns[-n:] != _READ_WITH or len(said) != 1:
            return self
        interval, tasks, images = said.pop()
        return Table(
            f"{self.title}: {interval}; {tasks} tasks, images {images}",
            self.columns[:-n],
            tuple(row[:-n] for row in self.rows),
            self.notes,
            self.cautions,
        )

    @property
    def width(self) -> int:
        """Columns of characters it takes on a terminal."""
        cells = zip(self.columns, *self.rows, strict=True)
        return sum(max(map(len, column)) + 2 for column in cells) - 2


def tables_of(
    comparisons: Sequence[Comparison],
    counts: Counts,
    beside: Mapping[str, Comparison],
    baseline: str | None,
    cautions: Sequence[str] = (),
) -> list[Table]:
    """Return the tables of one or many comparisons.

    Args:
        beside: by measure, the same methods on tasks of the other kind.
        cautions: sentences that must stand under every table.
    """
    tables = []
    notes: list[str] = []
    for measure in dict.fromkeys(c.measure for c in comparisons):
        chosen = [c for c in comparisons if c.measure == measure]
        several = len(chosen) > 1
        tables.append(_values_table(measure, chosen, several, baseline))
        tables.append(_pairs_table(measure, chosen, several))
        if not several and baseline is None:
            other = beside.get(measure)
            tables.append(_matrix(chosen[0], other))
            if other is not None:
                tables.insert(-2, _values_table(measure, [other], False, baseline))
                notes += [_changes(chosen[0], other), *_notes(other, several=True)]
        notes += [note for c in chosen for note in _notes(c, several)]
    plural = "pair" if counts.pairs == 1 else "pairs"
    summary = (
        f"{counts.pairs} {plural}: direct comparison tells {counts.direct} apart, paired "
        f"{counts.paired}, paired after Holm {counts.holm}",
        f"told apart by paired comparison alone {counts.only_paired}, by direct alone "
        f"{counts.only_direct}, inversions {counts.inverted}",
    )
    last = tables[-1]
    tables[-1] = Table(
        last.title, last.columns, last.rows, (*last.notes, *summary, *dict.fromkeys(notes))
    )
    return [dataclasses.replace(t, cautions=tuple(cautions)) for t in tables]


def _changes(comparison: Comparison, beside: Comparison) -> str:
    """Say what becomes of conclusions from closed intervals, as the paper's section 3 does."""
    by_kind = {next(iter(c.values.values())).kind: c for c in (comparison, beside)}
    closed, opened = by_kind["closed"], by_kind["open"]
    concluded = [p for p in closed.pairs if p.direct != "0"]
    lost = inverted = 0
    for pair in concluded:
        other, turned = opened.pair(pair.first, pair.second)
        paired = other.paired if turned > 0 else _REVERSED[other.paired]
        lost += paired == "0"
        inverted += paired == _REVERSED[pair.direct]
    return (
        f"{comparison.measure}: closed intervals tell {len(concluded)} of {len(closed.pairs)} "
        f"apart; of these the paired comparison on open tasks confirms "
        f"{len(concluded) - lost - inverted}, leaves {lost} open and inverts {inverted}"
    )


def _notes(comparison: Comparison, several: bool) -> list[str]:
    about = f"{comparison.measure} on {comparison.task_set}: " if several else ""
    own = [*comparison.notes, *(p.note for p in comparison.pairs if p.note)]
    notes = [f"note: {about}{note}" for note in own]
    if any(e.kind == "closed" for e in comparison.values.values()):
        notes.append("closed: images recur between tasks; it speaks of this data set only")
    return notes


def _values_table(
    measure: str, comparisons: Sequence[Comparison], several: bool, baseline: str | None
) -> Table:
    rows = []
    for c in comparisons:
        ordered = c.groups or c.values
        for label in ordered:
            value = c.values[label]
            first = (c.task_set,) if several else ()
            cells = (label, _number(value), *(() if baseline else (c.groups[label],)))
            rows.append((*first, *cells, *_read_with(value)))
            if label in c.other_kind:
                value = c.other_kind[label]
                cells = (label, _number(value), *(() if baseline else ("",)))
                rows.append((*first, *cells, *_read_with(value)))
    columns = ("method", measure, *(() if baseline else ("group",)), *_READ_WITH)
    title = measure if several else f"{measure} on {comparisons[0].task_set}"
    return Table(
        title,
        (*(("tasks of",) if several else ()), *columns),
        tuple(rows),
        () if baseline else (_GROUPS,),
    )


def _pairs_table(measure: str, comparisons: Sequence[Comparison], several: bool) -> Table:
    rows = [
        (
            *((c.task_set,) if several else ()),
            f"{pair.first} − {pair.second}",
            _number(pair.difference, signed=True),
            _p(pair.p),
            _p(pair.p_holm),
            _p(pair.p_bh),
            "" if pair.correlation is None else f"{pair.correlation:.2f}".replace("-", "−"),
            _SIGNS[pair.direct],
            _SIGNS[pair.paired] + (" !" if pair.inverted else ""),
            _verdict(pair, 1 - c.level),
            *_read_with(pair.difference),
        )
        for c in comparisons
        for pair in c.pairs
    ]
    columns = ("pair", "difference", "p", "Holm", "BH", "r", "direct", "paired", "verdict")
    return Table(
        f"{measure}, paired differences",
        (*(("tasks of",) if several else ()), *columns, *_READ_WITH),
        tuple(rows),
        (
            "p two-sided; Holm and BH adjusted for all pairs of a table's tasks; r correlation "
            "over tasks; verdict by Holm",
        ),
    )


def _matrix(comparison: Comparison, beside: Comparison | None) -> Table:
    from fsframework.statistics.comparison import direct_sign

    labels = list(comparison.groups or comparison.values)
    by_kind = {next(iter(c.values.values())).kind: c for c in (beside, comparison) if c}
    paired = by_kind.get("open", comparison)

    def cell(row: str, column: str) -> str:
        if row == column:
            return ""
        signs = [
            _sign(by_kind[kind], row, column, "direct") if kind in by_kind else "·"
            for kind in ("closed", "open")
        ]
        for place, kind in enumerate(("closed", "open")):
            own = comparison.other_kind
            if kind not in by_kind and own and own[row].kind == kind:
                signs[place] = _SIGNS[direct_sign(own[row], own[column])]
        last = _sign(paired, row, column, "paired")
        inverted = any({sign, last} == {"+", "−"} for sign in signs)
        return "".join(signs) + last + ("!" if inverted else "")

    rows = tuple((row, *(cell(row, column) for column in labels)) for row in labels)
    return Table(f"{comparison.measure}, who is higher", ("", *labels), rows, (_MATRIX,))


def _sign(comparison: Comparison, row: str, column: str, which: str) -> str:
    pair, turned = comparison.pair(row, column)
    sign = pair.direct if which == "direct" else pair.paired
    return _SIGNS[sign if turned > 0 else _REVERSED[sign]]


_READ_WITH = ("interval", "tasks", "images")


def _read_with(estimate: Estimate) -> tuple[str, str, str]:
    """Return what must stand beside every ±."""
    paired = ", paired" if estimate.paired else ""
    return (
        f"{100 * estimate.level:g} % {estimate.kind}, {estimate.estimator}{paired}",
        f"{estimate.n_tasks:,}",
        f"{estimate.n_images:,}" if estimate.n_images else "not known",
    )


def _number(estimate: Estimate, *, signed: bool = False) -> str:
    factor, unit, digits = (100, " %", 2) if estimate.share else (1, "", 4)
    sign = "+" if signed and estimate.value else ""
    value = f"{factor * estimate.value:{sign}.{digits}f}".replace("-", "−")
    if math.isnan(estimate.low):
        return f"{value}{unit} (no interval)"
    if estimate.low == estimate.high and not estimate.paired:
        return f"{value}{unit} in every task"
    if estimate.estimator in ("percentile", "bca"):
        bounds = (
            f"{factor * b:.{digits}f}".replace("-", "−") for b in (estimate.low, estimate.high)
        )
        return f"{value} [{' to '.join(bounds)}]{unit}"
    return f"{value} ± {factor * estimate.half_width:.{digits}f}{unit}"


def _p(p: float | None) -> str:
    if p is None:
        return "none"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _verdict(pair: Pair, alpha: float) -> str:
    if pair.p_holm is None:
        return "see note"
    if pair.p_holm > alpha:
        return "cannot be told"
    return f"{pair.first if pair.difference.value > 0 else pair.second} higher"


def _lines_below(tables: Sequence[Table]) -> list[str]:
    """Return the lines below all tables, each once, what must be known of the data last."""
    notes = [note for table in tables for note in table.notes]
    return list(dict.fromkeys([*notes, *(said for table in tables for said in table.cautions)]))


def as_text(tables: Sequence[Table]) -> str:
    """Return plain tables, one below the other."""
    from fsframework.cli import render

    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    tables = [t if t.width <= room else t.narrowed() for t in tables]
    parts = [f"{t.title}\n{render.text_table(t.columns, t.rows)}" for t in tables]
    notes = _lines_below(tables)
    return "\n\n".join([*parts, "\n".join(notes)])


def as_markdown(tables: Sequence[Table]) -> str:
    """Return Markdown tables under headings."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    parts = []
    for table in tables:
        rule = "|" + "---|" * len(table.columns)
        rows = [line(table.columns), rule, *map(line, table.rows)]
        parts.append("\n".join([f"### {table.title}\n", *rows]))
    notes = _lines_below(tables)
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes)])


def as_latex(tables: Sequence[Table]) -> str:
    """Return LaTeX tables; they need the package ``booktabs``."""

    def line(cells: Sequence[str]) -> str:
        return "    " + " & ".join(map(_escaped, cells)) + r" \\"

    parts = [r"% needs \usepackage{booktabs}"]
    for table in (table.narrowed() for table in tables):
        notes = " ".join(f"{note}." for note in (table.title, *table.notes, *table.cautions))
        parts.append(
            "\n".join(
                [
                    r"\begin{table}",
                    r"  \centering",
                    f"  \\caption{{{_escaped(notes)}}}",
                    f"  \\begin{{tabular}}{{{'l' * len(table.columns)}}}",
                    r"    \toprule",
                    line(table.columns),
                    r"    \midrule",
                    *map(line, table.rows),
                    r"    \bottomrule",
                    r"  \end{tabular}",
                    r"\end{table}",
                ]
            )
        )
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    r"""Escape what LaTeX would take for a command.

    >>> print(_escaped("a_b 50 % ± 1"))
    a\_b 50 \% $\pm$ 1
    """
    return "".join(_LATEX.get(character, character) for character in text)


def as_csv(
    comparisons: Sequence[Comparison], cautions: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Return every pair of every measure, a line each, numbers unrounded and shares of 1."""
    from fsframework.pipeline.lineage import footnotes

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV)
    for c in comparisons:
        for pair in c.pairs:
            d = pair.difference
            said = {name: (cautions or {}).get(name, ()) for name in (pair.first, pair.second)}
            bounds = ("" if math.isnan(bound) else bound for bound in (d.low, d.high))
            writer.writerow(
                [
                    c.measure,
                    c.task_set,
                    pair.first,
                    pair.second,
                    c.values[pair.first].value,
                    c.values[pair.second].value,
                    d.value,
                    *bounds,
                    d.level,
                    d.kind,
                    d.estimator,
                    d.n_tasks,
                    d.n_images or "",
                    *("" if v is None else v for v in (pair.p, pair.p_holm, pair.p_bh)),
                    "" if pair.correlation is None else pair.correlation,
                    pair.direct,
                    pair.paired,
                    int(pair.inverted),
                    pair.note,
                    "; ".join(footnotes(said)),
                ]
            )
    return out.getvalue().rstrip("\n")
