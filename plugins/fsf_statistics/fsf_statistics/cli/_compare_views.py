"""Comparisons as text for the terminal, Markdown, LaTeX and CSV."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from fsf_statistics.cli._comparison_tables import (
    READ_WITH,
    SIGNS,
    ComparisonTable,
    comparison_notes,
    count_pairs,
    counts_in_words,
    pairs_table,
    values_table,
)

if TYPE_CHECKING:
    from fsf_statistics.comparing import Comparison, MeasureComparison

__all__ = ["PARTS", "ComparisonTable", "as_csv", "as_latex", "as_markdown", "as_text", "tables_of"]

PARTS = ("values", "pairs", "matrix", "counts")
"""What a comparison can show in full: the values with their intervals, all pairs, who is higher,
and how many pairs differ before and after each correction."""

_REVERSED = {"+": "-", "-": "+", "0": "0"}
_MATRIX = (
    "row against column, three signs per pair: closed, open, paired; + the row's method is higher, "
    "− lower, 0 undecided, · not measured; ! the paired comparison concludes the opposite; "
    "not adjusted for the number of pairs"
)
_CSV = (
    *("measure", "tasks", "first", "second", "first_value", "second_value"),
    *("difference", "low", "high", "level", "scope", "estimator", "n_tasks", "n_images"),
    *("p", "p_holm", "p_bh", "correlation", "direct", "paired", "inverted", "note", "cautions"),
    *("first_seeds", "second_seeds"),
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


def tables_of(
    comparison: Comparison,
    beside: Mapping[str, MeasureComparison],
    cautions: Sequence[str] = (),
    shown: Collection[str] = PARTS,
) -> list[ComparisonTable]:
    """Return the tables of a comparison, with the notes below the last.

    Args:
        comparison: of one or more measures, on one or more sets of tasks.
        beside: the same methods on tasks of the other scope, by measure of the comparison.
        cautions: sentences that must appear below every table.
        shown: of ``PARTS``; at least one of the first three.
    """
    tables: list[ComparisonTable] = []
    notes: list[str] = []
    for name in dict.fromkeys(part.measure.name for part in comparison):
        parts = [part for part in comparison if part.measure.name == name]
        several, other = len(parts) > 1, beside.get(name)
        if "values" in shown:
            tables += [values_table(one) for one in (parts, other and [other]) if one]
        if "pairs" in shown:
            tables.append(pairs_table(parts))
        if "matrix" in shown and not several and parts[0].letters:
            tables.append(_matrix(parts[0], other))
        notes += [note for part in parts for note in comparison_notes(part, several)]
        if other is not None:
            notes += [_changes(parts[0], other), *comparison_notes(other, several=True)]
    if not tables:
        return []
    last = tables[-1]
    counts = counts_in_words(count_pairs(comparison)) if "counts" in shown else ()
    below = (*last.notes, *counts, *dict.fromkeys(notes))
    tables[-1] = dataclasses.replace(last, notes=below)
    return [dataclasses.replace(table, cautions=tuple(cautions)) for table in tables]


def _changes(comparison: MeasureComparison, beside: MeasureComparison) -> str:
    """Return how conclusions from closed intervals change, as in section 3 of the paper."""
    by_scope = {one.scope: one for one in (comparison, beside)}
    closed, opened = by_scope["closed"], by_scope["open"]
    concluded = [p for p in closed.pairs if p.direct != "0"]
    lost = inverted = 0
    for pair in concluded:
        other, turned = opened.pair(pair.first, pair.second)
        paired = other.paired if turned > 0 else _REVERSED[other.paired]
        lost += paired == "0"
        inverted += paired == _REVERSED[pair.direct]
    return (
        f"{comparison.measure.name}: closed intervals separate {len(concluded)} of "
        f"{len(closed.pairs)} pairs; of these, the paired comparison on open tasks confirms "
        f"{len(concluded) - lost - inverted}, leaves {lost} undecided and inverts {inverted}"
    )


def _matrix(comparison: MeasureComparison, beside: MeasureComparison | None) -> ComparisonTable:
    from fsf_statistics.comparing import direct_sign

    labels = list(comparison.letters or comparison.values)
    by_scope = {one.scope: one for one in (beside, comparison) if one is not None}
    paired = by_scope.get("open", comparison)

    def cell(row: str, column: str) -> str:
        if row == column:
            return ""
        signs = [
            _sign(by_scope[scope], row, column, "direct") if scope in by_scope else "·"
            for scope in ("closed", "open")
        ]
        for place, scope in enumerate(("closed", "open")):
            own = comparison.other_scope
            if scope not in by_scope and own and own[row].scope == scope:
                signs[place] = SIGNS[direct_sign(own[row], own[column])]
        last = _sign(paired, row, column, "paired")
        inverted = any({sign, last} == {"+", "−"} for sign in signs)
        return "".join(signs) + last + ("!" if inverted else "")

    rows = tuple((row, *(cell(row, column) for column in labels)) for row in labels)
    title = f"{comparison.measure.name}, who is higher"
    return ComparisonTable(title, ("", *labels), rows, (_MATRIX,))


def _sign(comparison: MeasureComparison, row: str, column: str, which: str) -> str:
    pair, turned = comparison.pair(row, column)
    sign = pair.direct if which == "direct" else pair.paired
    return SIGNS[sign if turned > 0 else _REVERSED[sign]]


def _narrowed(table: ComparisonTable) -> ComparisonTable:
    """Return a table with the columns that are the same in all rows moved to its title."""
    n = len(READ_WITH)
    said = {row[-n:] for row in table.rows}
    if table.columns[-n:] != READ_WITH or len(said) != 1:
        return table
    interval, tasks, images = said.pop()
    return dataclasses.replace(
        table,
        title=f"{table.title}: {interval}; {tasks} tasks, images {images}",
        columns=table.columns[:-n],
        rows=tuple(row[:-n] for row in table.rows),
    )


def _width(table: ComparisonTable) -> int:
    """Return the width of a table on a terminal, in characters."""
    cells = zip(table.columns, *table.rows, strict=True)
    return sum(max(map(len, column)) + 2 for column in cells) - 2


def _lines_below(tables: Sequence[ComparisonTable]) -> list[str]:
    """Return the lines below all tables, each once, with cautions on the data last."""
    notes = [note for table in tables for note in table.notes]
    return list(dict.fromkeys([*notes, *(said for table in tables for said in table.cautions)]))


def as_text(tables: Sequence[ComparisonTable]) -> str:
    """Return plain-text tables, one below the other."""
    from fsframework.cli.render import room_of_line
    from fsframework.values import text_table

    room = room_of_line()
    tables = [t if _width(t) <= room else _narrowed(t) for t in tables]
    parts = [f"{t.title}\n{text_table(t.columns, t.rows, room)}" for t in tables]
    notes = _lines_below(tables)
    return "\n\n".join([*parts, "\n".join(notes)])


def as_markdown(tables: Sequence[ComparisonTable]) -> str:
    """Return Markdown tables under headings."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(map(_marked_down, cells)) + " |"

    parts = []
    for table in tables:
        rule = "|" + "---|" * len(table.columns)
        rows = [line(table.columns), rule, *map(line, table.rows)]
        parts.append("\n".join([f"### {_marked_down(table.title)}\n", *rows]))
    notes = map(_marked_down, _lines_below(tables))
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes)])


