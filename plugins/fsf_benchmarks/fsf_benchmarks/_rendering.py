"""Tables as text, CSV, Markdown, LaTeX and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fsframework.api.files import atomic_write
from fsframework.errors import OptionError, argument
from fsframework.values import Entry, Quantity, TableDeclaration

__all__ = [
    "SUFFIXES",
    "cells_of",
    "check_suffix",
    "heads_of",
    "to_csv",
    "to_markdown",
    "to_tex",
    "write_tables",
]

SUFFIXES = (".md", ".csv", ".json", ".tex")
"""Suffixes of the files that tables can be written to."""

_ABSENT = "–"

Beside = list[tuple[str, Callable[[Entry], str]]]
"""Heads and contents of the columns next to a measured column."""


def heads_of(table: TableDeclaration) -> list[str]:
    """Return the column heads as they are shown."""
    heads = [*table.row_names]
    for column in table.columns:
        heads += [column, *(head for head, _ in _beside(table, column))]
    return heads


def cells_of(table: TableDeclaration) -> list[list[str]]:
    """Return the cells as they are shown, row by row."""
    found: dict[tuple[str, ...], dict[str, Entry]] = {}
    for entry in table.entries:
        found.setdefault(entry.row, {})[entry.column] = entry
    rows = []
    for names, entries in found.items():
        row, given = [*names], set[str]()
        for column in table.columns:
            here = entries.get(column)
            row.append(_measured(here, given))
            row += [_ABSENT if here is None else text(here) for _, text in _beside(table, column)]
        rows.append(row)
    return rows


def _beside(table: TableDeclaration, column: str) -> Beside:
    entries = [entry for entry in table.entries if entry.column == column]
    beside: Beside = []
    if any(entry.printed for entry in entries):
        beside.append(("printed", lambda entry: _shown(entry.printed)))
        if table.differences:
            beside.append(("difference", lambda entry: _shown(entry.difference, signed=True)))
    if any(entry.from_printed for entry in entries):
        beside.append(("printed, these methods", lambda entry: _shown(entry.from_printed)))
    return beside


def _measured(entry: Entry | None, given: set[str]) -> str:
    """Return a measured value, or why there is none; each reason is given once per row."""
    if entry is None:
        return _ABSENT
    if entry.measured is not None:
        text = entry.measured.text()
        return text if entry.measured.has_interval else f"{text} (no interval)"
    if entry.reason in given:
        return _ABSENT
    given.add(entry.reason)
    return entry.reason


def _shown(quantity: Quantity | None, *, signed: bool = False) -> str:
    return _ABSENT if quantity is None else quantity.text(signed=signed)


def check_suffix(path: Path, suffixes: Sequence[str] = SUFFIXES, *, force: bool = False) -> None:
    """Check that a file of this name can be written.

    Args:
        path: path of the file.
        suffixes: suffixes that it may have.
        force: whether an existing file may be replaced.

    Raises:
        OptionError: it has another suffix, its folder is missing, or the file exists.
    """
    if path.suffix.lower() not in suffixes:
        raise OptionError(f"{path}: the name must end in {', '.join(suffixes)}")
    if not path.absolute().parent.is_dir():
        raise OptionError(f"{path}: the folder {path.parent} does not exist")
    if path.exists() and not force:
        raise OptionError(f"{path} exists; replace it with {argument('force')}")


def write_tables(
    tables: Sequence[TableDeclaration], document: Mapping[str, Any], path: Path
) -> None:
    """Write tables in the format of the file's suffix: ``.md``, ``.csv``, ``.tex`` or ``.json``.

    Args:
        tables: the tables.
        document: the content of a ``.json`` file.
        path: path of the file; see ``check_suffix``.

    Raises:
        FsfError: the file cannot be written.
    """
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


def to_csv(tables: Sequence[TableDeclaration]) -> str:
    """Return CSV with one row per measured value of all tables."""
    rows = [{"table": t.name, **entry.to_json()} for t in tables for entry in t.entries]
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def to_markdown(tables: Sequence[TableDeclaration]) -> str:
    """Return Markdown tables, each with its notes below.

    >>> entry = Entry(("1",), "Acc", Quantity.around(50, 1))
    >>> print(to_markdown([TableDeclaration("Table S7", "Accuracy.", ("shot",), (entry,))]))
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
        head, rows = heads_of(table), cells_of(table)
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


def _caption(table: TableDeclaration) -> str:
    name = f"{table.name} of {table.source}" if table.source else table.name
    return f"{name}. {table.title}"


def to_tex(tables: Sequence[TableDeclaration]) -> str:
    """Return LaTeX tables, each with its notes below; they need the package ``booktabs``."""
    parts = [r"% needs \usepackage{booktabs}"]
    for table in tables:
        head, rows = heads_of(table), cells_of(table)
        lines = [" & ".join(map(_tex, line)) + r" \\" for line in (head, *rows)]
        parts += [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(_caption(table))}}}",
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