def _marked_down(text: str) -> str:
    r"""Return a text on one line of which Markdown makes no element, link or column.

    >>> print(_marked_down("<b>a|b\n[x](y)"))
    \<b>a\|b [x\](y)
    """
    return re.sub(r"[\\`<|]|\](?=[(\[])", r"\\\g<0>", " ".join(text.split()))


def as_latex(tables: Sequence[ComparisonTable]) -> str:
    """Return LaTeX tables; they need the package ``booktabs``."""

    def line(cells: Sequence[str]) -> str:
        return "    " + " & ".join(map(_escaped, cells)) + r" \\"

    parts = [r"% needs \usepackage{booktabs}"]
    for table in map(_narrowed, tables):
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
    r"""Escape the characters that are special in LaTeX.

    >>> print(_escaped("a_b 50 % ± 1"))
    a\_b 50 \% $\pm$ 1
    """
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def as_csv(
    comparisons: Sequence[MeasureComparison], cautions: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Return one line per pair and measure, with unrounded numbers as shares of 1."""
    from fsframework.values import csv_text, footnotes

    rows = []
    for c in comparisons:
        for pair in c.pairs:
            d = pair.difference
            said = {name: (cautions or {}).get(name, ()) for name in (pair.first, pair.second)}
            first, second = c.values[pair.first], c.values[pair.second]
            rows.append(
                (
                    *(c.measure.name, c.task_set, pair.first, pair.second),
                    *(first.value, second.value, d.value),
                    *(None if math.isnan(bound) else bound for bound in (d.low, d.high)),
                    *(d.level, d.scope, d.estimator, d.n_tasks, d.n_images or None),
                    *(pair.p, pair.p_holm, pair.p_bh, pair.correlation, pair.direct, pair.paired),
                    *(int(pair.inverted), pair.note, "; ".join(footnotes(said))),
                    *(first.n_seeds, second.n_seeds),
                )
            )
    return csv_text(_CSV, rows).rstrip("\n")
